//! A server that stops: calls under way are answered, new ones are not taken.

use std::time::Duration;

use crate::stubs::probe::Ask;
use tonic::Code;

use super::carrier::connect;
use super::lab::{Lab, Way, until};

/// tonic's own channel has several words for a connection that ends under a call.
fn expect_gone(way: Way, status: &tonic::Status) {
    if way.is_ours() {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    } else {
        let known = [Code::Unavailable, Code::Cancelled, Code::Unknown, Code::Internal];
        assert!(known.contains(&status.code()), "{status}");
    }
}

async fn calls_under_way_are_answered(way: Way) {
    let mut lab = Lab::start(way).await;
    let mut client = lab.client();
    let under_way = tokio::spawn({
        let mut client = client.clone();
        let ask = Ask { body: vec![1; 100_000], wait_ms: 300, ..Ask::default() };
        async move { client.unary(ask).await }
    });
    let streaming = tokio::spawn({
        let mut client = client.clone();
        async move {
            let ask = Ask { lens: vec![20_000; 20], pause_ms: 10, ..Ask::default() };
            let mut stream = client.down(ask).await?.into_inner();
            let mut count = 0;
            while stream.message().await?.is_some() {
                count += 1;
            }
            Ok::<_, tonic::Status>(count)
        }
    });
    until("both are under way", || lab.witness.live() == 2).await;
    lab.begin_stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = client.unary(Ask::default()).await.unwrap_err();
    expect_gone(way, &refused);
    assert_eq!(under_way.await.unwrap().unwrap().into_inner().body.len(), 100_000);
    assert_eq!(streaming.await.unwrap().unwrap(), 20);
    lab.stopped().await;
    assert_eq!(lab.witness.begun(), 2);
}

async fn an_idle_server_stops_at_once(way: Way) {
    let mut lab = Lab::start(way).await;
    assert!(lab.client().unary(Ask::default()).await.is_ok());
    let began = std::time::Instant::now();
    lab.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(2));
    let refused = lab.client().unary(Ask::default()).await.unwrap_err();
    expect_gone(way, &refused);
}

async fn a_busy_server_stops_too(way: Way) {
    let mut lab = Lab::start(way).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let mut client = lab.client();
        tasks.spawn(async move {
            loop {
                match client.unary(Ask::default()).await {
                    Ok(_) => {}
                    Err(status) => return status,
                }
            }
        });
    }
    until("calls flow", || lab.witness.begun() > 500).await;
    lab.stopped().await;
    while let Some(status) = tasks.join_next().await {
        let status = status.unwrap();
        expect_gone(way, &status);
    }
}

async fn a_successor_is_found_by_the_same_channel(way: Way) {
    let mut lab = Lab::start(way).await;
    let mut client = lab.client();
    assert!(client.unary(Ask::default()).await.is_ok());
    lab.stopped().await;
    let uris = lab.uris.clone();
    let witness = lab.witness.clone();
    let probe = super::probe::Probe::new(witness.clone());
    let server = tokio::spawn(async move {
        let service = crate::stubs::probe::probe_server::ProbeServer::new(probe);
        tollfree::Server::builder().add_service(service).serve_many(uris.iter().map(String::as_str)).await
    });
    drop(connect(way, &lab.uri).await);
    assert!(client.unary(Ask::default()).await.is_ok(), "without an error in between");
    server.abort();
}

crate::rows!(
    calls_under_way_are_answered,
    an_idle_server_stops_at_once,
    a_busy_server_stops_too;
    // Whether a call waits for a successor is a gateway's matter.
    without_gateway:
    a_successor_is_found_by_the_same_channel,
);
