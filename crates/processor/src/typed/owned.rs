//! Objects and builders of compiled types.

use super::edit::EditOf;
use super::{Message, Typed, processor};
use crate::arenas::Slot;
use crate::builder::{BuildError, ObjectBuilder};
use crate::limits::{DecodeError, Limits};
use crate::object::Object;
use crate::owned::{OwnError, OwnedObject};
use crate::trusted::Trust;
use bytes::Bytes;
use std::marker::PhantomData;

/// A message of type `M` with the memory that it lies in: it borrows nothing, may be sent to other threads, and is read by
/// its [`Owned::view`].
pub struct Owned<M> {
    object: OwnedObject,
    of: PhantomData<fn() -> M>,
}

impl<M> std::fmt::Debug for Owned<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.object.fmt(f)
    }
}

impl<M: Message> PartialEq for Owned<M> {
    fn eq(&self, other: &Self) -> bool {
        super::same::records(self.object().root(), other.object().root())
    }
}

impl<M: Message> Owned<M> {
    /// What calls this answers for it: the processor is `M::Compiled`'s, and the type is `M`.
    fn of(object: OwnedObject) -> Self {
        Owned { object, of: PhantomData }
    }

    /// The fingerprint of the type, with whose other holders objects are exchanged.
    #[must_use]
    #[inline]
    pub fn fingerprint() -> u64 {
        processor::<M::Compiled>().plan.fingerprint(M::TYPE_IDX)
    }

    /// Decodes a protobuf message.
    ///
    /// # Errors
    /// As [`crate::Processor::decode_owned`].
    pub fn decode(input: &[u8], slot: impl Into<Slot>, limits: &Limits) -> Result<Self, DecodeError> {
        processor::<M::Compiled>().decode_owned(M::TYPE_IDX, input, slot.into(), limits).map(Self::of)
    }

    /// Decodes the message that was written to the slot's [`crate::Arena::stage`], whose strings stay there.
    ///
    /// # Errors
    /// As [`crate::Processor::decode_owned_staged`].
    pub fn decode_staged(slot: impl Into<Slot>, limits: &Limits) -> Result<Self, DecodeError> {
        processor::<M::Compiled>().decode_owned_staged(M::TYPE_IDX, slot.into(), limits).map(Self::of)
    }

    /// Copies the object that begins `bytes`, and verifies the copy.
    ///
    /// # Errors
    /// As [`crate::Processor::verify_owned`].
    pub fn verify(bytes: &[u8], slot: impl Into<Slot>, depth: u32) -> Result<Self, OwnError> {
        processor::<M::Compiled>().verify_owned(M::TYPE_IDX, bytes, slot.into(), depth).map(Self::of)
    }

    /// Verifies the object that begins `bytes`, and keeps it where it lies. Whom that trusts is said at
    /// [`crate::Processor::verify_held`].
    ///
    /// # Errors
    /// As [`crate::Processor::verify_held`].
    pub fn verify_held(bytes: Bytes, depth: u32) -> Result<Self, OwnError> {
        processor::<M::Compiled>().verify_held(M::TYPE_IDX, bytes, depth).map(Self::of)
    }

    /// Copies the object that begins `bytes`, of a maker that is trusted, and verifies nothing of what is in it.
    ///
    /// # Errors
    /// As [`crate::Processor::trust_owned`].
    pub fn trust(bytes: &[u8], slot: impl Into<Slot>, trust: Trust) -> Result<Self, OwnError> {
        processor::<M::Compiled>().trust_owned(M::TYPE_IDX, bytes, slot.into(), trust).map(Self::of)
    }

    /// The same of an object that stays where it lies.
    ///
    /// # Errors
    /// As [`crate::Processor::trust_held`].
    pub fn trust_held(bytes: Bytes, trust: Trust) -> Result<Self, OwnError> {
        processor::<M::Compiled>().trust_held(M::TYPE_IDX, bytes, trust).map(Self::of)
    }

    /// Builds a message in an arena of this thread's ([`Slot::default`]): `fill` gets an empty one.
    ///
    /// # Errors
    /// What `fill` gives, [`BuildError`] among it. The arena goes back to where it came from.
    pub fn build<E: From<BuildError>>(
        fill: impl FnOnce(&mut M::Mut<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::build_in(Slot::default(), fill)
    }

    /// The same in an arena of one's own.
    ///
    /// # Errors
    /// As [`Owned::build`].
    pub fn build_in<E: From<BuildError>>(
        slot: impl Into<Slot>,
        fill: impl FnOnce(&mut M::Mut<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut builder = Builder::<M>::new(slot)?;
        fill(&mut builder.edit())?;
        Ok(builder.freeze()?)
    }

    /// The object's bytes, for others to keep, as [`OwnedObject::share`] gives them.
    pub fn share(&mut self) -> Bytes {
        self.object.share()
    }

    /// The message, to be read in place.
    #[must_use]
    #[inline]
    pub fn view(&self) -> M::View<'_> {
        let object = self.object.object();
        Typed::at(object.bytes, object.root_off).into()
    }

    /// The message as an object: its bytes, and its fields as they are found while the program runs.
    #[must_use]
    #[inline]
    pub fn object(&self) -> Object<'_> {
        self.object.object()
    }
}

/// A message of type `M` that is being built.
pub struct Builder<M> {
    builder: ObjectBuilder,
    of: PhantomData<fn() -> M>,
}

impl<M> std::fmt::Debug for Builder<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.builder.fmt(f)
    }
}

impl<M: Message> Builder<M> {
    /// An empty message, to be filled in the slot's arena.
    ///
    /// # Errors
    /// [`BuildError::Exhausted`] if not even the empty message fits.
    pub fn new(slot: impl Into<Slot>) -> Result<Self, BuildError> {
        let builder = processor::<M::Compiled>().builder(M::TYPE_IDX, slot)?;
        Ok(Builder { builder, of: PhantomData })
    }

    /// The message, to be changed.
    #[must_use]
    #[inline]
    pub fn edit(&mut self) -> M::Mut<'_> {
        self.edit_of().into()
    }

    #[inline]
    pub(super) fn edit_of(&mut self) -> EditOf<'_, M> {
        EditOf::of(self.builder.edit())
    }

    /// The finished message. Of entries of a map that have the same key the last one stays.
    ///
    /// # Errors
    /// As [`ObjectBuilder::freeze`].
    pub fn freeze(self) -> Result<Owned<M>, BuildError> {
        self.builder.freeze().map(Owned::of)
    }
}
