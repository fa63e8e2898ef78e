//! Objects as JSON and back, after protobuf's mapping, for tools and tests.
//!
//! [`write()`] shows an object: fields that are present appear under their JSON name; unknown fields have no form
//! and are left out. 64-bit numbers are strings, bytes are base64, enum values are names where the schema has one.
//! The well-known types of `google.protobuf` have the forms that protobuf gives them. Thrift's kinds follow the
//! same rules; a container inside a container is an array in an array.
//!
//! [`read()`] makes a protobuf message from JSON. It takes what protobuf's own parsers take: names as in the schema
//! or as in JSON, numbers with or without quotes, base64 of either alphabet.
#![forbid(unsafe_code)]

mod read;
mod read_special;
mod scalar;
mod tree;
mod write;
mod write_special;

pub use read::{ReadError, Unknown, read};

use thiserror::Error;
use tollfree_processor::{DecodeError, Processor, Record};
use write::Writer;

/// Seconds of the first and the last moment that a Timestamp may name: the years 1 to 9999.
pub(crate) const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// Longest Duration either way, in seconds: 10,000 years.
pub(crate) const LONGEST_DURATION: i64 = 315_576_000_000;
pub(crate) const NANOS: i32 = 1_000_000_000;

/// Why an object has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A string is not UTF-8 (its schema does not ask for it).
    #[error("{path}: the string is not UTF-8, which JSON text must be")]
    Utf8 {
        /// Field path, from the root type.
        path: String,
    },
    /// A well-known type holds what its JSON form cannot say: a time out of range, a path that does not survive
    /// the change of case, a number that is not finite, no value at all.
    #[error("{path}: {problem}")]
    WellKnown {
        /// Field path, from the root type.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A `google.protobuf.Any` holds a message that is not of the type it names.
    #[error("{path}: the packed message does not decode: {error}")]
    Packed {
        /// Field path, from the root type.
        path: String,
        /// Why; its offset is one in the packed message.
        error: DecodeError,
    },
    /// Messages nest more than 200 levels deep; those packed into a `google.protobuf.Any` count.
    #[error("{path}: messages nest too deep for JSON")]
    Depth {
        /// Field path, from the root type.
        path: String,
    },
}

/// The JSON form of a message: the root of an object, or a part. Messages that are packed into a `google.protobuf.Any` are looked up in the
/// processor's table. The text has no line breaks and no spaces outside strings.
///
/// # Errors
/// [`WriteError`], with the path of the field.
pub fn write(processor: &Processor, record: Record<'_>) -> Result<String, WriteError> {
    let mut writer = Writer::new(processor, record);
    writer.message(record)?;
    Ok(writer.out)
}

/// A path as text: `Type.outer.inner[3].name`.
pub(crate) fn joined(steps: &[String]) -> String {
    let mut out = String::new();
    for step in steps {
        if !out.is_empty() && !step.starts_with('[') {
            out.push('.');
        }
        out.push_str(step);
    }
    out
}
