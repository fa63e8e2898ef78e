//! Conversations between two real sessions, frame by frame, and frames that a session must not accept.

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tollfree_layout::frame::{FrameHead, events, flags};
use tollfree_layout::{AreaIdx, ByteOff, StreamId, metadata};
use tollfree_session::{
    AreaFault, Asked, Closed, End, Ending, Full, Inbound, Incoming, Keep, Limits, OBJECT_PREFIX, Opening,
    Outbound, Outgoing, OutgoingMessage, Part, Progress, Role, Session,
};
use zerocopy::FromBytes;

use super::{hex, hold, violations};
use crate::specification;

pub(super) const LIMITS: Limits =
    Limits { stream_window: 4096, session_window: 12_000, stream_count: 2, metadata_len_max: 300 };
/// The longest record of a ring of 4 KiB.
const RECORD_LEN_MAX: usize = 1976;
pub(super) const AREA_LEN: usize = 64 * 1024;

/// One side's way out: what it has said, and its payload area.
#[derive(Default)]
pub(super) struct Out {
    /// Each with the number of the peer's frames that this side had received before.
    pub(super) records: Vec<(usize, Vec<u8>)>,
    heard: usize,
    /// Where the next chunk goes; `None` without an area.
    area_at: Option<usize>,
}

impl Outbound for Out {
    fn record_len_max(&self) -> usize {
        RECORD_LEN_MAX
    }
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        self.records.push((self.heard, parts.concat()));
        Ok(())
    }
    fn area_chunk_max(&mut self, wanted: usize) -> usize {
        if self.area_at.is_some() { wanted.min(AREA_LEN / 4) } else { 0 }
    }
    fn fill_in_area(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        let at = self.area_at?;
        fill(&mut vec![0; len]);
        self.area_at = Some((at + len).next_multiple_of(64));
        Some((AreaIdx(0), ByteOff(at as u64)))
    }
    fn take_back(&mut self) {}
}

/// A record as it arrives, beside area 0 of `AREA_LEN` bytes.
pub(super) struct Record<'a>(pub(super) &'a [u8]);

impl Inbound for Record<'_> {
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
        if area.0 != 0 || at.0.checked_add(len as u64).is_none_or(|end| end > AREA_LEN as u64) {
            return Err(AreaFault);
        }
        dst.resize(dst.len() + len, 0);
        Ok(())
    }
    fn pass_over_area(&self) {}
}

/// Two ends, and what they have said so far.
struct Talk {
    limits: Limits,
    pooled: bool,
    ends: [(Session<()>, Out); 2],
    said: Vec<Value>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Talk {
    fn new(limits: Limits) -> Talk {
        let end = |role| (Session::new(role, limits, limits), Out::default());
        Talk { limits, pooled: false, ends: [end(Role::Client), end(Role::Server)], said: Vec::new() }
    }

    /// Says what waits to be said, and does not deliver it yet.
    fn stage(&mut self, from: usize) {
        let (session, out) = &mut self.ends[from];
        session.stage_pending(out).expect("there is room");
    }

    /// Delivers all that a side has said.
    fn deliver(&mut self, from: usize) {
        self.stage(from);
        for (heard, record) in std::mem::take(&mut self.ends[from].1.records) {
            let (peer, its_out) = &mut self.ends[1 - from];
            peer.receive(&Record(&record)).expect("no violation");
            its_out.heard += 1;
            let (head, hex) = (head(&record, from), hex(&record));
            let from = if from == CLIENT { "client" } else { "server" };
            self.said.push(json!({ "from": from, "heard": heard, "head": head, "hex": hex }));
        }
    }

    fn open(&mut self, path: &str, deadline_ns: u64, mut outgoing: Outgoing) -> StreamId {
        let (session, out) = &mut self.ends[CLIENT];
        let id = session.open(out, Opening { path, deadline_ns }, &mut outgoing).unwrap().unwrap();
        if !outgoing.is_empty() {
            session.send(out, id, &mut outgoing).unwrap();
        }
        self.deliver(CLIENT);
        id
    }

    fn send(&mut self, from: usize, id: StreamId, outgoing: &mut Outgoing) -> Progress {
        let (session, out) = &mut self.ends[from];
        let progress = session.send(out, id, outgoing).unwrap();
        session.settle(id);
        self.deliver(from);
        progress
    }

    /// Reads all that a side has got of a stream, and tells the peer what it may send for that.
    fn read(&mut self, at: usize, id: StreamId) -> Vec<Part> {
        let mut got = Vec::new();
        while let Some(incoming) = self.ends[at].0.take(id).map(Incoming::into_part) {
            let ended = incoming.end.is_some();
            got.push(incoming);
            if ended {
                break;
            }
        }
        self.deliver(at);
        got
    }

    fn told(self, name: &str) -> Value {
        let limits = limits_of(self.limits);
        let mut told =
            json!({ "name": name, "limits_of_both_sides": limits, "pool": self.pooled, "frames": self.said });
        // By those who read the specification and nothing else; our own sessions are asked by the runner of the vectors.
        let [client, server] = specification::told(&told);
        (told["client_is_told"], told["server_is_told"]) = (client, server);
        told
    }
}

fn limits_of(limits: Limits) -> Value {
    json!({
        "stream_window": limits.stream_window,
        "session_window": limits.session_window,
        "stream_count": limits.stream_count,
        "metadata_len_max": limits.metadata_len_max,
        "record_len_max": RECORD_LEN_MAX,
    })
}

fn names(bits: u8, table: &[(&'static str, u8)]) -> Vec<&'static str> {
    table.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect()
}

fn head(record: &[u8], from: usize) -> Value {
    let (head, _) = FrameHead::ref_from_prefix(record).expect("a frame has a head");
    let opens = from == CLIENT && head.events & events::HEADERS != 0;
    let events = [
        ("HEADERS", events::HEADERS),
        ("MESSAGE", events::MESSAGE),
        ("HALF_CLOSE", events::HALF_CLOSE),
        ("TRAILERS", events::TRAILERS),
        ("CANCEL", events::CANCEL),
        ("CREDIT", events::CREDIT),
        ("DRAIN", events::DRAIN),
        ("CONTROL", events::CONTROL),
    ];
    let flags = [
        ("FIRST", flags::FIRST),
        ("LAST", flags::LAST),
        ("COMPRESSED", flags::COMPRESSED),
        ("IN_AREA", flags::IN_AREA),
        // One bit, and what it means but in an opening.
        if opens { ("NAMES_METHOD", flags::NAMES_METHOD) } else { ("BATCH", flags::BATCH) },
        ("HAS_DEADLINE", flags::HAS_DEADLINE),
        // One bit, and what it means beside a message.
        if head.events & events::MESSAGE == 0 {
            ("REFUSED", flags::REFUSED)
        } else {
            ("OBJECT", flags::OBJECT)
        },
        ("SEGMENTED", flags::SEGMENTED),
    ];
    json!({
        "events": names(head.events, &events),
        "flags": names(head.flags, &flags),
        "code": head.code.get(),
        "headers_len": head.headers_len.get(),
        "trailers_len": head.trailers_len.get(),
        "stream": head.stream.get(),
        "chunk_len": head.chunk_len.get(),
        "message_len": head.message_len.get(),
    })
}

fn block(pairs: &[(&str, &str)]) -> Bytes {
    let mut block = Vec::new();
    for (name, value) in pairs {
        metadata::pack(&mut block, name, value.as_bytes()).unwrap();
    }
    block.into()
}

fn message(len: usize) -> Option<OutgoingMessage> {
    Some(OutgoingMessage::new((0..len).map(|at| at as u8).collect::<Vec<_>>().into(), false))
}

fn trailers(code: u16, block: Bytes) -> Option<Ending> {
    Some(Ending::Trailers { code, block })
}

pub(super) fn asking(len: usize) -> Outgoing {
    let headers = Some(block(&[("user-agent", "vector/1"), ("x-request-id", "7"), ("x-a", "b")]));
    Outgoing { headers, message: message(len), ending: Some(Ending::HalfClose) }
}

fn answer(len: usize) -> Outgoing {
    Outgoing { headers: Some(Bytes::new()), message: message(len), ending: trailers(0, Bytes::new()) }
}

fn unary() -> Value {
    let mut talk = Talk::new(LIMITS);
    for (path, deadline_ns) in [("/a.B/C", 5_000_000_000), ("/a.B/C", 0), ("/a.B/D", 0)] {
        let id = talk.open(path, deadline_ns, asking(3));
        let accepted = talk.ends[SERVER].0.accept().unwrap();
        let named = talk.ends[SERVER].0.path_of(&accepted);
        assert_eq!((&named[..], accepted.deadline_ns), (path.as_bytes(), deadline_ns));
        assert_eq!(talk.send(SERVER, id, &mut answer(5)), Progress::Done);
        let got = talk.read(CLIENT, id);
        assert!(matches!(got.last().unwrap().end, Some(End::Trailers { code: 0, .. })));
    }
    talk.told("three unary calls, of two methods; the first has a deadline")
}

fn failing() -> Value {
    let mut talk = Talk::new(LIMITS);
    let id = talk.open("/a.B/C", 0, asking(0));
    let ending = trailers(5, block(&[("grpc-message", "not%20there"), ("x-why-bin", "AAE")]));
    talk.send(SERVER, id, &mut Outgoing { ending, ..Outgoing::default() });
    talk.told("an empty request, answered by trailers only")
}

fn chunked() -> Value {
    let mut talk = Talk::new(LIMITS);
    let mut request = asking(9000);
    let (session, out) = &mut talk.ends[CLIENT];
    let opening = Opening { path: "/a.B/C", deadline_ns: 0 };
    let id = session.open(out, opening, &mut request).unwrap().unwrap();
    talk.deliver(CLIENT);
    let (mut got, mut turns) = (0, 0);
    while !request.is_empty() {
        talk.send(CLIENT, id, &mut request);
        got += talk
            .read(SERVER, id)
            .iter()
            .flat_map(|got| &got.chunk)
            .map(|chunk| chunk.bytes.len())
            .sum::<usize>();
        turns += 1;
        assert!(turns < 20, "credit flows");
    }
    assert_eq!(got, 9000 + tollfree_session::GRPC_PREFIX_LEN);
    talk.told("a message of 9000 bytes under a window of 4096, in records of at most 1976")
}

fn giving_up() -> Value {
    let mut talk = Talk::new(LIMITS);
    let id = talk.open("/a.B/C", 0, asking(1));
    let mut long = Outgoing { headers: Some(Bytes::new()), message: message(9000), ending: None };
    assert_eq!(talk.send(SERVER, id, &mut long), Progress::NeedCredit);
    let ending = trailers(13, block(&[("grpc-message", "gave up")]));
    talk.send(SERVER, id, &mut Outgoing { ending, ..Outgoing::default() });
    talk.told("a server that ends with a status other than OK in the middle of a message")
}

fn cancelling() -> Value {
    let mut talk = Talk::new(LIMITS);
    let open = Outgoing { ending: None, ..asking(1) };
    let id = talk.open("/a.B/C", 0, open);
    // The server's answer crosses the client's CANCEL: it is tolerated.
    let (client, _) = &mut talk.ends[CLIENT];
    client.cancel(id, 1);
    talk.stage(CLIENT);
    talk.send(SERVER, id, &mut answer(5));
    talk.deliver(CLIENT);
    talk.told("a CANCEL that crosses the answer")
}

fn draining() -> Value {
    let mut talk = Talk::new(LIMITS);
    let first = talk.open("/a.B/C", 0, asking(1));
    talk.ends[SERVER].0.drain();
    talk.stage(SERVER);
    let late = talk.open("/a.B/D", 0, asking(1));
    talk.deliver(SERVER);
    let got = talk.ends[CLIENT].0.take(late).unwrap().into_part();
    assert!(matches!(got.end, Some(End::Cancelled { refused: true, .. })));
    talk.send(SERVER, first, &mut answer(1));
    let (server, out) = &mut talk.ends[SERVER];
    server.close(out, Closed::Here("bye"));
    talk.deliver(SERVER);
    talk.told("an opening that crosses DRAIN, the call before it answered, and CLOSE")
}

fn in_area() -> Value {
    let limits = Limits { stream_window: 65_536, session_window: 200_000, ..LIMITS };
    let mut talk = Talk::new(limits);
    talk.ends[CLIENT].0.offer_area(AreaIdx(0), AREA_LEN as u32);
    talk.deliver(CLIENT);
    talk.ends[SERVER].0.answer_area(AreaIdx(0), true);
    talk.deliver(SERVER);
    talk.ends[CLIENT].1.area_at = Some(0);
    talk.open("/a.B/C", 0, asking(20_000));
    talk.ends[CLIENT].0.drop_area(AreaIdx(0));
    talk.deliver(CLIENT);
    talk.told("a payload area, from offer to drop; the first chunk of a message goes through it")
}

/// Two members of a pool.
fn pooled() -> Talk {
    let mut talk = Talk::new(LIMITS);
    for (session, _) in &mut talk.ends {
        *session = Session::new(session.role(), LIMITS, LIMITS).with_segmented(true);
    }
    talk.pooled = true;
    talk
}

fn segmented_messages() -> Value {
    let mut talk = pooled();
    let segmented = || Some(OutgoingMessage::segmented(Bytes::from(vec![9; 80]), false, Keep::new(())));
    let id = talk.open("/a.B/C", 0, Outgoing { message: segmented(), ..asking(0) });
    for chunk in talk.read(SERVER, id).into_iter().filter_map(|got| got.chunk) {
        talk.ends[SERVER].0.take_segmented(chunk.segmented.expect("it came as one"));
    }
    talk.deliver(SERVER);
    assert_eq!(talk.ends[CLIENT].0.segmented_messages_in_flight(), 0);
    let late = talk.open("/a.B/C", 0, asking(0));
    // Both answers cross the client's CANCEL: nobody reads them, and they are taken all the same.
    talk.ends[CLIENT].0.cancel(id, 1);
    talk.ends[CLIENT].0.cancel(late, 1);
    talk.stage(CLIENT);
    for id in [id, late] {
        talk.send(SERVER, id, &mut Outgoing { message: segmented(), ..answer(0) });
    }
    talk.deliver(CLIENT);
    assert_eq!(talk.ends[SERVER].0.segmented_messages_in_flight(), 0);
    talk.told("with a pool in common: a segmented message that is taken, and two that nobody reads (their bytes make no sense here)")
}

fn asked_for() -> Value {
    let mut talk = pooled();
    // Both sides know how long the parts are: the one from the segmented message, the other because it has them.
    for (len, wanted) in [(2500_u16, 2500), (100, 99), (100, 100)] {
        let parts: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let keep = Keep::new(Bytes::from(parts));
        let segmented = OutgoingMessage::segmented(Bytes::from(vec![9; 80]), false, keep);
        let id = talk.open("/a.B/C", 0, Outgoing { message: Some(segmented), ..asking(0) });
        let mut segmented_messages = talk.read(SERVER, id).into_iter().filter_map(|got| got.chunk?.segmented);
        let segmented = segmented_messages.next().expect("it came as one");
        talk.ends[SERVER].0.want_segmented(segmented, wanted);
        let loses_interest = len == wanted as u16 && len == 100;
        if loses_interest {
            talk.ends[SERVER].0.take_segmented(segmented);
        }
        talk.deliver(SERVER);
        loop {
            let (session, out) = &mut talk.ends[CLIENT];
            let gave = session.give_bytes(out);
            talk.deliver(CLIENT);
            if !gave {
                break;
            }
        }
        if !loses_interest {
            assert_eq!(
                matches!(talk.ends[SERVER].0.asked_segmented(segmented), Asked::Here(_)),
                u32::from(len) == wanted
            );
            talk.ends[SERVER].0.take_segmented(segmented);
        }
        talk.send(SERVER, id, &mut answer(0));
        talk.deliver(SERVER);
        assert!(
            !talk.ends[SERVER].0.awaits_segmented_bytes()
                && talk.ends[CLIENT].0.segmented_messages_in_flight() == 0
        );
    }
    talk.told(
        "with a pool in common: bytes of a segmented message's refs that are asked for and given; one byte less than there are; and some \
         that nobody wants any more",
    )
}

pub(super) fn framed(messages: &[(u8, &[u8])]) -> Vec<u8> {
    let framed = |(flag, message): &(u8, &[u8])| {
        [&[*flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
    };
    messages.iter().flat_map(framed).collect()
}

fn batches() -> Value {
    let mut talk = Talk::new(LIMITS);
    let batch = |messages: &[(u8, &[u8])]| {
        let mut bytes = Bytes::from(framed(messages));
        Some(OutgoingMessage::batch_off(&mut bytes, usize::MAX / 2, usize::MAX).expect("several messages"))
    };
    let three: [(u8, &[u8]); 3] = [(0, b"one"), (1, b""), (0, b"three")];
    // A call does not begin with a batch: its first message goes alone.
    let (session, out) = &mut talk.ends[CLIENT];
    let opening = Opening { path: "/a.B/C", deadline_ns: 0 };
    let mut request = Outgoing { message: batch(&three), ending: None, ..asking(0) };
    let id = session.open(out, opening, &mut request).unwrap().unwrap();
    session.send(out, id, &mut request).unwrap();
    assert!(request.is_empty());
    talk.deliver(CLIENT);
    let counts: Vec<u32> =
        talk.read(SERVER, id).iter().flat_map(|got| &got.chunk).map(|chunk| chunk.batch_count).collect();
    assert_eq!(counts, [0, 2]);
    // The last ones go with the half-close; one that fits into no frame goes alone, and what is before and behind it does not wait.
    let mut last = Outgoing { message: batch(&three), ending: Some(Ending::HalfClose), headers: None };
    talk.send(CLIENT, id, &mut last);
    let long = [7; 2500];
    let mixed = [(0, &b"short"[..]), (0, &b"too"[..]), (0, &long[..]), (1, &b"x"[..]), (0, &b"y"[..])];
    let headers = Some(Bytes::new());
    let mut answer = Outgoing { headers, message: batch(&mixed), ending: trailers(0, Bytes::new()) };
    while !answer.is_empty() {
        talk.send(SERVER, id, &mut answer);
        talk.read(CLIENT, id);
    }
    talk.told("messages in batches both ways, some compressed; one of 2500 bytes between others goes alone")
}

fn objects() -> Value {
    let mut talk = pooled();
    let fingerprint = 0x0123_4567_89ab_cdef;
    let object = |len: usize| {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        Some(OutgoingMessage::object(Bytes::from(bytes).into()))
    };
    let id = talk.open("/a.B/C", 0, asking(10));
    talk.read(SERVER, id);
    let accepted = talk.ends[SERVER].0.accept().expect("a call");
    talk.ends[SERVER].0.take_objects(accepted.method.expect("it has an index"), fingerprint);
    talk.send(SERVER, id, &mut answer(11));
    talk.read(CLIENT, id);
    assert_eq!(talk.ends[CLIENT].0.takes_objects("/a.B/C", fingerprint), Some(true));
    for len in [40, 3000] {
        let id = talk.open("/a.B/C", 0, Outgoing { message: object(len), ..asking(0) });
        talk.read(SERVER, id);
        talk.send(SERVER, id, &mut Outgoing { message: object(len + 8), ..answer(0) });
        talk.read(CLIENT, id);
    }
    let by_ref = || Some(OutgoingMessage::object_segmented(Bytes::from(vec![9; 80]), Keep::new(())));
    let id = talk.open("/a.B/C", 0, Outgoing { message: by_ref(), ..asking(0) });
    for chunk in talk.read(SERVER, id).into_iter().filter_map(|got| got.chunk) {
        talk.ends[SERVER].0.take_segmented(chunk.segmented.expect("it came as one"));
    }
    talk.send(SERVER, id, &mut Outgoing { message: by_ref(), ..answer(0) });
    for chunk in talk.read(CLIENT, id).into_iter().filter_map(|got| got.chunk) {
        talk.ends[CLIENT].0.take_segmented(chunk.segmented.expect("it came as one"));
    }
    talk.deliver(CLIENT);
    talk.deliver(SERVER);
    talk.told(
        "with a pool in common, a server that takes objects: a call before the client knows, two with objects both ways, one \
         with objects by ref (bytes that are none)",
    )
}

fn batches_of_objects() -> Value {
    let mut talk = Talk::new(LIMITS);
    let fingerprint = 0x0123_4567_89ab_cdef;
    let batch = |lens: &[usize]| {
        let bytes: Vec<Vec<u8>> = lens.iter().map(|len| (0..*len).map(|at| at as u8).collect()).collect();
        let messages: Vec<(u8, &[u8])> = bytes.iter().map(|bytes| (OBJECT_PREFIX, &bytes[..])).collect();
        Some(OutgoingMessage::objects(framed(&messages).into()).expect("several objects"))
    };
    let said = |message| Outgoing { message, ..Outgoing::default() };
    let id = talk.open("/a.B/C", 0, Outgoing { ending: None, ..asking(10) });
    talk.read(SERVER, id);
    let accepted = talk.ends[SERVER].0.accept().expect("a call");
    talk.ends[SERVER].0.take_objects(accepted.method.expect("it has an index"), fingerprint);
    talk.deliver(SERVER);
    assert_eq!(talk.ends[CLIENT].0.takes_objects("/a.B/C", fingerprint), Some(true));
    // One sort after the other: what is encoded goes in a frame of its own.
    talk.send(CLIENT, id, &mut said(batch(&[40, 0, 24])));
    talk.send(CLIENT, id, &mut said(message(7)));
    let counts: Vec<u32> =
        talk.read(SERVER, id).iter().flat_map(|got| &got.chunk).map(|chunk| chunk.batch_count).collect();
    assert_eq!(counts, [3, 0]);
    let mut last = Outgoing { ending: Some(Ending::HalfClose), ..said(batch(&[32, 16])) };
    talk.send(CLIENT, id, &mut last);
    talk.read(SERVER, id);
    let headers = Some(Bytes::new());
    let mut answer =
        Outgoing { headers, ending: trailers(0, Bytes::new()), ..said(batch(&[16, 24, 2504, 32, 40])) };
    while !answer.is_empty() {
        talk.send(SERVER, id, &mut answer);
        talk.read(CLIENT, id);
    }
    talk.told("objects in batches both ways (bytes that are none), and a message between them; one of 2504 bytes goes alone")
}

#[test]
fn frames_are_as_written_down() {
    let conversations = [
        unary(),
        failing(),
        chunked(),
        giving_up(),
        cancelling(),
        draining(),
        in_area(),
        segmented_messages(),
        asked_for(),
        objects(),
        batches(),
        batches_of_objects(),
    ];
    let made = json!({
        "message_bytes": "byte at of a message is at mod 256; bytes of a payload area don't matter here",
        "conversations": conversations,
        "limits_of_that_server": limits_of(LIMITS),
        "violations_to_a_server": violations::to_a_server(),
        "limits_of_that_client": limits_of(LIMITS),
        "that_client_has_said": [hex(&violations::asked(false).1)],
        "violations_to_a_client": violations::to_a_client(),
    });
    hold("frames.json", &made);
}
