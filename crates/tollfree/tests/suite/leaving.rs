//! What stays with a process when its sessions have left.

use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use tollfree::{Channel, Server};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tollfree_testkit::{TimeLimit, alone, resident_kib};
use tonic::{Code, Request};

const SESSION_COUNT: usize = 10;
const ROUND_COUNT: usize = 3;
/// Half of what one round's sessions keep together, both ends.
const GROWTH_KIB_MAX: u64 = 2560;
/// As many and as long as a session keeps of its peer's method paths.
const PATH_COUNT: usize = 250;
const PATH_LEN: usize = 1000;

/// Has a session keep paths.
async fn fill(channel: &Channel, session: usize) {
    for nth in 0..PATH_COUNT {
        let path = format!("/{session}.{nth}.{}/Hello", "x".repeat(PATH_LEN - 20));
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<HelloRequest, HelloReply>::default();
        let path: PathAndQuery = path.parse().unwrap();
        let status = client.unary(Request::new(HelloRequest::default()), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    }
}

#[tokio::test]
async fn memory_of_sessions_that_left_serves_the_next() {
    alone!();
    let _limit = TimeLimit::seconds(300);
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let server = tokio::spawn(Server::builder().serve(uri.clone()));
    let connect = async || loop {
        match Channel::connect(&*uri).await {
            Ok(channel) => return channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let mut after = Vec::new();
    for _ in 0..ROUND_COUNT {
        let mut channels = Vec::new();
        for session in 0..SESSION_COUNT {
            let channel = connect().await;
            fill(&channel, session).await;
            channels.push(channel);
        }
        drop(channels);
        // The server's ends leave a moment later. Here they have all gone when nothing is given back any more.
        let (began, mut last) = (Instant::now(), u64::MAX);
        while began.elapsed() < Duration::from_secs(30) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = resident_kib();
            if now >= last && after.first().is_none_or(|first| now <= first + GROWTH_KIB_MAX) {
                break;
            }
            last = now;
        }
        after.push(resident_kib());
    }
    let (first, last) = (after[0], after[ROUND_COUNT - 1]);
    assert!(last <= first + GROWTH_KIB_MAX, "KiB after each round: {after:?}");
    server.abort();
}
