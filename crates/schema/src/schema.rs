//! The internal description of a schema, one for protobuf and Thrift.
//!
//! All that differs between syntaxes and editions is resolved here: a field says what it is, not how its file
//! spelled it. Containers inside containers, which protobuf does not have and Thrift has, are expressed by two
//! roles a message can play: the entry of a map, and a box around a container that is an element of a list.

#[cfg(feature = "thrift")]
use crate::thrift;
use crate::{SchemaError, compile, descriptor, link};
#[cfg(feature = "thrift")]
use std::path::Path;
use tollfree_layout::table::{Kind, Label, Table};

/// Messages, enums and services of one or more files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// Messages and structs; fields refer to them by index.
    pub messages: Vec<Message>,
    /// Enums; fields refer to them by index.
    pub enums: Vec<Enum>,
    /// Services, in the order of their files.
    pub services: Vec<Service>,
}

/// What a message stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// A message or struct of the schema.
    #[default]
    Plain,
    /// The entry of a map: field 1 is the key, field 2 the value.
    MapEntry,
    /// A box around a list, set or map that is itself an element: one field, number 1.
    Box,
    /// A Thrift union.
    Union,
    /// A Thrift exception.
    Exception,
}

/// A message or struct.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// Full name, without a leading dot.
    pub name: String,
    /// What it stands for.
    pub role: Role,
    /// Fields, in any order.
    pub fields: Vec<Field>,
    /// Names of its oneofs; fields refer to them by index.
    pub oneofs: Vec<String>,
}

/// A field.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Number or Thrift field id: 0 to 2^29 - 1.
    pub number: u32,
    /// Name in the schema.
    pub name: String,
    /// Name in JSON.
    pub json_name: String,
    /// What it, or each element of it, holds.
    pub kind: Kind,
    /// How often.
    pub label: Label,
    /// Index of its message ([`Kind::Message`]) or enum ([`Kind::Enum`]).
    pub target_idx: Option<usize>,
    /// Index of the oneof it is a member of.
    pub oneof_idx: Option<usize>,
    /// Encoded as one packed run.
    pub packed: bool,
    /// Encoded between group tags.
    pub delimited: bool,
    /// Strings are checked for UTF-8 when decoded.
    pub utf8: bool,
    /// A Thrift set.
    pub set: bool,
    /// A list, set or map that must be sent, if only as an empty one (Thrift's `required`).
    pub sent: bool,
    /// Names the function that is called (in a header type); see [`Schema::mark_function`].
    pub function: bool,
    /// The default that the schema states: bytes of text, or the eight little-endian bytes of a scalar's bits
    /// (narrower ones sign-extended; an enum's number).
    pub default: Option<Vec<u8>>,
}

impl Field {
    /// A field with explicit presence and nothing special, for front ends and tests to start from.
    #[must_use]
    pub fn new(number: u32, name: &str, kind: Kind, label: Label) -> Field {
        Field {
            number,
            name: name.to_owned(),
            json_name: name.to_owned(),
            kind,
            label,
            target_idx: None,
            oneof_idx: None,
            packed: false,
            delimited: false,
            utf8: false,
            set: false,
            sent: false,
            function: false,
            default: None,
        }
    }
}

/// An enum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enum {
    /// Full name, without a leading dot.
    pub name: String,
    /// Unknown values do not belong to it.
    pub closed: bool,
    /// Values, in the order of the schema; the first is the default.
    pub values: Vec<EnumValue>,
}

/// A value of an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: i32,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Full name, without a leading dot.
    pub name: String,
    /// Methods, in the order of the schema.
    pub methods: Vec<Method>,
}

/// A method of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Index of the request's message.
    pub input_idx: usize,
    /// Index of the reply's message.
    pub output_idx: usize,
    /// Many requests.
    pub client_streaming: bool,
    /// Many replies.
    pub server_streaming: bool,
    /// No reply at all (Thrift).
    pub oneway: bool,
}

impl Schema {
    /// Reads a serialized `google.protobuf.FileDescriptorSet` that contains all imports.
    ///
    /// Extensions are left out: their values stay unknown fields of the messages they extend.
    ///
    /// # Errors
    /// [`SchemaError`], which names the file, message or field.
    pub fn from_descriptor_set(bytes: &[u8]) -> Result<Schema, SchemaError> {
        link::link(&descriptor::read_set(bytes)?)
    }

    /// Reads a Thrift IDL file and what it includes, which is looked for beside the including file, then in
    /// `include_dirs`.
    ///
    /// Names are `file.Struct`, `file.Service.function_args` and `file.Service.function_result`, where `file` is
    /// the file's name without `.thrift`; a result has the return value as field 0, `success`. Containers
    /// inside containers get types of their own that are named as they are written, `list<i64>`. The struct of
    /// Thrift's own error replies is there as `TApplicationException`.
    ///
    /// # Errors
    /// [`SchemaError`]; what is wrong with an IDL file names the file and its line. Negative field ids, fields
    /// of type uuid, and defaults that are structs or containers with elements are not supported.
    #[cfg(feature = "thrift")]
    pub fn from_thrift_file(path: &Path, include_dirs: &[&Path]) -> Result<Schema, SchemaError> {
        thrift::link(&thrift::load(path, include_dirs)?)
    }

    /// As [`Schema::from_thrift_file`], for the text of one file without includes; `name` is its name.
    ///
    /// # Errors
    /// As [`Schema::from_thrift_file`].
    #[cfg(feature = "thrift")]
    pub fn from_thrift(name: &str, text: &str) -> Result<Schema, SchemaError> {
        thrift::link(&[thrift::parse(Path::new(name), text.to_owned())?])
    }

    /// Index of the message with this full name.
    #[must_use]
    pub fn message_by_name(&self, name: &str) -> Option<usize> {
        self.messages.iter().position(|message| message.name == name)
    }

    /// Marks the field of the type `type_name` that names the function which is called: in a header, by its value a
    /// message's handler is found.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`] if there is no such field. Whether it can name a function is seen when the table is
    /// compiled: only one integer, enum or string can.
    pub fn mark_function(&mut self, type_name: &str, field_name: &str) -> Result<(), SchemaError> {
        let invalid = |problem: &str| SchemaError::Invalid {
            name: format!("{type_name}.{field_name}"),
            problem: problem.to_owned(),
        };
        let message = self.messages.iter_mut().find(|message| message.name == type_name);
        let field =
            message.and_then(|message| message.fields.iter_mut().find(|field| field.name == field_name));
        field.ok_or_else(|| invalid("there is no such field to mark"))?.function = true;
        Ok(())
    }

    /// Compiles the table: `table type i` is `messages[i]`, enums likewise.
    ///
    /// # Errors
    /// [`SchemaError::TooLarge`] beyond a table's limits, [`SchemaError::Invalid`] if the description
    /// contradicts itself.
    pub fn compile(&self) -> Result<Table, SchemaError> {
        compile::compile(self)
    }
}
