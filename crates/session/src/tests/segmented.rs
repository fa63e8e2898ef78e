//! What a session knows of segmented messages that are on their way.

use bytes::Bytes;
use tollfree_layout::frame::{FRAME_HEAD_LEN, control, events, flags};
use tollfree_layout::{SegmentedIdx, StreamId};

use crate::frame_builder::INLINE_LEN_MAX;
use crate::segmented::Parts;
use crate::tests::script::{Record, Script, Sink, say, session};
use crate::{Asked, Closed, Keep, Opening, Outgoing, OutgoingMessage, Role, Session};

const OPENING: Opening<'static> = Opening { path: "/a", deadline_ns: 0 };

fn open(client: &mut Session<()>) -> StreamId {
    client.open(&mut Sink::new(), OPENING, &mut Outgoing::default()).unwrap().unwrap()
}

fn send(session: &mut Session<()>, id: StreamId, keep: Keep) {
    let message = OutgoingMessage::segmented(Bytes::from_static(b"head"), false, keep);
    let mut outgoing = Outgoing { message: Some(message), ..Outgoing::default() };
    say(session, &mut Sink::new(), id, &mut outgoing).unwrap();
}

/// The server says something on a call.
fn speak(client: &mut Session<()>, id: StreamId) {
    Script::new(events::HEADERS, id.0).send(client).unwrap();
}

#[test]
fn a_client_that_cancels_expects_strays_until_the_server_speaks_of_a_later_call() {
    let mut client = session(Role::Client).with_segmented(true);
    let (first, second) = (open(&mut client), open(&mut client));
    assert!(!client.expects_strays());
    client.forget(first, 1);
    assert!(client.expects_strays());
    // The server may have said this before it read the cancellation.
    speak(&mut client, second);
    assert!(client.expects_strays());
    let third = open(&mut client);
    speak(&mut client, third);
    assert!(!client.expects_strays());

    let mut without_pool = session(Role::Client);
    let only = open(&mut without_pool);
    without_pool.forget(only, 1);
    assert!(!without_pool.expects_strays());
}

#[test]
fn the_oldest_message_is_the_first_that_was_not_taken() {
    let mut client = session(Role::Client).with_segmented(true);
    let id = open(&mut client);
    assert_eq!(client.oldest_segmented(), None);
    (0..3).for_each(|_| send(&mut client, id, Keep::new(())));
    for (taken, oldest) in [(1, Some(0)), (0, Some(2)), (2, None)] {
        let taken = Script::new(events::CONTROL, taken).code(control::SEGMENTED_TAKEN).chunk_len(1);
        taken.send(&mut client).unwrap();
        assert_eq!(client.oldest_segmented(), oldest);
    }
}

/// Several parts of these lengths, no byte like its neighbors.
struct Several(Vec<Bytes>);

impl Several {
    fn of(lens: &[usize]) -> Several {
        let part = |(nth, len): (usize, &usize)| (0..*len).map(|at| (at * 7 + nth) as u8).collect();
        Several(lens.iter().enumerate().map(part).collect())
    }
}

impl Parts for Several {
    fn part(&self, idx: usize) -> Option<&[u8]> {
        self.0.get(idx).map(|part| &part[..])
    }
}

/// Two that were sent and whose bytes the peer wants come in turns, and each as the bytes of all its parts.
#[test]
fn bytes_that_are_wanted_come_in_pieces_of_each_in_its_turn() {
    let messages = [Several::of(&[3, 2 * INLINE_LEN_MAX + 1, 1]), Several::of(&[INLINE_LEN_MAX, 10])];
    let whole: Vec<Bytes> = messages.iter().map(|message| message.0.concat().into()).collect();
    let mut giver = session(Role::Client).with_segmented(true);
    let mut taker = session(Role::Server).with_segmented(true);
    let id = open(&mut giver);
    Script::opening(1).send(&mut taker).unwrap();
    for message in messages {
        send(&mut giver, id, Keep::new(message));
        Script::new(0, 1)
            .chunk(4, 4, flags::FIRST | flags::LAST | flags::SEGMENTED)
            .send(&mut taker)
            .unwrap();
    }
    assert!(!giver.has_bytes_to_give() && !giver.gives_inline() && !taker.awaits_segmented_bytes());
    for (number, bytes) in whole.iter().enumerate() {
        taker.want_segmented(SegmentedIdx(number as u64), bytes.len() as u32);
    }
    let mut out = Sink::new();
    taker.stage_pending(&mut out).unwrap();
    out.records.drain(..).for_each(|record| _ = giver.receive(&Record(record)).unwrap());
    assert!(giver.has_bytes_to_give() && giver.gives_inline() && taker.awaits_segmented_bytes());

    out.room = 0;
    assert!(!giver.give_bytes(&mut out) && giver.has_bytes_to_give(), "without room nothing is lost");
    out.room = usize::MAX;
    let mut turns = Vec::new();
    while giver.give_bytes(&mut out) {
        let record = out.records.pop().unwrap();
        assert!(out.records.is_empty() && turns.len() < 20);
        turns.push((record[8], record.len() - FRAME_HEAD_LEN));
        taker.receive(&Record(record)).unwrap();
    }
    let long = INLINE_LEN_MAX;
    assert_eq!(turns, [(0, 3), (1, long), (0, long), (1, 10), (0, long), (0, 1), (0, 1)]);
    assert!(!giver.has_bytes_to_give());
    for (number, bytes) in whole.into_iter().enumerate() {
        let number = SegmentedIdx(number as u64);
        assert_eq!(taker.asked_segmented(number), Asked::Here(bytes));
        taker.take_segmented(number);
    }
    taker.stage_pending(&mut out).unwrap();
    assert!(!giver.has_spent());
    out.records.drain(..).for_each(|record| _ = giver.receive(&Record(record)).unwrap());
    assert!(giver.has_spent());
    assert_eq!((giver.take_spent().len(), giver.has_spent()), (2, false));
}

#[test]
fn a_session_that_is_over_gives_nothing() {
    let mut giver = session(Role::Client).with_segmented(true);
    let id = open(&mut giver);
    send(&mut giver, id, Keep::new(Bytes::from_static(b"bytes")));
    let wanted = Script::new(events::CONTROL, 0).code(control::SEGMENTED_WANTED).chunk_len(5);
    wanted.send(&mut giver).unwrap();
    giver.end_session(Closed::HungUp);
    assert!(!giver.give_bytes(&mut Sink::new()));
}
