//! A message of which parts lie in a pool, as it travels: what does not lie there, and refs to what does.
//!
//! # Layout
//! ```text
//! head (8) | inline bytes | entries: ref_count of 64 bytes each
//!
//! head   offset 0            4            8
//!             0 | len        | ref_count  |
//!
//! entry  offset 0            4            8
//!             0 | before     | reserved   | ref (56)                       | 64
//! ```
//! The message's `len` bytes are, for each entry in order, the next `before` inline bytes and the bytes of the ref; and then
//! the inline bytes that are left.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::pool::REF_LEN;

pub use crate::constants::segmented::*;

/// The beginning of a segmented message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SegmentedHead {
    /// Bytes of the message: those inline and those of the refs.
    pub len: U32,
    /// How many entries stand at the end.
    pub ref_count: U32,
}

/// One ref, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SegmentEntry {
    /// Inline bytes between the ref before it (or the beginning) and this one.
    pub before: U32,
    /// Zero; ignored.
    pub reserved: U32,
    /// A [`RefHead`](crate::pool::RefHead).
    pub bytes: [u8; REF_LEN],
}

const _: () = {
    use core::mem::offset_of;
    assert!(SEGMENTED_HEAD_LEN == 8 && SEGMENT_ENTRY_LEN == 64);
    assert!(offset_of!(SegmentedHead, ref_count) == 4);
    assert!(offset_of!(SegmentEntry, reserved) == 4 && offset_of!(SegmentEntry, bytes) == 8);
};
