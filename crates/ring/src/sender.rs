//! The sending end of a ring in shared memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_kill_points::{Point, here};
use tollfree_layout::RingPos;
use tollfree_layout::control::CONSUMED_OFF;
use tollfree_layout::limits::{LINE_LEN, PAGE_LEN};
use tollfree_layout::record::{HEAD_EMPTY, HEAD_LEN, head_word, line_count};
use tollfree_region::{ReadMemory, WriteMemory};

use crate::geometry::Geometry;
use crate::record::{RecordSender, RingViolation, StageError};

/// Bytes of a record that lie in the line of its head word.
const FIRST_LEN: usize = LINE_LEN - HEAD_LEN;
/// Lines behind the published end whose heads are emptied before they are needed.
const AHEAD: u64 = 8;
/// Lines behind the published end that the processor is asked for: what a few small records in flight take.
const FETCHED_AHEAD: u64 = 12;

/// Lines of a batch that the processor is told are for the reader: what a few small records take.
const DEMOTED_MAX: u64 = 8;

/// The line in which a batch begins, laid out as in the ring: what was written there in words is read in the same words.
#[derive(Debug)]
#[repr(C, align(64))]
struct FirstLine {
    _head: [u8; HEAD_LEN],
    body: [u8; FIRST_LEN],
}

/// Writes records into the ring in this side's region. `R` is the peer's region, which holds its cursor.
#[derive(Debug)]
pub struct RingSender<W, R> {
    own: Arc<W>,
    peer: Arc<R>,
    ring: Geometry,
    /// End of what the reader can see.
    published: RingPos,
    /// End of what is written.
    staged: RingPos,
    /// The peer's cursor when last looked at.
    consumed: RingPos,
    /// All heads from `staged` up to here are known to be empty.
    clean: RingPos,
    /// All lines up to here are clean, or were asked for.
    fetched: RingPos,
    /// The line at `published` while something is staged: written at publication only, since the reader watches it.
    first: FirstLine,
    first_len: u32,
    violation: Option<RingViolation>,
}

impl<W: WriteMemory, R: ReadMemory> RingSender<W, R> {
    /// A sender at the beginning of a fresh ring, all zeros.
    ///
    /// # Panics
    /// When `own_ring` isn't within `own`, or `peer` has no control page.
    pub fn new(own: Arc<W>, peer: Arc<R>, own_ring: Geometry) -> Self {
        assert!(own_ring.end() <= own.len(), "the ring {own_ring:?} ends beyond its region of {}", own.len());
        assert!(peer.len() >= PAGE_LEN, "the peer's region has no control page");
        RingSender {
            own,
            peer,
            ring: own_ring,
            published: RingPos(0),
            staged: RingPos(0),
            consumed: RingPos(0),
            clean: RingPos(own_ring.line_count()),
            fetched: RingPos(0),
            first: FirstLine { _head: [0; HEAD_LEN], body: [0; FIRST_LEN] },
            first_len: 0,
            violation: None,
        }
    }

    /// The same on its way since long: at `pos` of a ring that the peer has read empty.
    #[cfg(test)]
    pub(crate) fn starting_at(mut self, pos: RingPos) -> Self {
        (self.published, self.staged, self.consumed, self.clean) = (pos, pos, pos, pos);
        self.fetched = pos;
        self
    }

    /// End of what the peer can see. It is the end of a record.
    #[inline]
    pub fn published(&self) -> RingPos {
        self.published
    }

    /// Bytes that the peer has not given back, and the length of the ring. For monitoring: what a peer says of its cursor that can't be
    /// is left to those who send.
    pub fn backlog(&self) -> (u64, u64) {
        let found = self.peer.load_u64(CONSUMED_OFF, Ordering::Relaxed);
        let consumed = found.clamp(self.consumed.0, self.published.0);
        let line = LINE_LEN as u64;
        ((self.staged.0 - consumed) * line, self.ring.line_count() * line)
    }

    /// How far the peer says that it has read, and whether that is less than what was published. For monitoring, as [`backlog`](Self::backlog).
    pub fn unread(&self) -> (u64, bool) {
        let found = self.peer.load_u64(CONSUMED_OFF, Ordering::Relaxed);
        (found, found < self.published.0)
    }

    /// Whether `lines` more lines, and the empty head behind them, fit by what is known of the peer's cursor.
    #[inline(always)]
    fn fits(&self, lines: u64) -> bool {
        self.staged.0 - self.consumed.0 + lines < self.ring.line_count()
    }

    /// Makes sure of room for `lines`, looking at the peer's cursor only where it matters.
    #[inline(always)]
    fn make_room(&mut self, lines: u64) -> Result<bool, RingViolation> {
        Ok(self.fits(lines) || {
            self.refresh()?;
            self.fits(lines)
        })
    }

    #[cold]
    fn refresh(&mut self) -> Result<(), RingViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let found = RingPos(self.peer.load_u64(CONSUMED_OFF, Ordering::Acquire));
        if found < self.consumed || found > self.published {
            let violation = RingViolation::ForgedCursor { found, least: self.consumed, most: self.published };
            self.violation = Some(violation);
            return Err(violation);
        }
        self.consumed = found;
        Ok(())
    }

    /// Writes `src` from `off` bytes after the line at `pos` on, over the end of the ring.
    #[inline(always)]
    fn write(&self, pos: RingPos, off: usize, src: &[u8]) {
        let (at, before_end, _) = self.ring.split(pos, off, src.len());
        let (head, tail) = src.split_at(before_end);
        self.own.copy_in(at, head);
        if !tail.is_empty() {
            self.own.copy_in(self.ring.ring_off, tail);
        }
    }

    /// Empties the heads from `staged` up to `end` that aren't known to be.
    #[inline(always)]
    fn clean_to(&mut self, end: RingPos) {
        let mut at = self.clean.max(self.staged);
        while at < end {
            self.own.store_u64(self.head_at(at), HEAD_EMPTY, Ordering::Relaxed);
            at.0 += 1;
        }
        self.clean = at;
    }

    /// Asks for the lines up to `end` that are to be written. Nothing waits for them, as every fence and lock does for a store
    /// whose line is on its way. Those that are written next are stored to all the same: a hint comes too late for them.
    #[inline(always)]
    fn fetch_to(&mut self, end: RingPos) {
        let mut at = self.fetched.max(self.clean);
        while at < end {
            self.own.prefetch_to_write(self.head_at(at));
            at.0 += 1;
        }
        self.fetched = at;
    }

    /// Has the lines that were just published go where the reader finds them sooner.
    #[inline(always)]
    fn demote(&self) {
        let end = self.staged.0.min(self.published.0 + DEMOTED_MAX);
        for line in self.published.0..end {
            self.own.demote(self.head_at(RingPos(line)));
        }
    }

    #[inline(always)]
    fn head_at(&self, pos: RingPos) -> usize {
        self.ring.ring_off + self.ring.line_off(pos)
    }

    /// Stages the parts of the first record of a batch: what lies in its first line is kept back.
    #[inline(always)]
    fn stage_first(&mut self, parts: &[&[u8]], len: usize) {
        let mut off = 0;
        for part in parts {
            let kept = part.len().min(FIRST_LEN.saturating_sub(off));
            let (head, tail) = part.split_at(kept);
            if kept > 0 {
                self.first.body[off..off + kept].copy_from_slice(head);
            }
            if !tail.is_empty() {
                self.write(self.staged, HEAD_LEN + off + kept, tail);
            }
            off += part.len();
            here(Point::MidRecord);
        }
        self.first_len = len as u32;
    }

    /// Stages a later record of a batch. Its head word may be written at once: nobody looks there yet.
    #[inline(always)]
    fn stage_next(&mut self, parts: &[&[u8]], len: usize) {
        self.own.store_u64(self.head_at(self.staged), head_word(self.staged, len as u32), Ordering::Relaxed);
        let mut off = HEAD_LEN;
        for part in parts {
            self.write(self.staged, off, part);
            off += part.len();
        }
    }
}

impl<W: WriteMemory, R: ReadMemory> RecordSender for RingSender<W, R> {
    #[inline]
    fn record_len_max(&self) -> usize {
        self.ring.record_len_max()
    }

    #[inline]
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), StageError> {
        let len = parts.iter().fold(0usize, |len, part| len.saturating_add(part.len()));
        let max = self.record_len_max();
        if len > max {
            return Err(StageError::TooLong { len, max });
        }
        if let Some(violation) = self.violation {
            return Err(violation.into());
        }
        let lines = line_count(len) as u64;
        if !self.make_room(lines)? {
            return Err(StageError::Full);
        }
        here(Point::RoomReserved);
        if self.staged == self.published {
            self.stage_first(parts, len);
        } else {
            self.stage_next(parts, len);
        }
        self.staged.0 += lines;
        here(Point::RecordStaged);
        Ok(())
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.staged == self.published {
            return false;
        }
        // Bytes of an earlier lap must not be taken for the record after the last.
        self.clean_to(RingPos(self.staged.0 + 1));
        let first = self.head_at(self.published);
        // All of the line, whatever the length: a copy of constant length, and nothing in it is secret to the peer.
        self.own.copy_in(first + HEAD_LEN, &self.first.body);
        here(Point::Publishing);
        // Pairs with the acquire in `RingReceiver::peek`: a reader that sees this head sees all that was staged.
        self.own.store_u64(first, head_word(self.published, self.first_len), Ordering::Release);
        here(Point::Published);
        self.demote();
        self.published = self.staged;
        // While the reader is busy: the lines written next come over into this processor's cache.
        let free_end = self.consumed.0 + self.ring.line_count();
        self.clean_to(RingPos(free_end.min(self.staged.0 + 1 + AHEAD)));
        self.fetch_to(RingPos(free_end.min(self.staged.0 + 1 + FETCHED_AHEAD)));
        true
    }

    #[inline]
    fn staged_end(&self) -> RingPos {
        self.staged
    }

    fn consumed(&mut self) -> Result<RingPos, RingViolation> {
        self.refresh()?;
        Ok(self.consumed)
    }

    #[inline]
    fn has_room(&mut self, len: usize) -> Result<bool, RingViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        if len > self.record_len_max() {
            return Ok(false);
        }
        self.make_room(line_count(len) as u64)
    }
}
