//! Generates clients and servers for Tollfree from `.proto` files, in a `build.rs` or as a plugin of protoc and buf.
//!
//! What is generated has the names, types and traits that `tonic-prost-build` gives it, so that code written for tonic's
//! stubs compiles unchanged; in a `build.rs`, one word changes:
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! tollfree_build::configure().compile_protos(&["proto/greeter.proto"], &["proto"])
//! # }
//! ```
//!
//! Unary calls between a generated client made of a `tollfree::Channel` and a generated server given to a
//! `tollfree::Server` go from typed message to shared memory and back; everything else goes as with tonic's stubs. The
//! crate that is generated for needs `tollfree`, `tonic` and `prost`, and `tollfree-processor` for views. A build script is told
//! of what its manifest lacks. No protoc is needed.
//!
//! Messages are prost-build's: its options apply, through [`Builder`] or a [`Config`] of one's own.
#![forbid(unsafe_code)]

mod blocking;
mod builder;
mod check;
mod client;
mod defaults;
mod editions;
mod manifest;
pub mod manual;
mod names;
mod plugin;
mod server;
mod service;
mod sources;
mod views;

pub use builder::{Builder, configure};
pub use plugin::answer;
pub use prost_build::Config;
pub use prost_types::FileDescriptorSet;

use std::io;
use std::path::Path;

/// Compiles one file that includes nothing from other directories; [`configure`] does the rest.
///
/// # Errors
/// As [`Builder::compile_protos`].
pub fn compile_protos(proto: impl AsRef<Path>) -> io::Result<()> {
    let proto = proto.as_ref();
    let directory = proto.parent().filter(|directory| !directory.as_os_str().is_empty());
    configure().compile_protos(&[proto], &[directory.unwrap_or(Path::new("."))])
}

/// Generates the code of files that were compiled elsewhere, imports among them; [`configure`] does the rest.
///
/// # Errors
/// As [`Builder::compile_fds`].
pub fn compile_fds(fds: FileDescriptorSet) -> io::Result<()> {
    configure().compile_fds(fds)
}
