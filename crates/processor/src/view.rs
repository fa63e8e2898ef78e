//! Hot module: reading an object in place, by field, without checks.
//!
//! A [`Record`] leads only through a sound [`Object`], so offsets are followed as they stand. Which field is
//! read is checked (an index beyond the type's fields panics, as a slice's would), what lies there is not.

mod field;
mod form;

pub use field::{Field, FieldError, FieldType};
pub(crate) use form::{FieldView, Form};

use crate::object::Object;
use crate::plan::{FieldPlan, Plan, TypePlan};
use std::marker::PhantomData;
use tollfree_layout::linear::{LIST_HEADER_LEN, PRESENCE_BITS, PRESENCE_OFF};
use tollfree_layout::table::{FieldRow, Label, TypeRow};

/// A string field's bytes. A schema may leave strings unchecked (proto2 does), so UTF-8 is not a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
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

/// An object's bytes, without their count: that is for the assertions only.
#[derive(Clone, Copy)]
struct Base<'a> {
    at: *const u8,
    #[cfg(debug_assertions)]
    len: usize,
    object: PhantomData<&'a [u8]>,
}

// SAFETY: a base is a shared slice of bytes, which may go to other threads. Noticed by `views_go_to_other_threads`.
unsafe impl Send for Base<'_> {}
// SAFETY: as above.
unsafe impl Sync for Base<'_> {}

impl<'a> Base<'a> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Base<'a> {
        Base {
            at: bytes.as_ptr(),
            #[cfg(debug_assertions)]
            len: bytes.len(),
            object: PhantomData,
        }
    }

    #[inline(always)]
    fn holds(self, at: Place, len: usize) {
        #[cfg(debug_assertions)]
        assert!(at.rec as usize + at.off as usize + len <= self.len);
        let _ = (self, at, len);
    }

    #[inline(always)]
    fn load<const N: usize>(self, at: Place) -> [u8; N] {
        self.holds(at, N);
        // SAFETY: the object is sound: slots, words and blocks that presence declares lie in it. Enforced by decoder
        // and verifier; the assertion above notices in the mutation tests.
        unsafe { self.at.add(at.rec as usize).add(at.off as usize).cast::<[u8; N]>().read() }
    }

    #[inline(always)]
    fn word(self, at: Place) -> u32 {
        u32::from_le_bytes(self.load(at))
    }

    #[inline(always)]
    fn span(self, at: Place) -> &'a [u8] {
        let span = u64::from_le_bytes(self.load(at));
        let (off, len) = (span as u32, (span >> 32) as usize);
        self.holds(Place::at(off), len);
        // SAFETY: as in `load`: the span of a sound object.
        unsafe { std::slice::from_raw_parts(self.at.add(off as usize), len) }
    }
}

/// Where something lies: in a record, or (0) where `rec` says. (Apart, so that a loop adds only what changes.)
#[derive(Clone, Copy)]
struct Place {
    rec: u32,
    off: u32,
}

impl Place {
    #[inline(always)]
    fn at(rec: u32) -> Place {
        Place { rec, off: 0 }
    }
}

/// One record of an object.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    plan: &'a Plan,
    base: Base<'a>,
    off: u32,
    type_idx: u32,
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
        Record { plan: self.plan, base: Base::new(self.bytes), off: self.root_off, type_idx: self.type_idx }
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
    fn type_plan(&self) -> &'a TypePlan {
        debug_assert!((self.type_idx as usize) < self.plan.types.len());
        // SAFETY: the type is one of the plan's: an object's, or one that a field of the plan's names. The assertion notices.
        unsafe { self.plan.types.get_unchecked(self.type_idx as usize) }
    }

    #[inline(always)]
    fn field(&self, field_idx: u32) -> &'a FieldPlan {
        let t = self.type_plan();
        assert!(field_idx < t.field_count, "the type has no field {field_idx}");
        // SAFETY: the type has this field, and its fields lie where the plan says (`Plan::new`); the range check that this
        // replaces would notice.
        unsafe { self.plan.fields.get_unchecked((t.first_field + field_idx) as usize) }
    }

    /// Whether the field at this place, which the type has, is present.
    #[inline(always)]
    fn is_present(&self, field_idx: u32) -> bool {
        let word_off = PRESENCE_OFF + field_idx / PRESENCE_BITS * 4;
        self.base.word(Place { rec: self.off, off: word_off }) >> (field_idx % PRESENCE_BITS) & 1 != 0
    }

    /// Whether the field at this place is present; for a list, whether it has elements.
    ///
    /// # Panics
    /// If the type has no such field.
    #[must_use]
    #[inline]
    pub fn has(&self, field_idx: u32) -> bool {
        let _ = self.field(field_idx);
        self.is_present(field_idx)
    }

    /// The value of the field at this place; none if it is absent.
    ///
    /// # Panics
    /// If the type has no such field.
    #[must_use]
    #[inline]
    pub fn get(&self, field_idx: u32) -> Option<Value<'a>> {
        let field = self.field(field_idx);
        if !self.is_present(field_idx) {
            return None;
        }
        let place = Place { rec: self.off, off: field.slot_off };
        Some(value(self.plan, self.base, place, field.form, field, true))
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
        let t = self.type_plan();
        debug_assert!((t.first_field + t.field_count) as usize <= self.plan.views.len());
        // SAFETY: the type's fields lie where the plan says (`Plan::new`), and views run parallel to them; the assertion
        // notices in every test of views.
        let views = unsafe {
            let first = self.plan.views.as_ptr().add(t.first_field as usize);
            std::slice::from_raw_parts(first, t.field_count as usize)
        };
        let bits = self.base.word(Place { rec: self.off, off: PRESENCE_OFF });
        Fields { record: *self, views, bits, word_off: PRESENCE_OFF }
    }

    /// Slices of unknown fields, tags and all, in the order they came.
    pub fn unknown(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (base, block) = (self.base, self.base.word(Place::at(self.off)));
        let count = if block == 0 { 0 } else { base.word(Place::at(block)) };
        (0..count).map(move |idx| base.span(Place::at(block + LIST_HEADER_LEN + 8 * idx)))
    }
}

/// The present fields of a record; see [`Record::fields`].
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    record: Record<'a>,
    /// The fields from the one on that the current presence word's lowest bit stands for, and which bits are left.
    views: &'a [FieldView],
    bits: u32,
    /// Where that word lies in the record.
    word_off: u32,
}

impl Fields<'_> {
    /// The same from the next presence word on that has bits. (Apart and by value, so that the way through a word's fields is
    /// straight, and in registers.)
    #[cold]
    fn turned(mut self) -> Option<Self> {
        while self.bits == 0 {
            self.views = self.views.get(PRESENCE_BITS as usize..).filter(|views| !views.is_empty())?;
            self.word_off += 4;
            self.bits = self.record.base.word(Place { rec: self.record.off, off: self.word_off });
        }
        Some(self)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a FieldRow, Value<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bits == 0 {
            if self.views.len() <= PRESENCE_BITS as usize {
                return None;
            }
            *self = self.clone().turned()?;
        }
        let idx = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        debug_assert!(idx < self.views.len());
        let Record { plan, base, off: rec, .. } = self.record;
        // SAFETY: a sound record has no bits beyond its type's fields (enforced by decoder and verifier), whose views are
        // elements of the plan's; fields and rows run parallel to them (`Plan::new`). The assertion notices in the mutation
        // tests.
        let (view, field, row) = unsafe {
            let view = self.views.get_unchecked(idx);
            let at = std::ptr::from_ref(view).offset_from(plan.views.as_ptr()) as usize;
            (view, plan.fields.get_unchecked(at), plan.table.fields().get_unchecked(at))
        };
        Some((row, value(plan, base, Place { rec, off: view.slot_off }, view.form, field, true)))
    }
}

/// The elements of a list, set or map.
#[derive(Clone, Copy)]
pub struct List<'a> {
    plan: &'a Plan,
    base: Base<'a>,
    field: &'a FieldPlan,
    block: u32,
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
        self.base.word(Place::at(self.block))
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
        Some(self.element(self.block + LIST_HEADER_LEN + idx * self.field.elem_len))
    }

    /// The element that lies at `at`.
    #[inline(always)]
    fn element(&self, at: u32) -> Value<'a> {
        value(self.plan, self.base, Place::at(at), self.field.elem, self.field, false)
    }

    /// All elements.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let list = *self;
        let mut at = self.block + LIST_HEADER_LEN;
        (0..self.len()).map(move |_| {
            let value = list.element(at);
            at += list.field.elem_len;
            value
        })
    }
}

/// The value of this form at `at`: in a record a message's offset (`indirect`), in a list the record itself.
#[inline(always)]
fn value<'a>(
    plan: &'a Plan,
    base: Base<'a>,
    at: Place,
    form: Form,
    field: &'a FieldPlan,
    indirect: bool,
) -> Value<'a> {
    match form {
        Form::Bool => Value::Bool(base.load::<1>(at) != [0]),
        Form::I8 => Value::I8(i8::from_le_bytes(base.load(at))),
        Form::I16 => Value::I16(i16::from_le_bytes(base.load(at))),
        Form::I32 => Value::I32(i32::from_le_bytes(base.load(at))),
        Form::I64 => Value::I64(i64::from_le_bytes(base.load(at))),
        Form::U32 => Value::U32(base.word(at)),
        Form::U64 => Value::U64(u64::from_le_bytes(base.load(at))),
        Form::F32 => Value::F32(f32::from_le_bytes(base.load(at))),
        Form::F64 => Value::F64(f64::from_le_bytes(base.load(at))),
        Form::Enum => Value::Enum(i32::from_le_bytes(base.load(at))),
        Form::String => Value::String(Text(base.span(at))),
        Form::Bytes => Value::Bytes(base.span(at)),
        Form::Message => {
            let off = if indirect { base.word(at) } else { at.rec + at.off };
            Value::Message(Record { plan, base, off, type_idx: field.aux_idx })
        }
        Form::List => {
            let list = List { plan, base, field, block: base.word(at) };
            if field.label == Label::Map { Value::Map(list) } else { Value::List(list) }
        }
    }
}
