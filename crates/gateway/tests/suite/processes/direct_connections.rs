//! Direct connections between processes: the one that is called is killed, and another wants to come by what was not meant for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollfree::Channel;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_testkit::Process;
use tonic::Code;
use tonic::body::Body;
use tower_service::Service;

use super::places::{PATIENCE, Place};

const SHORT: &str = "[groups.default]\ndirect_connections = true\n";
const CALLERS: usize = 4;
const KILLS: usize = 3;

async fn until_path(channel: &Channel, words: &str) {
    let begun = Instant::now();
    while !channel.path().to_string().contains(words) {
        assert!(begun.elapsed() < PATIENCE, "{} and not: {words}", channel.path());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each kill ends one call of each caller at most; the others go through the gateway as soon as somebody is attached, and
/// directly after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_costs_what_was_under_way_by_a_direct_connection() {
    let place = Place::new(SHORT);
    let _gateway = place.start_gateway();
    let mut backends = place.start_backend("default");
    let uri = format!("shm://{}", place.backends().display());
    let channel = Channel::via(uri, "group:default").await.unwrap();
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let mut client = ProbeClient::new(channel.clone());
        let (is_over, answered) = (is_over.clone(), answered.clone());
        callers.spawn(async move {
            let mut failures = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                match client.unary(Ask { body: vec![1; 1000], ..Ask::default() }).await {
                    Ok(_) => drop(answered.fetch_add(1, Ordering::SeqCst)),
                    Err(status) => failures.push(status),
                }
            }
            failures
        });
    }
    for _ in 0..KILLS {
        until_path(&channel, "by a direct connection").await;
        drop(backends);
        backends = place.start_backend("default");
        let (before, begun) = (answered.load(Ordering::SeqCst), Instant::now());
        while answered.load(Ordering::SeqCst) < before + 50 {
            assert!(begun.elapsed() < PATIENCE, "calls go on: {}", channel.path());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    until_path(&channel, "by a direct connection").await;
    is_over.store(true, Ordering::SeqCst);
    let failures: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    // One by the direct connection, and one that the gateway had handed over before it noticed.
    assert!(failures.len() <= 2 * KILLS * CALLERS, "{failures:?}");
    for status in failures {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

/// It knows the name of the socket, is of the right user, and is another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_not_named_gets_nothing_by_a_direct_connection() {
    let place = Place::new(SHORT);
    let _gateway = place.start_gateway();
    let backends = place.start_backend("default");
    let uri = format!("shm://{}", place.backends().display());
    // A channel with a service config doesn't ask by itself.
    let mut channel =
        Channel::builder(uri).via("group:default").service_config("{}").connect().await.unwrap();
    // It waits until the process has attached.
    ProbeClient::new(channel.clone()).unary(Ask::default()).await.unwrap();
    let request = Request::post("http://localhost/tollfree.DirectConnection/Ask");
    let request = request.header("content-type", "application/grpc").body(Body::empty()).unwrap();
    let led = channel.call(request).await.unwrap();
    let text = |name: &str| led.headers()[name].to_str().unwrap().to_owned();
    assert!(text("tollfree-process").starts_with(&format!("pid={},", backends.pid().as_raw_nonzero())));
    let offer = text("tollfree-offer");
    let mut intruder = Process::start("processes::intruder", &place.backends(), &offer);
    let ended = intruder.wait_end(PATIENCE);
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    // The one that was named still gets in.
    let mut client = ProbeClient::new(Channel::connect(offer).await.unwrap());
    client.unary(Ask::default()).await.unwrap();
}
