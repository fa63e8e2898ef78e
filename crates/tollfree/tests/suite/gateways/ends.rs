//! Processes that are killed, stopped for good, or asked to go: what was under way ends, and who is left is found again.

use std::time::Duration;

use tollfree::Channel;
use tollfree::gateway::Dispatch;
use tollfree_testkit::Process;
use tonic::{Code, Status};

use super::{Place, client, in_time, next_attached, server, start_server, until};
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;

/// A call that is answered after the test.
fn held() -> Ask {
    Ask { wait_ms: 600_000, ..Ask::default() }
}

/// A stream that ends after the test.
fn endless() -> Ask {
    Ask { lens: vec![10; 100_000], pause_ms: 10, ..Ask::default() }
}

/// What a stream ends with.
async fn end_of(mut stream: tonic::Streaming<crate::stubs::probe::Answer>) -> Status {
    loop {
        match in_time("the stream ends", stream.message()).await {
            Ok(message) => assert!(message.is_some(), "cut off, not ended"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_killed_server_ends_its_calls_and_its_successor_is_another() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let mut before = None;
    for _ in 0..2 {
        let child = start_server(&place, "orders");
        let backend_connections =
            [next_attached(&mut backend_listener).await, next_attached(&mut backend_listener).await];
        assert_eq!(backend_connections[0].process(), backend_connections[1].process());
        assert_ne!(before.replace(backend_connections[0].process()), Some(backend_connections[0].process()));
        let mut under_way = Vec::new();
        for backend_connection in &backend_connections {
            let mut client = client(backend_connection);
            let mut other = client.clone();
            let stream = in_time("a stream", client.down(endless())).await.unwrap().into_inner();
            let unary = tokio::spawn(async move { other.unary(held()).await.unwrap_err() });
            until("the call is under way", || backend_connection.live_count() == 2).await;
            under_way.push((stream, unary));
        }
        drop(child);
        for ((stream, unary), backend_connection) in under_way.into_iter().zip(&backend_connections) {
            for status in [end_of(stream).await, in_time("the call ends", unary).await.unwrap()] {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("in group orders"), "{status}");
            }
            in_time("the end is told", backend_connection.closed()).await;
            assert!(!backend_connection.is_open());
            // Nobody dials a process that attaches, so waiting for it would never end.
            let mut request = tonic::Request::new(Ask::default());
            request.extensions_mut().insert(tollfree::WaitForReady(true));
            let status =
                in_time("a call to nobody", client(backend_connection).unary(request)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
        }
    }
}

/// The gateway is killed with calls under way in both directions, and started anew, again and again.
#[tokio::test]
async fn a_gateway_that_is_killed_is_found_again_by_all() {
    let place = Place::new();
    let (server, witness) = server();
    let serving = tokio::spawn(server.attach(place.uri()).backend_connections(2).into_future());
    for round in 0..3 {
        let gateway = Process::start("gateways::gateway", &place.path(), "");
        let builder = Channel::builder(place.uri()).via("test://attached").wait_for_ready(true);
        let mut client = ProbeClient::new(builder.connect_lazy().unwrap());
        in_time("a call through the gateway", client.unary(Ask::default())).await.unwrap();
        let stream = in_time("a stream", client.down(endless())).await.unwrap().into_inner();
        let mut other = client.clone();
        let unary = tokio::spawn(async move { other.unary(held()).await.unwrap_err() });
        until("both are under way", || witness.live() == 2).await;
        drop(gateway);
        for status in [end_of(stream).await, in_time("the call ends", unary).await.unwrap()] {
            assert_eq!(status.code(), Code::Unavailable, "{round}: {status}");
            assert!(status.message().contains("gateway.sock"), "{status}");
        }
        until("no handler works for a gateway that is gone", || witness.live() == 0).await;
    }
    assert!(!serving.is_finished(), "a server outlives its gateways");
    serving.abort();
}

#[tokio::test]
async fn a_server_that_is_asked_to_go_answers_what_it_has() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let (server, witness) = server();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let serving = tokio::spawn(server.attach(place.uri()).until(stopped).into_future());
    let backend_connection = next_attached(&mut backend_listener).await;
    let mut client = client(&backend_connection);
    let mut asking = client.clone();
    let (asks, receiver) = tokio::sync::mpsc::channel(1);
    let asked = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let answers = tokio::spawn(async move { asking.both(asked).await.unwrap().into_inner().message().await });
    until("a call is under way", || witness.live() == 1).await;
    drop(stop);
    in_time("the gateway is told", backend_connection.closed()).await;
    let status = in_time("a call too late", client.unary(Ask::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(!serving.is_finished(), "a call is under way");
    asks.send(Ask { body: b"last".to_vec(), ..Ask::default() }).await.unwrap();
    let answer = in_time("the answer", answers).await.unwrap().unwrap().expect("an answer");
    assert_eq!(answer.body, b"last");
    drop(asks);
    in_time("the server has ended", serving).await.unwrap().unwrap();
}

/// One that was there all the time, and one that no gateway has ever let in.
#[tokio::test]
async fn a_server_that_waits_for_a_gateway_can_be_asked_to_go() {
    let place = Place::new();
    for binds in [false, true] {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let serving =
            tokio::spawn(server().0.attach(place.uri()).backend_connections(3).until(stopped).into_future());
        if binds {
            let mut backend_listener = place.backend_listener().await;
            drop(next_attached(&mut backend_listener).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!serving.is_finished());
        drop(stop);
        in_time("the server has ended", serving).await.unwrap().unwrap();
    }
}

/// A call that reaches a server which is leaving, as a whole and as a stream that goes on, is answered by another.
#[tokio::test]
async fn a_call_that_a_leaving_server_turns_away_goes_to_another() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let (leaving, _) = server();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving =
        tokio::spawn(leaving.attach(place.uri()).until(async { drop(stopped.await) }).into_future());
    let first = next_attached(&mut backend_listener).await;
    // A call keeps it from being gone at once.
    let mut held_there = client(&first);
    let under_way = tokio::spawn(async move { held_there.unary(held()).await });
    until("a call is under way", || first.live_count() == 1).await;
    let (staying, witness) = server();
    let other = tokio::spawn(staying.attach(place.uri()).into_future());
    let second = next_attached(&mut backend_listener).await;
    drop(stop);
    in_time("the gateway is told", first.closed()).await;

    for (path, asks) in [("Unary", 1), ("Up", 1), ("Up", 3)] {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let asked = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let body = tonic::body::Body::new(http_body_util::StreamBody::new(asked));
        let path = format!("/tollfree.probe.v1.Probe/{path}");
        let request = http::Request::post(path).header("content-type", "application/grpc");
        let mut dispatch = Dispatch::new(request.body(body).unwrap());
        let message = |len: usize| {
            let bytes =
                tonic_prost::prost::Message::encode_to_vec(&Ask { body: vec![7; len], ..Ask::default() });
            let mut framed = vec![0];
            framed.extend((bytes.len() as u32).to_be_bytes());
            framed.extend(bytes);
            Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from(framed)))
        };
        sender.send(message(1000)).await.unwrap();
        let turned_away = in_time("a refusal", first.hand(&mut dispatch)).await.unwrap_err();
        assert!(turned_away.may_fail_over, "{turned_away:?}");
        let sending = tokio::spawn(async move {
            for _ in 1..asks {
                sender.send(message(1000)).await.unwrap();
            }
        });
        let answer = in_time("an answer", second.hand(&mut dispatch)).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = in_time("its end", http_body_util::BodyExt::collect(body)).await.unwrap();
        let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
        assert_eq!(status.or(parts.headers.get("grpc-status").cloned()).unwrap(), "0");
        assert!(body.to_bytes().len() > 5, "an answer");
        sending.await.unwrap();
    }
    assert_eq!(witness.live(), 0);
    under_way.abort();
    in_time("the server has ended", serving).await.unwrap().unwrap();
    other.abort();
}
