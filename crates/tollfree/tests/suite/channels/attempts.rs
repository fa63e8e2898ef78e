//! Attempts to connect that take longer than the calls that wait for them.

use std::io;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tollfree::{Channel, EndpointState};
use tollfree_driver_tokio::{Config, Listener};
use tonic::{Code, Request};

use super::place::{Host, Place, Street, in_time};
use super::reconnecting::{self, Caller, serve};
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;

/// All that a call has.
const SHORT: Duration = Duration::from_millis(20);

/// What becomes of a call without an answer.
async fn short_call(channel: Channel) -> Code {
    let mut request = Request::new(Ask::default());
    request.set_timeout(SHORT);
    let called = ProbeClient::new(channel).unary(request).await;
    called.expect_err("nobody answers").code()
}

/// Channels of each kind that makes one attempt at a time. Others connect to all of their endpoints at once.
fn channels(uri: &str) -> impl Iterator<Item = (&'static str, Channel)> {
    let several = ["round_robin", "least_outstanding"];
    reconnecting::channels(uri).into_iter().filter(move |(what, _)| !several.contains(what))
}

/// Whether the other end of an attempt that nobody answers is still there.
fn is_open(attempt: &UnixStream) -> bool {
    loop {
        match attempt.try_read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

async fn until_over(attempt: &UnixStream) {
    while is_open(attempt) {
        attempt.readable().await.unwrap();
    }
}

/// No further attempt is there.
async fn nobody_knocks(door: &UnixListener) -> bool {
    tokio::time::timeout(Duration::ZERO, door.accept()).await.is_err()
}

#[tokio::test]
async fn an_attempt_outlives_the_calls_that_wait_for_it_and_ends_with_its_channel() {
    let street = Street::new();
    for (what, channel) in channels(&street.shm("door")) {
        let door = UnixListener::bind(street.path("door")).unwrap();
        let (code, knock) = tokio::join!(short_call(channel.clone()), in_time(what, door.accept()));
        let (attempt, _) = knock.unwrap();
        assert_eq!(code, Code::DeadlineExceeded, "{what}");
        for _ in 0..3 {
            assert_eq!(short_call(channel.clone()).await, Code::DeadlineExceeded, "{what}");
        }
        assert!(is_open(&attempt), "{what}: it goes on");
        assert!(nobody_knocks(&door).await, "{what}: all calls wait for it");
        drop(channel);
        in_time(what, until_over(&attempt)).await;
        std::fs::remove_file(street.path("door")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_outlives_blocking_calls_and_ends_with_their_channel() {
    let street = Street::new();
    let uri = street.shm("door");
    let place = Place::open(&uri, &Host::new("s")).await;
    let mut caller = Caller::start(&uri, |channel| channel.run(short_call(channel.get_ref().clone())));
    // Its host serves no probes.
    assert_eq!(caller.call().await, Code::Unimplemented);
    place.kill().await;
    drop(std::fs::remove_file(street.path("door")));
    let door = UnixListener::bind(street.path("door")).unwrap();
    // The server's tasks end one after the other: a call may still be answered, or find a session that breaks off.
    let calling = async { while caller.call().await != Code::DeadlineExceeded {} };
    in_time("a call that nobody answers", calling).await;
    let (attempt, _) = in_time("an attempt", door.accept()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(caller.call().await, Code::DeadlineExceeded);
    }
    assert!(is_open(&attempt), "it goes on");
    assert!(nobody_knocks(&door).await, "all calls wait for it");
    caller.end();
    in_time("its end", until_over(&attempt)).await;
}

/// The server takes longer for a handshake than any call has.
#[tokio::test]
async fn a_channel_whose_calls_are_all_shorter_than_a_handshake_gets_a_connection() {
    let street = Street::new();
    for (what, channel) in channels(&street.shm("slow")) {
        let address = street.shm("slow").parse().unwrap();
        let (listens, listening) = tokio::sync::oneshot::channel();
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let (ends, ended) = tokio::sync::oneshot::channel::<()>();
        let server = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut listener = Listener::bind(&address, Config::default()).unwrap();
                listens.send(()).unwrap();
                // As a stopped process: who connects is not answered.
                waits.recv().unwrap();
                let session = listener.accept().await.unwrap();
                tokio::select! {
                    () = serve(session) => {}
                    _ = ended => {}
                }
            });
        });
        listening.await.unwrap();
        for _ in 0..3 {
            assert_eq!(short_call(channel.clone()).await, Code::DeadlineExceeded, "{what}");
        }
        goes_on.send(()).unwrap();
        let connected = async {
            while !channel.path().endpoints.iter().any(|endpoint| endpoint.state == EndpointState::Ready) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        in_time(what, connected).await;
        // No test can say how long a call takes on a busy machine.
        let answered = in_time(what, ProbeClient::new(channel.clone()).unary(Ask::default())).await;
        answered.unwrap_or_else(|status| panic!("{what}: {status}"));
        drop((channel, ends));
        server.join().unwrap();
    }
}
