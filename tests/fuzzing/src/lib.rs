//! What the fuzz targets do with the bytes that they are given.
//!
//! The targets in `fuzz/` are one line each; their kept corpora, a file each in `fuzz/corpus/`, are replayed by this crate's tests, so
//! that what was once found stays found. Every function here panics if a promise is broken.
#![forbid(unsafe_code)]

mod corpus;
mod handshake;
mod protobuf;
mod records;
mod stream;
mod thrift;
mod views;
mod work;

pub use corpus::{pack, unpack};
pub use handshake::handshake;
pub use protobuf::{object, protobuf, table};
pub use records::{ring, session, violation_by};
pub use stream::{stream, stream_violation};
pub use thrift::thrift;
pub use views::builder;

/// A target's name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the names that their corpora and their files in `fuzz/fuzz_targets` have.
pub const TARGETS: &[Target] = &[
    ("builder", builder),
    ("handshake", handshake),
    ("object", object),
    ("protobuf", protobuf),
    ("ring", ring),
    ("session", session),
    ("stream", stream),
    ("table", table),
    ("thrift", thrift),
];
