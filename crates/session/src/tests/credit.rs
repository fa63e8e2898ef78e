//! When credit is given back, and how windows grow, at their edges.

use tollfree_events::SessionEvent;
use tollfree_layout::StreamId;
use tollfree_layout::frame::{events, flags};
use tollfree_layout::limits::{CHUNK_CHARGE, STREAM_WINDOW_MAX};

use crate::tests::script::{Kept, LIMITS, Script, Sink, read};
use crate::{Limits, Role, Session};

const ONE: StreamId = StreamId(1);
const WHOLE: u8 = flags::FIRST | flags::LAST;

/// A server of these limits with so many calls that were accepted.
fn server(limits: Limits, count: u64) -> Session<()> {
    let mut server = Session::new(Role::Server, limits, LIMITS);
    for id in 1..=count {
        Script::opening(id).send(&mut server).unwrap();
        server.accept().unwrap();
    }
    server
}

/// A message that costs `cost`.
fn send(server: &mut Session<()>, id: u64, cost: u64) {
    let len = (cost - CHUNK_CHARGE) as usize;
    Script::new(0, id).chunk(len, len as u32, WHOLE).send(server).unwrap();
}

/// What was granted since this was called last: streams and amounts.
fn granted(server: &mut Session<()>) -> Vec<(u64, u64)> {
    let mut out = Sink::new();
    server.stage_pending(&mut out).unwrap();
    let grants = out.take().into_iter().filter(|head| head.events == events::CREDIT);
    grants.map(|head| (head.stream.get(), u64::from(head.chunk_len.get()))).collect()
}

#[test]
fn a_stream_is_granted_what_was_read_from_half_its_window_on() {
    let limits = Limits { stream_window: 4000, session_window: 8000, ..LIMITS };
    let mut server = server(limits, 1);
    for (cost, grants) in [(1000, vec![]), (999, vec![]), (1, vec![(1, 2000)]), (2000, vec![(1, 2000)])] {
        // The least that a chunk costs is more than 1: that much is owed by hand.
        match cost {
            1 => server.owe(ONE, 1),
            _ => {
                send(&mut server, 1, cost);
                read(&mut server, ONE).unwrap();
            }
        }
        let mut got = granted(&mut server);
        got.retain(|(stream, _)| *stream == 1);
        assert_eq!(got, grants, "{cost}");
    }
}

#[test]
fn the_session_is_granted_what_was_read_once_it_is_as_much_as_the_peer_has_left() {
    // Windows of streams beyond the session's: only that counts.
    let limits = Limits { stream_window: 100_000, session_window: 9000, ..LIMITS };
    let mut server = server(limits, 2);
    // A second stream that nobody reads holds a third.
    send(&mut server, 2, 3000);
    for (cost, grants) in [(1000, vec![]), (1900, vec![]), (100, vec![(0, 3000)])] {
        send(&mut server, 1, cost);
        read(&mut server, ONE).unwrap();
        assert_eq!(granted(&mut server), grants, "{cost}");
    }
}

#[test]
fn a_window_grows_to_the_longest_for_a_reader_that_keeps_up_and_for_no_other() {
    let reserve = 10 * STREAM_WINDOW_MAX;
    let limits =
        Limits { stream_window: 300_000, session_window: 2 * 300_000 + reserve, stream_count: 2, ..LIMITS };
    let mut server = server(limits, 2);
    let window = |server: &Session<()>, id| server.credit(StreamId(id)).unwrap().window;
    let mut windows = Vec::new();
    for _ in 0..8 {
        let half = window(&server, 1) / 2;
        send(&mut server, 1, half);
        read(&mut server, ONE).unwrap();
        windows.push(window(&server, 1));
        // The other always has something unread.
        let half = window(&server, 2) / 2;
        send(&mut server, 2, half);
        if server.credit(StreamId(2)).unwrap().unread > half {
            read(&mut server, StreamId(2)).unwrap();
        }
        assert_eq!(window(&server, 2), 300_000);
    }
    assert_eq!(windows[..3], [600_000, STREAM_WINDOW_MAX, STREAM_WINDOW_MAX]);
    assert!(windows[3..].iter().all(|window| *window == STREAM_WINDOW_MAX));
    assert_eq!(server.reserve, reserve - (STREAM_WINDOW_MAX - 300_000));
}

/// Limits with a reserve of so much.
fn with_reserve(reserve: u64) -> Limits {
    Limits { session_window: 2 * LIMITS.stream_window + reserve, stream_count: 2, ..LIMITS }
}

#[test]
fn a_message_borrows_when_it_begins_and_only_what_its_credit_does_not_cover() {
    // Behind a first chunk of 1000 the stream has credit for 3032 bytes more.
    for (len, window) in [(1000 + 3032, LIMITS.stream_window), (1000 + 3033, LIMITS.stream_window + 65)] {
        let mut server = server(with_reserve(5000), 1);
        Script::new(0, 1).chunk(1000, len, flags::FIRST).send(&mut server).unwrap();
        assert_eq!(server.credit(ONE).unwrap().window, window, "{len}");
        // What later chunks cost beside their bytes is not borrowed any more.
        Script::new(0, 1).chunk(1000, 0, 0).send(&mut server).unwrap();
        assert_eq!(server.credit(ONE).unwrap().window, window, "{len}");
    }
}

#[test]
fn a_stream_waits_for_the_reserve_in_one_place_whatever_begins_on_it() {
    let mut server = server(with_reserve(0), 1);
    for _ in 0..3 {
        Script::new(0, 1).chunk(2000, 5000, flags::FIRST).send(&mut server).unwrap();
        read(&mut server, ONE).unwrap();
        Script::new(0, 1).chunk(3000, 0, flags::LAST).send(&mut server).unwrap();
        read(&mut server, ONE).unwrap();
        assert_eq!(server.short.len(), 1);
    }
}

#[test]
fn nothing_is_lent_to_a_message_that_has_come_meanwhile() {
    let kept = Kept::default();
    let mut server = server(with_reserve(1000), 2).recorded(kept.recording());
    Script::new(0, 2).chunk(1000, 9000, flags::FIRST).send(&mut server).unwrap();
    assert_eq!(server.reserve, 0);
    Script::new(0, 1).chunk(2000, 5000, flags::FIRST).send(&mut server).unwrap();
    read(&mut server, ONE).unwrap();
    Script::new(0, 1).chunk(3000, 0, flags::LAST).send(&mut server).unwrap();
    kept.take();
    server.forget(StreamId(2), 1);
    assert_eq!((server.reserve, server.short.len()), (1000, 0));
    let is_of_one = |event: &SessionEvent| matches!(event, SessionEvent::Credit { stream: 1, .. });
    assert!(!kept.take().iter().any(is_of_one), "nor is it recorded");
}
