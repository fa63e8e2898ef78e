//! SegmentedMessages: messages of which parts lie in a pool, and how long their sender keeps those.
//!
//! ```text
//! sender                                   receiver
//!   keeps the parts of segmented message n
//!   first chunk, SEGMENTED ──────────────────►  counts: this is segmented message n
//!   …further chunks ────────────────────►  takes hold of the parts, or has no use for them
//!   lets go of them ◄──── SEGMENTED_TAKEN n
//! ```
//! Both sides count the segmented messages of a direction from 0, in the order of their first chunks. Each is taken exactly once, in any
//! order, also where its stream has ended: a segmented message may outlive its call. What the parts are is not known here, but for their
//! bytes: a receiver that can't take hold of them asks for these instead ([`segmented_bytes`](crate::segmented_bytes)).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use tollfree_kill_points::{Point, here};
use tollfree_layout::SegmentedIdx;
use tollfree_layout::frame::{control, events};
use zerocopy::IntoBytes;

use crate::frame::{Frame, head};
use crate::recording::Log;
use crate::segmented_bytes::{Coming, Giving};
use crate::stream::Watched;
use crate::{Full, Outbound, Session, Violation};

/// The parts of a segmented message that are not in it: the bytes of its refs, in their order.
pub trait Parts: Send + Sync {
    /// The bytes of a part, which never change; `None` behind the last.
    fn part(&self, idx: usize) -> Option<&[u8]>;
}

/// A segmented message without parts.
impl Parts for () {
    fn part(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

/// A segmented message with one part.
impl Parts for Bytes {
    fn part(&self, idx: usize) -> Option<&[u8]> {
        (idx == 0).then_some(self)
    }
}

/// One part each.
struct Each<A, P>(A, PhantomData<fn() -> P>);

impl<A: AsRef<[P]> + Send + Sync, P: AsRef<[u8]>> Parts for Each<A, P> {
    fn part(&self, idx: usize) -> Option<&[u8]> {
        self.0.as_ref().get(idx).map(AsRef::as_ref)
    }
}

impl<P: Parts + ?Sized> Parts for Arc<P> {
    fn part(&self, idx: usize) -> Option<&[u8]> {
        P::part(self, idx)
    }
}

/// What has to stay as it is until the peer has taken a segmented message.
#[derive(Clone)]
pub struct Keep(Arc<dyn Parts>);

impl Keep {
    /// What keeps the parts of a segmented message.
    pub fn new(parts: impl Parts + 'static) -> Keep {
        Keep(Arc::new(parts))
    }

    /// What keeps each of several parts.
    pub fn each<P: AsRef<[u8]> + 'static>(parts: impl AsRef<[P]> + Send + Sync + 'static) -> Keep {
        Keep::new(Each(parts, PhantomData))
    }

    pub(crate) fn part(&self, idx: usize) -> Option<&[u8]> {
        self.0.part(idx)
    }

    /// Bytes of all parts.
    pub(crate) fn len(&self) -> u64 {
        (0..).map_while(|idx| self.part(idx)).map(|part| part.len() as u64).sum()
    }
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keep").field("clones", &Arc::strong_count(&self.0)).finish()
    }
}

/// The segmented messages of a session, both ways.
#[derive(Debug, Default)]
pub(crate) struct SegmentedMessages {
    /// Both sides are members of one pool.
    pub(crate) agreed: bool,
    /// Sent from `sent_first` on; those that the peer has taken are `None`.
    sent: VecDeque<Option<Sent>>,
    sent_first: u64,
    in_flight: usize,
    /// Those of them whose bytes the peer wants, in the order of their turns.
    pub(crate) wanted: VecDeque<Giving>,
    /// The peer has asked for the bytes of what it took last, or takes now.
    pub(crate) last_was_asked: bool,
    /// Received ones whose bytes were asked for, until the last of them has come.
    pub(crate) coming: HashMap<u64, Coming>,
    /// Of these, those that somebody waits for and whose last byte has come.
    pub(crate) came: Vec<SegmentedIdx>,
    received_count: u64,
    /// A client's: it has cancelled a call that was the last but for later ones, and the server may have sent segmented messages on it
    /// before it learnt so.
    strays_before: Option<u64>,
    /// Runs of segmented messages taken here that the peer has not been told about: the first, and how many.
    taken: VecDeque<(u64, u32)>,
    /// Taken by the peer; to be dropped when the session is not locked.
    spent: Vec<Keep>,
}

/// A segmented message that the peer has not taken.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) keep: Keep,
    /// The peer has asked for its bytes.
    pub(crate) is_asked: bool,
}

impl SegmentedMessages {
    /// The first chunk of a segmented message is staged.
    pub(crate) fn sent(&mut self, keep: Keep) {
        self.sent.push_back(Some(Sent { keep, is_asked: false }));
        self.in_flight += 1;
    }

    /// A segmented message that was sent and that the peer has not taken.
    pub(crate) fn kept_mut(&mut self, segmented: u64) -> Option<&mut Sent> {
        let idx = usize::try_from(segmented.checked_sub(self.sent_first)?).ok()?;
        self.sent.get_mut(idx)?.as_mut()
    }

    /// The first chunk of a segmented message has come.
    pub(crate) fn received(&mut self) -> SegmentedIdx {
        self.received_count += 1;
        SegmentedIdx(self.received_count - 1)
    }

    /// A received segmented message needs its sender no longer.
    pub(crate) fn take(&mut self, segmented: SegmentedIdx) {
        match self.taken.back_mut() {
            Some((first, count))
                if first.wrapping_add((*count).into()) == segmented.0 && *count < u32::MAX =>
            {
                *count += 1;
            }
            _ => self.taken.push_back((segmented.0, 1)),
        }
    }

    /// The peer has taken `count` segmented messages from `first` on. `None`: it had not got them, or had taken them before.
    fn let_go(&mut self, first: u64, count: u32) -> Option<()> {
        let start = usize::try_from(first.checked_sub(self.sent_first)?).ok()?;
        let end = start.checked_add(count as usize).filter(|end| *end <= self.sent.len())?;
        for sent in self.sent.range_mut(start..end) {
            let Sent { keep, is_asked } = sent.take()?;
            self.spent.push(keep);
            self.in_flight -= 1;
            self.last_was_asked = is_asked;
        }
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.sent_first += 1;
        }
        Some(())
    }

    /// A client has cancelled a call; the last one opened is `last_id`.
    pub(crate) fn cancelled(&mut self, last_id: u64) {
        if self.agreed {
            self.strays_before = Some(last_id);
        }
    }

    /// A server has said something on a call. If that was opened after a cancellation, the server has read that before, and
    /// what it sent on the cancelled call has come.
    pub(crate) fn heard_of(&mut self, stream: u64) {
        if self.strays_before.is_some_and(|last_id| stream > last_id) {
            self.strays_before = None;
        }
    }

    /// The session is over: nobody takes anything any more, nor is told.
    pub(crate) fn end(&mut self) {
        self.spent.extend(self.sent.drain(..).flatten().map(|sent| sent.keep));
        self.in_flight = 0;
        self.strays_before = None;
        self.taken.clear();
        self.wanted.clear();
        self.coming.clear();
        self.came.clear();
    }

    pub(crate) fn has_taken(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Stages what the peer has not been told, as far as there is room.
    pub(crate) fn stage(&mut self, out: &mut impl Outbound, log: Log<'_>) -> Result<(), Full> {
        while let Some((first, count)) = self.taken.front() {
            let mut frame = head(*first);
            frame.events = events::CONTROL;
            frame.code = control::SEGMENTED_TAKEN.into();
            frame.chunk_len = (*count).into();
            out.stage_quietly(&[frame.as_bytes()])?;
            log.sent(&frame);
            here(Point::NoticeStaged);
            self.taken.pop_front();
        }
        Ok(())
    }
}

impl<T: Watched> Session<T> {
    /// Both sides are members of one pool: messages may be segmented messages.
    #[must_use]
    pub fn with_segmented(mut self, agreed: bool) -> Session<T> {
        self.segmented_messages.agreed = agreed;
        self
    }

    /// A segmented message that came with a chunk needs its sender no longer: hold was taken of its parts, or nobody wants them. To be
    /// said once for each.
    pub fn take_segmented(&mut self, segmented: SegmentedIdx) {
        if self.closed.is_none() {
            self.segmented_messages.abandon(segmented);
            self.segmented_messages.take(segmented);
        }
    }

    /// Whether segmented messages may still come that nobody waits for, and whose parts their sender keeps until it is told not to.
    pub fn expects_strays(&self) -> bool {
        self.segmented_messages.strays_before.is_some()
    }

    /// SegmentedMessages sent that the peer has not taken.
    pub fn segmented_messages_in_flight(&self) -> usize {
        self.segmented_messages.in_flight
    }

    /// The oldest segmented message that the peer has not taken, by its number.
    pub fn oldest_segmented(&self) -> Option<u64> {
        // What is taken at the front is forgotten at once.
        (self.segmented_messages.in_flight > 0).then_some(self.segmented_messages.sent_first)
    }

    /// What need not be kept any more, to be dropped when it suits: that may take a while.
    pub fn take_spent(&mut self) -> Vec<Keep> {
        std::mem::take(&mut self.segmented_messages.spent)
    }

    /// Whether [`take_spent`](Self::take_spent) has something to give.
    pub fn has_spent(&self) -> bool {
        !self.segmented_messages.spent.is_empty()
    }

    pub(crate) fn receive_taken(&mut self, frame: &Frame) -> Result<(), Violation> {
        let misplaced = Violation::Control { code: frame.code };
        if frame.chunk_len == 0 {
            return Err(misplaced);
        }
        self.segmented_messages.let_go(frame.stream, frame.chunk_len).ok_or(misplaced)?;
        self.stop_giving(frame.stream, frame.chunk_len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(segmented_messages: &SegmentedMessages) -> Vec<u64> {
        let kept = segmented_messages.sent.iter().enumerate().filter(|(_, keep)| keep.is_some());
        kept.map(|(idx, _)| segmented_messages.sent_first + idx as u64).collect()
    }

    #[test]
    fn segmented_messages_are_let_go_of_once_and_in_any_order() {
        let mut segmented_messages = SegmentedMessages::default();
        let parts: Vec<Arc<()>> = (0..5).map(|_| Arc::new(())).collect();
        parts.iter().for_each(|part| segmented_messages.sent(Keep::new(part.clone())));
        assert!(segmented_messages.let_go(1, 2).is_some());
        assert_eq!((kept(&segmented_messages), segmented_messages.in_flight), (vec![0, 3, 4], 3));
        assert!(segmented_messages.let_go(0, 1).is_some());
        assert_eq!(segmented_messages.sent_first, 3, "what is behind both is forgotten");
        for (first, count) in [(0, 1), (2, 1), (5, 1), (4, 2), (u64::MAX, 1), (3, u32::MAX)] {
            assert!(segmented_messages.let_go(first, count).is_none(), "{count} from {first} on");
        }
        assert!(
            segmented_messages.let_go(3, 1).is_some() && segmented_messages.let_go(3, 1).is_none(),
            "twice"
        );
        let spent = std::mem::take(&mut segmented_messages.spent).len();
        assert_eq!((spent, kept(&segmented_messages)), (4, vec![4]));
        segmented_messages.end();
        assert_eq!((segmented_messages.spent.len(), segmented_messages.in_flight), (1, 0));
        drop(segmented_messages);
        assert!(parts.iter().all(|part| Arc::strong_count(part) == 1));
    }

    #[test]
    fn what_was_taken_one_after_the_other_is_said_in_one_frame() {
        let mut segmented_messages = SegmentedMessages::default();
        for segmented in [0, 1, 2, 7, 8, 4] {
            segmented_messages.take(SegmentedIdx(segmented));
        }
        assert_eq!(segmented_messages.taken, [(0, 3), (7, 2), (4, 1)]);
    }
}
