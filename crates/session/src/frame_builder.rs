//! One frame while it is put together: what goes into it, and how much of a message.

use tollfree_layout::frame::{AREA_RANGE_LEN, DEADLINE_LEN, FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::limits::CHUNK_CHARGE;
use tollfree_layout::{AreaIdx, ByteOff, StreamId};
use zerocopy::IntoBytes;

use crate::Outbound;
use crate::credit::charge;
use crate::deferred::{Data, Misencoded};
use crate::frame::{head, range_bytes};
use crate::outgoing_message::OutgoingMessage;
use crate::recording::Log;
use crate::segmented::SegmentedMessages;
use crate::send::{Ending, Outgoing, Progress};
use crate::stream::Stream;
use crate::stream_state::StreamLog;

/// A chunk up to this length is always sent inline; a longer rest goes through the payload area where there is one.
pub(crate) const INLINE_LEN_MAX: usize = 8 * 1024;
/// A batch takes at most so much of a frame.
const BATCH_LEN_MAX: usize = 16 * 1024;
/// Where less than this fits, the sender waits for room or credit rather than cut a message into crumbs.
pub(crate) const CRUMB_LEN: usize = 2 * 1024;

/// The parts of a frame.
#[derive(Clone, Copy)]
pub(crate) struct FrameBuilder<'a> {
    pub(crate) head: FrameHead,
    pub(crate) deadline: Option<[u8; DEADLINE_LEN]>,
    /// A method's path where it has to be spelled out.
    pub(crate) path: Option<&'a [u8]>,
    pub(crate) headers: &'a [u8],
    pub(crate) trailers: &'a [u8],
}

impl<'a> FrameBuilder<'a> {
    pub(crate) fn new(id: StreamId) -> FrameBuilder<'a> {
        FrameBuilder { head: head(id.0), deadline: None, path: None, headers: &[], trailers: &[] }
    }

    #[inline]
    fn headers_len(&self) -> usize {
        self.path.map_or(0, |path| 2 + path.len()) + self.headers.len()
    }

    /// Length of the frame without its chunk.
    #[inline]
    pub(crate) fn fixed_len(&self) -> usize {
        let deadline_len = if self.deadline.is_some() { DEADLINE_LEN } else { 0 };
        FRAME_HEAD_LEN + deadline_len + self.headers_len() + self.trailers.len()
    }

    fn stage(&mut self, out: &mut impl Outbound, chunk: &[u8], log: Log<'_>) -> bool {
        // The caller has compared all lengths with what a record and the head can say.
        self.head.headers_len = (self.headers_len() as u16).into();
        self.head.trailers_len = (self.trailers.len() as u16).into();
        let deadline = self.deadline.as_ref().map_or(&[][..], |deadline| &deadline[..]);
        let head = self.head.as_bytes();
        let staged = match self.path {
            // Each part costs its writer something, and most calls have few.
            None if deadline.is_empty() && self.headers.is_empty() && self.trailers.is_empty() => {
                out.stage(&[head, chunk])
            }
            None => out.stage(&[head, deadline, self.headers, self.trailers, chunk]),
            Some(path) => {
                let path_len = (path.len() as u16).to_le_bytes();
                out.stage(&[head, deadline, &path_len, path, self.headers, self.trailers, chunk])
            }
        };
        if staged.is_ok() {
            log.sent(&self.head);
        }
        staged.is_ok()
    }
}

/// How much of a message one frame takes, and where its bytes go.
struct Cut {
    len: usize,
    /// Messages of a batch.
    count: u32,
    area: Option<(AreaIdx, ByteOff)>,
}

/// Why a message isn't cut.
enum Uncut {
    /// It has to wait.
    Waits(Progress),
    Misencoded(Misencoded),
}

/// What a frame may spend beside its stream's credit.
pub(crate) struct Budget<'a> {
    /// The session's credit.
    pub(crate) credit: &'a mut u64,
    /// Where less than this can be sent, wait for credit.
    pub(crate) crumb_len: usize,
    pub(crate) segmented_messages: &'a mut SegmentedMessages,
    /// Where the stream's transitions and frames are reported.
    pub(crate) log: StreamLog<'a>,
}

impl Budget<'_> {
    /// Sends one frame: the frame's headers, and as much of message and ending as go with them. Takes out of the
    /// outgoing what was sent. Both `Done` and `Partly` mean that it was.
    ///
    /// # Errors
    /// For a message that can't be encoded; nothing was sent then.
    pub(crate) fn send_frame<T>(
        &mut self,
        out: &mut impl Outbound,
        stream: &mut Stream<T>,
        frame: &FrameBuilder<'_>,
        outgoing: &mut Outgoing,
    ) -> Result<Progress, Misencoded> {
        if self.send_all(out, stream, frame, outgoing) {
            return Ok(Progress::Done);
        }
        let mut frame = *frame;
        let Outgoing { headers, message, ending } = outgoing;
        if let Some(block) = headers.as_deref() {
            frame.head.events |= events::HEADERS;
            frame.headers = block;
        }
        let mut cut = None;
        let mut ends_message = message.is_none();
        if let Some(message) = message.as_mut() {
            match self.cut_any(out, stream, frame.fixed_len(), message) {
                Ok(found) => {
                    ends_message = message.describe(found.len, found.count, &mut frame.head);
                    cut = Some(found);
                }
                // Headers need no credit, and go ahead of a message that does.
                Err(Uncut::Waits(_)) if frame.head.events & events::HEADERS != 0 => {}
                Err(Uncut::Waits(progress)) => return Ok(progress),
                Err(Uncut::Misencoded(misencoded)) => return Err(misencoded),
            }
        }
        let range;
        let written;
        let chunk: &[u8] = match (&cut, message.as_mut()) {
            (Some(Cut { area: Some((area, at)), .. }), _) => {
                frame.head.flags |= flags::IN_AREA;
                range = range_bytes(*area, *at);
                &range
            }
            (Some(Cut { len, .. }), Some(OutgoingMessage { data: Data::Encoded(bytes), sent, .. })) => {
                &bytes[*sent..*sent + len]
            }
            (Some(Cut { len, .. }), Some(message)) => {
                let mut chunk = vec![0; *len];
                message.data.fill(message.sent, &mut chunk)?;
                written = chunk;
                &written
            }
            _ => &[],
        };
        let ends = ends_message && frame.end(ending.as_ref(), chunk.len(), out.record_len_max());
        if !frame.stage(out, chunk, self.log.frames()) {
            if cut.is_some_and(|cut| cut.area.is_some()) {
                out.take_back();
            }
            return Ok(Progress::NeedRoom);
        }
        *headers = None;
        stream.state.on_sent(self.log);
        let in_area = cut.as_ref().is_some_and(|cut| cut.area.is_some());
        if let Some(cut) = cut {
            stream.send_credit -= charge(cut.len);
            *self.credit -= charge(cut.len);
            if let Some(keep) = message.as_mut().and_then(|message| message.keep.take()) {
                self.segmented_messages.sent(keep);
            }
            let left = message.as_mut().and_then(|message| message.advance(cut.len));
            stream.state.on_chunk_sent(left, self.log);
            if left.is_none() {
                *message = message.take().and_then(OutgoingMessage::next);
            }
        }
        if ends {
            *ending = None;
            stream.state.on_ending_sent(self.log);
        }
        Ok(if in_area && message.is_some() { Progress::Partly } else { Progress::Done })
    }

    /// Sends the usual last frame: all that is left, with a message that need not be cut, nor placed in the payload area, nor
    /// kept. `false`: it is another one, or there is no room, and nothing was done.
    #[inline]
    fn send_all<T>(
        &mut self,
        out: &mut impl Outbound,
        stream: &mut Stream<T>,
        frame: &FrameBuilder<'_>,
        outgoing: &mut Outgoing,
    ) -> bool {
        let (Some(message), Some(ending)) = (&outgoing.message, &outgoing.ending) else { return false };
        let Data::Encoded(bytes) = &message.data else { return false };
        let chunk = &bytes[message.sent..];
        let cost = charge(chunk.len());
        if chunk.len() > INLINE_LEN_MAX
            || cost > stream.send_credit.min(*self.credit)
            || message.keep.is_some()
            || !message.is_single()
        {
            return false;
        }
        let mut frame = *frame;
        if let Some(block) = outgoing.headers.as_deref() {
            frame.head.events |= events::HEADERS;
            frame.headers = block;
        }
        message.describe(chunk.len(), 0, &mut frame.head);
        let record_len_max = out.record_len_max();
        let fits = frame.end(Some(ending), chunk.len(), record_len_max)
            && frame.fixed_len() + chunk.len() <= record_len_max;
        if !fits || !frame.stage(out, chunk, self.log.frames()) {
            return false;
        }
        stream.send_credit -= cost;
        *self.credit -= cost;
        stream.state.on_ending_sent(self.log);
        *outgoing = Outgoing::default();
        true
    }

    /// How much of a message, or of a batch, the next frame takes. A message of a batch that fits into none goes alone.
    #[inline]
    fn cut_any<T>(
        &self,
        out: &mut impl Outbound,
        stream: &Stream<T>,
        fixed_len: usize,
        message: &mut OutgoingMessage,
    ) -> Result<Cut, Uncut> {
        if message.is_batch() {
            if let Some(cut) = self.cut_batch(out, stream, fixed_len, message) {
                return Ok(cut);
            }
            message.single_out();
        }
        self.cut(out, stream, fixed_len, message)
    }

    /// How many messages of a batch the next frame takes: in the payload area, where the batch is long. `None`: the first fits into no frame.
    #[inline]
    fn cut_batch<T>(
        &self,
        out: &mut impl Outbound,
        stream: &Stream<T>,
        fixed_len: usize,
        message: &OutgoingMessage,
    ) -> Option<Cut> {
        let credit = stream.send_credit.min(*self.credit).saturating_sub(CHUNK_CHARGE);
        let granted = usize::try_from(credit).unwrap_or(usize::MAX);
        let room = out.record_len_max().saturating_sub(fixed_len);
        let left = message.len() - message.sent;
        if left > INLINE_LEN_MAX && room >= AREA_RANGE_LEN {
            let (len, count) = message.fitting(out.area_chunk_max(left).min(granted));
            if len >= INLINE_LEN_MAX
                && let Data::Encoded(bytes) = &message.data
                && let Some(place) = out.put_in_area(&bytes[message.sent..message.sent + len])
            {
                return Some(Cut { len, count, area: Some(place) });
            }
        }
        let (len, count) = message.fitting(room.min(BATCH_LEN_MAX).min(granted));
        (count > 0).then_some(Cut { len, count, area: None })
    }

    /// Decides how much of a message the next frame takes; places it in the payload area if it goes there.
    #[inline]
    fn cut<T>(
        &self,
        out: &mut impl Outbound,
        stream: &Stream<T>,
        fixed_len: usize,
        message: &mut OutgoingMessage,
    ) -> Result<Cut, Uncut> {
        let left = message.len() - message.sent;
        let credit = stream.send_credit.min(*self.credit);
        let granted = credit.saturating_sub(CHUNK_CHARGE).min(left as u64) as usize;
        if credit < CHUNK_CHARGE || granted < left.min(self.crumb_len) {
            return Err(Uncut::Waits(Progress::NeedCredit));
        }
        let record_len_max = out.record_len_max();
        let room = record_len_max.saturating_sub(fixed_len);
        if granted > INLINE_LEN_MAX && room >= AREA_RANGE_LEN {
            let len = out.area_chunk_max(granted).min(granted);
            if len >= INLINE_LEN_MAX {
                let mut filled = Ok(());
                let place = match &mut message.data {
                    Data::Encoded(bytes) => out.put_in_area(&bytes[message.sent..message.sent + len]),
                    data => out.fill_in_area(len, |place| filled = data.fill(message.sent, place)),
                };
                if let Err(misencoded) = filled {
                    out.take_back();
                    return Err(Uncut::Misencoded(misencoded));
                }
                if place.is_some() {
                    return Ok(Cut { len, count: 0, area: place });
                }
            }
        }
        // A record may be too short for more than crumbs.
        let crumb_len = self.crumb_len.min(record_len_max.saturating_sub(FRAME_HEAD_LEN)).max(1);
        let inline = room.min(granted);
        if inline < left.min(crumb_len) || fixed_len > record_len_max {
            Err(Uncut::Waits(Progress::NeedRoom))
        } else {
            Ok(Cut { len: inline, count: 0, area: None })
        }
    }
}

impl<'a> FrameBuilder<'a> {
    /// Adds the ending where it fits beside a chunk of `chunk_len` bytes.
    #[inline]
    fn end(&mut self, ending: Option<&'a Ending>, chunk_len: usize, record_len_max: usize) -> bool {
        match ending {
            None => false,
            Some(Ending::HalfClose) => {
                self.head.events |= events::HALF_CLOSE;
                true
            }
            Some(Ending::Trailers { code, block }) => {
                if self.fixed_len() + block.len() + chunk_len > record_len_max {
                    return false;
                }
                self.head.events |= events::TRAILERS;
                self.head.code = (*code).into();
                self.trailers = block;
                true
            }
        }
    }
}
