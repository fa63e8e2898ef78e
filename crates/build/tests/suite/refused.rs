//! What can't be generated is refused with its place and advice, before rustc would refuse the generated code.

use std::path::{Path, PathBuf};

use tollfree_build::{Builder, configure};

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protos");

fn compiled(protos: &[&str], change: impl FnOnce(Builder) -> Builder) -> Result<(), String> {
    let out = tempfile::tempdir().unwrap();
    let builder = change(configure().out_dir(out.path()).emit_rerun_if_changed(false));
    let protos: Vec<PathBuf> = protos.iter().map(|proto| Path::new(PROTOS).join(proto)).collect();
    builder.compile_protos(&protos, &[PROTOS]).map_err(|error| error.to_string())
}

#[test]
fn a_package_and_a_message_that_would_be_one_module() {
    let protos = ["beside_cluster.proto", "beside_client.proto", "beside.proto"];
    let error = compiled(&protos, |builder| builder).unwrap_err();
    let mut lines: Vec<&str> = error.lines().collect();
    lines.sort_unstable();
    let advice = "in Rust; rename one, or generate the two in crates of their own, with extern_path";
    let expected = [
        format!(
            "beside_client.proto:3: service Greeter of beside.v2 and package beside.v2.greeter_client.v1 would have the \
             same module greeter_client {advice}"
        ),
        format!(
            "beside_cluster.proto:3: message Cluster of beside.v2 and package beside.v2.cluster would have the same \
             module cluster {advice}"
        ),
    ];
    assert_eq!(lines, expected);
    // One of both is generated elsewhere: nothing is beside it.
    compiled(&protos[..1], |builder| builder.extern_path(".beside.v2.Cluster", "::x::Cluster")).unwrap_err();
    let elsewhere =
        |builder: Builder| builder.extern_path(".beside.v2.cluster", "::cluster").build_client(false);
    compiled(&protos, elsewhere).unwrap();
}

#[test]
fn types_that_prost_types_does_not_have() {
    let error = compiled(&["features.proto"], |builder| builder).unwrap_err();
    let advice = "which prost-types doesn't have; generate it with compile_well_known_types(true)";
    let expected = [
        format!("features.proto:13: method Choose is of type google.protobuf.FeatureSetDefaults, {advice}"),
        format!("features.proto:9: field features is of type google.protobuf.FeatureSet, {advice}"),
    ];
    assert_eq!(error.lines().collect::<Vec<_>>(), expected);
    compiled(&["features.proto"], |builder| builder.compile_well_known_types(true)).unwrap();
}

#[test]
fn a_file_of_an_edition_is_told_the_way_that_there_is() {
    let error = compiled(&["edition.proto"], |builder| builder).unwrap_err();
    assert!(error.contains("edition.proto:1:1"), "{error}");
    assert!(
        error.contains("Builder::compile_descriptor_set") && error.contains("--include_imports"),
        "{error}"
    );
    let error = compiled(&["broken.proto"], |builder| builder).unwrap_err();
    assert!(!error.contains("compile_descriptor_set"), "{error}");
}

/// Protobuf's own files change more often than the parser does. Where it can't read one, it uses its own copy.
#[test]
fn a_newer_file_of_protobufs_own_in_an_include_directory_is_no_fault() {
    let include = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = include.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("google/protobuf/descriptor.proto", "syntax = \"proto2\"; message M { what will come; }");
    let extend = "extend google.protobuf.FieldOptions { string rule = 50001; }";
    let import = "syntax = \"proto3\"; import \"google/protobuf/descriptor.proto\";";
    write("own.proto", &format!("{import} {extend} message Own {{ int32 x = 1 [(rule) = \"a\"]; }}"));
    let compiled = |name: &str| {
        let out = tempfile::tempdir().unwrap();
        let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false).views(".Own");
        builder
            .compile_protos(&[include.path().join(name)], &[include.path()])
            .map_err(|error| error.to_string())
    };
    compiled("own.proto").unwrap();
    write("google/type/broken.proto", "syntax = \"proto3\"; what");
    let error = compiled("google/type/broken.proto").unwrap_err();
    assert!(error.contains("google/type/broken.proto:1:"), "{error}");
}

/// This test's own manifest has neither crate, and cargo tells tests where it is, as it tells build scripts.
#[test]
fn a_manifest_without_the_crates_that_the_code_names() {
    let compiled = |change: fn(Builder) -> Builder, proto: &str| {
        let builder = change(configure().emit_rerun_if_changed(false));
        builder.compile_protos(&[Path::new(PROTOS).join(proto)], &[PROTOS]).map_err(|error| error.to_string())
    };
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = compiled(|builder| builder.objects("."), "kinds.proto").unwrap_err();
    let lines = [
        format!(
            "{manifest}: the generated code of services needs the crate tollfree; run `cargo add tollfree`"
        ),
        format!(
            "{manifest}: the generated code of views needs the crate tollfree-processor; run `cargo add \
             tollfree-processor`"
        ),
    ];
    assert_eq!(error.lines().collect::<Vec<_>>(), lines);
    // Nothing of the kind is known of code that goes elsewhere than to OUT_DIR, nor is it needed for messages alone.
    let error = compiled(|builder| builder, "views_taken.proto").unwrap_err();
    assert!(!error.contains("needs the crate"), "{error}");
}
