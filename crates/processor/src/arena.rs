//! The memory of one message, used again and again.
//!
//! An arena has memory of its own, which grows up to a limit, and may be set over memory that somebody lends it, for
//! example a region: then finished objects lie there. What is being made begins in lent memory, too. Where that gets too
//! short on the way (decoding wants as much room as input is unread, and lists that grow leave their old blocks behind), it
//! goes on in the arena's own, for objects can be moved; in the end it is moved back. So lent memory needs to be just as
//! long as the object, and an object that does not fit is refused with its length. All bytes are initialised at any time,
//! so that safe code may look at them.

use bytes::Bytes;
use tollfree_layout::flat::{HEADER_LEN, MAX_OBJECT_LEN};
use tollfree_layout::steps;
use zerocopy::IntoBytes;

/// Bytes that stay free behind the last object byte, so that short copies may overshoot.
pub(crate) const SLOP: usize = 64;

/// Bump memory of one message at a time; the next one takes it anew, warm.
pub struct Arena<'m> {
    own: Vec<u64>,
    lent: Option<Lent<'m>>,
    /// Whether the bytes in use lie in lent memory.
    in_lent: bool,
    limit: u32,
    /// Bytes of input that lie behind the header, see [`Arena::stage`].
    pub(crate) staged_len: u32,
    pub(crate) frames: Vec<crate::decode::Frame>,
}

impl std::fmt::Debug for Arena<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lent =
            self.lent.as_ref().map(|lent| format!(", {} lent", lent.bytes().len())).unwrap_or_default();
        write!(f, "Arena({} of at most {} bytes{lent})", self.own.len() * 8, self.limit)
    }
}

/// Memory that is given away to build an object in, and that can be shared once that is done: a buffer of a pool, for example.
///
/// Its first byte lies at an address that is a multiple of eight, and its bytes stay where they are.
pub trait Memory: Send + Sync + 'static {
    /// All of it.
    fn bytes(&self) -> &[u8];

    /// All of it, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Its first `len` bytes, which nobody writes to any more.
    fn share(self: Box<Self>, len: usize) -> Bytes;
}

/// Memory that is not the arena's own.
enum Lent<'m> {
    Borrowed(&'m mut [u8]),
    Given(Box<dyn Memory>),
}

impl Lent<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Lent::Borrowed(bytes) => bytes,
            Lent::Given(memory) => memory.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Lent::Borrowed(bytes) => bytes,
            Lent::Given(memory) => memory.bytes_mut(),
        }
    }
}

impl Arena<'static> {
    /// An arena over memory that it is given: what is built there is shared from there ([`OwnedObject::share`](crate::OwnedObject::share)).
    /// What grows beyond it is moved to the arena's own memory meanwhile; a finished object that is longer is refused, and the error
    /// says how long it is.
    #[must_use]
    pub fn in_memory(memory: impl Memory) -> Arena<'static> {
        debug_assert!(memory.bytes().as_ptr().addr().is_multiple_of(8), "memory that is not aligned");
        let arena = Arena::with_limit(MAX_OBJECT_LEN as usize);
        Arena { lent: Some(Lent::Given(Box::new(memory))), in_lent: true, ..arena }
    }

    /// The memory that it was given, if the bytes in use lie there.
    pub(crate) fn take_memory(&mut self) -> Option<Box<dyn Memory>> {
        let lent = self.lent.take_if(|_| self.in_lent)?;
        self.in_lent = false;
        match lent {
            Lent::Given(memory) => Some(memory),
            Lent::Borrowed(_) => None,
        }
    }

    /// An arena with memory of its own, which grows as messages need it, to at most `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Arena<'static> {
        let limit = limit.min(MAX_OBJECT_LEN as usize) as u32;
        Arena { own: Vec::new(), lent: None, in_lent: false, limit, staged_len: 0, frames: Vec::new() }
    }
}

impl<'m> Arena<'m> {
    /// The same arena, warm as it is, over other memory: objects lie there from now on. One that is longer is refused, and
    /// the error says how long it is. The first bytes up to an address that is a multiple of eight stay unused.
    ///
    /// ```
    /// # use tollfree_processor::Arena;
    /// let (mut one, mut other) = ([0u8; 1024], [0u8; 4096]);
    /// let arena = Arena::with_limit(1 << 20).over(&mut one);
    /// // … and then:
    /// let arena = arena.over(&mut other);
    /// let arena: Arena<'static> = arena.on_its_own();
    /// ```
    #[must_use]
    pub fn over<'n>(self, memory: &'n mut [u8]) -> Arena<'n> {
        let skip = memory.as_ptr().align_offset(8).min(memory.len());
        let len = (memory.len() - skip).min(MAX_OBJECT_LEN as usize);
        Arena {
            lent: Some(Lent::Borrowed(&mut memory[skip..skip + len])),
            in_lent: true,
            ..self.on_its_own()
        }
    }

    /// The same arena without lent memory.
    #[must_use]
    pub fn on_its_own(self) -> Arena<'static> {
        let Arena { own, limit, frames, .. } = self;
        Arena { own, lent: None, in_lent: false, limit, staged_len: 0, frames }
    }

    /// Bytes of memory of its own that the arena has now.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.own.len() * 8
    }

    /// Bytes to which its own memory may grow.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Gives the arena another limit. `false` if its memory is longer than that already.
    #[inline]
    pub(crate) fn limit_to(&mut self, limit: usize) -> bool {
        self.limit = limit.min(MAX_OBJECT_LEN as usize) as u32;
        self.capacity() <= self.limit as usize
    }

    /// Bytes of the memory that was lent to it.
    pub(crate) fn lent_len(&self) -> usize {
        self.lent.as_ref().map_or(0, |lent| lent.bytes().len())
    }

    /// Room for an input of `len` bytes inside the arena, so that the object can alias it: write the message
    /// here, then call [`crate::Processor::decode_staged`]. None if it cannot fit.
    pub fn stage(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = HEADER_LEN as usize;
        let end = start.checked_add(len)?;
        self.begin();
        let (_, capacity) = self.reserve(end.checked_add(SLOP)?)?;
        debug_assert!(capacity >= end);
        self.staged_len = len as u32;
        self.bytes_mut().get_mut(start..end)
    }

    /// Forgets what is in use: the next message begins where it is to lie.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.in_lent = self.lent.is_some();
    }

    /// Makes at least `len` bytes available and keeps what is there. None if the limit forbids it.
    ///
    /// Gives the base and the bytes behind it, all initialised.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Option<(*mut u8, usize)> {
        if len > self.bytes().len() {
            self.grow(len)?;
        }
        let bytes = self.bytes_mut();
        Some((bytes.as_mut_ptr(), bytes.len()))
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, len: usize) -> Option<()> {
        let limit = self.limit as usize;
        if len > limit {
            return None;
        }
        if len > self.own.len() * 8 {
            let target = len.max(self.own.len() * 16).max(4096).min(limit.next_multiple_of(8));
            let target_words = target.div_ceil(8);
            steps::take_bytes(target);
            self.own.try_reserve_exact(target_words - self.own.len()).ok()?;
            self.own.resize(target_words, 0);
        }
        if let Some(lent) = self.lent.as_ref().filter(|_| self.in_lent).map(Lent::bytes) {
            self.own.as_mut_slice().as_mut_bytes()[..lent.len()].copy_from_slice(lent);
            self.in_lent = false;
        }
        Some(())
    }

    /// Moves the finished object of `len` bytes to where it is to lie. False if it does not fit.
    #[inline]
    pub(crate) fn settle(&mut self, len: usize) -> bool {
        let Some(lent) = self.lent.as_mut().filter(|_| !self.in_lent) else { return true };
        let Some(place) = lent.bytes_mut().get_mut(..len) else { return false };
        place.copy_from_slice(&self.own.as_slice().as_bytes()[..len]);
        self.in_lent = true;
        true
    }

    /// What is in use, and behind it.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        if !self.in_lent {
            return self.own.as_slice().as_bytes();
        }
        self.lent.as_ref().map_or(&[], Lent::bytes)
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if !self.in_lent {
            return self.own.as_mut_slice().as_mut_bytes();
        }
        self.lent.as_mut().map_or(&mut [], Lent::bytes_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_memory_grows_to_its_limit_and_keeps_its_bytes() {
        let mut arena = Arena::with_limit(10_000);
        arena.stage(3).unwrap().copy_from_slice(b"abc");
        arena.reserve(9_999).unwrap();
        assert_eq!(&arena.bytes_mut()[32..35], b"abc");
        assert!(arena.reserve(10_001).is_none());
        assert!(arena.stage(usize::MAX).is_none());
        assert!(arena.capacity() <= 10_000);
    }

    #[test]
    fn what_outgrows_lent_memory_is_moved_out_and_back() {
        let mut memory = [7u8; 256];
        let mut arena = Arena::with_limit(1000).over(&mut memory[1..]);
        let (base, len) = arena.reserve(200).unwrap();
        assert!(base.addr().is_multiple_of(8) && len >= 248);
        arena.bytes_mut()[100] = 9;
        assert!(arena.reserve(1001).is_none());
        arena.reserve(600).unwrap();
        assert!(!arena.in_lent && arena.bytes()[99..102] == [7, 9, 7]);
        arena.bytes_mut()[99] = 8;
        assert!(!arena.settle(257));
        assert!(arena.settle(240) && arena.in_lent && arena.bytes()[99..102] == [8, 9, 7]);
        arena.reserve(600).unwrap();
        arena.begin();
        assert!(arena.in_lent);
        assert_eq!(arena.on_its_own().capacity(), 1000);
    }
}
