//! The plugin for protoc and buf: request in, response out.

use prost::Message;
use prost_build::{Config, Module};
use prost_types::FileDescriptorProto;
use prost_types::compiler::CodeGeneratorRequest;

use crate::builder::{Builder, configure, generate};
use crate::{check, defaults, editions};

/// proto3's `optional`, and editions.
const FEATURES: u64 = 1 | 2;

/// The request's files as [`editions`] reads them.
#[derive(Clone, PartialEq, prost::Message)]
struct RawRequest {
    #[prost(message, repeated, tag = "15")]
    files: Vec<editions::RawFile>,
}

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

/// Answers an encoded `CodeGeneratorRequest` with an encoded `CodeGeneratorResponse`. What is wrong with a proto or a
/// parameter stands in the response.
///
/// # Errors
/// In words, when the request can't be read.
pub fn answer(request: &[u8]) -> Result<Vec<u8>, String> {
    let unreadable = |error| format!("standard input does not hold a CodeGeneratorRequest: {error}");
    let raw = RawRequest::decode(request).map_err(unreadable)?;
    let request = CodeGeneratorRequest::decode(request).map_err(unreadable)?;
    if request.file_to_generate.is_empty() {
        return Err("standard input does not hold a CodeGeneratorRequest: it names no file".to_owned());
    }
    let mut response = Response {
        supported_features: FEATURES,
        minimum_edition: *editions::EDITIONS.start(),
        maximum_edition: *editions::EDITIONS.end(),
        ..Response::default()
    };
    match files(request, &raw) {
        Ok(files) => response.files = files,
        Err(error) => response.error = Some(error),
    }
    Ok(response.encode_to_vec())
}

fn files(request: CodeGeneratorRequest, raw: &RawRequest) -> Result<Vec<File>, String> {
    let builder = parameters(request.parameter())?;
    builder.options.check()?;
    let mut descriptors = request.proto_file;
    let mut complaints = Vec::new();
    for (file, raw) in descriptors.iter_mut().zip(&raw.files) {
        complaints.extend(editions::lower(file, raw).err());
    }
    let generated =
        descriptors.iter().filter(|file| request.file_to_generate.iter().any(|name| name == file.name()));
    complaints.extend(check::complaints(generated, builder.generated()));
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    defaults::rename(&mut descriptors);
    let mut config = Config::new();
    let failures = builder.apply(&mut config);
    // Imports are needed for what is known of their messages; their own code is generated when they are asked for.
    let wanted = |file: &FileDescriptorProto| request.file_to_generate.iter().any(|name| name == file.name());
    let requests = descriptors.into_iter().map(|file| {
        let package = Module::from_protobuf_package_name(file.package());
        let module = if wanted(&file) { package } else { Module::from_parts(["", file.name()]) };
        (module, file)
    });
    let requests: Vec<_> = requests.collect();
    let modules = generate(&failures, || config.generate(requests)).map_err(|error| error.to_string())?;
    let mut files: Vec<File> = modules
        .into_iter()
        .filter(|(module, _)| module.parts().next() != Some(""))
        .map(|(module, content)| File { name: module.to_file_name_or("_"), content })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// Parameters of the plugin: names of the builder's settings, separated by commas.
fn parameters(text: &str) -> Result<Builder, String> {
    let mut builder = configure().emit_rerun_if_changed(false);
    for parameter in text.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        builder = self::parameter(builder, name, value)
            .map_err(|error| format!("the parameter \"{parameter}\" {error}"))?;
    }
    Ok(builder)
}

fn parameter(builder: Builder, name: &str, value: &str) -> Result<Builder, String> {
    let flag = |set: fn(Builder) -> Builder| (set, value.is_empty(), "takes no value");
    let (set, fits, complaint) = match name {
        "no_client" => flag(|builder| builder.build_client(false)),
        "no_server" => flag(|builder| builder.build_server(false)),
        "no_transport" => flag(|builder| builder.build_transport(false)),
        "compile_well_known_types" => flag(|builder| builder.compile_well_known_types(true)),
        "own_streaming" => flag(|builder| builder.own_streaming(true)),
        "use_arc_self" => flag(|builder| builder.use_arc_self(true)),
        "generate_default_stubs" => flag(|builder| builder.generate_default_stubs(true)),
        _ => return valued(builder, name, value),
    };
    if fits { Ok(set(builder)) } else { Err(complaint.to_owned()) }
}

fn valued(builder: Builder, name: &str, value: &str) -> Result<Builder, String> {
    let pair = || value.split_once('=').ok_or_else(|| format!("is to be written {name}=path=text"));
    let one = || if value.is_empty() { Err(format!("is to be written {name}=value")) } else { Ok(value) };
    let with_pair = |set: fn(Builder, &str, &str) -> Builder, builder| {
        let (path, text) = pair()?;
        Ok::<_, String>(set(builder, path, text))
    };
    match name {
        "extern_path" => with_pair(|builder, path, text| builder.extern_path(path, text), builder),
        "type_attribute" => with_pair(|builder, path, text| builder.type_attribute(path, text), builder),
        "message_attribute" => {
            with_pair(|builder, path, text| builder.message_attribute(path, text), builder)
        }
        "enum_attribute" => with_pair(|builder, path, text| builder.enum_attribute(path, text), builder),
        "field_attribute" => with_pair(|builder, path, text| builder.field_attribute(path, text), builder),
        "bytes" => Ok(builder.bytes(one()?)),
        "btree_map" => Ok(builder.btree_map(one()?)),
        "boxed" => Ok(builder.boxed(one()?)),
        "skip_debug" => Ok(builder.skip_debug([one()?])),
        "disable_comments" => Ok(builder.disable_comments([one()?])),
        "proto_path" => Ok(builder.proto_path(one()?)),
        "codec_path" => Ok(builder.codec_path(one()?)),
        _ => Err("is none that there is; protoc-gen-tollfree --help lists them".to_owned()),
    }
}
