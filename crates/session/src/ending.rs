//! How streams and the session end.

use std::collections::VecDeque;

use tollfree_events::{SessionEvent, Side};
use tollfree_layout::StreamId;
use tollfree_layout::frame::{control, events};
use tollfree_layout::limits::HELLO_TEXT_MAX;
use zerocopy::IntoBytes;

use crate::error::{Closed, Violation};
use crate::frame::head;
use crate::incoming::End;
use crate::pending::Pending;
use crate::recording::Log;
use crate::segmented::SegmentedMessages;
use crate::session::mark;
use crate::stream::{Stream, Watched};
use crate::{Outbound, Role, Session};

/// What a stream leaves to the session when it ends.
pub(crate) struct Stopped {
    /// What the peer might send on it.
    window: u64,
    /// What was not read of it has cost so much.
    unread: u64,
}

/// Both halves of a live stream end. What was received before stays readable where the peer's last word `counts`, and is dropped
/// otherwise; either way it doesn't hold the session's credit any longer, of which the session is to [hear](Session::stopped).
#[inline]
pub(crate) fn stop<T: Watched>(
    stream: &mut Stream<T>,
    id: StreamId,
    end: End,
    counts: bool,
    ready: &mut VecDeque<StreamId>,
    segmented_messages: &mut SegmentedMessages,
    log: Log<'_>,
) -> Stopped {
    let stopped = Stopped { window: stream.window, unread: stream.inbox.unread() };
    if !counts {
        stream.headers = None;
        stream.inbox.clear().for_each(|segmented| segmented_messages.take(segmented));
    }
    stream.state.on_end(log.of(id));
    stream.wants_credit = false;
    stream.room = None;
    stream.end = Some(end);
    mark(ready, id, stream, true, true);
    stopped
}

/// A stream is about to be forgotten. What was received for it will not be read: its segmented messages are given back. Who waits for its
/// news is [kept](Session::next_abandoned) to be woken: no stream takes somebody's place to wait along.
#[inline]
pub(crate) fn leave<T: Watched>(
    stream: &mut Stream<T>,
    segmented_messages: &mut SegmentedMessages,
    abandoned: &mut Vec<T>,
) {
    if segmented_messages.agreed {
        stream.inbox.clear().for_each(|segmented| segmented_messages.take(segmented));
    }
    if stream.user.waits_to_read() || stream.user.waits_to_write() {
        abandoned.push(std::mem::take(&mut stream.user));
    }
}

impl<T: Watched> Session<T> {
    /// The application lets go of a stream. One that has not ended is cancelled at the peer with `code`.
    pub fn forget(&mut self, id: StreamId, code: u16) {
        let Session { segmented_messages, abandoned, .. } = self;
        let removed = self.streams.remove_if(id, |stream| {
            if stream.is_live() {
                return false;
            }
            leave(stream, segmented_messages, abandoned);
            true
        });
        match removed {
            Some(true) => {}
            Some(false) => {
                self.cancel(id, code);
                self.remove_stream(id);
            }
            None => return,
        }
        self.pending.forget(id);
        // Its places in the queues stay behind. Many of those are swept out together.
        let most = 2 * self.streams.len() + 64;
        if self.ready.len() > most {
            self.ready.retain(|id| self.streams.contains(*id));
        }
        if self.short.len() > most {
            self.short.retain(|id| self.streams.contains(*id));
        }
    }

    /// Ends a stream in both directions and tells the peer. Does nothing to one that has ended.
    pub fn cancel(&mut self, id: StreamId, code: u16) {
        if self.streams.get(id).is_some_and(|stream| stream.is_live()) {
            self.push_cancel(id, code, 0);
            if self.role == Role::Client {
                self.segmented_messages.cancelled(self.last_id);
            }
            self.end_stream(id, End::Cancelled { code, refused: false });
        }
    }

    /// A server's last word where none is there to wait until a longer one has room. Does nothing to a call that has ended. What the client has
    /// received stays readable, as behind any status.
    pub fn give_up(&mut self, id: StreamId, code: u16) {
        if self.role == Role::Server && self.streams.get(id).is_some_and(|stream| stream.is_live()) {
            let mut frame = head(id.0);
            frame.events = events::TRAILERS;
            frame.code = code.into();
            self.pending.push(frame);
            self.end_stream(id, End::Cancelled { code, refused: false });
        }
    }

    pub(crate) fn push_cancel(&mut self, id: StreamId, code: u16, flag: u8) {
        let mut frame = head(id.0);
        frame.events = events::CANCEL;
        frame.flags = flag;
        frame.code = code.into();
        self.pending.push(frame);
    }

    /// Has a live stream [end](stop).
    pub(crate) fn end_stream(&mut self, id: StreamId, end: End) {
        let counts = match end {
            End::Trailers { .. } | End::HalfClosed => true,
            End::Cancelled { .. } => false,
            // What a peer said before it left or died is read. After a violation, and where this side leaves, nothing is.
            End::SessionClosed => matches!(self.closed, Some(Closed::HungUp | Closed::ByPeer(_))),
        };
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_live()) else { return };
        let stopped = stop(
            stream,
            id,
            end,
            counts,
            &mut self.ready,
            &mut self.segmented_messages,
            self.recording.log(),
        );
        self.stopped(&stopped);
    }

    /// A stream was [stopped](stop).
    #[inline]
    pub(crate) fn stopped(&mut self, stopped: &Stopped) {
        self.live_count -= 1;
        self.give_back(stopped.window.saturating_sub(self.local.stream_window));
        if stopped.unread > 0 {
            self.owe_session(stopped.unread);
        }
    }

    /// The server takes no more calls: those not received yet are refused, those received go on.
    pub fn drain(&mut self) {
        if self.role == Role::Server && self.drain.is_none() && self.closed.is_none() {
            self.drain = Some(self.last_id);
            self.recording.record(|| SessionEvent::Draining { by: Side::Here, last: self.last_id });
            let mut frame = head(self.last_id);
            frame.events = events::DRAIN;
            self.pending.push(frame);
        }
    }

    /// Ends the session from this side and tells the peer as far as there is room. Streams end. After a violation
    /// this is how the peer is told; the reason latched stays.
    pub fn close(&mut self, out: &mut impl Outbound, reason: Closed) {
        if self.closed.as_ref().is_some_and(|closed| !matches!(closed, Closed::Violation(_))) {
            return;
        }
        let text = reason.to_string();
        let mut len = text.len().min(HELLO_TEXT_MAX);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut frame = head(0);
        frame.events = events::CONTROL;
        frame.code = control::CLOSE.into();
        frame.headers_len = (len as u16).into();
        // Without room the peer learns of the end from the socket's hang-up.
        if out.stage(&[frame.as_bytes(), &text.as_bytes()[..len]]).is_ok() {
            self.recording.log().sent(&frame);
        }
        self.end_session(reason);
    }

    /// Ends the session without a word to the peer (it is gone, or not to be spoken to).
    pub fn end_session(&mut self, reason: Closed) {
        if self.closed.is_some() {
            return;
        }
        self.record_end(&reason);
        self.closed = Some(reason);
        for unseen in std::mem::take(&mut self.unseen) {
            self.end_stream(unseen.id, End::SessionClosed);
            self.remove_stream(unseen.id);
        }
        let ids: Vec<StreamId> = self.streams.ids().collect();
        for id in ids {
            self.end_stream(id, End::SessionClosed);
        }
        self.pending = Pending::default();
        self.segmented_messages.end();
    }

    #[inline]
    fn record_end(&self, reason: &Closed) {
        if let Closed::Violation(violation) = reason {
            self.recording.record(|| SessionEvent::Violation {
                number: violation.number(),
                words: violation.to_string().into(),
            });
        }
        self.recording.record(|| SessionEvent::Ended {
            number: reason.number(),
            by: match reason {
                Closed::ByPeer(_) | Closed::HungUp => Side::Peer,
                Closed::Violation(_) | Closed::Here(_) => Side::Here,
            },
            words: reason.to_string().into(),
        });
    }

    pub(crate) fn violation(&mut self, violation: Violation) -> Violation {
        self.end_session(Closed::Violation(violation));
        violation
    }
}
