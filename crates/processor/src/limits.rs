//! What a decoder puts up with.

use thiserror::Error;

/// Bounds on one message, and one policy. The arena's own limit bounds the bytes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages inside messages; protobuf's parsers stop at 100.
    pub depth: u32,
    /// Fields on the wire, counting every message's, and every element of a packed run as part of one field.
    pub fields: u32,
    /// Bytes of input; at most 2^31 - 1, as in protobuf.
    pub input_len: u32,
    /// Whether a missing required field is an error, as it is for protobuf's own parsers.
    pub require_all: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: 100, fields: u32::MAX, input_len: i32::MAX as u32, require_all: true }
    }
}

/// Why a message was not decoded. Nothing of it is visible then.
///
/// Each error about the input has the `path` to the field (`outer.inner[3].name`) and the `offset` in the
/// input where it was noticed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends inside a field, or a field passes the end of its message.
    #[error("{path}: the input breaks off at byte {offset}")]
    Truncated {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A varint of more than ten bytes or 64 bits; a length or tag of more than five bytes or 32 bits.
    #[error("{path}: the varint at byte {offset} is too long")]
    Varint {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// Field number 0, wire type 6 or 7, or a group that ends without having begun, or as another.
    #[error("{path}: the tag at byte {offset} is not valid")]
    Tag {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A string that is not UTF-8.
    #[error("{path}: the string before byte {offset} is not UTF-8")]
    Utf8 {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A type code that Thrift's protocol does not have, or that has no values.
    #[error("{path}: the type code before byte {offset} is not valid")]
    TypeCode {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A Thrift list, set or map has elements of another type than the schema's.
    #[error("{path}: the elements at byte {offset} are of another type than the schema's")]
    Element {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A negative length or count (Thrift).
    #[error("{path}: the length before byte {offset} is negative")]
    Length {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A bool that is neither true nor false (Thrift's compact protocol).
    #[error("{path}: the bool before byte {offset} is neither true nor false")]
    Bool {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A field id above 32,767 (Thrift's compact protocol).
    #[error("{path}: the field id before byte {offset} passes 32767")]
    FieldId {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A Thrift union of which not exactly one field is known and set.
    #[error("{path}: the union before byte {offset} has not exactly one known field")]
    Union {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A required field is missing. protobuf's are looked for when all of the input is read, Thrift's where the struct ends.
    #[error("{path} is required and missing (seen at byte {offset})")]
    Required {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
    },
    /// A bound of [`Limits`] is passed.
    #[error("{path}: more than {limit} {what} at byte {offset}")]
    Limit {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
        /// What there is too much of: "levels of messages", "fields", "bytes of input".
        what: &'static str,
        /// The bound.
        limit: u32,
    },
    /// The arena has no room left: enlarge it, or pass the bytes on undecoded.
    #[error("{path}: the arena is exhausted at byte {offset}, {need} bytes are needed")]
    ArenaExhausted {
        /// Field path.
        path: String,
        /// Byte of the input.
        offset: usize,
        /// Bytes that the arena's own memory would have to have to go on; or the object's length, where it is finished and
        /// longer than the memory that was lent.
        need: usize,
    },
    /// The table has no such type: pass the bytes on undecoded.
    #[error("the table has no type {type_idx}")]
    UnknownType {
        /// Index that was asked for.
        type_idx: u32,
    },
    /// The type uses what this engine has no layout for: pass the bytes on undecoded.
    #[error("the engine for this protocol does not support the layout of type {type_idx}")]
    UnsupportedLayout {
        /// Index of the type.
        type_idx: u32,
    },
}
