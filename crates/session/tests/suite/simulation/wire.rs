//! One direction of a session in memory: a bounded queue of records and a bounded payload area.
//!
//! As in a ring, records that are staged can't be received before they are published, and what was received takes up room until
//! it is released.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, flags};
use tollfree_layout::{AreaIdx, ByteOff};
use tollfree_session::{AreaFault, Full, Inbound, Outbound};
use zerocopy::FromBytes;

/// What one end sends with and the other receives from.
pub(crate) struct Wire {
    record_len_max: usize,
    /// Bytes of records that fit at once.
    ring_len: usize,
    used: usize,
    records: VecDeque<Vec<u8>>,
    /// The first of them that the receiver can see.
    published: usize,
    /// Bytes of records that were received, and of chunks in areas that they refer to; the room of neither is free yet.
    unreleased: usize,
    unreleased_chunks: usize,
    /// Descriptors of areas that no offer was received for.
    descriptors: usize,
    /// Records ever staged.
    pub(crate) staged_count: u64,
    /// The area that the sender uses now.
    pub(crate) area: Option<AreaIdx>,
    /// Areas that the receiver has mapped.
    pub(crate) mapped: BTreeSet<u32>,
    memory: BTreeMap<u32, Vec<u8>>,
    /// Chunks in areas whose records were not received, in the order of the records.
    placed: VecDeque<(AreaIdx, usize, usize)>,
}

/// A record on its way into a session.
pub(crate) struct Fetched<'a> {
    pub(crate) bytes: Vec<u8>,
    wire: &'a Wire,
    in_area: Cell<bool>,
}

pub(crate) fn head_of(record: &[u8]) -> FrameHead {
    *FrameHead::ref_from_bytes(&record[..FRAME_HEAD_LEN]).unwrap()
}

impl Wire {
    pub(crate) fn new(record_len_max: usize) -> Wire {
        Wire {
            record_len_max,
            ring_len: 2 * record_len_max + 144,
            used: 0,
            records: VecDeque::new(),
            published: 0,
            unreleased: 0,
            unreleased_chunks: 0,
            descriptors: 0,
            staged_count: 0,
            area: None,
            mapped: BTreeSet::new(),
            memory: BTreeMap::new(),
            placed: VecDeque::new(),
        }
    }

    pub(crate) fn add_area(&mut self, area: AreaIdx, len: usize) {
        self.memory.insert(area.0, vec![0; len]);
        self.descriptors += 1;
    }

    /// Descriptors that wait for their offers.
    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn descriptor_count(&self) -> usize {
        self.descriptors
    }

    /// The receiver takes the descriptor that belongs to an offer.
    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn take_descriptor(&mut self) {
        self.descriptors = self.descriptors.checked_sub(1).expect("an offer follows its descriptor");
    }

    /// Whether the longest record would find room now.
    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn has_room(&self) -> bool {
        self.used + lines_len(self.record_len_max) <= self.ring_len
    }

    /// Lets the receiver see all that is staged.
    pub(crate) fn publish(&mut self) {
        self.published = self.records.len();
    }

    /// Records that the receiver can see.
    #[allow(dead_code, reason = "for the hostile peer, who shares this file")]
    pub(crate) fn has_published(&self) -> bool {
        self.published > 0
    }

    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn unmap(&mut self, area: AreaIdx) {
        self.mapped.remove(&area.0);
        self.memory.remove(&area.0);
    }

    /// Chunks whose records were neither released nor taken back.
    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn placed_count(&self) -> usize {
        self.placed.len()
    }

    /// The records that are on their way, the receiver can see them or not.
    #[allow(dead_code, reason = "for the simulation; the hostile peer shares this file")]
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = FrameHead> {
        self.records.iter().map(|record| head_of(record))
    }

    /// Takes the oldest record that is published, if there is one, and shows it to `receive`. Releases it as the transport does:
    /// when the session has looked into a payload area, or passed over one, and when a quarter of the ring is unreleased.
    pub(crate) fn fetch<R>(&mut self, receive: impl FnOnce(&Fetched<'_>) -> R) -> Option<R> {
        self.published = self.published.checked_sub(1)?;
        let bytes = self.records.pop_front()?;
        self.unreleased += lines_len(bytes.len());
        self.unreleased_chunks += usize::from(head_of(&bytes).flags & flags::IN_AREA != 0);
        let record = self.fetched(bytes);
        let received = receive(&record);
        if record.in_area.get() || 4 * self.unreleased >= self.ring_len {
            self.used -= std::mem::take(&mut self.unreleased);
            self.placed.drain(..std::mem::take(&mut self.unreleased_chunks));
        }
        Some(received)
    }

    /// Bytes as if they were a record of this wire.
    pub(crate) fn fetched(&self, bytes: Vec<u8>) -> Fetched<'_> {
        Fetched { bytes, wire: self, in_area: Cell::new(false) }
    }

    /// Room for `len` bytes in the area: behind the last chunk, or before the first.
    fn find_room(&self, area: AreaIdx, len: usize) -> Option<usize> {
        let area_len = self.memory.get(&area.0)?.len();
        let mut placed = self.placed.iter().filter(|(idx, ..)| *idx == area);
        let Some(first) = placed.next() else { return (len <= area_len).then_some(0) };
        let last = placed.next_back().unwrap_or(first);
        let (start, end) = (first.1, last.1 + last.2);
        let wrapped = last.1 < start;
        match wrapped {
            true => (end + len <= start).then_some(end),
            false if end + len <= area_len => Some(end),
            false => (len <= start).then_some(0),
        }
    }
}

fn lines_len(len: usize) -> usize {
    tollfree_layout::record::line_count(len) * tollfree_layout::limits::LINE_LEN
}

impl Outbound for Wire {
    fn record_len_max(&self) -> usize {
        self.record_len_max
    }

    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        let record = parts.concat();
        let len = lines_len(record.len());
        if record.len() > self.record_len_max || self.used + len > self.ring_len {
            return Err(Full);
        }
        self.used += len;
        self.staged_count += 1;
        self.records.push_back(record);
        Ok(())
    }

    fn area_chunk_max(&mut self, wanted: usize) -> usize {
        let Some(area) = self.area else { return 0 };
        wanted.min(self.memory[&area.0].len() / 4)
    }

    fn fill_in_area(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        let area = self.area?;
        let at = self.find_room(area, len)?;
        fill(&mut self.memory.get_mut(&area.0)?[at..at + len]);
        self.placed.push_back((area, at, len));
        Some((area, ByteOff(at as u64)))
    }

    fn take_back(&mut self) {
        self.placed.pop_back().expect("something was placed");
    }
}

impl Inbound for Fetched<'_> {
    fn record_len(&self) -> usize {
        self.bytes.len()
    }

    fn read(&self, at: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.bytes[at..at + dst.len()]);
    }

    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        dst.extend_from_slice(&self.bytes[at..at + len]);
    }

    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        self.in_area.set(true);
        let memory = self.wire.memory.get(&area.0).filter(|_| self.wire.mapped.contains(&area.0));
        let at = usize::try_from(at.0).map_err(|_| AreaFault)?;
        let end = at.checked_add(len).ok_or(AreaFault)?;
        dst.extend_from_slice(memory.and_then(|memory| memory.get(at..end)).ok_or(AreaFault)?);
        Ok(())
    }

    fn pass_over_area(&self) {
        self.in_area.set(true);
    }
}
