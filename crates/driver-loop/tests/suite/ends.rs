//! How calls and sessions end: deadlines, cancellation, drain, death, refusals.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_loop::{CallError, CallStart, ConnectErrorKind, Event, EventLoop, LoopConfig, Message};
use tollfree_os::clock::now_ns;
use tollfree_testkit::alone;

use crate::support::{Both, Told, next, place, tell, thread_time, unary};

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
    assert!(error.to_string().contains("s.sock: no server there"), "{error}");
    drop(UnixListener::bind(directory.path().join("s.sock")).unwrap());
    let began = Instant::now();
    let error = refused(&address);
    assert!(matches!(error.kind, ConnectErrorKind::Stale), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(10), "a server that starts has time to");
    std::fs::remove_file(directory.path().join("s.sock")).unwrap();
    std::fs::write(directory.path().join("s.sock"), "text").unwrap();
    let error = refused(&address);
    assert!(matches!(error.kind, ConnectErrorKind::NotASocket("a regular file")), "{error}");
}

#[test]
fn a_peer_that_says_nothing_is_given_up_and_one_that_speaks_nonsense_at_once() {
    let (directory, address) = place();
    let listener = UnixListener::bind(directory.path().join("s.sock")).unwrap();
    let config = LoopConfig { handshake_timeout: Duration::from_millis(50), ..LoopConfig::default() };
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

/// A server whose queue is full, or that does not listen yet, is tried again, and the loop sleeps meanwhile.
#[test]
fn a_server_that_is_busy_or_about_to_listen_is_waited_for() {
    use tollfree_os::rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
    let (directory, address) = place();
    let path = directory.path().join("s.sock");
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let mut client = EventLoop::new(LoopConfig::default()).unwrap();
    client.connect(&address).unwrap();
    assert!(client.wait(Some(Duration::from_millis(1))).unwrap().is_none(), "it does not listen yet");
    net::listen(&socket, 0).unwrap();
    let first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let before = thread_time();
    assert!(client.wait(Some(Duration::from_millis(200))).unwrap().is_none(), "its queue is full");
    let took = thread_time() - before;
    assert!(took < Duration::from_millis(60), "{took:?}");
    let listener = UnixListener::from(socket);
    drop((first, listener.accept().unwrap()));
    // Now it has room, and hangs up.
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    match next(&mut client) {
        Event::NotConnected { error, .. } => {
            assert!(matches!(error.kind, ConnectErrorKind::Handshake(_)), "{error}");
        }
        event => panic!("{event:?}"),
    }
    server.join().unwrap();
}

/// What is said on a call in an order that gRPC does not have.
#[test]
fn a_servers_answer_has_headers_once_and_before_its_messages() {
    let mut both = Both::new(LoopConfig::default());
    let call = both.events.call(both.client, CallStart::new("/test.Echo/Stream")).unwrap();
    let (mut headers, mut messages) = (0, 0);
    let status = loop {
        match next(&mut both.events) {
            Event::Call { call, .. } => {
                both.events.send(call, Message::from(&b"first"[..])).unwrap();
                assert_eq!(both.events.answer_headers(call, Bytes::new()), Err(CallError::HeadersSaid));
                both.events.answer_end(call, 0, Bytes::new()).unwrap();
                assert_eq!(both.events.answer_headers(call, Bytes::new()), Err(CallError::Ended));
            }
            Event::Headers { metadata, .. } => {
                assert!(metadata.is_empty() && messages == 0);
                headers += 1;
            }
            Event::Message { .. } => messages += 1,
            Event::Ended { call: ended, status } if ended == call => break status,
            _ => {}
        }
    };
    assert_eq!((headers, messages, status.code), (1, 1, 0));
    // A status alone.
    let call = both.events.call(both.client, unary("is refused")).unwrap();
    let status = loop {
        match next(&mut both.events) {
            Event::Call { call, .. } => both.events.answer_end(call, 5, Bytes::new()).unwrap(),
            Event::Headers { .. } => panic!("there are none"),
            Event::Ended { call: ended, status } if ended == call => break status,
            _ => {}
        }
    };
    assert_eq!(status.code, 5);
}

/// However a session ends, each of its calls ends once, before it, and nothing is left of either.
#[test]
fn sessions_that_end_in_the_middle_leave_nothing() {
    alone!();
    let mut both = Both::new(LoopConfig::default());
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let address = both.address().clone();
    let call = both.events.call(both.client, unary("what comes by the socket has come behind this")).unwrap();
    both.until_ended(call);
    let before = descriptors();
    for round in 0..20 {
        let client = both.events.connect(&address).unwrap();
        let (mut server, mut is_connected) = (None, false);
        while server.is_none() || !is_connected {
            match next(&mut both.events) {
                Event::Connected { .. } => is_connected = true,
                Event::Accepted { session, .. } => server = Some(session),
                event => panic!("{event:?}"),
            }
        }
        let server = server.unwrap();
        let calls: Vec<_> =
            (0..10).map(|_| both.events.call(client, unary("never answered")).unwrap()).collect();
        let mut came = 0;
        while came < if round % 3 == 0 { 0 } else { 10 } {
            came += usize::from(matches!(next(&mut both.events), Event::Call { .. }));
        }
        both.events.close(if round % 2 == 0 { client } else { server });
        let (mut ended, mut closed) = (Vec::new(), Vec::new());
        while closed.len() < 2 {
            match next(&mut both.events) {
                Event::Ended { call, .. } => {
                    assert!(!closed.contains(&call.session()) && !ended.contains(&call));
                    ended.push(call);
                }
                Event::Closed { session, .. } => closed.push(session),
                _ => {}
            }
        }
        assert!(calls.iter().all(|call| ended.contains(call)));
        assert_eq!((both.events.call_count(client), both.events.call_count(server)), (0, 0));
    }
    assert_eq!(descriptors(), before);
}

/// Only a call of which nothing was sent may be made elsewhere without a doubt.
#[test]
fn a_call_whose_message_is_half_sent_is_not_called_unprocessed() {
    let mut both = Both::new(LoopConfig::default());
    let start = CallStart { message: Some(Message::from(Bytes::from(vec![1; 1_000_000]))), ..unary("") };
    let call = both.events.call(both.client, start).unwrap();
    while !matches!(next(&mut both.events), Event::Call { .. }) {}
    both.events.close(both.server);
    let status = loop {
        if let Event::Ended { call: ended, status } = next(&mut both.events)
            && ended == call
        {
            break status;
        }
    };
    assert_eq!((status.code, status.unprocessed), (14, false));
}

/// A server that ends its session or its loop right after an answer: the answer was said, and the client has it.
#[test]
fn what_was_said_before_a_server_ends_a_session_reaches_the_client() {
    for (drops_loop, len) in [(true, 5), (false, 5), (true, 20_000), (false, 20_000)] {
        let (_directory, address) = place();
        let mut server = EventLoop::new(LoopConfig::default()).unwrap();
        server.listen(&address).unwrap();
        let serving = std::thread::spawn(move || {
            loop {
                if let Event::Message { call, message } = next(&mut server) {
                    server.send(call, message).unwrap();
                    server.answer_end(call, 0, Bytes::new()).unwrap();
                    if !drops_loop {
                        server.close(call.session());
                        while !matches!(next(&mut server), Event::Closed { .. }) {}
                    }
                    break;
                }
            }
        });
        let mut client = EventLoop::new(LoopConfig::default()).unwrap();
        let session = client.connect(&address).unwrap();
        assert!(matches!(next(&mut client), Event::Connected { .. }));
        let call = client.call(session, unary(vec![7; len])).unwrap();
        let mut told = Told::default();
        while told.status.is_none() {
            tell(&mut told, next(&mut client), call);
        }
        serving.join().unwrap();
        assert_eq!((told.status.unwrap().code, told.messages[0].len()), (0, len), "{drops_loop}");
    }
}
