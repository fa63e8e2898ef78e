//! What is generated, word for word: `tests/golden` holds it. `TOLLFREE_WRITE_GOLDEN=1 cargo test -p tollfree-build --test
//! suite golden::` writes it anew, for review.

use std::path::{Path, PathBuf};

use tollfree_build::{Builder, configure};

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protos");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

fn generated(builder: Builder, proto: &str, file: &str) -> String {
    let out = tempfile::tempdir().unwrap();
    let builder = builder.out_dir(out.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&[Path::new(PROTOS).join(proto)], &[PathBuf::from(PROTOS)]).unwrap();
    std::fs::read_to_string(out.path().join(file)).unwrap()
}

fn compare(name: &str, found: &str) {
    let path = Path::new(GOLDEN).join(name);
    if std::env::var_os("TOLLFREE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(found.lines()).position(|(golden, found)| golden != found);
    let line = differs.unwrap_or_else(|| golden.lines().count().min(found.lines().count()));
    assert!(
        golden == found,
        "{name} differs from line {} on: {:?} was {:?}",
        line + 1,
        found.lines().nth(line),
        golden.lines().nth(line)
    );
}

#[test]
fn all_kinds_of_methods() {
    compare("kinds.rs", &generated(configure(), "kinds.proto", "golden.kinds.v1.rs"));
}

#[test]
fn a_service_without_a_package() {
    compare("bare.rs", &generated(configure().build_server(false), "bare.proto", "_.rs"));
}

#[test]
fn clients_that_block() {
    let builder = configure().build_server(false).build_transport(false).build_blocking_client(true);
    let whole = generated(builder, "kinds.proto", "golden.kinds.v1.rs");
    let begins = whole.find("/// Generated client implementations that block").expect("it is generated");
    compare("blocking.rs", &whole[begins..]);
}

#[test]
fn settings_of_the_builder() {
    let builder = configure()
        .build_transport(false)
        .use_arc_self(true)
        .generate_default_stubs(true)
        .codec_path("crate::MyCodec")
        .proto_path("crate::types")
        .disable_comments(["golden.kinds.v1.Kinds", "golden.kinds.v1.Kinds.Say"])
        .client_mod_attribute("golden.kinds.v1", "#[cfg(feature = \"client\")]")
        .client_attribute("Kinds", "#[derive(PartialEq)]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .server_attribute("golden.kinds.v1.Kinds", "#[must_use]")
        .trait_attribute("Kinds", "#[allow(unused)]")
        .extern_path(".golden.other.v1", "::other")
        .bytes(".golden.kinds.v1.Chat.raw")
        .message_attribute("Chat", "#[derive(Eq, Hash)]");
    compare("settings.rs", &generated(builder, "kinds.proto", "golden.kinds.v1.rs"));
}

#[test]
fn descriptors_are_kept_and_files_included() {
    let out = tempfile::tempdir().unwrap();
    let descriptors = out.path().join("descriptors.bin");
    let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false);
    let builder = builder.file_descriptor_set_path(&descriptors).include_file("all.rs");
    builder.compile_protos(&[Path::new(PROTOS).join("kinds.proto")], &[PathBuf::from(PROTOS)]).unwrap();
    let set: prost_types::FileDescriptorSet =
        prost::Message::decode(&std::fs::read(descriptors).unwrap()[..]).unwrap();
    assert!(set.file.iter().any(|file| file.package() == "golden.other.v1"));
    let all = std::fs::read_to_string(out.path().join("all.rs")).unwrap();
    assert!(all.contains("golden.kinds.v1.rs") && all.contains("golden.other.v1.rs"), "{all}");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_nothing_is_written() {
    let refused = |proto: &str, builder: Builder| {
        let out = tempfile::tempdir().unwrap();
        let builder = builder.out_dir(out.path()).emit_rerun_if_changed(false);
        let refused = builder.compile_protos(&[Path::new(PROTOS).join(proto)], &[PathBuf::from(PROTOS)]);
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "{proto}");
        refused.unwrap_err().to_string()
    };
    let error = refused("broken.proto", configure());
    assert!(error.contains("broken.proto:6:") && error.contains("Missing"), "{error}");
    let error = refused("names.proto", configure());
    assert!(error.contains("names.proto:12: methods GetIt and Get_It"), "{error}");
    let error = refused("taken.proto", configure().build_blocking_client(true));
    let mut lines: Vec<_> = error.lines().collect();
    lines.sort_unstable();
    let same = "would have the same name in Rust; rename one";
    let expected = [
        format!("taken.proto:11: fields a__b and a_b {same}"),
        format!("taken.proto:14: fields a_b and aB {same}"),
        "taken.proto:17: field _ has neither letters nor digits for a name in Rust; rename it".to_owned(),
        "taken.proto:22: message GreeterClient and service Greeter would have the same module greeter_client in Rust; \
         rename one"
            .to_owned(),
        "taken.proto:26: service Greeter and service GreeterBlocking would have the same module \
         greeter_blocking_client in Rust; rename one"
            .to_owned(),
        "taken.proto:30: service Box would hide Box, which its trait needs; rename it".to_owned(),
        "taken.proto:37: KindOneOf and oneof kind would have the same type KindOneOf in Rust; rename one".to_owned(),
        "taken.proto:43: way_1 and oneof way1 would have the same type Way1 in Rust; rename one".to_owned(),
    ];
    assert_eq!(lines, expected);
    let error = refused("absent.proto", configure());
    assert!(error.contains("absent.proto"), "{error}");
    let error = refused("bare.proto", configure().codec_path("not a path"));
    assert!(error.contains("the codec \"not a path\""), "{error}");
    let error = refused("bare.proto", configure().client_attribute(".", "derive"));
    assert!(error.contains("derive"), "{error}");
}
