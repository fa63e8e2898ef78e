//! What a table must fulfil before an engine may rely on it.

use super::{
    EnumRow, FieldRow, Kind, Label, Loaded, MAX_FIELD_COUNT, MAX_NUMBER, MAX_RECORD_LEN, NO_AUX, TableError,
    Text, TypeRow,
};
use crate::flat::{ALIGN, PRESENCE_OFF, presence_words, slot_align, slot_len};
use crate::steps;

type Rule = Result<(), &'static str>;

/// How often the bytes of the table may be referred to as names: what is looked through while loading is bounded by it.
const NAMES_PER_BYTE: u64 = 8;

/// The text section, and how many bytes of it rows may still refer to. Without such a bound many rows could refer to one
/// long text, and each check and each fingerprint would look through it as often.
struct Texts<'t> {
    section: &'t [u8],
    names_left: u64,
    defaults_left: u64,
}

impl<'t> Texts<'t> {
    fn new(t: &'t Loaded) -> Texts<'t> {
        let at = t.header.section_offsets()[4];
        let len = t.blob.len() as u64;
        Texts {
            section: t.blob.get(at..).unwrap_or(&[]),
            names_left: NAMES_PER_BYTE * len,
            defaults_left: len,
        }
    }

    fn range(&self, text: Text) -> Result<&'t [u8], &'static str> {
        let start = text.off as usize;
        let end = start.checked_add(text.len as usize).ok_or("a text's range overflows")?;
        self.section.get(start..end).ok_or("a text lies outside the text section")
    }

    fn name(&mut self, text: Text) -> Rule {
        let bytes = self.range(text)?;
        let left = self.names_left.checked_sub(bytes.len() as u64);
        self.names_left = left.ok_or("the names of all rows together are longer than 8 times the table")?;
        is_utf8(bytes)
    }

    fn default(&mut self, text: Text, utf8: bool) -> Rule {
        let bytes = self.range(text)?;
        let left = self.defaults_left.checked_sub(bytes.len() as u64);
        self.defaults_left = left.ok_or("the defaults of all fields together are longer than the table")?;
        if utf8 { is_utf8(bytes) } else { Ok(()) }
    }
}

fn is_utf8(bytes: &[u8]) -> Rule {
    steps::take_bytes(bytes.len());
    std::str::from_utf8(bytes).map_err(|_| "a name or a string's default is not UTF-8").map(|_| ())
}

pub(super) fn all(t: &Loaded) -> Result<(), TableError> {
    let mut texts = Texts::new(t);
    let mut next_field = 0;
    for (idx, row) in t.types.iter().enumerate() {
        let type_idx = idx as u32;
        type_row(t, &mut texts, row, &mut next_field).map_err(|rule| TableError::Type { type_idx, rule })?;
        let first = row.first_field as usize;
        let fields = &t.fields[first..first + row.field_count as usize];
        for (at, field) in fields.iter().enumerate() {
            let field_idx = (first + at) as u32;
            field_row(t, &mut texts, row, field).map_err(|rule| TableError::Field { field_idx, rule })?;
        }
        type_fields(row, fields).map_err(|rule| TableError::Type { type_idx, rule })?;
    }
    if next_field != t.fields.len() as u64 {
        return Err(TableError::Field { field_idx: next_field as u32, rule: "it belongs to no type" });
    }
    let mut next_value = 0;
    for (idx, row) in t.enums.iter().enumerate() {
        let enum_idx = idx as u32;
        enum_row(t, &mut texts, row, &mut next_value).map_err(|rule| TableError::Enum { enum_idx, rule })?;
    }
    if next_value != t.values.len() as u64 {
        return Err(TableError::Enum { enum_idx: t.enums.len() as u32, rule: "values belong to no enum" });
    }
    containers_end(t)
}

fn type_row(t: &Loaded, texts: &mut Texts<'_>, row: &TypeRow, next_field: &mut u64) -> Rule {
    texts.name(row.name)?;
    if u64::from(row.first_field) != *next_field {
        return Err("its fields do not follow those of the type before");
    }
    *next_field += u64::from(row.field_count);
    if *next_field > t.fields.len() as u64 {
        return Err("it has more fields than there are rows");
    }
    if row.field_count > MAX_FIELD_COUNT {
        return Err("it has too many fields");
    }
    if row.flags & !TypeRow::KNOWN_FLAGS != 0 {
        return Err("it has unknown flags");
    }
    if row.flags & TypeRow::MAP_ENTRY != 0 && row.flags & TypeRow::BOX != 0 {
        return Err("it is both a map entry and a box");
    }
    let head_len = PRESENCE_OFF + 4 * presence_words(row.field_count);
    if row.record_len < head_len || row.record_len > MAX_RECORD_LEN || !row.record_len.is_multiple_of(ALIGN) {
        return Err("its record's length is not a multiple of 8, too small or too large");
    }
    Ok(())
}

fn field_row(t: &Loaded, texts: &mut Texts<'_>, owner: &TypeRow, f: &FieldRow) -> Rule {
    steps::take(1);
    texts.name(f.name)?;
    texts.name(f.json_name)?;
    if f.number > MAX_NUMBER {
        return Err("its number is above 2^29 - 1");
    }
    if f.flags & !FieldRow::KNOWN_FLAGS != 0 {
        return Err("it has unknown flags");
    }
    if f.has(FieldRow::PACKED) && !(f.kind.is_scalar() && f.label == Label::List) {
        return Err("only lists of scalars are packed");
    }
    if f.has(FieldRow::UTF8) && f.kind != Kind::String {
        return Err("only strings are checked for UTF-8");
    }
    if f.has(FieldRow::DELIMITED) && (f.kind != Kind::Message || f.label == Label::Map) {
        return Err("only messages are delimited");
    }
    let names = !matches!(f.kind, Kind::Message | Kind::Bytes | Kind::Bool | Kind::Float | Kind::Double);
    if f.has(FieldRow::FUNCTION) && (f.label.is_list() || !names) {
        return Err("a function is named by one integer, enum or string");
    }
    if f.has(FieldRow::SET) && f.label != Label::List {
        return Err("only a list is a set");
    }
    if f.has(FieldRow::SENT) && !f.label.is_list() {
        return Err("what must be sent is a list or map, other fields are required");
    }
    if f.label == Label::Implicit && f.kind == Kind::Message {
        return Err("a message field has explicit presence");
    }
    aux(t, f)?;
    default(texts, f)?;
    let head_len = PRESENCE_OFF + 4 * presence_words(owner.field_count);
    let list = f.label.is_list();
    if !f.slot_off.is_multiple_of(slot_align(f.kind, list)) {
        return Err("its slot is not aligned");
    }
    if f.slot_off < head_len
        || u64::from(f.slot_off) + u64::from(slot_len(f.kind, list)) > owner.record_len.into()
    {
        return Err("its slot lies outside the record");
    }
    if f.oneof_off != 0 {
        if !matches!(f.label, Label::Explicit) {
            return Err("a member of a oneof has explicit presence");
        }
        if !f.oneof_off.is_multiple_of(4)
            || f.oneof_off < head_len
            || u64::from(f.oneof_off) + 4 > owner.record_len.into()
        {
            return Err("its oneof's tag lies outside the record");
        }
        if f.number == 0 {
            return Err("a member of a oneof has a number above 0");
        }
    }
    Ok(())
}

fn aux(t: &Loaded, f: &FieldRow) -> Rule {
    match f.kind {
        Kind::Message => {
            let Some(target) = t.types.get(f.aux_idx as usize) else {
                return Err("its message type does not exist");
            };
            if (target.flags & TypeRow::MAP_ENTRY != 0) != (f.label == Label::Map) {
                return Err("a map, and only a map, has entries");
            }
            if target.flags & TypeRow::BOX != 0 && f.label != Label::List {
                return Err("a box is an element of a list");
            }
        }
        Kind::Enum => {
            if f.aux_idx as usize >= t.enums.len() {
                return Err("its enum does not exist");
            }
        }
        _ => {
            if f.aux_idx != NO_AUX {
                return Err("a scalar or string has no type of its own");
            }
            if f.label == Label::Map {
                return Err("a map's elements are entries");
            }
        }
    }
    if f.has(FieldRow::CLOSED) && f.kind != Kind::Enum {
        return Err("only enums are closed");
    }
    Ok(())
}

fn default(texts: &mut Texts<'_>, f: &FieldRow) -> Rule {
    let stated = f.has(FieldRow::DEFAULT);
    if stated && (f.label.is_list() || f.kind == Kind::Message) {
        return Err("lists and messages have no default");
    }
    if !stated && f.kind != Kind::Enum && f.default_bits != 0 {
        return Err("its default is not stated");
    }
    match f.kind {
        Kind::String | Kind::Bytes => texts.default(f.default_text(), f.kind == Kind::String),
        _ => Ok(()),
    }
}

/// Rules over all fields of a type: order of numbers, shape of entries and boxes, slots apart.
fn type_fields(row: &TypeRow, fields: &[FieldRow]) -> Rule {
    if fields.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err("its fields are not in ascending order of their numbers");
    }
    let numbers: &[u32] = match row.flags & (TypeRow::MAP_ENTRY | TypeRow::BOX) {
        TypeRow::MAP_ENTRY => &[1, 2],
        TypeRow::BOX => &[1],
        _ => return slots_apart(fields),
    };
    if !fields.iter().map(|f| f.number).eq(numbers.iter().copied()) {
        return Err("a map entry has the fields 1 and 2, a box the field 1");
    }
    if fields
        .iter()
        .any(|f| !matches!(f.label, Label::Explicit | Label::List | Label::Map) || f.oneof_off != 0)
    {
        return Err("the fields of a map entry or box have explicit presence");
    }
    slots_apart(fields)
}

/// All lie behind the record's head, which each field's own rules say.
fn slots_apart(fields: &[FieldRow]) -> Rule {
    steps::take(fields.len());
    let slot = |f: &FieldRow| (f.slot_off, f.slot_off + slot_len(f.kind, f.label.is_list()), f.oneof_off);
    let mut taken: Vec<(u32, u32, u32)> = fields.iter().map(slot).collect();
    let mut tags: Vec<u32> = fields.iter().map(|f| f.oneof_off).filter(|off| *off != 0).collect();
    tags.sort_unstable();
    tags.dedup();
    taken.extend(tags.iter().map(|off| (*off, *off + 4, 0)));
    taken.sort_unstable();
    let (mut end, mut owner) = (0, 0);
    for (from, to, oneof) in taken {
        if from < end && (oneof == 0 || oneof != owner) {
            return Err("two of its slots overlap");
        }
        if to > end {
            (end, owner) = (to, oneof);
        }
    }
    Ok(())
}

fn enum_row(t: &Loaded, texts: &mut Texts<'_>, row: &EnumRow, next_value: &mut u64) -> Rule {
    texts.name(row.name)?;
    if row.flags & !EnumRow::CLOSED != 0 {
        return Err("it has unknown flags, or its reserved word is not zero");
    }
    if u64::from(row.first_value) != *next_value {
        return Err("its values do not follow those of the enum before");
    }
    let first = *next_value as usize;
    *next_value += u64::from(row.value_count);
    if *next_value > t.values.len() as u64 {
        return Err("it has more values than there are rows");
    }
    let values = &t.values[first..*next_value as usize];
    for value in values {
        texts.name(value.name)?;
    }
    if values.windows(2).any(|pair| pair[0].number > pair[1].number) {
        return Err("its values are not in ascending order of their numbers");
    }
    Ok(())
}

/// Map entries and boxes stand for containers in containers, which a schema nests finitely.
fn containers_end(t: &Loaded) -> Result<(), TableError> {
    const NEW: u8 = 0;
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    let synthetic = |idx: u32| t.types[idx as usize].flags & (TypeRow::MAP_ENTRY | TypeRow::BOX) != 0;
    let mut state = vec![NEW; t.types.len()];
    for start in (0..t.types.len() as u32).filter(|idx| synthetic(*idx)) {
        let mut stack = vec![start];
        while let Some(&idx) = stack.last() {
            steps::take(1);
            if state[idx as usize] != NEW {
                state[idx as usize] = DONE;
                stack.pop();
                continue;
            }
            state[idx as usize] = OPEN;
            let row = &t.types[idx as usize];
            for f in &t.fields[row.first_field as usize..(row.first_field + row.field_count) as usize] {
                if f.kind != Kind::Message || !synthetic(f.aux_idx) {
                    continue;
                }
                match state[f.aux_idx as usize] {
                    OPEN => {
                        return Err(TableError::Type { type_idx: idx, rule: "containers nest in a circle" });
                    }
                    NEW => stack.push(f.aux_idx),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
