//! What is left at a server of answers that a client does not read, after the deadline that the client gave its calls.

use std::time::Duration;

use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use crate::stubs::probe::{Answer, Ask};
use tollfree::Server;
use tonic::{Code, Request, Status};

use super::carrier::{AnyChannel, connect};
use super::lab::{Lab, Way, in_time, until};
use super::probe::{Probe, Witness};
use super::still::Still;

/// A few of these are more than a session has room for.
const LONG: usize = 1 << 20;
/// Each message of a stream.
const PART: u32 = 100_000;
/// Also calls at once that the server takes.
const CALL_COUNT: usize = 12;
/// How long handlers take: by then the client stands still.
const WAIT_MS: u32 = 50;
const DEADLINE: Duration = Duration::from_millis(800);

/// Tasks of this runtime that are not over.
fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A server that takes so many calls at once, and how long their handlers may take.
async fn lab(timeout: Option<Duration>) -> Lab {
    let witness = Witness::default();
    let service = ProbeServer::new(Probe::new(witness.clone())).max_encoding_message_size(usize::MAX);
    let server = Server::builder().concurrency_limit(CALL_COUNT as u32).add_service(service);
    let server = timeout.into_iter().fold(server, Server::timeout);
    Lab::serve(Way::Shm, server, witness).await
}

/// A client of its own session.
async fn client(lab: &Lab, still: &Still) -> ProbeClient<AnyChannel> {
    let uri = lab.uri.clone();
    still
        .runs(async move {
            let client = ProbeClient::new(connect(Way::Shm, &uri).await);
            let mut client = client.max_decoding_message_size(usize::MAX);
            client.unary(Ask::default()).await.unwrap();
            client
        })
        .await
}

/// A call with one long answer, or a stream of them, whose client then reads what has come.
async fn call(
    mut client: ProbeClient<AnyChannel>,
    number: usize,
    limit: Option<Duration>,
) -> Result<Vec<Answer>, Status> {
    let mut request = Request::new(Ask { wait_ms: WAIT_MS, ..Ask::default() });
    limit.into_iter().for_each(|limit| request.set_timeout(limit));
    if number.is_multiple_of(2) {
        request.get_mut().body = vec![7; LONG];
        return client.unary(request).await.map(|answer| vec![answer.into_inner()]);
    }
    request.get_mut().lens = vec![PART; 100];
    let (mut answers, mut read) = (client.down(request).await?.into_inner(), Vec::new());
    while let Some(answer) = answers.message().await? {
        read.push(answer);
    }
    Ok(read)
}

/// Has a client begin calls, and stand still then.
async fn begin_calls(
    lab: &Lab,
    still: &Still,
    client: &ProbeClient<AnyChannel>,
    limit: Option<Duration>,
) -> Vec<tokio::task::JoinHandle<Result<Vec<Answer>, Status>>> {
    let (client, witness, before) = (client.clone(), lab.witness.clone(), lab.witness.begun());
    still
        .runs(async move {
            let calls = (0..CALL_COUNT).map(|number| tokio::spawn(call(client.clone(), number, limit)));
            let calls = calls.collect();
            until("all handlers have begun", || witness.begun() == before + CALL_COUNT).await;
            calls
        })
        .await
}

#[tokio::test]
async fn nothing_is_left_of_answers_that_nobody_reads_after_their_deadline() {
    in_time(async {
        let lab = lab(None).await;
        let still = Still::new();
        let mut client = client(&lab, &still).await;
        lab.client().unary(Ask::default()).await.unwrap();
        let before = alive();
        for _ in 0..2 {
            let calls = begin_calls(&lab, &still, &client, Some(DEADLINE)).await;
            // All have their answers, which find no room.
            until("the handlers have answered", || lab.witness.live() <= CALL_COUNT / 2).await;
            let waiting = alive();
            assert!(waiting >= before + CALL_COUNT * 3 / 4, "{waiting} tasks, and {before} before");
            let shed = lab.client().unary(Ask::default()).await.unwrap_err();
            assert_eq!(shed.code(), Code::ResourceExhausted, "{shed}");
            until("no task is left of answers that nobody reads", || alive() <= before).await;
            assert_eq!(lab.witness.live(), 0, "no handler is left");
            lab.client().unary(Ask::default()).await.expect("their places are free");
            // The session goes on, and those calls are in nobody's way.
            let codes = async move {
                let mut codes = Vec::new();
                for call in calls {
                    codes.push(call.await.unwrap().map(drop).map_err(|status| status.code()));
                }
                codes
            };
            let codes = still.runs(codes).await;
            assert_eq!(codes, vec![Err(Code::DeadlineExceeded); CALL_COUNT]);
            let (answer, again) = still
                .runs(async move {
                    let ask = Ask { body: vec![7; LONG], ..Ask::default() };
                    (client.unary(ask).await.unwrap().into_inner(), client)
                })
                .await;
            assert_eq!(answer.body.len(), LONG);
            client = again;
        }
        drop(client);
        drop(still);
    })
    .await;
}

/// The server's own limit is for its handlers: a client that is only slow gets the answer.
#[tokio::test]
async fn an_answer_that_was_given_in_time_waits_for_a_slow_client() {
    in_time(async {
        let timeout = Duration::from_millis(12 * u64::from(WAIT_MS));
        let lab = lab(Some(timeout)).await;
        let still = Still::new();
        let client = client(&lab, &still).await;
        for limit in [None, Some(Duration::from_secs(3600))] {
            let calls = begin_calls(&lab, &still, &client, limit).await;
            tokio::time::sleep(2 * timeout).await;
            let answers = async move {
                let mut lens = Vec::new();
                for (number, call) in calls.into_iter().enumerate() {
                    if number % 2 == 0 {
                        let answers = call.await.unwrap().unwrap();
                        lens.extend(answers.iter().map(|answer| answer.body.len()));
                    } else {
                        // Its handler has not given all of it.
                        let status = call.await.unwrap().unwrap_err();
                        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                    }
                }
                lens
            };
            assert_eq!(still.runs(answers).await, vec![LONG; CALL_COUNT / 2]);
        }
        drop((client, still));
    })
    .await;
}
