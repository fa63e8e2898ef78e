//! Nobody waits on a call that has ended.

use bytes::Bytes;
use tollfree_layout::StreamId;
use tollfree_layout::frame::{control, events, flags};

use crate::stream::Watched;
use crate::tests::script::{LIMITS, Script, Sink, read};
use crate::{Closed, Ending, Opening, Outgoing, OutgoingMessage, Progress, Role, SendError, Session};

const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

/// Who waits on a stream, by a name.
#[derive(Debug, Default, PartialEq)]
struct Waits {
    reader: Option<&'static str>,
    writer: Option<&'static str>,
}

impl Watched for Waits {
    fn waits_to_read(&self) -> bool {
        self.reader.is_some()
    }

    fn waits_to_write(&self) -> bool {
        self.writer.is_some()
    }
}

fn session<T: Watched>(role: Role) -> Session<T> {
    Session::new(role, LIMITS, LIMITS)
}

fn message(len: usize) -> Outgoing {
    Outgoing { message: Some(OutgoingMessage::new(vec![3; len].into(), false)), ..Outgoing::default() }
}

/// A client with a call under way, of which a message is yet to come.
fn calling<T: Watched>() -> (Session<T>, Sink) {
    let (mut client, mut out) = (session(Role::Client), Sink::new());
    let opening = Opening { path: "/a", deadline_ns: 0 };
    assert_eq!(client.open(&mut out, opening, &mut Outgoing::default()), Ok(Ok(ONE)));
    (client, out)
}

/// A server with a call under way, whose headers are sent.
fn answering<T: Watched>() -> (Session<T>, Sink) {
    let (mut server, mut out) = (session(Role::Server), Sink::new());
    Script::opening(1).send_to(&mut server).unwrap();
    server.accept().unwrap();
    let mut headers = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    assert_eq!(server.send(&mut out, ONE, &mut headers), Ok(Progress::Done));
    (server, out)
}

/// What ends a call, by a name.
type End = (&'static str, fn(&mut Session<()>));

const ENDS: [End; 5] = [
    ("cancelled", |session| session.cancel(ONE, 1)),
    ("let go of", |session| session.forget(ONE, 1)),
    ("cancelled by the peer", |session| _ = Script::new(events::CANCEL, 1).code(1).send(session)),
    ("settled", |session| _ = session.settle(ONE)),
    ("forgotten after its end", |session| {
        session.cancel(ONE, 1);
        session.forget(ONE, 1);
    }),
];

#[test]
fn a_sender_does_not_wait_for_room_for_the_cancellation_of_its_own_call() {
    for (role, (mut session, mut out)) in [(Role::Client, calling::<()>()), (Role::Server, answering())] {
        // Something is to be said first that there is no room for, as when the peer stands still.
        out.room = 0;
        session.cancel(ONE, 1);
        assert!(session.has_pending());
        assert_eq!(session.send(&mut out, ONE, &mut message(100)), Err(SendError::Ended), "{role:?}");
        session.forget(ONE, 1);
        assert_eq!(session.send(&mut out, ONE, &mut message(100)), Err(SendError::Ended), "{role:?}");
        assert_eq!(session.send(&mut out, ONE, &mut Outgoing::default()), Err(SendError::Ended));
    }
}

#[test]
fn whatever_ends_a_call_and_whatever_lacks_room_its_sender_does_not_wait() {
    for (end, ends) in ENDS {
        for (role, (mut session, mut out)) in [(Role::Client, calling()), (Role::Server, answering())] {
            if end == "settled" {
                let ending = Some(Ending::Trailers { code: 5, block: Bytes::new() });
                let mut last = Outgoing { ending, ..Outgoing::default() };
                let Role::Server = role else { continue };
                assert_eq!(session.send(&mut out, ONE, &mut last), Ok(Progress::Done));
            }
            out.room = 0;
            // A frame of the session's own, that waits already.
            session.offer_area(tollfree_layout::AreaIdx(0), 65_536);
            assert_eq!(
                session.send(&mut out, ONE, &mut message(100)),
                if end == "settled" { Err(SendError::Ended) } else { Ok(Progress::NeedRoom) },
                "{role:?}: a call under way waits for room"
            );
            ends(&mut session);
            assert!(session.has_pending());
            assert_eq!(
                session.send(&mut out, ONE, &mut message(100)),
                Err(SendError::Ended),
                "{role:?} {end}"
            );
        }
    }
}

#[test]
fn who_has_nothing_to_say_needs_no_room() {
    let (mut client, mut out) = calling::<()>();
    client.offer_area(tollfree_layout::AreaIdx(0), 65_536);
    out.room = 0;
    assert_eq!(client.send(&mut out, ONE, &mut Outgoing::default()), Ok(Progress::Done));
    assert_eq!(client.send(&mut out, ONE, &mut message(1)), Ok(Progress::NeedRoom));
}

#[test]
fn who_waits_on_a_stream_that_is_forgotten_is_given_back_to_be_woken() {
    for (role, (mut session, _)) in [(Role::Client, calling()), (Role::Server, answering())] {
        *session.user_mut(ONE).unwrap() = Waits { reader: Some("reader"), writer: Some("writer") };
        session.forget(ONE, 1);
        assert!(session.has_ready(), "{role:?}");
        let abandoned = session.next_abandoned();
        assert_eq!(abandoned, Some(Waits { reader: Some("reader"), writer: Some("writer") }), "{role:?}");
        assert!(session.next_abandoned().is_none() && session.next_ready().is_none(), "{role:?}: once");
    }
}

#[test]
fn nobody_is_given_back_of_a_stream_that_nobody_waits_on_or_that_lives() {
    let (mut client, mut out) = calling::<Waits>();
    let opening = Opening { path: "/a", deadline_ns: 0 };
    assert_eq!(client.open(&mut out, opening, &mut Outgoing::default()), Ok(Ok(TWO)));
    client.user_mut(TWO).unwrap().reader = Some("reader");
    client.forget(ONE, 1);
    assert!(!client.has_ready());
    client.end_session(Closed::HungUp);
    let ready = client.next_ready().unwrap();
    assert!(ready.id == TWO && ready.read && !ready.write);
    assert!(client.next_abandoned().is_none(), "the session still remembers it, for its reader");
}

/// What a peer says on a call that goes on: a whole message, two in a batch, and the beginning of one.
fn told(session: &mut Session<()>) {
    let whole = flags::FIRST | flags::LAST;
    let batch = [0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0];
    let mut two =
        Script::new(events::MESSAGE, 1).flags(whole | flags::BATCH).chunk_len(batch.len() as u32).raw(&batch);
    two.head.message_len = 2.into();
    let parts = [Script::new(0, 1).message(), two, Script::new(0, 1).chunk(1, 2, flags::FIRST)];
    parts.iter().for_each(|part| _ = part.send(session).unwrap());
}

/// How many whole messages are read, and the end behind them.
fn read_to_end(session: &mut Session<()>) -> (u32, Option<crate::End>) {
    let mut count = 0;
    while let Some(part) = read(session, ONE) {
        count += part.chunk.map_or(0, |chunk| if chunk.last { chunk.batch_count.max(1) } else { 0 });
        if part.end.is_some() {
            return (count, part.end);
        }
    }
    (count, None)
}

#[test]
fn what_a_peer_has_said_before_it_left_is_read_and_then_its_end() {
    type Leaves = fn(&mut Session<()>);
    let leaves: [(&str, Leaves, u32); 4] = [
        ("its process ended", |session| session.end_session(Closed::HungUp), 3),
        (
            "it said so",
            |session| _ = Script::new(events::CONTROL, 0).code(control::CLOSE).send(session).unwrap(),
            3,
        ),
        ("it broke the protocol", |session| _ = Script::new(0, 1).send(session).unwrap_err(), 0),
        ("this side leaves", |session| session.end_session(Closed::Here("bye")), 0),
    ];
    for (how, leave, count) in leaves {
        let (mut client, _) = calling::<()>();
        Script::new(events::HEADERS, 1).send(&mut client).unwrap();
        let (mut server, _) = answering::<()>();
        for session in [&mut client, &mut server] {
            told(session);
            leave(session);
            assert_eq!(
                read_to_end(session),
                (count, Some(crate::End::SessionClosed)),
                "{how}, {:?}",
                session.role()
            );
        }
    }
}

#[test]
fn a_server_that_gives_up_is_heard_behind_what_it_has_said() {
    let (mut server, mut out) = answering::<()>();
    out.take();
    out.room = 0;
    assert_eq!(server.send(&mut out, ONE, &mut message(1)), Ok(Progress::NeedRoom));
    server.give_up(ONE, 4);
    server.give_up(ONE, 5);
    assert_eq!(server.send(&mut out, ONE, &mut message(1)), Err(SendError::Ended));
    assert_eq!(read_to_end(&mut server), (0, Some(crate::End::Cancelled { code: 4, refused: false })));
    out.room = 10;
    server.stage_pending(&mut out).unwrap();
    let last = Script::new(events::TRAILERS, 1).code(4);
    assert_eq!(out.records, [last.bytes()], "once");
    let trailers = crate::End::Trailers { code: 4, block: Bytes::new() };
    let cancelled = crate::End::Cancelled { code: 4, refused: false };
    for (end, heard) in [(last, (3, trailers)), (Script::new(events::CANCEL, 1).code(4), (0, cancelled))] {
        let (mut client, _) = calling::<()>();
        Script::new(events::HEADERS, 1).send(&mut client).unwrap();
        told(&mut client);
        end.send(&mut client).unwrap();
        assert_eq!(read_to_end(&mut client), (heard.0, Some(heard.1)));
    }
    let (mut client, mut out) = calling::<()>();
    out.take();
    client.give_up(ONE, 4);
    assert!(!client.has_pending(), "a client's last word is another");
}
