//! Calls as a server gets them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tollfree_layout::{MethodIdx, StreamId};
use tollfree_ring::RecordReceiver;
use tollfree_session::{self as session, Emission, EmitError, End, Ending, Progress, Whole};

use crate::attachment::{CANCELLED, Stream};
use crate::core::Core;
use crate::incoming::Arrival;
use crate::shared::{Shared, Socket};

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
    /// The call itself.
    pub stream: Stream,
}

/// A call that was accepted, before anything is done for it. A request that came as a whole and is answered at once needs
/// no more than this; for any other it becomes a [`Call`]. Dropped, it cancels the call.
#[derive(Debug)]
pub struct Accepted<'a> {
    shared: &'a Arc<Shared>,
    accepted: session::Accepted,
    /// Set where the client has said everything, unless that is the message.
    arrival: Option<session::Arrival>,
    /// What has come of one that is aside in its session.
    whole: Option<Whole>,
    aside: bool,
    /// Answered, or somebody else's.
    gone: bool,
}

impl Accepted<'_> {
    /// The method, if interned in this session.
    pub fn method(&self) -> Option<MethodIdx> {
        self.accepted.method
    }

    /// Packed metadata, until the request is [taken](Accepted::take_whole).
    pub fn headers(&self) -> &[u8] {
        self.whole.as_ref().map_or(&self.accepted.headers, |whole| whole.headers())
    }

    /// Deadline on this side's monotonic clock in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.accepted.deadline_ns {
            0 => None,
            ns => Some(ns.saturating_add_signed(self.shared.clock_shift_ns)),
        }
    }

    /// The request, where it came as a whole, is not compressed, and the client will say nothing more.
    /// What is left is good for a [`reply`](Accepted::reply), or for a [`Call`] that nothing more comes on, and that has no metadata.
    pub fn take_whole(&mut self) -> Option<Whole> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let arrival = self.arrival.as_mut()?;
        if arrival.end != Some(End::HalfClosed)
            || !arrival.chunk.as_ref().is_some_and(session::Chunk::is_plain)
        {
            return None;
        }
        let chunk = arrival.chunk.take()?;
        Whole::request(&self.accepted.headers, chunk.bytes)
    }

    /// Answers, as [`Stream::poll_emit`] does. `false`: not all could be sent now; a [`Call`] is to go on with what is left.
    ///
    /// # Errors
    /// [`EmitError`]; those that say that the call has ended mean that nobody listens any more.
    pub fn reply(&mut self, emission: &mut Emission) -> Result<bool, EmitError> {
        let mut core = self.shared.enter()?;
        let (id, socket) = (self.accepted.id, &self.shared.socket);
        if self.aside {
            if core.reply(id, emission, socket) {
                (self.aside, self.gone) = (false, true);
                return Ok(true);
            }
            self.keep(&mut core);
        }
        let progress = core.emit(id, emission, socket)?;
        if progress == Progress::Done && core.settle(id, socket) && !self.gone {
            self.gone = true;
            core.forget(id, CANCELLED, socket);
        }
        Ok(progress == Progress::Done)
    }

    /// Puts the call among the session's streams.
    fn keep(&mut self, core: &mut Core) {
        core.session.keep();
        self.aside = false;
        if let Some(whole) = self.whole.take() {
            self.accepted.headers = Bytes::copy_from_slice(whole.headers());
            let chunk = Some(session::Chunk::whole(whole.into_prefixed()));
            let end = Some(End::HalfClosed);
            self.arrival = Some(session::Arrival { chunk, end, ..session::Arrival::default() });
        }
    }

    /// Has the call go on for longer.
    pub fn into_call(self) -> Call {
        let (mut call, arrival) = self.into_parts(true);
        call.stream.taken = Mutex::new(arrival.map(Box::new));
        *call.stream.has_taken.get_mut() = call.stream.taken.get_mut().is_some();
        call
    }

    /// The same, apart from what has come with the call: its stream does not give that any more. Who knows the method from
    /// an earlier call can do without its path, which is empty then.
    pub fn into_parts(mut self, with_path: bool) -> (Call, Option<Arrival>) {
        let mut path = Bytes::new();
        if (with_path || self.aside)
            && let Ok(mut core) = self.shared.enter()
        {
            if self.aside {
                self.keep(&mut core);
            }
            if with_path {
                path = core.session.path_of(&self.accepted);
            }
        }
        let mut stream = Stream::new(self.shared.clone(), self.accepted.id);
        *stream.gone.get_mut() = std::mem::replace(&mut self.gone, true);
        let arrival = self.arrival.take().map(|arrival| Arrival::of(self.shared, arrival));
        let call = Call {
            method: self.accepted.method,
            path,
            headers: std::mem::take(&mut self.accepted.headers),
            deadline_ns: self.deadline_ns(),
            stream,
        };
        (call, arrival)
    }
}

impl Drop for Accepted<'_> {
    fn drop(&mut self) {
        if !self.gone
            && let Ok(mut core) = self.shared.enter()
        {
            core.session.keep();
            core.forget(self.accepted.id, CANCELLED, &self.shared.socket);
        }
    }
}

impl Core {
    /// Takes the next call with what has come of it, and notes whether replies are held back for more.
    pub(crate) fn accept<'a>(&mut self, shared: &'a Arc<Shared>, place: &mut Option<Accepted<'a>>) -> bool {
        if !self.session.has_accepted()
            && let Some(request) = self.take_request(&shared.socket)
        {
            self.corked = !self.receiving.is_empty();
            let session::Request { id, method, deadline_ns, whole } = request;
            let headers = Bytes::new();
            let accepted = session::Accepted { id, method: Some(method), path: None, deadline_ns, headers };
            let whole = Some(whole);
            *place = Some(Accepted { shared, accepted, arrival: None, whole, aside: true, gone: false });
            return true;
        }
        let accepted = self.session.accept();
        self.corked = self.session.has_accepted();
        let Some(accepted) = accepted else { return false };
        // Of one that goes on, what is read later is what makes room for more.
        let whole = self.session.has_end(accepted.id);
        let arrival = if whole { self.session.take_arrival(accepted.id) } else { None };
        let gone = arrival.as_ref().is_some_and(|arrival| arrival.forgotten);
        *place = Some(Accepted { shared, accepted, arrival, whole: None, aside: false, gone });
        true
    }

    /// Says all that `emission` holds on a call that is aside. `false`: it can't be said so, and nothing was.
    fn reply(&mut self, id: StreamId, emission: &mut Emission, socket: &Socket) -> bool {
        let (Some(headers), Some(message)) = (&emission.headers, &emission.message) else { return false };
        let Some(Ending::Trailers { code: 0, block }) = &emission.ending else { return false };
        let Some(message) = message.as_plain() else { return false };
        if !block.is_empty() || !self.session.reply(&mut self.sending, id, headers, message) {
            return false;
        }
        self.flush_soon(socket);
        *emission = Emission::default();
        true
    }
}
