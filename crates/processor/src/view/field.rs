//! Hot module: fields that a program knows, looked up once, read by one load.
//!
//! [`Record::fields`] and [`Record::get`] tell with every value what it is, and the caller branches on that. A program that
//! knows its schema need not: it looks a [`Field`] up when it starts, where a wrong name or type is an error, and reads it from
//! any record of that type. What is left of each reading is whether the record is of the type, and whether the field is there.
//!
//! # Soundness
//!
//! What is read is not checked, as in the module above. It relies on a [`Field`] telling the truth about records of its type:
//! only [`Processor::field`] makes one, from the plan, and no type of any other plan has its number. Noticed by
//! `known_fields_are_read`.

use super::{List, Place, Record, Text, Value, load, span, word};
use crate::plan::{FieldPlan, Plan};
use crate::processor::Processor;
use sealed::Sealed;
use std::marker::PhantomData;
use thiserror::Error;
use tollfree_layout::flat::PRESENCE_BITS;
use tollfree_layout::table::{Kind, Label};

/// A field of one type, that reads as a `T`: found by [`Processor::field`], read by [`Record::read`].
///
/// `T` is a Rust number or `bool`, of the field's width (an enum's number is an `i32`), `&str` where the schema has strings
/// checked for UTF-8 (proto3 does), [`Text`] for any string, `&[u8]`, [`Record`] or [`List`], which is a map, too; what borrows from the object is named with the lifetime `'static` here and has the object's
/// when it is read.
///
/// ```
/// # use tollfree_processor::{Arena, Field, Limits, Processor};
/// # fn read(processor: &Processor, input: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let request_idx = processor.type_by_name("helloworld.HelloRequest").ok_or("no such type")?;
/// let name: Field<&'static str> = processor.field(request_idx, "name")?;
/// let mut arena = Arena::with_limit(1 << 20);
/// let request = processor.decode(request_idx, input, &mut arena, &Limits::default())?;
/// let text: Option<&str> = request.root().read(&name);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Field<T> {
    /// The number of its type, which no type of another processor's has.
    type_number: u64,
    slot_off: u32,
    presence_off: u32,
    presence_bit: u32,
    /// Its place among all fields of the plan.
    field_idx: u32,
    reads: PhantomData<fn() -> T>,
}

/// What a [`Field`] reads as. Nobody else can add to it.
pub trait FieldType: Sealed {
    /// The value, while the object is there.
    type Value<'a>;

    #[doc(hidden)]
    fn fits(field: &Kept<'_>) -> bool;
    #[doc(hidden)]
    fn read(slot: FieldSlot<'_>) -> Self::Value<'_>;
    #[doc(hidden)]
    fn value<'a>(value: Self::Value<'a>) -> Value<'a>;
}

mod sealed {
    pub trait Sealed {}
}

/// A field as the plan has it.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a>(&'a FieldPlan);

/// The slot of a field that is present in a sound record.
#[derive(Debug, Clone, Copy)]
pub struct FieldSlot<'a> {
    record: Record<'a>,
    off: u32,
    field_idx: u32,
}

impl<'a> FieldSlot<'a> {
    #[inline(always)]
    fn place(self) -> Place {
        Place { rec: self.record.off, off: self.off }
    }

    #[inline(always)]
    fn load<const N: usize>(self) -> [u8; N] {
        load(self.record.bytes, self.place())
    }

    #[inline(always)]
    fn span(self) -> &'a [u8] {
        span(self.record.bytes, self.place())
    }

    #[inline(always)]
    fn plan(self) -> &'a FieldPlan {
        &self.record.plan.fields[self.field_idx as usize]
    }
}

/// Why there is no such [`Field`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The table has no type with this index.
    #[error("the table has no type {type_idx}")]
    NoType {
        /// The index.
        type_idx: u32,
    },
    /// The type has no field of this name.
    #[error("{type_name} has no field {name}")]
    NoField {
        /// Full name of the type.
        type_name: String,
        /// The name that was asked for.
        name: String,
    },
    /// The field holds something else.
    #[error("{path} is {label:?} {kind:?} in the table and cannot be read as {wanted}")]
    Kind {
        /// Type and field.
        path: String,
        /// What the table says that it holds.
        kind: Kind,
        /// Whether it is a list or map.
        label: Label,
        /// The Rust type that was asked for.
        wanted: &'static str,
    },
}

macro_rules! field_type {
    ($type:ty as $value:ty, |$kept:ident| $fits:expr, |$slot:ident| $read:expr, |$given:ident| $of:expr) => {
        impl Sealed for $type {}

        impl FieldType for $type {
            type Value<'a> = $value;

            fn fits($kept: &Kept<'_>) -> bool {
                $fits
            }

            #[inline(always)]
            fn read<'a>($slot: FieldSlot<'a>) -> $value {
                $read
            }

            #[inline(always)]
            fn value<'a>($given: $value) -> Value<'a>
            where
                'a: 'a,
            {
                $of
            }
        }
    };
    ($type:ident, $of:ident, [$($kind:ident),+]) => {
        field_type!(
            $type as $type,
            |kept| matches!(kept.0.single, $(Some(Kind::$kind))|+),
            |slot| $type::from_le_bytes(slot.load()),
            |value| Value::$of(value)
        );
    };
}

field_type!(i8, I8, [I8]);
field_type!(i16, I16, [I16]);
field_type!(i32, I32, [Int32, Sint32, Sfixed32, Enum]);
field_type!(i64, I64, [Int64, Sint64, Sfixed64]);
field_type!(u32, U32, [Uint32, Fixed32]);
field_type!(u64, U64, [Uint64, Fixed64]);
field_type!(f32, F32, [Float]);
field_type!(f64, F64, [Double]);
field_type!(
    bool as bool,
    |kept| kept.0.single == Some(Kind::Bool),
    |slot| slot.load::<1>() != [0],
    |value| Value::Bool(value)
);
field_type!(
    Text<'static> as Text<'a>,
    |kept| kept.0.single == Some(Kind::String),
    |slot| Text(slot.span()),
    |text| Value::String(text)
);
field_type!(
    &'static str as &'a str,
    |kept| kept.0.single == Some(Kind::String) && kept.0.is_text(),
    // SAFETY: strings of a field that the table marks as UTF-8 are, in every sound object: decoders, verifier and builders
    // check it, and `fits` has looked at the mark. Noticed by `strings_that_are_checked_read_as_str`.
    |slot| unsafe { std::str::from_utf8_unchecked(slot.span()) },
    |text| Value::String(Text(text.as_bytes()))
);
field_type!(
    &'static [u8] as &'a [u8],
    |kept| kept.0.single == Some(Kind::Bytes),
    |slot| slot.span(),
    |bytes| Value::Bytes(bytes)
);
field_type!(
    Record<'static> as Record<'a>,
    |kept| kept.0.single == Some(Kind::Message),
    |slot| Record {
        off: u32::from_le_bytes(slot.load()),
        type_idx: slot.plan().aux_idx,
        ..slot.record
    },
    |record| Value::Message(record)
);
field_type!(
    List<'static> as List<'a>,
    |kept| kept.0.single.is_none(),
    |slot| {
        let Record { plan, bytes, .. } = slot.record;
        List { plan, bytes, block: u32::from_le_bytes(slot.load()), field: slot.plan() }
    },
    |list| Value::List(list)
);

impl Processor {
    /// The field `name` of the type, to be read as a `T`.
    ///
    /// # Errors
    /// [`FieldError`]; do it when the program starts.
    pub fn field<T: FieldType>(&self, type_idx: u32, name: &str) -> Result<Field<T>, FieldError> {
        let (plan, table) = (&*self.plan, &self.plan.table);
        let Some(row) = table.types().get(type_idx as usize) else {
            return Err(FieldError::NoType { type_idx });
        };
        let type_name = table.text(row.name);
        let own = table.fields_of(type_idx).iter().position(|field| table.text(field.name) == name);
        let Some(own) = own else {
            return Err(FieldError::NoField { type_name: type_name.to_owned(), name: name.to_owned() });
        };
        let field_idx = row.first_field + own as u32;
        let field = &plan.fields[field_idx as usize];
        if !T::fits(&Kept(field)) {
            return Err(FieldError::Kind {
                path: format!("{type_name}.{name}"),
                kind: field.kind,
                label: field.label,
                wanted: std::any::type_name::<T>(),
            });
        }
        Ok(Field {
            type_number: plan.type_number(type_idx),
            slot_off: field.slot_off,
            presence_off: field.presence_off,
            presence_bit: 1 << (own as u32 % PRESENCE_BITS),
            field_idx,
            reads: PhantomData,
        })
    }
}

impl<T: FieldType> Field<T> {
    /// Its place among the fields of this type, which has to be its own.
    #[inline]
    pub(crate) fn place_in(&self, plan: &Plan, type_idx: u32) -> u32 {
        if self.type_number != plan.type_number(type_idx) {
            has_no(plan, type_idx, self.field_idx);
        }
        self.field_idx - plan.types[type_idx as usize].first_field
    }
}

#[cold]
#[inline(never)]
fn has_no(plan: &Plan, type_idx: u32, field_idx: u32) -> ! {
    let name = plan.table.text(plan.table.types()[type_idx as usize].name);
    panic!("field {field_idx} of the table that it was looked up in is none of {name} here");
}

impl<'a> Record<'a> {
    /// The value of a field of its type; none if it is absent.
    ///
    /// # Panics
    /// If the field is one of another type, or was looked up with another processor (clones of one are the same).
    #[must_use]
    #[inline]
    pub fn read<T: FieldType>(&self, field: &Field<T>) -> Option<T::Value<'a>> {
        if field.type_number != self.plan.type_number(self.type_idx) {
            has_no(self.plan, self.type_idx, field.field_idx);
        }
        let presence = Place { rec: self.off, off: field.presence_off };
        if word(self.bytes, presence) & field.presence_bit == 0 {
            return None;
        }
        Some(T::read(FieldSlot { record: *self, off: field.slot_off, field_idx: field.field_idx }))
    }
}
