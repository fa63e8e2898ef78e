//! What a stream's two ends may still say: one type, whose transitions are methods.
//!
//! # States
//! A stream is one call. Each side sees two halves; arrows name the event that was sent (`!`) or received (`?`).
//!
//! ```text
//! client   send half:  Head ──!HEADERS──► Open ──!HALF_CLOSE──► Closed
//!          recv half:  Head ──?HEADERS──► Body ──?TRAILERS──► Ended         (?TRAILERS in Head: trailers-only)
//! server   recv half:  Body ──?HALF_CLOSE──► Ended                          (its ?HEADERS opened the stream)
//!          send half:  Head ──!HEADERS──► Open ──!TRAILERS──► Closed
//! both     any ──!CANCEL or ?CANCEL──► Ended         session closed ──► every stream Ended
//! ```
//! Either half may be in the middle of a message. A server may end with a status other than OK there; nobody else may end there.
//! `crates/session/src/tests/transitions.rs` holds this as a table, state by event, and drives each field of it through a session.
//!
//! # Events
//! Each method that changes a state reports it (`SessionEvent::Stream`). A stream begins at `Head` and `Head`: a client's first
//! event is that of its first frame, a server's that of the headers that open it.

use tollfree_events::{RecvHalf, SendHalf, StreamCause};
#[cfg(feature = "events")]
use tollfree_events::{SessionEvent, StreamLook};

use tollfree_layout::StreamId;

use crate::recording::Log;

/// What the peer said may not be said now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

/// How a received chunk goes on with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    /// It begins a message, of so many bytes.
    pub(crate) begins: Option<u32>,
    pub(crate) len: u32,
    /// The frame says that the message ends with it.
    pub(crate) is_last: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamState {
    send: SendHalf,
    recv: RecvHalf,
    /// A message is begun and this much of it not sent.
    unsent: Option<u32>,
    /// A message is begun and this much of it not received.
    unreceived: Option<u32>,
    is_live: bool,
}

/// The state before a transition that nobody records.
#[cfg(not(feature = "events"))]
struct Unrecorded;

/// Where the transitions of a stream are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLog<'a> {
    log: Log<'a>,
    #[cfg(feature = "events")]
    stream: StreamId,
}

impl<'a> StreamLog<'a> {
    /// The same for frames.
    #[inline(always)]
    pub(crate) fn frames(self) -> Log<'a> {
        self.log
    }
}

impl<'a> Log<'a> {
    /// For the transitions of a stream.
    #[inline(always)]
    pub(crate) fn of(self, stream: StreamId) -> StreamLog<'a> {
        #[cfg(not(feature = "events"))]
        let _ = stream;
        StreamLog {
            log: self,
            #[cfg(feature = "events")]
            stream,
        }
    }
}

impl StreamState {
    /// Of a call that this end begins.
    #[inline]
    pub(crate) fn opened_here() -> StreamState {
        StreamState {
            send: SendHalf::Head,
            recv: RecvHalf::Head,
            unsent: None,
            unreceived: None,
            is_live: true,
        }
    }

    /// Of a call that the peer begins, whose headers have come with that.
    #[inline]
    pub(crate) fn opened_by_peer(log: StreamLog<'_>) -> StreamState {
        let before = StreamState::opened_here().before(log);
        let state = StreamState { recv: RecvHalf::Body, ..StreamState::opened_here() };
        state.report(log, StreamCause::HeadersReceived, before);
        state
    }

    /// The state before a transition, for [`report`](StreamState::report).
    #[cfg(feature = "events")]
    fn before(&self, log: StreamLog<'_>) -> Option<StreamLook> {
        log.log.is_on().then(|| self.look())
    }

    #[cfg(not(feature = "events"))]
    #[inline(always)]
    fn before(&self, _: StreamLog<'_>) -> Unrecorded {
        Unrecorded
    }

    /// Reports a transition, if it changed anything.
    #[cfg(feature = "events")]
    fn report(&self, log: StreamLog<'_>, cause: StreamCause, before: Option<StreamLook>) {
        let to = self.look();
        if let Some(from) = before.filter(|from| *from != to) {
            log.log.record(|| SessionEvent::Stream { stream: log.stream.0, cause, from, to });
        }
    }

    #[cfg(not(feature = "events"))]
    #[inline(always)]
    fn report(&self, _: StreamLog<'_>, _: StreamCause, _: Unrecorded) {}

    #[cfg(feature = "events")]
    fn look(&self) -> StreamLook {
        let StreamState { send, recv, unsent, unreceived, is_live } = *self;
        StreamLook { send, recv, unsent, unreceived, live: is_live }
    }

    /// Whether the call is under way.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether this end has said nothing yet.
    #[inline]
    pub(crate) fn owes_headers(&self) -> bool {
        self.send == SendHalf::Head
    }

    /// Whether this end says no more.
    #[inline]
    pub(crate) fn has_said_all(&self) -> bool {
        self.send == SendHalf::Closed
    }

    /// Whether the peer's first word is to come.
    #[inline]
    pub(crate) fn awaits_headers(&self) -> bool {
        self.recv == RecvHalf::Head
    }

    /// Whether messages may come.
    #[inline]
    pub(crate) fn awaits_messages(&self) -> bool {
        self.recv == RecvHalf::Body
    }

    /// Whether the peer says no more.
    #[inline]
    pub(crate) fn has_heard_all(&self) -> bool {
        self.recv == RecvHalf::Ended
    }

    /// How much of a message that is begun is not sent.
    #[inline]
    pub(crate) fn unsent(&self) -> Option<u32> {
        self.unsent
    }

    /// How much of a message that is begun has not come.
    #[inline]
    pub(crate) fn unreceived(&self) -> Option<u32> {
        self.unreceived
    }

    #[cfg(test)]
    pub(crate) fn halves(&self) -> (SendHalf, RecvHalf) {
        (self.send, self.recv)
    }

    /// A frame was sent; the first has headers.
    #[inline]
    pub(crate) fn on_sent(&mut self, log: StreamLog<'_>) {
        let before = self.before(log);
        if self.send == SendHalf::Head {
            self.send = SendHalf::Open;
        }
        self.report(log, StreamCause::HeadersSent, before);
    }

    /// A chunk was sent, which leaves so much of its message, if it is begun and not at its end.
    #[inline]
    pub(crate) fn on_chunk_sent(&mut self, left: Option<u32>, log: StreamLog<'_>) {
        let before = self.before(log);
        self.unsent = left;
        self.report(log, StreamCause::ChunkSent, before);
    }

    /// The last event was sent.
    #[inline]
    pub(crate) fn on_ending_sent(&mut self, log: StreamLog<'_>) {
        let before = self.before(log);
        self.unsent = None;
        self.send = SendHalf::Closed;
        self.report(log, StreamCause::EndingSent, before);
    }

    /// Headers came.
    ///
    /// # Errors
    /// Where they may not come.
    #[inline]
    pub(crate) fn on_headers(&mut self, log: StreamLog<'_>) -> Result<(), OutOfOrder> {
        if self.recv != RecvHalf::Head {
            return Err(OutOfOrder);
        }
        let before = self.before(log);
        self.recv = RecvHalf::Body;
        self.report(log, StreamCause::HeadersReceived, before);
        Ok(())
    }

    /// A chunk came. How much of its message is still to come.
    ///
    /// # Errors
    /// Where it doesn't fit what has come of the message.
    #[inline]
    pub(crate) fn on_chunk(&mut self, chunk: ChunkHead, log: StreamLog<'_>) -> Result<u32, OutOfOrder> {
        let before = match (chunk.begins, self.unreceived) {
            (Some(len), None) => len,
            (None, Some(left)) => left,
            _ => return Err(OutOfOrder),
        };
        let after = before.checked_sub(chunk.len).ok_or(OutOfOrder)?;
        if chunk.is_last != (after == 0) || (chunk.len == 0 && before != 0) {
            return Err(OutOfOrder);
        }
        let before = self.before(log);
        self.unreceived = if chunk.is_last { None } else { Some(after) };
        self.report(log, StreamCause::ChunkReceived, before);
        Ok(after)
    }

    /// Whole messages came.
    ///
    /// # Errors
    /// In the middle of another.
    #[inline]
    pub(crate) fn on_whole_messages(&self) -> Result<(), OutOfOrder> {
        if self.unreceived.is_some() { Err(OutOfOrder) } else { Ok(()) }
    }

    /// The client says no more.
    ///
    /// # Errors
    /// Where it has said so, or in the middle of a message.
    #[inline]
    pub(crate) fn on_half_close(&mut self, log: StreamLog<'_>) -> Result<(), OutOfOrder> {
        if self.recv != RecvHalf::Body || self.unreceived.is_some() {
            return Err(OutOfOrder);
        }
        let before = self.before(log);
        self.recv = RecvHalf::Ended;
        self.report(log, StreamCause::HalfCloseReceived, before);
        Ok(())
    }

    /// The server's last word came, with this code. The call is over by [`on_end`](StreamState::on_end).
    ///
    /// # Errors
    /// OK in the middle of a message.
    #[inline]
    pub(crate) fn on_trailers(&self, code: u16) -> Result<(), OutOfOrder> {
        if self.unreceived.is_some() && code == 0 { Err(OutOfOrder) } else { Ok(()) }
    }

    /// The call is over, for whatever reason: neither half says more.
    #[inline]
    pub(crate) fn on_end(&mut self, log: StreamLog<'_>) {
        let before = self.before(log);
        *self = StreamState {
            send: SendHalf::Closed,
            recv: RecvHalf::Ended,
            unsent: None,
            unreceived: None,
            is_live: false,
        };
        self.report(log, StreamCause::Over, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(begins: Option<u32>, len: u32, is_last: bool) -> ChunkHead {
        ChunkHead { begins, len, is_last }
    }

    fn log() -> StreamLog<'static> {
        Log::none().of(StreamId(1))
    }

    #[test]
    fn chunks_make_whole_messages_one_after_the_other() {
        let mut state = StreamState::opened_by_peer(log());
        assert_eq!(state.on_chunk(chunk(Some(5), 3, false), log()), Ok(2));
        assert_eq!((state.unreceived(), state.on_whole_messages()), (Some(2), Err(OutOfOrder)));
        for wrong in [
            chunk(Some(2), 2, true),
            chunk(None, 3, true),
            chunk(None, 0, false),
            chunk(None, 1, true),
            chunk(None, 2, false),
        ] {
            let before = state;
            assert_eq!(state.on_chunk(wrong, log()), Err(OutOfOrder), "{wrong:?}");
            assert_eq!(state, before, "what is refused changes nothing");
        }
        assert_eq!((state.on_half_close(log()), state.on_trailers(0)), (Err(OutOfOrder), Err(OutOfOrder)));
        assert_eq!(state.on_trailers(13), Ok(()), "a server may fail in the middle of a message");
        assert_eq!(state.on_chunk(chunk(None, 2, true), log()), Ok(0));
        assert_eq!(state.on_chunk(chunk(None, 1, true), log()), Err(OutOfOrder), "there is none begun");
        assert_eq!(state.on_chunk(chunk(Some(0), 0, true), log()), Ok(0), "an empty message");
        assert_eq!((state.on_whole_messages(), state.on_half_close(log())), (Ok(()), Ok(())));
        assert!(state.has_heard_all() && state.is_live());
    }

    #[test]
    fn an_end_ends_all() {
        let mut state = StreamState::opened_here();
        state.on_sent(log());
        state.on_chunk_sent(Some(7), log());
        state.on_end(log());
        assert!(state.has_said_all() && state.has_heard_all() && !state.is_live());
        assert_eq!((state.unsent(), state.unreceived()), (None, None));
    }
}
