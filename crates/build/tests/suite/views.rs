//! Views and builders that are generated: word for word, for what is asked for, and what is refused. `TOLLFREE_WRITE_GOLDEN=1
//! cargo test -p tollfree-build --test suite views::` writes the golden file anew, for review.

use std::path::{Path, PathBuf};

use prost::Message as _;
use tollfree_build::{Builder, FileDescriptorSet, configure};

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protos");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/views.rs");

fn generated(proto: &str, paths: &[&str]) -> Result<String, String> {
    let out = tempfile::tempdir().unwrap();
    let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false).prost_path("super::messages");
    let builder = paths.iter().fold(builder, |builder, path| builder.views(path));
    let done = builder.compile_protos(&[Path::new(PROTOS).join(proto)], &[PathBuf::from(PROTOS)]);
    if let Err(error) = done {
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "nothing is written");
        return Err(error.to_string());
    }
    Ok(std::fs::read_to_string(out.path().join("views.rs")).unwrap())
}

fn has(text: &str, message: &str) -> bool {
    text.contains(&format!("pub struct {message}View<'a>("))
}

#[test]
fn every_shape_of_a_field() {
    let found = generated("views.proto", &["golden.views.v1.Views"]).unwrap();
    if std::env::var_os("TOLLFREE_WRITE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let differs = golden.lines().zip(found.lines()).position(|(golden, found)| golden != found);
    assert!(golden == found, "views.rs differs from line {differs:?} (counted from 0) on");
}

#[test]
fn what_a_path_reaches_is_generated_and_nothing_else() {
    for path in ["golden.views.v1.Views", ".golden.views.v1.Seen", "Seen"] {
        let text = generated("views.proto", &[path]).unwrap();
        assert!(has(&text, "Seen") && has(&text, "Inner") && !has(&text, "Unseen"), "{path}");
    }
    for paths in [&["."][..], &[".golden"], &["golden.views.v1.Seen", "Unseen"]] {
        let text = generated("views.proto", paths).unwrap();
        assert!(has(&text, "Seen") && has(&text, "Inner") && has(&text, "Unseen"), "{paths:?}");
    }
    let text = generated("views.proto", &["Inner"]).unwrap();
    assert!(!has(&text, "Seen") && has(&text, "Inner") && !text.contains("struct Shade"));
    let error = generated("views.proto", &[".golden.view"]).unwrap_err();
    assert!(error.contains("views(.golden.view) matches no message"), "{error}");
}

#[test]
fn names_of_views_yield_to_those_of_the_proto() {
    let text = generated("views_taken.proto", &["."]).unwrap();
    let said = |what: &str| assert!(text.contains(what), "{what}");
    said("pub struct OrderView_<'a>(");
    said("pub struct OrderViewView<'a>(");
    said("pub enum OrderView {}");
    for function in
        ["fn has_name(self)", "fn has_name_(self)", "fn has_next(self)", "fn clear_mut(", "fn clear_clear("]
    {
        said(function);
    }
    said("NotSet(i32)");
    said("NotSet_,");
    let one = generated("views_taken.proto", &["OrderView"]).unwrap();
    assert!(
        !one.contains("OrderView_") && one.contains("pub struct OrderViewView<'a>("),
        "names stay, whatever is asked for"
    );
}

#[test]
fn prosts_types_are_where_they_are_said_to_be() {
    let with = |change: fn(Builder) -> Builder| {
        let out = tempfile::tempdir().unwrap();
        let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false).views(".golden");
        change(builder)
            .compile_protos(&[Path::new(PROTOS).join("views.proto")], &[PathBuf::from(PROTOS)])
            .map(|()| std::fs::read_to_string(out.path().join("views.rs")).unwrap())
            .map_err(|error| error.to_string())
    };
    let found = with(|builder| builder.prost_path("crate::all")).unwrap();
    assert!(found.contains("type Struct = crate::all::golden::views::v1::Seen;"), "{found}");
    assert!(found.contains("crate::all::golden::views::v1::seen::Choice::Raw"), "{found}");
    let found = with(|builder| builder.prost_path("self")).unwrap();
    let inner = "type Struct = super::super::super::super::golden::views::v1::unseen::Inner;";
    assert!(found.contains(inner), "{found}");
    let elsewhere = |builder: Builder| {
        let builder =
            builder.extern_path(".golden.views", "::other").extern_path(".golden.views.v1.Seen", "::one::It");
        builder.prost_path("super")
    };
    let found = with(elsewhere).unwrap();
    assert!(
        found.contains("type Struct = ::one::It;") && found.contains("::one::seen::Choice::Raw"),
        "{found}"
    );
    assert!(found.contains("type Struct = ::other::v1::unseen::Inner;"), "{found}");
    let error = with(|builder| builder.prost_path("no path")).unwrap_err();
    assert!(error.contains("\"no path\" is not a path"), "{error}");
}

/// More than a thousand fields: generated in one go, each with functions of its own.
#[test]
fn a_message_of_many_fields() {
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};
    let field = |number: i32| FieldDescriptorProto {
        name: Some(format!("field_{number}")),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(if number % 2 == 0 { Type::String } else { Type::Int64 } as i32),
        ..Default::default()
    };
    let message = DescriptorProto {
        name: Some("Wide".to_owned()),
        field: (1..=1200).map(field).collect(),
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("wide.proto".to_owned()),
        package: Some("wide".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![message],
        ..Default::default()
    };
    let out = tempfile::tempdir().unwrap();
    let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false).views(".");
    builder.compile_fds(FileDescriptorSet { file: vec![file] }).unwrap();
    let text = std::fs::read_to_string(out.path().join("views.rs")).unwrap();
    assert_eq!(text.matches("pub fn field_").count(), 1200);
    assert_eq!(text.matches("pub fn set_field_").count(), 1200);
    assert!(!text.contains("prost"), "conversions are generated where they are asked for");
}

/// What protoc and buf write, which has more than the types that prost reads it by.
#[test]
fn a_descriptor_set_from_elsewhere() {
    let set = protox::compile(["views.proto"], [PROTOS]).unwrap().encode_to_vec();
    let out = tempfile::tempdir().unwrap();
    let builder =
        || configure().out_dir(out.path()).emit_rerun_if_changed(false).prost_path("super::messages");
    builder().views(".golden").compile_descriptor_set(&set).unwrap();
    let found = std::fs::read_to_string(out.path().join("views.rs")).unwrap();
    assert!(found == generated("views.proto", &[".golden"]).unwrap());
    assert!(builder().compile_descriptor_set(&set[1..]).is_err());
    // Field 1: a file whose edition, field 14, is one that is not known.
    let error = builder().compile_descriptor_set(&[10, 3, 14 << 3, 0xaf, 0x0f]).unwrap_err().to_string();
    assert!(error.contains("edition number 1967"), "{error}");
}
