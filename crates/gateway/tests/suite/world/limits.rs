//! Each limit, and how what is beyond it is refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tollfree_stubs::probe::Ask;
use tonic::{Code, Request};

use super::lab::{Lab, PATIENCE};

/// What is read until the other side closes.
async fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset is an end too.
    drop(read.expect("the gateway closes the connection"));
    bytes
}

#[tokio::test]
async fn connections_are_limited_and_newcomers_told() {
    let lab = Lab::start("limits.connections = 2\nlisteners.world.shared_addresses = true\n").await;
    let first = TcpStream::connect(lab.socket_address()).await.unwrap();
    let _second = TcpStream::connect(lab.socket_address()).await.unwrap();
    lab.until_figure("tollfree_gateway_connections", |count| count == 2.0).await;
    let mut third = TcpStream::connect(lab.socket_address()).await.unwrap();
    let words = String::from_utf8_lossy(&rest_of(&mut third).await).into_owned();
    assert!(words.contains("limits.connections are open already"), "{words:?}");
    assert_eq!(lab.refused("connections").await, 1.0);
    drop(first);
    lab.until_figure("tollfree_gateway_connections", |count| count == 1.0).await;
    assert!(lab.health("").await.is_ok(), "there is a place again");
}

#[tokio::test]
async fn connections_of_an_address_are_limited() {
    let lab = Lab::start("limits.connections_per_address = 1\n").await;
    let _first = TcpStream::connect(lab.socket_address()).await.unwrap();
    lab.until_figure("tollfree_gateway_connections", |count| count == 1.0).await;
    let mut second = TcpStream::connect(lab.socket_address()).await.unwrap();
    rest_of(&mut second).await;
    assert_eq!(lab.refused("connections_per_address").await, 1.0);
}

#[tokio::test]
async fn one_address_leaves_a_quarter_of_the_connections_to_others() {
    let lab = Lab::start("limits.connections = 8\nlimits.connections_per_address = 8\n").await;
    let connect = async |host: u8| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        socket.connect(lab.socket_address().parse().unwrap()).await.unwrap()
    };
    let mut one = Vec::new();
    for count in 1..=6 {
        one.push(connect(1).await);
        lab.until_figure("tollfree_gateway_connections", |open| open == f64::from(count)).await;
    }
    for _ in 0..2 {
        rest_of(&mut connect(1).await).await;
    }
    assert_eq!(lab.refused("connections_per_address").await, 2.0);
    let _other = [connect(2).await, connect(2).await];
    lab.until_figure("tollfree_gateway_connections", |open| open == 8.0).await;
    assert_eq!(lab.refused("connections").await, 0.0);
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let lab = Lab::start("limits.handshake_ms = 50\n").await;
    let mut silent = TcpStream::connect(lab.socket_address()).await.unwrap();
    rest_of(&mut silent).await;
    let mut slow = TcpStream::connect(lab.socket_address()).await.unwrap();
    slow.write_all(b"PRI * HTT").await.unwrap();
    rest_of(&mut slow).await;
    assert_eq!(lab.refused("handshake").await, 2.0);
}

#[tokio::test]
async fn a_connection_without_calls_is_closed() {
    let lab = Lab::start("limits.idle_ms = 100\nlimits.drain_ms = 100\n").await;
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (_client, connection) = h2::client::handshake(stream).await.unwrap();
    // GOAWAY, and then the end.
    _ = tokio::time::timeout(PATIENCE, connection).await.expect("the connection ends");
    assert_eq!(lab.refused("idle").await, 1.0);
}

#[tokio::test]
async fn headers_are_limited() {
    let lab = Lab::start("limits.header_bytes = 4096\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let request = |len| {
        let mut request = Request::new(Ask::default());
        request.metadata_mut().insert("x-long", "v".repeat(len).parse().unwrap());
        request
    };
    client.unary(request(3000)).await.unwrap();
    let status = client.unary(request(5000)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("limits.header_bytes"), "{status}");
    assert_eq!(lab.refused("headers").await, 1.0);
    client.unary(request(100_000)).await.expect_err("HTTP/2 refuses it");
    client.unary(request(1)).await.unwrap();
}

#[tokio::test]
async fn messages_are_limited_in_both_directions() {
    let lab = Lab::start("limits.message_bytes = 10000\n").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let sized = |len| Ask { body: vec![1; len], ..Ask::default() };
    client.unary(sized(9_000)).await.unwrap();
    let unary = client.unary(sized(11_000)).await.unwrap_err();
    let asks = futures_util::stream::iter([sized(10), sized(11_000), sized(10)]);
    let stream = client.up(asks).await.unwrap_err();
    let answer = client.unary(Ask { lens: vec![11_000], ..Ask::default() }).await.unwrap_err();
    for status in [unary, stream, answer] {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("limits.message_bytes"), "{status}");
    }
    assert_eq!(lab.refused("message").await, 3.0);
    client.unary(sized(9_000)).await.unwrap();
    drop(attached);
}

/// An endless stream of calls that are reset as soon as they are made.
#[tokio::test]
async fn resets_are_limited() {
    let lab = Lab::start("limits.reset_burst = 20\nlimits.reset_every_ms = 1000000\n").await;
    let attached = lab.attach("default").await;
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut count = 0;
    while !connection.is_finished() {
        let Ok(ready) = client.ready().await else { break };
        client = ready;
        let uri = "http://localhost/tollfree.probe.v1.Probe/Up";
        let request = http::Request::post(uri).header("content-type", "application/grpc").body(()).unwrap();
        let Ok((_answer, mut body)) = client.send_request(request, false) else { break };
        count += 1;
        // Only calls that have begun are the gateway's to count; h2 itself limits the others.
        let begun = tokio::time::Instant::now();
        while attached.probe.begun.load(Ordering::SeqCst) < count && !connection.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "call {count} does not begin");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        body.send_reset(h2::Reason::CANCEL);
        assert!(count < 1000, "the connection is never closed");
    }
    assert!(count > 20, "no limit is that low: {count}");
    assert_eq!(lab.refused("resets").await, 1.0);
    assert!(lab.health("").await.is_ok(), "others go on");
}

#[tokio::test]
async fn streams_are_limited() {
    let lab = Lab::start("limits.streams = 2\n").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    // A client that has not heard of the limit yet may go beyond it, and is refused by HTTP/2.
    client.unary(Ask::default()).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let mut client = client.clone();
        calls.spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    }
    let mut most = 0;
    let begun = tokio::time::Instant::now();
    while !calls.is_empty() {
        most = most.max(attached.probe.live.load(Ordering::SeqCst));
        attached.probe.gate.notify_one();
        if let Ok(Some(call)) = tokio::time::timeout(Duration::from_millis(5), calls.join_next()).await {
            call.unwrap().unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "calls wait in vain");
    }
    assert!((1..=2).contains(&most), "{most} at once");
}

#[tokio::test]
async fn old_connections_are_left_without_a_failed_call() {
    let lab = Lab::start("limits.age_ms = 500\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"age\"}", |count| count >= 1.0).await;
    // It waits on the old connection, or on the next one if the machine was too slow for that.
    attached.probe.gate.notify_one();
    call.await.unwrap().unwrap();
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
    lab.client().await.unary(Ask::default()).await.unwrap();
}

/// The shortest ring and area that there are: large messages go through them in pieces.
#[tokio::test]
async fn a_profile_with_short_buffers_carries_large_messages_all_the_same() {
    let lab = Lab::start("profile.ring_bytes = 4096\nprofile.area_bytes = 65536\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for len in [10, 60_000, 2_000_000] {
        let answer = client.unary(Ask { body: vec![7; len], ..Ask::default() }).await.unwrap().into_inner();
        assert_eq!(answer.body, vec![7; len]);
    }
    assert_eq!(lab.figure("tollfree_ring_bytes").await, 4096.0);
}
