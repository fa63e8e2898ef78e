//! How calls and sessions end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use tollfree_layout::errors;
use tollfree_testkit::{Process, Role};

use crate::driver::{Client, PATIENCE, Place, Seen, Served, Settings, Start, Told};
use crate::rows;
use crate::service::{
    CANCEL, CANCELLED, CLOSE, DRAIN, ECHO, FAIL, FAILED, REFUSE, REFUSED, SILENT, count_of,
};

const UNAVAILABLE: u16 = 14;

pub(crate) fn a_status_alone(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    for start in [Start::unary(REFUSE, "hello"), Start::unary(REFUSE, vec![7; 500_000]), Start::open(REFUSE)]
    {
        let answer = client.call(start);
        assert_eq!((answer.code, answer.headers, answer.messages), (REFUSED, None, vec![]));
    }
    assert_eq!(client.call(Start::unary(ECHO, "goes on")).code, 0);
}

pub(crate) fn a_status_behind_messages(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let answer = client.call(Start::unary(FAIL, "hello"));
    assert_eq!((answer.code, answer.messages.len()), (FAILED, 1));
}

/// Waits until the server has seen a call end otherwise than by its answer; how.
fn seen_cancelled(server: &Served, wanted: &str) -> u16 {
    let is_it = |seen: &Seen| matches!(seen, Seen::Cancelled { path, .. } if path == wanted);
    match server.log.wait("a call end", is_it) {
        Seen::Cancelled { code, .. } => code,
        seen => panic!("{seen:?}"),
    }
}

/// Waits until the server has seen a call, while the client goes on.
fn wait_begun(server: &Served, client: &mut dyn Client, wanted: &str) {
    let began = Instant::now();
    while server.log.count(|seen| matches!(seen, Seen::Began { path, .. } if path == wanted)) == 0 {
        assert!(began.elapsed() < PATIENCE, "the server never saw a call of {wanted}");
        client.go_on();
    }
}

pub(crate) fn a_client_cancels(place: &Place) {
    let (server, mut client) = place.both(&Settings::default());
    let call = client.begin(Start::unary(SILENT, "hello")).unwrap();
    wait_begun(&server, &mut *client, SILENT);
    client.cancel(call, 1);
    // Its loop, if it has one, goes on meanwhile.
    assert_eq!(client.call(Start::unary(ECHO, "goes on")).code, 0);
    assert_eq!(seen_cancelled(&server, SILENT), 1);
}

pub(crate) fn a_server_cancels(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let call = client.begin(Start::open(CANCEL)).unwrap();
    client.send(call, Bytes::from_static(b"hello"));
    let answer = client.answer(call);
    assert_eq!((answer.code, answer.messages), (CANCELLED, vec![]));
    assert_eq!(client.call(Start::unary(ECHO, "goes on")).code, 0);
}

pub(crate) fn a_call_that_waits_for_a_place_is_cancelled(place: &Place) {
    let mut settings = Settings::default();
    settings.limits.stream_count = 1;
    let (server, mut client) = place.both(&settings);
    let first = client.begin(Start::unary(SILENT, "takes the place")).unwrap();
    wait_begun(&server, &mut *client, SILENT);
    let waits = client.begin(Start::unary(ECHO, "waits")).unwrap();
    let last = client.begin(Start::unary(ECHO, "comes behind")).unwrap();
    assert_eq!(client.next_within(Duration::from_millis(20)), None);
    client.cancel(waits, 1);
    client.cancel(first, 1);
    assert_eq!(client.answer(last).messages, ["comes behind"]);
    let echoes = |seen: &Seen| matches!(seen, Seen::Began { path, .. } if path == ECHO);
    assert_eq!(
        server.log.count(echoes),
        1,
        "the server never saw the call that was cancelled before it was open"
    );
}

pub(crate) fn a_deadline_ends_a_call_at_both_ends(place: &Place) {
    let (server, mut client) = place.both(&Settings::default());
    let began = Instant::now();
    let deadline = Duration::from_millis(30);
    let start = Start { deadline: Some(deadline), ..Start::unary(SILENT, "hello") };
    let answer = client.call(start);
    assert_eq!((answer.code, answer.unprocessed), (4, false));
    assert!(began.elapsed() >= deadline);
    server.log.wait("a deadline", |seen| matches!(seen, Seen::Began { has_deadline: true, .. }));
    // A client without a thread sends its cancellation when it goes on.
    assert_eq!(client.call(Start::unary(ECHO, "goes on")).code, 0);
    assert_eq!(seen_cancelled(&server, SILENT), 4);
}

pub(crate) fn a_server_drains(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let call = client.begin(Start::open(DRAIN)).unwrap();
    client.send(call, Bytes::from_static(b"drain"));
    assert_eq!(client.next(), Told::Draining);
    assert_eq!(client.begin(Start::unary(ECHO, "late")), None);
    client.send(call, Bytes::from_static(b"more"));
    client.finish(call);
    let answer = client.answer(call);
    assert_eq!((answer.code, answer.messages), (0, vec![count_of(2, 9)]));
}

pub(crate) fn a_server_closes(place: &Place) {
    let (server, mut client) = place.both(&Settings::default());
    let silent = client.begin(Start::unary(SILENT, "under way")).unwrap();
    wait_begun(&server, &mut *client, SILENT);
    let call = client.begin(Start::open(CLOSE)).unwrap();
    client.send(call, Bytes::from_static(b"close"));
    check_closed(&mut *client, &[silent, call], errors::SESSION_CLOSED_BY_PEER);
    server.log.wait("its session end", |seen| *seen == Seen::Closed(errors::SESSION_CLOSED_HERE));
}

/// Calls that wait for a place were never sent: they may be made elsewhere, however the session ends. A call that was opened may not.
pub(crate) fn calls_that_wait_when_a_server_drains_or_closes_are_unprocessed(place: &Place) {
    for path in [DRAIN, CLOSE] {
        let mut settings = Settings::default();
        settings.limits.stream_count = 1;
        let (server, mut client) = place.both(&settings);
        let first = client.begin(Start::open(path)).unwrap();
        wait_begun(&server, &mut *client, path);
        let waiting: Vec<u64> = (0..5).map(|_| client.begin(Start::unary(ECHO, "waits")).unwrap()).collect();
        client.send(first, Bytes::from_static(b"go"));
        let (mut unprocessed, mut code) = (Vec::new(), None);
        while unprocessed.len() < waiting.len() || (code.is_none() && path == CLOSE) {
            match client.next() {
                Told::Ended { call, code: of, unprocessed: false } if call == first => code = Some(of),
                Told::Ended { call, code: UNAVAILABLE, unprocessed: true } => unprocessed.push(call),
                Told::Draining => {}
                told => panic!("{told:?}, {path}"),
            }
        }
        unprocessed.sort_unstable();
        assert_eq!(unprocessed, waiting, "{path}");
        if path == DRAIN {
            client.finish(first);
            assert_eq!(client.answer(first).code, 0);
        } else {
            assert_eq!(code, Some(UNAVAILABLE));
        }
        let echoes = |seen: &Seen| matches!(seen, Seen::Began { path, .. } if path == ECHO);
        assert_eq!(server.log.count(echoes), 0, "{path}");
    }
}

/// All calls end UNAVAILABLE, and then their session, for this reason.
fn check_closed(client: &mut dyn Client, calls: &[u64], number: u16) {
    let mut ended = Vec::new();
    loop {
        match client.next() {
            Told::Ended { call, code, unprocessed } => {
                assert_eq!((code, unprocessed), (UNAVAILABLE, false), "call {call}");
                ended.push(call);
            }
            Told::Closed(found) => {
                assert_eq!(found, number);
                break;
            }
            Told::Draining | Told::Headers(..) | Told::Message(..) => {}
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, calls, "each ends once, before its session");
    assert_eq!(client.begin(Start::unary(ECHO, "late")), None);
}

pub(crate) fn a_client_goes(place: &Place) {
    let (server, mut client) = place.both(&Settings::default());
    client.begin(Start::unary(SILENT, "under way")).unwrap();
    wait_begun(&server, &mut *client, SILENT);
    drop(client);
    assert_eq!(seen_cancelled(&server, SILENT), UNAVAILABLE);
    server.log.wait("its session end", |seen| *seen == Seen::Closed(errors::SESSION_CLOSED_BY_PEER));
    let mut another = place.connect(&Settings::default());
    assert_eq!(another.call(Start::unary(ECHO, "the server goes on")).code, 0);
}

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let which = rows::named(&role.detail);
    let address = tollfree_driver_tokio::Address::Path(role.socket.clone());
    match role.name.as_str() {
        "server" => {
            let _server = (which.serve)(&address, &Settings::default(), &Default::default());
            role.ready();
            std::thread::sleep(PATIENCE);
        }
        "client" => {
            let mut client = (which.connect)(&address, &Settings::default()).unwrap();
            client.begin(Start::unary(SILENT, "under way")).unwrap();
            assert_eq!(client.call(Start::unary(ECHO, "hello")).code, 0);
            role.ready();
            while client.next_within(PATIENCE).is_some() {}
        }
        other => panic!("no role {other}"),
    }
}

pub(crate) fn a_server_is_killed(place: &Place) {
    let mut server = Process::start_ready("ends::server", &place.path(), place.server.name);
    let mut client = place.connect(&Settings::default());
    let silent = client.begin(Start::unary(SILENT, "under way")).unwrap();
    assert_eq!(client.call(Start::unary(ECHO, "hello")).code, 0);
    server.signal(Signal::KILL);
    check_closed(&mut *client, &[silent], errors::SESSION_HUNG_UP);
    assert!(server.wait_end(PATIENCE).is_some());
}

pub(crate) fn a_client_is_killed(place: &Place) {
    let server = place.serve(&Settings::default());
    let mut other = place.connect(&Settings::default());
    let mut client = Process::start_ready("ends::client", &place.path(), place.client.name);
    client.signal(Signal::KILL);
    assert!(client.wait_end(PATIENCE).is_some());
    assert_eq!(seen_cancelled(&server, SILENT), UNAVAILABLE);
    server.log.wait("its session end", |seen| *seen == Seen::Closed(errors::SESSION_HUNG_UP));
    assert_eq!(other.call(Start::unary(ECHO, "the server goes on")).code, 0);
}

pub(crate) fn nobody_listens(place: &Place) {
    let refused = |_: ()| (place.client.connect)(&place.address(), &Settings::default()).err().unwrap();
    let words = refused(());
    assert!(words.contains("s.sock") && words.contains("no server there"), "{words}");
    drop(std::os::unix::net::UnixListener::bind(place.path()).unwrap());
    let words = refused(());
    assert!(words.contains("s.sock") && words.contains("nobody listens"), "{words}");
}

/// Sessions come and go, also in the middle of calls, and leave no descriptor.
pub(crate) fn nothing_is_left(place: &Place) {
    let server = place.serve(&Settings::default());
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let session = |nth: usize| {
        let mut client = place.connect(&Settings::default());
        assert_eq!(client.call(Start::unary(ECHO, vec![7; 100_000])).code, 0);
        client.begin(Start::unary(SILENT, "under way")).unwrap();
        let _ = client.next_within(Duration::ZERO);
        drop(client);
        let ended = |seen: &Seen| matches!(seen, Seen::Closed(_));
        let began = Instant::now();
        while server.log.count(ended) < nth {
            assert!(began.elapsed() < PATIENCE, "session {nth} does not end at the server");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    session(1);
    let before = descriptors();
    (2..20).for_each(session);
    let began = Instant::now();
    while descriptors() > before {
        assert!(began.elapsed() < PATIENCE, "{} descriptors, and before {before}", descriptors());
        std::thread::sleep(Duration::from_millis(1));
    }
}
