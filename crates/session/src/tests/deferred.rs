//! Messages that are encoded while they are sent: what is asked of them, and what comes of those that lie or panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tollfree_layout::StreamId;
use tollfree_layout::frame::events;

use crate::tests::script::{LIMITS, STALE, Script, Sink, say};
use crate::{
    DeferredEncoding, Ending, Limits, Misencoded, Opening, Outgoing, OutgoingMessage, Progress, Role,
    SendError, Session, Written,
};

const OPENING: Opening<'static> = Opening { path: "/a", deadline_ns: 0 };
const LIMITS_WIDE: Limits = Limits { stream_window: 65_536, session_window: 262_144, ..LIMITS };
const LEN: usize = 50_000;
const CHUNK_LEN: usize = 20_000;

/// How a message is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// So many bytes are written, from the range of that number on.
    Lies {
        len: usize,
        from: usize,
    },
    /// When the range of that number is asked for.
    Panics {
        from: usize,
    },
    /// Says so with the first range.
    Crumbly,
    /// And gives all of it along.
    Gathered,
}

struct Told {
    bytes: Vec<u8>,
    manner: Manner,
    ranges: AtomicUsize,
    wholes: AtomicUsize,
}

impl Told {
    fn new(manner: Manner) -> Arc<Told> {
        let bytes = (0..LEN).map(|at| (at % 199) as u8).collect();
        Arc::new(Told { bytes, manner, ranges: AtomicUsize::new(0), wholes: AtomicUsize::new(0) })
    }

    fn asked(&self) -> (usize, usize) {
        (self.ranges.load(Ordering::Relaxed), self.wholes.load(Ordering::Relaxed))
    }
}

impl DeferredEncoding for Told {
    fn write_range(&self, len: usize, from: usize, range: &mut [u8]) -> Written {
        assert_eq!(len, LEN);
        let nth = self.ranges.fetch_add(1, Ordering::Relaxed);
        let len = match self.manner {
            Manner::Lies { len, from } if nth >= from => len,
            Manner::Panics { from } if nth >= from => panic!("as it was told to"),
            _ => LEN,
        };
        let end = (from + range.len()).min(len).max(from);
        let written: Vec<u8> = (from..end).map(|at| (at % 199) as u8).collect();
        range[..written.len()].copy_from_slice(&written);
        let whole = (self.manner == Manner::Gathered).then(|| Bytes::copy_from_slice(&self.bytes));
        Written { len, is_crumbly: self.manner == Manner::Crumbly, whole }
    }

    fn encode(&self, _: usize) -> Bytes {
        self.wholes.fetch_add(1, Ordering::Relaxed);
        Bytes::copy_from_slice(&self.bytes)
    }
}

fn client() -> (Session<()>, Sink) {
    let sink = Sink { area_chunk_max: CHUNK_LEN, ..Sink::new() };
    (Session::new(Role::Client, LIMITS_WIDE, LIMITS_WIDE), sink)
}

fn request(message: &Arc<Told>) -> Outgoing {
    let message = Some(OutgoingMessage::deferred(message.clone(), LEN));
    Outgoing { message, ending: Some(Ending::HalfClose), ..Outgoing::default() }
}

/// Sends a whole request, and gives what lay in the area, chunk by chunk.
fn chunks(message: &Arc<Told>) -> Vec<Vec<u8>> {
    let ((mut client, mut out), mut outgoing) = (client(), request(message));
    let id = client.open(&mut out, OPENING, &mut outgoing).unwrap().unwrap();
    let mut chunks = vec![out.area.clone()];
    while !outgoing.is_empty() {
        assert!(matches!(client.send(&mut out, id, &mut outgoing), Ok(Progress::Partly | Progress::Done)));
        chunks.push(out.area.clone());
    }
    chunks
}

#[test]
fn each_chunk_is_asked_for_where_it_is_to_lie_and_crumbly_messages_as_a_whole() {
    for (manner, asked) in [(Manner::Honest, (3, 0)), (Manner::Crumbly, (1, 1)), (Manner::Gathered, (1, 0))] {
        let message = Told::new(manner);
        let chunks = chunks(&message);
        assert_eq!(chunks.concat(), message.bytes);
        assert_eq!((chunks.len(), message.asked()), (3, asked));
    }
}

#[test]
fn a_message_without_an_area_is_written_range_by_range_into_records() {
    let ((mut client, mut out), message) = (client(), Told::new(Manner::Honest));
    out.area_chunk_max = 0;
    let mut outgoing = request(&message);
    let id = client.open(&mut out, OPENING, &mut outgoing).unwrap().unwrap();
    assert_eq!(client.send(&mut out, id, &mut outgoing), Ok(Progress::Done));
    // A head each, and the path with its length in the first.
    let chunks =
        out.records.iter().enumerate().flat_map(|(nth, record)| &record[if nth == 0 { 28 } else { 24 }..]);
    assert!(chunks.eq(&message.bytes));
    assert_eq!(message.asked(), (out.records.len(), 0));
}

#[test]
fn a_message_that_is_not_as_long_as_it_says_or_panics_opens_no_call_and_leaves_nothing_behind() {
    for (manner, expected) in [
        (Manner::Lies { len: 10_000, from: 0 }, Misencoded::Len { promised: LEN, written: 10_000 }),
        (Manner::Lies { len: LEN - 1, from: 0 }, Misencoded::Len { promised: LEN, written: LEN - 1 }),
        (Manner::Lies { len: LEN + 1, from: 0 }, Misencoded::Len { promised: LEN, written: LEN + 1 }),
        (Manner::Panics { from: 0 }, Misencoded::Panicked),
    ] {
        for area_chunk_max in [CHUNK_LEN, 0] {
            let (mut client, mut out) = client();
            out.area_chunk_max = area_chunk_max;
            let opened = client.open(&mut out, OPENING, &mut request(&Told::new(manner)));
            assert_eq!(opened, Err(SendError::Misencoded(expected)));
            assert_eq!((out.records.len(), out.taken_back), (0, usize::from(area_chunk_max > 0)));
            assert!(!out.area.contains(&STALE) && out.area.iter().all(|byte| *byte == 0));
            assert_eq!(client.live_count(), 0);
            let mut honest = request(&Told::new(Manner::Honest));
            assert_eq!(client.open(&mut out, OPENING, &mut honest), Ok(Ok(StreamId(1))));
        }
    }
}

#[test]
fn a_message_that_changes_while_it_is_sent_ends_its_call_and_no_other() {
    for (manner, expected) in [
        (Manner::Lies { len: 30_000, from: 1 }, Misencoded::Len { promised: LEN, written: 30_000 }),
        (Manner::Panics { from: 1 }, Misencoded::Panicked),
    ] {
        let mut server: Session<()> = Session::new(Role::Server, LIMITS_WIDE, LIMITS_WIDE);
        let mut out = Sink { area_chunk_max: CHUNK_LEN, ..Sink::new() };
        for id in [1, 2] {
            Script::opening(id).send(&mut server).unwrap();
            server.accept().unwrap();
        }
        let message = Some(OutgoingMessage::deferred(Told::new(manner), LEN));
        let ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
        let mut outgoing = Outgoing { headers: Some(Bytes::new()), message, ending: ending.clone() };
        assert_eq!(say(&mut server, &mut out, StreamId(1), &mut outgoing), Ok(Progress::Partly));
        let again = say(&mut server, &mut out, StreamId(1), &mut outgoing);
        assert_eq!(again, Err(SendError::Misencoded(expected)));
        assert_eq!((out.take().len(), out.taken_back), (1, 1));
        assert!(out.area.iter().all(|byte| *byte == 0));
        let ending = Some(Ending::Trailers { code: 13, block: Bytes::new() });
        let mut aborted = Outgoing { ending, ..Outgoing::default() };
        assert_eq!(say(&mut server, &mut out, StreamId(1), &mut aborted), Ok(Progress::Done));
        assert_eq!(out.take().last().unwrap().events, events::TRAILERS);
        let message = Some(OutgoingMessage::deferred(Told::new(Manner::Honest), LEN));
        let mut other = Outgoing { headers: Some(Bytes::new()), message, ..Outgoing::default() };
        assert_eq!(say(&mut server, &mut out, StreamId(2), &mut other), Ok(Progress::Partly));
    }
}

#[test]
fn a_frame_that_finds_no_room_is_written_again() {
    let ((mut client, mut out), message) = (client(), Told::new(Manner::Honest));
    out.room = 0;
    let mut outgoing = request(&message);
    assert_eq!(client.open(&mut out, OPENING, &mut outgoing), Ok(Err(Progress::NeedRoom)));
    assert_eq!(out.taken_back, 1);
    out.room = usize::MAX;
    assert_eq!(client.open(&mut out, OPENING, &mut outgoing), Ok(Ok(StreamId(1))));
    assert_eq!(out.area, message.bytes[..CHUNK_LEN]);
}

#[test]
fn copies_of_a_message_are_of_the_same_and_can_be_had_as_bytes() {
    let message = Told::new(Manner::Honest);
    let outgoing = OutgoingMessage::deferred(message.clone(), LEN);
    assert_eq!((outgoing.len(), outgoing.clone().to_bytes().len()), (LEN, LEN));
    assert_eq!((outgoing.to_bytes(), message.asked()), (message.bytes.clone().into(), (0, 2)));
}
