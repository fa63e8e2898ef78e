//! A frame: what one record says about one stream.
//!
//! A frame carries any of the events of a stream that happen together, in gRPC's order: a unary call is one frame
//! each way. After the fixed [`FrameHead`] follow, in this order and only where the head says so:
//! the deadline (8), the headers block, the trailers block, and the chunk (inline bytes, or an [`AreaRange`]).
//!
//! # Layout
//! ```text
//! offset 0        1        2            4             6              8                       16
//!      | events | flags  | code       | headers_len | trailers_len | stream                  |
//!   16 | chunk_len              | message_len                      |                        24
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::constants::frame::*;

pub use crate::constants::events;

pub use crate::constants::flags;

pub use crate::constants::controls as control;

/// The fixed start of every frame.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FrameHead {
    /// Which [`events`] this frame carries.
    pub events: u8,
    /// [`flags`] that qualify them.
    pub flags: u8,
    /// Method index, status or control code.
    pub code: U16,
    /// Length of the headers block in bytes.
    pub headers_len: U16,
    /// Length of the trailers block in bytes.
    pub trailers_len: U16,
    /// The [`StreamId`](crate::StreamId), or what `events` says.
    pub stream: U64,
    /// Length of the chunk in bytes, or what `events` says.
    pub chunk_len: U32,
    /// Length of the whole message in bytes, on its first chunk; 0 on others.
    pub message_len: U32,
}

/// Where a chunk lies in a payload area.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AreaRange {
    /// The [`AreaIdx`](crate::AreaIdx).
    pub area: U32,
    /// Reserved: zero.
    pub reserved: U32,
    /// Offset of the first byte within the area.
    pub offset: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(FRAME_HEAD_LEN == 24 && AREA_RANGE_LEN == 16);
    assert!(offset_of!(FrameHead, code) == 2 && offset_of!(FrameHead, headers_len) == 4);
    assert!(offset_of!(FrameHead, trailers_len) == 6 && offset_of!(FrameHead, stream) == 8);
    assert!(offset_of!(FrameHead, chunk_len) == 16 && offset_of!(FrameHead, message_len) == 20);
    assert!(offset_of!(AreaRange, area) == 0 && offset_of!(AreaRange, offset) == 8);
};
