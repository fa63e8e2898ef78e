//! Calls as a server gets them.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tollfree_layout::MethodIdx;
use tollfree_session::{self as session, Closed, End, Outgoing, Progress, SendError, SingleFrame};

use crate::attachment::Attachment;
use crate::call::{CANCELLED, Chunk, Incoming, Stream};
use crate::claim::Claim;
use crate::core::Core;
use crate::runtime_waiters::WaitKey;
use crate::shared::Shared;

impl Attachment {
    /// Waits for the next call, and puts it into `place`, from which it need not be moved to be answered (server). While
    /// further ones are at hand, what is sent on this session is held back for a few sends, so that the replies of a
    /// batch go out together, unless its handlers take long: ask again soon, or [`flush`](Attachment::flush).
    ///
    /// # Errors
    /// Ready with the reason when the session is over.
    pub fn poll_accept<'a>(
        &'a self,
        cx: &mut Context<'_>,
        place: &mut Option<Accepted<'a>>,
    ) -> Poll<Result<(), Closed>> {
        let polled = self.accepts.poll(cx, |cx| {
            self.shared.poll_wait(cx, WaitKey::Accept, false, |core, _| {
                match core.accept(&self.shared, place) {
                    true => Some(Ok(())),
                    false => core.session().closed().cloned().map(Err),
                }
            })
        });
        polled.map(|result| result.and_then(|found| found))
    }

    /// Puts the next call that has already arrived into `place`, without waiting (server). Whether there is one.
    pub fn try_accept<'a>(&'a self, place: &mut Option<Accepted<'a>>) -> bool {
        self.shared.enter().is_ok_and(|mut core| core.accept(&self.shared, place))
    }
}

/// A call that a client has opened, on its way to a handler.
#[derive(Debug)]
pub struct Call {
    /// The method, if interned in this session.
    pub method: Option<MethodIdx>,
    /// `/package.Service/Method`, unchecked.
    pub path: Bytes,
    /// Packed metadata.
    pub headers: Bytes,
    /// Deadline on this side's monotonic clock in nanoseconds ([`now_ns`](crate::now_ns)).
    pub deadline_ns: Option<u64>,
    /// What has come with it, where the client has said everything: the stream does not give that again.
    pub first: Option<Incoming>,
    /// The call itself.
    pub stream: Stream,
}

/// A call that was accepted, before anything is done for it. A request of which all has come, and that is answered at once,
/// needs no more than this; for any other it becomes a [`Call`]. Dropped, it cancels the call.
#[derive(Debug)]
pub struct Accepted<'a> {
    shared: &'a Arc<Shared>,
    accepted: session::Accepted,
    /// What has come with it, where the client has said everything. The metadata are there where it came as a whole.
    first: Option<Incoming>,
    /// Answered, or somebody else's.
    gone: bool,
    /// Further calls were at hand.
    has_more: bool,
}

impl Accepted<'_> {
    /// The method, if interned in this session.
    pub fn method(&self) -> Option<MethodIdx> {
        self.accepted.method
    }

    /// Whether further calls were at hand when it was accepted, so that what is sent may be
    /// [held back](Attachment::poll_accept).
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Packed metadata, until the request is [taken](Accepted::take_whole).
    pub fn headers(&self) -> &[u8] {
        match &self.first {
            Some(Incoming::Request(whole)) => whole.headers(),
            _ => &self.accepted.headers,
        }
    }

    /// Deadline on this side's monotonic clock in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.accepted.deadline_ns {
            0 => None,
            ns => Some(ns.saturating_add_signed(self.shared.clock_shift_ns)),
        }
    }

    /// The request, where all of it has come, and it is not compressed: the client will say nothing more.
    /// What is left is good for a [`reply`](Accepted::reply), or for a [`Call`] that nothing more comes on, and that has no metadata.
    pub fn take_whole(&mut self) -> Option<SingleFrame> {
        let part = match self.first.as_mut()? {
            Incoming::Part(part) => part,
            _ => match self.first.take() {
                Some(Incoming::Request(whole)) => return Some(whole),
                _ => return None,
            },
        };
        if part.end != Some(End::HalfClosed) || !part.chunk.as_ref().is_some_and(Chunk::is_plain) {
            return None;
        }
        SingleFrame::request(&self.accepted.headers, part.chunk.take()?.bytes.freeze())
    }

    /// Answers, as [`Stream::poll_send`] does. `false`: not all could be sent now; a [`Call`] is to go on with what is left.
    ///
    /// # Errors
    /// [`SendError`]. An error that says that the call has ended means that nobody listens any more.
    pub fn reply(&mut self, outgoing: &mut Outgoing) -> Result<bool, SendError> {
        let mut core = self.shared.enter()?;
        let (id, socket) = (self.accepted.id, &self.shared.socket);
        let progress = core.send(id, outgoing, socket)?;
        if progress == Progress::Done && core.settle(id, socket) && !self.gone {
            self.gone = true;
            // No task has waited for anything on it, and none here for it to end.
            core.session_mut().forget(id, CANCELLED);
            if core.session().has_pending() {
                core.flush(socket);
            }
        }
        Ok(progress == Progress::Done)
    }

    /// Has the call go on for longer. Who knows the method from an earlier call can do without its path, which is empty then.
    pub fn into_call(mut self, with_path: bool) -> Call {
        let mut path = Bytes::new();
        if with_path && let Ok(core) = self.shared.enter() {
            path = core.session().path_of(&self.accepted);
        }
        let first = self.first.take();
        let headers = match &first {
            Some(Incoming::Request(whole)) => Bytes::copy_from_slice(whole.headers()),
            _ => std::mem::take(&mut self.accepted.headers),
        };
        let mut stream = Stream::new(self.shared.clone(), self.accepted.id);
        *stream.gone.get_mut() = std::mem::replace(&mut self.gone, true);
        Call { method: self.accepted.method, path, headers, deadline_ns: self.deadline_ns(), first, stream }
    }
}

impl Drop for Accepted<'_> {
    fn drop(&mut self) {
        if !self.gone
            && let Ok(mut core) = self.shared.enter()
        {
            core.forget(self.accepted.id, CANCELLED, &self.shared.socket);
        }
    }
}

impl Core {
    /// Takes the next call with what has come of it, and notes whether replies are held back for more.
    fn accept<'a>(&mut self, shared: &'a Arc<Shared>, place: &mut Option<Accepted<'a>>) -> bool {
        if !self.session().has_accepted() {
            self.take_next(&shared.socket);
        }
        let Some((accepted, whole)) = self.session_mut().accept_whole() else {
            self.connection.no_call();
            return false;
        };
        let has_more = self.connection.accepted();
        let first = whole.map(Incoming::Request);
        let accepted = place.insert(Accepted { shared, accepted, first, gone: false, has_more });
        // Of one that goes on, what is read later is what makes room for more.
        if accepted.first.is_none()
            && self.session().has_end(accepted.accepted.id)
            && let Some(incoming) =
                self.session_mut().take_with(accepted.accepted.id, |segmented| Claim::new(shared, segmented))
        {
            accepted.gone = incoming.is_last();
            accepted.first = Some(incoming);
        }
        true
    }
}
