//! Calls that are a frame each way.
//!
//! The usual unary call is one: whoever sends the request looks out for the answer at once, or whoever gets it answers
//! before anything else happens in the session. Such a call needs no place among the streams, no inbox and no news. There is
//! at most one at a time, *aside*; whatever happens that is not its own answer puts it among the streams first, as if it
//! had always been there. What goes over the wire, and what it costs of whose credit, is the same either way.

use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::{MethodIdx, StreamId};
use zerocopy::IntoBytes;

use crate::credit::charge;
use crate::draft::INLINE_LEN_MAX;
use crate::error::Violation;
use crate::frame::{Frame, head};
use crate::session::{CANCELLED, mark};
use crate::stream::{End, RecvHalf, SendHalf, Stream, Watched};
use crate::whole::Whole;
use crate::{Inbound, Opening, Outbound, Role, Session};

/// The events of a request that comes as a whole.
const REQUEST: u8 = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
/// The events of an answer that comes as a whole.
const ANSWER: u8 = events::HEADERS | events::MESSAGE | events::TRAILERS;
/// The flags of a message that comes as a whole, in the frame itself and not compressed.
const WHOLE: u8 = flags::FIRST | flags::LAST;

/// A call whose request came as a whole.
#[derive(Debug)]
pub struct Request {
    /// The call.
    pub id: StreamId,
    /// Its method.
    pub method: MethodIdx,
    /// Deadline on the client's monotonic clock in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// What the client has said.
    pub whole: Whole,
}

/// The call that is not among the streams.
#[derive(Debug)]
pub(crate) struct Aside {
    id: StreamId,
    /// Client: what its request has left of the stream's credit. Server: what it has left the client.
    credit: u64,
    /// Client: what has come for it.
    answer: Option<Whole>,
}

impl<T: Watched> Session<T> {
    /// Sends a request as a whole, for a caller that looks out for the answer at once ([`answer`](Session::answer)) and
    /// [keeps](Session::keep) the call otherwise. `None`: it can't be sent so now, and nothing was; [`open`](Session::open)
    /// it.
    #[inline]
    pub fn ask(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
    ) -> Option<StreamId> {
        let (id, credit) = self.send_request(out, opening, headers, message)?;
        self.aside = Some(Aside { id, credit, answer: None });
        Some(id)
    }

    /// The same for a caller that does not look: the call is among the streams at once.
    #[inline]
    pub fn ask_among(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
    ) -> Option<StreamId> {
        let (id, credit) = self.send_request(out, opening, headers, message)?;
        self.keep_at(id, credit);
        Some(id)
    }

    /// Stages a request as a whole. Its call, and what it has left of the stream's credit.
    #[inline]
    fn send_request(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
    ) -> Option<(StreamId, u64)> {
        if self.closed.is_some() || self.drain.is_some() || self.aside.is_some() {
            return None;
        }
        // Credit and cancellations go first.
        self.stage_pending(out).ok()?;
        let method = self.known_method(opening.path)?;
        if self.live_count >= self.stream_count_max {
            return None;
        }
        let deadline = opening.deadline_ns.to_le_bytes();
        let deadline: &[u8] = if opening.deadline_ns != 0 { &deadline } else { &[] };
        let id = StreamId(self.last_id + 1);
        let mut head = head(id.0);
        head.events = REQUEST;
        head.flags = if deadline.is_empty() { 0 } else { flags::HAS_DEADLINE };
        head.code = method.0.into();
        let cost = self.send_whole(out, head, deadline, headers, message)?;
        self.last_id = id.0;
        self.live_count += 1;
        Some((id, self.peer.stream_window - cost))
    }

    /// Stages a frame with all of a message, and pays for it. What that cost; `None`: it doesn't go so, and nothing was done.
    #[inline]
    fn send_whole(
        &mut self,
        out: &mut impl Outbound,
        mut head: FrameHead,
        deadline: &[u8],
        headers: &[u8],
        message: &[u8],
    ) -> Option<u64> {
        let (len, cost) = (message.len(), charge(message.len()));
        let fits = len <= INLINE_LEN_MAX
            && headers.len() <= self.peer.metadata_len_max.min(usize::from(u16::MAX))
            && FRAME_HEAD_LEN + deadline.len() + headers.len() + len <= out.record_len_max()
            && cost <= self.send_credit.min(self.peer.stream_window);
        if !fits {
            return None;
        }
        head.flags |= WHOLE;
        head.headers_len = (headers.len() as u16).into();
        head.chunk_len = (len as u32).into();
        head.message_len = (len as u32).into();
        let head = head.as_bytes();
        let staged = match deadline.is_empty() && headers.is_empty() {
            true => out.stage(&[head, message]),
            false => out.stage(&[head, deadline, headers, message]),
        };
        staged.ok()?;
        self.send_credit -= cost;
        Some(cost)
    }

    /// The answer to a call (client), if it has come as a whole, with status OK, and not compressed. The call is over then.
    /// `None`, and nothing taken, of any other.
    #[inline]
    pub fn answer(&mut self, id: StreamId) -> Option<Whole> {
        match &mut self.aside {
            Some(aside) if aside.id == id => {
                let answer = aside.answer.take()?;
                self.aside = None;
                Some(answer)
            }
            _ => {
                let answer = self.streams.get_mut(id)?.answer.take()?;
                self.forget(id, CANCELLED);
                Some(answer)
            }
        }
    }

    /// Whether a call is still aside, and nothing has come for it.
    #[inline]
    pub fn is_aside(&self, id: StreamId) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.id == id && aside.answer.is_none())
    }

    /// Says all that is to be said on a call that is aside (server): the answer as a whole, with status OK. The call is over
    /// then. `false`: it can't be said so, and nothing was; [`keep`](Session::keep) the call.
    pub fn reply(&mut self, out: &mut impl Outbound, id: StreamId, headers: &[u8], message: &[u8]) -> bool {
        if !self.is_aside(id) || self.closed.is_some() || self.stage_pending(out).is_err() {
            return false;
        }
        let mut head = head(id.0);
        head.events = ANSWER;
        if self.send_whole(out, head, &[], headers, message).is_none() {
            return false;
        }
        self.live_count -= 1;
        self.aside = None;
        true
    }

    /// Puts the call that is aside among the streams, if there is one.
    #[inline]
    pub fn keep(&mut self) {
        if self.aside.is_some() {
            self.keep_aside();
        }
    }

    #[cold]
    fn keep_aside(&mut self) {
        // One whose answer has come is over but for being read.
        let Some(Aside { id, credit, answer: None }) = self.aside.take_if(|aside| aside.answer.is_none())
        else {
            return;
        };
        self.keep_at(id, credit);
    }

    /// Puts a call among the streams of which the request, and nothing else, was sent or received.
    #[inline]
    fn keep_at(&mut self, id: StreamId, credit: u64) {
        let (send, recv) = (self.peer.stream_window, self.local.stream_window);
        let role = self.role;
        self.streams.insert_with(id, || match role {
            Role::Client => Stream::new(SendHalf::Closed, credit, RecvHalf::Head, recv),
            Role::Server => {
                let mut stream = Stream::new(SendHalf::Head, send, RecvHalf::Ended, recv);
                stream.recv_credit = credit;
                stream.end = Some(End::HalfClosed);
                stream
            }
        });
    }

    /// Takes the frame of a request that comes as a whole, if nothing is to be said against it, and nothing is before it.
    #[inline]
    pub(crate) fn take_request(
        &mut self,
        frame: &Frame,
        record: &impl Inbound,
    ) -> Result<Option<Request>, Violation> {
        let cost = charge(frame.chunk_len as usize);
        let is_plain = frame.events == REQUEST
            && frame.flags & !flags::HAS_DEADLINE == WHOLE
            && frame.chunk_len == frame.message_len
            && usize::from(frame.code) < self.method_paths.len()
            && cost <= self.recv_credit.min(self.local.stream_window);
        let is_next = frame.stream == self.last_id + 1
            && self.aside.is_none()
            && self.accepted.is_empty()
            && self.drain.is_none()
            && self.live_count < self.stream_count_max
            && self.streams.len() < 2 * self.stream_count_max as usize;
        if self.role != Role::Server || !is_plain || !is_next {
            return Ok(None);
        }
        let whole = Whole::copy(frame, record, self.local.metadata_len_max)?;
        let id = StreamId(frame.stream);
        self.last_id = id.0;
        self.live_count += 1;
        self.recv_credit -= cost;
        self.owe_session(cost);
        self.aside = Some(Aside { id, credit: self.local.stream_window - cost, answer: None });
        let deadline_ns = frame.deadline_ns(record);
        Ok(Some(Request { id, method: MethodIdx(frame.code), deadline_ns, whole }))
    }

    /// Takes the frame of an answer that comes as a whole, to a call that has said everything and of which nothing has come.
    /// `false`: it is another frame, or there is something to be said against it.
    #[inline]
    pub(crate) fn take_answer(&mut self, frame: &Frame, record: &impl Inbound) -> Result<bool, Violation> {
        let is_plain = self.role == Role::Client
            && frame.events == ANSWER
            && frame.flags == WHOLE
            && frame.code == 0
            && frame.chunk_len == frame.message_len;
        if !is_plain {
            return Ok(false);
        }
        let (id, cost) = (StreamId(frame.stream), charge(frame.chunk_len as usize));
        match &self.aside {
            Some(aside) if aside.id == id => {
                if aside.answer.is_some() || cost > self.recv_credit.min(self.local.stream_window) {
                    return Ok(false);
                }
                let answer = Whole::copy(frame, record, self.local.metadata_len_max)?;
                if let Some(aside) = &mut self.aside {
                    aside.answer = Some(answer);
                }
            }
            _ => {
                let Some(stream) = self.streams.get_mut(id) else { return Ok(false) };
                let awaits = stream.send == SendHalf::Closed && stream.recv == RecvHalf::Head && stream.live;
                if !awaits || cost > self.recv_credit.min(stream.recv_credit) {
                    return Ok(false);
                }
                stream.answer = Some(Whole::copy(frame, record, self.local.metadata_len_max)?);
                stream.recv = RecvHalf::Ended;
                stream.live = false;
                mark(&mut self.ready, id, stream, true, true);
            }
        }
        self.ropes.heard_of(frame.stream);
        self.recv_credit -= cost;
        self.live_count -= 1;
        self.owe_session(cost);
        Ok(true)
    }
}
