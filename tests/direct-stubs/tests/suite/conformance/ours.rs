//! Which way calls take, and what only these stubs could get wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollfree::{Generated as _, Way as CallWay};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status};

use super::lab::{Lab, Way, until};
use super::probe::{Probe, Witness, lines};
use crate::stubs::greeter::greeter_client::GreeterClient;
use crate::stubs::greeter::greeter_server::{Greeter, GreeterServer};
use crate::stubs::greeter::{HelloReply, HelloRequest};
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use crate::stubs::probe::{Ask, Fault};

#[tokio::test]
async fn clients_say_which_way_their_calls_take() {
    let lab = Lab::start(Way::Shm).await;
    let pass = |request: Request<()>| Ok::<_, Status>(request);
    assert_eq!(lab.client().way(), CallWay::Direct);
    assert_eq!(ProbeClient::with_interceptor(lab.channel.clone(), pass).way(), CallWay::Direct);
    let origin = "http://host".parse().unwrap();
    assert_eq!(ProbeClient::with_origin(lab.channel.clone(), origin).way(), CallWay::Direct);
    let http = |way: CallWay, word: &str| {
        assert!(matches!(way, CallWay::Http(reason) if reason.contains(word)), "{way}");
    };
    http(lab.client().send_compressed(Gzip).way(), "compression");
    http(lab.client().accept_compressed(Gzip).way(), "compression");
    let origin = "http://host/prefix".parse().unwrap();
    http(ProbeClient::with_origin(lab.channel.clone(), origin).way(), "origin");
    let layered = tower::ServiceBuilder::new().concurrency_limit(1).service(lab.channel.clone());
    let mut layered = ProbeClient::new(layered);
    http(layered.way(), "channel alone");
    assert!(layered.unary(Ask::default()).await.is_ok());
    let by_hand = tonic::service::interceptor::InterceptedService::new(lab.channel.clone(), pass);
    let mut by_hand = ProbeClient::new(by_hand);
    http(by_hand.way(), "channel alone");
    assert!(by_hand.unary(Ask::default()).await.is_ok());
}

/// As tonic's generated clients connect.
#[tokio::test]
async fn clients_connect_by_themselves() {
    let lab = Lab::start(Way::Shm).await;
    let mut client = ProbeClient::connect(lab.uri.clone()).await.unwrap();
    assert!(client.unary(Ask::default()).await.is_ok());
    let mut client = ProbeClient::connect_lazy(&lab.uri).unwrap();
    assert_eq!(client.way(), CallWay::Direct);
    assert!(client.unary(Ask::default()).await.is_ok());
    let settled = tollfree::Channel::builder(&*lab.uri).timeout(Duration::from_millis(20));
    let mut client = ProbeClient::connect(settled).await.unwrap();
    let status = client.unary(Ask { wait_ms: 60_000, ..Ask::default() }).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let error = ProbeClient::connect("shm:///nobody/here").await.unwrap_err();
    assert!(error.to_string().contains("/nobody/here"), "{error}");
}

/// What tonic's stubs see of HTTP/2 at both ends, these show where it is asked for.
#[tokio::test]
async fn details_of_http_are_shown_where_they_are_asked_for() {
    use tollfree_stubs::probe as theirs;
    let lab = Lab::with(Way::Shm, tollfree::Server::builder().http_details(true), |probe| probe).await;
    let channel = tollfree::Channel::builder(&*lab.uri).http_details(true).connect().await.unwrap();
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    for pairs in [&[][..], &[("x-head-a", "1"), ("user-agent", "mine")][..]] {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut request = Request::new(Ask::default());
            for (name, value) in pairs {
                request.metadata_mut().insert(*name, value.parse().unwrap());
            }
            let mut client = ProbeClient::new(channel.clone());
            assert_eq!(client.way(), CallWay::Direct);
            let answer = client.unary(request).await.unwrap();
            let shown = lines(answer.metadata());
            seen.push((sorted(answer.into_inner().headers), sorted(shown)));
        }
        let mut request = Request::new(theirs::Ask::default());
        for (name, value) in pairs {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        let mut client = theirs::probe_client::ProbeClient::new(channel.clone());
        let answer = client.unary(request).await.unwrap();
        let shown = lines(answer.metadata());
        let expected = (sorted(answer.into_inner().headers), sorted(shown));
        assert!(expected.0.iter().any(|line| line.starts_with("user-agent: ")), "{expected:?}");
        assert!(expected.1.contains(&"grpc-status: 0".to_owned()), "{expected:?}");
        assert!(seen.iter().all(|seen| *seen == expected), "{seen:?} and not {expected:?}");
    }
}

/// tonic's stubs on one end, these on the other.
#[tokio::test]
async fn both_kinds_of_stubs_talk_to_each_other() {
    use tollfree_stubs::probe as theirs;
    let lab = Lab::start(Way::Shm).await;
    let mut client = theirs::probe_client::ProbeClient::new(lab.channel.clone());
    let ask = theirs::Ask { body: vec![7; 100_000], ..theirs::Ask::default() };
    let answer = client.unary(ask).await.unwrap().into_inner();
    assert_eq!(answer.body, [7; 100_000]);
    assert!(answer.headers.is_empty(), "served directly: {:?}", answer.headers);
    assert_eq!(answer.peer_pid, std::process::id());
    let fault = Some(theirs::Fault { code: 5, message: "no".into(), ..theirs::Fault::default() });
    let status = client.unary(theirs::Ask { fault, ..theirs::Ask::default() }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no"));
}

/// Says OK, with as many bytes of metadata as it is told.
struct Verbose;

#[tonic::async_trait]
impl Greeter for Verbose {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let len = request.into_inner().name.parse().map_err(|_| Status::invalid_argument("no number"))?;
        let value = "m".repeat(len).parse().map_err(|_| Status::internal("no value"))?;
        let mut response = Response::new(HelloReply { text: String::new() });
        response.metadata_mut().insert("x-long", value);
        Ok(response)
    }
}

/// On a method's first call, and on those that are answered where they were accepted.
#[tokio::test]
async fn an_answer_with_too_much_metadata_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let serving = uri.clone();
    let server = tokio::spawn(async move {
        tollfree::Server::builder().add_service(GreeterServer::new(Verbose)).serve(&serving).await
    });
    let channel = loop {
        match tollfree::Channel::connect(&*uri).await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    let mut client = GreeterClient::new(channel);
    for _ in 0..50 {
        let status = client.hello(HelloRequest { name: "20000".into() }).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("metadata"), "{status}");
        assert!(client.hello(HelloRequest { name: "10".into() }).await.is_ok());
    }
    server.abort();
}

#[tokio::test]
async fn a_panic_in_an_interceptor_or_a_handler_harms_one_call() {
    let witness = Witness::default();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let guarded = ProbeServer::with_interceptor(Probe::new(witness.clone()), move |request: Request<()>| {
        assert!(counted.fetch_add(1, Ordering::SeqCst) != 1, "as asked");
        Ok(request)
    });
    let lab = Lab::serve(Way::Shm, tollfree::Server::builder().add_service(guarded), witness).await;
    let mut client = lab.client();
    assert!(client.unary(Ask::default()).await.is_ok());
    for fault in [None, Some(Fault { panic: true, ..Fault::default() })] {
        let status = client.unary(Ask { fault, ..Ask::default() }).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
    }
    assert!(client.unary(Ask::default()).await.is_ok());
    assert_eq!((calls.load(Ordering::SeqCst), lab.witness.begun()), (4, 3));
    until("nothing is left of the handlers", || lab.witness.live() == 0).await;
}

#[tokio::test]
async fn interceptors_hand_on_extensions_and_timeouts() {
    let witness = Witness::default();
    #[derive(Clone)]
    struct Late;
    let guarded = ProbeServer::with_interceptor(Probe::new(witness.clone()), |mut request: Request<()>| {
        assert!(request.extensions().get::<UdsConnectInfo>().is_some());
        request.extensions_mut().insert(Late);
        let method = request.metadata().get("x-head-method").cloned();
        let method = method.ok_or_else(|| Status::unauthenticated("nobody said which method"))?;
        request.metadata_mut().insert("x-head-seen", method);
        Ok(request)
    });
    let lab = Lab::serve(Way::Shm, tollfree::Server::builder().add_service(guarded), witness).await;
    let mut client = ProbeClient::with_interceptor(lab.channel.clone(), |mut request: Request<()>| {
        let method = request.extensions().get::<tonic::GrpcMethod<'_>>().expect("as tonic says it");
        let method = format!("{}/{}", method.service(), method.method());
        request.metadata_mut().insert("x-head-method", method.parse().expect("ascii"));
        request.set_timeout(Duration::from_millis(50));
        Ok(request)
    });
    let answer = client.unary(Ask::default()).await.unwrap();
    assert_eq!(answer.metadata().get("x-head-seen").unwrap(), "tollfree.probe.v1.Probe/Unary");
    assert_eq!(answer.get_ref().peer_pid, std::process::id());
    let status = client.unary(Ask { wait_ms: 60_000, ..Ask::default() }).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    until("the handler is dropped", || lab.witness.live() == 0).await;
    let status = lab.client().unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[tokio::test]
async fn a_handle_cancels_a_call() {
    let lab = Lab::start(Way::Shm).await;
    let mut request = Request::new(Ask { wait_ms: 60_000, ..Ask::default() });
    let handle = request.cancellation_handle();
    let mut client = lab.client();
    let call = tokio::spawn(async move { client.unary(request).await });
    // Such a call goes the way that tonic's own client takes, which heeds the handle.
    handle.cancel();
    let status =
        tokio::time::timeout(Duration::from_secs(10), call).await.expect("ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "{status}");
    until("no handler is left", || lab.witness.live() == 0).await;
}
