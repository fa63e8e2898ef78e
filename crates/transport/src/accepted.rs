//! Calls as a server gets them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tollfree_layout::{MethodIdx, StreamId};
use tollfree_ring::RecordReceiver;
use tollfree_session::{self as session, Emission, EmitError, End, Ending, Progress};

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
    /// The message of a request that came as a whole and is aside in its session.
    message: Option<Bytes>,
    aside: bool,
    /// Answered, or somebody else's.
    gone: bool,
}

impl Accepted<'_> {
    /// The method, if interned in this session.
    pub fn method(&self) -> Option<MethodIdx> {
        self.accepted.method
    }

    /// Packed metadata.
    pub fn headers(&self) -> &Bytes {
        &self.accepted.headers
    }

    /// Deadline on this side's monotonic clock in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.accepted.deadline_ns {
            0 => None,
            ns => Some(ns.saturating_add_signed(self.shared.clock_shift_ns)),
        }
    }

    /// The request's message, with gRPC's prefix before it, where it came as a whole, is not compressed, and the client will
    /// say nothing more.
    /// What is left is good for a [`reply`](Accepted::reply), or for a [`Call`] that nothing more comes on.
    pub fn take_message(&mut self) -> Option<Bytes> {
        if let Some(message) = self.message.take() {
            return Some(message);
        }
        let arrival = self.arrival.as_mut()?;
        let is_plain = |chunk: &session::Chunk| {
            chunk.first && chunk.last && chunk.rope.is_none() && chunk.bytes.first() == Some(&0)
        };
        if arrival.end != Some(End::HalfClosed) || !arrival.chunk.as_ref().is_some_and(is_plain) {
            return None;
        }
        arrival.chunk.take().map(|chunk| chunk.bytes)
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
        self.arrival = self.message.take().map(|bytes| {
            let chunk = session::Chunk { bytes, first: true, last: true, rope: None };
            session::Arrival { chunk: Some(chunk), end: Some(End::HalfClosed), ..session::Arrival::default() }
        });
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
            && let Some(whole) = self.take_whole(&shared.socket)
        {
            self.corked = !self.receiving.is_empty();
            let session::Whole { id, method, deadline_ns, headers, message } = whole;
            let accepted = session::Accepted { id, method: Some(method), path: None, deadline_ns, headers };
            let message = Some(message);
            *place = Some(Accepted { shared, accepted, arrival: None, message, aside: true, gone: false });
            return true;
        }
        let accepted = self.session.accept();
        self.corked = self.session.has_accepted();
        let Some(accepted) = accepted else { return false };
        // Of one that goes on, what is read later is what makes room for more.
        let whole = self.session.has_end(accepted.id);
        let arrival = if whole { self.session.take_arrival(accepted.id) } else { None };
        let gone = arrival.as_ref().is_some_and(|arrival| arrival.forgotten);
        *place = Some(Accepted { shared, accepted, arrival, message: None, aside: false, gone });
        true
    }

    /// Says all that `emission` holds on a call that is aside. `false`: it can't be said so, and nothing was.
    fn reply(&mut self, id: StreamId, emission: &mut Emission, socket: &Socket) -> bool {
        let (Some(headers), Some(message)) = (&emission.headers, &emission.message) else { return false };
        let Some(Ending::Trailers { code: 0, block }) = &emission.ending else { return false };
        if !block.is_empty() || !self.session.reply(&mut self.sending, id, headers, message) {
            return false;
        }
        self.flush_soon(socket);
        *emission = Emission::default();
        true
    }
}
