//! Hot module: reading an object in place, by field, without checks.
//!
//! A [`Record`] leads only through a sound [`Object`], so offsets are followed as they stand. Which field is
//! read is checked (an index beyond the type's fields panics, as a slice's would), what lies there is not.

mod field;

pub use field::{Field, FieldError, FieldType};

use crate::object::Object;
use crate::plan::{FieldPlan, Plan};
use tollfree_layout::flat::{LIST_HEADER_LEN, PRESENCE_BITS, PRESENCE_OFF};
use tollfree_layout::table::{FieldRow, Kind, Label, TypeRow};

/// A string field's bytes. A schema may leave strings unchecked (proto2 does), so UTF-8 is not a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(&'a [u8]);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(text.as_bytes())
    }
}

impl<'a> Text<'a> {
    /// A string of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Text<'a> {
        Text(bytes)
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, if it is UTF-8.
    ///
    /// # Errors
    /// If it is not.
    pub fn to_str(self) -> Result<&'a str, std::str::Utf8Error> {
        std::str::from_utf8(self.0)
    }
}

/// A field's value, or an element's.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value<'a> {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    /// Any number, also one that an open enum does not list.
    Enum(i32),
    String(Text<'a>),
    Bytes(&'a [u8]),
    Message(Record<'a>),
    List(List<'a>),
    /// The entries: messages with the fields 1 (key) and 2 (value); of equal keys the last one counts.
    Map(List<'a>),
}

/// One record of an object.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub(crate) plan: &'a Plan,
    /// The object.
    pub(crate) bytes: &'a [u8],
    pub(crate) off: u32,
    pub(crate) type_idx: u32,
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = &self.plan.table;
        let mut out = f.debug_struct(table.text(table.types()[self.type_idx as usize].name));
        for (row, value) in self.fields() {
            out.field(table.text(row.name), &value);
        }
        out.finish()
    }
}

impl<'a> Object<'a> {
    /// The message itself.
    #[must_use]
    #[inline]
    pub fn root(&self) -> Record<'a> {
        Record { plan: self.plan, bytes: self.bytes, off: self.root_off, type_idx: self.type_idx }
    }
}

impl<'a> Record<'a> {
    /// Index of its type in the table.
    #[must_use]
    #[inline]
    pub fn type_idx(&self) -> u32 {
        self.type_idx
    }

    /// Its type in the table.
    #[must_use]
    pub fn type_row(&self) -> &'a TypeRow {
        &self.plan.table.types()[self.type_idx as usize]
    }

    /// Full name of its type.
    #[must_use]
    pub fn type_name(&self) -> &'a str {
        self.text(self.type_row().name)
    }

    /// A text of its table, such as a field's name.
    #[must_use]
    pub fn text(&self, text: tollfree_layout::table::Text) -> &'a str {
        self.plan.table.text(text)
    }

    /// The fields of its type; their places are what [`Record::get`] takes.
    #[must_use]
    #[inline]
    pub fn rows(&self) -> &'a [FieldRow] {
        self.plan.table.fields_of(self.type_idx)
    }

    #[inline(always)]
    fn field(&self, field_idx: u32) -> &'a FieldPlan {
        match self.plan.fields_of(self.type_idx).get(field_idx as usize) {
            Some(field) => field,
            None => panic!("the type has no field {field_idx}"),
        }
    }

    /// The value of a field that is present.
    #[inline(always)]
    fn value(&self, field: &'a FieldPlan) -> Value<'a> {
        let slot = Place { rec: self.off, off: field.slot_off };
        if let Some(value) = single(self.plan, self.bytes, slot, field.single, field, true) {
            return value;
        }
        let list = List { plan: self.plan, bytes: self.bytes, block: word(self.bytes, slot), field };
        if field.label == Label::Map { Value::Map(list) } else { Value::List(list) }
    }

    /// Whether the field at this place is present; for a list, whether it has elements.
    ///
    /// # Panics
    /// If the type has no such field.
    #[must_use]
    #[inline]
    pub fn has(&self, field_idx: u32) -> bool {
        let field = self.field(field_idx);
        word(self.bytes, Place { rec: self.off, off: field.presence_off }) & field.presence_bit != 0
    }

    /// The value of the field at this place; none if it is absent.
    ///
    /// # Panics
    /// If the type has no such field.
    #[must_use]
    #[inline]
    pub fn get(&self, field_idx: u32) -> Option<Value<'a>> {
        let field = self.field(field_idx);
        let place = Place { rec: self.off, off: field.presence_off };
        let present = word(self.bytes, place) & field.presence_bit != 0;
        present.then(|| self.value(field))
    }

    /// The value of the field with this number; none if it is absent, or the type has no such field.
    #[must_use]
    #[inline]
    pub fn by_number(&self, number: u32) -> Option<Value<'a>> {
        self.get(self.plan.field_idx(self.type_idx, number)?)
    }

    /// The value of the field with this name; none if it is absent, or the type has no such field.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Value<'a>> {
        let idx = self.rows().iter().position(|row| self.plan.table.text(row.name) == name)?;
        self.get(idx as u32)
    }

    /// The fields that are present, by ascending number.
    #[must_use]
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        // SAFETY: the type is one of the plan's, and its fields lie where the plan says (`Plan::new`); the assertion notices
        // in every test of views.
        let fields = unsafe {
            let t = self.plan.types.get_unchecked(self.type_idx as usize);
            debug_assert!((t.first_field + t.field_count) as usize <= self.plan.fields.len());
            let first = self.plan.fields.as_ptr().add(t.first_field as usize);
            std::slice::from_raw_parts(first, t.field_count as usize)
        };
        let bits = word(self.bytes, Place { rec: self.off, off: PRESENCE_OFF });
        Fields { record: *self, fields, bits, word_off: PRESENCE_OFF }
    }

    /// Slices of unknown fields, tags and all, in the order they came.
    pub fn unknown(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, block) = (self.bytes, word(self.bytes, Place::at(self.off)));
        let count = if block == 0 { 0 } else { word(bytes, Place::at(block)) };
        (0..count).map(move |idx| span(bytes, Place::at(block + LIST_HEADER_LEN + 8 * idx)))
    }
}

/// The present fields of a record; see [`Record::fields`].
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    record: Record<'a>,
    /// The fields from the one on that the current presence word's lowest bit stands for, and which bits are left.
    fields: &'a [FieldPlan],
    bits: u32,
    /// Where that word lies in the record.
    word_off: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a FieldRow, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.bits == 0 {
            self.fields = self.fields.get(PRESENCE_BITS as usize..).filter(|fields| !fields.is_empty())?;
            self.word_off += 4;
            self.bits = word(self.record.bytes, Place { rec: self.record.off, off: self.word_off });
        }
        let idx = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        // SAFETY: a sound record has no bits beyond its type's fields (enforced by decoder and verifier), which are elements
        // of the plan's; rows run parallel to them (`Plan::new`). The assertion notices in the mutation tests.
        let (field, row) = unsafe {
            let plan = self.record.plan;
            debug_assert!(idx < self.fields.len());
            let field = self.fields.get_unchecked(idx);
            let at = std::ptr::from_ref(field).offset_from(plan.fields.as_ptr()) as usize;
            (field, plan.table.fields().get_unchecked(at))
        };
        Some((row, self.record.value(field)))
    }
}

/// The elements of a list, set or map.
#[derive(Clone, Copy)]
pub struct List<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) bytes: &'a [u8],
    pub(crate) block: u32,
    pub(crate) field: &'a FieldPlan,
}

impl std::fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> List<'a> {
    /// How many elements there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        word(self.bytes, Place::at(self.block))
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `idx`.
    #[must_use]
    #[inline]
    pub fn get(&self, idx: u32) -> Option<Value<'a>> {
        if idx >= self.len() {
            return None;
        }
        let at = self.block + LIST_HEADER_LEN + idx * self.field.elem_len;
        single(self.plan, self.bytes, Place::at(at), Some(self.field.kind), self.field, false)
    }

    /// All elements.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let list = *self;
        (0..list.len()).filter_map(move |idx| list.get(idx))
    }
}

/// Where something lies: in a record, or (0) where `rec` says. (Apart, so that a loop adds only what changes.)
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub(crate) rec: u32,
    pub(crate) off: u32,
}

impl Place {
    #[inline(always)]
    fn at(rec: u32) -> Place {
        Place { rec, off: 0 }
    }
}

#[inline(always)]
pub(crate) fn load<const N: usize>(bytes: &[u8], at: Place) -> [u8; N] {
    debug_assert!(at.rec as usize + at.off as usize + N <= bytes.len());
    // SAFETY: the object is sound: slots, words and blocks that presence declares lie in it. Enforced by decoder
    // and verifier; the assertion above notices in the mutation tests.
    unsafe { bytes.as_ptr().add(at.rec as usize).add(at.off as usize).cast::<[u8; N]>().read() }
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: Place) -> u32 {
    u32::from_le_bytes(load(bytes, at))
}

#[inline(always)]
pub(crate) fn span(bytes: &[u8], at: Place) -> &[u8] {
    let span = u64::from_le_bytes(load(bytes, at));
    let (off, len) = (span as u32 as usize, (span >> 32) as usize);
    debug_assert!(off + len <= bytes.len());
    // SAFETY: as in `load`: the span of a sound object.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().add(off), len) }
}

/// The value of this kind at `at`: in a record a message's offset (`indirect`), in a list the record itself. None of no
/// kind.
#[inline(always)]
fn single<'a>(
    plan: &'a Plan,
    bytes: &'a [u8],
    at: Place,
    kind: Option<Kind>,
    field: &FieldPlan,
    indirect: bool,
) -> Option<Value<'a>> {
    Some(match kind? {
        Kind::Double => Value::F64(f64::from_le_bytes(load(bytes, at))),
        Kind::Float => Value::F32(f32::from_le_bytes(load(bytes, at))),
        Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 => Value::I64(i64::from_le_bytes(load(bytes, at))),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(u64::from_le_bytes(load(bytes, at))),
        Kind::Int32 | Kind::Sfixed32 | Kind::Sint32 => Value::I32(i32::from_le_bytes(load(bytes, at))),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(word(bytes, at)),
        Kind::Bool => Value::Bool(load::<1>(bytes, at) != [0]),
        Kind::String => Value::String(Text(span(bytes, at))),
        Kind::Bytes => Value::Bytes(span(bytes, at)),
        Kind::Enum => Value::Enum(i32::from_le_bytes(load(bytes, at))),
        Kind::I8 => Value::I8(i8::from_le_bytes(load(bytes, at))),
        Kind::I16 => Value::I16(i16::from_le_bytes(load(bytes, at))),
        Kind::Message => {
            let off = if indirect { word(bytes, at) } else { at.rec + at.off };
            Value::Message(Record { plan, bytes, off, type_idx: field.aux_idx })
        }
    })
}
