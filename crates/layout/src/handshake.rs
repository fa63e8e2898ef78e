//! The two messages that begin a session, over the rendezvous socket.
//!
//! The client sends a [`Hello`] of kind [`kind::HELLO`] with one file descriptor, its region. The server answers
//! with one of kind [`kind::WELCOME`] and its region, or [`kind::REFUSAL`] and no descriptor. Both have a fixed
//! length, so that a message of any version can be read whole before it is understood.
//!
//! At the socket of a gateway the first message is an [`kind::ATTACH`] or a [`kind::VIA`]: a HELLO with a registration of
//! [`Hello::body_len`] bytes behind it.
//!
//! # Layout
//! ```text
//! offset 0                 8            12           16                        24
//!      | magic             | kind       | ver_min  ver_max | features          |
//!   24 | required          | region_len | ring_len   | stream_window           |  48
//!   48 | session_window    | clock_ns                | stream_count | area_len_max |  72
//!   72 | metadata_len_max  | reason     | text_len   | body_len                |  88
//!   88 | text (120)                                                            |  208
//!  208 | pool (16)               | token (16)              | tcp_client (16)      |  256
//!  256 | tcp_server (16)         | ports                   | reserved             |  288
//! ```
//!
//! A registration behind ATTACH is an [`AttachHead`], the name of the group, and the services' names, each after a byte that
//! says its length. Behind VIA it is the target.
//!
//! ```text
//! offset 0                        16           20           22              24
//!      | process                  | connection | group_len  | service_count | group | services
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{HELLO_LEN, HELLO_TEXT_MAX};
use crate::pool::POOL_ID_LEN;

pub use crate::constants::handshake::*;

/// The first eight bytes of every handshake message.
pub const MAGIC: [u8; 8] = *b"TOLLFREE";
/// How a client that speaks HTTP/2 begins; recognised so that it can be told what it has reached.
pub const HTTP2_PREFACE: &[u8; 8] = b"PRI * HT";
/// Feature bits that this code knows: all of [`feature`].
pub const FEATURES: u64 =
    feature::LOAD | feature::POOL | feature::UPGRADE | feature::DOORBELL | feature::LENDING;

pub use crate::constants::feature;

pub use crate::constants::kind;

pub use crate::constants::reason;

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// One of [`kind`].
    pub kind: U32,
    /// Oldest version spoken.
    pub version_min: U16,
    /// Newest version spoken.
    pub version_max: U16,
    /// Features spoken.
    pub features: U64,
    /// Features without which the sender cannot go on.
    pub required: U64,
    /// Length of the region whose fd comes with this message.
    pub region_len: U32,
    /// Length of the ring in it; a power of two.
    pub ring_len: U32,
    /// Credit, in bytes, that every stream towards the sender starts with.
    pub stream_window: U64,
    /// Credit, in bytes, that the session towards the sender starts with.
    pub session_window: U64,
    /// The sender's monotonic clock, in nanoseconds, when it sent this.
    pub clock_ns: U64,
    /// Calls the sender takes at once (a server's word, in WELCOME or ATTACH; 0 from a client).
    pub stream_count: U32,
    /// Longest payload area the sender will map.
    pub area_len_max: U32,
    /// Longest block of metadata the sender takes.
    pub metadata_len_max: U32,
    /// One of [`reason`], in a refusal.
    pub reason: U32,
    /// Bytes of `text` in use.
    pub text_len: U32,
    /// Bytes of the registration that follows an ATTACH or a VIA. Otherwise zero; ignored.
    pub body_len: U32,
    /// UTF-8: the sender's name and version, or the refusal in words.
    pub text: [u8; HELLO_TEXT_MAX],
    /// With the feature POOL: the name of the pool that the sender is a member of.
    pub pool: [u8; POOL_ID_LEN],
    /// With [`feature::UPGRADE`]: the token in a HELLO, the answer to it in a WELCOME. Otherwise zero; ignored.
    pub token: [u8; TOKEN_LEN],
    /// With [`feature::UPGRADE`], in a HELLO: the client's address in the TCP connection by which the token came, as its own
    /// kernel says it; an IPv4 address is mapped into IPv6. All four fields are zero where the client doesn't say.
    pub tcp_client: [u8; TCP_ADDRESS_LEN],
    /// The server's address in that connection.
    pub tcp_server: [u8; TCP_ADDRESS_LEN],
    /// The client's port in it.
    pub tcp_client_port: U16,
    /// The server's port in it.
    pub tcp_server_port: U16,
    /// Zero; ignored.
    pub tail: [u8; 12],
}

/// How the registration of a process that attaches begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AttachHead {
    /// Random, and the same for all backend connections of one server.
    pub process: [u8; PROCESS_ID_LEN],
    /// The backend connection's number within its server, from 0.
    pub backend_connection: U32,
    /// Length of the group's name.
    pub group_len: U16,
    /// How many names of services follow it.
    pub service_count: U16,
}

const _: () = assert!(size_of::<AttachHead>() == 24);

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Hello>() == HELLO_LEN);
    assert!(offset_of!(Hello, kind) == 8 && offset_of!(Hello, version_min) == 12);
    assert!(offset_of!(Hello, features) == 16 && offset_of!(Hello, required) == 24);
    assert!(offset_of!(Hello, region_len) == 32 && offset_of!(Hello, ring_len) == 36);
    assert!(offset_of!(Hello, stream_window) == 40 && offset_of!(Hello, session_window) == 48);
    assert!(offset_of!(Hello, clock_ns) == 56 && offset_of!(Hello, stream_count) == 64);
    assert!(offset_of!(Hello, area_len_max) == 68 && offset_of!(Hello, metadata_len_max) == 72);
    assert!(offset_of!(Hello, reason) == 76 && offset_of!(Hello, text_len) == 80);
    assert!(offset_of!(Hello, body_len) == 84);
    assert!(
        offset_of!(Hello, text) == 88 && offset_of!(Hello, pool) == 208 && offset_of!(Hello, token) == 224
    );
    assert!(offset_of!(Hello, tcp_client) == 240 && offset_of!(Hello, tcp_server) == 256);
    assert!(offset_of!(Hello, tcp_client_port) == 272 && offset_of!(Hello, tcp_server_port) == 274);
};

impl Hello {
    /// A message of `kind` with this code's versions and those features that need nothing else, and everything else zero.
    pub fn new(kind: u32) -> Hello {
        let mut hello = Hello::read_from_bytes(&[0u8; HELLO_LEN]).expect("the length is the type's own");
        hello.magic = MAGIC;
        hello.kind = kind.into();
        hello.version_min = VERSION_MIN.into();
        hello.version_max = VERSION_MAX.into();
        hello.features = (FEATURES & !feature::UPGRADE & !feature::DOORBELL & !feature::LENDING).into();
        hello
    }

    /// Sets the text, cut at a character boundary where it is too long.
    pub fn set_text(&mut self, text: &str) {
        let mut len = text.len().min(HELLO_TEXT_MAX);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.text = [0; HELLO_TEXT_MAX];
        self.text[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.text_len = (len as u32).into();
    }

    /// The text as far as it is printable; a peer's bytes are never shown raw.
    pub fn text(&self) -> String {
        let len = (self.text_len.get() as usize).min(HELLO_TEXT_MAX);
        String::from_utf8_lossy(&self.text[..len])
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_shown_printable() {
        let mut hello = Hello::new(kind::REFUSAL);
        hello.set_text(&"é".repeat(HELLO_TEXT_MAX));
        assert_eq!(hello.text().chars().count(), HELLO_TEXT_MAX / 2);
        hello.set_text(&format!("a{}", "é".repeat(HELLO_TEXT_MAX)));
        assert_eq!(hello.text().len(), HELLO_TEXT_MAX - 1, "in the middle of one it is cut before that");
        hello.set_text("a\x1b[31mb");
        assert_eq!(hello.text(), "a?[31mb");
        hello.text_len = u32::MAX.into();
        let _ = hello.text();
    }
}
