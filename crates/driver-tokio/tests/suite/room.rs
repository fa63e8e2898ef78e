//! Streams that wait for room in the ring: each has its turn, and none that came later takes it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tollfree_driver_tokio::*;
use tollfree_testkit::TimeLimit;

use crate::echo;

const OPENING: Opening<'static> = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
/// Messages of which the ring holds some five hundred. The other end reads 64 at a time, and gives room back a quarter at a time.
const LEN: usize = 10;

/// When a task was woken, in the order of such events of all tests; 0: it was not.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        static EVENTS: AtomicUsize = AtomicUsize::new(0);
        self.0.store(EVENTS.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A sender of one end, in a task of its own.
struct Sender<'a> {
    stream: &'a Stream,
    outgoing: Outgoing,
    woken: Arc<Woken>,
}

impl<'a> Sender<'a> {
    fn new(stream: &'a Stream, len: usize) -> Sender<'a> {
        Sender { stream, outgoing: message(len), woken: Arc::default() }
    }

    /// Whether all of the message is sent.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(self.woken.clone());
        for _ in 0..2 {
            self.woken.0.store(0, Ordering::Relaxed);
            match self.stream.poll_send(&mut Context::from_waker(&waker), &mut self.outgoing) {
                Poll::Ready(sent) => {
                    sent.unwrap();
                    return true;
                }
                Poll::Pending if !self.was_woken() => return false,
                // It has only given way to others.
                Poll::Pending => {}
            }
        }
        false
    }

    /// Whether its task was woken since it was polled last.
    fn was_woken(&self) -> bool {
        self.woken_at() > 0
    }

    fn woken_at(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

fn message(len: usize) -> Outgoing {
    Outgoing { message: Some(OutgoingMessage::new(Bytes::from(vec![7; len]), false)), ..Outgoing::default() }
}

/// Streams of one session, as both of its ends have them.
struct Streams {
    client: Attachment,
    _server: Attachment,
    /// Those of the end that sends, and those of the end that reads.
    senders: Vec<Stream>,
    readers: Vec<Stream>,
    _directory: tempfile::TempDir,
}

/// Which end sends.
#[derive(Clone, Copy, Debug)]
enum End {
    Client,
    Server,
}

impl Streams {
    /// So many, on which nothing but their heads has been sent.
    async fn new(sends: End, count: usize) -> Streams {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        // No payload areas, and nobody looks for long.
        let config = Config { wait: WaitPolicy::Park, area_len: 0, ..Config::default() };
        let mut listener = Listener::bind(&address, config.clone()).unwrap();
        let client = Attachment::connect(&address, &config).await.unwrap();
        let server = listener.accept().await.unwrap();
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut head = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
            let mut opener = client.open();
            ours.push(poll_fn(|cx| opener.poll_open(cx, OPENING, &mut head)).await.unwrap());
            theirs.push(echo::accept(&server).await.unwrap().stream);
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let mut head = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
            poll_fn(|cx| theirs.poll_send(cx, &mut head)).await.unwrap();
            drop(poll_fn(|cx| ours.poll_incoming(cx)).await.unwrap());
        }
        let (senders, readers) = match sends {
            End::Client => (ours, theirs),
            End::Server => (theirs, ours),
        };
        Streams { client, _server: server, senders, readers, _directory: directory }
    }

    /// A sender of this stream.
    fn sender(&self, number: usize) -> Sender<'_> {
        Sender::new(&self.senders[number], LEN)
    }

    /// One that finds no room.
    fn waiting(&self, number: usize) -> Sender<'_> {
        let mut sender = self.sender(number);
        assert!(!sender.poll(), "there is room for it");
        sender
    }

    /// Fills the ring with messages of the first stream's.
    fn fill(&self) {
        let mut count = 0;
        while self.sender(0).poll() {
            count += 1;
        }
        assert!(count > 400, "so many go into the ring: {count}");
        // The sender that found no room does not come again.
        self.senders[0].abort(1);
    }

    /// Has the other end read some of what has come, and this one look.
    fn read_some(&self) {
        for end in [&self.readers, &self.senders] {
            drop(end.last().expect("there are several").try_incoming().unwrap());
        }
    }

    /// The same, all of it.
    fn read_all(&self) {
        (0..10).for_each(|_| self.read_some());
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

const ENDS: [End; 2] = [End::Client, End::Server];

#[test]
fn room_in_the_ring_is_that_of_the_stream_that_waits_longest() {
    let _limit = TimeLimit::seconds(60);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, 4).await;
            streams.fill();
            let (mut second, mut third) = (streams.waiting(1), streams.waiting(2));
            let mut newcomer = streams.sender(3);
            let mut reads = 0;
            while !second.was_woken() {
                streams.read_some();
                reads += 1;
                assert!(reads < 8, "{sends:?}: it is not told, and all of the ring is read");
                assert!(!newcomer.poll(), "{sends:?}: a newcomer has overtaken two that wait");
            }
            assert!(reads > 1, "{sends:?}: room comes a bit at a time");
            assert!(second.poll() && third.poll() && newcomer.poll(), "{sends:?}: there is room for all");
            assert!(streams.sender(1).poll(), "{sends:?}: nobody waits any more");
        });
    }
}

#[test]
fn a_stream_that_fills_the_ring_and_has_more_goes_behind_others() {
    let _limit = TimeLimit::seconds(60);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, 3).await;
            streams.fill();
            let mut long = Sender::new(&streams.senders[1], 60_000);
            assert!(!long.poll(), "{sends:?}: there is room for it");
            let mut second = streams.waiting(2);
            streams.read_all();
            assert!(!long.poll(), "{sends:?}: it is longer than the ring");
            assert!(!second.poll(), "{sends:?}: the long one has not taken all room");
            streams.read_all();
            let (first, other) = (second.woken_at(), long.woken_at());
            assert!(0 < first && first < other, "{sends:?}: it is the long one's turn again");
            assert!(second.poll(), "{sends:?}: its turn");
            let mut reads = 0;
            while !long.poll() {
                streams.read_some();
                reads += 1;
                assert!(reads < 100, "{sends:?}: it comes to no end");
            }
        });
    }
}

#[test]
fn a_stream_that_does_not_take_its_turn_does_not_keep_the_ring() {
    let _limit = TimeLimit::seconds(60);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, 4).await;
            streams.fill();
            // Its task lives in a runtime that is busy with something else; another has let go of its stream.
            let (mut idle, mut next) = (streams.waiting(1), streams.waiting(3));
            streams.read_all();
            let mut polls = 0;
            while !next.poll() {
                polls += 1;
                assert!(polls < 10, "{sends:?}: it waits for a sender that does not come");
            }
            assert!(idle.poll(), "{sends:?}: its turn");
        });
    }
}

#[test]
fn where_the_peer_stops_reading_a_stream_that_does_not_take_its_turn_is_passed_over_too() {
    let _limit = TimeLimit::seconds(60);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, 4).await;
            streams.fill();
            let (mut idle, mut next) = (streams.waiting(1), streams.waiting(3));
            while !idle.was_woken() {
                streams.read_some();
            }
            let mut polls = 0;
            while !next.poll() {
                polls += 1;
                assert!(polls < 5_000, "{sends:?}: it tries for good");
            }
            assert!(idle.poll(), "{sends:?}: it keeps its number");
        });
    }
}

#[test]
fn a_stream_that_goes_while_it_waits_holds_up_nobody() {
    let _limit = TimeLimit::seconds(60);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, 3).await;
            streams.fill();
            let (gone, mut next) = (streams.waiting(1), streams.waiting(2));
            gone.stream.cancel(1);
            while !next.was_woken() {
                streams.read_some();
            }
            assert!(next.poll(), "{sends:?}: its turn");
        });
    }
}

#[test]
fn calls_and_streams_wait_for_room_in_one_queue() {
    let _limit = TimeLimit::seconds(60);
    runtime().block_on(async {
        let streams = Streams::new(End::Client, 4).await;
        streams.fill();
        let mut first = streams.waiting(1);
        let (mut opener, mut outgoing) = (streams.client.open(), message(LEN));
        outgoing.headers = Some(Bytes::new());
        let mut open = move || {
            let mut cx = Context::from_waker(Waker::noop());
            match opener.poll_open(&mut cx, OPENING, &mut outgoing) {
                Poll::Ready(opened) => Some(opened.unwrap()),
                Poll::Pending => None,
            }
        };
        assert!(open().is_none(), "there is room for it");
        let mut last = streams.sender(2);
        while !first.was_woken() {
            streams.read_some();
            assert!(open().is_none(), "a call has overtaken a stream that waits");
            assert!(!last.poll(), "a stream has overtaken a call that waits");
        }
        assert!(first.poll(), "its turn");
        assert!(!last.poll(), "a stream has overtaken a call that waits");
        assert!(open().is_some() && last.poll(), "there is room for both");
    });
}

#[test]
fn of_many_streams_that_wait_few_try_in_vain() {
    const COUNT: usize = 1000;
    let _limit = TimeLimit::seconds(120);
    for sends in ENDS {
        runtime().block_on(async {
            let streams = Streams::new(sends, COUNT).await;
            let Streams { senders, readers, .. } = streams;
            let tries = Arc::<AtomicUsize>::default();
            let tasks: Vec<_> = senders
                .into_iter()
                .map(|stream| {
                    let tries = tries.clone();
                    tokio::spawn(async move {
                        let mut outgoing = message(1000);
                        poll_fn(|cx| {
                            tries.fetch_add(1, Ordering::Relaxed);
                            stream.poll_send(cx, &mut outgoing)
                        })
                        .await
                        .unwrap();
                        stream
                    })
                })
                .collect();
            for reader in &readers {
                drop(poll_fn(|cx| reader.poll_incoming(cx)).await.unwrap());
            }
            for task in tasks {
                drop(task.await.unwrap());
            }
            // The ring has room for some thirty. Were all told each time that there is room, each would try thirty times.
            let tries = tries.load(Ordering::Relaxed);
            assert!(tries < 5 * COUNT, "{sends:?}: {tries} tries of {COUNT} streams");
        });
    }
}
