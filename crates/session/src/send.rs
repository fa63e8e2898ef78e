//! Sending: from what the application wants to say to as few frames as it takes.

use bytes::Bytes;
use tollfree_events::SessionEvent;
use tollfree_layout::StreamId;
use tollfree_layout::frame::{FRAME_HEAD_LEN, events, flags};
use tollfree_layout::limits::{MESSAGE_LEN_MAX, METHOD_PATH_LEN_MAX};

use crate::credit::charge;
use crate::ending::stop;
use crate::error::SendError;
use crate::frame_builder::{Budget, FrameBuilder};
use crate::incoming::End;
use crate::outgoing_message::OutgoingMessage;
use crate::session::CANCELLED;
use crate::stream::{Stream, Watched};
use crate::stream_state::StreamState;
use crate::{Outbound, Role, Session};

/// The method index of a path that is sent every time, because the table is full.
pub(crate) const NOT_INTERNED: u16 = u16::MAX;

/// The last thing that a side says on a stream.
#[derive(Clone, Debug)]
pub enum Ending {
    /// A client has no more messages.
    HalfClose,
    /// A server's status and packed trailing metadata.
    Trailers {
        /// gRPC status code.
        code: u16,
        /// Packed metadata.
        block: Bytes,
    },
}

/// What is to be said on a stream, in the order of the fields. [`Session::send`] takes out what it has sent, so that the
/// same value is offered again until it is empty.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Packed headers (a server's response headers; a client's go with [`Session::open`]).
    pub headers: Option<Bytes>,
    /// A message, or several in a [batch](OutgoingMessage::batch_off).
    pub message: Option<OutgoingMessage>,
    /// The end of this side's half.
    pub ending: Option<Ending>,
}

impl Outgoing {
    /// Nothing is left to say.
    pub fn is_empty(&self) -> bool {
        self.headers.is_none() && self.message.is_none() && self.ending.is_none()
    }
}

/// How a client opens a stream.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// Deadline on this side's monotonic clock in nanoseconds; 0 for none.
    pub deadline_ns: u64,
}

/// How far an outgoing got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it is staged.
    Done,
    /// A long part of a message is staged: make it visible, so that the peer copies it out while the next one is copied
    /// in, and go on.
    Partly,
    /// The ring has no room; try again when the peer has read.
    NeedRoom,
    /// Some of it is staged, and now the ring has no room. Others that wait for room go first.
    RanOut,
    /// The peer has not read enough of this stream; [`Ready::write`](crate::Ready) tells when.
    NeedCredit,
    /// As many calls are under way as the server takes; try again when one has ended.
    NeedStream,
}

impl<T: Watched> Session<T> {
    /// Opens a stream (client), with as much of `outgoing` as fits one frame. The rest, if any, is left in `outgoing`
    /// for [`send`](Session::send). `Err(progress)` inside `Ok` means that nothing was sent: try again.
    ///
    /// # Errors
    /// As [`SendError`] says; nothing was sent then.
    pub fn open(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        outgoing: &mut Outgoing,
    ) -> Result<Result<StreamId, Progress>, SendError> {
        self.check_open(opening)?;
        // A cancellation that waits makes place for this call at the server: it must get there first.
        if self.stage_pending(out).is_err() {
            self.recording.log().blocked(StreamId::SESSION, Progress::NeedRoom);
            return Ok(Err(Progress::NeedRoom));
        }
        if self.live_count >= self.stream_count_max {
            self.recording.log().blocked(StreamId::SESSION, Progress::NeedStream);
            return Ok(Err(Progress::NeedStream));
        }
        let id = StreamId(self.last_id + 1);
        let mut frame = FrameBuilder::new(id);
        let known = self.methods.index_of(opening.path);
        let code = match known {
            Some(idx) => idx.0,
            None => {
                frame.head.flags |= flags::NAMES_METHOD;
                frame.path = Some(opening.path.as_bytes());
                self.methods.next_index(opening.path.len()).map_or(NOT_INTERNED, |next| next.0)
            }
        };
        frame.head.events = events::HEADERS;
        frame.head.code = code.into();
        if opening.deadline_ns != 0 {
            frame.head.flags |= flags::HAS_DEADLINE;
            frame.deadline = Some(opening.deadline_ns.to_le_bytes());
        }
        let fixed_len = frame.fixed_len();
        self.check_outgoing(out.record_len_max(), fixed_len, outgoing)?;
        // An opening has one message at most.
        outgoing.message.as_mut().map(OutgoingMessage::single_out);
        let (send, recv) = (self.peer.stream_window, self.local.stream_window);
        // Made where it is to be: it need not be moved there while the peer waits for what is staged.
        let stream = self.streams.insert_with(id, || Stream::new(StreamState::opened_here(), send, recv));
        let log = self.recording.log().of(id);
        let mut budget = Budget {
            credit: &mut self.send_credit,
            crumb_len: self.crumb_len,
            segmented_messages: &mut self.segmented_messages,
            log,
        };
        let sent = match check_parts(Role::Client, stream, outgoing) {
            Ok(()) => budget.send_frame(out, stream, &frame, outgoing).map_err(SendError::from),
            Err(error) => Err(error),
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => {
                self.streams.remove(id);
                return Err(error);
            }
        };
        if !matches!(sent, Progress::Done | Progress::Partly) {
            self.streams.remove(id);
            self.recording.log().blocked(StreamId::SESSION, sent);
            return Ok(Err(sent));
        }
        self.last_id = id.0;
        self.live_count += 1;
        self.recording.record(|| SessionEvent::Call { stream: id.0, path: opening.path.into() });
        if known.is_none() && code != NOT_INTERNED {
            self.methods.named_here(opening.path);
        }
        Ok(Ok(id))
    }

    fn check_open(&self, opening: Opening<'_>) -> Result<(), SendError> {
        debug_assert_eq!(self.role, Role::Client, "only clients open streams");
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        if self.drain.is_some() {
            return Err(SendError::Draining);
        }
        match opening.path.len() {
            1..=METHOD_PATH_LEN_MAX => Ok(()),
            len => Err(SendError::MethodPath { len }),
        }
    }

    /// Compares metadata and message with what the peer takes and what a frame can say whose other parts take
    /// `fixed_len` bytes of a record. A block that could never be staged must not wait for room.
    #[inline]
    fn check_outgoing(
        &self,
        record_len_max: usize,
        fixed_len: usize,
        outgoing: &Outgoing,
    ) -> Result<(), SendError> {
        let check = |block: &Bytes, beside: usize| {
            let room = record_len_max.min(usize::from(u16::MAX)).saturating_sub(beside);
            let (len, max) = (block.len(), self.peer.metadata_len_max.min(room));
            if len > max { Err(SendError::MetadataLen { len, max }) } else { Ok(()) }
        };
        if let Some(block) = &outgoing.headers {
            check(block, fixed_len)?;
        }
        if let Some(Ending::Trailers { block, .. }) = &outgoing.ending {
            check(block, FRAME_HEAD_LEN)?;
        }
        match &outgoing.message {
            Some(message) if message.len() > MESSAGE_LEN_MAX => {
                Err(SendError::MessageLen { len: message.len() })
            }
            Some(message) if message.is_segmented && !self.segmented_messages.agreed => {
                Err(SendError::OutOfOrder("a segmented message, where no pool is in common,"))
            }
            _ => Ok(()),
        }
    }

    /// Sends as much of `outgoing` as room and credit allow, and takes out of it what was sent. What a server's last
    /// word means for the call is left to [`settle`](Session::settle), which can wait until the peer sees that word.
    ///
    /// A server that gives up in the middle of a message takes the rest of it out of the outgoing and ends with a
    /// status other than OK.
    ///
    /// # Errors
    /// [`SendError::Ended`] when the call has ended meanwhile; others as they say.
    pub fn send(
        &mut self,
        out: &mut impl Outbound,
        id: StreamId,
        outgoing: &mut Outgoing,
    ) -> Result<Progress, SendError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        self.check_outgoing(out.record_len_max(), FRAME_HEAD_LEN, outgoing)?;
        // Credit and cancellations go before messages, which may fill the ring time and again.
        if self.stage_pending(out).is_err() {
            return self.needs_room(id, outgoing);
        }
        let Some(stream) = self.streams.get_mut(id) else { return Err(SendError::Ended) };
        let log = self.recording.log().of(id);
        let mut budget = Budget {
            credit: &mut self.send_credit,
            crumb_len: self.crumb_len,
            segmented_messages: &mut self.segmented_messages,
            log,
        };
        let (mut progress, mut is_begun) = (Progress::Done, false);
        stream.wants_credit = false;
        while !outgoing.is_empty() && progress == Progress::Done {
            if stream.state.has_said_all() {
                return Err(SendError::Ended);
            }
            check_parts(self.role, stream, outgoing)?;
            progress = match budget.send_frame(out, stream, &FrameBuilder::new(id), outgoing)? {
                Progress::NeedRoom if is_begun => Progress::RanOut,
                progress => progress,
            };
            is_begun = true;
        }
        self.recording.log().blocked(id, progress);
        if progress == Progress::NeedCredit {
            stream.wants_credit = true;
            self.session_is_short |= self.send_credit < charge(self.crumb_len);
        }
        Ok(progress)
    }

    /// What a sender waits for while small frames find no room. One whose call has ended waits for nothing: what lacks room may
    /// be the cancellation of that very call, and nobody would wake the sender.
    ///
    /// # Errors
    /// [`SendError::Ended`] when the call has ended.
    #[cold]
    pub fn needs_room(&self, id: StreamId, outgoing: &Outgoing) -> Result<Progress, SendError> {
        match self.streams.get(id) {
            Some(_) if outgoing.is_empty() => Ok(Progress::Done),
            Some(stream) if !stream.state.has_said_all() => {
                self.recording.log().blocked(id, Progress::NeedRoom);
                Ok(Progress::NeedRoom)
            }
            _ => Err(SendError::Ended),
        }
    }

    /// Ends a call whose server has said its last word. Whether it has ended, and nothing of it is left to read.
    pub fn settle(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return true };
        if self.role == Role::Server && stream.state.has_said_all() && stream.is_live() {
            // Whatever the client still sends. What it had finished sending stays readable.
            let counts = stream.end == Some(End::HalfClosed);
            let end =
                if counts { End::HalfClosed } else { End::Cancelled { code: CANCELLED, refused: false } };
            let stopped = stop(
                stream,
                id,
                end,
                counts,
                &mut self.ready,
                &mut self.segmented_messages,
                self.recording.log(),
            );
            let is_read = stream.is_read();
            self.stopped(&stopped);
            return is_read;
        }
        !stream.is_live() && stream.is_read()
    }
}

/// Whether a stream may say now what an outgoing holds.
#[inline]
fn check_parts<T>(role: Role, stream: &Stream<T>, outgoing: &Outgoing) -> Result<(), SendError> {
    if outgoing.headers.is_some() && !stream.state.owes_headers() {
        return Err(SendError::OutOfOrder("headers"));
    }
    match &outgoing.message {
        Some(message) => {
            let headless = role == Role::Server && stream.state.owes_headers() && outgoing.headers.is_none();
            if headless || message.left() != stream.state.unsent() {
                return Err(SendError::OutOfOrder("message"));
            }
        }
        None => {
            let aborts = matches!(outgoing.ending, Some(Ending::Trailers { code: 1.., .. }));
            if stream.state.unsent().is_some() && outgoing.ending.is_some() && !aborts {
                return Err(SendError::OutOfOrder("ending"));
            }
        }
    }
    match (&outgoing.ending, role) {
        (Some(Ending::HalfClose), Role::Server) | (Some(Ending::Trailers { .. }), Role::Client) => {
            Err(SendError::OutOfOrder("ending"))
        }
        _ => Ok(()),
    }
}
