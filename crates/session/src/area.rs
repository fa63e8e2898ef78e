//! Payload areas come and go: who may say what about which.
//!
//! ```text
//! creator                                 peer
//!   offer ───────AREA_OFFER n────────►  maps it (its fd comes over the socket)
//!   uses it ◄────AREA_ACCEPT n───────   or  ◄──AREA_REFUSE n── : the area is no more
//!   drop ────────AREA_DROP n─────────►  unmaps it
//! ```
//! A creator numbers its areas 0, 1, 2… and never uses a number again. Every offer is answered once, even where a drop
//! overtakes the answer; a drop of an area that was refused means nothing.

use bytes::BytesMut;
use tollfree_layout::AreaIdx;
use tollfree_layout::frame::{control, events};

use crate::error::{Closed, Violation};
use crate::frame::{Frame, head};
use crate::receive::{AreaEvent, Received};
use crate::stream::Watched;
use crate::{Inbound, Session};

/// Of a peer's parting words this many bytes are kept.
const REASON_LEN_MAX: usize = 200;

/// Which areas were offered.
#[derive(Debug, Default)]
pub(crate) struct AreaOffers {
    /// Those offered here that the peer has not answered.
    unanswered: Vec<AreaIdx>,
    /// The index that the peer's next one must have.
    next: u32,
}

impl AreaOffers {
    fn offered(&mut self, area: AreaIdx) {
        self.unanswered.push(area);
    }

    /// The peer answers an offer; `None`: there is none.
    fn answered(&mut self, area: AreaIdx) -> Option<()> {
        let place = self.unanswered.iter().position(|offered| *offered == area)?;
        self.unanswered.remove(place);
        Some(())
    }

    /// The peer offers an area; `None`: not with this number.
    fn came(&mut self, area: AreaIdx) -> Option<()> {
        if area.0 != self.next {
            return None;
        }
        self.next = self.next.checked_add(1)?;
        Some(())
    }

    fn has_come(&self, area: AreaIdx) -> bool {
        area.0 < self.next
    }
}

impl<T: Watched> Session<T> {
    /// Answers an offered payload area.
    pub fn answer_area(&mut self, area: AreaIdx, accept: bool) {
        self.push_control(if accept { control::AREA_ACCEPT } else { control::AREA_REFUSE }, area, 0);
    }

    /// Offers a payload area whose fd is already on its way.
    pub fn offer_area(&mut self, area: AreaIdx, len: u32) {
        if self.closed.is_none() {
            self.area_offers.offered(area);
        }
        self.push_control(control::AREA_OFFER, area, len);
    }

    /// Says that an area will not be referred to again.
    pub fn drop_area(&mut self, area: AreaIdx) {
        self.push_control(control::AREA_DROP, area, 0);
    }

    fn push_control(&mut self, code: u16, area: AreaIdx, len: u32) {
        if self.closed.is_some() {
            return;
        }
        let mut frame = head(area.0.into());
        frame.events = events::CONTROL;
        frame.code = code.into();
        frame.chunk_len = len.into();
        self.pending.push(frame);
    }

    pub(crate) fn receive_control(
        &mut self,
        frame: &Frame,
        record: &impl Inbound,
    ) -> Result<Received, Violation> {
        let misplaced = Violation::Control { code: frame.code };
        match frame.code {
            control::OBJECTS => return self.receive_objects(frame).map(|()| Received::Frame),
            // Without a pool none was sent, and none asked for: these are about none then.
            control::SEGMENTED_TAKEN => return self.receive_taken(frame).map(|()| Received::Frame),
            control::SEGMENTED_WANTED => return self.receive_wanted(frame).map(|()| Received::Frame),
            control::SEGMENTED_BYTES => return self.receive_bytes(frame, record).map(|()| Received::Frame),
            _ => {}
        }
        let area = AreaIdx(u32::try_from(frame.stream).map_err(|_| misplaced)?);
        let event = match frame.code {
            control::AREA_OFFER => {
                self.area_offers.came(area).ok_or(misplaced)?;
                AreaEvent::Offered { area, len: frame.chunk_len }
            }
            control::AREA_ACCEPT => {
                self.area_offers.answered(area).ok_or(misplaced)?;
                AreaEvent::Accepted(area)
            }
            control::AREA_REFUSE => {
                self.area_offers.answered(area).ok_or(misplaced)?;
                AreaEvent::Refused(area)
            }
            control::AREA_DROP if self.area_offers.has_come(area) => AreaEvent::Dropped(area),
            control::CLOSE if frame.stream == 0 => {
                let mut text = BytesMut::new();
                record.append_to(frame.headers_at(), frame.headers_len.min(REASON_LEN_MAX), &mut text);
                let text = String::from_utf8_lossy(&text).replace(|c: char| c.is_control(), "?");
                self.end_session(Closed::ByPeer(text));
                return Ok(Received::Closed);
            }
            _ => return Err(misplaced),
        };
        Ok(Received::Area(event))
    }
}
