//! Servers that go and come back, and calls that find no connection, or one that takes no more calls.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::net::UnixListener;
use tollfree::{Balance, Channel};
use tollfree_driver_tokio::{
    Attachment, Call, Config, End, Ending, Listener, Outgoing, OutgoingMessage, Stream,
};
use tonic::{Code, Request, Status};

use super::place::{Host, Place, Street, hello, in_time};
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::{Answer, Ask};

/// Channels of every kind to one server.
pub(crate) fn channels(uri: &str) -> Vec<(&'static str, Channel)> {
    let of = |balance| Channel::builder(uri).balance(balance);
    let config = r#"{"loadBalancingConfig": [{"round_robin": {}}]}"#;
    let several = |balance| of(balance).endpoint(uri).connect_lazy().unwrap();
    vec![
        ("one", Channel::builder(uri).connect_lazy().unwrap()),
        ("pick_first", several(Balance::PickFirst)),
        ("round_robin", several(Balance::RoundRobin)),
        ("least_outstanding", several(Balance::LeastOutstanding)),
        ("service config", Channel::builder(uri).service_config(config).connect_lazy().unwrap()),
    ]
}

/// Fail-fast calls, however often they have failed before: a call that is made when the server listens is answered.
#[tokio::test]
async fn the_first_call_after_a_restart_is_answered() {
    let street = Street::new();
    for uri in [street.shm("s"), street.unix("u"), street.shm_abstract()] {
        let channels = channels(&uri);
        for _ in 0..2 {
            let place = Place::open(&uri, &Host::new("s")).await;
            for (what, channel) in &channels {
                assert_eq!(in_time(what, hello(channel, "x")).await.unwrap(), "s", "{what} {uri}");
            }
            place.kill().await;
            // Each failure makes the pause before the next attempt no longer than a call can wait.
            for _ in 0..8 {
                for (what, channel) in &channels {
                    let status = in_time(what, hello(channel, "x")).await.unwrap_err();
                    assert_eq!(status.code(), Code::Unavailable, "{what} {uri}: {status}");
                }
            }
        }
    }
}

/// A thread with a blocking channel, which calls whenever it is told to.
pub(crate) struct Caller<T> {
    asked: std::sync::mpsc::Sender<()>,
    said: tokio::sync::mpsc::UnboundedReceiver<T>,
    thread: std::thread::JoinHandle<()>,
}

impl<T: Send + 'static> Caller<T> {
    /// Connects, makes a first call, which must succeed, and waits.
    pub(crate) fn start(
        uri: &str,
        call: impl Fn(&tollfree::blocking::Channel) -> T + Send + 'static,
    ) -> Caller<T> {
        let (asked, asks) = std::sync::mpsc::channel();
        let (says, said) = tokio::sync::mpsc::unbounded_channel();
        let uri = uri.to_owned();
        let thread = std::thread::spawn(move || {
            let channel = Channel::builder(uri).connect_blocking().unwrap();
            channel.run(hello(channel.get_ref(), "x")).unwrap();
            while asks.recv().is_ok() {
                says.send(call(&channel)).unwrap();
            }
        });
        Caller { asked, said, thread }
    }

    /// What one more call comes to.
    pub(crate) async fn call(&mut self) -> T {
        self.asked.send(()).unwrap();
        in_time("a blocking call", self.said.recv()).await.unwrap()
    }

    /// Lets the thread and its channel end.
    pub(crate) fn end(self) {
        drop(self.asked);
        self.thread.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_blocking_call_after_a_restart_is_answered() {
    let street = Street::new();
    let uri = street.shm("s");
    let place = Place::open(&uri, &Host::new("s")).await;
    let mut caller = Caller::start(&uri, |channel| channel.run(hello(channel.get_ref(), "x")));
    assert_eq!(caller.call().await.unwrap(), "s");
    place.kill().await;
    drop(std::fs::remove_file(street.path("s")));
    // The server's tasks end one after the other: a call may still be answered, or find a session that breaks off.
    let absent = loop {
        match caller.call().await {
            Err(absent) if !absent.message().starts_with("session with") => break absent,
            _ => {}
        }
    };
    assert!(absent.message().contains("does not exist"), "{absent}");
    // Each call makes an attempt: what it says is what is there now.
    for turn in 0..6 {
        let absent = caller.call().await.unwrap_err();
        assert_eq!(absent.code(), Code::Unavailable);
        assert!(absent.message().contains("does not exist"), "{turn}: {absent}");
        std::fs::write(street.path("s"), b"no socket").unwrap();
        let other = caller.call().await.unwrap_err();
        assert!(other.message().contains("not a socket"), "{turn}: {other}");
        std::fs::remove_file(street.path("s")).unwrap();
    }
    let _place = Place::open(&uri, &Host::new("s")).await;
    assert_eq!(caller.call().await.unwrap(), "s");
    caller.end();
}

/// What was found by an earlier attempt is nobody's reason.
#[tokio::test]
async fn the_error_names_what_the_latest_attempt_found() {
    let street = Street::new();
    for (what, channel) in channels(&street.shm("s")) {
        for turn in 0..3 {
            let failed = async || hello(&channel, "x").await.unwrap_err();
            let absent = in_time(what, failed()).await;
            assert!(absent.message().contains("does not exist"), "{what} {turn}: {absent}");
            std::fs::write(street.path("s"), b"no socket").unwrap();
            let other = in_time(what, failed()).await;
            assert!(other.message().contains("not a socket"), "{what} {turn}: {other}");
            std::fs::remove_file(street.path("s")).unwrap();
            drop(UnixListener::bind(street.path("s")).unwrap());
            let stale = in_time(what, failed()).await;
            assert!(stale.message().contains("nobody listens"), "{what} {turn}: {stale}");
            std::fs::remove_file(street.path("s")).unwrap();
        }
    }
}

/// However many call, a channel makes one attempt at a time, and not one after the other without a pause.
#[tokio::test]
async fn all_calls_of_a_channel_share_an_attempt() {
    const CALLS: usize = 200;
    let street = Street::new();
    for (what, channel) in channels(&street.shm("door")) {
        let door = UnixListener::bind(street.path("door")).unwrap();
        let knocks = Arc::new(AtomicUsize::new(0));
        let knocking = tokio::spawn({
            let knocks = knocks.clone();
            async move {
                loop {
                    drop(door.accept().await);
                    knocks.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let calls: Vec<_> = (0..CALLS).map(|_| super::place::call(&channel, "x")).collect();
        for call in calls {
            let status = in_time(what, call).await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{what}: {status}");
        }
        let knocks = knocks.load(Ordering::SeqCst);
        assert!((1..=CALLS / 10).contains(&knocks), "{what}: {knocks} attempts for {CALLS} calls");
        knocking.abort();
        drop(knocking.await);
        std::fs::remove_file(street.path("door")).unwrap();
    }
}

/// A server that takes its leave of the first so many sessions, and serves all others.
async fn leaving(mut listener: Listener, count: usize, met: Arc<AtomicUsize>) {
    while let Some(session) = listener.accept().await {
        let number = met.fetch_add(1, Ordering::SeqCst);
        if number < count {
            // The call that the session was made for is on its way, and crosses this.
            session.drain();
            if number % 2 == 1 {
                // Before its client has read that there is a session.
                session.close("it has reached its greatest age");
                continue;
            }
            tokio::spawn(async move {
                let mut place = None;
                _ = poll_fn(|cx| session.poll_accept(cx, &mut place)).await;
            });
        } else {
            tokio::spawn(serve(session));
        }
    }
}

pub(crate) async fn serve(session: Attachment) {
    loop {
        let mut place = None;
        if poll_fn(|cx| session.poll_accept(cx, &mut place)).await.is_err() {
            return;
        }
        tokio::spawn(answer(place.expect("a call is there").into_call(true)));
    }
}

/// Says how many bytes came in all, in one message.
async fn answer(mut call: Call) {
    let mut len = 0;
    let mut first = call.first.take();
    loop {
        let incoming = match first.take() {
            Some(incoming) => incoming,
            None => match poll_fn(|cx| call.stream.poll_incoming(cx)).await {
                Ok(incoming) => incoming,
                Err(_) => return,
            },
        };
        let mut part = incoming.into_part();
        len += part.chunk.take().map_or(0, |chunk| chunk.bytes.len());
        match part.end {
            Some(End::HalfClosed) => break,
            Some(_) => return,
            None => {}
        }
    }
    let answer = Answer { seen_len: len as u64, ..Answer::default() };
    let said = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::new(answer.encode_to_vec().into(), false)),
        ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
    };
    say(&call.stream, said).await;
}

async fn say(stream: &Stream, mut said: Outgoing) {
    drop(poll_fn(|cx| stream.poll_send(cx, &mut said)).await);
}

const LEAVING: usize = 5;

/// With gRPC's prefix.
fn framed_len(ask: &Ask) -> u64 {
    5 + ask.encoded_len() as u64
}

/// A request of three messages. Each comes when its server has met so many sessions; `taken` counts those that the client has taken.
fn slow_request(
    met: &Arc<AtomicUsize>,
    wanted: [usize; 3],
    taken: &Arc<AtomicUsize>,
) -> (impl tokio_stream::Stream<Item = Ask> + use<>, u64) {
    let asks: Vec<_> = (1..=3).map(|len| Ask { body: vec![7; 100 * len], ..Ask::default() }).collect();
    let len = asks.iter().map(framed_len).sum();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let (met, taken) = (met.clone(), taken.clone());
    tokio::spawn(async move {
        for (ask, wanted) in asks.into_iter().zip(wanted) {
            while met.load(Ordering::SeqCst) < wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Nobody reads a call that has failed.
            // There is room again once the client has taken the message.
            if sender.send(ask).await.is_err() || sender.reserve().await.is_err() {
                return;
            }
            taken.fetch_add(1, Ordering::SeqCst);
        }
    });
    (tokio_stream::wrappers::ReceiverStream::new(receiver), len)
}

/// One call of a kind: how many bytes the server has read of it, and how many there were.
async fn one_call(
    kind: &str,
    channel: &Channel,
    timeout: Option<Duration>,
    met: &Arc<AtomicUsize>,
) -> Result<(u64, u64), Status> {
    fn within<T>(message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        timeout.into_iter().for_each(|timeout| request.set_timeout(timeout));
        request
    }
    let mut client = ProbeClient::new(channel.clone());
    let ask = Ask { body: vec![7; 100], ..Ask::default() };
    let len = framed_len(&ask);
    // The second message comes when the first sessions are over, the third when the last one is there.
    let (asks, asks_len) = slow_request(met, [0, 2, LEAVING + 1], &Arc::default());
    let no_answer = || Status::data_loss("no answer");
    Ok(match kind {
        "unary" => (client.unary(within(ask, timeout)).await?.into_inner().seen_len, len),
        "down" => {
            let mut answers = client.down(within(ask, timeout)).await?.into_inner();
            (answers.message().await?.ok_or_else(no_answer)?.seen_len, len)
        }
        "up" => (client.up(within(asks, timeout)).await?.into_inner().seen_len, asks_len),
        _ => {
            let mut answers = client.both(within(asks, timeout)).await?.into_inner();
            (answers.message().await?.ok_or_else(no_answer)?.seen_len, asks_len)
        }
    })
}

/// Sessions that grow old, servers that take their leave: the call has not been looked at, so it is made again, and as a whole.
#[tokio::test]
async fn a_call_that_no_server_has_looked_at_moves_on_until_one_does() {
    let street = Street::new();
    let uri = street.shm("leaving");
    for kind in ["unary", "down", "up", "both"] {
        for timeout in [None, Some(Duration::from_secs(30))] {
            for (what, channel) in channels(&uri) {
                let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
                let met = Arc::new(AtomicUsize::new(0));
                let server = tokio::spawn(leaving(listener, LEAVING, met.clone()));
                let called = in_time(what, one_call(kind, &channel, timeout, &met)).await;
                let (read, len) =
                    called.unwrap_or_else(|status| panic!("{kind} {what} {timeout:?}: {status}"));
                assert_eq!(read, len, "{kind} {what}: all of the request, and that once");
                assert!(met.load(Ordering::SeqCst) > LEAVING, "{kind} {what}");
                server.abort();
                drop(server.await);
            }
        }
    }
}

/// What a client sends while it waits for a server that stands still goes along with the call.
#[tokio::test]
async fn a_stream_that_no_server_has_looked_at_moves_on_with_all_that_was_sent() {
    let street = Street::new();
    for (what, channel) in channels(&street.shm("still")) {
        let (met, taken) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (listens, listening) = tokio::sync::oneshot::channel();
        let (ends, ended) = tokio::sync::oneshot::channel::<()>();
        let server = std::thread::spawn({
            let (met, taken) = (met.clone(), taken.clone());
            let address = street.shm("still").parse().unwrap();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut listener = Listener::bind(&address, Config::default()).unwrap();
                    listens.send(()).unwrap();
                    let session = listener.accept().await.unwrap();
                    met.fetch_add(1, Ordering::SeqCst);
                    // Nothing of this thread runs meanwhile, so nobody reads the ring.
                    while taken.load(Ordering::SeqCst) < 2 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    // The message has left its stream, and is on its way.
                    std::thread::sleep(Duration::from_millis(10));
                    session.drain();
                    // A channel of two endpoints may connect to both anew.
                    let mut sessions = tokio::task::JoinSet::new();
                    let accepting = async {
                        while let Some(next) = listener.accept().await {
                            met.fetch_add(1, Ordering::SeqCst);
                            sessions.spawn(serve(next));
                        }
                    };
                    tokio::select! {
                        () = accepting => {}
                        _ = ended => {}
                    }
                    sessions.shutdown().await;
                });
            }
        });
        listening.await.unwrap();
        let (asks, len) = slow_request(&met, [0, 1, 2], &taken);
        let mut client = ProbeClient::new(channel);
        let answer = in_time(what, client.up(asks)).await.unwrap_or_else(|status| panic!("{what}: {status}"));
        assert_eq!(answer.into_inner().seen_len, len, "{what}: all of the request, and that once");
        ends.send(()).unwrap();
        server.join().unwrap();
    }
}

/// A server that never looks at a call: with a deadline the call ends by that, without one it does not go on without end.
#[tokio::test]
async fn a_call_that_nobody_ever_looks_at_ends() {
    let street = Street::new();
    let uri = street.shm("leaving");
    let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
    let met = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(leaving(listener, usize::MAX, met.clone()));
    for (what, channel) in channels(&uri) {
        let called = in_time(what, one_call("unary", &channel, None, &met)).await;
        assert_eq!(called.unwrap_err().code(), Code::Unavailable, "{what}");
        let soon = Some(Duration::from_millis(100));
        let called = in_time(what, one_call("unary", &channel, soon, &met)).await;
        assert_eq!(called.unwrap_err().code(), Code::DeadlineExceeded, "{what}");
    }
    server.abort();
}
