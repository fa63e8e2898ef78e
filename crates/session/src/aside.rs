//! Calls that are a frame each way.
//!
//! The usual unary call is one: whoever sends the request looks out for the answer at once, or whoever gets it answers
//! before anything else happens in the session. Such a call needs no place among the streams, no inbox and no news. There is
//! at most one at a time, *aside*; whatever happens that is not its own answer puts it among the streams first, as if it
//! had always been there. What goes over the wire, and what it costs of whose credit, is the same either way.

use bytes::{BufMut, Bytes, BytesMut};
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::{MethodIdx, StreamId};
use zerocopy::IntoBytes;

use crate::credit::charge;
use crate::draft::INLINE_LEN_MAX;
use crate::error::Violation;
use crate::frame::{Frame, head};
use crate::receive::{check_block, copy_out};
use crate::stream::{End, RecvHalf, SendHalf, Stream, Watched};
use crate::{GRPC_PREFIX_LEN, Inbound, Opening, Outbound, Outgoing, Role, Session};

/// The events of a request that comes as a whole.
const REQUEST: u8 = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
/// The events of an answer that comes as a whole.
const ANSWER: u8 = events::HEADERS | events::MESSAGE | events::TRAILERS;
/// The flags of a message that comes as a whole, in the frame itself and not compressed.
const WHOLE: u8 = flags::FIRST | flags::LAST;

/// A request that came as a whole, and not compressed.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The call.
    pub id: StreamId,
    /// Its method.
    pub method: MethodIdx,
    /// Deadline on the client's monotonic clock in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// Packed metadata.
    pub headers: Bytes,
    /// The message, with gRPC's prefix before it.
    pub message: Bytes,
}

/// An answer that came as a whole, with status OK, and not compressed.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Packed metadata.
    pub headers: Bytes,
    /// The message, with gRPC's prefix before it.
    pub message: Bytes,
    /// Packed metadata.
    pub trailers: Bytes,
}

/// The call that is not among the streams.
#[derive(Debug)]
pub(crate) struct Aside {
    id: StreamId,
    /// Client: what its request has left of the stream's credit. Server: what it has left the client.
    credit: u64,
    /// Client: what has come for it.
    answer: Option<Answer>,
}

impl<T: Watched> Session<T> {
    /// Sends a request as a whole, for a caller that looks out for the answer at once ([`answer`](Session::answer)) and
    /// [keeps](Session::keep) the call otherwise. `None`: it can't be sent so now, and nothing was; [`open`](Session::open)
    /// it.
    pub fn ask(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        headers: &[u8],
        message: &Outgoing,
    ) -> Option<StreamId> {
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
        self.aside = Some(Aside { id, credit: self.peer.stream_window - cost, answer: None });
        Some(id)
    }

    /// Stages a frame with all of a message, and pays for it. What that cost; `None`: it doesn't go so, and nothing was done.
    #[inline]
    fn send_whole(
        &mut self,
        out: &mut impl Outbound,
        mut head: FrameHead,
        deadline: &[u8],
        headers: &[u8],
        message: &Outgoing,
    ) -> Option<u64> {
        let (len, cost) = (message.data.len(), charge(message.data.len()));
        let is_plain = !message.begun && !message.compressed && !message.is_rope && len <= INLINE_LEN_MAX;
        let fits = headers.len() <= self.peer.metadata_len_max.min(usize::from(u16::MAX))
            && FRAME_HEAD_LEN + deadline.len() + headers.len() + len <= out.record_len_max()
            && cost <= self.send_credit.min(self.peer.stream_window);
        if !is_plain || !fits {
            return None;
        }
        head.flags |= WHOLE;
        head.headers_len = (headers.len() as u16).into();
        head.chunk_len = (len as u32).into();
        head.message_len = (len as u32).into();
        let head = head.as_bytes();
        let staged = match deadline.is_empty() && headers.is_empty() {
            true => out.stage(&[head, &message.data]),
            false => out.stage(&[head, deadline, headers, &message.data]),
        };
        staged.ok()?;
        self.send_credit -= cost;
        Some(cost)
    }

    /// The answer to a call that was [asked](Session::ask), if it has come as a whole. The call is over then.
    #[inline]
    pub fn answer(&mut self, id: StreamId) -> Option<Answer> {
        let aside = self.aside.as_mut().filter(|aside| aside.id == id)?;
        let answer = aside.answer.take()?;
        self.aside = None;
        Some(answer)
    }

    /// Whether a call is still aside, and nothing has come for it.
    #[inline]
    pub fn is_aside(&self, id: StreamId) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.id == id && aside.answer.is_none())
    }

    /// Says all that is to be said on a call that is aside (server): the answer as a whole, with status OK. The call is over
    /// then. `false`: it can't be said so, and nothing was; [`keep`](Session::keep) the call.
    pub fn reply(
        &mut self,
        out: &mut impl Outbound,
        id: StreamId,
        headers: &[u8],
        message: &Outgoing,
    ) -> bool {
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
    ) -> Result<Option<Whole>, Violation> {
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
        let headers = copy_out(record, frame.headers_at(), frame.headers_len);
        check_block(&headers, self.local.metadata_len_max)?;
        let message = prefixed(frame, record);
        let id = StreamId(frame.stream);
        self.last_id = id.0;
        self.live_count += 1;
        self.recv_credit -= cost;
        self.owe_session(cost);
        self.aside = Some(Aside { id, credit: self.local.stream_window - cost, answer: None });
        Ok(Some(Whole {
            id,
            method: MethodIdx(frame.code),
            deadline_ns: frame.deadline_ns(record),
            headers,
            message,
        }))
    }

    /// Takes the frame of an answer that comes as a whole, to the call that is aside. `false`: it is another frame, or there
    /// is something to be said against it.
    #[inline]
    pub(crate) fn take_answer(&mut self, frame: &Frame, record: &impl Inbound) -> Result<bool, Violation> {
        let Some(aside) = &self.aside else { return Ok(false) };
        let cost = charge(frame.chunk_len as usize);
        let is_plain = frame.events == ANSWER
            && frame.flags == WHOLE
            && frame.code == 0
            && frame.chunk_len == frame.message_len
            && cost <= self.recv_credit.min(self.local.stream_window);
        if frame.stream != aside.id.0 || self.role != Role::Client || aside.answer.is_some() || !is_plain {
            return Ok(false);
        }
        let headers = copy_out(record, frame.headers_at(), frame.headers_len);
        check_block(&headers, self.local.metadata_len_max)?;
        let trailers = copy_out(record, frame.trailers_at(), frame.trailers_len);
        check_block(&trailers, self.local.metadata_len_max)?;
        let message = prefixed(frame, record);
        self.ropes.heard_of(frame.stream);
        self.recv_credit -= cost;
        self.live_count -= 1;
        self.owe_session(cost);
        if let Some(aside) = &mut self.aside {
            aside.answer = Some(Answer { headers, message, trailers });
        }
        Ok(true)
    }
}

/// The message of a frame that holds all of it, with gRPC's prefix before it.
fn prefixed(frame: &Frame, record: &impl Inbound) -> Bytes {
    let len = frame.chunk_len as usize;
    let mut message = BytesMut::with_capacity(GRPC_PREFIX_LEN + len);
    message.put_u8(0);
    message.put_u32(frame.chunk_len);
    record.append_to(frame.chunk_at(), len, &mut message);
    message.freeze()
}
