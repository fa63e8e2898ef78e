//! Refs: counted handles to bytes in a pool.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use tollfree_layout::pool::{REF_LEN, RefHead, block_word};
use zerocopy::IntoBytes;

use crate::error::RefError;
use crate::held::{Held, Place};
use crate::pool::Pool;

/// A counted handle to bytes in a pool, which nobody changes while it lives.
///
/// Reading is reading a slice: nothing is copied. Cloning and slicing cost an atomic addition. Dropping never waits.
/// A ref that is passed on to another member ([`to_bytes`](Self::to_bytes)) has to be kept until that one has taken hold
/// of it: until it has answered.
#[derive(Clone)]
pub struct Ref {
    pub(crate) held: Arc<Held>,
    pub(crate) off: usize,
    pub(crate) len: usize,
}

impl Ref {
    /// The bytes `off..off + len` of a block, at least 1 and within it.
    pub(crate) fn new(held: Arc<Held>, off: usize, len: usize) -> Ref {
        debug_assert!(len > 0 && off + len <= held.len());
        Ref { held, off, len }
    }

    /// Bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A ref to a part of the bytes, with a hold of its own.
    ///
    /// # Errors
    /// [`RefError::Empty`] or [`RefError::Range`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Ref, RefError> {
        let (start, len) = within(range, self.len)?;
        Ok(Ref { held: self.held.clone(), off: self.off + start, len })
    }

    /// The ref as it travels: `REF_LEN` (56) bytes, which [`Pool::map_ref`] of any member makes a ref of again, as often
    /// as one likes.
    ///
    /// # Errors
    /// [`RefError::Forked`].
    #[inline]
    pub fn to_bytes(&self) -> Result<[u8; REF_LEN], RefError> {
        let inner = &self.held.inner;
        if inner.is_elsewhere() {
            return Err(RefError::Forked);
        }
        let (member, extent, page, (generation, key)) = match &self.held.place {
            Place::Own { extent, at } => (inner.member, extent.idx, at.page, inner.heap.lock().export(*at)),
            Place::Other { import, page } => (import.owner, import.idx, *page, import.entry(*page)),
        };
        let mut head = RefHead {
            pool: inner.id,
            member: member.0.into(),
            extent: extent.0.into(),
            block: block_word(page.0, generation).into(),
            tag: 0.into(),
            offset: (self.off as u64).into(),
            len: (self.len as u64).into(),
        };
        head.tag = head.tag_by(key).into();
        crate::steps::reached("exported");
        let mut bytes = [0; REF_LEN];
        bytes.copy_from_slice(head.as_bytes());
        Ok(bytes)
    }

    /// The pool that the bytes lie in.
    pub fn pool(&self) -> Pool {
        Pool::of(self.held.inner.clone())
    }

    /// Whether the bytes lie in this member's own memory.
    pub fn is_own(&self) -> bool {
        matches!(self.held.place, Place::Own { .. })
    }

    /// The bytes to write in place, if nobody else has a ref to any part of the block, nor ever had, and it is this
    /// member's own.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let held = Arc::get_mut(&mut self.held)?;
        held.is_sole().then(|| held.bytes_mut(self.off, self.len))
    }

    /// Copies out `dst.len()` bytes from `at` on. Asynchronous, since the bytes of a ref may one day be on another host.
    ///
    /// # Errors
    /// [`RefError::Range`].
    pub async fn read_at(&self, at: usize, dst: &mut [u8]) -> Result<(), RefError> {
        let end = at.checked_add(dst.len()).filter(|end| *end <= self.len).ok_or(RefError::Range {
            start: at,
            end: at.saturating_add(dst.len()),
            len: self.len,
        })?;
        dst.copy_from_slice(&self[at..end]);
        self.held.inner.counters.copied(dst.len());
        Ok(())
    }
}

/// Start and length of a range within `len` bytes.
pub(crate) fn within(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize), RefError> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if end > len || start > end {
        return Err(RefError::Range { start, end, len });
    }
    if start == end {
        return Err(RefError::Empty);
    }
    Ok((start, end - start))
}

impl Deref for Ref {
    type Target = [u8];

    /// # Panics
    /// In a child forked from the member, which doesn't have the memory.
    #[inline]
    fn deref(&self) -> &[u8] {
        self.held.bytes(self.off, self.len)
    }
}

impl AsRef<[u8]> for Ref {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Ref> for Bytes {
    /// Without a copy. The hold lives as long as the bytes. A child forked from the member doesn't have the memory: reading the
    /// bytes there ends it by a signal.
    fn from(bytes: Ref) -> Bytes {
        Bytes::from_owner(bytes)
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ref").field("own", &self.is_own()).field("len", &self.len).finish_non_exhaustive()
    }
}
