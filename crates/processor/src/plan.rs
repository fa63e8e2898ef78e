//! A table made ready for the engines: what they need of each field in one place, derived once.
//!
//! A plan adds nothing to the table's meaning. It holds, per field, the operation for each protobuf wire type,
//! the encoded tag, and where the presence bit lies; per type, a map from field number to field.

use crate::encode::Steps;
use std::sync::OnceLock;
use tollfree_layout::flat::{PRESENCE_BITS, PRESENCE_OFF, presence_words, value_len};
use tollfree_layout::steps;
use tollfree_layout::table::{FieldRow, Kind, Label, Table, TypeRow};

/// Marks a number that the type does not have.
pub(crate) const NONE: u16 = u16::MAX;

/// What to do with a field of this kind and label. The same numbers serve decoding and encoding.
///
/// `ONE` + shape is a singular field, `LIST` + shape one element of a list, `PACKED` + shape a packed run.
pub(crate) mod op {
    pub(crate) const UNKNOWN: u8 = 0;
    pub(crate) const VARINT64: u8 = 1;
    pub(crate) const VARINT32: u8 = 2;
    pub(crate) const SINT64: u8 = 3;
    pub(crate) const SINT32: u8 = 4;
    pub(crate) const BOOL: u8 = 5;
    pub(crate) const CLOSED: u8 = 6;
    pub(crate) const FIXED64: u8 = 7;
    pub(crate) const FIXED32: u8 = 8;
    pub(crate) const BYTES: u8 = 9;
    pub(crate) const STRING: u8 = 10;
    pub(crate) const MESSAGE: u8 = 11;
    pub(crate) const GROUP: u8 = 12;
    /// Signed 32-bit values: on the wire ten bytes when negative. Only encoding tells them apart.
    pub(crate) const INT32: u8 = 13;
    pub(crate) const LIST: u8 = 16;
    pub(crate) const LIST_VARINT64: u8 = LIST + VARINT64;
    pub(crate) const LIST_VARINT32: u8 = LIST + VARINT32;
    pub(crate) const LIST_SINT64: u8 = LIST + SINT64;
    pub(crate) const LIST_SINT32: u8 = LIST + SINT32;
    pub(crate) const LIST_BOOL: u8 = LIST + BOOL;
    pub(crate) const LIST_CLOSED: u8 = LIST + CLOSED;
    pub(crate) const LIST_FIXED64: u8 = LIST + FIXED64;
    pub(crate) const LIST_FIXED32: u8 = LIST + FIXED32;
    pub(crate) const LIST_BYTES: u8 = LIST + BYTES;
    pub(crate) const LIST_STRING: u8 = LIST + STRING;
    pub(crate) const LIST_MESSAGE: u8 = LIST + MESSAGE;
    pub(crate) const LIST_GROUP: u8 = LIST + GROUP;
    pub(crate) const PACKED: u8 = 32;
    /// The encoder's branches, beside the operations of singular fields: the end of a record, lists of messages, of groups,
    /// of scalars and strings, the end of a presence word that is not the record's first. There are no others.
    pub(crate) const STEP_END: u8 = 0;
    pub(crate) const STEP_MESSAGES: u8 = 14;
    pub(crate) const STEP_GROUPS: u8 = 15;
    pub(crate) const STEP_LIST: u8 = 16;
    pub(crate) const STEP_WORD: u8 = 17;
    /// A map: a list of messages with something to see to after each.
    pub(crate) const MAP: u8 = 64;
    /// Added to a singular field's operation: it is a member of a oneof.
    pub(crate) const ONEOF: u8 = 128;
}

/// One field, as the engines see it: a cache line.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct FieldPlan {
    /// Decoding operation by wire type.
    pub ops: [u8; 8],
    /// The tag as it is written, in the low bytes.
    pub tag: u64,
    pub slot_off: u32,
    pub aux_idx: u32,
    /// Offset of the presence word, and the bit in it.
    pub presence_off: u32,
    pub presence_bit: u32,
    /// Bytes of an element of the list.
    pub elem_len: u32,
    pub number: u32,
    pub oneof_off: u32,
    pub tag_len: u8,
    /// Encoding operation.
    pub encode: u8,
    pub implicit: bool,
    /// A map whose value is a closed enum.
    pub closed_map: bool,
    /// As in the table.
    pub kind: Kind,
    pub label: Label,
    /// What readers branch on, once: the kind, or none for a list or map.
    pub single: Option<Kind>,
}

const _: () = assert!(size_of::<FieldPlan>() == 64);

impl FieldPlan {
    /// Covers the bytes of `tag`.
    #[inline(always)]
    pub(crate) fn tag_mask(&self) -> u64 {
        (1 << (8 * self.tag_len as u32)) - 1
    }

    /// Whether its strings are checked for UTF-8.
    #[inline(always)]
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.encode, op::STRING | op::LIST_STRING)
    }
}

/// One type, as the engines see it.
#[derive(Debug, Clone)]
pub(crate) struct TypePlan {
    pub first_field: u32,
    pub field_count: u32,
    pub record_len: u32,
    pub presence_words: u32,
    /// The type's part of [`Plan::dense`].
    pub first_dense: u32,
    pub dense_len: u32,
    pub finish: u8,
    /// Its part of [`Plan::required`]; `presence_words` masks, if it has required fields.
    pub first_required: u32,
    /// A required field can be missing here or below.
    pub reaches_required: bool,
    /// It, or a type below it, has maps.
    pub reaches_maps: bool,
    /// It, or a type below it, has fields that protobuf has no form for.
    pub unsupported: bool,
    /// Its part of [`Plan::oneofs`]: where the tag words of its oneofs lie.
    pub first_oneof: u32,
    pub oneof_count: u32,
    /// Its part of [`Plan::maps`]: which of its fields are maps.
    pub first_map: u32,
    pub map_count: u32,
    /// Its last presence word, among those of all types.
    pub last_word: u32,
}

/// What must be seen to when a record of the type is complete.
pub(crate) mod finish {
    pub(crate) const MAP_ENTRY: u8 = 1;
    pub(crate) const MAPS: u8 = 2;
    pub(crate) const REQUIRED: u8 = 4;
}

/// The values of an enum: the lowest one, and a bit for each number from it on, as far as that is worth the room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnumPlan {
    low: i32,
    bit_count: u32,
    /// The enum's part of [`Plan::enum_bits`].
    first_word: u32,
}

/// A table and all that is derived from it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub table: Table,
    pub types: Box<[TypePlan]>,
    pub fields: Box<[FieldPlan]>,
    pub dense: Box<[u16]>,
    pub required: Box<[u32]>,
    pub enums: Box<[EnumPlan]>,
    pub thrift: crate::thrift::ThriftPlan,
    pub enum_bits: Box<[u64]>,
    pub oneofs: Box<[u32]>,
    pub maps: Box<[u16]>,
    /// One for each presence word of each type, as [`TypePlan::last_word`] counts them.
    pub checks: Box<[WordCheck]>,
    pub steps: Steps,
    /// Of each type that was asked for.
    fingerprints: Box<[OnceLock<u64>]>,
}

/// The places of the bits that are set, from the lowest on.
pub(crate) fn ones(mut bits: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        steps::take(1);
        let place = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (place < 32).then_some(place)
    })
}

/// What a verifier looks at in a presence word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordCheck {
    /// The bits that belong to fields.
    pub fields: u32,
    /// Strings that are checked for UTF-8. (What lies in a slot of neither these nor those below is a value, whatever it is.)
    pub texts: u32,
    /// Other strings, and bytes.
    pub spans: u32,
    /// Messages, lists and maps.
    pub pieces: u32,
    /// Required fields.
    pub required: u32,
    /// Members of oneofs.
    pub members: u32,
}

impl Plan {
    pub(crate) fn new(table: Table) -> Plan {
        let mut types = Vec::with_capacity(table.types().len());
        let mut parts = Parts::default();
        let mut first_word = 0;
        for (idx, row) in table.types().iter().enumerate() {
            let t = type_plan(table.fields_of(idx as u32), row, first_word, &mut parts);
            first_word += t.presence_words;
            types.push(t);
        }
        spread_marks(&table, &mut types);
        let mut fields = Vec::with_capacity(table.fields().len());
        for row in table.types() {
            let own = row.first_field as usize..(row.first_field + row.field_count) as usize;
            for (bit, field) in table.fields()[own].iter().enumerate() {
                fields.push(field_plan(&table, field, bit as u32));
            }
        }
        let Parts { dense, required, oneofs, maps } = parts;
        let mut enum_bits = Vec::new();
        let enums =
            (0..table.enums().len() as u32).map(|idx| enum_plan(&table, idx, &mut enum_bits)).collect();
        Plan {
            checks: types.iter().flat_map(|t| word_checks(t, &fields, &required)).collect(),
            steps: Steps::new(&types, &fields),
            types: types.into(),
            fields: fields.into(),
            dense: dense.into(),
            oneofs: oneofs.into(),
            maps: maps.into(),
            required: required.into(),
            enums,
            thrift: crate::thrift::ThriftPlan::new(&table),
            enum_bits: enum_bits.into(),
            fingerprints: table.types().iter().map(|_| OnceLock::new()).collect(),
            table,
        }
    }

    /// What objects with a root of this type carry.
    #[inline(always)]
    pub(crate) fn fingerprint(&self, type_idx: u32) -> u64 {
        *self.fingerprints[type_idx as usize].get_or_init(|| self.table.type_fingerprint(type_idx))
    }

    /// Bytes of memory that this and the table take.
    pub(crate) fn memory_len(&self) -> usize {
        let Plan { table, types, fields, dense, required, enums, thrift, enum_bits, .. } = self;
        let Plan { oneofs, maps, checks, steps, fingerprints, .. } = self;
        let derived = size_of_val(&**types) + size_of_val(&**fields) + size_of_val(&**dense);
        let looked_up = size_of_val(&**required) + size_of_val(&**enums) + size_of_val(&**enum_bits);
        let checked = size_of_val(&**oneofs) + size_of_val(&**maps) + size_of_val(&**checks);
        let engines = thrift.memory_len() + steps.memory_len() + size_of_val(&**fingerprints);
        size_of::<Plan>() + table.memory_len() + derived + looked_up + checked + engines
    }

    /// The maps among a type's fields.
    pub(crate) fn maps_of(&self, type_idx: u32) -> impl Iterator<Item = &FieldPlan> {
        let plan = &self.types[type_idx as usize];
        let maps = &self.maps[plan.first_map as usize..(plan.first_map + plan.map_count) as usize];
        maps.iter().map(move |idx| &self.fields_of(type_idx)[usize::from(*idx)])
    }

    /// What is looked at in each presence word of a type.
    pub(crate) fn checks_of(&self, type_idx: u32) -> &[WordCheck] {
        let plan = &self.types[type_idx as usize];
        &self.checks[(plan.last_word + 1 - plan.presence_words) as usize..=plan.last_word as usize]
    }

    /// The fields of a type.
    #[inline]
    pub(crate) fn fields_of(&self, type_idx: u32) -> &[FieldPlan] {
        let plan = &self.types[type_idx as usize];
        &self.fields[plan.first_field as usize..(plan.first_field + plan.field_count) as usize]
    }

    /// A number that no other type has, of this plan or any other.
    #[inline(always)]
    pub(crate) fn type_number(&self, type_idx: u32) -> u64 {
        self.steps.number() + u64::from(type_idx)
    }

    /// Place of the field with this number among its type's fields.
    pub(crate) fn field_idx(&self, type_idx: u32, number: u32) -> Option<u32> {
        let fields = self.fields_of(type_idx);
        fields.binary_search_by_key(&number, |field| field.number).ok().map(|idx| idx as u32)
    }

    /// Whether the closed enum has this value.
    #[inline(always)]
    pub(crate) fn has_value(&self, enum_idx: u32, value: i32) -> bool {
        self.has_near_value(enum_idx, value) || self.has_far_value(enum_idx, value)
    }

    /// Whether the closed enum has this value near its lowest one. False tells nothing.
    #[inline(always)]
    pub(crate) fn has_near_value(&self, enum_idx: u32, value: i32) -> bool {
        let Some(plan) = self.enums.get(enum_idx as usize) else { return false };
        let bit = value.wrapping_sub(plan.low) as u32;
        let word = self.enum_bits.get((plan.first_word + bit / 64) as usize);
        bit < plan.bit_count && word.is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    #[cold]
    #[inline(never)]
    fn has_far_value(&self, enum_idx: u32, value: i32) -> bool {
        self.table.values_of(enum_idx).binary_search_by_key(&value, |row| row.number).is_ok()
    }
}

/// What all types have one behind the other.
#[derive(Default)]
struct Parts {
    dense: Vec<u16>,
    required: Vec<u32>,
    oneofs: Vec<u32>,
    maps: Vec<u16>,
}

fn type_plan(fields: &[FieldRow], row: &TypeRow, first_word: u32, parts: &mut Parts) -> TypePlan {
    steps::take(1 + fields.len());
    let Parts { dense, required, oneofs, maps } = parts;
    let words = presence_words(row.field_count);
    let mut finish = 0;
    if row.flags & TypeRow::MAP_ENTRY != 0 {
        finish |= finish::MAP_ENTRY;
    }
    if fields.iter().any(|field| field.label == Label::Map) {
        finish |= finish::MAPS;
    }
    let first_required = required.len() as u32;
    if fields.iter().any(|field| field.label == Label::Required) {
        finish |= finish::REQUIRED;
        required.resize(required.len() + words as usize, 0);
        for (bit, _) in fields.iter().enumerate().filter(|(_, field)| field.label == Label::Required) {
            required[first_required as usize + bit / 32] |= 1 << (bit % 32);
        }
    }
    let (first_oneof, first_map) = (oneofs.len() as u32, maps.len() as u32);
    let mut tags: Vec<u32> = fields.iter().map(|field| field.oneof_off).filter(|off| *off != 0).collect();
    tags.sort_unstable();
    tags.dedup();
    oneofs.extend(tags);
    let of_maps = fields.iter().enumerate().filter(|(_, field)| field.label == Label::Map);
    maps.extend(of_maps.map(|(idx, _)| idx as u16));
    // Direct look-up as far as it is at least a quarter full; beyond it, a binary search.
    let first_dense = dense.len() as u32;
    let dense_len = (1..=fields.len())
        .rev()
        .map(|count| (count, fields[count - 1].number as usize + 1))
        .find(|(count, len)| *len <= 4 * count + 64)
        .map_or(0, |(_, len)| len);
    dense.resize(dense.len() + dense_len, NONE);
    for (idx, field) in fields.iter().enumerate() {
        let at = field.number as usize;
        if at != 0 && at < dense_len {
            dense[first_dense as usize + at] = idx as u16;
        }
    }
    TypePlan {
        first_field: row.first_field,
        field_count: row.field_count,
        record_len: row.record_len,
        presence_words: words,
        last_word: first_word + words - 1,
        first_dense,
        dense_len: dense_len as u32,
        finish,
        first_required,
        reaches_required: finish & finish::REQUIRED != 0,
        reaches_maps: finish & finish::MAPS != 0,
        first_oneof,
        oneof_count: oneofs.len() as u32 - first_oneof,
        first_map,
        map_count: maps.len() as u32 - first_map,
        unsupported: row.flags & TypeRow::BOX != 0
            || fields.iter().any(|field| field.number == 0 || matches!(field.kind, Kind::I8 | Kind::I16))
            || row.flags & TypeRow::MAP_ENTRY != 0 && !is_plain_entry(fields),
    }
}

/// Whether the entry of a map is one that protobuf has: no containers, and a key whose bytes can be compared.
fn is_plain_entry(fields: &[FieldRow]) -> bool {
    fields.iter().all(|field| !field.label.is_list())
        && fields.first().is_some_and(|key| key.kind != Kind::Message)
}

/// Has each type know what holds for those below it.
fn spread_marks(table: &Table, types: &mut [TypePlan]) {
    const REQUIRED: u8 = 1;
    const MAPS: u8 = 2;
    const UNSUPPORTED: u8 = 4;
    let mark = |t: &TypePlan| {
        u8::from(t.reaches_required) * REQUIRED
            + u8::from(t.reaches_maps) * MAPS
            + u8::from(t.unsupported) * UNSUPPORTED
    };
    let mut marks: Vec<u8> = types.iter().map(mark).collect();
    spread(table, &mut marks);
    for (t, mark) in types.iter_mut().zip(marks) {
        t.reaches_required = mark & REQUIRED != 0;
        t.reaches_maps = mark & MAPS != 0;
        t.unsupported = mark & UNSUPPORTED != 0;
    }
}

/// Hands what holds for a type, a bit of `marks` each, on to every type that contains it. A type is looked at again only when a
/// bit has come to it, so the work is linear in the table, however long its chains of types are.
pub(crate) fn spread(table: &Table, marks: &mut [u8]) {
    // The types that contain each, one behind the other: those of type `idx` lie from `starts[idx]` to the next one's start.
    let targets = |idx: usize| {
        let messages = table.fields_of(idx as u32).iter().filter(|field| field.kind == Kind::Message);
        messages.map(|field| field.aux_idx as usize)
    };
    let mut starts = vec![0u32; marks.len() + 1];
    (0..marks.len()).flat_map(targets).for_each(|target| starts[target + 1] += 1);
    for idx in 1..starts.len() {
        starts[idx] += starts[idx - 1];
    }
    let mut next = starts.clone();
    let mut containing = vec![0u32; starts[marks.len()] as usize];
    for idx in 0..marks.len() {
        for target in targets(idx) {
            containing[next[target] as usize] = idx as u32;
            next[target] += 1;
        }
    }
    let mut waiting: Vec<usize> = (0..marks.len()).filter(|idx| marks[*idx] != 0).collect();
    while let Some(idx) = waiting.pop() {
        for outer in &containing[starts[idx] as usize..starts[idx + 1] as usize] {
            steps::take(1);
            let outer = *outer as usize;
            if marks[idx] & !marks[outer] != 0 {
                marks[outer] |= marks[idx];
                waiting.push(outer);
            }
        }
    }
}

/// Wire types of protobuf.
const VARINT: usize = 0;
const FIXED64: usize = 1;
const LEN: usize = 2;
const START_GROUP: usize = 3;
const FIXED32: usize = 5;

/// Operation and wire type of one value.
fn shape(field: &FieldRow) -> (u8, usize) {
    match field.kind {
        Kind::Int64 | Kind::Uint64 => (op::VARINT64, VARINT),
        // Thrift's narrow integers have no protobuf form of their own; nothing on the wire matches them.
        Kind::I8 | Kind::I16 => (op::UNKNOWN, VARINT),
        Kind::Int32 | Kind::Uint32 => (op::VARINT32, VARINT),
        Kind::Enum if field.has(FieldRow::CLOSED) => (op::CLOSED, VARINT),
        Kind::Enum => (op::VARINT32, VARINT),
        Kind::Sint64 => (op::SINT64, VARINT),
        Kind::Sint32 => (op::SINT32, VARINT),
        Kind::Bool => (op::BOOL, VARINT),
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => (op::FIXED64, FIXED64),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => (op::FIXED32, FIXED32),
        Kind::String if field.has(FieldRow::UTF8) => (op::STRING, LEN),
        Kind::String | Kind::Bytes => (op::BYTES, LEN),
        Kind::Message if field.has(FieldRow::DELIMITED) => (op::GROUP, START_GROUP),
        Kind::Message => (op::MESSAGE, LEN),
    }
}

fn field_plan(table: &Table, field: &FieldRow, bit: u32) -> FieldPlan {
    let (shape, wire_type) = shape(field);
    let mut ops = [op::UNKNOWN; 8];
    let mut encode = match field.kind {
        Kind::Int32 | Kind::Enum => op::INT32,
        _ => shape,
    };
    let mut tag_type = wire_type;
    match field.label {
        _ if shape == op::UNKNOWN || field.number == 0 => {}
        Label::Map => {
            ops[LEN] = op::MAP;
            encode += op::LIST;
        }
        Label::List => {
            ops[wire_type] = op::LIST + shape;
            encode += op::LIST;
            if field.kind.is_scalar() {
                ops[LEN] = op::PACKED + shape;
            }
            if field.has(FieldRow::PACKED) {
                encode += op::PACKED - op::LIST;
                tag_type = LEN;
            }
        }
        _ if field.oneof_off != 0 => ops[wire_type] = op::ONEOF | shape,
        _ => ops[wire_type] = shape,
    }
    let (tag, tag_len) = tag_bytes(field.number, tag_type);
    let is_message = field.kind == Kind::Message;
    let closed_map = field.label == Label::Map
        && table.fields_of(field.aux_idx).iter().any(|part| part.number == 2 && part.has(FieldRow::CLOSED));
    FieldPlan {
        ops,
        tag,
        slot_off: field.slot_off,
        aux_idx: field.aux_idx,
        presence_off: PRESENCE_OFF + 4 * (bit / 32),
        presence_bit: 1 << (bit % 32),
        elem_len: if is_message {
            table.types()[field.aux_idx as usize].record_len
        } else {
            value_len(field.kind)
        },
        number: field.number,
        oneof_off: field.oneof_off,
        tag_len,
        encode,
        implicit: field.label == Label::Implicit,
        closed_map,
        kind: field.kind,
        label: field.label,
        single: (!field.label.is_list()).then_some(field.kind),
    }
}

fn word_checks(t: &TypePlan, fields: &[FieldPlan], required: &[u32]) -> impl Iterator<Item = WordCheck> {
    let required =
        if t.finish & finish::REQUIRED == 0 { &[] } else { &required[t.first_required as usize..] };
    let own = &fields[t.first_field as usize..(t.first_field + t.field_count) as usize];
    (0..t.presence_words).map(|word_idx| {
        let required = required.get(word_idx as usize).copied().unwrap_or_default();
        let mut check = WordCheck { fields: 0, texts: 0, spans: 0, pieces: 0, required, members: 0 };
        for (bit, field) in own.iter().skip((word_idx * PRESENCE_BITS) as usize).take(32).enumerate() {
            check.fields |= 1 << bit;
            if field.oneof_off != 0 {
                check.members |= 1 << bit;
            }
            match field.single {
                Some(Kind::String) if field.is_text() => check.texts |= 1 << bit,
                Some(Kind::String | Kind::Bytes) => check.spans |= 1 << bit,
                Some(Kind::Message) | None => check.pieces |= 1 << bit,
                Some(_) => {}
            }
        }
        check
    })
}

/// The bytes of a tag, and how many there are (up to five).
pub(crate) fn tag_bytes(number: u32, wire_type: usize) -> (u64, u8) {
    let mut rest = u64::from(number) << 3 | wire_type as u64;
    let (mut tag, mut len) = (0, 0u8);
    loop {
        let more = rest >= 0x80;
        tag |= (rest & 0x7f | u64::from(more) << 7) << (8 * len);
        rest >>= 7;
        len += 1;
        if !more {
            return (tag, len);
        }
    }
}

fn enum_plan(table: &Table, enum_idx: u32, bits: &mut Vec<u64>) -> EnumPlan {
    let values = table.values_of(enum_idx);
    let low = values.first().map_or(0, |first| first.number);
    let far = values.last().map_or(0, |last| last.number.wrapping_sub(low) as u32);
    let worth = 1024 + 64 * values.len() as u32;
    let bit_count = far.min(worth) + 1;
    let first_word = bits.len();
    bits.resize(first_word + bit_count.div_ceil(64) as usize, 0);
    for value in values {
        let bit = value.number.wrapping_sub(low) as u32;
        if bit < bit_count {
            bits[first_word + bit as usize / 64] |= 1 << (bit % 64);
        }
    }
    EnumPlan { low, bit_count, first_word: first_word as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_written_as_varints() {
        assert_eq!(tag_bytes(1, 0), (0x08, 1));
        assert_eq!(tag_bytes(16, 2), (0x0182, 2));
        assert_eq!(tag_bytes((1 << 29) - 1, 5), (0x0f_ffff_fffd, 5));
    }
}
