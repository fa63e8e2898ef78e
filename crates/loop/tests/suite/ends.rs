//! How calls and sessions end: deadlines, cancellation, drain, death, refusals.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use bytes::Bytes;
use tollfree_loop::{CallError, CallStart, ConnectErrorKind, Event, EventLoop, LoopConfig, Message};
use tollfree_os::clock::now_ns;

use crate::support::{Both, next, place, unary};

#[test]
fn a_deadline_ends_a_call_at_both_ends() {
    let mut both = Both::new(LoopConfig::default());
    let deadline_ns = now_ns() + 20_000_000;
    let start = CallStart { deadline_ns: Some(deadline_ns), ..unary("never answered") };
    let call = both.events.call(both.client, start).unwrap();
    let (mut at_client, mut at_server) = (None, None);
    while at_client.is_none() || at_server.is_none() {
        match next(&mut both.events) {
            Event::Call { deadline_ns: told, .. } => assert_eq!(told, Some(deadline_ns)),
            Event::Ended { call: ended, status } if ended == call => at_client = Some(status),
            Event::Ended { status, .. } => at_server = Some(status),
            _ => {}
        }
    }
    let at_client = at_client.unwrap();
    assert_eq!((at_client.code, at_client.words()), (4, "the deadline has passed".to_owned()));
    assert_eq!(at_server.unwrap().code, 4);
    assert!(now_ns() >= deadline_ns);
    assert_eq!((both.events.call_count(both.client), both.events.call_count(both.server)), (0, 0));
    assert_eq!(both.events.timeout(), None, "nothing is left that is due");
}

#[test]
fn a_call_that_is_cancelled_is_over_for_both() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, unary("never answered")).unwrap();
    loop {
        match next(&mut both.events) {
            Event::Call { .. } => both.events.cancel(call, 1),
            Event::Ended { call: ended, status } => {
                assert!(ended != call && status.code == 1, "the canceller is not told");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(both.events.send(call, Default::default()), Err(CallError::Ended));
    assert_eq!(both.events.call_count(both.server), 0);
}

#[test]
fn a_draining_server_ends_what_it_has_and_takes_nothing_new() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    let server_call = loop {
        if let Event::Call { call, .. } = next(&mut both.events) {
            break call;
        }
    };
    both.events.drain(both.server);
    while !matches!(next(&mut both.events), Event::Draining { .. }) {}
    assert_eq!(both.events.call(both.client, unary("late")), Err(CallError::Over));
    both.events.answer_headers(server_call, Default::default()).unwrap();
    both.events.answer_end(server_call, 0, Default::default()).unwrap();
    let told = both.until_ended(call);
    assert_eq!(told.status.unwrap().code, 0);
}

#[test]
fn a_session_that_is_closed_takes_its_calls_along() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, unary("never answered")).unwrap();
    while !matches!(next(&mut both.events), Event::Call { .. }) {}
    both.events.close(both.server);
    let mut closed = Vec::new();
    let mut status = None;
    while closed.len() < 2 {
        match next(&mut both.events) {
            Event::Ended { call: ended, status: of } if ended == call => status = Some(of),
            Event::Closed { session, .. } => closed.push(session),
            _ => {}
        }
    }
    let status = status.expect("before its session");
    assert_eq!((status.code, status.unprocessed), (14, false));
    assert_eq!(both.events.call(both.client, unary("late")), Err(CallError::Over));
    assert_eq!(both.events.peer(both.client), None, "its id is nobody's");
}

#[test]
fn a_loop_that_is_dropped_hangs_up() {
    let (_directory, address) = place();
    let mut server = EventLoop::new(LoopConfig::default()).unwrap();
    server.listen(&address).unwrap();
    let (came, has_come) = std::sync::mpsc::channel();
    let client = std::thread::spawn({
        let address = address.clone();
        move || {
            let mut client = EventLoop::new(LoopConfig::default()).unwrap();
            let session = client.connect(&address).unwrap();
            while !matches!(next(&mut client), Event::Connected { .. }) {}
            client.call(session, unary("never answered")).unwrap();
            assert!(client.poll().is_none());
            has_come.recv().unwrap();
        }
    });
    let mut ended = false;
    loop {
        match next(&mut server) {
            Event::Call { .. } => came.send(()).unwrap(),
            Event::Ended { status, .. } => ended = status.code == 14,
            Event::Closed { .. } => break,
            _ => {}
        }
    }
    client.join().unwrap();
    assert!(ended);
}

#[test]
fn connecting_where_nobody_listens_says_so() {
    let (directory, address) = place();
    let mut client = EventLoop::new(LoopConfig::default()).unwrap();
    let mut refused = |address| {
        let session = client.connect(address).unwrap();
        match next(&mut client) {
            Event::NotConnected { session: of, error } if of == session => error,
            event => panic!("{event:?}"),
        }
    };
    let error = refused(&address);
    assert!(matches!(error.kind, ConnectErrorKind::NotFound), "{error}");
    assert!(error.to_string().contains("s.sock: no socket is there"), "{error}");
    drop(UnixListener::bind(directory.path().join("s.sock")).unwrap());
    let error = refused(&address);
    assert!(matches!(error.kind, ConnectErrorKind::Refused), "{error}");
}

#[test]
fn a_peer_that_says_nothing_is_given_up_and_one_that_speaks_nonsense_at_once() {
    let (directory, address) = place();
    let listener = UnixListener::bind(directory.path().join("s.sock")).unwrap();
    let mut config = LoopConfig::default();
    config.session.handshake_timeout = Duration::from_millis(50);
    let mut client = EventLoop::new(config.clone()).unwrap();
    client.connect(&address).unwrap();
    let Event::NotConnected { error, .. } = next(&mut client) else { panic!() };
    assert!(error.to_string().contains("no answer to the handshake within 50ms"), "{error}");
    drop(listener);
    std::fs::remove_file(directory.path().join("s.sock")).unwrap();
    let mut server = EventLoop::new(config).unwrap();
    server.listen(&address).unwrap();
    let mut peer = std::os::unix::net::UnixStream::connect(directory.path().join("s.sock")).unwrap();
    std::io::Write::write_all(&mut peer, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let Event::Refused { error, .. } = next(&mut server) else { panic!() };
    assert!(error.to_string().contains("HTTP/2"), "{error}");
}

#[test]
fn a_server_may_answer_before_the_client_has_said_everything() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    both.events.send(call, Message::from(Bytes::from(vec![1; 100_000]))).unwrap();
    let status = loop {
        match next(&mut both.events) {
            Event::Call { call, .. } => {
                both.events.answer_headers(call, Bytes::new()).unwrap();
                both.events.answer_end(call, 9, Bytes::new()).unwrap();
                assert_eq!(both.events.send(call, Message::default()), Err(CallError::Ended));
            }
            Event::Ended { call: ended, status } if ended == call => break status,
            _ => {}
        }
    };
    assert_eq!(status.code, 9);
    assert_eq!(both.events.send(call, Message::default()), Err(CallError::Ended));
    let call = both.events.call(both.client, unary("the session goes on")).unwrap();
    assert_eq!(both.until_ended(call).status.unwrap().code, 0);
    assert_eq!((both.events.call_count(both.client), both.events.call_count(both.server)), (0, 0));
}

#[test]
fn each_end_says_only_what_is_its_to_say() {
    let mut both = Both::new(LoopConfig::default());
    assert_eq!(both.events.call(both.server, CallStart::new("/test.Echo/Call")), Err(CallError::NotAClient));
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    assert_eq!(both.events.answer_headers(call, Bytes::new()), Err(CallError::NotAServer));
    assert_eq!(both.events.answer_end(call, 0, Bytes::new()), Err(CallError::NotAServer));
    let served = loop {
        if let Event::Call { call, .. } = next(&mut both.events) {
            break call;
        }
    };
    assert_eq!(both.events.finish(served), Err(CallError::NotAClient));
    both.events.finish(call).unwrap();
    assert_eq!(both.events.finish(call), Err(CallError::Ended), "once");
}
