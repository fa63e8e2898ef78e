//! Payloads: bytes that know whether they are private or lie in a pool, and that can be written after they were shared.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use tollfree_layout::limits::PAGE_LEN;

use crate::buffer::Buffer;
use crate::error::{AllocError, RefError};
use crate::overlay::{Overlay, OverlayError};
use crate::pool::Pool;
use crate::refs::{Ref, within};

/// Bytes that know where they live.
///
/// Cloning copies nothing. Writing ([`make_mut`](Self::make_mut)) copies the 4 KiB pages that it touches, if anybody else
/// can see them, so that a payload that was written may be in several pieces ([`segments`](Self::segments)); everybody else
/// keeps what they saw.
#[derive(Clone)]
pub struct Payload {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// As they came.
    Bytes(Bytes),
    /// So that they can be written.
    Vec(Arc<Vec<u8>>),
    /// One after the other; never none.
    Pooled(SmallVec<[Ref; 1]>),
}

/// Why a payload can't be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The range is empty or outside of the payload.
    #[error(transparent)]
    Range(#[from] RefError),
    /// The copies of the pages have no room.
    #[error("there is no room for copies of the pages written: {0}")]
    NoRoom(#[from] AllocError),
}

impl Payload {
    /// Bytes.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Bytes(bytes) => bytes.len(),
            Kind::Vec(bytes) => bytes.len(),
            Kind::Pooled(refs) => refs.iter().map(Ref::len).sum(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes lie in a pool.
    pub fn is_pooled(&self) -> bool {
        matches!(self.kind, Kind::Pooled(_))
    }

    /// The refs whose bytes, one after the other, are the payload; none if it is private.
    pub fn refs(&self) -> &[Ref] {
        match &self.kind {
            Kind::Bytes(_) | Kind::Vec(_) => &[],
            Kind::Pooled(refs) => refs,
        }
    }

    /// The bytes in order, in as many pieces as they lie in.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let (private, refs) = match &self.kind {
            Kind::Bytes(bytes) => (Some(&bytes[..]), &[][..]),
            Kind::Vec(bytes) => (Some(&bytes[..]), &[][..]),
            Kind::Pooled(refs) => (None, &refs[..]),
        };
        private.into_iter().chain(refs.iter().map(|bytes| &bytes[..]))
    }

    /// The bytes, if they are in one piece.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Bytes(bytes) => Some(bytes),
            Kind::Vec(bytes) => Some(bytes),
            Kind::Pooled(refs) if refs.len() == 1 => Some(&refs[0]),
            Kind::Pooled(_) => None,
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.segments().for_each(|segment| copy.extend_from_slice(segment));
        self.count_copied(copy.len());
        copy
    }

    fn count_copied(&self, byte_count: usize) {
        if let Some(bytes) = self.refs().first() {
            bytes.held.inner.counters.copied(byte_count);
        }
    }

    /// A part of the bytes, without a copy.
    ///
    /// # Errors
    /// [`RefError::Empty`] or [`RefError::Range`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Payload, RefError> {
        let (start, len) = within(range, self.len())?;
        Ok(match &self.kind {
            Kind::Bytes(bytes) => bytes.slice(start..start + len).into(),
            Kind::Vec(bytes) => Bytes::from_owner(Shared(bytes.clone())).slice(start..start + len).into(),
            Kind::Pooled(refs) => Payload { kind: Kind::Pooled(part(refs, start..start + len)) },
        })
    }

    /// The payload as refs of a pool that a message can carry: those it has; one to the same bytes, if they are private but
    /// lie in the pool (see [`Pool::ref_of`]); or one to a copy. Never waits.
    ///
    /// # Errors
    /// [`AllocError`]; the payload is as before.
    pub fn share(&mut self, pool: &Pool) -> Result<&[Ref], AllocError> {
        let known = match &self.kind {
            Kind::Pooled(refs) if refs.iter().all(|bytes| pool.has(bytes)) => None,
            Kind::Bytes(bytes) => Some(pool.ref_of(bytes)),
            Kind::Vec(_) | Kind::Pooled(_) => Some(None),
        };
        if let Some(known) = known {
            let bytes = match known {
                Some(bytes) => bytes,
                None => {
                    let mut buffer = pool.try_buffer(self.len())?;
                    self.segments().for_each(|segment| buffer.extend_from_slice(segment));
                    buffer.freeze().expect("no buffer is had for no bytes")
                }
            };
            self.kind = Kind::Pooled(smallvec![bytes]);
        }
        Ok(self.refs())
    }

    /// A range of the bytes to write. Nobody else ever sees what is written.
    ///
    /// Of a payload in a pool, the pages that the range touches are copied, unless they are this payload's alone. They may
    /// become a segment of their own. Of a private one, all bytes are copied, unless they are this payload's alone. Waits
    /// as [`Pool::buffer`] does.
    ///
    /// # Errors
    /// [`WriteError`]; the payload is as before.
    pub fn make_mut(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [u8], WriteError> {
        let (start, len) = within(range, self.len())?;
        if let Kind::Bytes(bytes) = &mut self.kind {
            // Without a copy where they are nobody else's.
            let own = std::mem::take(bytes).try_into_mut().map_or_else(|shared| shared.to_vec(), Vec::from);
            self.kind = Kind::Vec(Arc::new(own));
        }
        match &mut self.kind {
            Kind::Bytes(_) => unreachable!("it was just made writable"),
            Kind::Vec(bytes) => Ok(&mut Arc::make_mut(bytes)[start..start + len]),
            Kind::Pooled(refs) => pooled_mut(refs, start..start + len),
        }
    }

    /// Plain memory over the bytes, which are copied page by page as they are written: for code that is not to know of pages
    /// and pools. The payload itself stays as it is.
    ///
    /// # Errors
    /// [`OverlayError`], with [`OverlayError::Private`] for bytes that don't lie in a pool.
    pub fn overlay(&self) -> Result<Overlay, OverlayError> {
        Overlay::of(self.refs())
    }

    /// Refs whose bytes are to be one after the other, at least one.
    pub(crate) fn of_refs(refs: SmallVec<[Ref; 1]>) -> Payload {
        debug_assert!(!refs.is_empty());
        Payload { kind: Kind::Pooled(refs) }
    }

    /// Copies out `dst.len()` bytes from `at` on. Asynchronous, since a payload's bytes may one day be on another host.
    ///
    /// # Errors
    /// [`RefError::Range`].
    pub async fn read_at(&self, at: usize, dst: &mut [u8]) -> Result<(), RefError> {
        let mut left = dst;
        if left.is_empty() {
            return Ok(());
        }
        for segment in self.slice(at..at.saturating_add(left.len()))?.segments() {
            let (now, later) = left.split_at_mut(segment.len());
            now.copy_from_slice(segment);
            self.count_copied(segment.len());
            left = later;
        }
        Ok(())
    }

    /// Writes bytes from `at` on, as [`make_mut`](Self::make_mut) does, but the task waits, as in [`Pool::buffer_async`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write_at(&mut self, at: usize, src: &[u8]) -> Result<(), WriteError> {
        if src.is_empty() {
            return Ok(());
        }
        let (start, len) = within(at..at.saturating_add(src.len()), self.len())?;
        let range = start..start + len;
        if let Kind::Pooled(refs) = &mut self.kind
            && let Some((pool, touched)) = to_copy(refs, &range)
        {
            let buffer = pool.buffer_async(touched.len()).await?;
            put_copy(refs, touched, buffer);
        }
        self.make_mut(range)?.copy_from_slice(src);
        self.count_copied(src.len());
        Ok(())
    }
}

/// The refs to a part of what `refs` are.
fn part(refs: &[Ref], range: Range<usize>) -> SmallVec<[Ref; 1]> {
    let mut parts = SmallVec::new();
    let mut at = 0;
    for bytes in refs {
        let end = at + bytes.len();
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            parts.push(bytes.slice(from - at..to - at).expect("not empty, and within the ref"));
        }
        at = end;
    }
    parts
}

/// Makes `range` of the bytes writable: copies what it touches, page by page, where others can see it.
fn pooled_mut(refs: &mut SmallVec<[Ref; 1]>, range: Range<usize>) -> Result<&mut [u8], WriteError> {
    if let Some((pool, touched)) = to_copy(refs, &range) {
        put_copy(refs, touched.clone(), pool.buffer(touched.len())?);
    }
    let (idx, at) = find(refs, range.start);
    let bytes = refs[idx].get_mut().expect("nobody else has ever seen it");
    Ok(&mut bytes[range.start - at..range.end - at])
}

/// What has to be copied, and to which pool, before `range` can be written; `None` where it can be already.
fn to_copy(refs: &mut [Ref], range: &Range<usize>) -> Option<(Pool, Range<usize>)> {
    let (idx, at) = find(refs, range.start);
    let is_within = range.end - at <= refs[idx].len();
    if is_within && refs[idx].get_mut().is_some() {
        return None;
    }
    Some((refs[idx].pool(), touched_pages(refs, range)))
}

/// Puts a copy of these bytes, which is made in `buffer`, in their place.
fn put_copy(refs: &mut SmallVec<[Ref; 1]>, touched: Range<usize>, mut buffer: Buffer) {
    for bytes in part(refs, touched.clone()) {
        buffer.extend_from_slice(&bytes);
    }
    let copy = buffer.freeze().expect("at least the range was copied");
    let mut renewed = part(refs, 0..touched.start);
    renewed.push(copy);
    let len = refs.iter().map(Ref::len).sum();
    renewed.extend(part(refs, touched.end..len));
    *refs = renewed;
}

/// The ref that holds byte `at`, which is within the payload, and where that ref begins.
fn find(refs: &[Ref], at: usize) -> (usize, usize) {
    let mut start = 0;
    for (idx, bytes) in refs.iter().enumerate() {
        if at < start + bytes.len() {
            return (idx, start);
        }
        start += bytes.len();
    }
    unreachable!("the range was checked against the payload")
}

/// The range, widened to whole pages of memory as far as its first and last ref go.
fn touched_pages(refs: &[Ref], range: &Range<usize>) -> Range<usize> {
    let (first_idx, first_at) = find(refs, range.start);
    let (last_idx, last_at) = find(refs, range.end - 1);
    let before = (refs[first_idx].off + range.start - first_at) % PAGE_LEN;
    let start = range.start.saturating_sub(before).max(first_at);
    let behind = refs[last_idx].off + range.end - last_at;
    let end = range.end + (behind.next_multiple_of(PAGE_LEN) - behind);
    start..end.min(last_at + refs[last_idx].len())
}

/// Bytes that a payload shares with `Bytes` made of it.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload { kind: Kind::Vec(Arc::new(bytes)) }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload { kind: Kind::Bytes(bytes) }
    }
}

impl From<Ref> for Payload {
    fn from(bytes: Ref) -> Payload {
        Payload { kind: Kind::Pooled(smallvec![bytes]) }
    }
}

impl From<Buffer> for Payload {
    /// What was written into it, to be shared.
    fn from(buffer: Buffer) -> Payload {
        buffer.freeze().map_or_else(|_| Bytes::new().into(), Payload::from)
    }
}

impl From<Payload> for Bytes {
    /// Without a copy, unless the payload is in several pieces.
    fn from(payload: Payload) -> Bytes {
        match payload.kind {
            Kind::Bytes(bytes) => bytes,
            Kind::Vec(bytes) => match Arc::try_unwrap(bytes) {
                Ok(bytes) => bytes.into(),
                Err(shared) => Bytes::from_owner(Shared(shared)),
            },
            Kind::Pooled(mut refs) if refs.len() == 1 => refs.remove(0).into(),
            Kind::Pooled(refs) => Payload { kind: Kind::Pooled(refs) }.to_vec().into(),
        }
    }
}

impl Default for Payload {
    /// No bytes.
    fn default() -> Payload {
        Bytes::new().into()
    }
}

impl PartialEq<[u8]> for Payload {
    fn eq(&self, other: &[u8]) -> bool {
        let mut left = other;
        self.len() == other.len()
            && self.segments().all(|segment| {
                let (now, later) = left.split_at(segment.len());
                left = later;
                now == segment
            })
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = self.segments().count();
        f.debug_struct("Payload")
            .field("len", &self.len())
            .field("pooled", &self.is_pooled())
            .field("segments", &segments)
            .finish()
    }
}
