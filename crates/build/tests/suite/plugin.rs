//! The plugin as protoc and buf run it: a request on standard input, a response on standard output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use prost::Message;
use prost_types::compiler::CodeGeneratorRequest;

/// The response, with the fields that prost-types doesn't have.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(string, optional, tag = "1")]
    error: Option<String>,
    #[prost(uint64, tag = "2")]
    supported_features: u64,
    #[prost(int32, tag = "3")]
    minimum_edition: i32,
    #[prost(int32, tag = "4")]
    maximum_edition: i32,
    #[prost(message, repeated, tag = "15")]
    files: Vec<File>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "15")]
    content: String,
}

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_protoc-gen-tollfree"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses its arguments doesn't read.
    let _ = plugin.stdin.take().unwrap().write_all(input);
    plugin.wait_with_output().unwrap()
}

fn answer(request: &[u8]) -> Response {
    let output = run(&[], request);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Response::decode(&output.stdout[..]).unwrap()
}

/// A request as protoc makes it of the protos in this directory.
fn request(file: &str, parameter: &str) -> CodeGeneratorRequest {
    let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protos");
    CodeGeneratorRequest {
        file_to_generate: vec![file.to_owned()],
        parameter: Some(parameter.to_owned()),
        proto_file: protox::compile([file], [protos]).unwrap().file,
        compiler_version: None,
    }
}

#[test]
fn what_is_asked_for_is_generated_and_imports_are_not() {
    let response = answer(&request("kinds.proto", "").encode_to_vec());
    assert_eq!(response.error, None);
    assert_eq!(response.supported_features, 3, "proto3 optional and editions");
    assert_eq!((response.minimum_edition, response.maximum_edition), (1000, 1001));
    let names: Vec<_> = response.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["golden.kinds.v1.rs"]);
    let built =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/kinds.rs")).unwrap();
    assert_eq!(response.files[0].content, built, "the same as in a build.rs");
}

#[test]
fn parameters_are_the_builders_settings() {
    let parameter = "no_server, no_transport, type_attribute=.golden.kinds.v1.Chat=#[derive(Eq)], bytes=.";
    let content = &answer(&request("kinds.proto", parameter).encode_to_vec()).files[0].content;
    for (expected, text) in [
        (true, "mod kinds_client"),
        (false, "mod kinds_server"),
        (false, "fn connect"),
        (true, "#[derive(Eq)]"),
        (true, "::prost::bytes::Bytes"),
    ] {
        assert_eq!(content.contains(text), expected, "{text}");
    }
    for (parameter, word) in [
        ("nonsense", "none that there is"),
        ("no_client=1", "no value"),
        ("extern_path=.a", "path=text"),
        ("bytes", "value"),
    ] {
        let response = answer(&request("kinds.proto", parameter).encode_to_vec());
        let error = response.error.unwrap();
        assert!(error.contains(&format!("\"{parameter}\"")) && error.contains(word), "{error}");
        assert!(response.files.is_empty());
    }
}

#[test]
fn what_is_no_request_is_said_with_a_status() {
    for input in [&b""[..], b"\xff\xff\xff", b"hello"] {
        let output = run(&[], input);
        assert!(!output.status.success() && output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("CodeGeneratorRequest"), "{said}");
    }
    let output = run(&["--version"], b"");
    assert!(!output.status.success());
    let output = run(&["--help"], b"");
    assert!(output.status.success() && String::from_utf8(output.stderr).unwrap().contains("extern_path"));
}

#[test]
fn what_cannot_be_generated_is_refused_with_its_place() {
    let response = answer(&request("names.proto", "").encode_to_vec());
    assert!(response.files.is_empty());
    let error = response.error.unwrap();
    let expected = [
        "names.proto:12: methods GetIt and Get_It would have the same name in Rust; rename one",
        "names.proto:14: services Twice and twice would have the same name in Rust; rename one",
        "names.proto:18: types Foo_Bar and FooBar would have the same name in Rust; rename one",
        "names.proto:23: values COLOR_RED and RED would have the same name in Rust; rename one",
    ];
    let mut lines: Vec<_> = error.lines().collect();
    lines.sort_by_key(|line| line.split(':').nth(1).and_then(|line| line.parse::<u32>().ok()));
    assert_eq!(lines, expected);
}

/// Fields of a message that prost-types doesn't know, appended to its bytes as descriptor.proto numbers them.
mod edition {
    use super::*;
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Extra {
        #[prost(bytes, repeated, tag = "15")]
        pub(super) files: Vec<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Tail {
        #[prost(int32, tag = "14")]
        edition: i32,
    }

    fn varint_message(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag << 3 | 2, content.len() as u8], content].concat()
    }

    /// `FieldOptions` with features; their number, 21, takes two bytes.
    fn options(features: &[u8]) -> Vec<u8> {
        let options = [&[0xaa, 0x01, features.len() as u8], features].concat();
        varint_message(8, &options)
    }

    fn field(name: &str, number: i32, ty: Type, label: Label, features: &[u8]) -> Vec<u8> {
        let field = FieldDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number),
            r#type: Some(ty.into()),
            label: Some(label.into()),
            type_name: (ty == Type::Message).then(|| ".old.Thing".to_owned()),
            ..FieldDescriptorProto::default()
        };
        let mut bytes = field.encode_to_vec();
        if !features.is_empty() {
            bytes.extend(options(features));
        }
        bytes
    }

    /// A file of an edition, and the request for it.
    pub(super) fn request(edition: i32) -> Vec<u8> {
        const IMPLICIT: &[u8] = &[0x08, 2];
        const REQUIRED: &[u8] = &[0x08, 3];
        const EXPANDED: &[u8] = &[0x18, 2];
        const DELIMITED: &[u8] = &[0x28, 2];
        let fields = [
            field("knows", 1, Type::Int32, Label::Optional, &[]),
            field("plain", 2, Type::Int32, Label::Optional, IMPLICIT),
            field("must", 3, Type::Int32, Label::Optional, REQUIRED),
            field("packed", 4, Type::Int32, Label::Repeated, &[]),
            field("apart", 5, Type::Int32, Label::Repeated, EXPANDED),
            field("group", 6, Type::Message, Label::Optional, DELIMITED),
            field("thing", 7, Type::Message, Label::Optional, &[]),
        ];
        let mut message =
            DescriptorProto { name: Some("Thing".into()), ..DescriptorProto::default() }.encode_to_vec();
        for field in fields {
            message.extend(varint_message(2, &field));
        }
        let head = FileDescriptorProto {
            name: Some("old.proto".into()),
            package: Some("old".into()),
            syntax: Some("editions".into()),
            ..FileDescriptorProto::default()
        };
        let mut file = head.encode_to_vec();
        // Longer than 127 bytes: the length takes two.
        let len = message.len();
        assert!((128..16384).contains(&len));
        file.extend([4 << 3 | 2, (len & 127) as u8 | 128, (len >> 7) as u8]);
        file.extend(message);
        file.extend(Tail { edition }.encode_to_vec());
        let request = CodeGeneratorRequest {
            file_to_generate: vec!["old.proto".into()],
            ..CodeGeneratorRequest::default()
        };
        [request.encode_to_vec(), Extra { files: vec![file] }.encode_to_vec()].concat()
    }
}

#[test]
fn features_of_an_edition_become_what_they_mean() {
    let response = answer(&edition::request(1000));
    assert_eq!(response.error, None);
    let content: String = response.files[0].content.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "#[prost(int32, optional, tag = \"1\")] pub knows: ::core::option::Option<i32>",
        "#[prost(int32, tag = \"2\")] pub plain: i32",
        "#[prost(int32, required, tag = \"3\")] pub must: i32",
        "#[prost(int32, repeated, tag = \"4\")] pub packed: ::prost::alloc::vec::Vec<i32>",
        "#[prost(int32, repeated, packed = \"false\", tag = \"5\")] pub apart: ::prost::alloc::vec::Vec<i32>",
        "#[prost(group, optional, boxed, tag = \"6\")]",
        "#[prost(message, optional, boxed, tag = \"7\")]",
    ] {
        assert!(content.contains(expected), "{expected} is not in {content}");
    }
    let error = answer(&edition::request(1002)).error.unwrap();
    assert_eq!(error, "old.proto: edition number 1002 is not one of 2023 and 2024");
}
