//! What compressed messages may cost a gateway that inflates and deflates them, and calls between processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message as _;
use tollfree_stubs::probe::Ask;
use tonic::Code;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};

use super::compression::{MEMORY, ask, attach, compressed, framed, only_tables, raw, until_taken};
use super::egress::via;
use super::lab::{Lab, PATIENCE};
use super::objects::{objects, until_objects};

const GZIP: [(&str, &str); 2] = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip")];

/// Short, and `len` bytes when it is inflated.
fn bomb(len: usize) -> Vec<u8> {
    let bytes = compressed(&Ask { body: vec![0; len], ..Ask::default() }.encode_to_vec(), Gzip);
    assert!(bytes.len() < len / 500, "{} bytes", bytes.len());
    framed(1, &bytes)
}

/// Looks at what calls hold while `calls` are made, which is to be within the limit. The most that was seen.
async fn watched(lab: &Lab, limit: f64, calls: impl Future<Output = ()>) -> f64 {
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = async {
        let mut most = 0_f64;
        while !is_over.load(Ordering::SeqCst) {
            most = most.max(lab.figure(MEMORY).await);
        }
        most
    };
    let (most, ()) = tokio::join!(watch, async {
        calls.await;
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(most <= limit, "{most} bytes are held; {limit} may be");
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_ends_at_the_limit_of_messages_and_others_go_on() {
    let (lab, backends) = attach("limits.message_bytes = 1000000\n", &[Gzip]).await;
    let mut client = lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    // Made once: that takes longer than all calls with it.
    let bomb = bomb(100_000_000);
    for (nth, method) in (1..).zip(["Unary", "Down", "Up", "Both"]) {
        until_taken(&lab, &backends, method, 1).await;
        let came = raw(&lab, method, &GZIP, bomb.clone()).await;
        assert_eq!(came.status.code(), Code::ResourceExhausted, "{method}: {}", came.status);
        assert!(came.status.message().contains("limits.message_bytes"), "{method}: {}", came.status);
        assert_eq!(lab.refused("message").await, f64::from(nth), "{method}");
        client.unary(ask(900_000)).await.unwrap();
    }
    lab.until_figure(MEMORY, only_tables).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_hold_no_more_memory_than_the_limit_and_give_it_back() {
    let limit = 2_000_000.0;
    let (lab, backends) = attach("limits.memory_bytes = 2000000\n", &[Gzip]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    watched(&lab, limit, async {
        for _ in 0..5 {
            let bombs = (0..8).map(|_| raw(&lab, "Unary", &GZIP, bomb(3_000_000)));
            for came in futures_util::future::join_all(bombs).await {
                assert_eq!(came.status.code(), Code::ResourceExhausted, "{}", came.status);
                assert!(came.status.message().contains("limits.memory_bytes"), "{}", came.status);
            }
        }
    })
    .await;
    assert_eq!(lab.refused_memory().await, 40.0);
    lab.until_figure(MEMORY, only_tables).await;
    let mut client = lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    client.unary(ask(500_000)).await.unwrap();
    lab.until_figure(MEMORY, only_tables).await;
}

/// What is inflated counts as long as its call may go to another backend connection, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn inflated_messages_are_charged_while_they_exist() {
    let (lab, backends) = attach("", &[Gzip]).await;
    until_taken(&lab, &backends, "Up", 1).await;
    let (sender, asks) = tokio::sync::mpsc::channel(4);
    let mut client = lab.client().await.send_compressed(Gzip);
    let call =
        tokio::spawn(async move { client.up(tokio_stream::wrappers::ReceiverStream::new(asks)).await });
    let before = backends.payloads.counts().received_objects;
    sender.send(Ask { body: vec![1; 300_000], ..Ask::default() }).await.unwrap();
    lab.until_figure(MEMORY, |bytes| (300_000.0..320_000.0).contains(&bytes)).await;
    // The first is kept until an answer begins; those behind it are not.
    for _ in 0..3 {
        sender.send(Ask { body: vec![1; 200_000], ..Ask::default() }).await.unwrap();
    }
    let began = tokio::time::Instant::now();
    while backends.payloads.counts().received_objects < before + 4 {
        assert!(began.elapsed() < PATIENCE, "they don't reach the handler");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    lab.until_figure(MEMORY, |bytes| (300_000.0..320_000.0).contains(&bytes)).await;
    drop(sender);
    assert_eq!(call.await.unwrap().unwrap().into_inner().seen_len, 900_000);
    lab.until_figure(MEMORY, only_tables).await;
}

#[tokio::test]
async fn garbage_is_internal_and_counted_and_others_go_on() {
    let (lab, backends) = attach("", &[Gzip, Deflate]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    let mut client = lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    let sound = compressed(&ask(50_000).encode_to_vec(), Gzip);
    let mut wrong_sum = sound.clone();
    let last = wrong_sum.len() - 5;
    wrong_sum[last] ^= 1;
    let lies = [
        ("no stream", b"no stream".to_vec()),
        ("nothing", Vec::new()),
        ("half of it", sound[..sound.len() / 2].to_vec()),
        ("a wrong checksum", wrong_sum),
        ("another encoding", compressed(&ask(50_000).encode_to_vec(), Deflate)),
    ];
    let garbled = objects("default", "request", "garbled");
    for (count, (what, bytes)) in (1..).zip(lies) {
        let came = raw(&lab, "Unary", &GZIP, framed(1, &bytes)).await;
        assert_eq!(came.status.code(), Code::Internal, "{what}: {}", came.status);
        assert!(came.status.message().contains("inflated"), "{what}: {}", came.status);
        assert_eq!(lab.figure(&garbled).await, f64::from(count), "{what}");
        assert!(client.unary(ask(50_000)).await.unwrap().get_ref().body == ask(50_000).body, "{what}");
    }
    // What is sound and no message of its type goes on as bytes, and the handler's side says so.
    let came = raw(&lab, "Unary", &GZIP, framed(1, &compressed(&[0xff; 30], Gzip))).await;
    assert_eq!(came.status.code(), Code::Internal, "{}", came.status);
    assert_eq!(lab.figure(&objects("default", "request", "malformed")).await, 1.0);
    lab.until_figure(MEMORY, only_tables).await;
}

/// An answer is held to the limit before it is deflated.
#[tokio::test]
async fn an_answer_that_is_too_long_is_not_deflated() {
    let (lab, backends) = attach("limits.message_bytes = 100000\n", &[Gzip]).await;
    until_taken(&lab, &backends, "Up", 1).await;
    // All of them in one answer.
    let asks =
        (0..4).flat_map(|_| framed(0, &Ask { body: vec![0; 40_000], ..Ask::default() }.encode_to_vec()));
    let came = raw(&lab, "Up", &GZIP, asks.collect()).await;
    assert_eq!(came.status.code(), Code::ResourceExhausted, "{}", came.status);
    assert!(came.status.message().contains("a message of the answer"), "{}", came.status);
    assert_eq!(lab.refused("message").await, 1.0);
    lab.until_figure(MEMORY, only_tables).await;
}

/// Between processes of a group requests are inflated, too. Answers go as they are: they stay on the host.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_backends_are_inflated_and_answered_plain() {
    let (lab, backends) = attach("limits.message_bytes = 1000000\n", &[Gzip]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    let mut client = via(&lab, "group:default").await.send_compressed(Gzip).accept_compressed(Gzip);
    let before = backends.payloads.counts().received_objects;
    for len in [1, 5000, 500_000] {
        let answer = client.unary(ask(len)).await.unwrap();
        assert!(!answer.metadata().contains_key("grpc-encoding"));
        assert!(answer.get_ref().body == ask(len).body, "{len} bytes");
    }
    assert_eq!(backends.payloads.counts().received_objects, before + 3);
    let long = client.unary(Ask { body: vec![0; 3_000_000], ..Ask::default() }).await.unwrap_err();
    assert_eq!(long.code(), Code::ResourceExhausted, "{long}");
    assert!(long.message().contains("limits.message_bytes"), "{long}");
    assert_eq!(lab.refused("message").await, 1.0);
    assert_eq!(lab.figure(&objects("default", "request", "compressed")).await, 0.0);
    lab.until_figure(MEMORY, only_tables).await;
}
