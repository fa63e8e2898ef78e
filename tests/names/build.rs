//! Takes each identifier that generated code has, and each that Rust has itself, as the name of a package, service, method,
//! message, enum, value, field and oneof, and generates clients, servers, views and conversions of all that. The identifiers are
//! read out of generated code, so that none is forgotten. Each fourth is taken, and with `TOLLFREE_NAMES=all`, as `make nightly`
//! has it, all of them.
//!
//! With the feature `googleapis`, the same is generated of Google's public files: of all in a directory
//! (`TOLLFREE_GOOGLEAPIS`, below `TOLLFREE_GOOGLEAPIS_ROOT`), as `make googleapis` says it.

#[path = "src/googleapis.rs"]
mod googleapis;
#[path = "src/identifiers.rs"]
mod identifiers;
#[path = "src/protos.rs"]
mod protos;

use std::io;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use tollfree_build::{Builder, configure};

fn main() -> io::Result<()> {
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    let out = PathBuf::from(out);
    if std::env::var_os("CARGO_FEATURE_GOOGLEAPIS").is_some() {
        googleapis::generate(&out)
    } else {
        names(&out)
    }
}

/// Settings of all that is generated here: everything that there is, and nothing renamed.
fn builder(out: &Path, name: &str) -> io::Result<Builder> {
    let directory = out.join(name);
    std::fs::create_dir_all(&directory)?;
    Ok(configure().out_dir(directory).include_file("all.rs").build_blocking_client(true))
}

fn names(out: &Path) -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-env-changed=TOLLFREE_NAMES");
    let step = if std::env::var_os("TOLLFREE_NAMES").is_some_and(|names| names == "all") { 1 } else { 4 };
    let names = identifiers::Names::new(identifiers::all(out)?.into_iter().step_by(step).collect());
    // Structs, views, and conversions between both.
    let types = builder(out, "types")?.views(".").prost_path("super::types");
    types.compile_fds(FileDescriptorSet { file: protos::types(&names) })?;
    // Stubs that take structs, and stubs that take objects, which are the same but for the paths of types.
    builder(out, "structs")?.compile_fds(FileDescriptorSet { file: protos::services(&names, 1) })?;
    let objects = builder(out, "objects")?.objects(".").views_path("crate::object_views");
    objects.compile_fds(FileDescriptorSet { file: protos::services(&names, 8) })
}
