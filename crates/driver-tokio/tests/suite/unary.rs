//! Calls that are a frame each way: whatever happens between the two frames, they are calls like all others.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Builder;
use tollfree_driver_tokio::*;
use tollfree_testkit::TimeLimit;

use crate::echo::{self, Apart, POLICIES, begin, config, connect, read_message, runtimes};

const PATH: &str = "/test.Echo/Call";

fn request(message: &Bytes) -> Outgoing {
    Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::new(message.clone(), false)),
        ending: Some(Ending::HalfClose),
    }
}

fn answer(message: &'static [u8]) -> Outgoing {
    Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::new(Bytes::from_static(message), false)),
        ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
    }
}

/// What came of a request. The method must be known: the first call of it is another one.
async fn ask(client: &Attachment, message: &Bytes) -> Started {
    let (opening, mut outgoing) = (Opening { path: PATH, deadline_ns: 0 }, request(message));
    let started = echo::start(client, opening, &mut outgoing).await.unwrap();
    assert!(outgoing.is_empty(), "a request as short as this goes as a whole");
    started
}

async fn answered(client: &Attachment, message: &Bytes) -> (bool, Option<Bytes>) {
    let started = ask(client, message).await;
    // The task is woken when it is to look.
    let mut waits = matches!(started, Started::Waits(_));
    match started {
        Started::Answered(answer) => (true, Some(answer.into_prefixed().slice(GRPC_PREFIX_LEN..))),
        Started::Open(stream) | Started::Waits(stream) => {
            let incoming = poll_fn(|cx| match std::mem::take(&mut waits) {
                true => std::task::Poll::Pending,
                false => stream.poll_incoming(cx),
            });
            match incoming.await {
                Ok(Incoming::Answer(answer)) => {
                    (false, Some(answer.into_prefixed().slice(GRPC_PREFIX_LEN..)))
                }
                arrived => panic!("an echo comes as a whole: {arrived:?}"),
            }
        }
        Started::MustWait => panic!("nothing is in its way"),
    }
}

/// A client, and the server's end of its session, in one runtime.
async fn pair() -> (Attachment, Attachment, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Path(directory.path().join("s.sock"));
    let mut listener = Listener::bind(&address, Config::default()).unwrap();
    let client = Attachment::connect(&address, &Config::default()).await.unwrap();
    let server = listener.accept().await.unwrap();
    // So that the method is known to both.
    let stream = begin(&client, Bytes::from_static(b"first")).await.unwrap();
    let call = echo::accept(&server).await.unwrap();
    echo::reply(&call, Bytes::new()).await;
    read_message(&stream).await.unwrap();
    drop((stream, call));
    (client, server, directory)
}

async fn accept(server: &Attachment) -> Accepted<'_> {
    let mut place = None;
    poll_fn(|cx| server.poll_accept(cx, &mut place)).await.unwrap();
    place.unwrap()
}

fn stream_of(started: Started) -> Stream {
    match started {
        Started::Open(stream) | Started::Waits(stream) => stream,
        other => panic!("nobody can have answered: {other:?}"),
    }
}

#[test]
fn whoever_asks_is_answered_at_once_or_later_beside_others_who_do() {
    let _limit = TimeLimit::seconds(120);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        for runtime in runtimes() {
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                echo::check_calls(&client, 3).await;
                let tasks: Vec<_> = (0..8u8)
                    .map(|task| {
                        let client = client.clone();
                        tokio::spawn(async move {
                            let message = Bytes::from(vec![task; 50 + usize::from(task)]);
                            for _ in 0..300 {
                                let (_, got) = answered(&client, &message).await;
                                assert_eq!(got.as_ref(), Some(&message), "{policy:?}");
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
                assert_eq!(client.live_count(), 0);
            });
        }
    }
}

#[test]
fn an_answer_that_is_there_within_a_look_is_taken_at_once() {
    let _limit = TimeLimit::seconds(180);
    // A thread that looks and answers all the time.
    let config = Config { wait: WaitPolicy::Poll, dedicated: true, ..Config::default() };
    let server = Apart::start(config.clone());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Attachment::connect(&server.echo().address, &config).await.unwrap();
        echo::check_calls(&client, 3).await;
        let message = Bytes::from_static(b"now");
        // How many that are depends on the machine, and whether any is: the time limit says that none ever was.
        while {
            let (at_once, got) = answered(&client, &message).await;
            assert_eq!(got.as_ref(), Some(&message));
            !at_once
        } {}
    });
}

/// How many calls one task made in a row while all others had more to make.
fn longest_run(order: &[usize], calls: usize, tasks: usize) -> usize {
    let (mut made, mut longest, mut run, mut last) = (vec![0; tasks], 0, 0, usize::MAX);
    for task in order.iter().copied() {
        made[task] += 1;
        run = if task == last { run + 1 } else { 1 };
        last = task;
        longest = longest.max(run);
        if made[task] == calls {
            break;
        }
    }
    longest
}

#[test]
fn who_finds_its_answer_at_once_does_not_go_before_those_that_wait() {
    const TASKS: usize = 4;
    const CALLS: usize = 500;
    let _limit = TimeLimit::seconds(180);
    let config = Config { wait: WaitPolicy::Poll, dedicated: true, ..Config::default() };
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Path(directory.path().join("s.sock"));
    let new_runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (runtime, serving) = (new_runtime(), new_runtime());
    let mut listener = serving.block_on(async { Listener::bind(&address, config.clone()).unwrap() });
    // Whatever comes first is answered first.
    let server = std::thread::spawn(move || {
        serving.block_on(async {
            let server = listener.accept().await.unwrap();
            let mut place = None;
            while poll_fn(|cx| server.poll_accept(cx, &mut place)).await.is_ok() {
                let mut accepted = place.take().unwrap();
                accepted.take_whole();
                assert!(accepted.reply(&mut answer(b"yours")).unwrap());
            }
        });
    });
    runtime.block_on(async {
        let client = Arc::new(Attachment::connect(&address, &config).await.unwrap());
        let message = Bytes::from_static(b"mine");
        // Where the server is that quick, one caller could go on for long.
        while !answered(&client, &message).await.0 {}
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let (client, message, order) = (client.clone(), message.clone(), order.clone());
            tasks.spawn(async move {
                for _ in 0..CALLS {
                    answered(&client, &message).await;
                    order.lock().unwrap().push(task);
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let longest = longest_run(&order.lock().unwrap(), CALLS, TASKS);
        assert!(longest <= 80, "{longest} calls of one task in a row");
        assert_eq!(client.live_count(), 0);
    });
    server.join().unwrap();
}

#[test]
fn a_request_that_came_as_a_whole_is_answered_in_any_way() {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server, _directory) = pair().await;
        let message = Bytes::from_static(b"whole");
        // At once, and as a whole.
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        assert_eq!(server.live_count(), 1);
        assert_eq!(accepted.take_whole().unwrap().into_prefixed().slice(GRPC_PREFIX_LEN..), message);
        assert!(accepted.take_whole().is_none());
        assert!(accepted.reply(&mut answer(b"at once")).unwrap());
        assert_eq!(server.live_count(), 0);
        drop(accepted);
        assert_eq!(read_message(&stream).await.unwrap(), "at once");
        // In parts, at once.
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        let mut parts = Outgoing { ending: None, ..answer(b"in parts") };
        assert!(accepted.reply(&mut parts).unwrap());
        let call = accepted.into_call(true);
        let mut rest = Outgoing { ending: answer(b"").ending, ..Outgoing::default() };
        poll_fn(|cx| call.stream.poll_send(cx, &mut rest)).await.unwrap();
        assert_eq!(read_message(&stream).await.unwrap(), "in parts");
        // Later, by the owner of the call then; the message is where it is for every other call.
        let stream = stream_of(ask(&client, &message).await);
        let mut call = accept(&server).await.into_call(true);
        assert_eq!(echo::read_request(&mut call).await.unwrap(), message);
        echo::reply(&call, Bytes::from_static(b"later")).await;
        assert_eq!(read_message(&stream).await.unwrap(), "later");
        // Not at all.
        let stream = stream_of(ask(&client, &message).await);
        drop(accept(&server).await);
        assert!(read_message(&stream).await.is_none());
        assert_eq!((client.live_count(), server.live_count()), (0, 0));
        // In parts that come one after the other.
        let stream = stream_of(ask(&client, &message).await);
        let call = accept(&server).await.into_call(true);
        let mut first = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
        poll_fn(|cx| call.stream.poll_send(cx, &mut first)).await.unwrap();
        let Ok(Incoming::Part(part)) = poll_fn(|cx| stream.poll_incoming(cx)).await else {
            panic!("no more than headers have come");
        };
        assert!(part.headers.is_some() && part.end.is_none());
        let mut rest = Outgoing { headers: None, ..answer(b"the rest") };
        poll_fn(|cx| call.stream.poll_send(cx, &mut rest)).await.unwrap();
        assert_eq!(read_message(&stream).await.unwrap(), "the rest");
        // And all of it in an order of its own: the second call comes while the first is not answered.
        let (one, two) = (stream_of(ask(&client, &message).await), stream_of(ask(&client, &message).await));
        let (mut first, mut second) = (accept(&server).await, accept(&server).await);
        assert!(second.reply(&mut answer(b"two")).unwrap() && first.reply(&mut answer(b"one")).unwrap());
        assert_eq!(read_message(&one).await.unwrap(), "one");
        assert_eq!(read_message(&two).await.unwrap(), "two");
    });
}

#[test]
fn a_call_that_was_cancelled_meanwhile_is_not_answered() {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server, _directory) = pair().await;
        let message = Bytes::from_static(b"whole");
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        drop(stream);
        // Somebody looks at the ring before the answer: the cancellation has come.
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(server.poll_accept(&mut cx, &mut None).is_pending());
        assert_eq!(accepted.reply(&mut answer(b"nobody listens")), Err(SendError::Ended));
        drop(accepted);
        assert_eq!(server.live_count(), 0);
        // Nobody has looked: the answer goes out, and is for nobody.
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        drop(stream);
        assert!(accepted.reply(&mut answer(b"nobody listens")).unwrap());
        drop(accepted);
        // Given up, and not let go of yet.
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        stream.cancel(1);
        assert_eq!(client.live_count(), 0);
        assert!(server.poll_accept(&mut cx, &mut None).is_pending());
        assert_eq!(accepted.reply(&mut answer(b"nobody listens")), Err(SendError::Ended));
        drop(accepted);
        let next = stream_of(ask(&client, &message).await);
        assert!(accept(&server).await.reply(&mut answer(b"next")).unwrap());
        assert_eq!(read_message(&next).await.unwrap(), "next");
    });
}

#[test]
fn a_session_that_ends_takes_the_call_along() {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let message = Bytes::from_static(b"whole");
        let (client, server, _directory) = pair().await;
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        server.close("the test ends it");
        assert!(matches!(accepted.reply(&mut answer(b"too late")), Err(SendError::Closed(_))));
        drop(accepted);
        assert!(read_message(&stream).await.is_none());
        assert!(stream.session_closed().is_some() && client.closed().is_some());
        assert!(ask_refused(&client, &message).await, "a session that is over takes no call");
        // The server drains: the call that it has got is answered, the next is not taken.
        let (client, server, _directory) = pair().await;
        let stream = stream_of(ask(&client, &message).await);
        let mut accepted = accept(&server).await;
        server.drain();
        assert!(accepted.reply(&mut answer(b"the last")).unwrap());
        drop(accepted);
        assert_eq!(read_message(&stream).await.unwrap(), "the last");
        assert!(ask_refused(&client, &message).await);
    });
}

async fn ask_refused(client: &Attachment, message: &Bytes) -> bool {
    let (opening, mut outgoing) = (Opening { path: PATH, deadline_ns: 0 }, request(message));
    echo::start(client, opening, &mut outgoing).await.is_err()
}

#[test]
fn threads_that_ask_on_one_session_get_each_its_own_answer() {
    let _limit = TimeLimit::seconds(120);
    let server = Apart::start(Config::default());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Arc::new(runtime.block_on(async {
        let client = server.echo().connect().await;
        echo::check_calls(&client, 3).await;
        client
    }));
    let threads: Vec<_> = (0..3u8)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                let message = Bytes::from(vec![thread; 64]);
                runtime.block_on(async {
                    for _ in 0..2000 {
                        let got = tokio::time::timeout(Duration::from_secs(30), answered(&client, &message));
                        assert_eq!(got.await.expect("nobody waits for ever").1.as_ref(), Some(&message));
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(client.live_count(), 0);
}
