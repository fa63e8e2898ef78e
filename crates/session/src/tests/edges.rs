//! Edges that a simulation meets too seldom to be trusted with: one test each, named after what must hold.

use bytes::{Bytes, BytesMut};
use tollfree_layout::StreamId;
use tollfree_layout::frame::{FRAME_HEAD_LEN, control, events, flags};
use tollfree_layout::limits::{
    CHUNK_CHARGE, HELLO_TEXT_MAX, METHOD_COUNT_MAX, METHOD_PATH_LEN_MAX, METHOD_PATHS_LEN_MAX,
};

use crate::pending::Pending;
use crate::tests::script::{Kept, LIMITS, Record, Script, Sink, read, say, session};
use crate::{
    Closed, End, Ending, Limits, Opening, Outgoing, OutgoingMessage, Progress, Ready, Received, Role,
    SendError, Session, Violation,
};

const ONE: StreamId = StreamId(1);
const OPENING: Opening<'static> = Opening { path: "/a", deadline_ns: 0 };

fn open(client: &mut Session<()>, out: &mut Sink, outgoing: &mut Outgoing) -> StreamId {
    client.open(out, OPENING, outgoing).unwrap().unwrap()
}

fn message(len: usize) -> Option<OutgoingMessage> {
    Some(OutgoingMessage::new(vec![3; len].into(), false))
}

fn trailers(code: u16) -> Option<Ending> {
    Some(Ending::Trailers { code, block: Bytes::new() })
}

/// A server with stream 1 accepted, and headers sent.
fn answering() -> (Session<()>, Sink) {
    let (mut server, mut out) = (session(Role::Server), Sink::new());
    Script::opening(1).send(&mut server).unwrap();
    server.accept().unwrap();
    let mut headers = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut headers), Ok(Progress::Done));
    out.take();
    (server, out)
}

#[test]
fn a_waiting_cancellation_goes_before_the_next_call() {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    for _ in 0..LIMITS.stream_count {
        open(&mut client, &mut out, &mut Outgoing::default());
    }
    assert_eq!(client.open(&mut out, OPENING, &mut Outgoing::default()), Ok(Err(Progress::NeedStream)));
    client.forget(ONE, 1);
    out.take();
    out.room = 0;
    assert_eq!(client.open(&mut out, OPENING, &mut Outgoing::default()), Ok(Err(Progress::NeedRoom)));
    out.room = 2;
    assert_eq!(open(&mut client, &mut out, &mut Outgoing::default()), StreamId(3));
    let sent: Vec<u8> = out.take().iter().map(|head| head.events).collect();
    assert_eq!(sent, [events::CANCEL, events::HEADERS]);
}

#[test]
fn metadata_that_fit_no_record_are_refused_at_once() {
    let limits = Limits { metadata_len_max: 15_000, ..LIMITS };
    let block: Bytes = vec![0; 2000].into();
    let mut out = Sink { record_len_max: 1976, ..Sink::new() };
    let mut client: Session<()> = Session::new(Role::Client, limits, limits);
    let mut outgoing = Outgoing { headers: Some(block.clone()), ..Outgoing::default() };
    // Beside the headers: the head (24), and the path with its length (4).
    let expected = SendError::MetadataLen { len: 2000, max: 1976 - 28 };
    assert_eq!(client.open(&mut out, OPENING, &mut outgoing), Err(expected));
    let mut fits = Outgoing { headers: Some(block.slice(..1948)), ..Outgoing::default() };
    open(&mut client, &mut out, &mut fits);

    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    Script::opening(1).send(&mut server).unwrap();
    let expected = SendError::MetadataLen { len: 2000, max: 1976 - 24 };
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Err(expected.clone()));
    let ending = Some(Ending::Trailers { code: 0, block });
    let mut last = Outgoing { ending, ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut last), Err(expected));
    assert_eq!(out.records.len(), 1, "only what fits was sent");
}

#[test]
fn headers_that_leave_no_room_for_an_area_range_go_alone() {
    let limits =
        Limits { metadata_len_max: 4000, stream_window: 65_536, session_window: 200_000, stream_count: 2 };
    let mut out = Sink { record_len_max: 1976, area_chunk_max: usize::MAX, ..Sink::new() };
    let mut client: Session<()> = Session::new(Role::Client, limits, limits);
    let headers = Some(vec![0; 1976 - 28 - 8].into());
    let mut outgoing = Outgoing { headers, message: message(20_000), ending: Some(Ending::HalfClose) };
    let id = open(&mut client, &mut out, &mut outgoing);
    assert_eq!(say(&mut client, &mut out, id, &mut outgoing), Ok(Progress::Done));
    let sent: Vec<u8> = out.take().iter().map(|head| head.events).collect();
    assert_eq!(sent, [events::HEADERS, events::MESSAGE | events::HALF_CLOSE]);
}

#[test]
fn trailers_too_long_to_stand_beside_the_last_chunk_follow_it() {
    let limits = Limits { metadata_len_max: 1900, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, LIMITS, limits);
    let mut out = Sink { record_len_max: 1976, ..Sink::new() };
    Script::opening(1).send(&mut server).unwrap();
    let ending = Some(Ending::Trailers { code: 0, block: vec![0; 1900].into() });
    let mut outgoing = Outgoing { headers: Some(vec![0; 1900].into()), message: message(60), ending };
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
    let sent: Vec<u8> = out.take().iter().map(|head| head.events).collect();
    assert_eq!(sent, [events::HEADERS, events::MESSAGE, events::TRAILERS]);
}

#[test]
fn a_server_may_give_up_in_the_middle_of_a_message_but_not_end_well() {
    let (mut server, mut out) = answering();
    let mut outgoing = Outgoing { message: message(9000), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::NeedCredit));
    let mut well = Outgoing { ending: trailers(0), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut well), Err(SendError::OutOfOrder("ending")));
    let mut other = Outgoing { message: message(1), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut other), Err(SendError::OutOfOrder("message")));
    let mut badly = Outgoing { ending: trailers(13), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut badly), Ok(Progress::Done));
    assert_eq!(out.take().last().unwrap().events, events::TRAILERS);
    assert_eq!(server.live_count(), 0);
}

#[test]
fn a_client_cannot_half_close_in_the_middle_of_a_message() {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    let mut outgoing = Outgoing { message: message(9000), ..Outgoing::default() };
    let id = open(&mut client, &mut out, &mut outgoing);
    assert_eq!(say(&mut client, &mut out, id, &mut outgoing), Ok(Progress::NeedCredit));
    let mut ends = Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() };
    assert_eq!(say(&mut client, &mut out, id, &mut ends), Err(SendError::OutOfOrder("ending")));
}

#[test]
fn an_answer_leaves_a_finished_request_readable_and_drops_an_unfinished_one() {
    for half_closed in [true, false] {
        let (mut server, mut out) = answering();
        Script::new(0, 1).message().send(&mut server).unwrap();
        if half_closed {
            Script::new(events::HALF_CLOSE, 1).send(&mut server).unwrap();
        }
        let mut outgoing = Outgoing { ending: trailers(0), ..Outgoing::default() };
        assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
        let incoming = read(&mut server, ONE).unwrap();
        assert_eq!(incoming.chunk.is_some(), half_closed);
        match half_closed {
            true => assert_eq!(incoming.end, Some(End::HalfClosed)),
            false => assert!(matches!(incoming.end, Some(End::Cancelled { .. }))),
        }
        assert!(incoming.forgotten && server.stream_count() == 0, "nothing is left of it");
        let credit = server.credit(StreamId::SESSION).unwrap();
        assert_eq!(credit.recv + credit.owed, credit.window, "nothing of it holds credit");
    }
}

#[test]
fn credit_goes_before_messages_when_room_is_short() {
    let (mut server, mut out) = answering();
    Script::new(0, 1).chunk(3000, 3000, flags::FIRST | flags::LAST).send(&mut server).unwrap();
    assert!(read(&mut server, ONE).unwrap().chunk.is_some());
    assert!(server.has_pending());
    out.room = 1;
    let mut outgoing = Outgoing { message: message(10), ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::NeedRoom));
    assert_eq!(out.take()[0].events, events::CREDIT);
}

#[test]
fn a_forgotten_stream_leaves_one_cancellation_and_no_grant() {
    let (mut server, mut out) = answering();
    Script::new(0, 1).chunk(3000, 3000, flags::FIRST | flags::LAST).send(&mut server).unwrap();
    read(&mut server, ONE).unwrap();
    server.forget(ONE, 1);
    server.stage_pending(&mut out).unwrap();
    let sent: Vec<u8> = out.take().iter().map(|head| head.events).collect();
    assert_eq!(sent, [events::CANCEL]);
}

#[test]
fn what_a_stream_borrowed_of_the_reserve_comes_back() {
    let limits = Limits { session_window: 100_000, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    let reserve = server.reserve;
    Script::opening(1).send(&mut server).unwrap();
    Script::new(0, 1).chunk(3000, 3000, flags::FIRST | flags::LAST).send(&mut server).unwrap();
    read(&mut server, ONE).unwrap();
    assert_eq!(server.credit(ONE).unwrap().window, 2 * limits.stream_window, "who keeps up gets more");
    assert_eq!(server.reserve, reserve - limits.stream_window);
    server.cancel(ONE, 1);
    assert_eq!(server.reserve, reserve);
}

#[test]
fn a_client_never_stops_reading_for_its_own_cancellations() {
    let limits = Limits { stream_count: 1000, ..LIMITS };
    // As the handshake has it: a client says 0.
    let mut client: Session<()> = Session::new(Role::Client, Limits { stream_count: 0, ..limits }, limits);
    let mut out = Sink::new();
    for _ in 0..limits.stream_count {
        open(&mut client, &mut out, &mut Outgoing::default());
    }
    out.room = 0;
    for id in 1..=1000 {
        client.forget(StreamId(id), 1);
    }
    assert!(client.has_pending() && !client.is_congested());
}

#[test]
fn calls_opened_and_cancelled_in_a_hurry_do_not_pile_up() {
    let limits = Limits { stream_count: 3, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    let mut out = Sink::new();
    for id in 1..=100 {
        Script::opening(id).send(&mut server).unwrap();
        Script::new(events::CANCEL, id).send(&mut server).unwrap();
        assert_eq!(server.stream_count(), id.min(6) as usize, "twice the calls at once");
    }
    server.stage_pending(&mut out).unwrap();
    let sent = out.take();
    assert_eq!(sent.len(), 100 - 6);
    assert!(sent.iter().all(|head| head.events == events::CANCEL && head.flags == flags::REFUSED));
    assert!(server.accept().is_none(), "calls that ended before they were seen are not shown");
    assert_eq!(server.stream_count(), 0);
    Script::opening(101).send(&mut server).unwrap();
    assert_eq!(server.accept().unwrap().id, StreamId(101));
}

#[test]
fn draining_keeps_calls_that_wait_to_be_accepted() {
    let (mut server, mut out) = (session(Role::Server), Sink::new());
    Script::opening(1).send(&mut server).unwrap();
    server.drain();
    Script::opening(2).message().send(&mut server).unwrap();
    server.stage_pending(&mut out).unwrap();
    let drain = out.take()[0];
    assert_eq!((drain.events, drain.stream.get()), (events::DRAIN, 1));
    assert_eq!(server.accept().unwrap().id, ONE);
    assert!(server.accept().is_none());

    let (mut client, mut out) = (session(Role::Client), Sink::new());
    open(&mut client, &mut out, &mut Outgoing::default());
    let late = open(&mut client, &mut out, &mut Outgoing::default());
    Script::new(events::DRAIN, 1).send(&mut client).unwrap();
    let refused = End::Cancelled { code: 14, refused: true };
    assert_eq!(read(&mut client, late).unwrap().end, Some(refused));
    assert_eq!(read(&mut client, ONE), None, "the call that was received goes on");
    assert_eq!(client.open(&mut out, OPENING, &mut Outgoing::default()), Err(SendError::Draining));
    client.forget(late, 1);
    assert!(!client.has_pending(), "a refused call needs no cancellation");
}

#[test]
fn a_server_that_drains_again_takes_no_call_back() {
    let opened = || {
        let (mut client, mut out) = (session(Role::Client), Sink::new());
        (1..=2).for_each(|_| _ = open(&mut client, &mut out, &mut Outgoing::default()));
        client
    };
    let drain = |client: &mut Session<()>, last| Script::new(events::DRAIN, last).send(client);
    let backwards = |stream| Err(Violation::StreamId { stream, expected: 3 });
    assert_eq!(drain(&mut opened(), 3), backwards(3), "a call that was not opened");
    let mut client = opened();
    for last in [2, 1, 1] {
        assert_eq!(drain(&mut client, last), Ok(Received::Frame), "{last}");
        assert_eq!(client.live_count(), last as u32);
    }
    assert_eq!(drain(&mut client, 2), backwards(2), "a call that it has refused");
}

#[test]
fn a_driver_sees_where_a_call_stands() {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    let mut server = session(Role::Server);
    assert_eq!([client.role(), server.role()], [Role::Client, Role::Server]);
    let states = |session: &Session<()>| {
        let one =
            [session.is_live(ONE), session.has_end(ONE), session.has_incoming(ONE), session.is_settled(ONE)];
        (one, session.live_count(), session.stream_count(), session.has_ready())
    };
    const NOWHERE: ([bool; 4], u32, usize, bool) = ([false, false, true, true], 0, 0, false);
    assert_eq!(
        (states(&client), states(&server)),
        (NOWHERE, NOWHERE),
        "a call that nobody knows reads as ended"
    );
    assert_eq!((client.may_open_count(), client.stream_count_max(), client.is_draining()), (2, 2, false));
    assert!(!client.has_whole(ONE) && client.user_mut(ONE).is_none());

    let mut asks = Outgoing { message: message(3), ending: Some(Ending::HalfClose), ..Outgoing::default() };
    assert_eq!(open(&mut client, &mut out, &mut asks), ONE);
    assert_eq!(states(&client), ([true, false, false, false], 1, 1, false));
    assert_eq!(client.may_open_count(), 1);
    assert!(client.user_mut(ONE).is_some());
    assert!(!server.has_accepted());
    server.receive(&Record(out.records.pop().unwrap())).unwrap();
    assert!(server.has_accepted());
    assert_eq!(states(&server), ([true, true, true, false], 1, 1, true));
    assert_eq!(server.next_ready(), Some(Ready { id: ONE, read: true, write: false }));
    assert_eq!((server.next_ready(), server.has_ready()), (None, false));
    let accepted = server.accept().unwrap();
    assert_eq!((server.path_of(&accepted), server.has_accepted()), (Bytes::from_static(b"/a"), false));

    assert!(read(&mut server, ONE).unwrap().chunk.is_some());
    let headers = Some(Bytes::new());
    let mut answer = Outgoing { headers, message: message(3), ending: trailers(0) };
    say(&mut server, &mut out, ONE, &mut answer).unwrap();
    assert!(!server.is_live(ONE));
    client.receive(&Record(out.records.pop().unwrap())).unwrap();
    assert!(client.has_whole(ONE) && client.has_end(ONE));
    assert_eq!(states(&client), ([false, true, true, false], 0, 1, true));
    assert!(client.take_answer(ONE).is_some() && client.take_answer(ONE).is_none());
    assert_eq!((states(&client).0, client.stream_count()), (NOWHERE.0, 0));
    let unknown = read(&mut client, ONE).unwrap();
    let cancelled = Some(End::Cancelled { code: 1, refused: false });
    assert_eq!((unknown.end, unknown.forgotten), (cancelled, true));

    let (mut server, _) = answering();
    assert!(!server.has_incoming(ONE));
    Script::new(0, 1).message().send(&mut server).unwrap();
    assert!(server.has_incoming(ONE) && !server.has_end(ONE), "a message that has no end behind it");
    assert!(!server.recording().is_on());
    let server = server.recorded(Kept::default().recording());
    assert!(server.recording().is_on());

    Script::new(events::DRAIN, 1).send(&mut client).unwrap();
    assert_eq!((client.is_draining(), client.may_open_count()), (true, usize::MAX), "an answer is at hand");
}

#[test]
fn a_peer_that_does_not_read_is_listened_to_no_longer() {
    let limits = Limits { stream_count: 3, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    // Each is answered.
    for idx in 0..2 * limits.stream_count + 64 {
        assert!(!server.is_congested(), "{idx}");
        server.answer_area(tollfree_layout::AreaIdx(idx), false);
    }
    assert!(server.is_congested());
    server.stage_pending(&mut Sink::new()).unwrap();
    assert!(!server.is_congested());
}

#[test]
fn polling_again_and_again_leaves_nothing_behind() {
    let limits = Limits { session_window: 4096, ..LIMITS };
    let mut client: Session<()> = Session::new(Role::Client, LIMITS, limits);
    let mut out = Sink::new();
    let mut outgoing = Outgoing { message: message(9000), ..Outgoing::default() };
    let id = open(&mut client, &mut out, &mut outgoing);
    for _ in 0..10_000 {
        assert_eq!(say(&mut client, &mut out, id, &mut outgoing), Ok(Progress::NeedCredit));
    }
    Script::new(events::CREDIT, 0).chunk_len(4000).send(&mut client).unwrap();
    Script::new(events::CREDIT, id.0).chunk_len(4000).send(&mut client).unwrap();
    assert_eq!(client.ready.len(), 1);
    assert!(client.next_ready().unwrap().write);
    client.forget(id, 1);
    assert!(client.next_ready().is_none());
}

#[test]
fn a_hundred_thousand_calls_leave_no_trace() {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    let mut server = session(Role::Server);
    for call in 1..=100_000 {
        let id = open(&mut client, &mut out, &mut Outgoing::default());
        Script::opening(call).send(&mut server).unwrap();
        server.accept().unwrap();
        server.forget(id, 1);
        Script::new(events::TRAILERS, call).send(&mut client).unwrap();
        client.forget(id, 1);
        server.stage_pending(&mut out).unwrap();
        out.records.clear();
    }
    for session in [&client, &server] {
        assert_eq!(session.stream_count(), 0);
        assert!(session.streams.capacity() <= 16 && session.ready.len() <= 65);
        assert!(session.ready.capacity() <= 256 && session.unseen.capacity() <= 16);
    }
}

/// The text of the only frame that was staged, which says that the session ends.
fn last_words(out: &mut Sink) -> String {
    let record = out.records.pop().unwrap();
    assert!(out.records.is_empty());
    String::from_utf8(record[FRAME_HEAD_LEN..].to_vec()).unwrap()
}

#[test]
fn a_peer_is_told_why_a_session_ends_in_whole_characters() {
    for shift in ["", "a"] {
        let text = format!("{shift}{}", "é".repeat(HELLO_TEXT_MAX));
        let mut out = Sink::new();
        session(Role::Server).close(&mut out, Closed::Here(text.leak()));
        let words = last_words(&mut out);
        assert!(
            (HELLO_TEXT_MAX - 1..=HELLO_TEXT_MAX).contains(&words.len()) && words.ends_with('é'),
            "{words}"
        );
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_told_and_one_that_has_gone_is_not() {
    let mut out = Sink::new();
    let mut server = session(Role::Server);
    let violation = Script::new(0, 1).send(&mut server).unwrap_err();
    server.close(&mut out, Closed::Violation(violation));
    assert_eq!(last_words(&mut out), Closed::Violation(violation).to_string());
    for gone in [Closed::HungUp, Closed::ByPeer("bye".to_owned()), Closed::Here("done")] {
        let mut server = session(Role::Server);
        server.end_session(gone.clone());
        server.close(&mut out, Closed::Here("again"));
        assert_eq!((out.records.len(), server.closed()), (0, Some(&gone)));
    }
}

#[test]
fn calls_beside_one_that_stays_leave_few_places_in_the_queues() {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    open(&mut client, &mut out, &mut Outgoing::default());
    for _ in 0..200 {
        let id = open(&mut client, &mut out, &mut Outgoing::default());
        Script::new(events::TRAILERS, id.0).send(&mut client).unwrap();
        client.forget(id, 1);
        assert!(client.ready.len() <= 2 + 64, "{}", client.ready.len());
    }
}

#[test]
fn a_closed_session_owes_nothing() {
    let (mut server, mut out) = answering();
    Script::new(0, 1).chunk(3000, 3000, flags::FIRST | flags::LAST).send(&mut server).unwrap();
    Script::opening(2).send(&mut server).unwrap();
    server.close(&mut out, Closed::Here("the test is over"));
    assert_eq!(server.stream_count(), 1, "the call that nobody has seen is gone");
    assert_eq!(read(&mut server, ONE).unwrap().end, Some(End::SessionClosed));
    server.offer_area(tollfree_layout::AreaIdx(0), 1);
    server.cancel(ONE, 1);
    server.drain();
    assert!(!server.has_pending());
    let last = out.take().pop().unwrap();
    assert_eq!((last.events, last.code.get()), (events::CONTROL, control::CLOSE));
}

#[test]
fn a_grant_beyond_32_bits_is_cut_and_joined_without_loss() {
    let mut pending = Pending::default();
    for amount in [5, u64::from(u32::MAX), u64::from(u32::MAX) * 3 + 7] {
        pending.grant(ONE, amount);
    }
    assert_eq!(pending.granted(ONE), 4 * u64::from(u32::MAX) + 12);
    assert_eq!(pending.len(), 5);
}

#[test]
fn the_longest_message_is_counted_down_without_overflow() {
    let (mut server, _) = answering();
    Script::new(0, 1).chunk(100, u32::MAX, flags::FIRST).send(&mut server).unwrap();
    assert_eq!(server.streams.get(ONE).unwrap().state.unreceived(), Some(u32::MAX - 100));
    Script::new(0, 1).chunk(1000, 0, 0).send(&mut server).unwrap();
    assert_eq!(server.streams.get(ONE).unwrap().state.unreceived(), Some(u32::MAX - 1100));
}

/// The peer chooses how long its paths are, and this side keeps those that have an index.
#[test]
fn paths_are_kept_up_to_a_bound_in_bytes_and_further_ones_still_take_calls() {
    let limits = Limits { stream_count: 1, ..LIMITS };
    let mut client: Session<()> = Session::new(Role::Client, limits, limits);
    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    let mut out = Sink::new();
    let fitting = METHOD_PATHS_LEN_MAX / METHOD_PATH_LEN_MAX;
    for call in 0..fitting + 3 {
        let path = format!("/m/{call:0len$}", len = METHOD_PATH_LEN_MAX - 3);
        let opening = Opening { path: &path, deadline_ns: 0 };
        let id = client.open(&mut out, opening, &mut Outgoing::default()).unwrap().unwrap();
        let record = Record(out.records.pop().unwrap());
        server.receive(&record).unwrap();
        let accepted = server.accept().unwrap();
        assert_eq!(server.path_of(&accepted), path);
        assert_eq!(accepted.method.is_some(), call < fitting);
        Script::new(events::CANCEL, id.0).send(&mut server).unwrap();
        server.forget(id, 1);
        Script::new(events::TRAILERS, id.0).send(&mut client).unwrap();
        client.forget(id, 1);
    }
    let kept: usize = server.methods.paths().iter().map(Bytes::len).sum();
    assert_eq!((kept, client.methods.count()), (METHOD_PATHS_LEN_MAX, server.methods.count()));
}

#[test]
fn a_full_table_of_methods_still_takes_calls() {
    let limits = Limits { stream_count: 1, ..LIMITS };
    let mut client: Session<()> = Session::new(Role::Client, limits, limits);
    let mut server: Session<()> = Session::new(Role::Server, limits, limits);
    let mut out = Sink::new();
    for call in 0..METHOD_COUNT_MAX + 3 {
        let path = format!("/m/{call}");
        let opening = Opening { path: &path, deadline_ns: 0 };
        let id = client.open(&mut out, opening, &mut Outgoing::default()).unwrap().unwrap();
        let record = Record(out.records.pop().unwrap());
        server.receive(&record).unwrap();
        let accepted = server.accept().unwrap();
        assert_eq!(server.path_of(&accepted), path);
        assert_eq!(accepted.method.is_some(), call < METHOD_COUNT_MAX);
        drop(accepted);
        assert!(server.methods.paths().last().unwrap().is_unique(), "no block is kept for its path");
        Script::new(events::CANCEL, id.0).send(&mut server).unwrap();
        server.forget(id, 1);
        Script::new(events::TRAILERS, id.0).send(&mut client).unwrap();
        client.forget(id, 1);
    }
    assert_eq!(server.methods.count(), METHOD_COUNT_MAX);
    let known = client.open(&mut out, Opening { path: "/m/7", deadline_ns: 0 }, &mut Outgoing::default());
    assert!(known.unwrap().is_ok());
    assert_eq!(out.take()[0].code.get(), 7);
}

#[test]
fn windows_down_to_the_smallest_carry_any_message() {
    for window in [crate::STREAM_WINDOW_MIN, 257, 300, 1000, 2111, 2112, 4095, 4223, 4224] {
        let limits = Limits { stream_window: window, session_window: window, stream_count: 1, ..LIMITS };
        let mut client: Session<()> = Session::new(Role::Client, limits, limits);
        let mut server: Session<()> = Session::new(Role::Server, limits, limits);
        let (mut up, mut down) = (Sink::new(), Sink::new());
        let ending = Some(Ending::HalfClose);
        let mut outgoing = Outgoing { message: message(20_000), ending, ..Outgoing::default() };
        let id = open(&mut client, &mut up, &mut outgoing);
        let (mut got, mut turns) = (0, 0);
        let mut ended = false;
        while !ended {
            turns += 1;
            assert!(turns < 1000, "window {window} carries no more after {got} bytes");
            say(&mut client, &mut up, id, &mut outgoing).unwrap();
            for record in up.records.drain(..) {
                server.receive(&Record(record)).unwrap();
            }
            while !ended && let Some(incoming) = read(&mut server, id) {
                got += incoming.chunk.map_or(0, |chunk| chunk.bytes.len());
                ended = incoming.end == Some(End::HalfClosed);
            }
            server.stage_pending(&mut down).unwrap();
            for record in down.records.drain(..) {
                client.receive(&Record(record)).unwrap();
            }
        }
        assert_eq!(got, 20_005);
    }
}

#[test]
fn a_long_message_that_begins_raises_the_window_out_of_the_reserve_and_gives_it_back() {
    const RESERVE: u64 = 20_000;
    let limits = Limits { stream_count: 4, session_window: 4 * LIMITS.stream_window + RESERVE, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, LIMITS);
    // Announced: as much again as the stream's credit, and more than the reserve has.
    for (id, len, window) in [
        (1, 2 * LIMITS.stream_window, 2 * LIMITS.stream_window + 128),
        (2, 1 << 30, RESERVE - 128),
        (3, 1 << 30, LIMITS.stream_window),
    ] {
        Script::opening(id).send(&mut server).unwrap();
        Script::new(0, id).chunk(1000, len as u32, flags::FIRST).send(&mut server).unwrap();
        let credit = server.credit(StreamId(id)).unwrap();
        assert_eq!((credit.window, credit.unread), (window, 1064), "{id}");
        assert_eq!(credit.recv + credit.unread, credit.window, "{id}");
        assert_eq!(credit.unsent, window - LIMITS.stream_window, "the sender is told");
        server.accept().unwrap();
    }
    server.forget(ONE, 1);
    let window = server.credit(StreamId(2)).unwrap().window;
    assert_eq!(window, LIMITS.stream_window + RESERVE, "what the first had is there again");
}

#[test]
fn a_message_in_chunks_lies_in_one_buffer_however_others_come_between() {
    let limits = Limits { stream_window: 13_000, session_window: 13_000 * 4, stream_count: 4, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, LIMITS);
    let ids = [1, 2];
    for id in ids {
        Script::opening(id).send(&mut server).unwrap();
        server.accept().unwrap();
    }
    let parts = [(flags::FIRST, 4000), (0, 5000), (flags::LAST, 3000)];
    let mut messages: [Option<BytesMut>; 2] = [None, None];
    for (flags, len) in parts {
        for (id, message) in ids.into_iter().zip(&mut messages) {
            let whole = if flags == flags::FIRST { 12_000 } else { 0 };
            Script::new(0, id).chunk(len, whole, flags).send(&mut server).unwrap();
            // One of them is read as it comes, the other all at once.
            let is_read = id == 1 || flags == flags::LAST;
            while is_read && let Some(chunk) = read(&mut server, StreamId(id)).and_then(|part| part.chunk) {
                match message {
                    None => *message = Some(chunk.bytes),
                    Some(before) => assert_eq!(crate::join(before, chunk.bytes, 12_005), 0, "no copy"),
                }
            }
        }
    }
    assert_eq!(messages.map(|message| message.unwrap().len()), [12_005; 2]);
    assert!(ids.iter().all(|id| server.streams.get(StreamId(*id)).unwrap().room.is_none()));
}

#[test]
fn what_a_peer_says_of_a_messages_length_reserves_no_more_than_it_may_send() {
    let (mut server, _) = answering();
    Script::new(0, 1).chunk(100, u32::MAX, flags::FIRST).send(&mut server).unwrap();
    let stream = server.streams.get(ONE).unwrap();
    let room = stream.room.as_ref().unwrap().capacity() as u64;
    assert!((stream.recv_credit..stream.recv_credit + 300).contains(&room), "{room}");
}

/// Else it would keep the chunk's memory for as long as the peer likes.
#[test]
fn where_nothing_may_follow_yet_no_room_is_kept() {
    // Nothing to borrow either.
    let limits = Limits { session_window: LIMITS.stream_window, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, LIMITS);
    Script::opening(1).send(&mut server).unwrap();
    let len = LIMITS.stream_window - CHUNK_CHARGE;
    Script::new(0, 1).chunk(len as usize, 9000, flags::FIRST).send(&mut server).unwrap();
    assert_eq!(server.credit(ONE).unwrap().recv, 0);
    let chunk = read(&mut server, ONE).unwrap().chunk.unwrap();
    assert_eq!(chunk.bytes.len() as u64, len + 5);
    assert!(server.streams.get(ONE).unwrap().room.is_none());
}

#[test]
fn the_reserve_goes_to_long_messages_in_the_order_in_which_they_began() {
    const LEN: u32 = 10_000;
    // For two: each message travels in two chunks.
    let reserve = 2 * (u64::from(LEN) + 2 * CHUNK_CHARGE - LIMITS.stream_window);
    let limits = Limits { stream_count: 9, session_window: 9 * LIMITS.stream_window + reserve, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, limits, LIMITS);
    let begin = |server: &mut Session<()>, id| {
        Script::opening(id).send(server).unwrap();
        Script::new(0, id).chunk(1000, LEN, flags::FIRST).send(server).unwrap();
        server.accept().unwrap();
    };
    // What the peer may send before anything is read: the whole message or not.
    let covers = |server: &Session<()>, id| {
        let credit = server.credit(StreamId(id)).unwrap();
        credit.recv + credit.unread >= u64::from(LEN)
    };
    (1..=6).for_each(|id| begin(&mut server, id));
    assert_eq!([1, 2, 3, 4, 5, 6].map(|id| covers(&server, id)), [true, true, false, false, false, false]);
    // One that is cancelled gives back what it had, and one that waits its place.
    server.cancel(ONE, 1);
    server.cancel(StreamId(4), 1);
    begin(&mut server, 7);
    assert_eq!(
        [3, 5, 6, 7].map(|id| covers(&server, id)),
        [true, false, false, false],
        "no newcomer overtakes"
    );
    // So does one whose last bytes have been read, though its call goes on.
    Script::new(events::HALF_CLOSE, 2).chunk(9000, 0, flags::LAST).send(&mut server).unwrap();
    assert!(!covers(&server, 5), "not before they are read");
    while server.take(StreamId(2)).is_some_and(|incoming| incoming.into_part().end.is_none()) {}
    assert!(server.is_live(StreamId(2)) && covers(&server, 5) && !covers(&server, 6));
    begin(&mut server, 8);
    [3, 5].into_iter().for_each(|id| server.forget(StreamId(id), 1));
    assert_eq!([6, 7, 8].map(|id| covers(&server, id)), [true, true, false]);
    [2, 6, 7, 8].into_iter().for_each(|id| server.forget(StreamId(id), 1));
    assert_eq!((server.reserve, server.short.len()), (reserve, 0));
}

#[test]
fn a_long_part_is_to_be_made_visible_before_the_next() {
    let limits = Limits { stream_window: 1 << 20, session_window: 1 << 21, ..LIMITS };
    let mut server: Session<()> = Session::new(Role::Server, LIMITS, limits);
    let mut out = Sink::new();
    Script::opening(1).send(&mut server).unwrap();
    server.accept().unwrap();
    out.area_chunk_max = 30_000;
    let mut outgoing =
        Outgoing { headers: Some(Bytes::new()), message: message(100_000), ending: trailers(0) };
    let mut parts = 0;
    while say(&mut server, &mut out, ONE, &mut outgoing) == Ok(Progress::Partly) {
        assert_eq!(out.take().len(), 1, "one at a time");
        parts += 1;
    }
    assert!(parts == 3 && outgoing.is_empty());
    assert_eq!(out.take().len(), 1, "the last");
}
