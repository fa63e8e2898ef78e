//! Objects that are taken over without a look at what is in them, since their maker is trusted.

use crate::arena::Arena;
use crate::arenas::Slot;
use crate::owned::{Finished, OwnError, OwnedObject};
use crate::processor::Processor;
use bytes::Bytes;

/// The word of a program that it trusts the maker of certain objects as it trusts its own code: with its memory.
///
/// # Trust
/// Offsets in an object are followed, and its strings taken for UTF-8, without another look. A maker that gets an offset wrong, or
/// changes the object while it is read, makes the reader read other bytes of its own process, or crash it. So the word is for makers
/// that are known by something that they can't forge, and that could do the same anyway: a gateway of the system or of the same
/// user, as a device is trusted that writes to memory. Everybody else's objects are verified ([`Processor::verify_owned`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust(());

impl Trust {
    /// Gives the word.
    #[must_use]
    pub const fn as_own_code() -> Trust {
        Trust(())
    }
}

impl Processor {
    /// Copies the object that begins `bytes` into the slot, as [`Processor::verify_owned`] does, and verifies nothing but that it
    /// is of this type and has its root.
    ///
    /// # Errors
    /// [`OwnError`]; the slot goes back to where it came from.
    pub fn trust_owned(
        &self,
        type_idx: u32,
        bytes: &[u8],
        mut slot: Slot,
        _: Trust,
    ) -> Result<OwnedObject, OwnError> {
        let header = self.trusted_head(type_idx, bytes)?;
        let len = header.object_len as usize;
        slot.begin();
        slot.reserve(len).ok_or(OwnError::Exhausted { need: len, limit: slot.limit() })?;
        slot.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
        Ok(OwnedObject::made(self, slot, header.object_len, header.root_off, type_idx))
    }

    /// The same of an object that stays where it lies: nothing is copied.
    ///
    /// # Errors
    /// [`OwnError`], but for [`OwnError::Exhausted`].
    pub fn trust_held(&self, type_idx: u32, bytes: Bytes, _: Trust) -> Result<OwnedObject, OwnError> {
        let header = self.trusted_head(type_idx, &bytes)?;
        let mut slot: Slot = Arena::with_limit(0).into();
        slot.finish(Finished::held(self, bytes, header.object_len, header.root_off, type_idx));
        Ok(OwnedObject::in_slot(slot))
    }
}
