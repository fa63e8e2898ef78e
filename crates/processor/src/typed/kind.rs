//! Hot module: what fields and elements of compiled types read as.
//!
//! # Soundness
//!
//! What is read is not checked, as in `view`: only [`super::Typed`] calls this, with a place that the table gave for this
//! kind ([`super::place`]), in a sound object of that table. Nobody else can add a kind, so each tells the truth about
//! itself. Noticed by `tollfree-view-stubs`' tests, where a debug build asserts each load.

use super::read::Typed;
use super::{Message, place};
use crate::builder::{BuildError, Edit, EditList, Spot};
use crate::view::{Place, Text, Value, load, span, word};
use sealed::Sealed;
use std::marker::PhantomData;
use tollfree_layout::flat::SPAN_LEN;
use tollfree_layout::table::Kind as Of;

mod sealed {
    pub trait Sealed {}
}

/// Where a kind's types are: in this table.
#[derive(Debug)]
pub struct InTable<T>(PhantomData<fn() -> T>);

/// A kind that has no types.
#[derive(Debug)]
pub struct Anywhere;

const fn bits(kinds: &[Of]) -> u32 {
    let (mut bits, mut idx) = (0, 0);
    while idx < kinds.len() {
        bits |= 1 << kinds[idx] as u8;
        idx += 1;
    }
    bits
}

/// What a field, or an element of a list, holds, and what it reads as. Nobody else can add to it.
pub trait Kind: Sealed + 'static {
    /// The value, while the object is there.
    type Value<'a>: Copy;

    #[doc(hidden)]
    type Of;
    /// A bit for each kind of the table that it may be.
    #[doc(hidden)]
    const KINDS: u32;
    /// Whether it has to be checked for UTF-8.
    #[doc(hidden)]
    const IS_TEXT: bool = false;
    #[doc(hidden)]
    const IS_SPAN: bool = false;
    /// The type's place in the table.
    #[doc(hidden)]
    const TYPE_IDX: u32 = u32::MAX;
    /// Bytes of an element.
    #[doc(hidden)]
    const STRIDE: u32;

    /// The value whose slot lies here, in a sound object.
    #[doc(hidden)]
    fn load(bytes: &[u8], at: Place) -> Self::Value<'_>;
    /// The element that lies here.
    #[doc(hidden)]
    #[inline(always)]
    fn element(bytes: &[u8], at: Place) -> Self::Value<'_> {
        Self::load(bytes, at)
    }
    /// The value of a map's entry that has none.
    #[doc(hidden)]
    fn zero<'a>() -> Self::Value<'a>;
    #[doc(hidden)]
    fn to_value(value: Self::Value<'_>) -> Value<'_>;
    /// Sets a field of a builder.
    #[doc(hidden)]
    fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError>;
    /// Adds an element to a builder's list.
    #[doc(hidden)]
    fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError>;
}

/// A kind whose absence reads as a default.
pub trait Plain: Kind {
    /// The default, of these bits or at this place in the table.
    #[doc(hidden)]
    fn absent(blob: &'static [u8], default: u64) -> Self::Value<'static>;
    /// `Value<'static>` for less long.
    #[doc(hidden)]
    fn shorter<'a>(value: Self::Value<'static>) -> Self::Value<'a>;
}

/// A kind that keys of maps can have.
pub trait Key: Plain {
    #[doc(hidden)]
    fn same(one: Self::Value<'_>, other: Self::Value<'_>) -> bool;
}

macro_rules! scalar {
    ($($type:ident as $value:ident: $($kind:ident),+;)+) => {$(
        impl Sealed for $type {}

        impl Kind for $type {
            type Value<'a> = $type;
            type Of = Anywhere;
            const KINDS: u32 = bits(&[$(Of::$kind),+]);
            const STRIDE: u32 = size_of::<$type>() as u32;

            #[inline(always)]
            fn load(bytes: &[u8], at: Place) -> Self::Value<'_> {
                $type::from_le_bytes(load(bytes, at))
            }

            #[inline(always)]
            fn zero<'a>() -> Self::Value<'a> {
                $type::default()
            }

            #[inline(always)]
            fn to_value(value: Self::Value<'_>) -> Value<'_> {
                Value::$value(value)
            }

            #[inline(always)]
            fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError> {
                edit.put_scalar(spot, value.to_le_bytes());
                Ok(())
            }

            #[inline(always)]
            fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError> {
                list.push_scalar(value.to_le_bytes())
            }
        }

        impl Plain for $type {
            #[inline(always)]
            fn absent(_: &'static [u8], default: u64) -> Self::Value<'static> {
                let bytes = default.to_le_bytes();
                $type::from_le_bytes(std::array::from_fn(|idx| bytes[idx]))
            }

            #[inline(always)]
            fn shorter<'a>(value: Self::Value<'static>) -> Self::Value<'a> {
                value
            }
        }
    )+};
}

scalar! {
    i32 as I32: Int32, Sint32, Sfixed32;
    i64 as I64: Int64, Sint64, Sfixed64;
    u32 as U32: Uint32, Fixed32;
    u64 as U64: Uint64, Fixed64;
    f32 as F32: Float;
    f64 as F64: Double;
}

macro_rules! keys {
    ($($type:ty),+) => {$(
        impl Key for $type {
            #[inline(always)]
            fn same(one: Self::Value<'_>, other: Self::Value<'_>) -> bool {
                one == other
            }
        }
    )+};
}

keys!(i32, i64, u32, u64, bool, Str, UncheckedStr);

impl Sealed for bool {}

impl Kind for bool {
    type Value<'a> = bool;
    type Of = Anywhere;
    const KINDS: u32 = bits(&[Of::Bool]);
    const STRIDE: u32 = 1;

    #[inline(always)]
    fn load(bytes: &[u8], at: Place) -> Self::Value<'_> {
        load::<1>(bytes, at) != [0]
    }

    #[inline(always)]
    fn zero<'a>() -> Self::Value<'a> {
        false
    }

    #[inline(always)]
    fn to_value(value: Self::Value<'_>) -> Value<'_> {
        Value::Bool(value)
    }

    #[inline(always)]
    fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError> {
        edit.put_scalar(spot, [value.into()]);
        Ok(())
    }

    #[inline(always)]
    fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError> {
        list.push_scalar([value.into()])
    }
}

impl Plain for bool {
    #[inline(always)]
    fn absent(_: &'static [u8], default: u64) -> Self::Value<'static> {
        default != 0
    }

    #[inline(always)]
    fn shorter<'a>(value: Self::Value<'static>) -> Self::Value<'a> {
        value
    }
}

/// An enum's number, as an `E`, which has a value for any number.
#[derive(Debug)]
pub struct Enum<E>(PhantomData<fn() -> E>);

impl<E> Sealed for Enum<E> {}

impl<E: From<i32> + Into<i32> + Copy + 'static> Kind for Enum<E> {
    type Value<'a> = E;
    type Of = Anywhere;
    const KINDS: u32 = bits(&[Of::Enum]);
    const STRIDE: u32 = 4;

    #[inline(always)]
    fn load(bytes: &[u8], at: Place) -> Self::Value<'_> {
        E::from(i32::load(bytes, at))
    }

    #[inline(always)]
    fn zero<'a>() -> Self::Value<'a> {
        E::from(0)
    }

    #[inline(always)]
    fn to_value(value: Self::Value<'_>) -> Value<'_> {
        Value::Enum(value.into())
    }

    #[inline(always)]
    fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError> {
        i32::put(edit, spot, value.into())
    }

    #[inline(always)]
    fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError> {
        i32::add(list, value.into())
    }
}

impl<E: From<i32> + Into<i32> + Copy + 'static> Plain for Enum<E> {
    #[inline(always)]
    fn absent(_: &'static [u8], default: u64) -> Self::Value<'static> {
        E::from(default as i32)
    }

    #[inline(always)]
    fn shorter<'a>(value: Self::Value<'static>) -> Self::Value<'a> {
        value
    }
}

macro_rules! spans {
    ($($(#[$doc:meta])+ $name:ident as $value:ty, $zero:expr, $of:ident, $is_text:literal, |$bytes:ident| $read:expr,
        |$default:ident| $checked:expr, |$given:ident| $to:expr, $raw:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Debug)]
        pub struct $name;

        impl Sealed for $name {}

        impl Kind for $name {
            type Value<'a> = $value;
            type Of = Anywhere;
            const KINDS: u32 = bits(&[Of::$of]);
            const IS_TEXT: bool = $is_text;
            const IS_SPAN: bool = true;
            const STRIDE: u32 = SPAN_LEN;

            #[inline(always)]
            fn load(bytes: &[u8], at: Place) -> Self::Value<'_> {
                let $bytes = span(bytes, at);
                $read
            }

            #[inline(always)]
            fn zero<'a>() -> Self::Value<'a> {
                $zero
            }

            #[inline(always)]
            fn to_value($given: Self::Value<'_>) -> Value<'_> {
                $to
            }

            // A `&str` is UTF-8, and no field of the other kinds wants that of its strings.
            #[inline(always)]
            fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError> {
                let $given = value;
                edit.put_string(spot, $raw)
            }

            #[inline(always)]
            fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError> {
                let $given = value;
                list.push_string($raw)
            }
        }

        impl Plain for $name {
            #[inline]
            fn absent(blob: &'static [u8], default: u64) -> Self::Value<'static> {
                let (at, len) = (default as u32 as usize, (default >> 32) as usize);
                let $default = blob.get(at..at + len).unwrap_or_default();
                $checked
            }

            #[inline(always)]
            fn shorter<'a>(value: Self::Value<'static>) -> Self::Value<'a> {
                value
            }
        }
    )+};
}

spans! {
    /// A string that the schema has checked for UTF-8 (proto3 does): `&str`.
    Str as &'a str, "", String, true,
    // SAFETY: strings of a field that the table marks as UTF-8 are, in every sound object: decoders, verifier and builders check
    // it; `One::new` and the like have looked at the mark. Noticed by `strings_are_utf8_or_refused`.
    |bytes| unsafe { std::str::from_utf8_unchecked(bytes) },
    |default| std::str::from_utf8(default).unwrap_or_default(),
    |text| Value::String(Text::from(text)), text.as_bytes();
    /// A string that is not checked (proto2's are not): [`Text`].
    UncheckedStr as Text<'a>, Text::new(&[]), String, false,
    |bytes| Text::new(bytes),
    |default| Text::new(default),
    |text| Value::String(text), text.as_bytes();
    /// Bytes.
    Bytes as &'a [u8], &[], Bytes, false,
    |bytes| bytes,
    |default| default,
    |bytes| Value::Bytes(bytes), bytes;
}

/// A message of this type: its view.
#[derive(Debug)]
pub struct Msg<N>(PhantomData<fn() -> N>);

impl<N> Sealed for Msg<N> {}

impl<N: Message> Kind for Msg<N> {
    type Value<'a> = N::View<'a>;
    type Of = InTable<N::Compiled>;
    const KINDS: u32 = bits(&[Of::Message]);
    const TYPE_IDX: u32 = N::TYPE_IDX;
    const STRIDE: u32 = place::record_len(<N::Compiled as super::Compiled>::BLOB, N::TYPE_IDX);

    #[inline(always)]
    fn load(bytes: &[u8], at: Place) -> Self::Value<'_> {
        Typed::at(bytes, word(bytes, at)).into()
    }

    #[inline(always)]
    fn element(bytes: &[u8], at: Place) -> Self::Value<'_> {
        Typed::at(bytes, at.rec + at.off).into()
    }

    fn zero<'a>() -> Self::Value<'a> {
        Typed::empty().into()
    }

    fn to_value(value: Self::Value<'_>) -> Value<'_> {
        Value::Message(Typed::record(value.into()))
    }

    fn put(edit: &mut Edit<'_>, spot: Spot, value: Self::Value<'_>) -> Result<(), BuildError> {
        edit.set(spot.field_idx, Self::to_value(value))
    }

    fn add(list: &mut EditList<'_>, value: Self::Value<'_>) -> Result<(), BuildError> {
        list.push(Self::to_value(value))
    }
}
