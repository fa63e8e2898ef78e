//! What an ended call leaves at either end, while its session goes on: no task, and no request that is still held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use futures_util::stream::{self, Stream, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tollfree_testkit::{Chance, stop_child};
use tonic::{Code, Request, Status};

use super::carrier::{AnyChannel, connect};
use super::lab::{Lab, Way, until};
use super::peers::start_child;

/// Tasks of this runtime that are not over.
fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

const LONG: usize = 1 << 20;
/// Calls to a server that stands still. Two thirds of those that are no streams have a few bytes each.
const CALL_COUNT: usize = 120;

/// Messages of a request that come after a pause, and whether anybody still holds them.
struct Late(Arc<()>);

impl Late {
    fn messages(&self, pause: Duration, lens: Vec<usize>) -> impl Stream<Item = Ask> + Send + use<> {
        let held = self.0.clone();
        let first = stream::once(tokio::time::sleep(pause)).filter_map(async |()| None);
        first.chain(stream::iter(lens).map(move |len| {
            let _ = &held;
            Ask { body: vec![5; len], ..Ask::default() }
        }))
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

fn within<T>(message: T, limit: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    request
}

/// A call of each kind in turn. Those whose requests are streams begin before any message comes. Long messages fill the ring, and
/// short ones what room they leave: there is none for a single word.
async fn call(
    mut client: ProbeClient<AnyChannel>,
    number: usize,
    late: Arc<Late>,
    limit: Option<Duration>,
) -> Status {
    let soon = Duration::from_millis(50);
    let messages = |lens| late.messages(soon, lens);
    let some = Ask { body: vec![7; if number < 80 { 1 } else { LONG }], ..Ask::default() };
    if number.is_multiple_of(2) {
        tokio::time::sleep(2 * soon).await;
    }
    let ended = match number % 4 {
        0 => client.unary(within(some, limit)).await.map(drop),
        1 => client.up(within(messages(vec![LONG; 2]), limit)).await.map(drop),
        2 => client.down(within(some, limit)).await.map(drop),
        _ => client.both(within(messages(vec![1; 1000]), limit)).await.map(drop),
    };
    ended.expect_err("the server stands still")
}

/// How calls come to their end.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Deadline,
    Drop,
}

/// Calls of all kinds to a server that stands still.
async fn calls_to_a_stopped_server_end_whole(by: By) {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let mut child = start_child(&uri);
    let pid = Pid::from_child(&child);
    let channel = connect(Way::Shm, &uri).await;
    let mut client = ProbeClient::new(channel);
    client.unary(Ask::default()).await.unwrap();
    let before = alive();
    for _ in 0..2 {
        stop_child(pid);
        let late = Arc::new(Late(Arc::default()));
        let mut calls = JoinSet::new();
        for number in 0..CALL_COUNT {
            let (client, late) = (client.clone(), late.clone());
            calls.spawn(async move {
                let limit = Duration::from_millis(300);
                match by {
                    By::Deadline => {
                        let status = call(client, number, late, Some(limit)).await;
                        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                    }
                    By::Drop => {
                        let called = tokio::time::timeout(limit, call(client, number, late, None)).await;
                        assert!(called.is_err(), "{called:?}");
                    }
                }
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        until("no task is left of a call to a server that stands still", || alive() <= before).await;
        until("no request is held", || !late.is_held()).await;
        kill_process(pid, Signal::CONT).unwrap();
        // The session goes on, and nothing of those calls is in the way.
        for len in [1, LONG] {
            let ask = Ask { body: vec![1; len], ..Ask::default() };
            assert_eq!(client.unary(ask).await.unwrap().into_inner().seen_len, len as u64);
        }
        until("no task is left of any call", || alive() <= before).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_late_calls_to_a_server_that_stands_still() {
    calls_to_a_stopped_server_end_whole(By::Deadline).await;
}

#[tokio::test]
async fn nothing_is_left_of_dropped_calls_to_a_server_that_stands_still() {
    calls_to_a_stopped_server_end_whole(By::Drop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_dropped_calls_where_several_threads_have_to_do_with_them() {
    calls_to_a_stopped_server_end_whole(By::Drop).await;
}

/// Streams as programs have them: of any length, and of some the answers are not read to their end.
async fn nothing_is_left_of_streams_however_their_readers_end(way: Way) {
    const LANE_COUNT: usize = 24;
    const STREAM_COUNT: usize = 25;
    let lab = Lab::start(way).await;
    lab.client().unary(Ask::default()).await.unwrap();
    let before = alive();
    let late = Arc::new(Late(Arc::default()));
    let mut lanes = JoinSet::new();
    for lane in 0..LANE_COUNT {
        let (mut client, late) = (lab.client(), late.clone());
        lanes.spawn(async move {
            let mut chance = Chance::new(lane as u64);
            for _ in 0..STREAM_COUNT {
                // Enough to have the ring full at times: of long ones, or of short ones.
                let (count, most) = if chance.below(2) == 0 { (20, 40_000) } else { (300, 100) };
                let count = chance.below(count) as usize;
                let lens = (0..count).map(|_| chance.below(most) as usize).collect();
                let asks = late.messages(Duration::ZERO, lens);
                if chance.below(2) == 0 {
                    // Some answer early, without having read the rest.
                    let asks =
                        asks.map(|ask| Ask { early: ask.body.len() > 30_000 || ask.body.len() == 99, ..ask });
                    client.up(asks).await.unwrap();
                    continue;
                }
                let mut answers = client.both(asks).await.unwrap().into_inner();
                let read = if chance.below(6) == 0 { chance.below(3) as usize } else { usize::MAX };
                for _ in 0..read {
                    if answers.message().await.unwrap().is_none() {
                        break;
                    }
                }
            }
        });
    }
    while let Some(ended) = lanes.join_next().await {
        ended.unwrap();
    }
    let began = Instant::now();
    until("no handler is left", || lab.witness.live() == 0).await;
    until("no task is left of any stream", || alive() <= before).await;
    until("no request is held", || !late.is_held()).await;
    println!("over after {:?}", began.elapsed());
}

crate::rows!(nothing_is_left_of_streams_however_their_readers_end);
