//! Google's public files, which programs of many kinds have to do with.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Generates all files of one directory, with what they import: stubs that take structs, stubs that take objects, views, and
/// conversions.
pub(crate) fn generate(out: &Path) -> io::Result<()> {
    let set = |name: &str| {
        println!("cargo:rerun-if-env-changed={name}");
        std::env::var(name).map_err(|_| io::Error::other(format!("{name} is not set; run `make googleapis`")))
    };
    let root = PathBuf::from(set("TOLLFREE_GOOGLEAPIS_ROOT")?);
    let mut protos = Vec::new();
    collect(&root.join(set("TOLLFREE_GOOGLEAPIS")?), &mut protos)?;
    let structs = crate::builder(out, "structs")?.views(".").prost_path("super::structs");
    structs.compile_protos(&protos, &[&root])?;
    let objects = crate::builder(out, "objects")?.objects(".").views_path("crate::object_views");
    match objects.compile_protos(&protos, &[&root]) {
        // Without a service, there are no stubs.
        Err(error) if error.to_string().ends_with("matches no method; name a package, service or method") => {
            std::fs::write(out.join("objects/all.rs"), "")?;
            std::fs::write(out.join("objects/views.rs"), "")
        }
        done => done,
    }
}

fn collect(directory: &Path, protos: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, protos)?;
        } else if path.extension() == Some(OsStr::new("proto")) {
            protos.push(path);
        }
    }
    protos.sort();
    Ok(())
}
