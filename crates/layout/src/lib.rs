//! Every byte that two Tollfree processes share.
//!
//! This crate is the wire protocol as types: what a region looks like, what a ring record and the frame in it
//! look like, what the two handshake messages look like, and how metadata are packed. It holds no behaviour, maps
//! no memory and does no IO. `spec/wire.md` says the same in prose; where the two differ, that is a bug.
//!
//! All numbers are little endian. Whatever a peer wrote is read as raw integers ([`zerocopy`] types without any
//! invalid bit pattern) and becomes an enum or a bool only through a checked conversion.
#![forbid(unsafe_code)]

pub mod control;
pub mod frame;
pub mod handshake;
pub mod limits;
pub mod linear;
pub mod metadata;
mod numbers;
pub mod record;
pub mod table;

pub use numbers::{AreaIdx, ByteOff, MethodIdx, RingPos, StreamId};
