//! The session: its streams, its limits, and how it ends.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;
use tollfree_layout::frame::{control, events, flags};
use tollfree_layout::limits;
use tollfree_layout::{AreaIdx, MethodIdx, StreamId};
use zerocopy::IntoBytes;

use crate::credit::charge_of;
use crate::error::{Closed, Violation};
use crate::frame::head;
use crate::pending::Pending;
use crate::stream::{End, Incoming, RecvHalf, SendHalf, Stream};
use crate::{Full, Outbound};

/// Which end of the session this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens streams.
    Client,
    /// Answers them.
    Server,
}

impl Role {
    /// The other end.
    pub fn peer(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// What one side of a session takes; each side tells the other in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Credit in bytes that each stream towards this side starts with.
    pub stream_window: u64,
    /// Credit in bytes that the session towards this side starts with.
    pub session_window: u64,
    /// Calls at once (a server's limit).
    pub stream_count: u32,
    /// Longest packed block of metadata, in bytes.
    pub metadata_len_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            stream_window: limits::STREAM_WINDOW_DEFAULT,
            session_window: limits::STREAM_WINDOW_DEFAULT * u64::from(limits::STREAM_COUNT_DEFAULT)
                + limits::WINDOW_RESERVE,
            stream_count: limits::STREAM_COUNT_DEFAULT,
            metadata_len_max: limits::METADATA_LEN_MAX,
        }
    }
}

/// A call that a client has opened.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Its stream.
    pub id: StreamId,
    /// Its method, if interned; else [`path`](Accepted::path) says it.
    pub method: Option<MethodIdx>,
    /// `/package.Service/Method`. Unchecked beyond its length: any bytes.
    pub path: Bytes,
    /// Deadline on the client's monotonic clock in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// Packed metadata.
    pub headers: Bytes,
}

/// A stream on which something can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The stream.
    pub id: StreamId,
    /// There is something to read.
    pub read: bool,
    /// Credit arrived for a waiting writer, or the stream ended under it.
    pub write: bool,
}

/// Streams have consecutive ids that the receiver checks, so nobody can choose them to collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("stream ids hash as u64");
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) type Streams<T> = HashMap<StreamId, Stream<T>, BuildHasherDefault<IdHasher>>;

/// The state machine. `T` is whatever the transport keeps for each stream.
#[derive(Debug)]
pub struct Session<T> {
    pub(crate) role: Role,
    pub(crate) local: Limits,
    pub(crate) peer: Limits,
    pub(crate) streams: Streams<T>,
    pub(crate) live_count: u32,
    /// The last stream opened.
    pub(crate) last_id: u64,
    /// Client: indices by path. Server: paths by index.
    pub(crate) method_idx: HashMap<Box<str>, MethodIdx>,
    pub(crate) method_paths: Vec<Bytes>,
    pub(crate) send_credit: u64,
    pub(crate) recv_credit: u64,
    pub(crate) owed: u64,
    pub(crate) reserve: u64,
    pub(crate) pending: Pending,
    pub(crate) ready: Vec<StreamId>,
    /// Streams that wait for the session's credit.
    pub(crate) wants_session_credit: VecDeque<StreamId>,
    pub(crate) accepted: VecDeque<Accepted>,
    /// Streams above this id are not taken any more.
    pub(crate) drain: Option<u64>,
    pub(crate) closed: Option<Closed>,
}

impl<T: Default> Session<T> {
    /// A session just after its handshake.
    pub fn new(role: Role, local: Limits, peer: Limits) -> Session<T> {
        let first_windows = local.stream_window.saturating_mul(u64::from(local.stream_count));
        Session {
            role,
            local,
            peer,
            streams: Streams::default(),
            live_count: 0,
            last_id: 0,
            method_idx: HashMap::new(),
            method_paths: Vec::new(),
            send_credit: peer.session_window,
            recv_credit: local.session_window,
            owed: 0,
            reserve: local.session_window.saturating_sub(first_windows),
            pending: Pending::default(),
            ready: Vec::new(),
            wants_session_credit: VecDeque::new(),
            accepted: VecDeque::new(),
            drain: None,
            closed: None,
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Why the session is over, if it is.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Whether the server takes no new calls in this session any more.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Calls under way.
    pub fn live_count(&self) -> u32 {
        self.live_count
    }

    /// Streams that either side still remembers: calls under way, and ended ones not yet forgotten.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The transport's part of a stream.
    pub fn user_mut(&mut self, id: StreamId) -> Option<&mut T> {
        self.streams.get_mut(&id).map(|stream| &mut stream.user)
    }

    /// The next call that a client has opened.
    pub fn accept(&mut self) -> Option<Accepted> {
        self.accepted.pop_front()
    }

    /// The next stream on which something has changed since it was last given.
    pub fn next_ready(&mut self) -> Option<Ready> {
        while let Some(id) = self.ready.pop() {
            if let Some(stream) = self.streams.get_mut(&id) {
                let read = std::mem::take(&mut stream.ready_read);
                let write = std::mem::take(&mut stream.ready_write);
                return Some(Ready { id, read, write });
            }
        }
        None
    }

    pub(crate) fn mark_read(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            if !stream.ready_read && !stream.ready_write {
                self.ready.push(id);
            }
            stream.ready_read = true;
        }
    }

    pub(crate) fn mark_write(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            if !stream.ready_read && !stream.ready_write {
                self.ready.push(id);
            }
            stream.ready_write = true;
        }
    }

    /// Takes the next thing received on a stream. `None`: nothing yet.
    ///
    /// A stream that was forgotten reads as [`End::SessionClosed`] or cancelled.
    pub fn recv(&mut self, id: StreamId) -> Option<Incoming> {
        let Some(stream) = self.streams.get_mut(&id) else {
            let end = match self.closed {
                Some(_) => End::SessionClosed,
                None => End::Cancelled { code: CANCELLED, refused: false },
            };
            return Some(Incoming::End(end));
        };
        if let Some(headers) = stream.headers.take() {
            return Some(Incoming::Headers(headers));
        }
        if let Some(chunk) = stream.inbox.pop() {
            self.owe(id, charge_of(&chunk));
            return Some(Incoming::Chunk(chunk));
        }
        stream.end.clone().map(Incoming::End)
    }

    /// The application lets go of a stream. One that has not ended is cancelled at the peer with `code`.
    pub fn forget(&mut self, id: StreamId, code: u16) {
        self.cancel(id, code);
        let Some(mut stream) = self.streams.remove(&id) else { return };
        while let Some(chunk) = stream.inbox.pop() {
            self.owe_session(charge_of(&chunk));
        }
        self.return_reserve(stream.window);
        self.pending.forget(id);
    }

    /// Ends a stream in both directions and tells the peer. Does nothing to one that has ended.
    pub fn cancel(&mut self, id: StreamId, code: u16) {
        self.cancel_with(id, code, 0);
    }

    /// Ends a stream that was not looked at: the peer may safely send it again.
    pub fn refuse(&mut self, id: StreamId, code: u16) {
        self.cancel_with(id, code, flags::REFUSED);
    }

    fn cancel_with(&mut self, id: StreamId, code: u16, flag: u8) {
        let Some(stream) = self.streams.get(&id) else { return };
        if stream.live && self.closed.is_none() {
            let mut frame = head(id.0);
            frame.events = events::CANCEL;
            frame.flags = flag;
            frame.code = code.into();
            self.pending.push(frame);
        }
        self.end_stream(id, End::Cancelled { code, refused: false });
    }

    /// Both halves end; what was received before stays readable where `end` is the peer's regular last word.
    pub(crate) fn end_stream(&mut self, id: StreamId, end: End) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.send = SendHalf::Closed;
        stream.sending = None;
        stream.recv = RecvHalf::Ended;
        if stream.end.is_none() || matches!(stream.end, Some(End::HalfClosed)) {
            stream.end = Some(end);
        }
        if stream.live {
            stream.live = false;
            self.live_count -= 1;
        }
        self.mark_read(id);
        self.mark_write(id);
    }

    /// The server takes no more calls: those not received yet are refused, those received go on.
    pub fn drain(&mut self) {
        if self.role == Role::Server && self.drain.is_none() && self.closed.is_none() {
            self.drain = Some(self.last_id);
            let mut frame = head(self.last_id);
            frame.events = events::DRAIN;
            self.pending.push(frame);
        }
    }

    /// Answers an offered payload area.
    pub fn answer_area(&mut self, area: AreaIdx, accept: bool) {
        self.push_control(if accept { control::AREA_ACCEPT } else { control::AREA_REFUSE }, area, 0);
    }

    /// Offers a payload area whose fd is already on its way.
    pub fn offer_area(&mut self, area: AreaIdx, len: u32) {
        self.push_control(control::AREA_OFFER, area, len);
    }

    /// Says that an area will not be referred to again.
    pub fn drop_area(&mut self, area: AreaIdx) {
        self.push_control(control::AREA_DROP, area, 0);
    }

    fn push_control(&mut self, code: u16, area: AreaIdx, len: u32) {
        let mut frame = head(area.0.into());
        frame.events = events::CONTROL;
        frame.code = code.into();
        frame.chunk_len = len.into();
        self.pending.push(frame);
    }

    /// Whether small frames wait for room.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether so many small frames wait for room that nothing more should be received: the peer doesn't read.
    pub fn is_congested(&self) -> bool {
        self.pending.len() >= self.local.stream_count.max(64) as usize
    }

    /// Stages the small frames that wait.
    ///
    /// # Errors
    /// [`Full`] when some still wait; call again when there is room.
    pub fn stage_pending(&mut self, out: &mut impl Outbound) -> Result<(), Full> {
        self.pending.stage(out)
    }

    /// Ends the session from this side and tells the peer as far as there is room. Streams end.
    pub fn close(&mut self, out: &mut impl Outbound, reason: Closed) {
        if self.closed.is_some() {
            return;
        }
        let text = reason.to_string();
        let text = &text.as_bytes()[..text.len().min(limits::HELLO_TEXT_MAX)];
        let mut frame = head(0);
        frame.events = events::CONTROL;
        frame.code = control::CLOSE.into();
        frame.headers_len = (text.len() as u16).into();
        // Without room the peer learns of the end from the socket's hang-up.
        let _ = out.stage(&[frame.as_bytes(), text]);
        self.end_session(reason);
    }

    /// Ends the session without a word to the peer (it is gone, or not to be spoken to).
    pub fn end_session(&mut self, reason: Closed) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(reason);
        self.pending = Pending::default();
        self.accepted.clear();
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.end_stream(id, End::SessionClosed);
        }
    }

    pub(crate) fn violation(&mut self, violation: Violation) -> Violation {
        self.end_session(Closed::Violation(violation));
        violation
    }
}

/// gRPC status CANCELLED.
pub(crate) const CANCELLED: u16 = 1;
/// gRPC status UNAVAILABLE.
pub(crate) const UNAVAILABLE: u16 = 14;
