//! The memory of one decoded message, used again and again.
//!
//! An arena is one piece of memory that a decoder fills from its start. It either owns its memory and grows up
//! to a limit, or works in memory that the caller lends it, for example a region, and never grows. All bytes
//! are initialised at any time, so that safe code may look at them.

use tollfree_layout::linear::{HEADER_LEN, MAX_OBJECT_LEN};
use zerocopy::IntoBytes;

/// Bytes that stay free behind the last object byte, so that short copies may overshoot.
pub(crate) const SLOP: usize = 64;

enum Memory<'m> {
    Owned(Vec<u64>),
    Lent(&'m mut [u8]),
}

/// Bump memory of one decoded message at a time; decoding the next one takes it anew, warm.
pub struct Arena<'m> {
    memory: Memory<'m>,
    limit: usize,
    /// Bytes of input that lie behind the header, see [`Arena::stage`].
    pub(crate) staged_len: usize,
    pub(crate) frames: Vec<crate::decode::Frame>,
}

impl std::fmt::Debug for Arena<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self.memory, Memory::Owned(_)) { "owned" } else { "lent" };
        write!(f, "Arena({kind}, {} of at most {} bytes)", self.capacity(), self.limit)
    }
}

impl Arena<'static> {
    /// An arena with memory of its own, which grows as messages need it, to at most `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Arena<'static> {
        let limit = limit.min(MAX_OBJECT_LEN as usize);
        Arena { memory: Memory::Owned(Vec::new()), limit, staged_len: 0, frames: Vec::new() }
    }
}

impl<'m> Arena<'m> {
    /// An arena over lent memory. What does not fit is refused; nothing is ever moved elsewhere.
    ///
    /// Decoding needs, beside the object's own bytes, as much room as input is still unread, plus 64 bytes.
    /// The first bytes up to an address that is a multiple of eight stay unused.
    #[must_use]
    pub fn over(memory: &'m mut [u8]) -> Arena<'m> {
        let skip = memory.as_ptr().align_offset(8).min(memory.len());
        let len = (memory.len() - skip).min(MAX_OBJECT_LEN as usize);
        let memory = &mut memory[skip..skip + len];
        let limit = memory.len();
        Arena { memory: Memory::Lent(memory), limit, staged_len: 0, frames: Vec::new() }
    }

    /// Bytes of memory that the arena has now.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Owned(words) => words.len() * 8,
            Memory::Lent(bytes) => bytes.len(),
        }
    }

    /// Room for an input of `len` bytes inside the arena, so that the object can alias it: write the message
    /// here, then call [`crate::Processor::decode_staged`]. None if it cannot fit.
    pub fn stage(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = HEADER_LEN as usize;
        let end = start.checked_add(len)?;
        let (_, capacity) = self.reserve(end.checked_add(SLOP)?)?;
        debug_assert!(capacity >= end);
        self.staged_len = len;
        self.bytes_mut().get_mut(start..end)
    }

    /// Makes at least `len` bytes available and keeps what is there. None if the limit forbids it.
    ///
    /// Gives the base and the bytes behind it, all initialised.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize) -> Option<(*mut u8, usize)> {
        if len > self.capacity() {
            self.grow(len)?;
        }
        let bytes = self.bytes_mut();
        Some((bytes.as_mut_ptr(), bytes.len()))
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, len: usize) -> Option<()> {
        let Memory::Owned(words) = &mut self.memory else { return None };
        if len > self.limit {
            return None;
        }
        let target = len.max(words.len() * 16).max(4096).min(self.limit.next_multiple_of(8));
        let target_words = target.div_ceil(8);
        words.try_reserve_exact(target_words - words.len()).ok()?;
        words.resize(target_words, 0);
        Some(())
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Owned(words) => words.as_mut_slice().as_mut_bytes(),
            Memory::Lent(bytes) => bytes,
        }
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
    fn lent_memory_is_aligned_and_never_grows() {
        let mut memory = [0u8; 256];
        let mut arena = Arena::over(&mut memory[1..]);
        let (base, len) = arena.reserve(200).unwrap();
        assert!(base.addr().is_multiple_of(8) && len >= 248);
        assert!(arena.reserve(256).is_none());
    }
}
