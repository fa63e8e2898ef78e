//! Stubs that take objects: which methods do, where their types are, and what is refused.

use std::io;
use std::path::{Path, PathBuf};

use tollfree_build::{Builder, configure};

const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protos");

/// The stubs of `kinds.proto`, and its views.
fn generated(settle: impl Fn(Builder) -> Builder) -> io::Result<(String, String)> {
    let out = tempfile::tempdir()?;
    let builder = settle(configure()).out_dir(out.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&[Path::new(PROTOS).join("kinds.proto")], &[PathBuf::from(PROTOS)])?;
    let read = |name: &str| std::fs::read_to_string(out.path().join(name));
    Ok((read("golden.kinds.v1.rs")?, read("views.rs").unwrap_or_default()))
}

/// How often it stands there, however lines are broken.
fn count(text: &str, what: &str) -> usize {
    text.replace(char::is_whitespace, "").matches(&what.replace(' ', "")).count()
}

#[test]
fn methods_that_are_named_take_objects_and_no_others() {
    let (all, views) = generated(|builder| builder.objects(".")).unwrap();
    assert!(count(&all, "::tollfree::direct::Objects") > 0 && count(&all, "::tollfree::direct::Prost") == 0);
    assert!(count(&all, "::tollfree_processor::typed::Owned<super::views::golden::kinds::v1::") > 0, "{all}");
    assert!(count(&views, "pub enum ViewsTable") == 1, "{views}");
    let (none, views) = generated(|builder| builder).unwrap();
    assert!(count(&none, "Objects") == 0 && count(&none, "tollfree_processor") == 0 && views.is_empty());
    let (one, views) = generated(|builder| builder.objects("Kinds.Say").views_path("crate::shapes")).unwrap();
    let [objects, structs] = ["direct::Objects", "direct::Prost"].map(|form| count(&one, form));
    assert!(objects > 0 && structs > 0 && !views.is_empty());
    let fingerprints = |text: &str| count(text, "direct::types::<");
    assert!(fingerprints(&all) > 1 && fingerprints(&one) == 1 && fingerprints(&none) == 0);
    let all_objects = count(&all, "direct::Objects") - fingerprints(&all);
    assert_eq!(objects + structs - 1, all_objects, "each method has one form, wherever it is named");
    assert!(count(&one, "Owned<crate::shapes::golden::kinds::v1::") > 0, "{one}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |settle: fn(Builder) -> Builder| generated(settle).unwrap_err().to_string();
    let error = refused(|builder| builder.objects(".golden.kinds.v2"));
    assert_eq!(error, "objects(.golden.kinds.v2) matches no method; name a package, service or method");
    let error = refused(|builder| builder.objects(".").codec_path("crate::MyCodec"));
    assert!(
        error.contains("objects(\".\") and codec_path(\"crate::MyCodec\") contradict each other"),
        "{error}"
    );
    let error = refused(|builder| builder.objects(".").views_path("not a path"));
    assert!(error.contains("\"not a path\" is not a path"), "{error}");
}
