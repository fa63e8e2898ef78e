//! Many calls at once, and calls that don't get on.

use std::time::Duration;

use crate::stubs::probe::Ask;
use tokio::task::JoinSet;

use super::lab::{Lab, Way, until};

async fn call_at_once(lab: &Lab, count: u32, ask: impl Fn(u32) -> Ask) {
    let mut calls = JoinSet::new();
    for number in 0..count {
        let (mut client, ask) = (lab.client(), ask(number));
        calls.spawn(async move {
            let body = ask.body.clone();
            let answer = client.unary(ask).await.unwrap().into_inner();
            assert_eq!(answer.body, body, "replies must not be swapped");
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
}

async fn a_thousand_calls_at_once(way: Way) {
    let lab = Lab::start(way).await;
    let ask = |number: u32| Ask { body: number.to_le_bytes().into(), wait_ms: number % 5, ..Ask::default() };
    call_at_once(&lab, 1000, ask).await;
    assert_eq!((lab.witness.begun(), lab.witness.live()), (1000, 0));
}

async fn large_and_small_calls_at_once(way: Way) {
    let lab = Lab::start(way).await;
    let ask = |number: u32| Ask {
        body: super::probe::pattern(if number.is_multiple_of(10) { 1 << 20 } else { 10 }, number),
        ..Ask::default()
    };
    call_at_once(&lab, 100, ask).await;
}

async fn a_reader_that_stops_stops_its_writer_and_nobody_else(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let ask = Ask { lens: vec![10_000; 2_000], ..Ask::default() };
    let mut stopped = client.down(ask).await.unwrap().into_inner();
    stopped.message().await.unwrap().unwrap();
    // Until nothing has come out for a quarter of a second.
    let (mut before, mut quiet) = (0, 0);
    while quiet < 25 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let sent = lab.witness.sent();
        quiet = if sent == before { quiet + 1 } else { 0 };
        before = sent;
    }
    assert!(before < 1_000, "the writer waits: {before} of 2,000 messages are out");
    call_at_once(&lab, 100, |number| Ask { body: vec![number as u8; 30_000], ..Ask::default() }).await;
    assert!(lab.witness.sent() < 1_000, "it waits still");
    let mut left = 1_999;
    while stopped.message().await.unwrap().is_some() {
        left -= 1;
    }
    assert_eq!(left, 0, "and goes on when it is read");
}

async fn a_handler_that_stops_reading_stops_the_client_and_nobody_else(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = sent.clone();
    let feed = tokio::spawn(async move {
        let pause = Ask { wait_ms: 600, ..Ask::default() };
        sender.send(pause).await.unwrap();
        for _ in 0..1_000 {
            sender.send(Ask { body: vec![5; 10_000], ..Ask::default() }).await.unwrap();
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let asks = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let call = tokio::spawn(async move { client.up(asks).await });
    until("the handler has the first message", || lab.witness.read() == 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let held = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(held < 500, "the client waits: {held} messages are out");
    call_at_once(&lab, 50, |number| Ask { body: vec![number as u8; 30_000], ..Ask::default() }).await;
    let answer = call.await.unwrap().unwrap().into_inner();
    assert_eq!((answer.seen_count, answer.seen_len), (1_001, 10_000_000));
    feed.await.unwrap();
}

async fn a_call_that_nobody_polls_holds_up_no_other(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let ask = Ask { lens: vec![1; 100], pause_ms: 300, ..Ask::default() };
    let mut stream = client.down(ask).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    // Looked at until there is nothing, and then left alone: as in a `select!` whose branch is switched off.
    let mut look = async || {
        std::future::poll_fn(|cx| {
            let message = std::pin::pin!(stream.message());
            std::task::Poll::Ready(message.poll(cx).is_ready())
        })
        .await
    };
    while look().await {}
    let mut others = lab.client();
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        for _ in 0..50 {
            others.unary(Ask { wait_ms: 1, ..Ask::default() }).await.unwrap();
        }
    });
    let all = tokio::time::timeout(Duration::from_secs(30), calls.join_next()).await;
    all.expect("others go on").unwrap().unwrap();
    stream.message().await.unwrap().unwrap();
}

async fn a_busy_stream_leaves_timers_and_tasks_alone(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let asks = (0..200_000u32).map(|_| Ask { body: vec![1; 200], ..Ask::default() });
    let flood = tokio::spawn(async move {
        let mut answers = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
        while answers.message().await.unwrap().is_some() {}
    });
    until("the flood is on", || lab.witness.sent() > 10).await;
    let began = std::time::Instant::now();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // That they had their turns, however slow the machine is at the time, is that the flood didn't go first.
    assert!(!flood.is_finished(), "ten timers of 2 ms took {:?}, as long as the flood", began.elapsed());
    flood.abort();
}

crate::rows!(
    a_thousand_calls_at_once,
    large_and_small_calls_at_once,
    a_reader_that_stops_stops_its_writer_and_nobody_else,
    a_handler_that_stops_reading_stops_the_client_and_nobody_else,
    a_call_that_nobody_polls_holds_up_no_other,
    a_busy_stream_leaves_timers_and_tasks_alone,
);

/// Over shared memory the limit is of the session: the others wait at the client.
#[tokio::test]
async fn calls_beyond_the_limit_queue() {
    let server = tollfree::Server::builder().concurrency_limit_per_session(10);
    let lab = Lab::with(Way::Shm, server, |probe| probe).await;
    let ask = |number: u32| Ask { body: number.to_le_bytes().into(), wait_ms: 1, ..Ask::default() };
    call_at_once(&lab, 1000, ask).await;
    assert_eq!((lab.witness.begun(), lab.witness.live()), (1000, 0));
    assert!((2..=10).contains(&lab.witness.peak()), "{} at once", lab.witness.peak());
}
