//! The entry points of the fuzz targets.

mod handshake;
mod protobuf;
mod records;

pub use handshake::handshake;
pub use protobuf::{object, protobuf, table};
pub use records::{ring, session};

/// A target's name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the names that their corpora and their files in `fuzz/fuzz_targets` have.
pub const TARGETS: &[Target] = &[
    ("handshake", handshake),
    ("object", object),
    ("protobuf", protobuf),
    ("ring", ring),
    ("session", session),
    ("table", table),
];
