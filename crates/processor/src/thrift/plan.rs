//! What the Thrift engines need of each type and field, derived once from the table.

use crate::plan::spread;
use tollfree_layout::flat::{PRESENCE_OFF, presence_words, value_len};
use tollfree_layout::table::{FieldRow, Kind, Label, Table, TypeRow};

/// Thrift's types, by the compact protocol's numbers; false's own number there (2) is folded into `BOOL`.
pub(crate) mod code {
    pub(crate) const STOP: u8 = 0;
    pub(crate) const BOOL: u8 = 1;
    pub(crate) const I8: u8 = 3;
    pub(crate) const I16: u8 = 4;
    pub(crate) const I32: u8 = 5;
    pub(crate) const I64: u8 = 6;
    pub(crate) const DOUBLE: u8 = 7;
    pub(crate) const STRING: u8 = 8;
    pub(crate) const LIST: u8 = 9;
    pub(crate) const SET: u8 = 10;
    pub(crate) const MAP: u8 = 11;
    pub(crate) const STRUCT: u8 = 12;
    pub(crate) const UUID: u8 = 13;
    /// The binary protocol's "void": it can be said, but has no values.
    pub(crate) const VOID: u8 = 14;
    /// No type of Thrift's.
    pub(crate) const INVALID: u8 = 15;
}

/// Highest field id.
const MAX_ID: u32 = i16::MAX as u32;
/// No required fields.
pub(crate) const NO_MASK: u32 = u32::MAX;

/// One field, as the Thrift engines see it: half a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct ThriftField {
    pub slot_off: u32,
    pub presence_off: u32,
    pub presence_bit: u32,
    /// Its struct's type, or its map's entry, or the box around its elements.
    pub aux_idx: u32,
    /// Bytes of an element, or of the struct.
    pub elem_len: u32,
    pub id: u16,
    /// Its type on the wire, and its elements' (of a list or set).
    pub code: u8,
    pub elem: u8,
    /// Elements are containers, in boxes.
    pub boxed: bool,
    pub utf8: bool,
    /// Elements are records: structs, entries or boxes.
    pub records: bool,
    /// A map whose keys can be compared byte by byte.
    pub plain_keys: bool,
}

const _: () = assert!(size_of::<ThriftField>() == 32);

/// One type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThriftType {
    /// It, and every type below it, has only what Thrift has.
    pub supported: bool,
    pub union: bool,
    /// Index of its first mask in [`ThriftPlan::required`], one for each presence word.
    pub first_required: u32,
}

/// A table as the Thrift engines see it.
#[derive(Debug)]
pub(crate) struct ThriftPlan {
    pub types: Box<[ThriftType]>,
    /// In the table's order.
    pub fields: Box<[ThriftField]>,
    pub required: Box<[u32]>,
}

impl ThriftPlan {
    pub(crate) fn new(table: &Table) -> ThriftPlan {
        let (mut types, mut fields, mut required) = (Vec::new(), Vec::new(), Vec::new());
        for (idx, row) in table.types().iter().enumerate() {
            let rows = table.fields_of(idx as u32);
            let must = |field: &FieldRow| field.label == Label::Required || field.has(FieldRow::SENT);
            let mut first_required = NO_MASK;
            if rows.iter().any(must) {
                first_required = required.len() as u32;
                required.resize(required.len() + presence_words(row.field_count) as usize, 0);
            }
            for (bit, field) in rows.iter().enumerate() {
                if must(field) {
                    required[first_required as usize + bit / 32] |= 1 << (bit % 32);
                }
                fields.push(field_plan(table, field, bit as u32));
            }
            types.push(ThriftType {
                supported: rows.iter().all(is_supported),
                union: row.flags & TypeRow::UNION != 0,
                first_required,
            });
        }
        spread_unsupported(table, &mut types);
        ThriftPlan { types: types.into(), fields: fields.into(), required: required.into() }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_len(&self) -> usize {
        size_of_val(&*self.types) + size_of_val(&*self.fields) + size_of_val(&*self.required)
    }
}

/// A type with an unsupported one below it is unsupported.
fn spread_unsupported(table: &Table, types: &mut [ThriftType]) {
    let mut marks: Vec<u8> = types.iter().map(|t| u8::from(!t.supported)).collect();
    spread(table, &mut marks);
    for (t, mark) in types.iter_mut().zip(marks) {
        t.supported = mark == 0;
    }
}

fn is_supported(field: &FieldRow) -> bool {
    let kind = match field.kind {
        Kind::Message => !field.has(FieldRow::DELIMITED),
        Kind::Enum => !field.has(FieldRow::CLOSED),
        kind => scalar_code(kind) != code::INVALID,
    };
    kind && field.label != Label::Implicit && field.oneof_off == 0 && field.number <= MAX_ID
}

/// The code of one value, not of a list of them.
fn scalar_code(kind: Kind) -> u8 {
    match kind {
        Kind::Bool => code::BOOL,
        Kind::I8 => code::I8,
        Kind::I16 => code::I16,
        Kind::Int32 | Kind::Enum => code::I32,
        Kind::Int64 => code::I64,
        Kind::Double => code::DOUBLE,
        Kind::String | Kind::Bytes => code::STRING,
        Kind::Message => code::STRUCT,
        _ => code::INVALID,
    }
}

/// The code of a field: of the container, if it is one.
fn field_code(field: &FieldRow) -> u8 {
    match field.label {
        Label::Map => code::MAP,
        Label::List if field.has(FieldRow::SET) => code::SET,
        Label::List => code::LIST,
        _ => scalar_code(field.kind),
    }
}

fn field_plan(table: &Table, field: &FieldRow, bit: u32) -> ThriftField {
    let target = (field.kind == Kind::Message).then(|| table.types()[field.aux_idx as usize]);
    let inner = || table.fields_of(field.aux_idx).first();
    let boxed = field.label == Label::List && target.is_some_and(|row| row.flags & TypeRow::BOX != 0);
    let elem = if boxed { inner().map_or(code::INVALID, field_code) } else { scalar_code(field.kind) };
    let plain = |key: &FieldRow| !key.label.is_list() && key.kind != Kind::Message;
    ThriftField {
        slot_off: field.slot_off,
        presence_off: PRESENCE_OFF + 4 * (bit / 32),
        presence_bit: 1 << (bit % 32),
        aux_idx: field.aux_idx,
        elem_len: target.map_or_else(|| value_len(field.kind), |row| row.record_len),
        id: field.number as u16,
        code: field_code(field),
        elem,
        boxed,
        utf8: field.has(FieldRow::UTF8),
        records: target.is_some(),
        plain_keys: field.label == Label::Map && inner().is_some_and(plain),
    }
}
