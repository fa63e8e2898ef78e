//! One record of a builder.

use super::list::EditList;
use super::{Build, BuildError};
use crate::plan::{FieldPlan, Plan};
use crate::processor::DEEPEST;
use crate::view::{Field, FieldType, Record, Value};
use tollfree_layout::flat::slot_len;
use tollfree_layout::table::Kind;

/// A record that is being filled. Fields are named by their place among their type's, as for [`Record::get`], or by a
/// [`Field`] that was looked up.
pub struct Edit<'d> {
    pub(super) plan: &'d Plan,
    pub(super) build: &'d mut Build,
    pub(super) rec: u32,
    pub(super) type_idx: u32,
    /// Levels above it.
    pub(super) depth: u32,
}

impl std::fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(f)
    }
}

/// Where a field of a record lies, and what setting it takes: of a field that was looked up, or constants of a compiled type.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    pub(crate) slot_off: u32,
    pub(crate) presence_off: u32,
    pub(crate) presence_bit: u32,
    pub(crate) oneof_off: u32,
    pub(crate) number: u32,
    pub(crate) field_idx: u32,
    /// Zero, or an empty string, is its absence.
    pub(crate) implicit: bool,
}

impl Spot {
    #[inline(always)]
    fn of(field_idx: u32, field: &FieldPlan) -> Spot {
        Spot {
            slot_off: field.slot_off,
            presence_off: field.presence_off,
            presence_bit: field.presence_bit,
            oneof_off: field.oneof_off,
            number: field.number,
            field_idx,
            implicit: field.implicit,
        }
    }
}

/// Puts these bytes into a field's slot, and makes it present.
#[inline(always)]
fn fill<const N: usize>(record: &mut [u8], spot: Spot, bytes: [u8; N]) {
    record[spot.slot_off as usize..][..N].copy_from_slice(&bytes);
    mark(record, spot);
}

#[inline(always)]
fn mark(record: &mut [u8], spot: Spot) {
    // There is a word in each record; another place would leave the field absent.
    if let Some(word) = record[spot.presence_off as usize..].first_chunk_mut() {
        *word = (u32::from_le_bytes(*word) | spot.presence_bit).to_le_bytes();
    }
}

/// A scalar's bytes, as its slot holds them; none for a value of another kind.
#[inline(always)]
pub(super) fn scalar(kind: Kind, value: Value<'_>) -> Option<u64> {
    Some(match (kind, value) {
        (Kind::Bool, Value::Bool(value)) => value.into(),
        (Kind::I8, Value::I8(value)) => u64::from(value as u8),
        (Kind::I16, Value::I16(value)) => u64::from(value as u16),
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum, Value::I32(value))
        | (Kind::Enum, Value::Enum(value)) => u64::from(value as u32),
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, Value::I64(value)) => value as u64,
        (Kind::Uint32 | Kind::Fixed32, Value::U32(value)) => value.into(),
        (Kind::Uint64 | Kind::Fixed64, Value::U64(value)) => value,
        (Kind::Float, Value::F32(value)) => value.to_bits().into(),
        (Kind::Double, Value::F64(value)) => value.to_bits(),
        _ => return None,
    })
}

/// A string's bytes; none for a value of another kind.
#[inline(always)]
pub(super) fn string(kind: Kind, value: Value<'_>) -> Option<&[u8]> {
    match (kind, value) {
        (Kind::String, Value::String(text)) => Some(text.as_bytes()),
        (Kind::Bytes, Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

fn name(value: Value<'_>) -> &'static str {
    match value {
        Value::Bool(_) => "a bool",
        Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_) => "a signed number",
        Value::U32(_) | Value::U64(_) => "an unsigned number",
        Value::F32(_) | Value::F64(_) => "a floating point number",
        Value::Enum(_) => "an enum's number",
        Value::String(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::Message(_) => "a message",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    }
}

#[cold]
pub(super) fn wrong_kind(plan: &Plan, type_idx: u32, field: &FieldPlan, value: Value<'_>) -> BuildError {
    wrong(plan, type_idx, field, name(value))
}

#[cold]
pub(super) fn wrong(plan: &Plan, type_idx: u32, field: &FieldPlan, value: &'static str) -> BuildError {
    BuildError::Kind { path: path(plan, type_idx, field), kind: field.kind, label: field.label, value }
}

/// `Type.field`.
#[cold]
pub(super) fn path(plan: &Plan, type_idx: u32, field: &FieldPlan) -> String {
    let idx = plan.field_idx(type_idx, field.number).unwrap_or(0);
    let step = crate::fault::Step { type_idx, field_idx: idx, element_idx: None };
    crate::fault::path(plan, type_idx, &[step])
}

/// Whether the schema wants other bytes than these.
#[inline(always)]
pub(super) fn is_unconvertible(field: &FieldPlan, bytes: &[u8]) -> bool {
    field.is_text() && !crate::utf8::is_text(bytes, 0, bytes.len())
}

impl<'d> Edit<'d> {
    /// What is there by now.
    #[must_use]
    pub fn view(&self) -> Record<'_> {
        Record { plan: self.plan, bytes: self.build.bytes(), off: self.rec, type_idx: self.type_idx }
    }

    /// A shorter loan of the same record.
    #[must_use]
    #[inline]
    pub fn reborrow(&mut self) -> Edit<'_> {
        Edit { build: &mut *self.build, ..*self }
    }

    #[inline]
    fn field(&self, field_idx: u32) -> Result<&'d FieldPlan, BuildError> {
        match self.plan.fields_of(self.type_idx).get(field_idx as usize) {
            Some(field) => Ok(field),
            None => Err(self.unknown(field_idx)),
        }
    }

    #[cold]
    fn unknown(&self, field_idx: u32) -> BuildError {
        let type_name = crate::fault::path(self.plan, self.type_idx, &[]);
        BuildError::UnknownField { type_name, field_idx }
    }

    #[inline(always)]
    fn has(&self, spot: Spot) -> bool {
        self.build.word(self.rec + spot.presence_off) & spot.presence_bit != 0
    }

    /// Sets a field in place of what it holds: a scalar, string or bytes as they are; of a message, list or map a copy, all
    /// below included, which has to be of this processor. A member of a oneof takes the place of any other; zero, or an empty
    /// string or list, clears a field without presence of its own.
    ///
    /// # Errors
    /// [`BuildError`]; the field holds what it did.
    pub fn set(&mut self, field_idx: u32, value: Value<'_>) -> Result<(), BuildError> {
        let field = self.field(field_idx)?;
        self.put(field_idx, field, value)
    }

    /// As [`Edit::set`], for a field that was looked up.
    ///
    /// # Errors
    /// As [`Edit::set`].
    ///
    /// # Panics
    /// As [`Record::read`]: if the field is one of another type.
    #[inline]
    pub fn write<T: FieldType>(&mut self, field: &Field<T>, value: T::Value<'_>) -> Result<(), BuildError> {
        let field_idx = self.known(field);
        let plan = &self.plan.fields_of(self.type_idx)[field_idx as usize];
        self.put(field_idx, plan, T::value(value))
    }

    /// The place of a field that was looked up.
    #[inline]
    fn known<T: FieldType>(&self, field: &Field<T>) -> u32 {
        field.place_in(self.plan, self.type_idx)
    }

    #[inline(always)]
    fn put(&mut self, field_idx: u32, field: &FieldPlan, value: Value<'_>) -> Result<(), BuildError> {
        match field.single {
            Some(Kind::Message) | None => self.put_piece(field_idx, field, value),
            Some(kind @ (Kind::String | Kind::Bytes)) => match string(kind, value) {
                Some(bytes) if is_unconvertible(field, bytes) => {
                    Err(BuildError::Utf8 { path: path(self.plan, self.type_idx, field) })
                }
                Some(bytes) => self.put_string(Spot::of(field_idx, field), bytes),
                None => Err(wrong_kind(self.plan, self.type_idx, field, value)),
            },
            Some(kind) => match scalar(kind, value) {
                Some(bits) => {
                    self.put_bits(Spot::of(field_idx, field), kind, bits);
                    Ok(())
                }
                None => Err(wrong_kind(self.plan, self.type_idx, field, value)),
            },
        }
    }

    #[inline(always)]
    fn put_bits(&mut self, spot: Spot, kind: Kind, bits: u64) {
        let bytes = bits.to_le_bytes();
        match (slot_len(kind, false), bytes) {
            (1, [one, ..]) => self.put_scalar(spot, [one]),
            (2, [one, two, ..]) => self.put_scalar(spot, [one, two]),
            (4, [one, two, three, four, ..]) => self.put_scalar(spot, [one, two, three, four]),
            _ => self.put_scalar(spot, bytes),
        }
    }

    /// Sets a scalar, whose slot is as long as these bytes.
    #[inline(always)]
    pub(crate) fn put_scalar<const N: usize>(&mut self, spot: Spot, bytes: [u8; N]) {
        if spot.implicit && bytes == [0; N] {
            return self.clear_present(spot);
        }
        self.choose(spot);
        fill(self.build.record(self.rec), spot, bytes);
    }

    /// Sets a string or bytes: they are UTF-8 where the schema asks for that.
    #[inline(always)]
    pub(crate) fn put_string(&mut self, spot: Spot, bytes: &[u8]) -> Result<(), BuildError> {
        if spot.implicit && bytes.is_empty() {
            self.clear_present(spot);
            return Ok(());
        }
        let (off, len) = self.build.take_bytes(bytes)?;
        self.clear_present(spot);
        self.choose(spot);
        let span = u64::from(off) | u64::from(len) << 32;
        fill(self.build.record(self.rec), spot, span.to_le_bytes());
        Ok(())
    }

    fn put_piece(&mut self, field_idx: u32, field: &FieldPlan, value: Value<'_>) -> Result<(), BuildError> {
        let made = match (field.single, value) {
            (Some(_), Value::Message(record)) => {
                self.owns(record, field)?;
                let below = self.deeper(field_idx)?;
                Some(self.build.copied(self.plan, record, below)?)
            }
            (None, Value::List(list) | Value::Map(list)) => {
                let below = self.depth + u32::from(field.kind == Kind::Message);
                self.build.copied_list(self.plan, self.type_idx, field, list, below)?
            }
            _ => return Err(wrong_kind(self.plan, self.type_idx, field, value)),
        };
        let spot = Spot::of(field_idx, field);
        self.clear_present(spot);
        if let Some(made) = made {
            self.link(spot, made);
        }
        Ok(())
    }

    /// Whether the record is one of this field's type.
    fn owns(&self, record: Record<'_>, field: &FieldPlan) -> Result<(), BuildError> {
        if std::ptr::eq(record.plan, self.plan) && record.type_idx == field.aux_idx {
            return Ok(());
        }
        let found = record.type_name().to_owned();
        Err(BuildError::Foreign { path: path(self.plan, self.type_idx, field), found })
    }

    /// The levels above a message in this field.
    fn deeper(&self, field_idx: u32) -> Result<u32, BuildError> {
        if self.depth >= DEEPEST {
            return Err(self.too_deep(field_idx));
        }
        Ok(self.depth + 1)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn too_deep(&self, field_idx: u32) -> BuildError {
        let field = &self.plan.fields_of(self.type_idx)[field_idx as usize];
        BuildError::Depth { path: path(self.plan, self.type_idx, field), limit: DEEPEST }
    }

    /// Gives a field that is absent the empty value of its kind; a list or map has none.
    pub(super) fn set_empty(&mut self, field_idx: u32) -> Result<(), BuildError> {
        let field = self.field(field_idx)?;
        match field.single {
            Some(Kind::Message) => self.message(field_idx).map(|_| ()),
            Some(_) => {
                mark(self.build.record(self.rec), Spot::of(field_idx, field));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Has the field, which is absent, lead to a record or block.
    #[inline(always)]
    pub(super) fn link(&mut self, spot: Spot, at: u32) {
        self.choose(spot);
        fill(self.build.record(self.rec), spot, at.to_le_bytes());
    }

    /// Makes the field the member of its oneof that is set.
    #[inline(always)]
    fn choose(&mut self, spot: Spot) {
        if spot.oneof_off == 0 {
            return;
        }
        let tag = self.rec + spot.oneof_off;
        let old = self.build.word(tag);
        if old != 0
            && old != spot.number
            && let Some(other) = self.plan.field_idx(self.type_idx, old)
        {
            self.clear_present(Spot::of(other, &self.plan.fields_of(self.type_idx)[other as usize]));
        }
        self.build.set_word(tag, spot.number);
    }

    #[inline(always)]
    fn clear_present(&mut self, spot: Spot) {
        if self.has(spot) {
            self.erase(spot.field_idx);
        }
    }

    #[inline(never)]
    fn erase(&mut self, field_idx: u32) {
        self.build.erase(self.plan, self.rec, self.type_idx, field_idx);
        self.unlink(&self.plan.fields_of(self.type_idx)[field_idx as usize]);
    }

    /// Makes a field absent that leads to nothing any more.
    pub(super) fn unlink(&mut self, field: &FieldPlan) {
        let len = slot_len(field.kind, field.label.is_list()) as usize;
        self.build.part(self.rec + field.slot_off, len).fill(0);
        let at = self.rec + field.presence_off;
        let word = self.build.word(at) & !field.presence_bit;
        self.build.set_word(at, word);
        if field.oneof_off != 0 {
            self.build.set_word(self.rec + field.oneof_off, 0);
        }
    }

    /// Makes a field absent.
    ///
    /// # Errors
    /// [`BuildError::UnknownField`].
    pub fn clear(&mut self, field_idx: u32) -> Result<(), BuildError> {
        let field = self.field(field_idx)?;
        self.clear_present(Spot::of(field_idx, field));
        Ok(())
    }

    /// The message in a field: what is there, or an empty one that is put there.
    ///
    /// # Errors
    /// [`BuildError`]; the field holds what it did.
    #[inline]
    pub fn message(&mut self, field_idx: u32) -> Result<Edit<'_>, BuildError> {
        self.reborrow().into_message(field_idx)
    }

    /// As [`Edit::message`], for as long as this record was lent.
    ///
    /// # Errors
    /// As [`Edit::message`].
    pub fn into_message(self, field_idx: u32) -> Result<Edit<'d>, BuildError> {
        let field = self.field(field_idx)?;
        if field.single != Some(Kind::Message) {
            return Err(wrong(self.plan, self.type_idx, field, "a message"));
        }
        self.message_at(Spot::of(field_idx, field), field.aux_idx, field.elem_len)
    }

    /// The message in a field that holds a message of this type, whose records are so long.
    #[inline(always)]
    pub(crate) fn message_at(
        mut self,
        spot: Spot,
        type_idx: u32,
        record_len: u32,
    ) -> Result<Edit<'d>, BuildError> {
        if self.depth >= DEEPEST {
            return Err(self.too_deep(spot.field_idx));
        }
        if !self.has(spot) {
            let child = self.build.take(record_len.into())?;
            self.link(spot, child);
        }
        let rec = self.build.word(self.rec + spot.slot_off);
        Ok(Edit { plan: self.plan, build: self.build, rec, type_idx, depth: self.depth + 1 })
    }

    /// As [`Edit::message`], for a field that was looked up.
    ///
    /// # Errors
    /// As [`Edit::message`].
    ///
    /// # Panics
    /// As [`Record::read`]: if the field is one of another type.
    #[inline]
    pub fn message_of(&mut self, field: &Field<Record<'static>>) -> Result<Edit<'_>, BuildError> {
        self.message(self.known(field))
    }

    /// The list or map in a field, to be added to; it is there once it has an element.
    ///
    /// # Errors
    /// [`BuildError`].
    #[inline]
    pub fn list(&mut self, field_idx: u32) -> Result<EditList<'_>, BuildError> {
        let field = self.field(field_idx)?;
        if field.single.is_some() {
            return Err(wrong(self.plan, self.type_idx, field, "a list"));
        }
        let spot = Spot::of(field_idx, field);
        let block = if self.has(spot) { self.build.word(self.rec + spot.slot_off) } else { 0 };
        Ok(EditList { spot, field, record: self.reborrow(), block })
    }

    /// As [`Edit::list`], for a field that was looked up.
    ///
    /// # Errors
    /// As [`Edit::list`].
    ///
    /// # Panics
    /// As [`Record::read`]: if the field is one of another type.
    #[inline]
    pub fn list_of(&mut self, field: &Field<crate::List<'static>>) -> Result<EditList<'_>, BuildError> {
        self.list(self.known(field))
    }

    /// Puts a copy of the record in place of what this one holds, all below and unknown fields included. It has to be of the
    /// same processor and type.
    ///
    /// # Errors
    /// [`BuildError`]; this one holds what it did.
    pub fn copy_from(&mut self, record: Record<'_>) -> Result<(), BuildError> {
        if !std::ptr::eq(record.plan, self.plan) || record.type_idx != self.type_idx {
            let path = crate::fault::path(self.plan, self.type_idx, &[]);
            return Err(BuildError::Foreign { path, found: record.type_name().to_owned() });
        }
        let made = self.build.copied(self.plan, record, self.depth)? as usize;
        self.build.erase_record(self.plan, self.rec, self.type_idx);
        let len = self.plan.types[self.type_idx as usize].record_len as usize;
        self.build.slot.bytes_mut().copy_within(made..made + len, self.rec as usize);
        self.build.part(made as u32, len).fill(0);
        Ok(())
    }
}
