//! Frames as a peer would write them, by hand, for the tests of this crate.

use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use tollfree_events::SessionEvent;
use tollfree_layout::frame::{FrameHead, events, flags};
use tollfree_layout::{AreaIdx, ByteOff, StreamId};
use zerocopy::IntoBytes;

use crate::Incoming;
use crate::frame::head;
use crate::stream::Watched;
use crate::{
    AreaFault, Full, Inbound, Limits, Outbound, Outgoing, Part, Progress, Received, Recorder, Recording,
    Role, SendError, Session, Violation,
};

/// Limits small enough to be reached.
pub(crate) const LIMITS: Limits =
    Limits { stream_window: 4096, session_window: 12_000, stream_count: 2, metadata_len_max: 100 };

pub(crate) fn session(role: Role) -> Session<()> {
    Session::new(role, LIMITS, LIMITS)
}

/// A recorder that keeps what it is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<SessionEvent>>>);

impl Kept {
    pub(crate) fn recording(&self) -> Recording {
        Recording::to(Box::new(self.clone()))
    }

    /// What was told since this was called last.
    pub(crate) fn take(&self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Recorder for Kept {
    fn record(&self, event: SessionEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// Says what an outgoing holds as the transport does: what the last word means comes after it.
pub(crate) fn say(
    session: &mut Session<()>,
    out: &mut Sink,
    id: StreamId,
    outgoing: &mut Outgoing,
) -> Result<Progress, SendError> {
    let progress = session.send(out, id, outgoing)?;
    session.settle(id);
    Ok(progress)
}

/// What has come on a call and was not read, part by part.
pub(crate) fn read(session: &mut Session<()>, id: StreamId) -> Option<Part> {
    session.take(id).map(Incoming::into_part)
}

/// A frame: the head, and the bytes of its parts.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) head: FrameHead,
    pub(crate) parts: Vec<u8>,
}

impl Script {
    pub(crate) fn new(events: u8, stream: u64) -> Script {
        let mut head = head(stream);
        head.events = events;
        Script { head, parts: Vec::new() }
    }

    /// A call to the method with index 0, which it names if it is the first.
    pub(crate) fn opening(stream: u64) -> Script {
        let mut script = Script::new(events::HEADERS, stream);
        if stream == 1 {
            script = script.flags(flags::NAMES_METHOD).headers(&[2, 0, b'/', b'a']);
        }
        script
    }

    pub(crate) fn flags(mut self, flags: u8) -> Script {
        self.head.flags |= flags;
        self
    }

    pub(crate) fn code(mut self, code: u16) -> Script {
        self.head.code = code.into();
        self
    }

    pub(crate) fn headers(mut self, block: &[u8]) -> Script {
        self.head.headers_len = (block.len() as u16).into();
        self.parts.extend_from_slice(block);
        self
    }

    pub(crate) fn trailers(mut self, block: &[u8]) -> Script {
        self.head.trailers_len = (block.len() as u16).into();
        self.raw(block)
    }

    /// A chunk of zeros, of a message of `message_len` where it is the first.
    pub(crate) fn chunk(mut self, len: usize, message_len: u32, flags: u8) -> Script {
        self.head.events |= events::MESSAGE;
        self.head.chunk_len = (len as u32).into();
        self.head.message_len = message_len.into();
        self.parts.resize(self.parts.len() + len, 0);
        self.flags(flags)
    }

    /// A whole message of one byte.
    pub(crate) fn message(self) -> Script {
        self.chunk(1, 1, flags::FIRST | flags::LAST)
    }

    pub(crate) fn chunk_len(mut self, len: u32) -> Script {
        self.head.chunk_len = len.into();
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Script {
        self.parts.extend_from_slice(bytes);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.parts].concat()
    }

    pub(crate) fn send(&self, session: &mut Session<()>) -> Result<Received, Violation> {
        self.send_to(session)
    }

    /// The same to a session of which somebody keeps something for each stream.
    pub(crate) fn send_to<T: Watched>(&self, session: &mut Session<T>) -> Result<Received, Violation> {
        session.receive(&Record(self.bytes()))
    }
}

/// A record; beside it area 0, of 1000 zeros.
pub(crate) struct Record(pub(crate) Vec<u8>);

impl Inbound for Record {
    fn record_len(&self) -> usize {
        self.0.len()
    }

    fn read(&self, at: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[at..at + dst.len()]);
    }

    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        dst.extend_from_slice(&self.0[at..at + len]);
    }

    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        if area.0 != 0 || at.0.checked_add(len as u64).is_none_or(|end| end > 1000) {
            return Err(AreaFault);
        }
        dst.resize(dst.len() + len, 0);
        Ok(())
    }

    fn pass_over_area(&self) {}
}

/// Takes `room` records, of at most `record_len_max` bytes; has an area that takes chunks of `area_chunk_max`.
pub(crate) struct Sink {
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) room: usize,
    pub(crate) record_len_max: usize,
    pub(crate) area_chunk_max: usize,
    /// The chunk placed last.
    pub(crate) area: Vec<u8>,
    /// Chunks whose room was given back.
    pub(crate) taken_back: usize,
}

/// What lies in an area before anything is written there.
pub(crate) const STALE: u8 = 0xee;

impl Sink {
    pub(crate) fn new() -> Sink {
        Sink {
            records: Vec::new(),
            room: usize::MAX,
            record_len_max: 16_312,
            area_chunk_max: 0,
            area: Vec::new(),
            taken_back: 0,
        }
    }

    /// The heads of what was staged; forgets it.
    pub(crate) fn take(&mut self) -> Vec<FrameHead> {
        use zerocopy::FromBytes;
        let heads = self.records.drain(..).map(|record| *FrameHead::ref_from_prefix(&record).unwrap().0);
        heads.collect()
    }
}

impl Outbound for Sink {
    fn record_len_max(&self) -> usize {
        self.record_len_max
    }

    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        let record = parts.concat();
        if self.room == 0 || record.len() > self.record_len_max {
            return Err(Full);
        }
        self.room -= 1;
        self.records.push(record);
        Ok(())
    }

    fn area_chunk_max(&mut self, wanted: usize) -> usize {
        self.area_chunk_max.min(wanted)
    }

    fn fill_in_area(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        if self.area_chunk_max == 0 {
            return None;
        }
        self.area = vec![STALE; len];
        fill(&mut self.area);
        Some((AreaIdx(0), ByteOff(0)))
    }

    fn take_back(&mut self) {
        self.taken_back += 1;
    }
}
