//! Composing segmented messages: where an encoder writes a message whose large parts go to the pool.

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes};
use smallvec::SmallVec;
use tollfree_layout::limits::SEGMENTED_REF_COUNT_MAX;
use tollfree_layout::segmented::SEGMENTED_HEAD_LEN;

use crate::buffer::Buffer;
use crate::error::{AllocError, RefError};
use crate::pool::Pool;
use crate::refs::Ref;
use crate::segmented;

/// Bytes gathered privately before they go to the pool in one piece.
const BATCH_LEN: usize = 4 * 1024;
/// Longest block for a run of small things: what is not used of it stays unused for as long as it is held.
const BLOCK_LEN_MAX: usize = 256 * 1024;

/// Takes what an encoder writes, and keeps large parts in the pool: by a ref to where they are, if they lie there already, or
/// to a copy. What is small stays private, unless so much of it comes in one run that it is worth a ref itself.
///
/// Never waits; where the pool has no room, the rest stays private.
#[derive(Debug)]
pub struct Composer<'p> {
    pool: &'p Pool,
    threshold: usize,
    /// Bytes expected in all.
    len: usize,
    /// Bytes that went to the pool.
    ref_bytes: usize,
    /// Behind room for a segmented message's head.
    inline: Vec<u8>,
    /// Of `inline`, what stands before the last ref.
    settled: usize,
    /// Where `inline` is looked at again.
    look_at: usize,
    /// Each ref, and the inline bytes before it.
    parts: SmallVec<[(u32, Ref); 2]>,
    /// Where the present run goes.
    block: Option<Buffer>,
    copied: usize,
    shortage: Option<AllocError>,
}

/// What was composed.
#[derive(Debug)]
pub struct Composed {
    /// The bytes to send: of a segmented message ([`tollfree_layout::segmented`]) if there are refs, else the message itself.
    pub bytes: Bytes,
    /// To be kept until the receiver has taken hold.
    pub refs: SmallVec<[Ref; 2]>,
    /// Bytes in refs.
    pub ref_bytes: usize,
    /// Bytes that were copied, into the pool or to `bytes`.
    pub copied: usize,
    /// Why some large part is not in the pool.
    pub shortage: Option<AllocError>,
}

impl Composed {
    /// A message that is nothing but these bytes, by a ref to where they are, if they lie in the pool, or to a copy. Never
    /// waits.
    ///
    /// # Errors
    /// [`AllocError`]: there is no room for a copy, or there are no bytes.
    pub fn whole(pool: &Pool, bytes: &[u8]) -> Result<Composed, AllocError> {
        let known = pool.ref_of_slice(bytes);
        let copied = if known.is_some() { 0 } else { bytes.len() };
        let part = match known {
            Some(known) => known,
            None => {
                let mut buffer = pool.try_buffer(bytes.len())?;
                buffer.extend_from_slice(bytes);
                buffer.freeze().map_err(|_| AllocError::Empty)?
            }
        };
        let head = part.to_bytes().map_err(|_| AllocError::Forked)?;
        let mut segmented = vec![0; SEGMENTED_HEAD_LEN];
        segmented::complete(&mut segmented, bytes.len(), [(0, head)].into_iter());
        let refs = SmallVec::from_iter([part]);
        Ok(Composed { bytes: segmented.into(), refs, ref_bytes: bytes.len(), copied, shortage: None })
    }
}

impl Pool {
    /// A place for an encoder to write about `len` bytes to, of which parts of `threshold` bytes or more go to the pool.
    pub fn compose(&self, len: usize, threshold: usize) -> Composer<'_> {
        let threshold = threshold.max(1);
        let mut inline = Vec::with_capacity(SEGMENTED_HEAD_LEN + len.min(512));
        inline.resize(SEGMENTED_HEAD_LEN, 0);
        Composer {
            pool: self,
            threshold,
            len,
            ref_bytes: 0,
            inline,
            settled: SEGMENTED_HEAD_LEN,
            look_at: SEGMENTED_HEAD_LEN + threshold,
            parts: SmallVec::new(),
            block: None,
            copied: 0,
            shortage: None,
        }
    }
}

impl Composer<'_> {
    /// What was written.
    ///
    /// # Errors
    /// [`RefError::Forked`].
    pub fn finish(mut self) -> Result<Composed, RefError> {
        self.end_run();
        self.copied += self.inline.len() - SEGMENTED_HEAD_LEN;
        let mut refs = SmallVec::with_capacity(self.parts.len());
        if !self.parts.is_empty() {
            let mut heads: SmallVec<[_; 2]> = SmallVec::with_capacity(self.parts.len());
            for (before, part) in self.parts {
                heads.push((before, part.to_bytes()?));
                refs.push(part);
            }
            segmented::complete(&mut self.inline, self.ref_bytes, heads.into_iter());
        }
        let mut bytes = Bytes::from(self.inline);
        if refs.is_empty() {
            bytes.advance(SEGMENTED_HEAD_LEN);
        }
        Ok(Composed { bytes, refs, ref_bytes: self.ref_bytes, copied: self.copied, shortage: self.shortage })
    }

    /// A large part: by ref, if that can be.
    #[cold]
    fn put_large(&mut self, bytes: &[u8]) {
        self.end_run();
        if self.parts.len() < SEGMENTED_REF_COUNT_MAX
            && let Some(part) = self.share(bytes)
        {
            self.push(part);
        } else {
            self.inline.extend_from_slice(bytes);
            self.look_at = self.inline.len() + self.threshold;
        }
    }

    fn share(&mut self, bytes: &[u8]) -> Option<Ref> {
        if let Some(known) = self.pool.ref_of_slice(bytes) {
            return Some(known);
        }
        let mut buffer = self.buffer(bytes.len())?;
        buffer.extend_from_slice(bytes);
        self.copied += bytes.len();
        buffer.freeze().ok()
    }

    /// Memory of the pool. After a "no", this message doesn't ask again.
    fn buffer(&mut self, len: usize) -> Option<Buffer> {
        if self.shortage.is_some() {
            return None;
        }
        self.pool.try_buffer(len).map_err(|error| self.shortage = Some(error)).ok()
    }

    fn push(&mut self, part: Ref) {
        self.ref_bytes += part.len();
        // Less than 4 GiB, as messages are.
        self.parts.push(((self.inline.len() - self.settled) as u32, part));
        self.settled = self.inline.len();
        self.look_at = self.settled + self.threshold;
    }

    /// The run of small things has become long enough for a ref, or filled its batch.
    #[cold]
    fn look(&mut self) {
        if self.block.is_none() {
            let run = self.inline.len() - self.settled;
            let left = self.len.saturating_sub(self.ref_bytes + self.inline.len());
            // One place is left for the part that may end the run.
            let may = self.parts.len() + 1 < SEGMENTED_REF_COUNT_MAX;
            let wanted = (run + left).min(BLOCK_LEN_MAX.max(run));
            self.block = if may { self.buffer(wanted) } else { None };
        }
        if self.block.is_some() {
            self.flush();
        } else {
            self.look_at = self.inline.len() + self.threshold;
        }
    }

    /// Moves the batch at hand to the block, and the block to the parts where it is full.
    fn flush(&mut self) {
        let Some(block) = &mut self.block else { return };
        let count = (self.inline.len() - self.settled).min(block.remaining_mut());
        let from = self.settled;
        block.extend_from_slice(&self.inline[from..from + count]);
        self.copied += count;
        let is_full = block.remaining_mut() == 0;
        self.inline.drain(from..from + count);
        self.look_at = self.settled + BATCH_LEN;
        if is_full {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        if let Some(Ok(part)) = self.block.take().map(Buffer::freeze) {
            // What it holds stood where the inline bytes end that are settled.
            let rest = self.inline.split_off(self.settled);
            self.push(part);
            self.inline.extend_from_slice(&rest);
        }
    }

    fn end_run(&mut self) {
        if self.block.is_some() {
            self.flush();
            self.end_block();
        }
    }
}

// SAFETY: memory, room and position are those of `inline`, a `Vec`, whose own implementation is used; nothing of it is read
// or moved between `chunk_mut` and `advance_mut`. `any_way_of_writing_gives_the_same_bytes` writes in all ways.
unsafe impl BufMut for Composer<'_> {
    #[inline]
    fn remaining_mut(&self) -> usize {
        self.inline.remaining_mut()
    }

    #[inline]
    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: the caller has initialised `count` bytes of what `chunk_mut` gave, as `Vec` wants it.
        unsafe { self.inline.advance_mut(count) };
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut UninitSlice {
        if self.inline.len() >= self.look_at {
            self.look();
        }
        self.inline.chunk_mut()
    }

    #[inline]
    fn put<T: Buf>(&mut self, mut src: T) {
        while src.has_remaining() {
            let chunk = src.chunk();
            let len = chunk.len();
            self.put_slice(chunk);
            src.advance(len);
        }
    }

    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        if bytes.len() >= self.threshold {
            self.put_large(bytes);
            return;
        }
        if self.inline.len() + bytes.len() > self.look_at {
            self.look();
        }
        self.inline.extend_from_slice(bytes);
    }

    #[inline]
    fn put_u8(&mut self, byte: u8) {
        if self.inline.len() >= self.look_at {
            self.look();
        }
        self.inline.push(byte);
    }
}
