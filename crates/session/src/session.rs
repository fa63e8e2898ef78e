//! The session: its streams, its limits, and how it ends.

use std::collections::VecDeque;

use bytes::Bytes;
use tollfree_layout::limits::{self, CHUNK_CHARGE};
use tollfree_layout::{MethodIdx, SegmentedIdx, StreamId};

use crate::area::AreaOffers;
use crate::credit::{charge, charge_of};
use crate::ending::leave;
use crate::error::Closed;
use crate::frame_builder::CRUMB_LEN;
use crate::incoming::{End, Incoming, Part};
use crate::methods::Methods;
use crate::pending::Pending;
use crate::recording::Recording;
use crate::segmented::SegmentedMessages;
use crate::single_frame::SingleFrame;
use crate::stream::{Stream, Watched};
use crate::streams::Streams;
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

/// The smallest window, of a stream or a session, through which any message can pass: the handshake refuses less.
pub const STREAM_WINDOW_MIN: u64 = 4 * CHUNK_CHARGE;

/// What one side of a session takes; each side tells the other in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Credit in bytes that each stream towards this side starts with; at least [`STREAM_WINDOW_MIN`].
    pub stream_window: u64,
    /// Credit in bytes that the session towards this side starts with. From `stream_window` times the calls at once
    /// on, a stream that nobody reads can't hold up the others; with less it can.
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
    /// `/package.Service/Method` of a method that is not interned; [`Session::path_of`] says it of any. Unchecked beyond
    /// its length: any bytes.
    pub path: Option<Bytes>,
    /// Deadline on the client's monotonic clock in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// Packed metadata. Those of a request that came [as a whole](Incoming::Request) are there.
    pub headers: Bytes,
}

/// A call that a client has opened, and that was not accepted yet. Its headers wait where a response's do.
#[derive(Debug)]
pub(crate) struct Unseen {
    pub(crate) id: StreamId,
    pub(crate) method: Option<MethodIdx>,
    pub(crate) deadline_ns: u64,
    pub(crate) path: Option<Box<Bytes>>,
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

/// The state machine. `T` is whatever the transport keeps for each stream.
#[derive(Debug)]
pub struct Session<T> {
    pub(crate) role: Role,
    pub(crate) local: Limits,
    pub(crate) peer: Limits,
    /// Calls at once: the server's word.
    pub(crate) stream_count_max: u32,
    /// Where less than this can be sent, a sender waits for more credit.
    pub(crate) crumb_len: usize,
    pub(crate) streams: Streams<T>,
    pub(crate) live_count: u32,
    /// The last stream opened.
    pub(crate) last_id: u64,
    pub(crate) methods: Methods,
    pub(crate) send_credit: u64,
    pub(crate) recv_credit: u64,
    pub(crate) owed: u64,
    pub(crate) reserve: u64,
    /// Streams on which a message has begun that the reserve has had nothing for, or too little, in order. One that has ended
    /// since is passed over.
    pub(crate) short: VecDeque<StreamId>,
    pub(crate) pending: Pending,
    pub(crate) segmented_messages: SegmentedMessages,
    pub(crate) ready: VecDeque<StreamId>,
    /// The transport's parts of streams that were forgotten while somebody waited for their news.
    pub(crate) abandoned: Vec<T>,
    /// Some stream waits, and the session's credit may be what it waits for.
    pub(crate) session_is_short: bool,
    pub(crate) unseen: VecDeque<Unseen>,
    pub(crate) area_offers: AreaOffers,
    /// Streams above this id are not taken any more.
    pub(crate) drain: Option<u64>,
    pub(crate) closed: Option<Closed>,
    pub(crate) recording: Recording,
}

impl<T: Watched> Session<T> {
    /// A session just after its handshake.
    pub fn new(role: Role, local: Limits, peer: Limits) -> Session<T> {
        let stream_count_max = match role {
            Role::Client => peer.stream_count,
            Role::Server => local.stream_count,
        };
        let first_windows = local.stream_window.saturating_mul(u64::from(stream_count_max));
        // A reader may keep back half a window of what it has read; a sender that waited for more would never go on.
        let granted = peer.stream_window.min(peer.session_window) / 2;
        let crumb_len = granted.saturating_sub(CHUNK_CHARGE).clamp(1, CRUMB_LEN as u64) as usize;
        Session {
            role,
            local,
            peer,
            stream_count_max,
            crumb_len,
            streams: Streams::default(),
            live_count: 0,
            last_id: 0,
            methods: Methods::new(),
            send_credit: peer.session_window,
            recv_credit: local.session_window,
            owed: 0,
            reserve: local.session_window.saturating_sub(first_windows),
            short: VecDeque::new(),
            pending: Pending::default(),
            segmented_messages: SegmentedMessages::default(),
            ready: VecDeque::new(),
            abandoned: Vec::new(),
            session_is_short: false,
            unseen: VecDeque::new(),
            area_offers: AreaOffers::default(),
            drain: None,
            closed: None,
            recording: Recording::off(),
        }
    }

    /// Reports what happens from now on to this recorder.
    #[must_use]
    pub fn recorded(mut self, recording: Recording) -> Session<T> {
        self.recording = recording;
        self
    }

    /// Where events are reported, also those that the session does not know of itself.
    #[inline(always)]
    pub fn recording(&self) -> &Recording {
        &self.recording
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

    /// Streams that this side still remembers: calls under way, and ended ones not yet forgotten.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The transport's part of a stream.
    pub fn user_mut(&mut self, id: StreamId) -> Option<&mut T> {
        self.streams.get_mut(id).map(|stream| &mut stream.user)
    }

    /// The next call that a client has opened. One that ended before it was asked for is never seen.
    #[inline]
    pub fn accept(&mut self) -> Option<Accepted> {
        self.accept_and(|_| ()).map(|(accepted, ())| accepted)
    }

    /// As [`accept`](Session::accept), and [takes](Session::take) the request where it came as a whole.
    #[inline]
    pub fn accept_whole(&mut self) -> Option<(Accepted, Option<SingleFrame>)> {
        let (accepted, whole) = self.accept_and(|stream| stream.inbox.take_whole())?;
        if let Some(whole) = &whole {
            self.owe_session(charge(whole.message().len()));
        }
        Some((accepted, whole))
    }

    #[inline]
    fn accept_and<R>(&mut self, look: impl FnOnce(&mut Stream<T>) -> R) -> Option<(Accepted, R)> {
        while let Some(Unseen { id, method, deadline_ns, path }) = self.unseen.pop_front() {
            match self.streams.get_mut(id) {
                Some(stream) if stream.is_live() => {
                    let headers = stream.headers.take().unwrap_or_default();
                    let path = path.map(|path| *path);
                    return Some((Accepted { id, method, path, deadline_ns, headers }, look(stream)));
                }
                _ => self.remove_stream(id),
            };
        }
        None
    }

    /// The path of an accepted call's method.
    pub fn path_of(&self, accepted: &Accepted) -> Bytes {
        match (&accepted.path, accepted.method) {
            (Some(path), _) => path.clone(),
            (None, Some(method)) => self.methods.path(method).cloned().unwrap_or_default(),
            (None, None) => Bytes::new(),
        }
    }

    /// Forgets a stream, and what of it was not read.
    pub(crate) fn remove_stream(&mut self, id: StreamId) -> bool {
        let Session { segmented_messages, abandoned, .. } = self;
        let removed = self.streams.remove_if(id, |stream| {
            leave(stream, segmented_messages, abandoned);
            true
        });
        removed.is_some()
    }

    /// Whether a call is under way.
    pub fn is_live(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.is_live())
    }

    /// Whether [`accept`](Session::accept) has one to give.
    pub fn has_accepted(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// How many calls may be under way at once.
    pub fn stream_count_max(&self) -> u32 {
        self.stream_count_max
    }

    /// How often [`open`](Session::open) would not answer now that too many calls are under way.
    pub fn may_open_count(&self) -> usize {
        if self.closed.is_some() || self.drain.is_some() {
            return usize::MAX;
        }
        self.stream_count_max.saturating_sub(self.live_count) as usize
    }

    /// Whether [`next_ready`](Session::next_ready) or [`next_abandoned`](Session::next_abandoned) may have something to give.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.abandoned.is_empty()
    }

    /// The transport's part of a stream that was forgotten while somebody waited for its news: they are to be woken, and find
    /// that the stream is gone. No news of it follow.
    pub fn next_abandoned(&mut self) -> Option<T> {
        self.abandoned.pop()
    }

    /// The stream whose news are oldest among those that changed since they were last given. News that nobody waited for
    /// when they came are not told.
    pub fn next_ready(&mut self) -> Option<Ready> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(stream) = self.streams.get_mut(id) {
                let read = std::mem::take(&mut stream.ready_read);
                let write = std::mem::take(&mut stream.ready_write);
                return Some(Ready { id, read, write });
            }
        }
        None
    }

    /// Takes what was received on a stream, as far as it makes one [`Incoming`]: all of it, for the usual unary call. `None`:
    /// nothing yet. A call that has ended, and whose end is in the incoming, is forgotten thereby. A call that nobody knows any
    /// more reads as [`End::SessionClosed`] or cancelled.
    #[inline]
    pub fn take(&mut self, id: StreamId) -> Option<Incoming> {
        self.take_with(id, |segmented| segmented)
    }

    /// As [`take`](Session::take), with what `make` makes of a segmented message's index.
    // Three times in a unary call, mostly in vain: a call of this takes as long as what it finds out then.
    #[inline(always)]
    pub fn take_with<R>(
        &mut self,
        id: StreamId,
        make: impl FnOnce(SegmentedIdx) -> R,
    ) -> Option<Incoming<R>> {
        let Some(stream) = self.streams.get_mut(id) else {
            let end = Some(self.end_of_unknown());
            return Some(Incoming::Part(Box::new(Part { end, forgotten: true, ..Part::default() })));
        };
        let Some(whole) = stream.inbox.take_whole() else {
            let has_part = stream.end.is_some() || !stream.is_read();
            return if has_part { self.take_part(id, make) } else { None };
        };
        Some(match self.role {
            // What an ended stream held was given back when it ended.
            Role::Client => {
                self.forget(id, CANCELLED);
                Incoming::Answer(whole)
            }
            Role::Server => {
                if stream.is_live() {
                    self.owe_session(charge(whole.message().len()));
                }
                Incoming::Request(whole)
            }
        })
    }

    /// [Takes](Session::take) the answer to a call, if all of it has come in one frame (client). The call is over, and is
    /// forgotten thereby.
    #[inline]
    pub fn take_answer(&mut self, id: StreamId) -> Option<SingleFrame> {
        let answer = self.streams.get_mut(id)?.inbox.take_whole()?;
        // What an ended stream held was given back when it ended.
        self.forget(id, CANCELLED);
        Some(answer)
    }

    /// What there is of a call that has something to read, or an end.
    fn take_part<R>(&mut self, id: StreamId, make: impl FnOnce(SegmentedIdx) -> R) -> Option<Incoming<R>> {
        let stream = self.streams.get_mut(id)?;
        let headers = stream.headers.take();
        let chunk = stream.inbox.pop();
        let live = stream.is_live();
        let mut part = Box::new(Part { headers, chunk: None, end: None, forgotten: false });
        if stream.inbox.is_empty() {
            part.forgotten = !live;
            part.end = if live { stream.end.clone() } else { stream.end.take() };
        }
        if let Some(chunk) = chunk {
            if live {
                self.owe(id, charge_of(&chunk));
            }
            part.chunk = Some(chunk.with_segmented(make));
        }
        if part.forgotten {
            self.forget(id, CANCELLED);
        }
        Some(Incoming::Part(part))
    }

    /// Whether the peer's last word on a call has come.
    pub fn has_end(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.end.is_some())
    }

    /// Whether [`take`](Session::take) has something to give.
    #[inline]
    pub fn has_incoming(&self, id: StreamId) -> bool {
        self.streams.get(id).is_none_or(|stream| stream.end.is_some() || !stream.is_read())
    }

    /// Whether what has come on a call is all that the peer says, in one frame.
    #[inline]
    pub fn has_whole(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.inbox.is_whole())
    }

    /// How a stream ended that nobody remembers.
    fn end_of_unknown(&self) -> End {
        match self.closed {
            Some(_) => End::SessionClosed,
            None => End::Cancelled { code: CANCELLED, refused: false },
        }
    }

    /// Whether a call has ended and nothing of it is left to read.
    pub fn is_settled(&self, id: StreamId) -> bool {
        self.streams.get(id).is_none_or(|stream| !stream.is_live() && stream.is_read())
    }

    /// Whether small frames wait for room.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
            || self.segmented_messages.has_taken()
            || self.segmented_messages.has_wanted()
    }

    /// Whether so many small frames wait for room that nothing more should be received: the peer doesn't read.
    ///
    /// A client whose server keeps to the protocol never gets there (at most a grant and a cancellation a call wait,
    /// and none is opened while they do), so that the two sides can't both stop reading.
    pub fn is_congested(&self) -> bool {
        self.pending.len() >= 2 * self.stream_count_max as usize + 64
    }

    /// Stages the small frames that wait.
    ///
    /// # Errors
    /// [`Full`] when some still wait; call again when there is room.
    #[inline]
    pub fn stage_pending(&mut self, out: &mut impl Outbound) -> Result<(), Full> {
        if !self.has_pending() {
            return Ok(());
        }
        let log = self.recording.log();
        self.pending.stage(out, log)?;
        self.segmented_messages.stage(out, log)
    }
}

/// Notes that a stream has news that somebody waits for; it stands in the queue once.
pub(crate) fn mark<T: Watched>(
    ready: &mut VecDeque<StreamId>,
    id: StreamId,
    stream: &mut Stream<T>,
    read: bool,
    write: bool,
) {
    let (read, write) = (read && stream.user.waits_to_read(), write && stream.user.waits_to_write());
    if (read || write) && !stream.ready_read && !stream.ready_write {
        ready.push_back(id);
    }
    stream.ready_read |= read;
    stream.ready_write |= write;
}

/// gRPC status CANCELLED.
pub(crate) const CANCELLED: u16 = 1;
/// gRPC status UNAVAILABLE.
pub(crate) const UNAVAILABLE: u16 = 14;
