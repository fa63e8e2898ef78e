//! Every byte that two Tollfree processes share.
//!
//! This crate is the wire protocol as types: what a region looks like, what a ring record and the frame in it
//! look like, what the two handshake messages look like, how metadata are packed, what extents, rows and refs of a pool
//! look like, and what tables and flat messages look like. It holds no behaviour, maps no memory and does no IO. `spec/wire.md`, `spec/device.md`, `spec/pool.md`,
//! `spec/table.md` and `spec/flat.md` say the same in prose; where they differ from this, that is a bug.
//!
//! Beside the protocol stand what the processor shares: compiled message types ([`table`], `spec/table.md`) and decoded
//! messages ([`flat`], `spec/flat.md`).
//!
//! All numbers are little endian. Whatever a peer wrote is read as raw integers ([`zerocopy`] types without any
//! invalid bit pattern) and becomes an enum or a bool only through a checked conversion.
#![forbid(unsafe_code)]

mod constants;
pub mod control;
pub mod description;
pub mod device;
pub mod errors;
pub mod flat;
pub mod frame;
pub mod handshake;
pub mod metadata;
pub mod moving;
mod numbers;
pub mod pool;
pub mod record;
pub mod segmented;
#[doc(hidden)]
pub mod steps;
pub mod table;

pub use constants::limits;
pub use numbers::{
    AreaIdx, ByteOff, ExtentIdx, Generation, MemberIdx, MethodIdx, PageIdx, RingPos, SegmentedIdx, StreamId,
};
