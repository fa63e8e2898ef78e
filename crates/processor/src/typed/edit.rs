//! Records of compiled types, while they are built.

use super::kind::{Key, Kind, Msg};
use super::place::{Many, One, Pairs};
use super::prost::InProst;
use super::{Message, Typed};
use crate::builder::{BuildError, Edit, EditList, Spot};
use crate::view::Record;
use std::marker::PhantomData;

/// A record of type `M` that is being filled.
pub struct EditOf<'d, M> {
    edit: Edit<'d>,
    of: PhantomData<fn() -> M>,
}

impl<M> std::fmt::Debug for EditOf<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.edit.fmt(f)
    }
}

impl<'d, M: Message> EditOf<'d, M> {
    /// What calls this answers for it: the record is of type `M`.
    #[inline]
    pub(super) fn of(edit: Edit<'d>) -> Self {
        EditOf { edit, of: PhantomData }
    }

    /// What is there by now.
    #[must_use]
    pub fn view(&self) -> M::View<'_> {
        let Record { bytes, off, .. } = self.edit.view();
        Typed::at(bytes, off).into()
    }

    /// Gives a field a value; a message is copied, all below included.
    ///
    /// # Errors
    /// [`BuildError`]; the field holds what it did.
    #[inline]
    pub fn set<K: Kind>(&mut self, field: One<M, K>, value: K::Value<'_>) -> Result<(), BuildError> {
        K::put(&mut self.edit, field.spot, value)
    }

    /// The message in a field: what is there, or an empty one that is put there.
    ///
    /// # Errors
    /// [`BuildError`]; the field holds what it did.
    #[inline]
    pub fn message<N: Message>(&mut self, field: One<M, Msg<N>>) -> Result<N::Mut<'_>, BuildError> {
        Ok(self.message_edit(field)?.into())
    }

    #[inline]
    pub(super) fn message_edit<N: Message>(
        &mut self,
        field: One<M, Msg<N>>,
    ) -> Result<EditOf<'_, N>, BuildError> {
        let edit = self.edit.reborrow().message_at(field.spot, N::TYPE_IDX, Msg::<N>::STRIDE)?;
        Ok(EditOf::of(edit))
    }

    /// The list in a field, to be added to.
    ///
    /// # Errors
    /// [`BuildError`].
    #[inline]
    pub fn list<K: Kind>(&mut self, field: Many<M, K>) -> Result<ListMut<'_, K>, BuildError> {
        Ok(ListMut { list: self.edit.list(field.field_idx)?, of: PhantomData })
    }

    /// The map in a field, to be added to.
    ///
    /// # Errors
    /// [`BuildError`].
    #[inline]
    pub fn map<K: Key, V: Kind>(&mut self, field: Pairs<M, K, V>) -> Result<MapMut<'_, K, V>, BuildError> {
        let Pairs { field_idx, key, value, .. } = field;
        Ok(MapMut { list: self.edit.list(field_idx)?, key, value, of: PhantomData })
    }

    /// Makes a field absent.
    #[inline]
    pub fn clear<K>(&mut self, field: One<M, K>) {
        self.clear_at(field.spot.field_idx);
    }

    /// Empties a list.
    pub fn clear_list<K>(&mut self, field: Many<M, K>) {
        self.clear_at(field.field_idx);
    }

    /// Empties a map.
    pub fn clear_map<K, V>(&mut self, field: Pairs<M, K, V>) {
        self.clear_at(field.field_idx);
    }

    fn clear_at(&mut self, field_idx: u32) {
        let cleared = self.edit.clear(field_idx);
        debug_assert!(cleared.is_ok(), "the field is one of the type's");
    }

    /// Puts a copy of the message in place of what this one holds, unknown fields included.
    ///
    /// # Errors
    /// [`BuildError`]; this one holds what it did.
    pub fn copy_from(&mut self, view: M::View<'_>) -> Result<(), BuildError> {
        self.edit.copy_from(Typed::record(view.into()))
    }
}

/// What every editor of a message can. (A trait, so that a message's own fields may have these names.)
pub trait MessageMut<'d> {
    /// The message's type.
    type Message: Message;

    #[doc(hidden)]
    fn message(&self) -> &EditOf<'d, Self::Message>;
    #[doc(hidden)]
    fn message_mut(&mut self) -> &mut EditOf<'d, Self::Message>;

    /// What is there by now.
    #[must_use]
    fn view<'v>(&'v self) -> <Self::Message as Message>::View<'v>
    where
        'd: 'v,
    {
        self.message().view()
    }

    /// Fills the message in one expression, as in `order.total_mut()?.fill(|total| total.set_units(3))`.
    ///
    /// # Errors
    /// What `fill` gives; what was put until then stays.
    fn fill<E>(mut self, fill: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E>
    where
        Self: Sized,
    {
        fill(&mut self)
    }

    /// Puts a copy of another message in place of what this one holds, unknown fields included.
    ///
    /// # Errors
    /// [`BuildError`]; this one holds what it did.
    fn copy_from(&mut self, view: <Self::Message as Message>::View<'_>) -> Result<(), BuildError> {
        self.message_mut().copy_from(view)
    }

    /// Puts what a struct of prost's says in place of what this one holds.
    ///
    /// # Errors
    /// [`BuildError`]; what was put until then stays.
    fn copy_from_prost(&mut self, from: &<Self::Message as InProst>::Struct) -> Result<(), BuildError>
    where
        Self::Message: InProst,
    {
        self.message_mut().copy_from_struct(from)
    }
}

/// A list that is being filled.
#[derive(Debug)]
pub struct ListMut<'d, K> {
    list: EditList<'d>,
    of: PhantomData<fn() -> K>,
}

impl<K: Kind> ListMut<'_, K> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len() as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Makes room for `more` elements, so that adding them takes no more memory for the list itself.
    ///
    /// # Errors
    /// [`BuildError::Exhausted`]; the list is as it was.
    pub fn reserve(&mut self, more: usize) -> Result<(), BuildError> {
        self.list.reserve(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// Adds an element; a message is copied, all below included.
    ///
    /// # Errors
    /// [`BuildError`]; the list is as it was.
    #[inline]
    pub fn push(&mut self, value: K::Value<'_>) -> Result<(), BuildError> {
        K::add(&mut self.list, value)
    }

    /// Adds all of these.
    ///
    /// # Errors
    /// [`BuildError`]; those before the one that failed were added.
    pub fn extend<'v>(&mut self, values: impl IntoIterator<Item = K::Value<'v>>) -> Result<(), BuildError> {
        let values = values.into_iter();
        self.reserve(values.size_hint().0)?;
        for value in values {
            self.push(value)?;
        }
        Ok(())
    }

    /// Removes the last element, if there is one.
    pub fn pop(&mut self) {
        self.list.pop();
    }
}

impl<N: Message> ListMut<'_, Msg<N>> {
    /// Adds an empty message and gives it to be filled.
    ///
    /// # Errors
    /// [`BuildError`]; the list is as it was.
    #[inline]
    pub fn push_new(&mut self) -> Result<N::Mut<'_>, BuildError> {
        Ok(self.push_edit()?.into())
    }

    #[inline]
    pub(super) fn push_edit(&mut self) -> Result<EditOf<'_, N>, BuildError> {
        Ok(EditOf::of(self.list.push_message()?))
    }

    /// The message at `idx`, to be changed; none if there are not that many.
    ///
    /// # Errors
    /// [`BuildError::Depth`].
    pub fn get_mut(&mut self, idx: usize) -> Result<Option<N::Mut<'_>>, BuildError> {
        if idx >= self.len() {
            return Ok(None);
        }
        Ok(Some(EditOf::of(self.list.message(idx as u32)?).into()))
    }
}

/// A map that is being filled.
#[derive(Debug)]
pub struct MapMut<'d, K, V> {
    list: EditList<'d>,
    key: Spot,
    value: Spot,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Kind> MapMut<'_, K, V> {
    /// Makes room for `more` entries.
    ///
    /// # Errors
    /// [`BuildError::Exhausted`]; the map is as it was.
    pub fn reserve(&mut self, more: usize) -> Result<(), BuildError> {
        self.list.reserve(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// Gives a key a value, in place of the one that it has by the time the message is finished.
    ///
    /// # Errors
    /// [`BuildError`]; the map is as it was.
    #[inline]
    pub fn insert(&mut self, key: K::Value<'_>, value: V::Value<'_>) -> Result<(), BuildError> {
        let (key_at, value_at) = (self.key, self.value);
        self.list.insert_by(|entry| {
            K::put(entry, key_at, key)?;
            V::put(entry, value_at, value)
        })
    }
}

impl<K: Key, N: Message> MapMut<'_, K, Msg<N>> {
    /// Gives a key an empty message, to be filled, in place of the one that it has by the time the whole is finished.
    ///
    /// # Errors
    /// [`BuildError`]; the map is as it was.
    pub fn insert_new(&mut self, key: K::Value<'_>) -> Result<N::Mut<'_>, BuildError> {
        Ok(self.insert_edit(key)?.into())
    }

    pub(super) fn insert_edit(&mut self, key: K::Value<'_>) -> Result<EditOf<'_, N>, BuildError> {
        // What is in the value's place: every entry has it at 1.
        Ok(EditOf::of(self.list.entry(K::to_value(key))?.into_message(1)?))
    }
}
