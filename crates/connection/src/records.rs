//! Records between a session and the ring: how they go out, and what one that has come is to the session.

use bytes::BytesMut;
use tollfree_kill_points::{Point, here};
use tollfree_layout::{AreaIdx, ByteOff, RingPos};
use tollfree_region::{PeerRegion, Region, WriteMemory as _};
use tollfree_ring::{RecordRead, RecordSender, RingSender, RingViolation, StageError};
use tollfree_session::{AreaFault, Full, Inbound, Outbound};

use crate::area::{AreaSender, AreasMapped};

/// The way out: ring and payload area.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: RingSender<Region, PeerRegion>,
    area: AreaSender,
    /// The ring found the peer's cursor forged while sending; the poll closes the session for it.
    violation: Option<RingViolation>,
    /// Something is staged that a sleeping peer is to be woken for.
    is_loud: bool,
}

impl Sender {
    pub(crate) fn new(ring: RingSender<Region, PeerRegion>) -> Sender {
        Sender { ring, area: AreaSender::new(), violation: None, is_loud: false }
    }

    #[inline]
    pub(crate) fn area(&mut self) -> &mut AreaSender {
        &mut self.area
    }

    /// Whether there is an area that could be given up one day.
    #[inline]
    pub(crate) fn has_area(&self) -> bool {
        self.area.is_live()
    }

    #[inline]
    pub(crate) fn has_violation(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn take_violation(&mut self) -> Option<RingViolation> {
        self.violation.take()
    }

    /// Makes everything staged visible. Whether there was something.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Likewise. Whether there was something that a sleeping peer is to be woken for.
    #[inline]
    pub(crate) fn publish_loud(&mut self) -> bool {
        let is_loud = std::mem::take(&mut self.is_loud);
        self.ring.publish() && is_loud
    }

    #[inline]
    pub(crate) fn published(&self) -> RingPos {
        self.ring.published()
    }

    /// Bytes of the ring that the peer has not given back, and the ring's length.
    pub(crate) fn backlog(&self) -> (u64, u64) {
        self.ring.backlog()
    }

    /// How far the peer has given back what it read, and whether that is less than what was published.
    pub(crate) fn unread(&self) -> (u64, bool) {
        self.ring.unread()
    }

    /// Whether the longest record finds room; also where the peer has forged its cursor, which the next attempt finds.
    pub(crate) fn has_room_for_longest(&mut self) -> bool {
        let most = self.ring.record_len_max();
        self.ring.has_room(most).unwrap_or(true)
    }
}

impl Outbound for Sender {
    #[inline]
    fn record_len_max(&self) -> usize {
        self.ring.record_len_max()
    }

    #[inline]
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        self.is_loud = true;
        self.stage_quietly(parts)
    }

    #[inline]
    fn stage_quietly(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        match self.ring.stage(parts) {
            Ok(()) => {
                self.area.bind(self.ring.staged_end());
                Ok(())
            }
            Err(StageError::Peer(violation)) => {
                self.violation = Some(violation);
                Err(Full)
            }
            Err(_) => Err(Full),
        }
    }

    fn area_chunk_max(&mut self, wanted: usize) -> usize {
        if !self.area.is_live() {
            self.area.want();
            return 0;
        }
        let consumed = match self.ring.consumed() {
            Ok(consumed) => consumed,
            Err(violation) => {
                self.violation = Some(violation);
                return 0;
            }
        };
        self.area.chunk_len_max(consumed).min(wanted)
    }

    fn fill_in_area(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        let placed = self.area.place(len, |region, at| region.fill(at, len, fill));
        here(Point::ChunkPlaced);
        placed
    }

    fn put_in_area(&mut self, chunk: &[u8]) -> Option<(AreaIdx, ByteOff)> {
        let placed = self.area.place(chunk.len(), |region, at| region.copy_in(at, chunk));
        here(Point::ChunkPlaced);
        placed
    }

    fn take_back(&mut self) {
        self.area.take_back();
    }
}

/// A record and the areas it may point into.
pub(crate) struct Arrived<'a, R> {
    record: R,
    mapped: &'a AreasMapped,
    in_area: std::cell::Cell<bool>,
}

impl<'a, R> Arrived<'a, R> {
    #[inline]
    pub(crate) fn new(record: R, mapped: &'a AreasMapped) -> Arrived<'a, R> {
        Arrived { record, mapped, in_area: false.into() }
    }

    /// Whether anything lay in an area, so that the record's room is that of more than itself.
    #[inline]
    pub(crate) fn was_in_area(&self) -> bool {
        self.in_area.get()
    }
}

impl<R: RecordRead> Inbound for Arrived<'_, R> {
    #[inline]
    fn record_len(&self) -> usize {
        self.record.len()
    }

    #[inline]
    fn read(&self, at: usize, dst: &mut [u8]) {
        self.record.read(at, dst);
    }

    #[inline]
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        self.record.append_to(at, len, dst);
    }

    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        self.in_area.set(true);
        self.mapped.append(area, at, len, dst)?;
        here(Point::ChunkCopied);
        Ok(())
    }

    fn pass_over_area(&self) {
        self.in_area.set(true);
    }
}
