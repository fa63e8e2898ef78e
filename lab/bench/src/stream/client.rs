//! Callers that run on tokio: streams at the same time over one channel, each a task.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use futures_util::stream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use super::service::{Item, Maker, Taker, sampled};
use super::{BURST, Calls, StreamCase, StreamKind, Streamed};
use crate::latency::Latencies;
use crate::load::{Account, body_of};
use crate::proto::{StreamAsk, StreamItem, StreamSum};

/// The client of a side; clones share its channel.
pub(super) trait Caller: Clone + Send + 'static {
    /// A message as this side's users hold it.
    type Item: Item;

    /// Messages that stream, as this side's users have them.
    type Messages: Stream<Item = Result<Self::Item, Status>> + Send + Unpin;

    /// Messages from the server.
    fn down(&mut self, size: usize) -> impl Future<Output = Result<Self::Messages, Status>> + Send;

    /// Messages to the server, which counts them.
    fn up(
        &mut self,
        items: impl Stream<Item = Self::Item> + Send + 'static,
    ) -> impl Future<Output = Result<StreamSum, Status>> + Send;

    /// Messages to the server, which gives them back.
    fn both(
        &mut self,
        items: impl Stream<Item = Self::Item> + Send + 'static,
    ) -> impl Future<Output = Result<Self::Messages, Status>> + Send;
}

/// Clients of prost's structs over a channel.
macro_rules! caller {
    ($($client:ty: $streaming:ident,)+) => { $(
        impl Caller for $client {
            type Item = StreamItem;
            type Messages = $streaming::Streaming<StreamItem>;

            async fn down(&mut self, size: usize) -> Result<Self::Messages, Status> {
                Ok(self.down(StreamAsk { size: size as u32 }).await?.into_inner())
            }

            async fn up(
                &mut self,
                items: impl Stream<Item = StreamItem> + Send + 'static,
            ) -> Result<StreamSum, Status> {
                Ok(self.up(items).await?.into_inner())
            }

            async fn both(
                &mut self,
                items: impl Stream<Item = StreamItem> + Send + 'static,
            ) -> Result<Self::Messages, Status> {
                Ok(self.both(items).await?.into_inner())
            }
        }
    )+ };
}

caller! {
    crate::proto::streams_client::StreamsClient<tonic::transport::Channel>: tonic,
    crate::proto::streams_client::StreamsClient<tollfree::Channel>: tonic,
    crate::direct::streams_client::StreamsClient<tollfree::Channel>: tollfree,
}

/// What streams carried.
#[derive(Default)]
pub(super) struct Carried {
    pub(super) messages: u64,
    pub(super) latencies: Latencies,
}

impl Carried {
    pub(super) fn add(&mut self, other: &Carried) {
        self.messages += other.messages;
        self.latencies.merge(&other.latencies);
    }
}

/// When messages count. Streams go on from before it to after it, so that its ends cut nothing.
#[derive(Clone, Copy)]
pub(super) struct Window {
    from: Instant,
    until: Instant,
}

/// What is used in a window.
pub(super) struct Measuring {
    account: Account,
    began: Instant,
}

impl Window {
    pub(super) fn new(calls: &Calls) -> Window {
        let from = Instant::now() + calls.warm_up;
        Window { from, until: from + calls.measure }
    }

    /// Whether it is over.
    fn has_ended(&self, now: Instant) -> bool {
        now >= self.until
    }
}

impl Measuring {
    /// Begins at the beginning of a window, in a thread of its own: streams that keep the others busy would delay it.
    pub(super) fn begin(window: Window, calls: &Calls) -> JoinHandle<Measuring> {
        let servers = calls.servers.clone();
        thread::spawn(move || {
            thread::sleep(window.from.saturating_duration_since(Instant::now()));
            Measuring { account: Account::now(&servers), began: Instant::now() }
        })
    }

    /// Ends when all streams have ended, which carried so much.
    pub(super) fn end(self, Carried { messages, latencies }: Carried) -> Streamed {
        let elapsed_ns = self.began.elapsed().as_nanos() as u64;
        let (client_cpu_ns, server_cpu_ns) = self.account.since();
        Streamed { messages, elapsed_ns, latencies, client_cpu_ns, server_cpu_ns }
    }
}

/// Carries as many streams at a time as the case says, and measures.
pub(super) async fn carry<C: Caller>(
    caller: &C,
    case: StreamCase,
    calls: &Calls,
) -> Result<Streamed, String> {
    let window = Window::new(calls);
    let measuring = Measuring::begin(window, calls);
    let mut tasks = JoinSet::new();
    for _ in 0..case.streams {
        let (mut caller, size) = (caller.clone(), case.size);
        match case.kind {
            StreamKind::Server => tasks.spawn(async move { from_server(&mut caller, size, window).await }),
            StreamKind::Client => tasks.spawn(async move { to_server(&mut caller, size, window).await }),
            StreamKind::PingPong => tasks.spawn(async move { ping_pong(&mut caller, size, window).await }),
            StreamKind::Burst => tasks.spawn(async move { bursts(&mut caller, size, window).await }),
        };
    }
    let mut all = Carried::default();
    while let Some(ended) = tasks.join_next().await {
        all.add(&ended.map_err(|error| format!("a streaming task came to grief: {error}"))??);
    }
    let measuring = measuring.join().map_err(|_| "the thread that measures panicked".to_owned())?;
    Ok(measuring.end(all))
}

/// Sends a few messages and compares every byte of what comes back; the measured streams check lengths and numbers only.
pub(super) async fn prove<C: Caller>(mut caller: C, size: usize) -> Result<(), String> {
    let mut maker = Maker::new(size);
    let mut back = caller.both(stream::iter((0..3).map(move |_| made(&mut maker)))).await.map_err(failed)?;
    for number in 0..3 {
        let mut expected = body_of(size);
        expected[0] = number;
        let item = received(back.next().await.transpose())?;
        if item.payload() != expected {
            return Err("a message is not what was sent".to_owned());
        }
    }
    ended(back.next().await.transpose())
}

pub(super) fn failed(status: Status) -> String {
    format!("a stream failed: {status}")
}

/// A message that has to be there.
pub(super) fn received<I>(outcome: Result<Option<I>, Status>) -> Result<I, String> {
    outcome.map_err(failed)?.ok_or_else(|| "a stream ended before its last message".to_owned())
}

/// The end of a stream, which has to be there.
pub(super) fn ended<I>(outcome: Result<Option<I>, Status>) -> Result<(), String> {
    match outcome.map_err(failed)? {
        None => Ok(()),
        Some(_) => Err("a stream brought more messages than were sent".to_owned()),
    }
}

/// The next message of a caller's.
pub(super) fn made<I: Item>(maker: &mut Maker) -> I {
    maker.next().expect("there is memory for a message")
}

/// Counts and checks the messages of a stream.
pub(super) struct Receiver {
    size: usize,
    window: Window,
    taker: Taker,
}

impl Receiver {
    pub(super) fn new(size: usize, window: Window) -> Receiver {
        Receiver { size, window, taker: Taker::new(window.from) }
    }

    /// Takes a message, and says whether it was the last that counts.
    pub(super) fn take(&mut self, item: &impl Item) -> Result<bool, String> {
        let len = item.payload().len();
        if len != self.size {
            return Err(format!("a message has {len} bytes instead of {}", self.size));
        }
        Ok(self.taker.take(item)?.is_some_and(|now| self.window.has_ended(now)))
    }

    /// What came, with the gaps.
    pub(super) fn carried(self) -> Carried {
        let (messages, latencies) = self.taker.counted();
        Carried { messages, latencies }
    }
}

/// How many messages a caller sent: all of them, and those that count.
#[derive(Default)]
pub(super) struct Sent {
    all: AtomicU64,
    cold: AtomicU64,
}

/// The messages that a caller sends until the window is over, and what says how many there were when they have ended.
pub(super) fn sent_in<I: Item>(
    size: usize,
    window: Window,
) -> (impl Iterator<Item = I> + Send + 'static, Arc<Sent>) {
    let (mut maker, sent) = (Maker::new(size), Arc::new(Sent::default()));
    let noted = Arc::clone(&sent);
    let items = (0..).map_while(move |number: u64| {
        if number.is_multiple_of(sampled(size)) {
            let now = Instant::now();
            if now < window.from {
                noted.cold.store(number, Ordering::Relaxed);
            } else if window.has_ended(now) {
                noted.all.store(number, Ordering::Relaxed);
                return None;
            }
        }
        Some(made(&mut maker))
    });
    (items, sent)
}

/// What a server counted, of the messages that were sent.
pub(super) fn counted(sum: &StreamSum, sent: &Sent, size: usize) -> Result<Carried, String> {
    let (sent, cold) = (sent.all.load(Ordering::Relaxed), sent.cold.load(Ordering::Relaxed));
    if (sum.messages, sum.bytes) != (sent, sent * size as u64) {
        let StreamSum { messages, bytes, .. } = sum;
        return Err(format!("of {sent} messages of {size} bytes {messages} with {bytes} bytes arrived"));
    }
    let gaps = serde_json::from_str(&sum.gaps).map_err(|error| format!("the server's gaps: {error}"))?;
    Ok(Carried { messages: sent - cold, latencies: gaps })
}

async fn from_server<C: Caller>(caller: &mut C, size: usize, window: Window) -> Result<Carried, String> {
    let mut receiver = Receiver::new(size, window);
    let mut items = caller.down(size).await.map_err(failed)?;
    while !receiver.take(&received(items.next().await.transpose())?)? {}
    Ok(receiver.carried())
}

async fn to_server<C: Caller>(caller: &mut C, size: usize, window: Window) -> Result<Carried, String> {
    let (items, sent) = sent_in(size, window);
    let sum = caller.up(stream::iter(items)).await.map_err(failed)?;
    counted(&sum, &sent, size)
}

async fn ping_pong<C: Caller>(caller: &mut C, size: usize, window: Window) -> Result<Carried, String> {
    let (mut maker, mut receiver) = (Maker::new(size), Receiver::new(size, window));
    let mut trips = Trips::new(window);
    let (sender, items) = mpsc::channel(1);
    let mut back = caller.both(ReceiverStream::new(items)).await.map_err(failed)?;
    loop {
        trips.begin();
        sender.send(made(&mut maker)).await.map_err(|_| "a stream ended while it was sent to".to_owned())?;
        receiver.take(&received(back.next().await.transpose())?)?;
        if trips.end(2) {
            drop(sender);
            return ended(back.next().await.transpose()).map(|()| trips.carried());
        }
    }
}

async fn bursts<C: Caller>(caller: &mut C, size: usize, window: Window) -> Result<Carried, String> {
    let mut trips = Trips::new(window);
    loop {
        let (mut maker, mut receiver) = (Maker::new(size), Receiver::new(size, window));
        trips.begin();
        let items = stream::iter((0..BURST).map(move |_| made(&mut maker)));
        let mut back = caller.both(items).await.map_err(failed)?;
        for _ in 0..BURST {
            receiver.take(&received(back.next().await.transpose())?)?;
        }
        let is_last = trips.end(2 * BURST);
        ended(back.next().await.transpose())?;
        if is_last {
            return Ok(trips.carried());
        }
    }
}

/// Times round trips.
pub(super) struct Trips {
    window: Window,
    began: Instant,
    carried: Carried,
}

impl Trips {
    pub(super) fn new(window: Window) -> Trips {
        Trips { window, began: Instant::now(), carried: Carried::default() }
    }

    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Ends a round trip of so many messages, and says whether it was the last that counts.
    pub(super) fn end(&mut self, messages: u64) -> bool {
        let now = Instant::now();
        if now >= self.window.from {
            self.carried.latencies.record(now - self.began);
            self.carried.messages += messages;
        }
        self.window.has_ended(now)
    }

    /// What came back.
    pub(super) fn carried(self) -> Carried {
        self.carried
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn window(from: Duration, until: Duration) -> Window {
        let now = Instant::now();
        Window { from: now + from, until: now + until }
    }

    #[test]
    fn what_is_sent_ends_with_the_window_and_has_to_arrive() {
        let (items, sent) = sent_in::<StreamItem>(64, window(Duration::ZERO, Duration::ZERO));
        assert_eq!((items.count(), sent.all.load(Ordering::Relaxed)), (0, 0));
        let (items, sent) = sent_in::<StreamItem>(64, window(Duration::ZERO, Duration::from_millis(2)));
        let count = items.count() as u64;
        assert_eq!((count, 0), (sent.all.load(Ordering::Relaxed), sent.cold.load(Ordering::Relaxed)));
        let gaps = serde_json::to_string(&Latencies::default()).unwrap();
        let sum = StreamSum { messages: count, bytes: 64 * count, gaps };
        assert_eq!(counted(&sum, &sent, 64).unwrap().messages, count);
        for lost in
            [StreamSum { messages: count + 1, ..sum.clone() }, StreamSum { bytes: 63 * count + 1, ..sum }]
        {
            assert!(counted(&lost, &sent, 64).err().unwrap().contains("arrived"));
        }
    }

    #[test]
    fn a_message_of_another_length_is_an_error() {
        let mut receiver = Receiver::new(64, window(Duration::ZERO, Duration::ZERO));
        let mut maker = Maker::new(63);
        let error = receiver.take(&made::<StreamItem>(&mut maker)).unwrap_err();
        assert_eq!(error, "a message has 63 bytes instead of 64");
    }

    #[test]
    fn round_trips_count_from_the_beginning_of_the_window() {
        let hour = Duration::from_secs(3600);
        let mut cold = Trips::new(window(hour, hour));
        assert!(!cold.end(2) && cold.carried().messages == 0);
        let mut last = Trips::new(window(Duration::ZERO, Duration::ZERO));
        assert!(last.end(2));
        let Carried { messages, latencies } = last.carried();
        assert_eq!((messages, latencies.count()), (2, 1));
    }
}
