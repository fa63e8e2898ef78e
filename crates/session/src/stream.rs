//! One call: its two halves, and what was received for it and not yet read.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tollfree_layout::SegmentedIdx;

use crate::credit::{charge, charge_of};
use crate::incoming::{Chunk, End};
use crate::single_frame::SingleFrame;
use crate::stream_state::StreamState;

/// What was received for a call and not yet read, but for its headers. Most calls never have more than one frame's worth:
/// that takes a pointer, and the room for chunks is not even initialized.
#[derive(Debug, Default)]
pub(crate) enum Inbox {
    #[default]
    Empty,
    /// All that the peer says, the headers among it.
    Whole(SingleFrame),
    Chunks(Chunks),
}

/// Chunks and what they cost. The first needs no queue.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    first: Option<Chunk>,
    more: VecDeque<Chunk>,
    unread: u64,
}

impl Inbox {
    pub(crate) fn push(&mut self, chunk: Chunk) {
        if !matches!(self, Inbox::Chunks(_)) {
            *self = Inbox::Chunks(Chunks::default());
        }
        let Inbox::Chunks(chunks) = self else { return };
        chunks.unread += charge_of(&chunk);
        if chunks.first.is_none() && chunks.more.is_empty() {
            chunks.first = Some(chunk);
        } else {
            chunks.more.push_back(chunk);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Chunk> {
        let Inbox::Chunks(chunks) = self else { return None };
        let chunk = chunks.first.take().or_else(|| chunks.more.pop_front())?;
        chunks.unread -= charge_of(&chunk);
        Some(chunk)
    }

    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Inbox::Whole(_))
    }

    /// Takes what came as a whole.
    #[inline]
    pub(crate) fn take_whole(&mut self) -> Option<SingleFrame> {
        if !self.is_whole() {
            return None;
        }
        let Inbox::Whole(whole) = std::mem::take(self) else { return None };
        Some(whole)
    }

    /// Drops everything, and gives the segmented messages that nobody will take now.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = SegmentedIdx> + use<> {
        let chunks = match std::mem::take(self) {
            Inbox::Chunks(chunks) => chunks,
            _ => Chunks::default(),
        };
        chunks.first.into_iter().chain(chunks.more).filter_map(|chunk| chunk.segmented)
    }

    /// What is not read has cost so much.
    #[inline]
    pub(crate) fn unread(&self) -> u64 {
        match self {
            Inbox::Empty => 0,
            Inbox::Whole(whole) => charge(whole.message().len()),
            Inbox::Chunks(chunks) => chunks.unread,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Inbox::Empty => true,
            Inbox::Whole(_) => false,
            Inbox::Chunks(chunks) => chunks.first.is_none() && chunks.more.is_empty(),
        }
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
    pub(crate) state: StreamState,
    /// What may still be sent.
    pub(crate) send_credit: u64,
    pub(crate) wants_credit: bool,
    /// What the peer may still send.
    pub(crate) recv_credit: u64,
    /// Read, and not yet granted again.
    pub(crate) owed: u64,
    /// What the peer may send at most before we read.
    pub(crate) window: u64,
    /// Room for the rest of a message that is begun, right behind what has come of it.
    pub(crate) room: Option<Box<BytesMut>>,
    /// It stands in the queue for the session's reserve.
    pub(crate) is_short: bool,
    pub(crate) headers: Option<Bytes>,
    pub(crate) inbox: Inbox,
    pub(crate) end: Option<End>,
    pub(crate) ready_read: bool,
    pub(crate) ready_write: bool,
}

impl<T: Watched> Stream<T> {
    #[inline]
    pub(crate) fn new(state: StreamState, send_credit: u64, window: u64) -> Stream<T> {
        Stream {
            user: T::default(),
            state,
            send_credit,
            wants_credit: false,
            recv_credit: window,
            owed: 0,
            window,
            room: None,
            is_short: false,
            headers: None,
            inbox: Inbox::default(),
            end: None,
            ready_read: false,
            ready_write: false,
        }
    }

    /// Whether the call is under way: it counts against the limit of calls at once.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// Whether nothing that has come is left to read, but for an end.
    pub(crate) fn is_read(&self) -> bool {
        self.headers.is_none() && self.inbox.is_empty()
    }
}
