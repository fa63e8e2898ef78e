//! Between views, builders and prost's structs, field by field.
//!
//! `tollfree-build` writes one line for each field, which calls a function here. Nothing here needs prost: what a struct holds
//! is said by [`InProst`] and [`ProstKind`], and where prost has a choice (a box, `Bytes`, a `BTreeMap`), `From` and `Borrow`
//! bear it.

use super::edit::{EditOf, ListMut, MapMut};
use super::kind::{Bytes, Enum, Key, Kind, Msg, Plain, Str, UncheckedStr};
use super::owned::{Builder, Owned};
use super::place::{Many, One, Pairs};
use super::{Message, Typed, processor};
use crate::arenas::Slot;
use crate::builder::BuildError;
use crate::view::Text;
use std::borrow::Borrow;
use thiserror::Error;

/// Why a message cannot be a struct of prost's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProstError {
    /// A string is not UTF-8, which proto2 leaves open. A struct's string is.
    #[error("{path}: the string is not UTF-8, which a struct's must be; read it by its view")]
    Utf8 {
        /// Type and field.
        path: String,
    },
}

/// A message of which prost has a struct, too. Generated code implements it, where `prost_path` asks for it.
pub trait InProst: Message {
    /// prost's struct; for wrappers and `Empty` what prost has in place of one.
    type Struct;

    #[doc(hidden)]
    fn to_struct(view: Typed<'_, Self>) -> Result<Self::Struct, ProstError>;
    #[doc(hidden)]
    fn put_struct(edit: &mut EditOf<'_, Self>, from: &Self::Struct) -> Result<(), BuildError>;
}

/// A kind that structs have, too.
pub trait ProstKind: Kind {
    /// What a struct holds.
    #[doc(hidden)]
    type Held;
    /// What it lends.
    #[doc(hidden)]
    type Lent: ?Sized;

    /// The value for a struct; `path` says where it lies.
    #[doc(hidden)]
    fn held(value: Self::Value<'_>, path: impl Fn() -> String) -> Result<Self::Held, ProstError>;
    #[doc(hidden)]
    fn set<M: Message>(
        edit: &mut EditOf<'_, M>,
        field: One<M, Self>,
        value: &Self::Lent,
    ) -> Result<(), BuildError>
    where
        Self: Sized;
    #[doc(hidden)]
    fn push(list: &mut ListMut<'_, Self>, value: &Self::Lent) -> Result<(), BuildError>
    where
        Self: Sized;
    #[doc(hidden)]
    fn insert<K: Key>(
        map: &mut MapMut<'_, K, Self>,
        key: K::Value<'_>,
        value: &Self::Lent,
    ) -> Result<(), BuildError>
    where
        Self: Sized;
}

/// A kind whose values are set as they are: all but messages.
pub trait ProstPlain: ProstKind {
    #[doc(hidden)]
    fn lent(value: &Self::Lent) -> Self::Value<'_>;
}

macro_rules! plain {
    ($([$($of:tt)*] $kind:ty: $held:ty, $lent:ty, |$value:ident, $path:ident| $hold:expr, |$from:ident| $lend:expr;)+) => {$(
        impl<$($of)*> ProstKind for $kind {
            type Held = $held;
            type Lent = $lent;

            #[inline]
            fn held($value: Self::Value<'_>, $path: impl Fn() -> String) -> Result<$held, ProstError> {
                $hold
            }

            #[inline]
            fn set<M: Message>(
                edit: &mut EditOf<'_, M>,
                field: One<M, Self>,
                value: &$lent,
            ) -> Result<(), BuildError> {
                edit.set(field, Self::lent(value))
            }

            #[inline]
            fn push(list: &mut ListMut<'_, Self>, value: &$lent) -> Result<(), BuildError> {
                list.push(Self::lent(value))
            }

            #[inline]
            fn insert<K: Key>(
                map: &mut MapMut<'_, K, Self>,
                key: K::Value<'_>,
                value: &$lent,
            ) -> Result<(), BuildError> {
                map.insert(key, Self::lent(value))
            }
        }

        impl<$($of)*> ProstPlain for $kind {
            #[inline]
            fn lent($from: &$lent) -> Self::Value<'_> {
                $lend
            }
        }
    )+};
}

plain! {
    [] i32: i32, i32, |value, _path| Ok(value), |from| *from;
    [] i64: i64, i64, |value, _path| Ok(value), |from| *from;
    [] u32: u32, u32, |value, _path| Ok(value), |from| *from;
    [] u64: u64, u64, |value, _path| Ok(value), |from| *from;
    [] f32: f32, f32, |value, _path| Ok(value), |from| *from;
    [] f64: f64, f64, |value, _path| Ok(value), |from| *from;
    [] bool: bool, bool, |value, _path| Ok(value), |from| *from;
    [E: From<i32> + Into<i32> + Copy + 'static] Enum<E>: i32, i32, |value, _path| Ok(value.into()), |from| E::from(*from);
    [] Str: String, str, |value, _path| Ok(value.to_owned()), |from| from;
    [] Bytes: Vec<u8>, [u8], |value, _path| Ok(value.to_vec()), |from| from;
    [] UncheckedStr: String, str, |value, path| match value.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ProstError::Utf8 { path: path() }),
    }, |from| Text::from(from);
}

impl<N: InProst> ProstKind for Msg<N> {
    type Held = N::Struct;
    type Lent = N::Struct;

    fn held(value: Self::Value<'_>, _: impl Fn() -> String) -> Result<N::Struct, ProstError> {
        N::to_struct(value.into())
    }

    fn set<M: Message>(
        edit: &mut EditOf<'_, M>,
        field: One<M, Self>,
        value: &N::Struct,
    ) -> Result<(), BuildError> {
        N::put_struct(&mut edit.message_edit(field)?, value)
    }

    fn push(list: &mut ListMut<'_, Self>, value: &N::Struct) -> Result<(), BuildError> {
        N::put_struct(&mut list.push_edit()?, value)
    }

    fn insert<K: Key>(
        map: &mut MapMut<'_, K, Self>,
        key: K::Value<'_>,
        value: &N::Struct,
    ) -> Result<(), BuildError> {
        N::put_struct(&mut map.insert_edit(key)?, value)
    }
}

/// `Type.field`.
#[cold]
fn path<M: Message>(field_idx: u32) -> String {
    let step = crate::fault::Step { type_idx: M::TYPE_IDX, field_idx, element_idx: None };
    crate::fault::path(&processor::<M::Compiled>().plan, M::TYPE_IDX, &[step])
}

/// What generated code does to a struct.
#[doc(hidden)]
impl<M: Message> Typed<'_, M> {
    /// A field that a struct always has.
    pub fn to_prost<K, T>(self, field: One<M, K>, to: &mut T) -> Result<(), ProstError>
    where
        K: ProstKind + Plain,
        T: From<K::Held>,
    {
        *to = K::held(self.get(field), || path::<M>(field.spot.field_idx))?.into();
        Ok(())
    }

    /// A message that a struct always has: a required one.
    pub fn to_prost_message<N: InProst, T: From<N::Struct>>(
        self,
        field: One<M, Msg<N>>,
        to: &mut T,
    ) -> Result<(), ProstError> {
        let view = self.find(field).map_or_else(Typed::empty, Into::into);
        *to = N::to_struct(view)?.into();
        Ok(())
    }

    pub fn to_prost_option<K, T>(self, field: One<M, K>, to: &mut Option<T>) -> Result<(), ProstError>
    where
        K: ProstKind,
        T: From<K::Held>,
    {
        if let Some(value) = self.find(field) {
            *to = Some(K::held(value, || path::<M>(field.spot.field_idx))?.into());
        }
        Ok(())
    }

    /// The member of a oneof, as this case.
    pub fn to_prost_case<K, T, C>(
        self,
        field: One<M, K>,
        case: fn(T) -> C,
        to: &mut Option<C>,
    ) -> Result<(), ProstError>
    where
        K: ProstKind,
        T: From<K::Held>,
    {
        if let Some(value) = self.find(field) {
            *to = Some(case(K::held(value, || path::<M>(field.spot.field_idx))?.into()));
        }
        Ok(())
    }

    pub fn to_prost_list<K, T>(self, field: Many<M, K>, to: &mut Vec<T>) -> Result<(), ProstError>
    where
        K: ProstKind,
        T: From<K::Held>,
    {
        let list = self.list(field);
        to.reserve(list.len());
        for value in list {
            to.push(K::held(value, || path::<M>(field.field_idx))?.into());
        }
        Ok(())
    }

    pub fn to_prost_map<K, V, A, B, T>(self, field: Pairs<M, K, V>, to: &mut T) -> Result<(), ProstError>
    where
        K: Key + ProstKind,
        V: ProstKind,
        A: From<K::Held>,
        B: From<V::Held>,
        T: FromIterator<(A, B)>,
    {
        let path = || path::<M>(field.field_idx);
        let entry = |(key, value)| Ok((K::held(key, path)?.into(), V::held(value, path)?.into()));
        *to = self.map(field).iter().map(entry).collect::<Result<T, ProstError>>()?;
        Ok(())
    }
}

/// What generated code does with a struct.
#[doc(hidden)]
impl<M: Message> EditOf<'_, M> {
    pub fn put_prost<K: ProstKind, T: Borrow<K::Lent>>(
        &mut self,
        field: One<M, K>,
        value: &T,
    ) -> Result<(), BuildError> {
        K::set(self, field, value.borrow())
    }

    pub fn put_prost_option<K: ProstKind, T: Borrow<K::Lent>>(
        &mut self,
        field: One<M, K>,
        value: &Option<T>,
    ) -> Result<(), BuildError> {
        value.as_ref().map_or(Ok(()), |value| K::set(self, field, value.borrow()))
    }

    pub fn put_prost_list<K: ProstKind, T: Borrow<K::Lent>>(
        &mut self,
        field: Many<M, K>,
        values: &[T],
    ) -> Result<(), BuildError> {
        let mut list = self.list(field)?;
        list.reserve(values.len())?;
        values.iter().try_for_each(|value| K::push(&mut list, value.borrow()))
    }

    pub fn put_prost_map<'v, K, V, A, B>(
        &mut self,
        field: Pairs<M, K, V>,
        values: impl IntoIterator<Item = (&'v A, &'v B)>,
    ) -> Result<(), BuildError>
    where
        K: Key + ProstPlain,
        V: ProstKind,
        A: Borrow<K::Lent> + 'v,
        B: Borrow<V::Lent> + 'v,
    {
        let (values, mut map) = (values.into_iter(), self.map(field)?);
        map.reserve(values.size_hint().0)?;
        for (key, value) in values {
            V::insert(&mut map, K::lent(key.borrow()), value.borrow())?;
        }
        Ok(())
    }

    /// Puts what the struct says in place of what there is.
    pub(super) fn copy_from_struct(&mut self, from: &M::Struct) -> Result<(), BuildError>
    where
        M: InProst,
    {
        self.copy_from(Typed::empty().into())?;
        M::put_struct(self, from)
    }
}

impl<M: InProst> Owned<M> {
    /// The message that a struct of prost's holds, in an arena of this thread's ([`Slot::default`]).
    ///
    /// # Errors
    /// [`BuildError`]; the arena goes back to where it came from.
    pub fn from_prost(from: &M::Struct) -> Result<Self, BuildError> {
        Self::from_prost_in(Slot::default(), from)
    }

    /// The same in an arena of one's own.
    ///
    /// # Errors
    /// As [`Owned::from_prost`].
    pub fn from_prost_in(slot: impl Into<Slot>, from: &M::Struct) -> Result<Self, BuildError> {
        let mut builder = Builder::<M>::new(slot)?;
        M::put_struct(&mut builder.edit_of(), from)?;
        builder.freeze()
    }
}
