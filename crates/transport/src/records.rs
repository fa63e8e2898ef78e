//! Records between a session and the ring: how they go out, and what one that has come is to the session.

use bytes::BytesMut;
use tollfree_kill_points::{Point, here};
use tollfree_layout::{AreaIdx, ByteOff};
use tollfree_region::{PeerRegion, Region, WriteMemory as _};
use tollfree_ring::{RecordRead, RecordSender, RingSender, RingViolation, StageError};
use tollfree_session::{AreaFault, Full, Inbound, Outbound};

use crate::area::{AreaSender, AreasMapped};

/// The way out: ring and payload area.
pub(crate) struct Sending {
    pub(crate) ring: RingSender<Region, PeerRegion>,
    pub(crate) area: AreaSender,
    /// The ring found the peer's cursor forged while sending; the poll closes the session for it.
    pub(crate) violation: Option<RingViolation>,
    /// Something is staged that a sleeping peer is to be woken for.
    pub(crate) is_loud: bool,
}

impl Outbound for Sending {
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
    pub(crate) record: R,
    pub(crate) mapped: &'a AreasMapped,
    pub(crate) in_area: std::cell::Cell<bool>,
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
