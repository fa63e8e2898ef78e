//! One call: its two halves, and what was received for it and not yet read.

use std::collections::VecDeque;

use bytes::Bytes;
use tollfree_layout::RopeIdx;

use crate::credit::charge_of;
use crate::whole::Whole;

/// Part of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes. On the first chunk of a message the [`GRPC_PREFIX_LEN`](crate::GRPC_PREFIX_LEN) bytes of gRPC's
    /// prefix stand before them.
    pub bytes: Bytes,
    /// Begins a message.
    pub first: bool,
    /// Ends it.
    pub last: bool,
    /// On the first chunk of a rope: which one. To be [taken](crate::Session::take_rope) once.
    pub rope: Option<RopeIdx>,
}

impl Chunk {
    /// A message by itself, with gRPC's prefix before it.
    pub fn whole(bytes: Bytes) -> Chunk {
        Chunk { bytes, first: true, last: true, rope: None }
    }

    /// Whether it is a message by itself, no rope, and not compressed.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.first && self.last && self.rope.is_none() && self.bytes.first() == Some(&0)
    }
}

/// How a call ended, as far as this side knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client sends no more (server side). Until the call is answered, `Cancelled` or `SessionClosed` may follow.
    HalfClosed,
    /// The server's last word (client side).
    Trailers {
        /// The gRPC status as sent; values above 16 mean UNKNOWN.
        code: u16,
        /// Packed metadata, `grpc-message` among them.
        block: Bytes,
    },
    /// Cancelled by the peer, or by the session's end on its behalf.
    Cancelled {
        /// The gRPC status that says why.
        code: u16,
        /// Nothing of the call was looked at: it may safely be sent again.
        refused: bool,
    },
    /// The session is over; [`Session::closed`](crate::Session::closed) says why.
    SessionClosed,
}

/// What has come on a stream, in the order of the fields: as much of it as comes without a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Response headers (client side), packed.
    pub headers: Option<Bytes>,
    /// Part of a message.
    pub chunk: Option<Chunk>,
    /// The end, where nothing else is left to read before it.
    pub end: Option<End>,
    /// The session does not know the call any more.
    pub forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendHalf {
    /// Nothing sent yet.
    Head,
    /// Headers are sent.
    Open,
    /// The last event is sent, or will never be.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvHalf {
    /// Headers are still to come (client side).
    Head,
    /// Messages may come.
    Body,
    /// Nothing more will come.
    Ended,
}

/// Chunks not yet read, and what they cost. The first lives in the stream itself: most calls never have two.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    first: Option<Chunk>,
    more: VecDeque<Chunk>,
    unread: u64,
}

impl Inbox {
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.unread += charge_of(&chunk);
        if self.first.is_none() && self.more.is_empty() {
            self.first = Some(chunk);
        } else {
            self.more.push_back(chunk);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.first.take().or_else(|| self.more.pop_front())?;
        self.unread -= charge_of(&chunk);
        Some(chunk)
    }

    /// Drops everything, and gives the ropes that nobody will take now.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = RopeIdx> + use<> {
        let Inbox { first, more, .. } = std::mem::take(self);
        first.into_iter().chain(more).filter_map(|chunk| chunk.rope)
    }

    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }
}

/// The transport's part of a stream, which knows whether anybody waits for its news.
pub trait Watched: Default {
    /// Somebody is to be told when there is something to read.
    fn waits_to_read(&self) -> bool;
    /// Somebody is to be told when credit has come, or the stream has ended.
    fn waits_to_write(&self) -> bool;
}

/// Without a part of the transport's: all news are told.
impl Watched for () {
    fn waits_to_read(&self) -> bool {
        true
    }

    fn waits_to_write(&self) -> bool {
        true
    }
}

/// The part of a stream that the session keeps; `T` is the transport's own (wakers).
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) user: T,
    pub(crate) send: SendHalf,
    /// What may still be sent.
    pub(crate) send_credit: u64,
    /// A message is begun and this much of it not sent.
    pub(crate) sending: Option<u32>,
    pub(crate) wants_credit: bool,
    pub(crate) recv: RecvHalf,
    /// What the peer may still send.
    pub(crate) recv_credit: u64,
    /// Read, and not yet granted again.
    pub(crate) owed: u64,
    /// What the peer may send at most before we read.
    pub(crate) window: u64,
    /// A message is begun and this much of it not received.
    pub(crate) receiving: Option<u32>,
    /// It stands in the queue for the session's reserve.
    pub(crate) is_short: bool,
    pub(crate) headers: Option<Bytes>,
    pub(crate) inbox: Inbox,
    pub(crate) end: Option<End>,
    /// All of the above, of a call whose answer came as a whole and was not looked at yet.
    pub(crate) answer: Option<Whole>,
    /// Counts against the limit of concurrent calls.
    pub(crate) live: bool,
    pub(crate) ready_read: bool,
    pub(crate) ready_write: bool,
}

impl<T: Watched> Stream<T> {
    #[inline]
    pub(crate) fn new(send: SendHalf, send_credit: u64, recv: RecvHalf, window: u64) -> Stream<T> {
        Stream {
            user: T::default(),
            send,
            send_credit,
            sending: None,
            wants_credit: false,
            recv,
            recv_credit: window,
            owed: 0,
            window,
            receiving: None,
            is_short: false,
            headers: None,
            inbox: Inbox::default(),
            end: None,
            answer: None,
            live: true,
            ready_read: false,
            ready_write: false,
        }
    }

    /// Whether nothing that has come is left to read, but for an end.
    pub(crate) fn is_read(&self) -> bool {
        self.headers.is_none() && self.inbox.is_empty() && self.answer.is_none()
    }

    /// Puts an answer that came as a whole where the parts of any other are, for a reader who takes it part by part.
    #[inline]
    pub(crate) fn unfold(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.headers = Some(Bytes::copy_from_slice(answer.headers()));
            let block = Bytes::copy_from_slice(answer.trailers());
            self.end = Some(End::Trailers { code: 0, block });
            self.inbox.push(Chunk::whole(answer.into_prefixed()));
        }
    }
}
