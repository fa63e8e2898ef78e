//! From a schema to its table: each record's layout, then the rows, then the blob.
//!
//! The layout rule of `spec/flat.md`: after the presence words come the tag words of the oneofs, then slots
//! of four-byte alignment, then of eight, two and one, within each by ascending field number; the members of
//! a oneof share one place, in the class of its widest alignment and at the place of its first member.

use crate::SchemaError;
use crate::schema::{Enum, Field, Message, Role, Schema};
use std::collections::HashMap;
use tollfree_layout::flat::{ALIGN, PRESENCE_OFF, presence_words, slot_align, slot_len};
use tollfree_layout::table::{
    EnumRow, FieldRow, Fingerprint, Kind, MAX_FIELD_COUNT, MAX_RECORD_LEN, NO_AUX, Table, TableHeader, Text,
    TypeRow, ValueRow,
};

/// The text section while it grows; equal texts are stored once.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, Text>,
}

impl Texts {
    fn add(&mut self, bytes: &[u8]) -> Result<Text, SchemaError> {
        if let Some(text) = self.known.get(bytes) {
            return Ok(*text);
        }
        let too_large = |_| SchemaError::TooLarge {
            name: "text".into(),
            problem: "names and defaults pass 4 GiB".into(),
        };
        let off = u32::try_from(self.bytes.len()).map_err(too_large)?;
        let len = u32::try_from(bytes.len()).map_err(too_large)?;
        self.bytes.extend_from_slice(bytes);
        self.known.insert(bytes.to_vec(), Text { off, len });
        Ok(Text { off, len })
    }
}

pub(crate) fn compile(schema: &Schema) -> Result<Table, SchemaError> {
    let mut texts = Texts::default();
    let (mut types, mut fields) = (Vec::new(), Vec::new());
    for message in &schema.messages {
        let first_field = fields.len() as u32;
        let (record_len, rows) = message_rows(schema, message, &mut texts)?;
        let name = texts.add(message.name.as_bytes())?;
        let field_count = rows.len() as u32;
        fields.extend(rows);
        types.push(TypeRow { name, first_field, field_count, record_len, flags: role_flags(message.role) });
    }
    let (mut enums, mut values) = (Vec::new(), Vec::new());
    for item in &schema.enums {
        let first_value = values.len() as u32;
        values.extend(value_rows(item, &mut texts)?);
        let value_count = values.len() as u32 - first_value;
        let flags = if item.closed { EnumRow::CLOSED } else { 0 };
        enums.push(EnumRow { name: texts.add(item.name.as_bytes())?, first_value, value_count, flags });
    }
    let header = TableHeader {
        type_count: types.len() as u32,
        field_count: fields.len() as u32,
        enum_count: enums.len() as u32,
        value_count: values.len() as u32,
        text_len: texts.bytes.len() as u32,
        fingerprint: 0,
    };
    let mut blob = header.to_bytes().to_vec();
    types.iter().for_each(|row| blob.extend(row.to_bytes()));
    fields.iter().for_each(|row: &FieldRow| blob.extend(row.to_bytes()));
    enums.iter().for_each(|row| blob.extend(row.to_bytes()));
    values.iter().for_each(|row: &ValueRow| blob.extend(row.to_bytes()));
    blob.extend(texts.bytes);
    let fingerprint = Fingerprint::of_blob(&blob);
    blob[56..64].copy_from_slice(&fingerprint.to_le_bytes());
    Ok(Table::load(&blob)?)
}

fn role_flags(role: Role) -> u32 {
    match role {
        Role::Plain => 0,
        Role::MapEntry => TypeRow::MAP_ENTRY,
        Role::Box => TypeRow::BOX,
        Role::Union => TypeRow::UNION,
        Role::Exception => TypeRow::EXCEPTION,
    }
}

fn value_rows(item: &Enum, texts: &mut Texts) -> Result<Vec<ValueRow>, SchemaError> {
    let mut rows = Vec::with_capacity(item.values.len());
    for value in &item.values {
        rows.push(ValueRow { number: value.number, name: texts.add(value.name.as_bytes())? });
    }
    // Stable: of several names for a number, the schema's first one stays first.
    rows.sort_by_key(|row| row.number);
    Ok(rows)
}

/// A record's length and where each slot and oneof tag lies; `fields` are in ascending order.
struct Layout {
    record_len: u32,
    slot_offs: Vec<u32>,
    oneof_offs: Vec<u32>,
}

fn lay_out(message: &Message, fields: &[&Field]) -> Result<Layout, SchemaError> {
    let too_large = |problem: String| SchemaError::TooLarge { name: message.name.clone(), problem };
    let field_count = u32::try_from(fields.len()).ok().filter(|count| *count <= MAX_FIELD_COUNT);
    let field_count =
        field_count.ok_or_else(|| too_large(format!("it has more than {MAX_FIELD_COUNT} fields")))?;
    let mut at = PRESENCE_OFF + 4 * presence_words(field_count);
    let oneof_offs: Vec<u32> = (0..message.oneofs.len() as u32).map(|idx| at + 4 * idx).collect();
    at += 4 * message.oneofs.len() as u32;
    let size = |field: &Field| {
        (slot_align(field.kind, field.label.is_list()), slot_len(field.kind, field.label.is_list()))
    };
    // What is placed: (alignment, length, members), in order of the first member's number.
    let mut places: Vec<(u32, u32, Vec<usize>)> = Vec::new();
    let mut of_oneof: HashMap<usize, usize> = HashMap::new();
    for (idx, field) in fields.iter().enumerate() {
        let (align, len) = size(field);
        let shared = field.oneof_idx.and_then(|oneof| of_oneof.get(&oneof).copied());
        if let Some(place) = shared.and_then(|place| places.get_mut(place)) {
            *place = (place.0.max(align), place.1.max(len), std::mem::take(&mut place.2));
            place.2.push(idx);
            continue;
        }
        if let Some(oneof) = field.oneof_idx {
            of_oneof.insert(oneof, places.len());
        }
        places.push((align, len, vec![idx]));
    }
    let mut slot_offs = vec![0; fields.len()];
    for class in [4, 8, 2, 1] {
        for (_, len, members) in places.iter().filter(|place| place.0 == class) {
            at = at.next_multiple_of(class);
            members.iter().for_each(|member| slot_offs[*member] = at);
            at += len;
        }
    }
    let record_len = at.next_multiple_of(ALIGN);
    if record_len > MAX_RECORD_LEN {
        return Err(too_large(format!(
            "its record would take {record_len} bytes, {MAX_RECORD_LEN} is the limit"
        )));
    }
    Ok(Layout { record_len, slot_offs, oneof_offs })
}

fn message_rows(
    schema: &Schema,
    message: &Message,
    texts: &mut Texts,
) -> Result<(u32, Vec<FieldRow>), SchemaError> {
    let mut fields: Vec<&Field> = message.fields.iter().collect();
    fields.sort_by_key(|field| field.number);
    if let Some(pair) = fields.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(SchemaError::Invalid {
            name: format!("{}.{}", message.name, pair[1].name),
            problem: format!("{} has the number {}, too", pair[0].name, pair[0].number),
        });
    }
    let layout = lay_out(message, &fields)?;
    let mut rows = Vec::with_capacity(fields.len());
    for (field, slot_off) in fields.iter().zip(&layout.slot_offs) {
        let invalid = |problem: &str| SchemaError::Invalid {
            name: format!("{}.{}", message.name, field.name),
            problem: problem.to_owned(),
        };
        let names =
            !matches!(field.kind, Kind::Message | Kind::Bytes | Kind::Bool | Kind::Float | Kind::Double);
        if field.function && (field.label.is_list() || !names) {
            return Err(invalid("a function is named by one integer, enum or string"));
        }
        let aux_idx = match (field.kind, field.target_idx) {
            (Kind::Message | Kind::Enum, Some(idx)) => idx as u32,
            (Kind::Message | Kind::Enum, None) => return Err(invalid("its type is missing")),
            _ => NO_AUX,
        };
        let oneof_off = match field.oneof_idx {
            None => 0,
            Some(idx) => *layout.oneof_offs.get(idx).ok_or_else(|| invalid("its oneof does not exist"))?,
        };
        rows.push(FieldRow {
            number: field.number,
            kind: field.kind,
            label: field.label,
            flags: flags(schema, field),
            slot_off: *slot_off,
            aux_idx,
            oneof_off,
            default_bits: default_bits(schema, field, texts)?
                .ok_or_else(|| invalid("its default is malformed"))?,
            name: texts.add(field.name.as_bytes())?,
            json_name: texts.add(field.json_name.as_bytes())?,
        });
    }
    Ok((layout.record_len, rows))
}

fn flags(schema: &Schema, field: &Field) -> u16 {
    let closed = field.kind == Kind::Enum
        && field.target_idx.and_then(|idx| schema.enums.get(idx)).is_some_and(|item| item.closed);
    [
        (field.packed, FieldRow::PACKED),
        (field.utf8, FieldRow::UTF8),
        (closed, FieldRow::CLOSED),
        (field.delimited, FieldRow::DELIMITED),
        (field.function, FieldRow::FUNCTION),
        (field.set, FieldRow::SET),
        (field.sent, FieldRow::SENT),
        (field.default.is_some(), FieldRow::DEFAULT),
    ]
    .into_iter()
    .filter_map(|(on, flag)| on.then_some(flag))
    .sum()
}

/// The default as a row holds it; an enum without a stated one has its first value. None if it is malformed.
fn default_bits(schema: &Schema, field: &Field, texts: &mut Texts) -> Result<Option<u64>, SchemaError> {
    Ok(match (&field.default, field.kind) {
        (Some(bytes), Kind::String | Kind::Bytes) => {
            let text = texts.add(bytes)?;
            Some(u64::from(text.off) | u64::from(text.len) << 32)
        }
        (Some(bytes), _) => bytes.as_slice().try_into().ok().map(u64::from_le_bytes),
        (None, Kind::Enum) => {
            let first = field.target_idx.and_then(|idx| schema.enums.get(idx)?.values.first());
            Some(first.map_or(0, |value| i64::from(value.number) as u64))
        }
        (None, _) => Some(0),
    })
}
