//! The flat message: one decoded message in one relocatable piece of memory.
//!
//! This module holds the numbers of the layout and the object's header; `spec/flat.md` is the normative
//! text. Reading, writing and verifying objects is the processor's work.
//!
//! # Layout
//!
//! ```text
//!  0               4               8              12              16
//! +---------------+-------+-------+---------------+---------------+
//! | magic "TFLO"  | vers. | flags | object length | root offset   |
//! +---------------+-------+-------+---------------+---------------+
//! | fingerprint of the root type  | zero: segments that may come  |
//! +-------------------------------+---------------+---------------+
//! | records, list blocks, string bytes, perhaps the input ...     |
//! ```
//!
//! Every offset in an object counts bytes from the first byte of this header, so an object can be moved,
//! mapped elsewhere, or grown by `realloc` without touching it. Offset 0 is the header itself and stands
//! for "nothing".
//!
//! # Trust
//!
//! A peer can forge every byte. The header is parsed from a private copy by [`Header::parse`], which checks
//! what can be checked without a table; the processor's verifier does the rest before anything is read.

use crate::table::Kind;
use thiserror::Error;

/// First four bytes of an object, "TFLO" in ASCII.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TFLO");
/// The layout version that this crate reads and writes.
pub const VERSION: u16 = 2;
/// Bytes of the header at the start of every object.
pub const HEADER_LEN: u32 = 32;
/// Records, list blocks and objects begin at multiples of this.
pub const ALIGN: u32 = 8;
/// Longest object, in bytes. The last 4 KiB of the 32-bit range stay unused, so that sums of an offset and
/// a small length never wrap.
pub const MAX_OBJECT_LEN: u32 = u32::MAX - 4095;
/// Where a record keeps its list of unknown-field slices.
pub const UNKNOWN_OFF: u32 = 0;
/// Where a record's presence words begin.
pub const PRESENCE_OFF: u32 = 4;
/// Fields counted by one presence word.
pub const PRESENCE_BITS: u32 = 32;
/// Bytes of a list block before its first element: count and capacity.
pub const LIST_HEADER_LEN: u32 = 8;
/// Bytes of a string slot: offset and length.
pub const SPAN_LEN: u32 = 8;
/// Longest string, in bytes. The bit above is kept for bytes that lie elsewhere.
pub const MAX_STRING_LEN: u32 = (1 << 31) - 1;

/// Presence words that a record of `field_count` fields carries; at least one.
#[must_use]
#[inline]
pub fn presence_words(field_count: u32) -> u32 {
    field_count.div_ceil(PRESENCE_BITS).max(1)
}

/// Bytes that one value of `kind` takes in place: in a record, or as an element of a list of scalars or
/// strings. A message takes an offset in a record; in a list its whole record lies in place, so the
/// element length is then the record's length.
#[must_use]
#[inline]
pub fn value_len(kind: Kind) -> u32 {
    match kind {
        Kind::Bool | Kind::I8 => 1,
        Kind::I16 => 2,
        Kind::Float
        | Kind::Int32
        | Kind::Fixed32
        | Kind::Uint32
        | Kind::Enum
        | Kind::Sfixed32
        | Kind::Sint32
        | Kind::Message => 4,
        Kind::Double | Kind::Int64 | Kind::Uint64 | Kind::Fixed64 | Kind::Sfixed64 | Kind::Sint64 => 8,
        Kind::String | Kind::Bytes => SPAN_LEN,
    }
}

/// Bytes of a field's slot in its record: a list is always one offset.
#[must_use]
#[inline]
pub fn slot_len(kind: Kind, list: bool) -> u32 {
    if list { 4 } else { value_len(kind) }
}

/// Alignment of a slot. A span is two 32-bit words, so four bytes are enough for it.
#[must_use]
#[inline]
pub fn slot_align(kind: Kind, list: bool) -> u32 {
    match (kind, list) {
        (_, true) | (Kind::String | Kind::Bytes, _) => 4,
        _ => value_len(kind),
    }
}

/// Why the first bytes of an object were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header.
    #[error("a flat message has {HEADER_LEN} bytes of header, here are {len}")]
    Short {
        /// Bytes that there were.
        len: usize,
    },
    /// The first four bytes are not the magic number.
    #[error("not a flat message: it begins with {found:#010x}")]
    Magic {
        /// The first four bytes, little endian.
        found: u32,
    },
    /// A layout version or a flag that this build does not know.
    #[error("linear layout version {version} with flags {flags:#06x} is not supported, version {VERSION} is")]
    Version {
        /// The object's version.
        version: u16,
        /// The object's flags.
        flags: u16,
    },
    /// The object says that it is longer than its memory, or shorter than its header.
    #[error("the object claims {claimed} bytes, its memory has {len}")]
    Length {
        /// Length in the header.
        claimed: u32,
        /// Bytes that there are.
        len: usize,
    },
    /// The root offset is not aligned, or lies outside the object.
    #[error("the root record's offset {root} is not inside the object")]
    Root {
        /// Offset in the header.
        root: u32,
    },
    /// The last two words of the header must be zero.
    #[error("the reserved words of the header hold {found:#x}")]
    Reserved {
        /// What they hold.
        found: u64,
    },
}

/// The parsed header of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole object, header included.
    pub object_len: u32,
    /// Offset of the root record.
    pub root_off: u32,
    /// Fingerprint of the root's type ([`crate::table::Table::type_fingerprint`]).
    pub fingerprint: u64,
}

impl Header {
    /// Reads and checks the header of the object that begins `bytes`.
    ///
    /// # Errors
    /// [`HeaderError`] when the bytes cannot be an object of this version, or do not hold all of it.
    ///
    /// ```
    /// use tollfree_layout::flat::{Header, HEADER_LEN};
    /// let h = Header { object_len: 48, root_off: 32, fingerprint: 7 };
    /// let mut object = [0u8; 48];
    /// object[..HEADER_LEN as usize].copy_from_slice(&h.to_bytes());
    /// assert_eq!(Header::parse(&object), Ok(h));
    /// assert!(Header::parse(&object[..47]).is_err());
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        let Some((head, _)) = bytes.split_first_chunk::<{ HEADER_LEN as usize }>() else {
            return Err(HeaderError::Short { len: bytes.len() });
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(HeaderError::Magic { found: word(0) });
        }
        let (version, flags) =
            (u16::from_le_bytes([head[4], head[5]]), u16::from_le_bytes([head[6], head[7]]));
        if version != VERSION || flags != 0 {
            return Err(HeaderError::Version { version, flags });
        }
        let (object_len, root_off) = (word(8), word(12));
        if !(HEADER_LEN..=MAX_OBJECT_LEN).contains(&object_len) || object_len as usize > bytes.len() {
            return Err(HeaderError::Length { claimed: object_len, len: bytes.len() });
        }
        if root_off < HEADER_LEN || !root_off.is_multiple_of(ALIGN) || root_off >= object_len {
            return Err(HeaderError::Root { root: root_off });
        }
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if long(24) != 0 {
            return Err(HeaderError::Reserved { found: long(24) });
        }
        Ok(Header { object_len, root_off, fingerprint: long(16) })
    }

    /// The header as it lies in memory.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN as usize] {
        let mut out = [0; HEADER_LEN as usize];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.object_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.root_off.to_le_bytes());
        out[16..24].copy_from_slice(&self.fingerprint.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<u8> {
        let h = Header { object_len: 64, root_off: 40, fingerprint: u64::MAX - 3 };
        let mut bytes = vec![0; 64];
        bytes[..32].copy_from_slice(&h.to_bytes());
        bytes
    }

    #[test]
    fn header_survives_the_round_trip() {
        let h = Header::parse(&good()).unwrap();
        assert_eq!((h.object_len, h.root_off, h.fingerprint), (64, 40, u64::MAX - 3));
    }

    #[test]
    fn a_root_may_lie_right_behind_the_header() {
        let h = Header { object_len: 64, root_off: HEADER_LEN, fingerprint: 1 << 63 | 1 };
        let mut bytes = good();
        bytes[..32].copy_from_slice(&h.to_bytes());
        assert_eq!(Header::parse(&bytes), Ok(h));
    }

    #[test]
    fn each_bad_header_is_named() {
        let spoil = |at: usize, value: u8| {
            let mut bytes = good();
            bytes[at] = value;
            Header::parse(&bytes).unwrap_err()
        };
        assert!(matches!(spoil(0, 0), HeaderError::Magic { .. }));
        assert!(matches!(spoil(4, 1), HeaderError::Version { version: 1, .. }));
        assert!(matches!(spoil(7, 1), HeaderError::Version { flags: 256, .. }));
        assert!(matches!(spoil(8, 65), HeaderError::Length { claimed: 65, .. }));
        assert!(matches!(spoil(8, 31), HeaderError::Length { claimed: 31, .. }));
        assert!(matches!(spoil(11, 255), HeaderError::Length { .. }));
        assert!(matches!(spoil(12, 41), HeaderError::Root { root: 41 }));
        assert!(matches!(spoil(12, 24), HeaderError::Root { root: 24 }));
        assert!(matches!(spoil(12, 64), HeaderError::Root { root: 64 }));
        assert!(matches!(spoil(24, 1), HeaderError::Reserved { found: 1 }));
        assert!(matches!(spoil(31, 1), HeaderError::Reserved { .. }));
        assert!(matches!(Header::parse(&[0; 31]), Err(HeaderError::Short { len: 31 })));
    }
}
