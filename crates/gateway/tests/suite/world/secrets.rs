//! What those are told who call through a gateway when it, or a backend connection, ends their calls: a code, what to do, and nothing of the inside.

use bytes::Bytes;
use tollfree_driver_tokio::{OutgoingMessage, now_ns};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use super::egress::via;
use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::raw::{self, Deed, backend_connection, headers, message, pairs, trailers};

const GROUP: &str = "hush-hush";

/// Whether words say nothing of sockets, processes, users and groups in here.
fn tells_nothing(words: &str, what: &str) {
    let pid = std::process::id().to_string();
    for secret in
        ["shm", "sock", "/run", "/tmp", "127.0.0.1", "4711", "backend_connection", "pid", "uid", GROUP, &pid]
    {
        assert!(!words.contains(secret), "{what}: {secret} in {words:?}");
    }
    assert!(!words.is_empty(), "{what}: no words at all");
}

/// What a call ends with, answers and all.
async fn ended<C>(client: &ProbeClient<C>, is_unary: bool) -> Status
where
    C: tonic::client::GrpcService<tonic::body::Body> + Clone,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    C::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let mut client = client.clone();
    let ended = async {
        if is_unary {
            return client.unary(Ask::default()).await.map(drop);
        }
        let mut answers = client.down(Ask::default()).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok(())
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the call ends").expect_err("it has failed")
}

/// Each way in which a backend connection leaves a call without an answer, and the code of it.
fn deeds() -> Vec<(&'static str, Deed, Code)> {
    let part = || message(OutgoingMessage::new(Bytes::from_static(b""), false));
    let begun = || headers(Bytes::new());
    let mut deeds = vec![
        ("a cancelled stream", Deed::Cancel(vec![begun(), part()], 9), Code::FailedPrecondition),
        ("a session that ends", Deed::Die(vec![]), Code::Unavailable),
        ("a session that ends in mid-answer", Deed::Die(vec![begun(), part()]), Code::Unavailable),
        (
            "an object",
            Deed::Say(vec![begun(), message(OutgoingMessage::object(Bytes::from_static(&[7; 64]).into()))]),
            Code::Internal,
        ),
        ("metadata", Deed::Say(vec![headers(pairs(5_000, "b3", b""))]), Code::ResourceExhausted),
        (
            "metadata at the end",
            Deed::Say(vec![begun(), trailers(0, pairs(5_000, "b3", b""))]),
            Code::ResourceExhausted,
        ),
    ];
    for code in [1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 14, 16] {
        deeds.push(("a cancelled call", Deed::Cancel(vec![], code), Code::from_i32(code.into())));
    }
    deeds
}

#[tokio::test]
async fn whatever_a_backend_connection_does_to_a_call_its_client_learns_nothing_of_the_inside() {
    let lab = Lab::start(&format!("[groups.{GROUP}]\n")).await;
    let (world, inside) = (lab.client().await, via(&lab, &format!("group:{GROUP}")).await);
    for (what, deed, code) in deeds() {
        for (from_world, is_unary) in [(true, true), (true, false), (false, true), (false, false)] {
            // A session carries what HTTP/2 does not.
            let deed = deed.clone();
            let backend_connection = backend_connection(&lab, GROUP, move |_| deed.clone()).await;
            if !from_world && what.starts_with("metadata") {
                backend_connection.abort();
            } else {
                let status = match from_world {
                    true => ended(&world, is_unary).await,
                    false => ended(&inside, is_unary).await,
                };
                assert_eq!(status.code(), code, "{what}, unary: {is_unary}, world: {from_world}: {status}");
                tells_nothing(status.message(), what);
                backend_connection.abort();
            }
            lab.until_figure(&backend_connections_of(GROUP), |count| count == 0.0).await;
        }
    }
}

/// What the gateway can't hand on, and what comes to no answer in time.
#[tokio::test]
async fn what_can_not_fail_over_is_said_without_the_inside() {
    let lab = Lab::start(&format!("limits.header_bytes = 40000\n[groups.{GROUP}]\n")).await;
    let _backend_connection = backend_connection(&lab, GROUP, |_| Deed::Nothing).await;
    let channel = tonic::transport::Endpoint::try_from(lab.uri.clone()).unwrap().connect().await.unwrap();
    let mut client = ProbeClient::new(channel.clone());
    let mut long = Request::new(Ask::default());
    long.metadata_mut().insert("x-long", MetadataValue::try_from("v".repeat(15_500)).unwrap());
    let status = client.unary(long).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("15360"), "{status}");
    tells_nothing(status.message(), "long metadata");

    let path = format!("/{}/{}", super::lab::PROBE, "M".repeat(3_000));
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Ask, Ask>::default();
    let status = grpc.unary(Request::new(Ask::default()), path.parse().unwrap(), codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    tells_nothing(status.message(), "a long path");

    let session = raw::via(&lab, &format!("group:{GROUP}")).await;
    let until = now_ns() + 100_000_000;
    let (code, words) = raw::call(&session, "Unary", Bytes::new(), Vec::new(), until).await;
    assert_eq!(code, Code::DeadlineExceeded, "{words}");
    tells_nothing(&words, "a deadline");
}

/// A server elsewhere that nobody serves, and one that hangs up on each connection.
#[tokio::test]
async fn what_is_wrong_elsewhere_is_said_without_addresses() {
    let closed = tollfree_testkit::free_address();
    let hangs_up = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = hangs_up.local_addr().unwrap().port();
    let accepting = tokio::spawn(async move { while hangs_up.accept().await.is_ok() {} });
    let targets = [format!("http://localhost:{}", closed.port()), format!("http://localhost:{port}")];
    let lab = Lab::start(&format!("[groups.{GROUP}]\nvia = {targets:?}\n")).await;
    for target in &targets {
        let client = via(&lab, target).await;
        for is_unary in [true, false] {
            let status = ended(&client, is_unary).await;
            assert_eq!(status.code(), Code::Unavailable, "{target}: {status}");
            tells_nothing(status.message(), target);
        }
    }
    accepting.abort();
}
