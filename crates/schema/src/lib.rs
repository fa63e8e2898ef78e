//! Schemas: from protobuf descriptor sets (and with the feature `thrift`, Thrift IDL) to one internal description,
//! and from that to the table that drives the processor.
//!
//! ```
//! # use prost::Message;
//! # let file = protox::prost_reflect::prost_types::FileDescriptorSet { file: vec![
//! #     protox::prost_reflect::prost_types::FileDescriptorProto {
//! #         name: Some("a.proto".into()), package: Some("a".into()), syntax: Some("proto3".into()),
//! #         message_type: vec![protox::prost_reflect::prost_types::DescriptorProto {
//! #             name: Some("Ping".into()), ..Default::default() }],
//! #         ..Default::default() }] };
//! # let descriptor_set = file.encode_to_vec();
//! let schema = tollfree_schema::Schema::from_descriptor_set(&descriptor_set)?;
//! let table = schema.compile()?;
//! assert_eq!(table.type_by_name("a.Ping"), Some(0));
//! # Ok::<(), tollfree_schema::SchemaError>(())
//! ```
//!
//! The descriptor set is read by a small reader of its own (the module `descriptor` holds the field numbers), so that
//! nothing here needs a protobuf library: the processor that decodes by tables is not needed to make them.
#![forbid(unsafe_code)]

mod compile;
mod descriptor;
mod features;
mod link;
mod literal;
mod schema;
#[cfg(feature = "thrift")]
mod thrift;
mod wire;

pub use schema::{Enum, EnumValue, Field, Message, Method, Role, Schema, Service};
pub use tollfree_layout::table::{FieldRow, Kind, Label, Table, TableError};

use thiserror::Error;

/// Why a schema could not be read or compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The descriptor set is not well-formed protobuf.
    #[error("the descriptor set breaks off or is malformed at byte {offset} of {place}")]
    Malformed {
        /// Which message of the descriptor set.
        place: &'static str,
        /// Offset within that message.
        offset: usize,
    },
    /// A file's syntax or edition is not known to this build.
    #[error("file {file}: {found} is not supported; proto2, proto3 and editions 2023 and 2024 are")]
    Edition {
        /// Name of the file.
        file: String,
        /// The syntax or edition, in words.
        found: String,
    },
    /// A field names a type that no file of the set defines.
    #[error("{field} is of type {type_name}, which the descriptor set does not define; include its imports")]
    UnknownType {
        /// Full name of the field or method.
        field: String,
        /// The missing type.
        type_name: String,
    },
    /// Two types have one name.
    #[error("{name} is defined twice in the descriptor set")]
    Duplicate {
        /// Full name.
        name: String,
    },
    /// Something in the schema contradicts protobuf's rules.
    #[error("{name}: {problem}")]
    Invalid {
        /// Full name of the field, message or enum.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A Thrift file cannot be read.
    #[error("{file}: {problem}")]
    Unreadable {
        /// Name of the file.
        file: String,
        /// What the system said.
        problem: String,
    },
    /// Something in a Thrift file is malformed, contradictory or not supported.
    #[error("{file}:{line}: {problem}")]
    Thrift {
        /// Name of the file.
        file: String,
        /// Line in it, counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The schema is beyond what a table can hold.
    #[error("{name}: {problem}")]
    TooLarge {
        /// Full name of the message.
        name: String,
        /// Which limit it passes.
        problem: String,
    },
    /// The compiled table does not load: an error in this crate.
    #[error("the compiled table is wrong: {0}")]
    Table(#[from] TableError),
}
