//! Objects that own their memory.
//!
//! An [`Object`] borrows the arena that it lies in. A handler that may be spawned, wait and be stored needs one that does
//! not: an [`OwnedObject`] has its arena to itself until it is dropped, and then gives it back. Or it holds bytes that it was
//! found in, and is read where it lies.

use crate::arena::Arena;
use crate::arenas::Slot;
use crate::finish;
use crate::limits::{DecodeError, Limits};
use crate::object::Object;
use crate::processor::Processor;
use crate::verify::VerifyError;
use bytes::Bytes;
use tollfree_layout::flat::Header;

/// An object with the memory that it lies in and the table that describes it: it borrows nothing, and may be sent to
/// other threads and read by several.
///
/// ```
/// # use tollfree_processor::{Arenas, Limits, OwnedObject, Processor};
/// # fn read(processor: &Processor, input: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let arenas = Arenas::new(1 << 20, 16);
/// let type_idx = processor.type_by_name("helloworld.HelloRequest").ok_or("no such type")?;
/// let request = processor.decode_owned(type_idx, input, arenas.take(), &Limits::default())?;
/// std::thread::spawn(move || println!("{:?}", request.object().root()));
/// # Ok(())
/// # }
/// ```
pub struct OwnedObject {
    /// With a finished object. No more than a pointer: an object goes from hand to hand.
    slot: Slot,
}

/// What is known of the finished object in a slot. Nobody writes to it any more: what lies in its first `object_len` bytes is
/// sound.
#[derive(Debug)]
pub(crate) struct Finished {
    processor: Processor,
    /// Where it lies, if not in the slot's arena.
    held: Option<Bytes>,
    object_len: u32,
    root_off: u32,
    type_idx: u32,
}

impl Finished {
    /// Of an object that lies in these bytes.
    pub(crate) fn held(
        processor: &Processor,
        bytes: Bytes,
        object_len: u32,
        root_off: u32,
        type_idx: u32,
    ) -> Finished {
        Finished { processor: processor.clone(), held: Some(bytes), object_len, root_off, type_idx }
    }
}

/// An arena with a finished object, as bytes to be shared.
struct KeptArena(Slot);

impl AsRef<[u8]> for KeptArena {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl std::fmt::Debug for OwnedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.object().root().fmt(f)
    }
}

impl OwnedObject {
    /// The object that was just made in this slot, of the processor's table.
    #[inline]
    pub(crate) fn made(
        processor: &Processor,
        mut slot: Slot,
        object_len: u32,
        root_off: u32,
        type_idx: u32,
    ) -> Self {
        let processor = processor.clone();
        slot.finish(Finished { processor, held: None, object_len, root_off, type_idx });
        OwnedObject { slot }
    }

    /// The object that was finished in this slot.
    pub(crate) fn in_slot(slot: Slot) -> Self {
        OwnedObject { slot }
    }

    #[inline]
    fn finished(&self) -> &Finished {
        self.slot.finished().expect("the slot of an owned object has one")
    }

    /// The object, while this is there.
    #[must_use]
    #[inline]
    pub fn object(&self) -> Object<'_> {
        let finished = self.finished();
        let bytes = match &finished.held {
            None => self.slot.bytes(),
            Some(bytes) => bytes,
        };
        let bytes = &bytes[..finished.object_len as usize];
        Object::made(&finished.processor.plan, bytes, finished.root_off, finished.type_idx)
    }

    /// The object's bytes, for others to keep: nothing is copied. The object itself is read there from now on, and its arena is
    /// used again once all of these bytes are gone.
    pub fn share(&mut self) -> Bytes {
        let Finished { processor, held, object_len, root_off, type_idx } = self.finished();
        let len = *object_len as usize;
        if let Some(bytes) = held {
            return bytes.slice(..len);
        }
        let (processor, held) = (processor.clone(), None);
        let finished =
            Finished { processor, held, object_len: *object_len, root_off: *root_off, type_idx: *type_idx };
        let mut slot = std::mem::replace(&mut self.slot, Arena::with_limit(0).into());
        let bytes = match slot.take_memory() {
            Some(memory) => memory.share(len),
            None => Bytes::from_owner(KeptArena(slot)).slice(..len),
        };
        self.slot.finish(Finished { held: Some(bytes.clone()), ..finished });
        bytes
    }

    /// The processor with the object's table.
    #[must_use]
    pub fn processor(&self) -> &Processor {
        &self.finished().processor
    }
}

impl Processor {
    /// As [`Processor::decode`], into an object that owns its memory.
    ///
    /// # Errors
    /// As [`Processor::decode`]; the slot goes back to where it came from.
    pub fn decode_owned(
        &self,
        type_idx: u32,
        input: &[u8],
        mut slot: Slot,
        limits: &Limits,
    ) -> Result<OwnedObject, DecodeError> {
        let object = self.decode(type_idx, input, &mut slot, limits)?;
        let (len, root_off) = (object.bytes.len() as u32, object.root_off);
        Ok(OwnedObject::made(self, slot, len, root_off, type_idx))
    }

    /// As [`Processor::decode_staged`], into an object that owns its memory, with the message that was written to the
    /// slot's [`Arena::stage`](crate::Arena::stage): the private copy of a message that its strings stay in.
    ///
    /// # Errors
    /// As [`Processor::decode`]; the slot goes back to where it came from.
    pub fn decode_owned_staged(
        &self,
        type_idx: u32,
        mut slot: Slot,
        limits: &Limits,
    ) -> Result<OwnedObject, DecodeError> {
        let object = self.decode_staged(type_idx, &mut slot, limits)?;
        let (len, root_off) = (object.bytes.len() as u32, object.root_off);
        Ok(OwnedObject::made(self, slot, len, root_off, type_idx))
    }

    /// Copies the object that begins `bytes` into the slot, and verifies the copy as [`Processor::verify`] does. What it is
    /// copied from may change meanwhile only as far as a copy bears it: a peer's memory is copied by `region` first.
    ///
    /// # Errors
    /// [`OwnError`]; the slot goes back to where it came from.
    pub fn verify_owned(
        &self,
        type_idx: u32,
        bytes: &[u8],
        mut slot: Slot,
        depth: u32,
    ) -> Result<OwnedObject, OwnError> {
        let header = Header::parse(bytes).map_err(VerifyError::from)?;
        let len = header.object_len as usize;
        slot.begin();
        slot.reserve(len).ok_or(OwnError::Exhausted { need: len, limit: slot.limit() })?;
        let copy = &mut slot.bytes_mut()[..len];
        copy.copy_from_slice(&bytes[..len]);
        let (len, root_off) = self.verify_whole(type_idx, copy, depth)?;
        Ok(OwnedObject::made(self, slot, len, root_off, type_idx))
    }

    /// Verifies the object that begins `bytes` as [`Processor::verify`] does, and keeps it where it lies.
    ///
    /// # Trust
    /// Nobody may write to the bytes: they are private, or lie in memory whose writers are trusted, as members of one pool trust
    /// each other. Who changes them afterwards breaks this process: offsets in an object are followed without another look.
    ///
    /// # Errors
    /// [`OwnError`], but for [`OwnError::Exhausted`].
    pub fn verify_held(&self, type_idx: u32, bytes: Bytes, depth: u32) -> Result<OwnedObject, OwnError> {
        let (object_len, root_off) = self.verify_whole(type_idx, &bytes, depth)?;
        let mut slot: Slot = Arena::with_limit(0).into();
        slot.finish(Finished::held(self, bytes, object_len, root_off, type_idx));
        Ok(OwnedObject::in_slot(slot))
    }

    /// Verifies an object whose required fields must be there: its length, and where its root is.
    fn verify_whole(&self, type_idx: u32, bytes: &[u8], depth: u32) -> Result<(u32, u32), OwnError> {
        let (object, lacks_required) = self.verify_noting(type_idx, bytes, depth)?;
        let (len, root_off) = (object.bytes.len() as u32, object.root_off);
        if lacks_required && let Some(path) = finish::missing_path(&self.plan, bytes, type_idx, root_off) {
            return Err(OwnError::Required { path });
        }
        Ok((len, root_off))
    }
}

/// Why an object was not taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnError {
    /// It is not sound, or of another type.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A required field is missing.
    #[error("{path} is required and missing")]
    Required {
        /// Field path: `Type.outer.inner[3].name`.
        path: String,
    },
    /// It is longer than the arena may become.
    #[error(
        "the object is {need} bytes long, its arena may have {limit}: raise the limit, or refuse the message"
    )]
    Exhausted {
        /// The object's length.
        need: usize,
        /// The arena's limit.
        limit: usize,
    },
}
