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

/// What this end has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendHalf {
    /// Nothing sent yet.
    Head,
    /// Headers are sent.
    Open,
    /// The last event is sent, or will never be.
    Closed,
}

/// What the peer has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvHalf {
    /// Headers are still to come (client side).
    Head,
    /// Messages may come.
    Body,
    /// Nothing more will come.
    Ended,
}

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
    pub(crate) fn opened_by_peer() -> StreamState {
        StreamState { recv: RecvHalf::Body, ..StreamState::opened_here() }
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
    pub(crate) fn on_sent(&mut self) {
        if self.send == SendHalf::Head {
            self.send = SendHalf::Open;
        }
    }

    /// A chunk was sent, which leaves so much of its message, if it is begun and not at its end.
    #[inline]
    pub(crate) fn on_chunk_sent(&mut self, left: Option<u32>) {
        self.unsent = left;
    }

    /// The last event was sent.
    #[inline]
    pub(crate) fn on_ending_sent(&mut self) {
        self.unsent = None;
        self.send = SendHalf::Closed;
    }

    /// Headers came.
    ///
    /// # Errors
    /// Where they may not come.
    #[inline]
    pub(crate) fn on_headers(&mut self) -> Result<(), OutOfOrder> {
        if self.recv != RecvHalf::Head {
            return Err(OutOfOrder);
        }
        self.recv = RecvHalf::Body;
        Ok(())
    }

    /// A chunk came. How much of its message is still to come.
    ///
    /// # Errors
    /// Where it doesn't fit what has come of the message.
    #[inline]
    pub(crate) fn on_chunk(&mut self, chunk: ChunkHead) -> Result<u32, OutOfOrder> {
        let before = match (chunk.begins, self.unreceived) {
            (Some(len), None) => len,
            (None, Some(left)) => left,
            _ => return Err(OutOfOrder),
        };
        let after = before.checked_sub(chunk.len).ok_or(OutOfOrder)?;
        if chunk.is_last != (after == 0) || (chunk.len == 0 && before != 0) {
            return Err(OutOfOrder);
        }
        self.unreceived = if chunk.is_last { None } else { Some(after) };
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
    pub(crate) fn on_half_close(&mut self) -> Result<(), OutOfOrder> {
        if self.recv != RecvHalf::Body || self.unreceived.is_some() {
            return Err(OutOfOrder);
        }
        self.recv = RecvHalf::Ended;
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
    pub(crate) fn on_end(&mut self) {
        *self = StreamState {
            send: SendHalf::Closed,
            recv: RecvHalf::Ended,
            unsent: None,
            unreceived: None,
            is_live: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(begins: Option<u32>, len: u32, is_last: bool) -> ChunkHead {
        ChunkHead { begins, len, is_last }
    }

    #[test]
    fn chunks_make_whole_messages_one_after_the_other() {
        let mut state = StreamState::opened_by_peer();
        assert_eq!(state.on_chunk(chunk(Some(5), 3, false)), Ok(2));
        assert_eq!((state.unreceived(), state.on_whole_messages()), (Some(2), Err(OutOfOrder)));
        for wrong in [
            chunk(Some(2), 2, true),
            chunk(None, 3, true),
            chunk(None, 0, false),
            chunk(None, 1, true),
            chunk(None, 2, false),
        ] {
            let before = state;
            assert_eq!(state.on_chunk(wrong), Err(OutOfOrder), "{wrong:?}");
            assert_eq!(state, before, "what is refused changes nothing");
        }
        assert_eq!((state.on_half_close(), state.on_trailers(0)), (Err(OutOfOrder), Err(OutOfOrder)));
        assert_eq!(state.on_trailers(13), Ok(()), "a server may fail in the middle of a message");
        assert_eq!(state.on_chunk(chunk(None, 2, true)), Ok(0));
        assert_eq!(state.on_chunk(chunk(None, 1, true)), Err(OutOfOrder), "there is none begun");
        assert_eq!(state.on_chunk(chunk(Some(0), 0, true)), Ok(0), "an empty message");
        assert_eq!((state.on_whole_messages(), state.on_half_close()), (Ok(()), Ok(())));
        assert!(state.has_heard_all() && state.is_live());
    }

    #[test]
    fn an_end_ends_all() {
        let mut state = StreamState::opened_here();
        state.on_sent();
        state.on_chunk_sent(Some(7));
        state.on_end();
        assert!(state.has_said_all() && state.has_heard_all() && !state.is_live());
        assert_eq!((state.unsent(), state.unreceived()), (None, None));
    }
}
