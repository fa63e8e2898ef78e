//! Frames that a session must not accept: one at least for each rule of `spec/wire.md`, section 17, that a frame can break.
//!
//! None breaks these: the session's credit overdrawn, which a stream's credit is spent before; and a grant beyond 2^64 - 1, which takes four
//! billion frames.

use serde_json::{Value, json};
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, control, events, flags};
use tollfree_session::{Opening, Role, Session, Violation};
use zerocopy::IntoBytes;

use super::frames::{AREA_LEN, LIMITS, Out, Record, asking, framed};
use super::hex;

/// A frame by hand.
fn frame(events: u8, flags: u8, stream: u64, set: impl Fn(&mut FrameHead), rest: &[u8]) -> Vec<u8> {
    let mut head = FrameHead { events, flags, stream: stream.into(), ..FrameHead::default() };
    set(&mut head);
    assert_eq!(head.as_bytes().len(), FRAME_HEAD_LEN);
    [head.as_bytes(), rest].concat()
}

/// A client's first call, which names a method, with any block.
fn named(code: u16, block: &[u8]) -> Vec<u8> {
    let set =
        |head: &mut FrameHead| (head.code, head.headers_len) = (code.into(), (block.len() as u16).into());
    frame(events::HEADERS, flags::NAMES_METHOD, 1, set, block)
}

/// The path of a method, and nothing else.
const PATH: &[u8] = &[2, 0, b'/', b'a'];

fn opening() -> Vec<u8> {
    named(0, PATH)
}

/// What is no batch of the messages that a frame's head speaks of, each with the head's flags, its count, and the bytes.
fn no_batches() -> Vec<(&'static str, u8, u32, Vec<u8>)> {
    const WHOLE: u8 = flags::FIRST | flags::LAST;
    const BATCH: u8 = WHOLE | flags::BATCH;
    const OBJECTS: u8 = BATCH | flags::OBJECT;
    let two = || framed(&[(0, b"one"), (1, b"")]);
    let objects = || framed(&[(2, &[0; 16][..]), (2, &[0; 24][..])]);
    let mut longer = objects();
    longer[4] += 1;
    let mut beyond = two();
    beyond[12] = 1;
    let mut beyond_all = two();
    beyond_all[1..5].fill(0xff);
    vec![
        ("a batch of more messages than it says", BATCH, 1, two()),
        ("a batch of fewer messages than it says", BATCH, 3, two()),
        ("a batch of no message", BATCH, 0, two()),
        ("a batch of no bytes", BATCH, 1, Vec::new()),
        ("a batch that ends within a message", BATCH, 2, two()[..7].to_vec()),
        ("a batch that ends within a prefix", BATCH, 2, two()[..12].to_vec()),
        ("a batch with a byte too much", BATCH, 2, [two(), vec![0]].concat()),
        ("a batch whose last message is longer than it is", BATCH, 2, beyond),
        ("a batch with a message beyond all numbers", BATCH, 2, beyond_all),
        ("a batch with an object in it", BATCH, 2, framed(&[(0, b"one"), (2, b"two")])),
        ("a batch that begins a message", flags::FIRST | flags::BATCH, 2, two()),
        ("a batch that ends a message", flags::LAST | flags::BATCH, 2, two()),
        ("a compressed batch", BATCH | flags::COMPRESSED, 2, two()),
        ("a batch of objects that are none", OBJECTS, 2, two()),
        ("a batch of more objects than it says", OBJECTS, 1, objects()),
        ("a batch of fewer objects than it says", OBJECTS, 3, objects()),
        ("a batch of no object", OBJECTS, 0, objects()),
        ("a batch of objects of no bytes", OBJECTS, 1, Vec::new()),
        ("a batch that ends within an object", OBJECTS, 2, objects()[..40].to_vec()),
        ("a batch of objects that ends within a prefix", OBJECTS, 2, objects()[..24].to_vec()),
        ("a batch of objects with a byte too much", OBJECTS, 2, [objects(), vec![0]].concat()),
        ("a batch whose first object is longer than it is", OBJECTS, 2, longer),
        ("a batch of objects that ends with a message", OBJECTS, 2, framed(&[(2, b"one"), (0, b"two")])),
        ("a batch of objects with a compressed message", OBJECTS, 2, framed(&[(1, b"one"), (2, b"two")])),
        ("a batch of objects with a flag of nothing", OBJECTS, 2, framed(&[(2, b"one"), (3, b"two")])),
        ("a batch of objects that is compressed", OBJECTS | flags::COMPRESSED, 2, objects()),
        ("a batch of objects that is cut", flags::FIRST | flags::BATCH | flags::OBJECT, 2, objects()),
    ]
}

/// Frames to a fresh server under `LIMITS`: all but the last are fine, and the last is a violation.
fn refused() -> Vec<Refused> {
    let whole = flags::FIRST | flags::LAST;
    let plain = |events, stream| frame(events, 0, stream, |_| (), &[]);
    let chunk = |chunk_flags, chunk_len: u32, message_len: u32, rest: &[u8]| {
        let set = |head: &mut FrameHead| {
            (head.chunk_len, head.message_len) = (chunk_len.into(), message_len.into());
        };
        frame(events::MESSAGE, chunk_flags, 1, set, rest)
    };
    let area = |code: u16, stream| frame(events::CONTROL, 0, stream, |head| head.code = code.into(), &[]);
    let range = |reserved: u8, at: u64| [&[0, 0, 0, 0, reserved, 0, 0, 0][..], &at.to_le_bytes()].concat();
    let no_batch = |(name, flags, count, bytes): (&'static str, u8, u32, Vec<u8>)| {
        (name, vec![opening(), chunk(flags, bytes.len() as u32, count, &bytes)])
    };
    let two = framed(&[(0, b"one"), (1, b"")]);
    let within = vec![
        opening(),
        chunk(flags::FIRST, 1, 2, &[0]),
        chunk(whole | flags::BATCH, two.len() as u32, 2, &two),
    ];
    let mut refused = vec![
        ("shorter than a head", vec![vec![1; 23]]),
        ("a byte too much", vec![[opening(), vec![0]].concat()]),
        ("no event", vec![plain(0, 1)]),
        ("an unknown flag", vec![frame(events::HEADERS, 0x80, 1, |_| (), &[])]),
        ("two events that stand alone", vec![plain(events::CREDIT | events::CANCEL, 1)]),
        ("a server's event", vec![opening(), plain(events::TRAILERS, 1)]),
        ("a code that nothing uses", vec![opening(), frame(4, 0, 1, |head| head.code = 1.into(), &[])]),
        ("a grant of nothing", vec![plain(events::CREDIT, 0)]),
        ("an opening out of turn", vec![plain(events::HEADERS, 2)]),
        ("a stream nobody opened", vec![plain(events::HALF_CLOSE, 1)]),
        ("a method nobody named", vec![plain(events::HEADERS, 1)]),
        ("half-closed twice", vec![opening(), plain(events::HALF_CLOSE, 1), plain(events::HALF_CLOSE, 1)]),
        (
            "half-closed within a message",
            vec![opening(), chunk(flags::FIRST, 1, 2, &[0]), plain(events::HALF_CLOSE, 1)],
        ),
        ("a chunk longer than its message", vec![opening(), chunk(whole, 3, 2, &[0; 3])]),
        ("an empty chunk of a message", vec![opening(), chunk(flags::FIRST, 0, 2, &[])]),
        (
            "more than the stream's credit",
            vec![
                opening(),
                chunk(whole, 1900, 1900, &[0; 1900]),
                chunk(whole, 1900, 1900, &[0; 1900]),
                chunk(whole, 1900, 1900, &[0; 1900]),
            ],
        ),
        ("beyond the area", vec![opening(), chunk(whole | flags::IN_AREA, 1, 1, &range(0, AREA_LEN as u64))]),
        ("reserved bits in a range", vec![opening(), chunk(whole | flags::IN_AREA, 1, 1, &range(1, 0))]),
        ("an answer without an offer", vec![area(control::AREA_ACCEPT, 0)]),
        ("an unknown control code", vec![area(10, 0)]),
        ("a client that takes objects", vec![opening(), area(control::OBJECTS, 1)]),
        (
            "an object that is compressed",
            vec![opening(), chunk(whole | flags::OBJECT | flags::COMPRESSED, 1, 1, &[0])],
        ),
        ("a close about a stream", vec![area(control::CLOSE, 1)]),
        (
            "a batch without a message",
            vec![opening(), frame(events::HALF_CLOSE, flags::BATCH, 1, |_| (), &[])],
        ),
        ("a batch within a message", within),
        (
            "more calls than were allowed",
            vec![opening(), plain(events::HEADERS, 2), plain(events::HEADERS, 3)],
        ),
        (
            "a credit of a call that nobody made",
            vec![frame(events::CREDIT, 0, 1, |head| head.chunk_len = 1.into(), &[])],
        ),
        (
            "a cancel of a call that nobody made",
            vec![frame(events::CANCEL, 0, 1, |head| head.code = 1.into(), &[])],
        ),
        (
            "a message behind the half-close",
            vec![opening(), plain(events::HALF_CLOSE, 1), chunk(whole, 1, 1, &[0])],
        ),
        ("a method named out of turn", vec![named(1, PATH)]),
        ("a method of no name", vec![named(0, &[0, 0])]),
        ("a method whose path ends beyond its block", vec![named(0, &[3, 0, b'/', b'a'])]),
        ("a method whose path is longer than any", vec![named(0, &[&[1, 4], &[b'a'; 1025][..]].concat())]),
        ("a method named without a path", vec![named(0, &[2])]),
        ("headers that end within a pair", vec![named(0, &[PATH, &[1, 1]].concat())]),
        ("headers that end within a name", vec![named(0, &[PATH, &[0, 3, b'a']].concat())]),
        ("headers with a name of no length", vec![named(0, &[PATH, &[0, 0, 1, 0, b'a']].concat())]),
        ("headers with an index of no name", vec![named(0, &[PATH, &[33, 1, 0, b'a']].concat())]),
        (
            "headers longer than announced",
            vec![named(0, &[PATH, &[0, 1, b'a', 0x28, 1], &[b'b'; 296]].concat())],
        ),
        ("a chunk of a message that has not begun", vec![opening(), chunk(0, 1, 0, &[0])]),
        (
            "a message that begins within another",
            vec![opening(), chunk(flags::FIRST, 1, 2, &[0]), chunk(whole, 1, 1, &[0])],
        ),
        ("a last chunk that does not end its message", vec![opening(), chunk(whole, 1, 2, &[0])]),
        (
            "a chunk that ends its message, and is not the last",
            vec![opening(), chunk(flags::FIRST, 1, 1, &[0])],
        ),
        (
            "an area offered out of turn",
            vec![{
                let set = |head: &mut FrameHead| {
                    (head.code, head.chunk_len) = (control::AREA_OFFER.into(), (AREA_LEN as u32).into());
                };
                frame(events::CONTROL, 0, 1, set, &[])
            }],
        ),
        ("an area dropped that was not offered", vec![area(control::AREA_DROP, 0)]),
        (
            "segmented messages without a pool in common",
            vec![opening(), chunk(whole | flags::SEGMENTED, 1, 1, &[0])],
        ),
        (
            "segmented messages taken without a pool in common",
            vec![{
                let set = |head: &mut FrameHead| {
                    (head.code, head.chunk_len) = (control::SEGMENTED_TAKEN.into(), 1.into());
                };
                frame(events::CONTROL, 0, 0, set, &[])
            }],
        ),
    ];
    refused.extend(no_batches().into_iter().map(no_batch));
    refused
}

/// Frames to either side where both are members of a pool, after an opening where that is the server.
fn refused_by_members(server: bool) -> Vec<Refused> {
    let control = |code: u16, segmented: u64, count: u32, bytes: &[u8]| {
        let set = |head: &mut FrameHead| (head.code, head.chunk_len) = (code.into(), count.into());
        frame(events::CONTROL, 0, segmented, set, bytes)
    };
    let first = if server { opening() } else { frame(events::HEADERS, 0, 1, |_| (), &[]) };
    let segmented = |flags| {
        let set = |head: &mut FrameHead| (head.chunk_len, head.message_len) = (1.into(), 1.into());
        frame(events::MESSAGE, flags, 1, set, &[0])
    };
    let whole = flags::FIRST | flags::LAST;
    vec![
        ("none of the segmented messages taken", vec![control(control::SEGMENTED_TAKEN, 0, 0, &[])]),
        ("a segmented message taken that was not sent", vec![control(control::SEGMENTED_TAKEN, 0, 1, &[])]),
        ("no bytes of a segmented message wanted", vec![control(control::SEGMENTED_WANTED, 0, 0, &[])]),
        (
            "bytes wanted of a segmented message that was not sent",
            vec![control(control::SEGMENTED_WANTED, 0, 1, &[])],
        ),
        (
            "bytes of a segmented message that were not asked for",
            vec![control(control::SEGMENTED_BYTES, 0, 1, &[0])],
        ),
        (
            "a segmented message that does not begin a message",
            vec![first.clone(), segmented(flags::LAST | flags::SEGMENTED)],
        ),
        (
            "a batch that is a segmented message",
            vec![first.clone(), segmented(whole | flags::BATCH | flags::SEGMENTED)],
        ),
        (
            "a batch of objects that is a segmented message",
            vec![first, segmented(whole | flags::BATCH | flags::OBJECT | flags::SEGMENTED)],
        ),
    ]
}

/// Frames to a client under `LIMITS` that has made one call, all of whose request it has sent: all but the last are fine, and the last is
/// a violation.
fn refused_by_clients() -> Vec<Refused> {
    let whole = flags::FIRST | flags::LAST;
    let plain = |events, stream| frame(events, 0, stream, |_| (), &[]);
    let coded =
        |events, flags, code: u16, stream| frame(events, flags, stream, |head| head.code = code.into(), &[]);
    let headers = || plain(events::HEADERS, 1);
    let chunk_of = |chunk_flags, message_len: u32, bytes: &[u8]| {
        let set = |head: &mut FrameHead| {
            (head.chunk_len, head.message_len) = ((bytes.len() as u32).into(), message_len.into());
        };
        frame(events::MESSAGE, chunk_flags, 1, set, bytes)
    };
    let chunk = |chunk_flags, chunk_len: u32, message_len: u32| {
        chunk_of(chunk_flags, message_len, &vec![0; chunk_len as usize])
    };
    let no_batch = |(name, flags, count, bytes): (&'static str, u8, u32, Vec<u8>)| {
        (name, vec![headers(), chunk_of(flags, count, &bytes)])
    };
    let objects = |method: u32| {
        let set = |head: &mut FrameHead| {
            head.code = control::OBJECTS.into();
            head.chunk_len = method.into();
            head.stream = 7.into();
        };
        frame(events::CONTROL, 0, 7, set, &[])
    };
    let trailers_of =
        |len: u16, block: &[u8]| frame(events::TRAILERS, 0, 1, |head| head.trailers_len = len.into(), block);
    let mut refused = vec![
        ("shorter than a head", vec![vec![1; 23]]),
        ("a byte too much", vec![[headers(), vec![0]].concat()]),
        ("no event", vec![plain(0, 1)]),
        ("a client's event", vec![plain(events::HALF_CLOSE, 1)]),
        ("headers with a deadline", vec![frame(events::HEADERS, flags::HAS_DEADLINE, 1, |_| (), &[0; 8])]),
        ("headers with a code", vec![coded(events::HEADERS, 0, 1, 1)]),
        ("headers twice", vec![headers(), headers()]),
        ("headers after a message", vec![headers(), chunk(whole, 1, 1), headers()]),
        ("a call that nobody made", vec![plain(events::HEADERS, 2)]),
        ("a cancel of a call that nobody made", vec![coded(events::CANCEL, 0, 1, 2)]),
        (
            "status OK within a message",
            vec![headers(), chunk(flags::FIRST, 1, 2), plain(events::TRAILERS, 1)],
        ),
        ("trailers that end within a pair", vec![trailers_of(2, &[1, 1])]),
        (
            "headers longer than announced",
            vec![{
                let block: Vec<u8> = [&[0, 1, b'a', 250, 0][..], &[b'b'; 250]].concat().repeat(2);
                frame(events::HEADERS, 0, 1, |head| head.headers_len = (block.len() as u16).into(), &block)
            }],
        ),
        ("a chunk longer than its message", vec![headers(), chunk(whole, 3, 2)]),
        ("an empty chunk of a message", vec![headers(), chunk(flags::FIRST, 0, 2)]),
        (
            "a message that begins within another",
            vec![headers(), chunk(flags::FIRST, 1, 2), chunk(whole, 1, 1)],
        ),
        (
            "more than the stream's credit",
            vec![headers(), chunk(whole, 1900, 1900), chunk(whole, 1900, 1900), chunk(whole, 1900, 1900)],
        ),
        ("a grant of nothing", vec![plain(events::CREDIT, 1)]),
        ("a drain above the last call", vec![plain(events::DRAIN, 2)]),
        ("a second drain above the first", vec![plain(events::DRAIN, 0), plain(events::DRAIN, 1)]),
        ("an answer without an offer", vec![coded(events::CONTROL, 0, control::AREA_ACCEPT, 0)]),
        ("an unknown control code", vec![coded(events::CONTROL, 0, 10, 0)]),
        ("objects of a method that was not named", vec![objects(1)]),
        ("objects of a method twice", vec![objects(0), objects(0)]),
        (
            "segmented messages without a pool in common",
            vec![headers(), chunk(whole | flags::SEGMENTED, 1, 1)],
        ),
        ("a close about a stream", vec![coded(events::CONTROL, 0, control::CLOSE, 1)]),
        ("a batch without a message", vec![frame(events::HEADERS, flags::BATCH, 1, |_| (), &[])]),
        (
            "a batch within a message",
            vec![
                headers(),
                chunk(flags::FIRST, 1, 2),
                chunk_of(whole | flags::BATCH, 1, &framed(&[(0, b"one")])),
            ],
        ),
    ];
    refused.extend(no_batches().into_iter().map(no_batch));
    refused
}

/// A violation's name: what its `Debug` begins with.
fn name_of(violation: &Violation) -> String {
    let text = format!("{violation:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// A client that has made a call, and the frame that it has said.
pub(super) fn asked(pool: bool) -> (Session<()>, Vec<u8>) {
    let (mut client, mut out) =
        (Session::new(Role::Client, LIMITS, LIMITS).with_segmented(pool), Out::default());
    let (opening, mut outgoing) = (Opening { path: "/a.B/C", deadline_ns: 0 }, asking(3));
    client.open(&mut out, opening, &mut outgoing).unwrap().unwrap();
    assert!(outgoing.is_empty());
    (client, out.records.pop().expect("one frame").1)
}

/// Frames of which the last is a violation.
type Refused = (&'static str, Vec<Vec<u8>>);

fn violations(to: impl Fn() -> Session<()>, pool: bool, refused: Vec<Refused>) -> Vec<Value> {
    let refuse = |(name, mut frames): Refused| {
        let mut session = to();
        let last = frames.pop().expect("one frame at least");
        for frame in &frames {
            session.receive(&Record(frame)).unwrap_or_else(|early| panic!("{name}: {early} too early"));
        }
        let violation = session.receive(&Record(&last)).expect_err(name);
        let before: Vec<String> = frames.iter().map(|frame| hex(frame)).collect();
        let violation = name_of(&violation);
        json!({ "name": name, "pool": pool, "before": before, "hex": hex(&last), "violation": violation })
    };
    refused.into_iter().map(refuse).collect()
}

pub(super) fn to_a_server() -> Vec<Value> {
    let server = |pool| Session::new(Role::Server, LIMITS, LIMITS).with_segmented(pool);
    let plain = violations(|| server(false), false, refused());
    [plain, violations(|| server(true), true, refused_by_members(true))].concat()
}

pub(super) fn to_a_client() -> Vec<Value> {
    let plain = violations(|| asked(false).0, false, refused_by_clients());
    [plain, violations(|| asked(true).0, true, refused_by_members(false))].concat()
}
