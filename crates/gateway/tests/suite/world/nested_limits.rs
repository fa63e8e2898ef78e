//! The limits of messages and of memory hold for calls of backends by way of the gateway, as bytes and as objects.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectsClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectsServer;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::{Code, Status};

use super::egress::{serve, via};
use super::lab::{Lab, PATIENCE};
use super::nested::{self, Back};

fn refused(status: &Status, key: &str) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains(key), "{status}");
}

fn sized(len: usize) -> Ask {
    Ask { body: vec![1; len], ..Ask::default() }
}

async fn hold_messages_to_their_limit(lab: &Lab, target: &str) {
    let mut client = via(lab, target).await;
    let before = lab.refused("message").await;
    client.unary(sized(9_000)).await.unwrap();
    let unary = client.unary(sized(11_000)).await.unwrap_err();
    let stream = client.up(futures_util::stream::iter([10, 11_000, 10].map(sized))).await.unwrap_err();
    let answer = client.unary(Ask { lens: vec![11_000], ..Ask::default() }).await.unwrap_err();
    let mut answers =
        client.down(Ask { lens: vec![10, 11_000, 10], ..Ask::default() }).await.unwrap().into_inner();
    let second = loop {
        match answers.message().await {
            Ok(answer) => assert_eq!(answer.expect("it doesn't end well").body.len(), 10),
            Err(status) => break status,
        }
    };
    for status in [unary, stream, answer, second] {
        refused(&status, "limits.message_bytes");
    }
    assert_eq!(lab.refused("message").await, before + 4.0);
    client.unary(sized(9_000)).await.unwrap();
}

#[tokio::test]
async fn messages_to_groups_and_to_elsewhere_are_limited_in_both_directions() {
    let (address, _probe) = serve(Server::builder()).await;
    let target = format!("http://{address}");
    let lab =
        Lab::start(&format!("limits.message_bytes = 10000\n[groups.default]\nvia = [\"{target}\"]\n")).await;
    let _attached = lab.attach("default").await;
    hold_messages_to_their_limit(&lab, "group:default").await;
    hold_messages_to_their_limit(&lab, &target).await;
}

/// What a stream that is read slowly holds is charged to the called group, or to the calling one where the call goes elsewhere.
async fn hold_memory_to_its_limit(lab: &Lab, target: &str) {
    let mut client = via(lab, target).await;
    let memory = "tollfree_gateway_memory_bytes{group=\"default\"}";
    let before = lab.refused_memory().await;
    // What is kept of a request until its answer begins, for each of them.
    let mut held = Vec::new();
    for _ in 0..3 {
        let (sender, asks) = mpsc::channel(4);
        let mut client: ProbeClient<Channel> = client.clone();
        let call = tokio::spawn(async move { client.up(ReceiverStream::new(asks)).await });
        sender.send(sized(100_000)).await.unwrap();
        held.push((sender, call));
        // Each with the prefixes of field and message.
        let all = 100_009.0 * held.len() as f64;
        lab.until_figure(memory, |bytes| bytes == all).await;
    }
    let status = client.unary(sized(100_000)).await.unwrap_err();
    refused(&status, "limits.memory_bytes");
    assert!(lab.refused_memory().await > before);
    for (sender, call) in held {
        drop(sender);
        assert_eq!(call.await.unwrap().unwrap().into_inner().seen_len, 100_000);
    }
    lab.until_figure(memory, |bytes| bytes == 0.0).await;
    client.unary(sized(100_000)).await.unwrap();
    lab.until_figure(memory, |bytes| bytes == 0.0).await;
}

#[tokio::test]
async fn memory_that_calls_to_groups_and_to_elsewhere_hold_is_limited() {
    let (address, _probe) = serve(Server::builder()).await;
    let target = format!("http://{address}");
    let lab =
        Lab::start(&format!("limits.memory_bytes = 540000\n[groups.default]\nvia = [\"{target}\"]\n")).await;
    let attached = lab.attach("default").await;
    hold_memory_to_its_limit(&lab, "group:default").await;
    assert_eq!(attached.probe.live.load(Ordering::SeqCst), 0);
    hold_memory_to_its_limit(&lab, &target).await;
}

/// An object is longer than its encoding, which is what is limited: whether a message passes does not depend on its form.
#[tokio::test]
async fn messages_that_are_objects_are_limited_by_their_encoding() {
    let lab = Lab::start("limits.message_bytes = 10000\n").await;
    let service = ObjectsServer::new(Back::default());
    let backends = nested::attach(&lab, "default", Server::builder().add_service(service)).await;
    let channel = nested::via(&lab, "default").await;
    let mut client = ObjectsClient::new(channel.clone());
    let payloads = channel.payloads();
    nested::until_objects(&mut client, &payloads).await;
    let sent = || payloads.counts().sent_objects;
    let (before, long) = (sent(), nested::ask(11_000));
    refused(&client.unary(long).await.unwrap_err(), "limits.message_bytes");
    assert_eq!(sent(), before + 1, "it left as an object");
    // Longer than the limit as an object, and not as bytes: it passes.
    let close = nested::numbers(5_000);
    assert!(close.object().bytes().len() > 10_000);
    client.unary(close).await.unwrap();
    assert_eq!(sent(), before + 2, "so did this");
    let received = backends.payloads.counts().received_objects;
    client.unary(nested::ask(5_000)).await.unwrap();
    assert_eq!(backends.payloads.counts().received_objects, received + 1);
    assert_eq!(lab.refused("message").await, 1.0);
}

/// What objects hold of memory counts, though no body has them.
#[tokio::test]
async fn memory_of_objects_is_limited() {
    let lab = Lab::start("limits.memory_bytes = 700000\n").await;
    let service = ObjectsServer::new(Back::default());
    let _backends = nested::attach(&lab, "default", Server::builder().add_service(service)).await;
    let channel = nested::via(&lab, "default").await;
    let mut client = ObjectsClient::new(channel.clone());
    nested::until_objects(&mut client, &channel.payloads()).await;
    let memory = "tollfree_gateway_memory_bytes{group=\"default\"}";
    // The table of the methods' types stays.
    let table = lab.figure(memory).await;
    assert!(table < 50_000.0, "{table}");
    let (begun, mut waiting) = (Instant::now(), Vec::new());
    let status = loop {
        // Not what is held now and this: a message that is on its way counts twice for a moment.
        let held = table + 100_000.0 * (waiting.len() + 1) as f64;
        let mut client = client.clone();
        let mut call = tokio::spawn(async move { client.unary(nested::waiting(100_000)).await.map(drop) });
        let ended = loop {
            assert!(begun.elapsed() < PATIENCE, "a call neither holds anything nor ends");
            match tokio::time::timeout(Duration::from_millis(5), &mut call).await {
                Ok(ended) => break Some(ended.unwrap().unwrap_err()),
                Err(_) if lab.figure(memory).await >= held => break None,
                Err(_) => {}
            }
        };
        match ended {
            Some(status) => break status,
            None => waiting.push(call),
        }
        assert!(waiting.len() < 7, "more than the limit is held");
    };
    refused(&status, "limits.memory_bytes");
    assert!(!waiting.is_empty());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    lab.until_figure(memory, |bytes| bytes == table).await;
    while let Err(status) = client.unary(nested::ask(100_000)).await {
        assert!(begun.elapsed() < PATIENCE, "{status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
