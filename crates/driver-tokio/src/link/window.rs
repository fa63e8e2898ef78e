//! Two rings kept alike on two hosts: what this side's messages say, and what the peer's may do.
//!
//! # Layout
//! Messages are `tollfree_layout::device`. The *mirror* is memory of this process with the layout of the peer's region.
//! The session reads it like a region of a peer on this host, and the peer's messages are all that is written there.
//!
//! # States
//! Of a line of the sender's ring:
//!
//! ```text
//! published ──WRITE──► in the mirror ──the session passes it──► passed ──COMPLETE, or a WRITE back──► free
//! sender               receiver          receiver                         sender
//! ```
//!
//! # Who writes what
//! The session writes this side's region, and this module reads it. This module writes the mirror, and the session reads it. All of
//! it is under the session's lock.
//!
//! # Trust
//! A message is checked whole before any of it is written. Lines come in order, and only as many as were granted; a cursor never
//! goes back, nor beyond what was sent. What lies in the lines is checked by the reader of the ring, as on one host.
//!
//! # Crash
//! A message that did not come whole changes nothing. A lost connection loses both rings: the session ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, BytesMut};
use tollfree_layout::RingPos;
use tollfree_layout::control::{CONSUMED_OFF, LOAD_OFF, WAITING_OFF, Waiting};
use tollfree_layout::device::{HEAD_LEN, Head, kind};
use tollfree_layout::limits::LINE_LEN;
use tollfree_layout::record::HEAD_EMPTY;
use tollfree_region::{ReadMemory, WriteMemory};
use tollfree_ring::Geometry;
use tollfree_session::Violation;
use zerocopy::{FromBytes, IntoBytes};

/// Beats of the peer between two times for one of this side's, at most. Some may have been held up on their way.
const BEAT_COUNT_MAX: u32 = 64;

/// One side's ring as the peer has it, and the peer's as this side has it. `M` is this process's memory.
pub(crate) struct Window<M> {
    own: Arc<M>,
    own_ring: Geometry,
    mirror: M,
    ring: Geometry,
    /// End of what was written to the peer.
    sent: RingPos,
    /// How far the peer has passed that, as it said last.
    completed: RingPos,
    /// End of what the peer has written here.
    written: RingPos,
    /// How far the peer knows that this side has passed that.
    told: RingPos,
    /// The word by which the session finds that its publications are to be sent.
    waiting: Waiting,
    /// The beginning of a message.
    partial: BytesMut,
    beat_count: u32,
}

fn wrong<T>(what: &'static str) -> Result<T, Violation> {
    Err(Violation::Socket(what))
}

/// Offsets in a region of `count` lines from `at` on, as they lie before and behind the end of the ring: where, and how many bytes.
fn pieces(ring: Geometry, at: RingPos, count: u64) -> [(usize, usize); 2] {
    let off = (at.0 % ring.line_count()) as usize * LINE_LEN;
    let len = count as usize * LINE_LEN;
    let before_end = len.min(ring.ring_len - off);
    [(ring.ring_off + off, before_end), (ring.ring_off, len - before_end)]
}

impl<M: WriteMemory> Window<M> {
    pub(crate) fn new(own: Arc<M>, own_ring: Geometry, mirror: M, ring: Geometry) -> Window<M> {
        let mut window = Window {
            own,
            own_ring,
            mirror,
            ring,
            sent: RingPos(0),
            completed: RingPos(0),
            written: RingPos(0),
            told: RingPos(0),
            waiting: Waiting::default(),
            partial: BytesMut::new(),
            beat_count: 0,
        };
        window.rearm();
        window
    }

    /// As one that has sent, and passed, so many lines, and whose peer knows that.
    pub(crate) fn after(self, sent: RingPos, passed: RingPos) -> Window<M> {
        Window { sent, told: passed, written: passed, ..self }
    }

    /// What the session reads.
    pub(crate) fn mirror(&self) -> &M {
        &self.mirror
    }

    /// Bytes of a message that has not come whole.
    pub(crate) fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// Lines that the peer may still write; less than a ring's.
    pub(crate) fn granted(&self) -> u64 {
        (self.ring.line_count() - 1).saturating_sub(self.written.0 - self.told.0)
    }

    /// Has the session ring again: for what it publishes, and for what it passes.
    pub(crate) fn rearm(&mut self) {
        self.waiting = self.waiting.park(true);
        self.mirror.store_u32(WAITING_OFF, self.waiting.0, Ordering::Relaxed);
    }

    /// The bytes of the next message, if there is anything to say: all lines up to `published`, which end with a whole record.
    pub(crate) fn say(&mut self, published: RingPos, out: &mut BytesMut) -> bool {
        let consumed = RingPos(self.own.load_u64(CONSUMED_OFF, Ordering::Relaxed));
        let line_count = published.0 - self.sent.0;
        if line_count == 0 && consumed == self.told {
            return false;
        }
        let of_kind = if line_count == 0 { kind::COMPLETE } else { kind::WRITE };
        self.put(of_kind, line_count, consumed, out);
        for (at, len) in pieces(self.own_ring, self.sent, line_count) {
            self.own.append_to(at, len, out);
        }
        (self.sent, self.told) = (published, consumed);
        true
    }

    /// The bytes of a message that says nothing new.
    pub(crate) fn beat(&mut self, out: &mut BytesMut) {
        self.put(kind::BEAT, 0, self.told, out);
    }

    /// It is time for a beat of this side: the peer may send as many again until the next time.
    pub(crate) fn counted(&mut self) {
        self.beat_count = 0;
    }

    fn put(&self, of_kind: u8, line_count: u64, consumed: RingPos, out: &mut BytesMut) {
        let head = Head {
            kind: of_kind,
            zero: 0,
            line_count: (line_count as u16).into(),
            load: self.own.load_u32(LOAD_OFF, Ordering::Relaxed).into(),
            consumed: consumed.0.into(),
            at: self.sent.0.into(),
        };
        out.extend_from_slice(head.as_bytes());
    }

    /// Takes bytes that have come, in any pieces.
    ///
    /// # Errors
    /// What the peer has done that no peer does. Nothing may be taken afterwards.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        if !self.partial.is_empty() {
            let mut partial = std::mem::take(&mut self.partial);
            while !bytes.is_empty() {
                let wanted = self.missing(&partial)?.min(bytes.len());
                partial.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                if self.missing(&partial)? == 0 {
                    self.apply(&partial)?;
                    partial.clear();
                    break;
                }
            }
            self.partial = partial;
        }
        while !bytes.is_empty() {
            let len = HEAD_LEN + self.lines_behind(bytes)?;
            if bytes.len() < len {
                self.partial.extend_from_slice(bytes);
                break;
            }
            self.apply(&bytes[..len])?;
            bytes.advance(len);
        }
        Ok(())
    }

    /// Bytes that `partial` needs for its next step to be known: a whole head, or a whole message.
    fn missing(&self, partial: &[u8]) -> Result<usize, Violation> {
        Ok(match HEAD_LEN.checked_sub(partial.len()) {
            Some(missing) if missing > 0 => missing,
            _ => HEAD_LEN + self.lines_behind(partial)? - partial.len(),
        })
    }

    /// Length of the lines behind a head; 0 where not all of the head is there. No more than were granted are waited for.
    fn lines_behind(&self, bytes: &[u8]) -> Result<usize, Violation> {
        let Ok((head, _)) = Head::read_from_prefix(bytes) else { return Ok(0) };
        self.check(&head)?;
        Ok(usize::from(head.line_count.get()) * LINE_LEN)
    }

    fn check(&self, head: &Head) -> Result<(), Violation> {
        let (line_count, consumed) = (u64::from(head.line_count.get()), RingPos(head.consumed.get()));
        let is_new = match (head.kind, line_count) {
            (kind::WRITE, 1..) => true,
            (kind::COMPLETE, 0) => consumed != self.completed,
            (kind::BEAT, 0) => consumed == self.completed,
            _ => return wrong("a message of no kind that there is"),
        };
        if head.zero != 0 {
            return wrong("a message with bits that mean nothing");
        }
        if !is_new {
            return wrong("a message that completes what was completed, or a beat that completes");
        }
        if RingPos(head.at.get()) != self.written {
            return wrong("lines out of their turn");
        }
        // One line stays free, for the empty head behind the last record.
        if line_count > self.granted() {
            return wrong("more lines than were granted");
        }
        if consumed < self.completed || consumed > self.sent {
            return wrong("a completion of what was not written to the peer");
        }
        if head.kind == kind::BEAT && self.beat_count >= BEAT_COUNT_MAX {
            return wrong("more beats than any peer has reason to send");
        }
        Ok(())
    }

    /// Does what a whole message says.
    fn apply(&mut self, message: &[u8]) -> Result<(), Violation> {
        let Ok((head, mut lines)) = Head::read_from_prefix(message) else {
            return wrong("a message shorter than its head");
        };
        self.check(&head)?;
        if head.kind == kind::BEAT {
            self.beat_count += 1;
        }
        let line_count = u64::from(head.line_count.get());
        let end = RingPos(self.written.0 + line_count);
        if line_count > 0 {
            for (at, len) in pieces(self.ring, self.written, line_count) {
                let (piece, rest) = lines.split_at(len);
                self.mirror.copy_in(at, piece);
                lines = rest;
            }
            let [(behind, _), _] = pieces(self.ring, end, 1);
            self.mirror.store_u64(behind, HEAD_EMPTY, Ordering::Relaxed);
            self.written = end;
        }
        self.completed = RingPos(head.consumed.get());
        self.mirror.store_u64(CONSUMED_OFF, self.completed.0, Ordering::Release);
        self.mirror.store_u32(LOAD_OFF, head.load.get(), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
