//! Many streams of a session beside one that goes as fast as it can: those that have something to say have turns alike, and those that do
//! not read on are in nobody's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use tokio::runtime::Handle;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::carrier::{AnyChannel, IS_HTTP2, connect};
use super::lab::{Lab, Way, until};

/// Streams that send a message and wait for its answer, time and again.
const COUNT: usize = 200;
/// As soon as they have had so many turns each on average, all are counted.
const TURNS: usize = 20;
const LEN: u32 = 10;

/// What goes as fast as it can beside them.
#[derive(Clone, Copy, Debug)]
enum Fast {
    Down,
    Up,
    Both,
}

/// Goes on until it is told to stop.
async fn run(mut client: ProbeClient<AnyChannel>, fast: Fast, stop: Arc<AtomicBool>) {
    let asks = |stop: Arc<AtomicBool>, ask: Ask| {
        tokio_stream::iter(std::iter::from_fn(move || (!stop.load(Ordering::Relaxed)).then(|| ask.clone())))
    };
    match fast {
        Fast::Down => {
            while !stop.load(Ordering::Relaxed) {
                let ask = Ask { lens: vec![LEN; 10_000], ..Ask::default() };
                let mut answers = client.down(ask).await.unwrap().into_inner();
                while !stop.load(Ordering::Relaxed) && answers.message().await.unwrap().is_some() {}
            }
        }
        Fast::Up => {
            client.up(asks(stop, Ask { body: vec![7; LEN as usize], ..Ask::default() })).await.unwrap();
        }
        Fast::Both => {
            let ask = Ask { body: vec![7; LEN as usize], ..Ask::default() };
            let mut answers = client.both(asks(stop, ask)).await.unwrap().into_inner();
            while answers.message().await.unwrap().is_some() {}
        }
    }
}

/// How many turns each stream has had beside a fast one.
async fn turns(lab: &Lab, fast: Fast) -> Vec<usize> {
    let stop = Arc::<AtomicBool>::default();
    let start = Arc::new(Barrier::new(COUNT + 1));
    let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..COUNT).map(|_| AtomicUsize::new(0)).collect());
    let all = Arc::<AtomicUsize>::default();
    let mut tasks = JoinSet::new();
    for number in 0..COUNT {
        let (mut client, stop, start) = (lab.client(), stop.clone(), start.clone());
        let (counts, all) = (counts.clone(), all.clone());
        tasks.spawn(async move {
            let (asks, rest) = mpsc::channel(1);
            let ask = || Ask { body: vec![7; LEN as usize], ..Ask::default() };
            asks.send(ask()).await.unwrap();
            let mut answers = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
            answers.message().await.unwrap().expect("an answer to each");
            start.wait().await;
            while !stop.load(Ordering::Relaxed) {
                asks.send(ask()).await.unwrap();
                answers.message().await.unwrap().expect("an answer to each");
                if !stop.load(Ordering::Relaxed) {
                    counts[number].fetch_add(1, Ordering::Relaxed);
                }
                if all.fetch_add(1, Ordering::Relaxed) + 1 == COUNT * TURNS {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        });
    }
    let mut beside = JoinSet::new();
    beside.spawn(run(lab.client(), fast, stop.clone()));
    start.wait().await;
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    beside.join_next().await.unwrap().unwrap();
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

async fn streams_beside_a_fast_one_have_turns_alike(way: Way) {
    let lab = Lab::start(way).await;
    for fast in [Fast::Down, Fast::Up, Fast::Both] {
        let mut turns = turns(&lab, fast).await;
        turns.sort_unstable();
        let (least, most) = (turns[0], turns[COUNT - 1]);
        // Where both ends have a thread each, or threads of a runtime take tasks from each other, a few streams are ahead, and none is behind.
        let is_one_thread = way != Way::BackendConnection && Handle::current().metrics().num_workers() == 1;
        let bounds = if is_one_thread { TURNS / 2..=2 * TURNS } else { TURNS / 4..=4 * TURNS };
        assert!(bounds.contains(&least) && bounds.contains(&most), "{fast:?}: {least} to {most} turns");
    }
}

const LONG: usize = 1000;
/// Messages of each slow stream: several times what anybody has credit for at once.
const MANY: usize = 300;

/// Streams whose readers take a message, and no other, beside a fast one.
struct Slow {
    count: usize,
    /// Sessions that they share by turns. The fast one has the first.
    session_count: usize,
    /// The fast one is at most so many times slower than alone.
    slower_max: u32,
}

/// `SLOW_STREAMS=3000` asks for so many, and has nothing run beside it: bounds are what documents state then.
fn slow() -> Slow {
    match std::env::var("SLOW_STREAMS") {
        Ok(count) => {
            let count: usize = count.parse().expect("SLOW_STREAMS is a number");
            Slow { count, session_count: count.div_ceil(1000), slower_max: 2 }
        }
        // Other tests run on the same processors meanwhile.
        Err(_) => Slow { count: 600, session_count: 1, slower_max: 10 },
    }
}

/// Tries to find it so fast, for the same reason.
const TRIES: usize = 30;

/// The time that a fast stream takes for a number of messages each way: the shortest of a few, or the first that is short `enough`.
async fn fast_time(lab: &Lab, tries: usize, enough: Duration) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..tries {
        if shortest < enough {
            break;
        }
        let mut client = lab.client();
        let began = Instant::now();
        let ask = Ask { lens: vec![LEN; 3000], ..Ask::default() };
        let mut answers = client.down(ask).await.unwrap().into_inner();
        while answers.message().await.unwrap().is_some() {}
        let asks = vec![Ask { body: vec![7; LEN as usize], ..Ask::default() }; 3000];
        assert_eq!(client.up(tokio_stream::iter(asks)).await.unwrap().into_inner().seen_count, 3000);
        shortest = shortest.min(began.elapsed());
    }
    shortest
}

/// Tasks of this runtime that are not over.
fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Waits until a count does not grow any more.
async fn settled(count: impl Fn() -> usize) -> usize {
    loop {
        let before = count();
        tokio::time::sleep(Duration::from_millis(50)).await;
        if count() == before {
            return before;
        }
    }
}

async fn streams_that_nobody_reads_on_are_in_nobodys_way(way: Way) {
    // HTTP/2 has other limits to calls at once, and lets go of them later.
    if IS_HTTP2 || !way.is_ours() {
        return;
    }
    let slow = slow();
    let lab = Lab::start(way).await;
    let mut channels = vec![lab.channel.clone()];
    while channels.len() < slow.session_count {
        channels.push(connect(way, &lab.uri).await);
    }
    for channel in &channels {
        ProbeClient::new(channel.clone()).unary(Ask::default()).await.unwrap();
    }
    let clients: Vec<_> =
        (0..slow.count).map(|number| ProbeClient::new(channels[number % channels.len()].clone())).collect();
    let before = alive();
    let alone = fast_time(&lab, 5, Duration::ZERO).await;
    // At the client.
    let (start, sent) = (Arc::new(Barrier::new(slow.count + 1)), lab.witness.sent());
    let mut tasks = JoinSet::new();
    for mut client in clients.clone() {
        let start = start.clone();
        tasks.spawn(async move {
            let ask = Ask { lens: vec![LONG as u32; MANY], ..Ask::default() };
            let mut answers = client.down(ask).await.unwrap().into_inner();
            answers.message().await.unwrap().expect("the first");
            start.wait().await;
            std::future::pending::<()>().await;
            drop(answers);
        });
    }
    start.wait().await;
    let sent = settled(|| lab.witness.sent()).await - sent;
    assert!(sent < slow.count * MANY / 2, "{sent} messages are under way to readers that do not read");
    let beside = fast_time(&lab, TRIES, slow.slower_max * alone).await;
    println!("beside {} readers that do not read {beside:?}, and alone {alone:?}", slow.count);
    assert!(
        beside < slow.slower_max * alone,
        "beside readers that do not read {beside:?}, and alone {alone:?}"
    );
    tasks.shutdown().await;
    until("no handler is left", || lab.witness.live() == 0).await;
    until("no task is left", || alive() <= before).await;
    // At the server.
    let (given, read) = (Arc::<AtomicUsize>::default(), lab.witness.read());
    for mut client in clients {
        let given = given.clone();
        tasks.spawn(async move {
            let asks = (0..MANY).map(move |_| {
                given.fetch_add(1, Ordering::Relaxed);
                Ask { body: vec![7; LONG], wait_ms: 600_000, ..Ask::default() }
            });
            drop(client.up(tokio_stream::iter(asks)).await);
        });
    }
    until("all handlers have read a message", || lab.witness.read() == read + slow.count).await;
    let given = settled(|| given.load(Ordering::Relaxed)).await;
    assert!(given < slow.count * MANY / 2, "{given} messages are under way to handlers that do not read");
    let beside = fast_time(&lab, TRIES, slow.slower_max * alone).await;
    println!("beside {} handlers that do not read {beside:?}, and alone {alone:?}", slow.count);
    assert!(
        beside < slow.slower_max * alone,
        "beside handlers that do not read {beside:?}, and alone {alone:?}"
    );
    tasks.shutdown().await;
    until("no handler is left", || lab.witness.live() == 0).await;
    until("no task is left", || alive() <= before).await;
    lab.client().unary(Ask::default()).await.unwrap();
}

crate::rows!(streams_beside_a_fast_one_have_turns_alike; without_gateway: streams_that_nobody_reads_on_are_in_nobodys_way);
