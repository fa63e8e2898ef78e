//! Calls that have to wait before they can be opened: each has its turn, and none that came later takes it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollfree_driver_tokio::*;
use tollfree_testkit::TimeLimit;

use crate::echo::{self, Apart, call, config, connect, read_message, runtimes};

/// Counts how often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call that has no place yet, in a task of its own.
struct Waiting {
    opener: Opener,
    outgoing: Outgoing,
    woken: Arc<Woken>,
}

impl Waiting {
    /// One that begins as every call does.
    fn new(client: &Attachment, message_len: usize) -> Waiting {
        let woken = Arc::<Woken>::default();
        let mut outgoing = request(message_len);
        let waker = Waker::from(woken.clone());
        let started = client.start(&mut Context::from_waker(&waker), OPENING, &mut outgoing, None).unwrap();
        assert!(matches!(started, Started::MustWait), "there is a place for it: {started:?}");
        let mut waiting = Waiting { opener: client.open(), outgoing, woken };
        assert!(waiting.poll().is_none(), "there is a place for it");
        waiting
    }

    fn poll(&mut self) -> Option<Stream> {
        let waker = Waker::from(self.woken.clone());
        match self.opener.poll_open(&mut Context::from_waker(&waker), OPENING, &mut self.outgoing) {
            Poll::Ready(opened) => Some(opened.unwrap()),
            Poll::Pending => None,
        }
    }

    fn woken_count(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

const OPENING: Opening<'static> = Opening { path: "/test.Echo/Call", deadline_ns: 0 };

fn request(len: usize) -> Outgoing {
    Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::new(Bytes::from(vec![7; len]), false)),
        ending: Some(Ending::HalfClose),
    }
}

/// Opens a call, if that can be done at once.
fn start(client: &Attachment, message_len: usize) -> Option<Stream> {
    let mut outgoing = request(message_len);
    match client.start(&mut Context::from_waker(Waker::noop()), OPENING, &mut outgoing, None).unwrap() {
        Started::Open(stream) | Started::Waits(stream) => Some(stream),
        Started::MustWait => None,
        Started::Answered(answer) => panic!("nobody can have answered: {answer:?}"),
    }
}

/// A client, and a server that takes so many calls at once.
async fn pair(stream_count: u32) -> (Attachment, Attachment, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Path(directory.path().join("s.sock"));
    let limits = Limits { stream_count, ..Limits::default() };
    let mut listener = Listener::bind(&address, Config { limits, ..Config::default() }).unwrap();
    let client = Attachment::connect(&address, &Config::default()).await.unwrap();
    let server = listener.accept().await.unwrap();
    (client, server, directory)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The next call at the server.
async fn accepted(server: &Attachment) -> Call {
    timeout(Duration::from_secs(20), echo::accept(server)).await.expect("a call comes").unwrap()
}

#[test]
fn a_place_is_that_of_the_call_that_waits_longest() {
    let _limit = TimeLimit::seconds(60);
    runtime().block_on(async {
        let (client, _server, _directory) = pair(1).await;
        let first = start(&client, 10).unwrap();
        let (mut second, mut third) = (Waiting::new(&client, 10), Waiting::new(&client, 10));
        drop(first);
        assert!(second.woken_count() > 0, "it is its turn");
        // One that begins now, and one that waits behind and is polled first.
        assert!(start(&client, 10).is_none(), "a newcomer has overtaken two that wait");
        assert!(third.poll().is_none(), "the third has overtaken the second");
        let mut fourth = Waiting::new(&client, 10);
        let second = second.poll().expect("its turn");
        assert!(third.poll().is_none() && fourth.poll().is_none(), "there is one place");
        drop(second);
        assert!(fourth.poll().is_none(), "the fourth has overtaken the third");
        let third = third.poll().expect("its turn");
        drop(third);
        assert!(fourth.poll().is_some(), "its turn");
    });
}

#[test]
fn who_leaves_the_queue_holds_up_nobody_behind() {
    let _limit = TimeLimit::seconds(60);
    runtime().block_on(async {
        let (client, _server, _directory) = pair(2).await;
        let (first, other) = (start(&client, 10).unwrap(), start(&client, 10).unwrap());
        let (mut second, mut third) = (Waiting::new(&client, 10), Waiting::new(&client, 10));
        // One place for two that wait: the second's, until it goes without having taken it.
        drop(first);
        assert!(third.poll().is_none(), "the third has overtaken the second");
        let before = third.woken_count();
        drop(second.opener);
        assert!(third.woken_count() > before, "it is the third's turn");
        let third = third.poll().expect("its turn");
        second = Waiting::new(&client, 10);
        // Two places: a call that waits alone has one, and a newcomer the other.
        drop((third, other));
        let newcomer = start(&client, 10).expect("there is a place for each");
        assert!(second.poll().is_some(), "its turn");
        drop(newcomer);
        // Nobody waits any more.
        assert!(start(&client, 10).is_some());
    });
}

#[test]
fn room_in_the_ring_is_that_of_the_call_that_waits_longest() {
    let _limit = TimeLimit::seconds(60);
    runtime().block_on(async {
        let (client, server, _directory) = pair(1000).await;
        let mut streams = Vec::new();
        while let Some(stream) = start(&client, 1000) {
            streams.push(stream);
        }
        assert!(streams.len() > 4, "so many go into the ring: {}", streams.len());
        let (mut second, mut third) = (Waiting::new(&client, 1000), Waiting::new(&client, 1000));
        let mut count = 0;
        let second = loop {
            drop(accepted(&server).await);
            count += 1;
            assert!(start(&client, 1000).is_none(), "a newcomer has overtaken two that wait");
            assert!(third.poll().is_none(), "the third has overtaken the second");
            if let Some(second) = second.poll() {
                break second;
            }
        };
        assert!(count < streams.len(), "the server has read all of the ring");
        // It follows, as there is room for it.
        let third = third.poll().expect("its turn");
        drop((second, third));
        assert!(start(&client, 1000).is_some(), "nobody waits any more");
    });
}

#[test]
fn who_does_not_take_its_turn_does_not_keep_the_ring() {
    let _limit = TimeLimit::seconds(60);
    runtime().block_on(async {
        let (client, server, _directory) = pair(1000).await;
        let mut streams = Vec::new();
        while let Some(stream) = start(&client, 1000) {
            streams.push(stream);
        }
        let mut idle = Waiting::new(&client, 1000);
        let mut next = Waiting::new(&client, 1000);
        for _ in 0..streams.len() {
            drop(accepted(&server).await);
        }
        // Its task lives in a runtime that is busy with something else.
        let next = next.poll().expect("the ring is empty, and there is room for both");
        drop((next, idle.poll().expect("its place")));
    });
}

#[test]
fn many_that_wait_all_have_their_turn() {
    let _limit = TimeLimit::seconds(120);
    for policy in echo::POLICIES {
        let limits = Limits { stream_count: 3, ..Limits::default() };
        let server = Apart::start(Config { limits, ..config(policy) });
        for runtime in runtimes() {
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                let tasks: Vec<_> = (0..20u8)
                    .map(|task| {
                        let client = client.clone();
                        tokio::spawn(async move {
                            for count in 0..20 {
                                // Some don't wait for their turn.
                                if (usize::from(task) + count) % 5 == 0 {
                                    let (mut opener, mut outgoing) = (client.open(), request(1500));
                                    let opening = poll_fn(|cx| opener.poll_open(cx, OPENING, &mut outgoing));
                                    match timeout(Duration::from_micros(50), opening).await {
                                        Ok(opened) => drop(read_message(&opened.unwrap()).await.unwrap()),
                                        Err(_) => continue,
                                    }
                                }
                                let message = Bytes::from(vec![task; 1500]);
                                let answered = call(&client, message.clone()).await;
                                assert!(answered == Some(message), "{policy:?}");
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    }
}

#[test]
fn of_many_that_wait_few_try_in_vain() {
    const COUNT: usize = 1000;
    let _limit = TimeLimit::seconds(120);
    runtime().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        let limits = Limits { stream_count: 2 * COUNT as u32, ..Limits::default() };
        let config = |limits| Config { limits, wait: WaitPolicy::Park, ..Config::default() };
        let mut listener = Listener::bind(&address, config(limits)).unwrap();
        let client = Arc::new(Attachment::connect(&address, &config(Limits::default())).await.unwrap());
        let server = listener.accept().await.unwrap();
        let tries = Arc::<AtomicUsize>::default();
        let tasks: Vec<_> = (0..COUNT)
            .map(|_| {
                let (client, tries) = (client.clone(), tries.clone());
                tokio::spawn(async move {
                    let (mut opener, mut outgoing) = (client.open(), request(1000));
                    poll_fn(|cx| {
                        tries.fetch_add(1, Ordering::Relaxed);
                        opener.poll_open(cx, OPENING, &mut outgoing)
                    })
                    .await
                    .unwrap()
                })
            })
            .collect();
        for _ in 0..COUNT {
            drop(accepted(&server).await);
        }
        for task in tasks {
            drop(task.await.unwrap());
        }
        // The ring has room for some 50. Were all told each time that it is nearly read, each would try ten times.
        let tries = tries.load(Ordering::Relaxed);
        assert!(tries < 5 * COUNT, "{tries} tries of {COUNT} calls");
    });
}
