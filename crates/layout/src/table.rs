//! The table: a schema compiled to an immutable, position-independent, versioned blob.
//!
//! It is the Type half of Cerebros' split schema (Cerebros 4.3): one for all messages of a type, shared by
//! every engine that decodes, encodes, verifies or reads flat messages. `spec/table.md` is the normative
//! text; this module holds its numbers, its rows, and the loader that checks a blob from outside.
//!
//! # Layout
//!
//! ```text
//! +--------+-----------+------------+-----------+------------+--------------------+
//! | header | type rows | field rows | enum rows | value rows | text (names, text  |
//! | 64 B   | 24 B each | 48 B each  | 24 B each | 12 B each  | and bytes defaults)|
//! +--------+-----------+------------+-----------+------------+--------------------+
//! ```
//!
//! Sections follow one another in this order without gaps; rows refer to rows by index and to text by offset.
//!
//! # Trust
//!
//! [`Table::load`] copies the blob into private memory and checks every row before it returns; an engine may
//! then rely on every index, offset and length in it. Nothing else makes a [`Table`].

use std::sync::Arc;
use thiserror::Error;

mod check;
mod fingerprint;
mod rows;

pub use rows::{EnumRow, FieldRow, Fingerprint, TableHeader, Text, TypeRow, ValueRow};

/// First four bytes of a table, "TFTB" in ASCII.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TFTB");
/// The table version that this crate reads and writes.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = 64;
/// Longest blob, in bytes: 256 MiB.
pub const MAX_TABLE_LEN: usize = 256 << 20;
/// Longest record, in bytes: 1 MiB.
pub const MAX_RECORD_LEN: u32 = 1 << 20;
/// Most fields of one type.
pub const MAX_FIELD_COUNT: u32 = 65_535;
/// Highest field number; protobuf's limit, and above every Thrift field id.
pub const MAX_NUMBER: u32 = (1 << 29) - 1;
/// Stands for "no type, no enum" in [`FieldRow::aux_idx`].
pub const NO_AUX: u32 = u32::MAX;

/// What a field, or each element of a list, holds. The numbers are protobuf's field types; 10 (group) does
/// not occur, a delimited field is a [`Kind::Message`] with [`FieldRow::DELIMITED`]. 19 and 20 are Thrift's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are protobuf's")]
pub enum Kind {
    Double = 1,
    Float = 2,
    Int64 = 3,
    Uint64 = 4,
    Int32 = 5,
    Fixed64 = 6,
    Fixed32 = 7,
    Bool = 8,
    String = 9,
    Message = 11,
    Bytes = 12,
    Uint32 = 13,
    Enum = 14,
    Sfixed32 = 15,
    Sfixed64 = 16,
    Sint32 = 17,
    Sint64 = 18,
    I8 = 19,
    I16 = 20,
}

impl Kind {
    const ALL: [Kind; 19] = [
        Kind::Double,
        Kind::Float,
        Kind::Int64,
        Kind::Uint64,
        Kind::Int32,
        Kind::Fixed64,
        Kind::Fixed32,
        Kind::Bool,
        Kind::String,
        Kind::Message,
        Kind::Bytes,
        Kind::Uint32,
        Kind::Enum,
        Kind::Sfixed32,
        Kind::Sfixed64,
        Kind::Sint32,
        Kind::Sint64,
        Kind::I8,
        Kind::I16,
    ];

    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether values lie in their slots, and not elsewhere in the object, as strings, bytes and messages do.
    #[must_use]
    pub fn is_scalar(self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Message)
    }
}

/// How often a field occurs, and how its absence shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Label {
    /// At most once; a value equal to zero is the same as absence.
    Implicit = 0,
    /// At most once; present or absent.
    Explicit = 1,
    /// Once; a message without it is incomplete.
    Required = 2,
    /// Any number of times, in order.
    List = 3,
    /// A list of entries, each a record with a key (field 1) and a value (field 2).
    Map = 4,
}

impl Label {
    /// The label with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Label> {
        [Label::Implicit, Label::Explicit, Label::Required, Label::List, Label::Map]
            .into_iter()
            .find(|label| *label as u8 == number)
    }

    /// Whether the slot holds the offset of a list block.
    #[must_use]
    #[inline]
    pub fn is_list(self) -> bool {
        matches!(self, Label::List | Label::Map)
    }
}

/// Why a blob is not a table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// Too short, too long, or not what its header says.
    #[error("the table has {found} bytes, its header asks for {expected}")]
    Length {
        /// Bytes that the header, or the format, asks for.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The first four bytes are not the magic number.
    #[error("not a table: it begins with {found:#010x}")]
    Magic {
        /// The first four bytes, little endian.
        found: u32,
    },
    /// A table version or flag that this build does not know.
    #[error("table version {version} with flags {flags:#06x} is not supported, version {VERSION} is")]
    Version {
        /// The table's version.
        version: u16,
        /// The table's flags.
        flags: u16,
    },
    /// The fingerprint in the header is not that of the bytes.
    #[error("the table's fingerprint is {claimed:#018x}, its bytes give {computed:#018x}")]
    Fingerprint {
        /// Fingerprint in the header.
        claimed: u64,
        /// Fingerprint of the bytes.
        computed: u64,
    },
    /// A type row breaks a rule.
    #[error("type row {type_idx}: {rule}")]
    Type {
        /// Index of the row.
        type_idx: u32,
        /// The rule, in words.
        rule: &'static str,
    },
    /// A field row breaks a rule.
    #[error("field row {field_idx}: {rule}")]
    Field {
        /// Index of the row.
        field_idx: u32,
        /// The rule, in words.
        rule: &'static str,
    },
    /// An enum row, or one of its value rows, breaks a rule.
    #[error("enum row {enum_idx}: {rule}")]
    Enum {
        /// Index of the row.
        enum_idx: u32,
        /// The rule, in words.
        rule: &'static str,
    },
}

/// A checked table. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Table {
    inner: Arc<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    blob: Box<[u8]>,
    header: TableHeader,
    types: Box<[TypeRow]>,
    fields: Box<[FieldRow]>,
    enums: Box<[EnumRow]>,
    values: Box<[ValueRow]>,
}

impl Table {
    /// Copies `blob` and checks all of it: sizes, versions, every index and offset, names and defaults, that
    /// no two slots of a record overlap, and that container types (map entries, boxes) do not nest in a circle. The work is
    /// linear in the blob's length, but for the sorting of each type's slots.
    ///
    /// # Errors
    /// [`TableError`] names the first row that breaks a rule of `spec/table.md`, and the rule.
    pub fn load(blob: &[u8]) -> Result<Table, TableError> {
        let header = TableHeader::parse(blob)?;
        let blob: Box<[u8]> = blob.into();
        let section = |at: usize, row_len: usize, count: u32| {
            blob[at..at + row_len * count as usize].chunks_exact(row_len)
        };
        let [types_at, fields_at, enums_at, values_at, _] = header.section_offsets();
        let mut types = Vec::with_capacity(header.type_count as usize);
        for row in section(types_at, TypeRow::LEN, header.type_count) {
            types.push(TypeRow::parse(row));
        }
        let mut fields = Vec::with_capacity(header.field_count as usize);
        for (idx, row) in section(fields_at, FieldRow::LEN, header.field_count).enumerate() {
            fields.push(
                FieldRow::parse(row).map_err(|rule| TableError::Field { field_idx: idx as u32, rule })?,
            );
        }
        let enums: Vec<_> = section(enums_at, EnumRow::LEN, header.enum_count).map(EnumRow::parse).collect();
        let values: Vec<_> =
            section(values_at, ValueRow::LEN, header.value_count).map(ValueRow::parse).collect();
        let loaded = Loaded {
            blob,
            header,
            types: types.into(),
            fields: fields.into(),
            enums: enums.into(),
            values: values.into(),
        };
        check::all(&loaded)?;
        Ok(Table { inner: Arc::new(loaded) })
    }

    /// The bytes of the table, as they were loaded.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.inner.blob
    }

    /// Bytes of memory that the table takes: the blob, and the rows as they are kept.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        let Loaded { blob, types, fields, enums, values, .. } = &*self.inner;
        size_of::<Loaded>()
            + size_of_val(&**blob)
            + size_of_val(&**types)
            + size_of_val(&**fields)
            + size_of_val(&**enums)
            + size_of_val(&**values)
    }

    /// FNV-1a of the blob, 64 bits. Objects carry [`Table::type_fingerprint`].
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.inner.header.fingerprint
    }

    /// Names type `type_idx` and all that it reaches, as far as it says what lies where in an object and what it means; what
    /// else the table has, and what anything is called, does not show in it. Linear in what is reached: ask once.
    ///
    /// # Panics
    /// If there is no such type.
    #[must_use]
    pub fn type_fingerprint(&self, type_idx: u32) -> u64 {
        fingerprint::of_type(self, type_idx)
    }

    /// All types.
    #[must_use]
    #[inline]
    pub fn types(&self) -> &[TypeRow] {
        &self.inner.types
    }

    /// All fields; a type's own are [`Table::fields_of`].
    #[must_use]
    #[inline]
    pub fn fields(&self) -> &[FieldRow] {
        &self.inner.fields
    }

    /// All enums.
    #[must_use]
    #[inline]
    pub fn enums(&self) -> &[EnumRow] {
        &self.inner.enums
    }

    /// The fields of type `type_idx`, by ascending number; a field's place in it is its presence bit.
    ///
    /// # Panics
    /// If there is no such type.
    #[must_use]
    #[inline]
    pub fn fields_of(&self, type_idx: u32) -> &[FieldRow] {
        let row = &self.inner.types[type_idx as usize];
        &self.inner.fields[row.first_field as usize..(row.first_field + row.field_count) as usize]
    }

    /// The values of enum `enum_idx`, by ascending number; aliases stand next to each other.
    ///
    /// # Panics
    /// If there is no such enum.
    #[must_use]
    #[inline]
    pub fn values_of(&self, enum_idx: u32) -> &[ValueRow] {
        let row = &self.inner.enums[enum_idx as usize];
        &self.inner.values[row.first_value as usize..(row.first_value + row.value_count) as usize]
    }

    /// A name. Only texts of this table's rows may be asked for; any other range gives "".
    #[must_use]
    pub fn text(&self, text: Text) -> &str {
        std::str::from_utf8(self.text_bytes(text)).unwrap_or("")
    }

    /// The bytes of a text, as [`Table::text`] does.
    #[must_use]
    pub fn text_bytes(&self, text: Text) -> &[u8] {
        let at = self.inner.header.section_offsets()[4];
        let start = at.saturating_add(text.off as usize);
        self.inner.blob.get(start..start.saturating_add(text.len as usize)).unwrap_or(&[])
    }

    /// Index of the type with this full name, without a leading dot.
    #[must_use]
    pub fn type_by_name(&self, name: &str) -> Option<u32> {
        let position =
            self.inner.types.iter().position(|row| self.text_bytes(row.name) == name.as_bytes())?;
        u32::try_from(position).ok()
    }
}

#[cfg(test)]
mod edges;
#[cfg(test)]
mod tests;
