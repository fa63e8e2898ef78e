//! What a process says of a method's types when its gateway asks (`/tollfree.Objects/Describe`; `spec/wire.md`, section 24).
//!
//! ```text
//! offset 0             4           8             12        13      14
//!      | request_idx | reply_idx | request_len | accepts | sends | reserved |
//!   16 | the request's table | the reply's table, unless it is the same
//! ```

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Encodings of gRPC's by the bits that stand for them.
pub mod encodings {
    /// gzip.
    pub const GZIP: u8 = 0x01;
    /// deflate.
    pub const DEFLATE: u8 = 0x02;
    /// All bits that mean something.
    pub const KNOWN: u8 = GZIP | DEFLATE;
}

/// The method by which a gateway asks for a description, in a session that began with ATTACH.
pub const DESCRIBE: &str = "/tollfree.Objects/Describe";
/// The method by which it asks a process to join the pool in which it places objects for it.
pub const JOIN: &str = "/tollfree.Objects/Join";
/// The header of [`DESCRIBE`] with the method's path.
pub const METHOD_HEADER: &str = "tollfree-method";
/// The header of [`JOIN`] with the pool's address.
pub const POOL_HEADER: &str = "tollfree-pool";
/// The header of [`JOIN`] with that by which the process joins.
pub const INVITATION_HEADER: &str = "tollfree-invitation";
/// The header by which a process says that its answer is not to be compressed.
pub const PLAIN_HEADER: &str = "tollfree-plain";

/// The beginning of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DescriptionHead {
    /// Index of the request's type in its table.
    pub request_idx: U32,
    /// Index of the reply's type in its table.
    pub reply_idx: U32,
    /// Length of the request's table in bytes.
    pub request_len: U32,
    /// [`encodings`] in which the method's server takes messages.
    pub accepts: u8,
    /// [`encodings`] in which it sends them to clients that accept them.
    pub sends: u8,
    /// Zero.
    pub reserved: U16,
}

/// Length of a [`DescriptionHead`].
pub const DESCRIPTION_HEAD_LEN: usize = size_of::<DescriptionHead>();

impl DescriptionHead {
    /// As it stands before the tables.
    pub fn to_bytes(self) -> [u8; DESCRIPTION_HEAD_LEN] {
        zerocopy::transmute!(self)
    }
}

/// The fingerprint of a method's types, of those of its request and its reply (`spec/wire.md`, section 12).
pub const fn method_fingerprint(request: u64, reply: u64) -> u64 {
    request.rotate_left(32) ^ reply
}

/// A description whose parts are there. Its tables are yet to be loaded, which may refuse them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What stands before the tables.
    pub head: DescriptionHead,
    /// Where the request's table lies.
    pub request: Range<usize>,
    /// Where the reply's table lies: at the same place where there is one for both.
    pub reply: Range<usize>,
}

/// Why bytes are no description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// They end before the tables begin.
    #[error("the description of a method breaks off after {0} bytes")]
    Head(usize),
    /// A bit that stands for nothing is set.
    #[error("the description of a method names encodings that do not exist")]
    Encodings,
    /// They end before the request's table does.
    #[error("the description of a method is shorter than its table of {0} bytes")]
    Table(u32),
}

impl Description {
    /// Finds the parts of a description.
    ///
    /// # Errors
    /// [`DescriptionError`] for bytes that are none.
    pub fn read(bytes: &[u8]) -> Result<Description, DescriptionError> {
        let (head, tables) =
            DescriptionHead::read_from_prefix(bytes).map_err(|_| DescriptionError::Head(bytes.len()))?;
        if (head.accepts | head.sends) & !encodings::KNOWN != 0 || head.reserved.get() != 0 {
            return Err(DescriptionError::Encodings);
        }
        let request_len = head.request_len.get();
        if request_len as usize > tables.len() {
            return Err(DescriptionError::Table(request_len));
        }
        let request = DESCRIPTION_HEAD_LEN..DESCRIPTION_HEAD_LEN + request_len as usize;
        let reply = if request.end < bytes.len() { request.end..bytes.len() } else { request.clone() };
        Ok(Description { head, request, reply })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(request_len: u32, accepts: u8, reserved: u16, tables: &[u8]) -> Vec<u8> {
        let head = DescriptionHead {
            request_idx: 1.into(),
            reply_idx: 2.into(),
            request_len: request_len.into(),
            accepts,
            sends: encodings::DEFLATE,
            reserved: reserved.into(),
        };
        [&head.to_bytes()[..], tables].concat()
    }

    #[test]
    fn the_fingerprint_of_a_method_tells_its_request_from_its_reply() {
        assert_eq!(method_fingerprint(1, 2), 1 << 32 | 2);
        assert_eq!((method_fingerprint(3 << 32, 1), method_fingerprint(3 << 32, 3)), (2, 0));
    }

    #[test]
    fn the_second_table_may_be_the_first() {
        let places = |bytes: Vec<u8>| Description::read(&bytes).map(|read| (read.request, read.reply));
        assert_eq!(places(bytes(3, 1, 0, b"abcde")), Ok((16..19, 19..21)));
        assert_eq!(places(bytes(3, 1, 0, b"abc")), Ok((16..19, 16..19)));
        assert_eq!(places(bytes(0, 1, 0, b"")), Ok((16..16, 16..16)));
    }

    #[test]
    fn what_is_no_description_is_refused() {
        let whole = bytes(3, 3, 0, b"abc");
        for len in 0..DESCRIPTION_HEAD_LEN {
            assert_eq!(Description::read(&whole[..len]), Err(DescriptionError::Head(len)));
        }
        for len in DESCRIPTION_HEAD_LEN..whole.len() {
            assert_eq!(Description::read(&whole[..len]), Err(DescriptionError::Table(3)));
        }
        assert_eq!(Description::read(&bytes(u32::MAX, 3, 0, b"abc")), Err(DescriptionError::Table(u32::MAX)));
        assert_eq!(Description::read(&bytes(3, 4, 0, b"abc")), Err(DescriptionError::Encodings));
        assert_eq!(Description::read(&bytes(3, 3, 1, b"abc")), Err(DescriptionError::Encodings));
        let mut both = whole.clone();
        both[12..14].fill(0x80);
        assert_eq!(Description::read(&both), Err(DescriptionError::Encodings), "the same bit for both ways");
    }
}
