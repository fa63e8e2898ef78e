//! Messages of the byte-stream engine: rings of two hosts, kept alike over a stream (`spec/device.md`).
//!
//! Each message is a [`Head`] and, behind a [`kind::WRITE`], whole lines of the sender's ring.
//!
//! # Layout
//! ```text
//! offset 0      1      2            4            8                   16                  24
//!      | kind | zero | line_count | load       | consumed          | at                |
//!   24 | lines (line_count × 64)                                   ...
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What both ends of a stream say in its TLS handshake that they speak (ALPN).
pub const PROTOCOL: &[u8] = b"tollfree-device/1";
/// Length of a [`Head`].
pub const HEAD_LEN: usize = 24;

/// What a message is.
pub mod kind {
    /// Lines of the sender's ring that the receiver has room for, and the sender's words.
    pub const WRITE: u8 = 1;
    /// The sender's words alone: it has passed records, so there is room again.
    pub const COMPLETE: u8 = 2;
    /// Nothing new: the sender is there.
    pub const BEAT: u8 = 3;
}

/// How a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// One of [`kind`].
    pub kind: u8,
    /// Zero.
    pub zero: u8,
    /// Lines that follow: at least one behind a WRITE, else none.
    pub line_count: U16,
    /// `load` of the sender's control page.
    pub load: U32,
    /// `consumed` of the sender's control page: never goes back, and never beyond what was written to the sender.
    pub consumed: U64,
    /// Position in the sender's ring of the first line that follows, and where none does, of the next that will.
    pub at: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Head>() == HEAD_LEN);
    assert!(offset_of!(Head, line_count) == 2 && offset_of!(Head, load) == 4);
    assert!(offset_of!(Head, consumed) == 8 && offset_of!(Head, at) == 16);
};
