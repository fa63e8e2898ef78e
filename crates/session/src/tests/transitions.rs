//! The table of a stream's states, and the test that drives every field of it through a real session.
//!
//! A row is a state, a column an event: received (`?`) or to be sent (`!`). It covers whole messages; what may happen
//! in the middle of one is in `violations` (receiving) and `edges` (sending).

use bytes::Bytes;
use tollfree_events::{RecvHalf, SendHalf, SessionEvent, StreamCause, StreamLook};
use tollfree_layout::StreamId;
use tollfree_layout::frame::{events, flags};

use crate::tests::script::{Kept, Script, Sink, say, session};
use crate::{Ending, Opening, Outgoing, OutgoingMessage, Progress, Role, SendError, Session, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Client: opened, sending; no answer yet.
    Asking,
    /// Client: said everything; no answer yet.
    Asked,
    /// Client: sending, and being answered.
    Talking,
    /// Client: said everything, and being answered.
    Listening,
    /// Server: being asked; nothing answered.
    Hearing,
    /// Server: asked everything; nothing answered.
    Heard,
    /// Server: being asked, and answering.
    Conversing,
    /// Server: asked everything, and answering.
    Answering,
    /// Both: ended.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The next state.
    To(State),
    /// The peer violates the order of events.
    Order,
    /// The peer sends what only the other role may send.
    Kind,
    /// The peer opens a stream out of turn.
    Id,
    /// The application may not say this now.
    Misplaced,
    /// Nothing is sent, for the call has ended.
    Ended,
}

use Outcome::*;
use State::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Receive(u8),
    Send(u8),
}

const EVENTS: [Event; 11] = [
    Event::Receive(events::HEADERS),
    Event::Receive(events::MESSAGE),
    Event::Receive(events::HALF_CLOSE),
    Event::Receive(events::TRAILERS),
    Event::Receive(events::CANCEL),
    Event::Receive(events::CREDIT),
    Event::Send(events::HEADERS),
    Event::Send(events::MESSAGE),
    Event::Send(events::HALF_CLOSE),
    Event::Send(events::TRAILERS),
    Event::Send(events::CANCEL),
];

type Row = (State, [Outcome; EVENTS.len()]);

#[rustfmt::skip]
const CLIENT: [Row; 5] = [
    //           ?HEADERS       ?MESSAGE       ?HALF ?TRAILERS ?CANCEL   ?CREDIT        !HEADERS   !MESSAGE     !HALF_CLOSE    !TRAILERS  !CANCEL
    (Asking,    [To(Talking),   Order,         Kind, To(Over), To(Over), To(Asking),    Misplaced, To(Asking),  To(Asked),     Misplaced, To(Over)]),
    (Asked,     [To(Listening), Order,         Kind, To(Over), To(Over), To(Asked),     Ended,     Ended,       Ended,         Ended,     To(Over)]),
    (Talking,   [Order,         To(Talking),   Kind, To(Over), To(Over), To(Talking),   Misplaced, To(Talking), To(Listening), Misplaced, To(Over)]),
    (Listening, [Order,         To(Listening), Kind, To(Over), To(Over), To(Listening), Ended,     Ended,       Ended,         Ended,     To(Over)]),
    (Over,      [To(Over),      To(Over),      Kind, To(Over), To(Over), To(Over),      Ended,     Ended,       Ended,         Ended,     Ended]),
];

#[rustfmt::skip]
const SERVER: [Row; 5] = [
    //            ?HEADERS ?MESSAGE        ?HALF_CLOSE    ?TRAIL ?CANCEL   ?CREDIT         !HEADERS        !MESSAGE        !HALF      !TRAILERS !CANCEL
    (Hearing,    [Id,      To(Hearing),    To(Heard),     Kind,  To(Over), To(Hearing),    To(Conversing), Misplaced,      Misplaced, To(Over), To(Over)]),
    (Heard,      [Id,      Order,          Order,         Kind,  To(Over), To(Heard),      To(Answering),  Misplaced,      Misplaced, To(Over), To(Over)]),
    (Conversing, [Id,      To(Conversing), To(Answering), Kind,  To(Over), To(Conversing), Misplaced,      To(Conversing), Misplaced, To(Over), To(Over)]),
    (Answering,  [Id,      Order,          Order,         Kind,  To(Over), To(Answering),  Misplaced,      To(Answering),  Misplaced, To(Over), To(Over)]),
    (Over,       [Id,      To(Over),       To(Over),      Kind,  To(Over), To(Over),       Ended,          Ended,          Ended,     Ended,    Ended]),
];

const ONE: StreamId = StreamId(1);

fn state_of(session: &Session<()>) -> State {
    let stream = session.streams.get(ONE).unwrap();
    let (send, recv) = stream.state.halves();
    match (session.role, send, recv, stream.is_live()) {
        (_, SendHalf::Closed, RecvHalf::Ended, false) => Over,
        (Role::Client, SendHalf::Open, RecvHalf::Head, true) => Asking,
        (Role::Client, SendHalf::Closed, RecvHalf::Head, true) => Asked,
        (Role::Client, SendHalf::Open, RecvHalf::Body, true) => Talking,
        (Role::Client, SendHalf::Closed, RecvHalf::Body, true) => Listening,
        (Role::Server, SendHalf::Head, RecvHalf::Body, true) => Hearing,
        (Role::Server, SendHalf::Head, RecvHalf::Ended, true) => Heard,
        (Role::Server, SendHalf::Open, RecvHalf::Body, true) => Conversing,
        (Role::Server, SendHalf::Open, RecvHalf::Ended, true) => Answering,
        other => panic!("no state of the table: {other:?}"),
    }
}

/// A session whose stream 1 is in the state wanted, by the shortest way.
fn session_in(role: Role, state: State, kept: &Kept) -> Session<()> {
    use Event::{Receive, Send};
    let mut session = session(role).recorded(kept.recording());
    match role {
        Role::Client => {
            let opening = Opening { path: "/a", deadline_ns: 0 };
            session.open(&mut Sink::new(), opening, &mut Outgoing::default()).unwrap().unwrap();
        }
        Role::Server => {
            Script::opening(1).send(&mut session).unwrap();
            session.accept().unwrap();
        }
    }
    let way: &[Event] = match state {
        Asking | Hearing => &[],
        Asked => &[Send(events::HALF_CLOSE)],
        Talking => &[Receive(events::HEADERS)],
        Listening => &[Send(events::HALF_CLOSE), Receive(events::HEADERS)],
        Heard => &[Receive(events::HALF_CLOSE)],
        Conversing => &[Send(events::HEADERS)],
        Answering => &[Receive(events::HALF_CLOSE), Send(events::HEADERS)],
        Over => &[Receive(events::CANCEL)],
    };
    for event in way {
        happen(&mut session, *event);
    }
    assert_eq!(state_of(&session), state);
    session
}

fn happen(session: &mut Session<()>, event: Event) -> Outcome {
    match event {
        Event::Receive(event) => receive(session, event),
        Event::Send(events::CANCEL) => {
            session.cancel(ONE, 1);
            if session.has_pending() { To(state_of(session)) } else { Ended }
        }
        Event::Send(event) => send(session, event),
    }
}

fn receive(session: &mut Session<()>, event: u8) -> Outcome {
    let script = match event {
        events::MESSAGE => Script::new(0, 1).message(),
        events::CREDIT => Script::new(event, 1).chunk_len(5),
        _ => Script::new(event, 1),
    };
    match script.send(session) {
        Ok(_) => To(state_of(session)),
        Err(Violation::Order { stream: 1, .. }) => Order,
        Err(Violation::FrameKind { .. }) => Kind,
        Err(Violation::StreamId { .. }) => Id,
        Err(other) => panic!("{other}"),
    }
}

fn send(session: &mut Session<()>, event: u8) -> Outcome {
    let mut outgoing = Outgoing::default();
    match event {
        events::HEADERS => outgoing.headers = Some(Bytes::new()),
        events::MESSAGE => outgoing.message = Some(OutgoingMessage::new(Bytes::from_static(b"m"), false)),
        events::HALF_CLOSE => outgoing.ending = Some(Ending::HalfClose),
        events::TRAILERS => outgoing.ending = Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        other => panic!("{other}"),
    }
    let mut out = Sink::new();
    match say(session, &mut out, ONE, &mut outgoing) {
        Ok(_) => {
            assert_eq!(out.take()[0].events, event, "what was sent is what was meant");
            To(state_of(session))
        }
        Err(error) => {
            assert!(out.records.is_empty(), "nothing is sent with an error");
            match error {
                SendError::OutOfOrder(_) => Misplaced,
                SendError::Ended => Ended,
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn the_table_is_what_the_code_does() {
    for (role, table) in [(Role::Client, CLIENT), (Role::Server, SERVER)] {
        for (state, row) in table {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                let kept = Kept::default();
                let mut session = session_in(role, state, &kept);
                let place = format!("{role:?} in {state:?}, {event:?}");
                let mut look = StreamLook::default();
                transitions(&kept, &mut look);
                assert_eq!(happen(&mut session, event), expected, "{place}");
                let violates = matches!(expected, Order | Kind | Id);
                assert_eq!(session.closed().is_some(), violates, "{place}");
                let causes = transitions(&kept, &mut look);
                assert_eq!(causes, causes_of(state, event, expected), "{place}");
                let (send, recv) = session.streams.get(ONE).unwrap().state.halves();
                assert_eq!((look.send, look.recv), (send, recv), "what was told is so: {place}");
            }
        }
    }
}

/// The transitions that were told since the last time, each from where the one before has led.
fn transitions(kept: &Kept, look: &mut StreamLook) -> Vec<StreamCause> {
    let told = kept.take().into_iter().filter_map(|event| match event {
        SessionEvent::Stream { stream: 1, cause, from, to } => Some((cause, from, to)),
        _ => None,
    });
    let follow = |(cause, from, to)| {
        assert_eq!(from, *look, "{cause:?}");
        assert_ne!(from, to, "{cause:?}");
        *look = to;
        cause
    };
    told.map(follow).collect()
}

/// Which transitions a field of the table makes.
fn causes_of(state: State, event: Event, outcome: Outcome) -> Vec<StreamCause> {
    use Event::{Receive, Send};
    use StreamCause as Cause;
    match (event, outcome) {
        // The session's end ends the stream.
        (_, Order | Kind | Id) if state != Over => vec![Cause::Over],
        (_, To(after)) if after != state => match event {
            Receive(events::HEADERS) => vec![Cause::HeadersReceived],
            Receive(events::HALF_CLOSE) => vec![Cause::HalfCloseReceived],
            Send(events::HEADERS) => vec![Cause::HeadersSent],
            Send(events::HALF_CLOSE) => vec![Cause::EndingSent],
            // A status alone is the head, too.
            Send(events::TRAILERS) if matches!(state, Hearing | Heard) => {
                vec![Cause::HeadersSent, Cause::EndingSent, Cause::Over]
            }
            Send(events::TRAILERS) => vec![Cause::EndingSent, Cause::Over],
            Receive(_) | Send(_) => vec![Cause::Over],
        },
        _ => vec![],
    }
}

#[test]
fn parts_of_messages_are_transitions_too() {
    let kept = Kept::default();
    let mut session = session_in(Role::Server, Conversing, &kept);
    let mut look = StreamLook::default();
    transitions(&kept, &mut look);
    Script::new(0, 1).chunk(4, 7, flags::FIRST).send(&mut session).unwrap();
    assert_eq!(transitions(&kept, &mut look), [StreamCause::ChunkReceived]);
    assert_eq!((look.unreceived, look.unsent), (Some(3), None));
    let message = Bytes::from(vec![0; 8000]);
    let mut outgoing =
        Outgoing { message: Some(OutgoingMessage::new(message, false)), ..Outgoing::default() };
    let progress = say(&mut session, &mut Sink::new(), ONE, &mut outgoing).unwrap();
    assert_eq!(
        (progress, transitions(&kept, &mut look)),
        (Progress::NeedCredit, vec![StreamCause::ChunkSent])
    );
    assert!(look.unsent.is_some_and(|left| left > 0 && left < 8000), "{look}");
    assert_eq!(look.unsent, session.streams.get(ONE).unwrap().state.unsent());
}
