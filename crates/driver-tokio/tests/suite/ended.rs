//! Nobody waits on a call that has ended, at whichever end, and whatever the peer does meanwhile.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tollfree_driver_tokio::*;
use tollfree_testkit::TimeLimit;

use crate::echo::{self, accept, check_calls, nobody_is_left, soon};

/// Calls of one round: more than the ring has room for.
const CALL_COUNT: usize = 40;
const LONG: usize = 1 << 20;

/// A peer that stands still: its runtime runs only while it is told to.
struct Still {
    runtime: Option<Runtime>,
    attachment: Arc<Attachment>,
    _directory: tempfile::TempDir,
}

impl Still {
    /// A server, and its client in the runtime of the test.
    async fn server() -> (Still, Arc<Attachment>) {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("still.sock"));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let listening = address.clone();
        let accepted = std::thread::spawn(move || {
            let attachment = runtime.block_on(async {
                let mut listener = Listener::bind(&listening, Config::default()).unwrap();
                listener.accept().await.unwrap()
            });
            (runtime, Arc::new(attachment))
        });
        let client = loop {
            match Attachment::connect(&address, &Config::default()).await {
                Ok(client) => break client,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let (runtime, attachment) = accepted.join().unwrap();
        (Still { runtime: Some(runtime), attachment, _directory: directory }, Arc::new(client))
    }

    /// Lets it serve until `client` has made some calls.
    fn serves(&self, client: &Arc<Attachment>) {
        let calls = Handle::current().spawn({
            let client = client.clone();
            async move { check_calls(&client, 20).await }
        });
        let (runtime, attachment) = (self.runtime.as_ref().unwrap(), &self.attachment);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                runtime.block_on(async {
                    tokio::select! {
                        _ = echo::serve(attachment) => {}
                        made = calls => made.unwrap(),
                    }
                });
            });
            tokio::task::block_in_place(|| served.join().unwrap());
        });
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

/// Runs a test in a runtime of its own; all tasks that it has started are over in the end.
fn run(test: impl Future<Output = ()>) {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        test.await;
        nobody_is_left(0).await;
    });
}

fn message(len: usize) -> Outgoing {
    Outgoing { message: Some(OutgoingMessage::new(vec![7; len].into(), false)), ..Outgoing::default() }
}

/// Opens a call whose message is yet to come.
async fn open(client: &Attachment) -> Arc<Stream> {
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let (mut opener, mut nothing) = (client.open(), Outgoing::default());
    Arc::new(poll_fn(|cx| opener.poll_open(cx, opening, &mut nothing)).await.unwrap())
}

/// What is sent on a call in a task of its own, as a request's body is.
fn sends(stream: &Arc<Stream>, len: usize, count: usize) -> JoinHandle<Result<(), SendError>> {
    let stream = stream.clone();
    tokio::spawn(async move {
        for _ in 0..count {
            let mut outgoing = message(len);
            poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await?;
        }
        Ok(())
    })
}

type Sending = (JoinHandle<Result<(), SendError>>, Arc<Stream>);

/// Calls whose messages are longer than there is room for: all senders wait, and the ring has no room for a single word.
async fn calls_that_send(client: &Attachment) -> Vec<Sending> {
    let mut streams = Vec::new();
    for _ in 0..CALL_COUNT {
        streams.push(open(client).await);
    }
    let mut calls: Vec<Sending> =
        streams[1..].iter().map(|stream| (sends(stream, LONG, 1), stream.clone())).collect();
    settled(client).await;
    // What is too little for a part of a long message is taken by short ones.
    calls.push((sends(&streams[0], 1, usize::MAX), streams[0].clone()));
    settled(client).await;
    calls
}

/// Waits until nothing goes any more.
async fn settled(client: &Attachment) {
    let mut before = None;
    while client.backlog() != before {
        before = client.backlog();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How a call is ended at the client, whose sender waits: with a word to the peer that there is no room for, in the end.
const ENDS: [fn(&Stream); 2] = [|stream| stream.cancel(4), |stream| stream.abort(4)];

#[test]
fn senders_of_calls_that_end_while_the_peer_stands_still_end_too() {
    run(async {
        let (server, client) = Still::server().await;
        server.serves(&client);
        let idle = Handle::current().metrics().num_alive_tasks();
        for ends in ENDS {
            for _ in 0..3 {
                let calls = calls_that_send(&client).await;
                for (sender, stream) in calls {
                    ends(&stream);
                    assert_eq!(soon("a sender", sender).await.unwrap(), Err(SendError::Ended));
                    drop(stream);
                }
                assert_eq!(client.live_count(), 0);
                nobody_is_left(idle).await;
                server.serves(&client);
            }
        }
        drop(client);
    });
}

#[test]
fn senders_end_when_the_session_does() {
    run(async {
        let (server, client) = Still::server().await;
        let calls = calls_that_send(&client).await;
        // Some of them have ended before: their cancellations wait.
        calls.iter().step_by(2).for_each(|(_, stream)| stream.cancel(1));
        client.close("the test ends it");
        for (sender, _) in calls {
            assert!(soon("a sender", sender).await.unwrap().is_err());
        }
        drop(server);
    });
}

/// Whoever else has to do with a call is told of its end, also by one who is in no way its reader.
#[test]
fn everybody_who_waits_on_a_call_that_is_let_go_of_is_told() {
    run(async {
        let (server, client) = Still::server().await;
        let stream = open(&client).await;
        let reads = tokio::spawn({
            let stream = stream.clone();
            async move { poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part() }
        });
        let watches = tokio::spawn({
            let stream = stream.clone();
            async move { poll_fn(|cx| stream.poll_ended(cx)).await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!reads.is_finished() && !watches.is_finished());
        stream.cancel(1);
        let end = soon("a reader", reads).await.unwrap().end;
        assert!(matches!(end, Some(End::Cancelled { .. })), "{end:?}");
        soon("one who watches", watches).await.unwrap();
        drop((server, client));
    });
}

/// A handler that answers early may have left its request to a task that reads it.
#[test]
fn a_reader_of_a_request_that_was_answered_before_its_end_is_told() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("early.sock"));
        let mut listener = Listener::bind(&address, Config::default()).unwrap();
        let config = Config::default();
        let (client, server) = tokio::join!(Attachment::connect(&address, &config), listener.accept());
        let (client, server) = (client.unwrap(), server.unwrap());
        for _ in 0..5 {
            let asked = open(&client).await;
            let call = soon("a call", accept(&server)).await.unwrap();
            let stream = Arc::new(call.stream);
            let reads = tokio::spawn({
                let stream = stream.clone();
                async move { poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part() }
            });
            // It sleeps by then.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let ending = Some(Ending::Trailers { code: 5, block: Bytes::new() });
            let mut last = Outgoing { ending, ..Outgoing::default() };
            poll_fn(|cx| stream.poll_send(cx, &mut last)).await.unwrap();
            let end = soon("the reader", reads).await.unwrap().end;
            assert!(matches!(end, Some(End::Cancelled { .. })), "{end:?}");
            assert_eq!(server.live_count(), 0);
            drop(asked);
        }
    });
}
