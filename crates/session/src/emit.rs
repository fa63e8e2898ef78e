//! Sending: from what the application wants to say to as few frames as it takes.

use bytes::Bytes;
use tollfree_layout::frame::{AREA_RANGE_LEN, DEADLINE_LEN, FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::limits::{CHUNK_CHARGE, MESSAGE_LEN_MAX, METHOD_COUNT_MAX, METHOD_PATH_LEN_MAX};
use tollfree_layout::{AreaIdx, ByteOff, MethodIdx, StreamId};
use zerocopy::IntoBytes;

use crate::credit::charge;
use crate::error::EmitError;
use crate::frame::{head, range_bytes};
use crate::stream::{RecvHalf, SendHalf, Stream};
use crate::{Outbound, Role, Session};

/// A chunk up to this length is always sent inline; a longer rest goes through the payload area where there is one.
const INLINE_LEN_MAX: usize = 8 * 1024;
/// Where less than this fits, the sender waits for room or credit rather than cut a message into crumbs.
const CRUMB_LEN: usize = 2 * 1024;
/// The method index of a path that is sent every time, because the table is full.
const NOT_INTERNED: u16 = u16::MAX;

/// A message on its way out.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its bytes, without any prefix.
    pub data: Bytes,
    /// Compressed as the `grpc-encoding` header says.
    pub compressed: bool,
    sent: usize,
    begun: bool,
}

impl Outgoing {
    /// A message of which nothing is sent yet.
    pub fn new(data: Bytes, compressed: bool) -> Outgoing {
        Outgoing { data, compressed, sent: 0, begun: false }
    }

    fn is_done(&self) -> bool {
        self.begun && self.sent == self.data.len()
    }
}

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

/// What is to be said on a stream, in the order of the fields. [`Session::emit`] takes out what it has sent, so that the
/// same value is offered again until it is empty.
#[derive(Clone, Debug, Default)]
pub struct Emission {
    /// Packed headers (a server's response headers; a client's go with [`Session::open`]).
    pub headers: Option<Bytes>,
    /// A message.
    pub message: Option<Outgoing>,
    /// The end of this side's half.
    pub ending: Option<Ending>,
}

impl Emission {
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

/// How far an emission got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it is staged.
    Done,
    /// The ring has no room; try again when the peer has read.
    NeedRoom,
    /// The peer has not read enough of this stream; [`Ready::write`](crate::Ready) tells when.
    NeedCredit,
    /// As many calls are under way as the server takes; try again when one has ended.
    NeedStream,
}

/// The parts of one frame while it is put together.
struct Draft<'a> {
    head: FrameHead,
    deadline: Option<[u8; DEADLINE_LEN]>,
    method: Option<(&'a [u8], [u8; 2])>,
    headers: &'a [u8],
    trailers: Bytes,
}

impl<'a> Draft<'a> {
    fn new(id: StreamId) -> Draft<'a> {
        Draft { head: head(id.0), deadline: None, method: None, headers: &[], trailers: Bytes::new() }
    }

    fn fixed_len(&self) -> usize {
        let method = self.method.map_or(0, |(path, len)| path.len() + len.len());
        FRAME_HEAD_LEN
            + self.deadline.map_or(0, |d| d.len())
            + method
            + self.headers.len()
            + self.trailers.len()
    }

    fn stage(&mut self, out: &mut impl Outbound, chunk: &[u8]) -> bool {
        let (path, path_len): (&[u8], &[u8]) = match &self.method {
            Some((path, len)) => (path, len),
            None => (&[], &[]),
        };
        let headers_len = path_len.len() + path.len() + self.headers.len();
        self.head.headers_len = (headers_len as u16).into();
        self.head.trailers_len = (self.trailers.len() as u16).into();
        let deadline = self.deadline.as_ref().map_or(&[][..], |d| &d[..]);
        out.stage(&[self.head.as_bytes(), deadline, path_len, path, self.headers, &self.trailers, chunk])
            .is_ok()
    }
}

/// How much of a message one frame takes, and where its bytes go.
struct Cut {
    len: usize,
    area: Option<(AreaIdx, ByteOff)>,
}

impl<T: Default> Session<T> {
    /// Opens a stream (client), with as much of `emission` as fits one frame. The rest, if any, is left in `emission`
    /// for [`emit`](Session::emit). `Err(progress)` inside `Ok` means that nothing was sent: try again.
    ///
    /// # Errors
    /// As [`EmitError`] says; nothing was sent then.
    pub fn open(
        &mut self,
        out: &mut impl Outbound,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Result<Result<StreamId, Progress>, EmitError> {
        self.check_open(opening, emission)?;
        if self.live_count >= self.peer.stream_count {
            return Ok(Err(Progress::NeedStream));
        }
        let id = StreamId(self.last_id + 1);
        let known = self.method_idx.get(opening.path).copied();
        let next = self.method_idx.len();
        let path = opening.path.as_bytes();
        let mut draft = Draft::new(id);
        draft.head.events = events::HEADERS;
        let code = match known {
            Some(idx) => idx.0,
            None => {
                draft.head.flags |= flags::NAMES_METHOD;
                draft.method = Some((path, (path.len() as u16).to_le_bytes()));
                if next < METHOD_COUNT_MAX { next as u16 } else { NOT_INTERNED }
            }
        };
        draft.head.code = code.into();
        if opening.deadline_ns != 0 {
            draft.head.flags |= flags::HAS_DEADLINE;
            draft.deadline = Some(opening.deadline_ns.to_le_bytes());
        }
        let headers = emission.headers.clone().unwrap_or_default();
        draft.headers = &headers;
        let mut stream =
            Stream::new(SendHalf::Open, self.peer.stream_window, RecvHalf::Head, self.local.stream_window);
        let sent = self.send_frame(out, &mut stream, draft, emission);
        if sent != Progress::Done {
            return Ok(Err(sent));
        }
        self.last_id = id.0;
        self.live_count += 1;
        if known.is_none() && code != NOT_INTERNED {
            self.method_idx.insert(opening.path.into(), MethodIdx(code));
        }
        self.streams.insert(id, stream);
        Ok(Ok(id))
    }

    fn check_open(&self, opening: Opening<'_>, emission: &Emission) -> Result<(), EmitError> {
        debug_assert_eq!(self.role, Role::Client, "only clients open streams");
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        if self.drain.is_some() {
            return Err(EmitError::Draining);
        }
        let len = opening.path.len();
        if len == 0 || len > METHOD_PATH_LEN_MAX {
            return Err(EmitError::MethodPath { len });
        }
        self.check_emission(emission)
    }

    fn check_emission(&self, emission: &Emission) -> Result<(), EmitError> {
        let max = self.peer.metadata_len_max;
        let trailers_len = match &emission.ending {
            Some(Ending::Trailers { block, .. }) => block.len(),
            _ => 0,
        };
        for len in [emission.headers.as_ref().map_or(0, Bytes::len), trailers_len] {
            if len > max {
                return Err(EmitError::MetadataLen { len, max });
            }
        }
        match &emission.message {
            Some(message) if message.data.len() > MESSAGE_LEN_MAX => {
                Err(EmitError::MessageLen { len: message.data.len() })
            }
            _ => Ok(()),
        }
    }

    /// Sends as much of `emission` as room and credit allow, and takes out of it what was sent.
    ///
    /// # Errors
    /// [`EmitError::Ended`] when the call has ended meanwhile; others as they say.
    pub fn emit(
        &mut self,
        out: &mut impl Outbound,
        id: StreamId,
        emission: &mut Emission,
    ) -> Result<Progress, EmitError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        self.check_emission(emission)?;
        // The stream is taken out while frames are made, so that session and stream can both change.
        let Some(mut stream) = self.streams.remove(&id) else { return Err(EmitError::Ended) };
        let progress = self.emit_frames(out, id, &mut stream, emission);
        let answered = self.role == Role::Server && stream.send == SendHalf::Closed;
        self.streams.insert(id, stream);
        if progress == Ok(Progress::Done) && answered {
            self.finish_answered(id);
        }
        if progress == Ok(Progress::NeedCredit) && self.send_credit < charge(CRUMB_LEN) {
            self.wants_session_credit.push_back(id);
        }
        progress
    }

    fn emit_frames(
        &mut self,
        out: &mut impl Outbound,
        id: StreamId,
        stream: &mut Stream<T>,
        emission: &mut Emission,
    ) -> Result<Progress, EmitError> {
        while !emission.is_empty() {
            if stream.send == SendHalf::Closed {
                return Err(EmitError::Ended);
            }
            let mut draft = Draft::new(id);
            let headers = emission.headers.clone().unwrap_or_default();
            if emission.headers.is_some() {
                draft.head.events |= events::HEADERS;
                draft.headers = &headers;
            }
            let progress = self.send_frame(out, stream, draft, emission);
            if progress != Progress::Done {
                stream.wants_credit = progress == Progress::NeedCredit;
                return Ok(progress);
            }
        }
        Ok(Progress::Done)
    }

    /// Sends one frame: the draft's headers, and as much of message and ending as go with them.
    fn send_frame(
        &mut self,
        out: &mut impl Outbound,
        stream: &mut Stream<T>,
        mut draft: Draft<'_>,
        emission: &mut Emission,
    ) -> Progress {
        let mut ends_message = emission.message.is_none();
        let mut cut = None;
        if let Some(message) = &emission.message {
            match self.cut(out, stream, draft.fixed_len(), message) {
                Ok(found) => {
                    let end = message.sent + found.len;
                    draft.head.events |= events::MESSAGE;
                    draft.head.chunk_len = (found.len as u32).into();
                    if !message.begun {
                        draft.head.flags |= flags::FIRST;
                        draft.head.message_len = (message.data.len() as u32).into();
                        draft.head.flags |= if message.compressed { flags::COMPRESSED } else { 0 };
                    }
                    if end == message.data.len() {
                        draft.head.flags |= flags::LAST;
                        ends_message = true;
                    }
                    cut = Some(found);
                }
                // Headers need no credit, and go ahead of a message that does.
                Err(_) if draft.head.events & events::HEADERS != 0 => {}
                Err(progress) => return progress,
            }
        }
        let cut_len = cut.as_ref().map_or(0, |cut| if cut.area.is_some() { AREA_RANGE_LEN } else { cut.len });
        let mut ends = false;
        if ends_message {
            match &emission.ending {
                Some(Ending::HalfClose) => {
                    draft.head.events |= events::HALF_CLOSE;
                    ends = true;
                }
                Some(Ending::Trailers { code, block })
                    if draft.fixed_len() + block.len() + cut_len <= out.record_len_max() =>
                {
                    draft.head.events |= events::TRAILERS;
                    draft.head.code = (*code).into();
                    draft.trailers = block.clone();
                    ends = true;
                }
                _ => {}
            }
        }
        let range;
        let chunk: &[u8] = match (&cut, &emission.message) {
            (Some(Cut { area: Some((area, at)), .. }), _) => {
                draft.head.flags |= flags::IN_AREA;
                range = range_bytes(*area, *at);
                &range
            }
            (Some(Cut { len, .. }), Some(message)) => &message.data[message.sent..message.sent + len],
            _ => &[],
        };
        if !draft.stage(out, chunk) {
            if cut.is_some_and(|cut| cut.area.is_some()) {
                out.take_back();
            }
            return Progress::NeedRoom;
        }
        self.sent(stream, emission, cut);
        if ends {
            emission.ending = None;
            stream.send = SendHalf::Closed;
        }
        Progress::Done
    }

    /// Writes down what one frame has taken out of an emission.
    fn sent(&mut self, stream: &mut Stream<T>, emission: &mut Emission, cut: Option<Cut>) {
        emission.headers = None;
        if stream.send == SendHalf::Head {
            stream.send = SendHalf::Open;
        }
        if let (Some(cut), Some(message)) = (cut, &mut emission.message) {
            message.begun = true;
            message.sent += cut.len;
            stream.send_credit -= charge(cut.len);
            self.send_credit -= charge(cut.len);
            if message.is_done() {
                emission.message = None;
            }
        }
    }

    /// Decides how much of a message the next frame takes; places it in the payload area if it goes there.
    fn cut(
        &self,
        out: &mut impl Outbound,
        stream: &Stream<T>,
        fixed_len: usize,
        message: &Outgoing,
    ) -> Result<Cut, Progress> {
        let left = message.data.len() - message.sent;
        let credit = stream.send_credit.min(self.send_credit);
        let granted = credit.checked_sub(CHUNK_CHARGE).ok_or(Progress::NeedCredit)?.min(left as u64) as usize;
        if granted < left.min(CRUMB_LEN) {
            return Err(Progress::NeedCredit);
        }
        if granted > INLINE_LEN_MAX {
            let len = out.area_chunk_max(granted).min(granted);
            if len >= INLINE_LEN_MAX
                && let Some(place) = out.put_in_area(&message.data[message.sent..message.sent + len])
            {
                return Ok(Cut { len, area: Some(place) });
            }
        }
        let inline = out.record_len_max().saturating_sub(fixed_len).min(granted);
        if inline < left.min(CRUMB_LEN) {
            Err(Progress::NeedRoom)
        } else {
            Ok(Cut { len: inline, area: None })
        }
    }

    /// A server that has sent its trailers is done with the call, whatever the client still sends.
    fn finish_answered(&mut self, id: StreamId) {
        self.end_stream(id, crate::End::Cancelled { code: crate::session::CANCELLED, refused: false });
    }
}
