//! Backends that are shut down while calls come from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as TakerServer;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::transport::Channel;

use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::taker::Taker;

const HANDED_ON: &str = "tollfree_gateway_failovers_total";

/// Calls of both kinds, one after the other, until it is told to stop. Returns how many; none may fail.
async fn load(mut client: ProbeClient<Channel>, is_over: Arc<AtomicBool>, made: Arc<AtomicUsize>) {
    while !is_over.load(Ordering::SeqCst) {
        let ask = |len| Ask { body: vec![1; len], ..Ask::default() };
        client.unary(ask(10)).await.expect("a call of a client that knows nothing of backend connections");
        let asks = futures_util::stream::iter([ask(3000), ask(20_000), ask(1)]);
        let answer = client.up(asks).await.expect("a stream").into_inner();
        assert_eq!((answer.seen_count, answer.seen_len), (3, 23_001), "nothing is lost or doubled");
        made.fetch_add(2, Ordering::SeqCst);
    }
}

/// Each replaces the one before, until calls have reached a process that was leaving already and went on to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_fails_while_backends_come_and_go() {
    let lab = Lab::start("").await;
    let mut attached = lab.attach("default").await;
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..16 {
        clients.spawn(load(lab.client().await, is_over.clone(), made.clone()));
    }
    let began = tokio::time::Instant::now();
    let mut rounds = 0;
    while lab.figure(HANDED_ON).await < 1.0 || rounds < 5 {
        assert!(began.elapsed() < PATIENCE, "no call met a leaving process in {rounds} rounds");
        let before = made.load(Ordering::SeqCst);
        let next = lab.attach("default").await;
        attached.stop().await;
        attached = next;
        rounds += 1;
        while made.load(Ordering::SeqCst) < before + 16 {
            assert!(began.elapsed() < PATIENCE, "calls stand still");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// Compressed calls, one after the other, until it is told to stop; none may fail, and each is answered whole.
async fn compressed_load(client: ProbeClient<Channel>, is_over: Arc<AtomicBool>) {
    let mut client = client.send_compressed(Gzip).accept_compressed(Gzip);
    let ask = |len: usize| Ask { body: vec![len as u8; len], ..Ask::default() };
    while !is_over.load(Ordering::SeqCst) {
        let answer = client
            .unary(ask(3001))
            .await
            .expect("a call of a client that knows nothing of backend connections");
        assert!(answer.into_inner().body == ask(3001).body);
        let asks = futures_util::stream::iter([ask(3000), ask(20_000), ask(1)]);
        let answer = client.up(asks).await.expect("a stream").into_inner();
        assert!(answer.body == [ask(3000).body, ask(20_000).body, ask(1).body].concat());
    }
}

/// The gateway inflates for each process that it knows, and not yet for the next: a call that is failed over goes there as it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_compressed_call_fails_while_processes_that_take_objects_come_and_go() {
    let lab = Lab::start("").await;
    let attach = async || {
        let before = lab.figure(&backend_connections_of("default")).await;
        let service = TakerServer::new(Taker).accept_compressed(Gzip).send_compressed(Gzip);
        let server = tollfree::Server::builder().add_service(service);
        let payloads = server.payloads();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
        let task = tokio::spawn(attaching.until(async { drop(stopped.await) }).into_future());
        lab.until_figure(&backend_connections_of("default"), |count| count > before).await;
        (payloads, stop, task)
    };
    let mut attached = attach().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        clients.spawn(compressed_load(lab.client().await, is_over.clone()));
    }
    let began = tokio::time::Instant::now();
    let mut rounds = 0;
    while lab.figure(HANDED_ON).await < 1.0 || rounds < 5 {
        while attached.0.counts().received_objects < 20 {
            assert!(began.elapsed() < PATIENCE, "no request comes as an object in round {rounds}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let next = attach().await;
        let (_, stop, task) = std::mem::replace(&mut attached, next);
        drop(stop);
        tokio::time::timeout(PATIENCE, task).await.expect("it ends").unwrap().unwrap();
        rounds += 1;
        assert!(began.elapsed() < PATIENCE, "no call met a leaving process in {rounds} rounds");
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// The last one leaves and the next one comes a moment later: a call in between waits for it.
#[tokio::test]
async fn a_call_waits_for_the_next_process_of_its_service() {
    let lab = Lab::start("limits.attach_wait_ms = 60000\n").await;
    let mut client = lab.client().await;
    for _ in 0..2 {
        let call = tokio::spawn({
            let mut client = client.clone();
            async move { client.unary(Ask::default()).await }
        });
        let started = "grpc_server_call_started_total";
        let begun = tokio::time::Instant::now();
        while !lab.page().await.contains(started) {
            assert!(begun.elapsed() < PATIENCE, "the call does not come");
        }
        let attached = lab.attach("default").await;
        call.await.unwrap().unwrap();
        client.unary(Ask::default()).await.unwrap();
        attached.stop().await;
    }
}

/// Calls that are not over when their connection has to end are cut off, and counted one by one.
#[tokio::test]
async fn calls_that_are_cut_off_are_counted() {
    let lab = Lab::start("limits.age_ms = 200\nlimits.drain_ms = 200\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await.map(drop) })
        })
        .collect();
    for call in calls {
        call.await.unwrap().expect_err("nobody answers it");
    }
    lab.until_figure("tollfree_gateway_calls_cut_total", |cut| cut == 3.0).await;
    assert_eq!(lab.refused("drain").await, 1.0, "one connection");
    attached.stop().await;
}

/// A call that never ends keeps a gateway that is told to stop for `limits.drain_ms`, and a backend not at all.
#[tokio::test]
async fn a_gateway_that_stops_cuts_off_what_goes_on_for_too_long() {
    let lab = Lab::start("limits.drain_ms = 200\n").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let endless =
        tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await.map(drop) });
    let begun = tokio::time::Instant::now();
    let live = || attached.probe.live.load(Ordering::SeqCst);
    while live() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    lab.stopped().await;
    endless.await.unwrap().expect_err("nobody is left to answer it");
    while live() > 0 {
        assert!(begun.elapsed() < PATIENCE, "its handler is not cancelled");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    attached.stop().await;
}
