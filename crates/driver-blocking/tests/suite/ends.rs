//! How clients, channels and servers end, and what they leave.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_blocking::{CallStart, ServedCall, Server};
use tollfree_testkit::alone;

use crate::support::{Both, LONG, channel, echo, eventually, unary};

fn silent(call: &ServedCall) {
    let _ = call.wait_cancelled(LONG);
}

#[test]
fn a_server_that_is_dropped_ends_its_calls_and_waits_for_their_handlers() {
    let Both { channel, server, address, _directory } = Both::new(4, silent);
    let calls: Vec<_> = (0..4).map(|_| channel.begin(unary("/test.Silent/Call", "hello"))).collect();
    assert!(calls[0].receive_within(Duration::from_millis(30)).is_err());
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    for call in &calls {
        assert_eq!(call.status().code, 14);
    }
    // The next server at the address is found.
    let server = Server::new(Default::default(), 2, echo).unwrap();
    server.listen(&address).unwrap();
    let terms = tollfree_driver_blocking::CallTerms { waits_for_ready: true, ..Default::default() };
    let start = unary("/test.Echo/Call", "again");
    let beginning = tollfree_driver_blocking::Beginning { start, terms };
    assert_eq!(channel.unary(beginning).unwrap().bytes, "again");
}

#[test]
fn a_server_that_drains_answers_what_it_has() {
    let both = Both::new(4, |call: &ServedCall| {
        std::thread::sleep(Duration::from_millis(50));
        echo(call);
    });
    let call = both.channel.begin(unary("/test.Echo/Call", "under way"));
    assert!(call.receive_within(Duration::from_millis(10)).is_err());
    both.server.drain(LONG).unwrap();
    assert_eq!(call.answer().unwrap().bytes, "under way");
}

#[test]
fn a_server_that_can_t_drain_says_so() {
    let both = Both::new(4, silent);
    let call = both.channel.begin(unary("/test.Silent/Call", "hello"));
    assert!(call.receive_within(Duration::from_millis(30)).is_err());
    let error = both.server.drain(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.to_string(), "nothing came within 20ms");
}

#[test]
fn a_channel_without_a_server_says_where_it_looked() {
    let directory = tempfile::tempdir().unwrap();
    let address = tollfree_driver_blocking::Address::Path(directory.path().join("nobody.sock"));
    let status = channel(&address).unary(unary("/test.Echo/Call", "hello")).unwrap_err();
    assert_eq!(status.code, 14);
    assert!(status.words().contains("nobody.sock"), "{}", status.words());
}

#[test]
fn threads_and_descriptors_are_as_before() {
    alone!();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round =
        || {
            let both = Both::new(8, |call: &ServedCall| {
                if call.path().starts_with(b"/test.Silent/") { silent(call) } else { echo(call) }
            });
            both.channel.unary(unary("/test.Echo/Call", vec![7; 100_000])).unwrap();
            let open = both.channel.begin(CallStart::new("/test.Silent/Call"));
            let _ = open.send(Bytes::from_static(b"hello"));
            let silent: Vec<_> =
                (0..5).map(|_| both.channel.begin(unary("/test.Silent/Call", "x"))).collect();
            assert!(silent[0].receive_within(Duration::from_millis(5)).is_err());
        };
    round();
    let before = (threads(), descriptors());
    (0..10).for_each(|_| round());
    eventually("threads or descriptors are left", || threads() <= before.0 && descriptors() <= before.1);
}
