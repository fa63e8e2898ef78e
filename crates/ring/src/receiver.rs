//! The receiving end of a ring in shared memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tollfree_kill_points::{Point, here};
use tollfree_layout::RingPos;
use tollfree_layout::control::CONSUMED_OFF;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::record::{HEAD_EMPTY, HEAD_LEN, head_len, line_count};
use tollfree_region::{ReadMemory, WriteMemory};

use crate::geometry::Geometry;
use crate::record::{RecordRead, RecordReceiver, RingViolation};

/// Longest record, in lines, whose lines are fetched ahead of their reading. The hardware does as well for longer ones.
const PREFETCH_COUNT: u64 = 8;

/// Reads records from the ring in the peer's region. `W` is this side's region, which holds its cursor.
#[derive(Debug)]
pub struct RingReceiver<W, R> {
    own: Arc<W>,
    peer: Arc<R>,
    ring: Geometry,
    pos: RingPos,
    released: RingPos,
    /// Length of the record at `pos`, once its head was fetched and found good.
    peeked: Option<u32>,
    violation: Option<RingViolation>,
}

impl<W: WriteMemory, R: ReadMemory> RingReceiver<W, R> {
    /// A receiver at the beginning of a fresh ring.
    ///
    /// # Panics
    /// When `peer_ring` isn't within `peer` (the handshake checks what a peer announces), or `own` has no control
    /// page.
    pub fn new(own: Arc<W>, peer: Arc<R>, peer_ring: Geometry) -> Self {
        assert!(
            peer_ring.end() <= peer.len(),
            "the ring {peer_ring:?} ends beyond its region of {}",
            peer.len()
        );
        assert!(own.len() >= PAGE_LEN, "this side's region has no control page");
        RingReceiver {
            own,
            peer,
            ring: peer_ring,
            pos: RingPos(0),
            released: RingPos(0),
            peeked: None,
            violation: None,
        }
    }

    /// The same on its way since long: at `pos`, all released.
    #[cfg(test)]
    pub(crate) fn starting_at(mut self, pos: RingPos) -> Self {
        (self.pos, self.released) = (pos, pos);
        self.own.store_u64(CONSUMED_OFF, pos.0, Ordering::Relaxed);
        self
    }

    /// Where the next record's head is to be.
    #[inline(always)]
    fn head_off(&self) -> usize {
        self.ring.ring_off + self.ring.line_off(self.pos)
    }

    #[inline(always)]
    fn head(&self, order: Ordering) -> u64 {
        self.peer.load_u64(self.head_off(), order)
    }

    /// Fetches the head word at `pos` and checks the copy.
    #[inline(always)]
    fn fetch(&mut self) -> Result<Option<u32>, RingViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        // Pairs with the release in `RingSender::publish`.
        let word = self.head(Ordering::Acquire);
        if word == HEAD_EMPTY {
            return Ok(None);
        }
        match head_len(word, self.pos) {
            Some(len) if len as usize <= self.ring.record_len_max() => {
                self.prefetch(line_count(len as usize) as u64);
                here(Point::RecordSeen);
                Ok(Some(len))
            }
            claimed => Err(self.violate(word, claimed)),
        }
    }

    /// Has the rest of a short record, and the head of the one behind it, come over while the first line is looked at.
    #[inline(always)]
    fn prefetch(&self, lines: u64) {
        if lines <= PREFETCH_COUNT {
            for line in 1..=lines {
                let pos = RingPos(self.pos.0 + line);
                self.peer.prefetch(self.ring.ring_off + self.ring.line_off(pos));
            }
        }
    }

    #[cold]
    fn violate(&mut self, word: u64, claimed: Option<u32>) -> RingViolation {
        let pos = self.pos;
        let violation = match claimed {
            None => RingViolation::ForgedSequence { pos, word },
            Some(len) => RingViolation::ForgedLength { pos, len, max: self.ring.record_len_max() },
        };
        self.violation = Some(violation);
        violation
    }
}

impl<W: WriteMemory, R: ReadMemory> RecordReceiver for RingReceiver<W, R> {
    type Record<'a>
        = RingRecord<'a, R>
    where
        Self: 'a;

    #[inline]
    fn peek(&mut self) -> Result<Option<RingRecord<'_, R>>, RingViolation> {
        if self.peeked.is_none() {
            self.peeked = self.fetch()?;
        }
        Ok(self.peeked.map(|len| RingRecord {
            peer: &*self.peer,
            ring: self.ring,
            pos: self.pos,
            len: len as usize,
        }))
    }

    #[inline]
    fn advance(&mut self) {
        let len = self.peeked.take().expect("a record is peeked at before it is passed");
        self.pos.0 += line_count(len as usize) as u64;
        here(Point::RecordConsumed);
    }

    #[inline]
    fn is_empty(&self) -> bool {
        // Relaxed: `peek` loads again before anything is believed.
        self.peeked.is_none() && self.violation.is_none() && self.head(Ordering::Relaxed) == HEAD_EMPTY
    }

    #[inline]
    fn glance(&self, count: usize) -> usize {
        if self.peeked.is_some() || self.violation.is_some() {
            return count;
        }
        // Only the peer can change anything meanwhile.
        let (peer, off) = (&*self.peer, self.head_off());
        for left in (0..count).rev() {
            std::hint::spin_loop();
            if peer.load_u64(off, Ordering::Relaxed) != HEAD_EMPTY {
                return left;
            }
        }
        0
    }

    #[inline]
    fn release(&mut self) -> bool {
        if self.released == self.pos {
            return false;
        }
        here(Point::Releasing);
        // Pairs with the acquire in `RingSender::refresh`: all that was read was read before the lines are reused.
        self.own.store_u64(CONSUMED_OFF, self.pos.0, Ordering::Release);
        self.released = self.pos;
        here(Point::Released);
        true
    }

    #[inline]
    fn unreleased_lines(&self) -> usize {
        (self.pos.0 - self.released.0) as usize
    }

    #[inline]
    fn pos(&self) -> RingPos {
        self.pos
    }
}

/// A record in the peer's ring.
#[derive(Clone, Copy, Debug)]
pub struct RingRecord<'a, R> {
    peer: &'a R,
    ring: Geometry,
    pos: RingPos,
    len: usize,
}

impl<R> RingRecord<'_, R> {
    #[inline(always)]
    fn check(&self, at: usize, len: usize) {
        if at > self.len || len > self.len - at {
            outside(at, len, self.len);
        }
    }
}

// Apart, and with numbers: else they would be stored for the message at each reading.
#[cold]
#[inline(never)]
fn outside(at: usize, len: usize, total: usize) -> ! {
    panic!("{len} bytes at {at} are outside of a record of {total}");
}

impl<R: ReadMemory> RecordRead for RingRecord<'_, R> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn read(&self, at: usize, dst: &mut [u8]) {
        self.check(at, dst.len());
        let (off, before_end, _) = self.ring.split(self.pos, HEAD_LEN + at, dst.len());
        let (head, tail) = dst.split_at_mut(before_end);
        self.peer.copy_out(off, head);
        if !tail.is_empty() {
            self.peer.copy_out(self.ring.ring_off, tail);
        }
    }

    #[inline]
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        self.check(at, len);
        let (off, before_end, after) = self.ring.split(self.pos, HEAD_LEN + at, len);
        dst.reserve(len);
        self.peer.append_to(off, before_end, dst);
        if after > 0 {
            self.peer.append_to(self.ring.ring_off, after, dst);
        }
    }
}
