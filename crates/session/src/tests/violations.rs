//! Every violation, by name: the frames that commit it, and that it is latched.

use bytes::Bytes;
use tollfree_layout::frame::{AREA_RANGE_LEN, control, events, flags};
use tollfree_layout::metadata::BlockError;
use tollfree_layout::{MethodIdx, SegmentedIdx, StreamId};

use crate::tests::script::{LIMITS, Record, Script, Sink, read, say, session};
use crate::{
    Asked, Closed, End, Keep, Limits, Opening, Outgoing, OutgoingMessage, Received, Role, Session, Violation,
};

const CREDIT_OVERFLOW: usize = 9;
/// The ring's and the socket's own; a session only latches them.
const RING: usize = 14;
const SOCKET: usize = 15;
const KIND_COUNT: usize = 16;

/// Numbers the variants. A new one must be added here (or this doesn't compile) and then a case below.
fn kind(violation: &Violation) -> usize {
    match violation {
        Violation::FrameLen { .. } => 0,
        Violation::FrameKind { .. } => 1,
        Violation::StreamId { .. } => 2,
        Violation::StreamCount { .. } => 3,
        Violation::MethodIdx { .. } => 4,
        Violation::MethodPath { .. } => 5,
        Violation::Order { .. } => 6,
        Violation::Chunk { .. } => 7,
        Violation::Overdrawn { .. } => 8,
        Violation::CreditOverflow { .. } => CREDIT_OVERFLOW,
        Violation::MetadataLen { .. } => 10,
        Violation::Metadata(_) => 11,
        Violation::AreaRange { .. } => 12,
        Violation::Control { .. } => 13,
        Violation::Ring(_) => RING,
        Violation::Socket(_) => SOCKET,
    }
}

fn opening(stream: u64) -> Script {
    Script::opening(stream)
}

fn on(stream: u64) -> Script {
    Script::new(0, stream)
}

fn named(block: &[u8]) -> Script {
    Script::new(events::HEADERS, 1).flags(flags::NAMES_METHOD).headers(block)
}

/// A request to the method with index 0, in one frame.
fn whole_request(stream: u64, headers: &[u8]) -> Script {
    Script::new(events::HEADERS | events::HALF_CLOSE, stream).headers(headers).message()
}

fn in_area(area: u32, reserved: u32, offset: u64) -> Script {
    let range = [&area.to_le_bytes()[..], &reserved.to_le_bytes(), &offset.to_le_bytes()].concat();
    assert_eq!(range.len(), AREA_RANGE_LEN);
    let whole = flags::FIRST | flags::LAST | flags::IN_AREA;
    let mut script = Script::new(events::MESSAGE, 1).flags(whole).chunk_len(600).raw(&range);
    script.head.message_len = 600.into();
    script
}

/// Frames to a server: all are fine but the last.
fn cases() -> Vec<(&'static str, Vec<Script>, Violation)> {
    let order = |event| Violation::Order { event, stream: 1 };
    let odd = |events, flags| Violation::FrameKind { events, flags };
    let misfit = |chunk_len| Violation::Chunk { stream: 1, chunk_len };
    let whole = flags::FIRST | flags::LAST;
    let half_close = Script::new(events::HALF_CLOSE, 1);
    let control = |code| Script::new(events::CONTROL, 0).code(code);
    vec![
        (
            "a byte too much",
            vec![opening(1).raw(&[0])],
            Violation::FrameLen { record_len: 29, announced: 28 },
        ),
        ("no event", vec![on(1)], odd(0, 0)),
        ("an unknown flag", vec![opening(1).flags(0x80)], odd(events::HEADERS, 0x90)),
        ("two events that stand alone", vec![Script::new(0x30, 1)], odd(0x30, 0)),
        ("a server's event", vec![Script::new(events::TRAILERS, 1)], odd(events::TRAILERS, 0)),
        ("a client that drains", vec![Script::new(events::DRAIN, 0)], odd(events::DRAIN, 0)),
        ("a grant of nothing", vec![Script::new(events::CREDIT, 0)], odd(events::CREDIT, 0)),
        (
            "an object that is compressed",
            vec![opening(1), on(1).chunk(1, 1, whole | flags::OBJECT | flags::COMPRESSED)],
            odd(events::MESSAGE, whole | flags::OBJECT | flags::COMPRESSED),
        ),
        (
            "an object that begins in the middle",
            vec![opening(1), on(1).chunk(1, 2, flags::FIRST), on(1).chunk(1, 0, flags::LAST | flags::OBJECT)],
            odd(events::MESSAGE, flags::LAST | flags::OBJECT),
        ),
        (
            "an object without a message",
            vec![opening(1).flags(flags::OBJECT)],
            odd(events::HEADERS, flags::NAMES_METHOD | flags::OBJECT),
        ),
        ("a length without a message", vec![opening(1), half_close.clone().chunk_len(3)], odd(4, 0)),
        ("a code nobody asked for", vec![opening(1), half_close.clone().code(1)], odd(4, 0)),
        ("an opening out of turn", vec![opening(2).code(0)], Violation::StreamId { stream: 2, expected: 1 }),
        ("a call opened twice", vec![opening(1), opening(1)], Violation::StreamId { stream: 1, expected: 2 }),
        ("a call nobody opened", vec![half_close.clone()], Violation::StreamId { stream: 1, expected: 1 }),
        (
            "credit for a call nobody opened",
            vec![Script::new(events::CREDIT, 3).chunk_len(1)],
            Violation::StreamId { stream: 3, expected: 1 },
        ),
        ("stream 0", vec![Script::new(events::CANCEL, 0)], Violation::StreamId { stream: 0, expected: 1 }),
        ("a call too many", vec![opening(1), opening(2), opening(3)], Violation::StreamCount { max: 2 }),
        (
            "a method nobody named",
            vec![Script::new(events::HEADERS, 1).code(3)],
            Violation::MethodIdx { idx: 3, known: 0 },
        ),
        (
            "the first method before it is named",
            vec![Script::new(events::HEADERS, 1)],
            Violation::MethodIdx { idx: 0, known: 0 },
        ),
        (
            "the next method before it is named",
            vec![opening(1), opening(2).code(1)],
            Violation::MethodIdx { idx: 1, known: 1 },
        ),
        ("a method named out of turn", vec![opening(1).code(1)], Violation::MethodIdx { idx: 1, known: 0 }),
        (
            "a method not interned though there is room",
            vec![opening(1).code(u16::MAX)],
            Violation::MethodIdx { idx: u16::MAX, known: 0 },
        ),
        ("a path without a length", vec![named(&[1])], Violation::MethodPath { len: 0 }),
        ("a path of a length alone", vec![named(&[1, 0])], Violation::MethodPath { len: 1 }),
        ("an empty path", vec![named(&[0, 0])], Violation::MethodPath { len: 0 }),
        ("a path beyond its block", vec![named(&[3, 0, 1])], Violation::MethodPath { len: 3 }),
        (
            "half-closed in the middle of a message",
            vec![opening(1), on(1).chunk(1, 2, flags::FIRST), half_close.clone()],
            order("HALF_CLOSE"),
        ),
        ("half-closed twice", vec![opening(1), half_close.clone(), half_close.clone()], order("HALF_CLOSE")),
        ("a message after the end", vec![opening(1), half_close, on(1).message()], order("MESSAGE")),
        ("a chunk of no message", vec![opening(1), on(1).chunk(1, 0, flags::LAST)], misfit(1)),
        (
            "a message in a message",
            vec![opening(1), on(1).chunk(1, 9, flags::FIRST), on(1).message()],
            misfit(1),
        ),
        ("a chunk longer than its message", vec![opening(1), on(1).chunk(3, 2, whole)], misfit(3)),
        ("a last chunk that is not", vec![opening(1), on(1).chunk(1, 2, whole)], misfit(1)),
        ("an end that is not marked", vec![opening(1), on(1).chunk(2, 2, flags::FIRST)], misfit(2)),
        ("an empty chunk of a message", vec![opening(1), on(1).chunk(0, 2, flags::FIRST)], misfit(0)),
        (
            "more than the stream's credit",
            vec![opening(1), on(1).chunk(4033, 4033, whole)],
            Violation::Overdrawn { stream: 1 },
        ),
        (
            "more than the session's credit",
            vec![opening(1), on(1).chunk(11_937, 11_937, whole)],
            Violation::Overdrawn { stream: 0 },
        ),
        ("metadata too long", vec![named(&[&[1, 0, b'/'], &[0; 101][..]].concat())], {
            Violation::MetadataLen { len: 101, max: 100 }
        }),
        ("metadata cut off", vec![named(&[1, 0, b'/', 1, 9])], BlockError::Truncated.into()),
        (
            "metadata too long in a request of one frame",
            vec![opening(1), whole_request(2, &[0; 101])],
            Violation::MetadataLen { len: 101, max: 100 },
        ),
        (
            "metadata cut off in a request of one frame",
            vec![opening(1), whole_request(2, &[1, 9])],
            BlockError::Truncated.into(),
        ),
        ("an area nobody offered", vec![opening(1), in_area(1, 0, 0)], Violation::AreaRange { stream: 1 }),
        ("reserved bits in a range", vec![opening(1), in_area(0, 1, 0)], Violation::AreaRange { stream: 1 }),
        ("beyond the area's end", vec![opening(1), in_area(0, 0, 401)], Violation::AreaRange { stream: 1 }),
        (
            "an offset that wraps",
            vec![opening(1), in_area(0, 0, u64::MAX)],
            Violation::AreaRange { stream: 1 },
        ),
        ("an unknown control code", vec![control(10)], Violation::Control { code: 10 }),
        ("a client that takes objects", vec![opening(1), control(control::OBJECTS)], odd(events::CONTROL, 0)),
        ("an answer without an offer", vec![control(control::AREA_ACCEPT)], Violation::Control { code: 2 }),
        ("a refusal without an offer", vec![control(control::AREA_REFUSE)], Violation::Control { code: 3 }),
        ("a drop without an offer", vec![control(control::AREA_DROP)], Violation::Control { code: 4 }),
        (
            "an area offered twice",
            vec![control(control::AREA_OFFER), control(control::AREA_OFFER)],
            Violation::Control { code: 1 },
        ),
        ("a close about a stream", vec![Script::new(events::CONTROL, 1).code(5)], {
            Violation::Control { code: 5 }
        }),
        (
            "an area index beyond 32 bits",
            vec![Script::new(events::CONTROL, 1 << 40).code(control::AREA_OFFER)],
            Violation::Control { code: 1 },
        ),
    ]
}

#[test]
fn every_violation_is_found_latched_and_ends_the_session() {
    let mut reached = [false; KIND_COUNT];
    // These two have tests of their own below.
    for elsewhere in [CREDIT_OVERFLOW, RING, SOCKET] {
        reached[elsewhere] = true;
    }
    for (name, mut scripts, expected) in cases() {
        let mut server = session(Role::Server);
        let last = scripts.pop().unwrap();
        for script in scripts {
            script.send(&mut server).unwrap_or_else(|early| panic!("{name}: {early} too early"));
        }
        assert_eq!(last.send(&mut server), Err(expected), "{name}");
        assert_eq!(server.closed(), Some(&Closed::Violation(expected)), "{name}");
        assert_eq!(
            opening(1).send(&mut server),
            Ok(Received::Closed),
            "{name}: what comes later is not read"
        );
        assert_eq!(server.live_count(), 0, "{name}");
        reached[kind(&expected)] = true;
    }
    assert_eq!(reached, [true; KIND_COUNT], "a kind of violation has no case");
}

#[test]
fn a_record_shorter_than_a_head_is_no_frame() {
    for len in 0..24 {
        let received = session(Role::Server).receive(&Record(vec![1; len]));
        assert_eq!(received, Err(Violation::FrameLen { record_len: len, announced: 24 }));
    }
}

#[test]
fn the_metadata_of_an_answer_are_checked_in_one_frame_and_in_several() {
    let (cut, long): (&[u8], &[u8]) = (&[1, 9], &[0; 101]);
    let answer = |headers: &[u8], trailers: &[u8], code| {
        let mut client = session(Role::Client);
        let opening = Opening { path: "/a", deadline_ns: 0 };
        client.open(&mut Sink::new(), opening, &mut Outgoing::default()).unwrap().unwrap();
        let frame = Script::new(events::HEADERS | events::TRAILERS, 1).code(code);
        frame.headers(headers).trailers(trailers).message().send(&mut client)
    };
    // An answer with a status other than OK is not read in one piece.
    for code in [0, 13] {
        assert_eq!(answer(&[], &[], code), Ok(Received::Frame));
        assert_eq!(answer(&[1, 0, 0], &[2, 0, 0], code), Ok(Received::Frame));
        for (block, violation) in
            [(cut, BlockError::Truncated.into()), (long, Violation::MetadataLen { len: 101, max: 100 })]
        {
            assert_eq!(answer(block, &[], code), Err(violation), "headers, {code}");
            assert_eq!(answer(&[1, 0, 0], block, code), Err(violation), "trailers, {code}");
        }
    }
}

#[test]
fn headers_come_once_also_with_all_that_a_server_says() {
    for code in [0, 13] {
        let mut client = session(Role::Client);
        let opening = Opening { path: "/a", deadline_ns: 0 };
        client.open(&mut Sink::new(), opening, &mut Outgoing::default()).unwrap().unwrap();
        Script::new(events::HEADERS, 1).send(&mut client).unwrap();
        let answer = Script::new(events::HEADERS | events::TRAILERS, 1).code(code).message();
        let order = Violation::Order { event: "HEADERS", stream: 1 };
        assert_eq!(answer.send(&mut client), Err(order), "{code}");
    }
}

#[test]
fn credit_beyond_any_number_is_a_violation() {
    let rich = Limits { stream_window: u64::MAX - 1, session_window: u64::MAX - 1, ..LIMITS };
    for (stream, frames) in [(0, 1), (1, 2)] {
        let mut server: Session<()> = Session::new(Role::Server, LIMITS, rich);
        if frames == 2 {
            opening(1).send(&mut server).unwrap();
        }
        let grant = Script::new(events::CREDIT, stream).chunk_len(1);
        assert_eq!(grant.send(&mut server), Ok(Received::Frame));
        assert_eq!(grant.send(&mut server), Err(Violation::CreditOverflow { stream }));
    }
}

/// What a server says of the types of the method with this index.
fn objects(method: u32, fingerprint: u64) -> Script {
    Script::new(events::CONTROL, fingerprint).code(control::OBJECTS).chunk_len(method)
}

#[test]
fn a_server_says_once_of_methods_that_were_named_which_objects_it_takes() {
    let misplaced = Err(Violation::Control { code: control::OBJECTS });
    assert_eq!(objects(0, 7).send(&mut session(Role::Client)), misplaced, "of a method that nobody named");
    let called = || {
        let mut client = session(Role::Client);
        let opening = Opening { path: "/a", deadline_ns: 0 };
        client.open(&mut Sink::new(), opening, &mut Outgoing::default()).unwrap().unwrap();
        assert_eq!(client.takes_objects("/a", 7), None, "nothing was said");
        client
    };
    assert_eq!(objects(1, 7).send(&mut called()), misplaced, "of one that is yet to be named");
    assert_eq!(objects(u32::MAX, 7).send(&mut called()), misplaced, "of one beyond all indices");
    let mut client = called();
    assert_eq!(objects(0, 7).send(&mut client), Ok(Received::Frame));
    assert_eq!([client.takes_objects("/a", 7), client.takes_objects("/b", 7)], [Some(true), None]);
    assert_eq!(client.differing().count(), 0);
    assert_eq!(client.takes_objects("/a", 8), Some(false));
    assert_eq!(client.differing().collect::<Vec<_>>(), ["/a"]);
    assert_eq!(objects(0, 7).send(&mut client), misplaced, "twice");
}

#[test]
fn a_server_says_which_objects_it_takes_and_a_client_does_not() {
    let method = MethodIdx(0);
    let mut server = session(Role::Server);
    let mut out = Sink::new();
    server.take_objects(method, 7);
    server.stage_pending(&mut out).unwrap();
    let mut client = session(Role::Client);
    let opening = Opening { path: "/a", deadline_ns: 0 };
    client.open(&mut Sink::new(), opening, &mut Outgoing::default()).unwrap().unwrap();
    assert_eq!(client.object_types("/a"), None);
    client.receive(&Record(out.records.pop().unwrap())).unwrap();
    assert_eq!((client.object_types("/a"), client.object_types("/b")), (Some(7), None));
    client.take_objects(method, 7);
    server.end_session(Closed::HungUp);
    server.take_objects(method, 7);
    assert!(!client.has_pending() && !server.has_pending());
}

/// A server that has a pool in common with its client.
fn pooled() -> Session<()> {
    session(Role::Server).with_segmented(true)
}

fn taken(first: u64, count: u32) -> Script {
    Script::new(events::CONTROL, first).code(control::SEGMENTED_TAKEN).chunk_len(count)
}

const WHOLE_SEGMENTED: u8 = flags::FIRST | flags::LAST | flags::SEGMENTED;

#[test]
fn segmented_messages_are_for_those_who_have_a_pool_in_common_and_begin_a_message() {
    let odd = |events, flags| Violation::FrameKind { events, flags };
    let misplaced = Violation::Control { code: control::SEGMENTED_TAKEN };
    let segmented = || on(1).chunk(4, 4, WHOLE_SEGMENTED);
    let cases = [
        (
            "a segmented message",
            session(Role::Server),
            vec![opening(1), segmented()],
            odd(events::MESSAGE, WHOLE_SEGMENTED),
        ),
        ("one taken", session(Role::Server), vec![taken(0, 1)], misplaced),
        (
            "a segmented message that begins in the middle",
            pooled(),
            vec![
                opening(1),
                on(1).chunk(1, 2, flags::FIRST),
                on(1).chunk(1, 0, flags::LAST | flags::SEGMENTED),
            ],
            odd(events::MESSAGE, flags::LAST | flags::SEGMENTED),
        ),
        (
            "a segmented message without a message",
            pooled(),
            vec![opening(1).flags(flags::SEGMENTED)],
            odd(events::HEADERS, flags::NAMES_METHOD | flags::SEGMENTED),
        ),
        ("one taken that was not sent", pooled(), vec![opening(1), taken(0, 1)], misplaced),
        ("none taken", pooled(), vec![taken(0, 0)], misplaced),
    ];
    for (name, mut server, mut scripts, expected) in cases {
        let last = scripts.pop().unwrap();
        for script in scripts {
            script.send(&mut server).unwrap();
        }
        assert_eq!(last.send(&mut server), Err(expected), "{name}");
    }
    let mut server = pooled();
    opening(1).send(&mut server).unwrap();
    let mut answer = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::segmented(Bytes::from_static(b"segmented"), false, Keep::new(()))),
        ending: None,
    };
    say(&mut server, &mut Sink::new(), StreamId(1), &mut answer).unwrap();
    assert_eq!(server.segmented_messages_in_flight(), 1);
    assert_eq!(taken(0, 1).send(&mut server), Ok(Received::Frame));
    assert_eq!((server.segmented_messages_in_flight(), server.take_spent().len()), (0, 1));
    assert_eq!(taken(0, 1).send(&mut server), Err(misplaced), "twice");
}

/// A server that has sent a segmented message with these bytes as its part, as number 0.
fn given(bytes: &'static [u8]) -> Session<()> {
    let mut server = pooled();
    opening(1).send(&mut server).unwrap();
    let mut answer = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::segmented(
            Bytes::from_static(b"segmented"),
            false,
            Keep::new(Bytes::from_static(bytes)),
        )),
        ending: None,
    };
    say(&mut server, &mut Sink::new(), StreamId(1), &mut answer).unwrap();
    server
}

fn wanted(segmented: u64, len: u32) -> Script {
    Script::new(events::CONTROL, segmented).code(control::SEGMENTED_WANTED).chunk_len(len)
}

fn piece(segmented: u64, bytes: &[u8]) -> Script {
    Script::new(events::CONTROL, segmented)
        .code(control::SEGMENTED_BYTES)
        .chunk_len(bytes.len() as u32)
        .raw(bytes)
}

/// Numbers and lengths of the pieces that a session sends when it has all the room it wants.
fn pieces(session: &mut Session<()>) -> Vec<(u64, u32)> {
    let mut out = Sink::new();
    session.stage_pending(&mut out).unwrap();
    while session.give_bytes(&mut out) {}
    let heads = out.take().into_iter().filter(|head| head.code.get() == control::SEGMENTED_BYTES);
    heads.map(|head| (head.stream.get(), head.chunk_len.get())).collect()
}

#[test]
fn bytes_of_a_segmented_message_are_asked_for_once_and_of_what_was_sent() {
    let misplaced = Violation::Control { code: control::SEGMENTED_WANTED };
    let cases = [
        ("without a pool", session(Role::Server), vec![wanted(0, 5)]),
        ("of none", pooled(), vec![wanted(0, 5)]),
        ("of one that was not sent", given(b"bytes"), vec![wanted(1, 5)]),
        ("of one that was taken", given(b"bytes"), vec![taken(0, 1), wanted(0, 5)]),
        ("twice", given(b"bytes"), vec![wanted(0, 5), wanted(0, 5)]),
        ("twice, the first for nothing", given(b"bytes"), vec![wanted(0, 6), wanted(0, 5)]),
        ("none of them", given(b"bytes"), vec![wanted(0, 0)]),
    ];
    for (name, mut server, mut scripts) in cases {
        let last = scripts.pop().unwrap();
        for script in scripts {
            script.send(&mut server).unwrap();
        }
        assert_eq!(last.send(&mut server), Err(misplaced), "{name}");
    }
    let mut server = given(b"bytes");
    wanted(0, 5).send(&mut server).unwrap();
    assert_eq!((pieces(&mut server), server.segmented_messages_in_flight()), (vec![(0, 5)], 1));
    taken(0, 1).send(&mut server).unwrap();
    assert_eq!(
        (pieces(&mut server), server.segmented_messages_in_flight()),
        (vec![], 0),
        "all was said before"
    );
    for len in [4, 6, u32::MAX] {
        let mut server = given(b"bytes");
        wanted(0, len).send(&mut server).unwrap();
        assert_eq!(pieces(&mut server), [(0, 0)], "there are not {len}");
    }
    let mut server = given(b"bytes");
    wanted(0, 5).send(&mut server).unwrap();
    taken(0, 1).send(&mut server).unwrap();
    assert_eq!((pieces(&mut server), server.has_pending()), (vec![(0, 0)], false), "no more come");
}

#[test]
fn bytes_of_a_segmented_message_come_as_many_as_were_asked_for_and_to_who_asked() {
    let misplaced = Violation::Control { code: control::SEGMENTED_BYTES };
    let asking = || {
        let mut server = pooled();
        opening(1).send(&mut server).unwrap();
        on(1).chunk(4, 4, WHOLE_SEGMENTED).send(&mut server).unwrap();
        server.want_segmented(SegmentedIdx(0), 5);
        server
    };
    let cases = [
        ("without a pool", session(Role::Server), vec![piece(0, b"a")]),
        ("nobody asked for", pooled(), vec![piece(0, b"a")]),
        ("of another segmented message", asking(), vec![piece(1, b"a")]),
        ("more than asked for", asking(), vec![piece(0, b"bytes.")]),
        ("more than are left", asking(), vec![piece(0, b"byt"), piece(0, b"es.")]),
        ("more when all are there", asking(), vec![piece(0, b"bytes"), piece(0, b"")]),
        ("more after the last", asking(), vec![piece(0, b""), piece(0, b"bytes")]),
    ];
    for (name, mut server, mut scripts) in cases {
        let last = scripts.pop().unwrap();
        for script in scripts {
            script.send(&mut server).unwrap();
        }
        assert_eq!(last.send(&mut server), Err(misplaced), "{name}");
    }
    let mut server = asking();
    piece(0, b"by").send(&mut server).unwrap();
    assert_eq!((server.next_asked(), server.asked_segmented(SegmentedIdx(0))), (None, Asked::Coming));
    piece(0, b"tes").send(&mut server).unwrap();
    assert_eq!(server.next_asked(), Some(SegmentedIdx(0)));
    assert_eq!(server.asked_segmented(SegmentedIdx(0)), Asked::Here(Bytes::from_static(b"bytes")));
    assert!(!server.awaits_segmented_bytes());
    let mut server = asking();
    piece(0, b"by").send(&mut server).unwrap();
    piece(0, b"").send(&mut server).unwrap();
    assert_eq!(
        (server.next_asked(), server.asked_segmented(SegmentedIdx(0))),
        (Some(SegmentedIdx(0)), Asked::Refused)
    );
    // Who has lost interest is told nothing, and forgets about it once the peer has said its last word.
    for last in [&b"tes"[..], b""] {
        let mut server = asking();
        piece(0, b"by").send(&mut server).unwrap();
        server.take_segmented(SegmentedIdx(0));
        piece(0, last).send(&mut server).unwrap();
        assert!(server.next_asked().is_none() && !server.awaits_segmented_bytes());
        assert_eq!(piece(0, b"").send(&mut server), Err(misplaced), "that was the last word");
    }
    let mut server = asking();
    piece(0, b"bytes").send(&mut server).unwrap();
    server.take_segmented(SegmentedIdx(0));
    assert!(!server.awaits_segmented_bytes(), "what came and was not fetched is forgotten");
    let mut server = asking();
    server.end_session(Closed::HungUp);
    assert!(!server.awaits_segmented_bytes() && !server.has_pending());
}

#[test]
fn segmented_messages_that_nobody_reads_are_taken_all_the_same() {
    let told = |server: &mut Session<()>| {
        let mut out = Sink::new();
        server.stage_pending(&mut out).unwrap();
        let heads = out.take().into_iter().filter(|head| head.events == events::CONTROL);
        heads.map(|head| (head.stream.get(), head.chunk_len.get())).collect::<Vec<_>>()
    };
    let segmented = |stream| on(stream).chunk(4, 4, WHOLE_SEGMENTED);
    let mut server = pooled();
    opening(1).send(&mut server).unwrap();
    server.accept().unwrap();
    segmented(1).send(&mut server).unwrap();
    let chunk = read(&mut server, StreamId(1)).unwrap().chunk.unwrap();
    segmented(1).send(&mut server).unwrap();
    assert_eq!(
        (chunk.segmented, told(&mut server)),
        (Some(SegmentedIdx(0)), vec![]),
        "one is read, one waits"
    );
    Script::new(events::CANCEL, 1).send(&mut server).unwrap();
    assert_eq!(told(&mut server), [(1, 1)], "the one that waited");
    segmented(1).send(&mut server).unwrap();
    assert_eq!(told(&mut server), [(2, 1)], "after the end");
    server.take_segmented(SegmentedIdx(0));
    assert_eq!(told(&mut server), [(0, 1)], "the one that was read");
    server.drain();
    let mut late = Script::new(events::HEADERS, 2);
    late = late.chunk(4, 4, WHOLE_SEGMENTED);
    late.send(&mut server).unwrap();
    assert_eq!(told(&mut server), [(3, 1)], "on a call that was not taken any more");
}

#[test]
fn what_the_ring_found_is_latched_like_the_rest() {
    let mut client = session(Role::Client);
    client.end_session(Closed::Violation(Violation::Ring("a cursor went back")));
    client.end_session(Closed::HungUp);
    assert!(matches!(client.closed(), Some(Closed::Violation(Violation::Ring(_)))), "the first reason stays");
    assert_eq!(read(&mut client, StreamId(1)).unwrap().end, Some(End::SessionClosed));
}
