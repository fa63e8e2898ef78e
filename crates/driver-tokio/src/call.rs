//! One call, as both sides hold it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tollfree_layout::StreamId;
use tollfree_rendezvous::PeerIdentity;
use tollfree_session::{self as session, Closed, Outgoing, Progress, SendError};

use crate::claim::Claim;
use crate::cooperative_budget::CooperativeBudget;
use crate::core::Core;
use crate::runtime_waiters::{StreamSlots, WaitKey};
use crate::shared::{Shared, Socket};

/// What has come on a call since its reader looked last.
pub type Incoming = session::Incoming<Claim>;
/// Part of what a peer says on a call.
pub type Part = session::Part<Claim>;
/// Part of a received message.
pub type Chunk = session::Chunk<Claim>;
/// One thing of a [`Part`].
pub type IncomingPiece = session::IncomingPiece<Claim>;

/// One call. Dropping it before it has ended cancels it at the peer.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    /// Ended, and let go of.
    pub(crate) gone: AtomicBool,
    /// Its task has something to say before it looks for more.
    speaks: AtomicBool,
    /// What is read may be answered before more is read.
    answers: AtomicBool,
    sends: CooperativeBudget,
}

/// Long parts of a message that go out for one taking of the lock.
const PARTS_COUNT: usize = 8;
/// gRPC status CANCELLED.
pub(crate) const CANCELLED: u16 = 1;

impl Stream {
    #[inline]
    pub(crate) fn new(shared: Arc<Shared>, id: StreamId) -> Stream {
        Stream {
            shared,
            id,
            gone: AtomicBool::new(false),
            speaks: AtomicBool::new(false),
            answers: AtomicBool::new(false),
            sends: CooperativeBudget::default(),
        }
    }

    /// Who is at the other end of its session.
    pub fn peer(&self) -> PeerIdentity {
        self.shared.identity
    }

    /// SegmentedMessages sent in its session that the peer has not taken hold of yet.
    pub fn segmented_messages_in_flight(&self) -> usize {
        self.shared.enter().map_or(0, |core| core.session().segmented_messages_in_flight())
    }

    /// As [`crate::Attachment::look_for_taken`].
    pub fn look_for_taken(&self) -> bool {
        self.shared.look_for_taken()
    }

    /// Its number in the session, for logs.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Sends what `outgoing` holds; ready when all of it is on its way.
    ///
    /// # Errors
    /// [`SendError::Ended`] when the call has ended meanwhile.
    pub fn poll_send(&self, cx: &mut Context<'_>, outgoing: &mut Outgoing) -> Poll<Result<(), SendError>> {
        self.sends.poll(cx, |cx| self.poll_send_now(cx, outgoing))
    }

    fn poll_send_now(&self, cx: &mut Context<'_>, outgoing: &mut Outgoing) -> Poll<Result<(), SendError>> {
        let key = WaitKey::Write(self.id);
        let polled = self.shared.poll_wait(cx, key, false, |core, socket| {
            core.turns.sends(self.id);
            match core.send(self.id, outgoing, socket) {
                Ok(Progress::Done) => {
                    if core.settle(self.id, socket) && !self.gone.swap(true, Ordering::Relaxed) {
                        core.forget(self.id, CANCELLED, socket);
                    }
                    Some(Ok(()))
                }
                Err(error) => Some(Err(Some(error))),
                // The next part of a long message goes when others have had their turn.
                Ok(Progress::Partly) => Some(Err(None)),
                Ok(_) => None,
            }
        });
        match polled {
            Poll::Ready(Ok(Err(None))) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Ok(Err(Some(error)))) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(Ok(()))) => Poll::Ready(Ok(())),
            Poll::Ready(Err(closed)) => Poll::Ready(Err(closed.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// A server's task asks its handler for an answer: while something `is_at_hand`, and once a message has been read since, that is to be said
    /// before the client can have any more to say. [`poll_incoming`](Stream::poll_incoming) gives what has come then, and does not look out for more.
    pub fn answers(&self, is_at_hand: bool) {
        self.answers.store(true, Ordering::Relaxed);
        self.speaks.store(is_at_hand, Ordering::Relaxed);
    }

    /// What the peer has sent on this call, as much of it as makes one [`Incoming`]: of the usual unary call everything, for
    /// one taking of the lock. Not to be asked again once an end has come that nothing follows.
    ///
    /// # Errors
    /// Ready with the reason in a child of `fork`. A session that ends shows as the [`End`](crate::End) of the call.
    pub fn poll_incoming(&self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Closed>> {
        let speaks = self.speaks.load(Ordering::Relaxed);
        let polled = self.shared.poll_read(cx, self.id, speaks, |core| self.take_incoming(core));
        if polled.is_ready() && self.answers.load(Ordering::Relaxed) {
            self.speaks.store(true, Ordering::Relaxed);
        }
        polled
    }

    /// What has come already, as of [`poll_incoming`](Stream::poll_incoming): for a caller that asks again soon, and does not wait.
    ///
    /// # Errors
    /// The reason in a child of `fork`.
    pub fn try_incoming(&self) -> Result<Option<Incoming>, Closed> {
        let mut core = self.shared.enter()?;
        core.poll(&self.shared.socket);
        let incoming = self.take_incoming(&mut core);
        if incoming.is_some() && core.session().has_pending() {
            core.flush(&self.shared.socket);
        }
        Ok(incoming)
    }

    #[inline(always)]
    fn take_incoming(&self, core: &mut Core) -> Option<Incoming> {
        let incoming =
            core.session_mut().take_with(self.id, |segmented| Claim::new(&self.shared, segmented))?;
        if incoming.is_last() {
            self.gone.store(true, Ordering::Relaxed);
            core.wake_ready();
        }
        Some(incoming)
    }

    /// Why the session of this call is over, if it is.
    pub fn session_closed(&self) -> Option<Closed> {
        match self.shared.enter() {
            Ok(core) => core.session().closed().cloned(),
            Err(closed) => Some(closed),
        }
    }

    /// Ready when the call has ended, so that a task that works for it can stop. Does not look at the ring itself: some
    /// other task waits on the session (a server's always does).
    pub fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut core) = self.shared.enter() else { return Poll::Ready(()) };
        if !core.session().is_live(self.id) {
            return Poll::Ready(());
        }
        if let Some(slot) = core.slot(WaitKey::Write(self.id)) {
            slot.wait(cx.waker());
        }
        Poll::Pending
    }

    /// Ends the call in both directions, and leaves it to its reader to find out: for a sender beside one. The peer
    /// sees `code`, a gRPC status. Does nothing to a call that has ended.
    pub fn abort(&self, code: u16) {
        self.end_by(|session| session.cancel(self.id, code));
    }

    /// As [`abort`](Stream::abort), by a server that has said something: the client reads what it has received, and then `code`.
    pub fn give_up(&self, code: u16) {
        self.end_by(|session| session.give_up(self.id, code));
    }

    fn end_by(&self, end: impl FnOnce(&mut session::Session<StreamSlots>)) {
        if !self.gone.load(Ordering::Relaxed)
            && let Ok(mut core) = self.shared.enter()
        {
            end(core.session_mut());
            core.wake_ready();
            if core.session().has_pending() {
                core.flush(&self.shared.socket);
            }
            core.leave_to_driver();
        }
    }

    /// Ends the call in both directions; the peer sees `code`, a gRPC status. Does nothing the second time. A reader is
    /// not told: it is the reader who lets go of a call.
    pub fn cancel(&self, code: u16) {
        if !self.gone.load(Ordering::Relaxed)
            && !self.gone.swap(true, Ordering::Relaxed)
            && let Ok(mut core) = self.shared.enter()
        {
            core.forget(self.id, code, &self.shared.socket);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel(CANCELLED);
    }
}

impl Core {
    /// Sends as much of an outgoing as there is room for.
    pub(crate) fn send(
        &mut self,
        id: StreamId,
        outgoing: &mut Outgoing,
        socket: &Socket,
    ) -> Result<Progress, SendError> {
        let is_queue = self.is_queue();
        if is_queue && let Some(progress) = self.waits_behind(id, outgoing)? {
            return Ok(progress);
        }
        let mut progress = self.connection.send(id, outgoing);
        for _ in 1..PARTS_COUNT {
            if progress != Ok(Progress::Partly) {
                break;
            }
            self.flush(socket);
            progress = match self.connection.send(id, outgoing) {
                Ok(Progress::NeedRoom) => Ok(Progress::RanOut),
                progress => progress,
            };
        }
        self.flush_soon(socket);
        if is_queue || matches!(progress, Ok(Progress::NeedRoom | Progress::RanOut)) {
            self.tried_to_send(id, &progress);
        }
        progress
    }

    /// What a server's last word means for its call, once that is on its way. Whether the call is over.
    pub(crate) fn settle(&mut self, id: StreamId, socket: &Socket) -> bool {
        let is_settled = self.session_mut().settle(id);
        if !is_settled && self.session().has_pending() {
            self.flush(socket);
        }
        is_settled
    }
}
