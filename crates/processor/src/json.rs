//! Objects as JSON, after protobuf's mapping, for tools and tests.
//!
//! Fields that are present appear under their JSON name; unknown fields have no form and are left out. 64-bit
//! numbers are strings, bytes are base64, enum values are names where the schema has one. The well-known types of
//! `google.protobuf` have the forms that protobuf gives them (module `well_known`). Thrift's kinds follow the
//! same rules; a container inside a container is an array in an array.

mod well_known;
mod write;

use crate::limits::DecodeError;
use crate::object::Object;
use crate::processor::Processor;
use thiserror::Error;
use write::Writer;

/// Why an object has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonError {
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
    /// Packed messages nest deeper than messages may.
    #[error("{path}: packed messages nest too deep")]
    Depth {
        /// Field path, from the root type.
        path: String,
    },
}

impl Processor {
    /// The JSON form of an object. Messages that are packed into a `google.protobuf.Any` are looked up in this
    /// processor's table. The text has no line breaks and no spaces outside strings.
    ///
    /// # Errors
    /// [`JsonError`], with the path of the field.
    pub fn json(&self, object: &Object<'_>) -> Result<String, JsonError> {
        let mut writer = Writer::new(self, object.root());
        writer.message(object.root())?;
        Ok(writer.out)
    }
}
