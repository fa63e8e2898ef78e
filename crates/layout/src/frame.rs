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

/// Bits of [`FrameHead::events`].
pub mod events {
    /// Request or response headers. From a client, `code` is the method's index.
    pub const HEADERS: u8 = 0x01;
    /// A chunk of a message.
    pub const MESSAGE: u8 = 0x02;
    /// The client sends no more messages.
    pub const HALF_CLOSE: u8 = 0x04;
    /// The server's last word: `code` is the gRPC status.
    pub const TRAILERS: u8 = 0x08;
    /// The stream ends at once in both directions: `code` is the gRPC status that says why.
    pub const CANCEL: u8 = 0x10;
    /// The receiver grants `chunk_len` more bytes, to the stream or (stream 0) to the session.
    pub const CREDIT: u8 = 0x20;
    /// The server takes no stream above `stream` any more; those above it were not looked at.
    pub const DRAIN: u8 = 0x40;
    /// About the session's memory or end; `code` is one of [`control`](super::control).
    pub const CONTROL: u8 = 0x80;
}

/// Bits of [`FrameHead::flags`].
pub mod flags {
    /// The chunk begins a message; `message_len` is the length of the whole.
    pub const FIRST: u8 = 0x01;
    /// The chunk ends its message.
    pub const LAST: u8 = 0x02;
    /// The message is compressed as the `grpc-encoding` header says (on its first chunk).
    pub const COMPRESSED: u8 = 0x04;
    /// The chunk lies in a payload area; an [`AreaRange`](super::AreaRange) stands in its place.
    pub const IN_AREA: u8 = 0x08;
    /// The headers block begins with the method's path (u16 length, bytes), bound to the index `code` from now on.
    pub const NAMES_METHOD: u8 = 0x10;
    /// With MESSAGE, but for a client's HEADERS, where NAMES_METHOD has no meaning: the chunk is a batch, several whole messages, each
    /// behind gRPC's prefix, and `message_len` says how many.
    pub const BATCH: u8 = 0x10;
    /// The deadline follows the head: u64, nanoseconds on the sender's monotonic clock.
    pub const HAS_DEADLINE: u8 = 0x20;
    /// Cancelled before any part of the call was looked at: safe to send again elsewhere.
    pub const REFUSED: u8 = 0x40;
    /// With MESSAGE, where REFUSED has no meaning: the message is a flat message ([`linear`](crate::linear)), on its first
    /// chunk; with SEGMENTED, one that lies in the pool. For a server that takes such, and in its answer ([`OBJECTS`](super::control::OBJECTS)).
    pub const OBJECT: u8 = 0x40;
    /// All bits that version 1 knows without features.
    pub const KNOWN: u8 = 0x7f;
    /// The message is a segmented message: parts of it lie in the pool that both sides are members of (on its first chunk). With the
    /// feature POOL.
    pub const SEGMENTED: u8 = 0x80;
}

/// Values of `code` in a CONTROL frame.
pub mod control {
    /// A payload area was made: `chunk_len` its length, `stream` its index; its fd is the next on the socket.
    pub const AREA_OFFER: u16 = 1;
    /// The area `stream` is mapped and may be used.
    pub const AREA_ACCEPT: u16 = 2;
    /// The area `stream` could not be mapped: go on without.
    pub const AREA_REFUSE: u16 = 3;
    /// The area `stream` will not be referred to again.
    pub const AREA_DROP: u16 = 4;
    /// The session ends; the headers block holds the reason as UTF-8 text.
    pub const CLOSE: u16 = 5;
    /// With the feature POOL: `chunk_len` segmented messages from the number `stream` on need not be kept any longer.
    pub const SEGMENTED_TAKEN: u16 = 6;
    /// With the feature POOL: the bytes of all refs of the segmented message `stream` are wanted inline; `chunk_len` is how many.
    pub const SEGMENTED_WANTED: u16 = 7;
    /// With the feature POOL: the next `chunk_len` of the bytes wanted of the segmented message `stream` follow the head; 0: no more come.
    pub const SEGMENTED_BYTES: u16 = 8;
    /// From a server: messages of the method `chunk_len` are taken as flat messages, and calls with such are answered so, where
    /// `stream` is the fingerprint of the method's types.
    pub const OBJECTS: u16 = 9;
}

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

/// Length of a [`FrameHead`].
pub const FRAME_HEAD_LEN: usize = size_of::<FrameHead>();
/// Length of the deadline.
pub const DEADLINE_LEN: usize = 8;

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

/// Length of an [`AreaRange`].
pub const AREA_RANGE_LEN: usize = size_of::<AreaRange>();

const _: () = {
    use core::mem::offset_of;
    assert!(FRAME_HEAD_LEN == 24 && AREA_RANGE_LEN == 16);
    assert!(offset_of!(FrameHead, code) == 2 && offset_of!(FrameHead, headers_len) == 4);
    assert!(offset_of!(FrameHead, trailers_len) == 6 && offset_of!(FrameHead, stream) == 8);
    assert!(offset_of!(FrameHead, chunk_len) == 16 && offset_of!(FrameHead, message_len) == 20);
    assert!(offset_of!(AreaRange, area) == 0 && offset_of!(AreaRange, offset) == 8);
};
