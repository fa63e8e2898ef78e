//! Objects that nobody has asked for: their bytes are a message to nobody, wherever they come from and go to.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tollfree::{Channel, Server};
use tollfree_driver_tokio::{Attachment, Config, Listener, OutgoingMessage};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use super::egress::{serve, via};
use super::lab::{Lab, PROBE};
use super::nested::ask;
use super::raw::{self, Deed, backend_connection, headers, message, pairs, trailers, whole};

/// A service that reads a request's body as it is, as a proxy does.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Vec<u8>>>);

impl tonic::server::NamedService for Reader {
    const NAME: &'static str = PROBE;
}

impl Service<http::Request<Body>> for Reader {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let read = self.0.clone();
        Box::pin(async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                match frame.map(http_body::Frame::into_data) {
                    Ok(Ok(data)) => read.lock().extend_from_slice(&data),
                    Ok(Err(_)) => {}
                    Err(status) => return Ok(status.into_http()),
                }
            }
            Ok(Status::unimplemented("it only reads").into_http())
        })
    }
}

fn object(len: usize) -> Bytes {
    Bytes::copy_from_slice(ask(len).object().bytes())
}

fn of(object: &Bytes) -> OutgoingMessage {
    OutgoingMessage::object(object.clone().into())
}

fn refused(status: &Status, what: &str) {
    assert_eq!(status.code(), Code::Internal, "{what}: {status}");
    assert!(status.message().contains("flat message"), "{what}: {status}");
}

/// In one frame, in one that comes after others, and in several.
#[tokio::test]
async fn an_object_that_a_backend_connection_sends_unasked_never_goes_out() {
    let lab = Lab::start("").await;
    for len in [50, 100_000] {
        let object = object(len);
        let said = object.clone();
        let backend_connection =
            backend_connection(&lab, "default", move |call| match call.path.ends_with(b"Unary") {
                true => Deed::Say(vec![whole(of(&said))]),
                false => {
                    let answer = [headers(Bytes::new()), message(of(&said)), trailers(0, Bytes::new())];
                    Deed::Say(answer.into())
                }
            })
            .await;
        let mut world = lab.client().await;
        let mut inside = via(&lab, "group:default").await;
        refused(&world.unary(Ask::default()).await.unwrap_err(), "unary");
        refused(&inside.unary(Ask::default()).await.unwrap_err(), "unary by way of the gateway");
        let stream = async { world.down(Ask::default()).await?.into_inner().message().await };
        refused(&stream.await.unwrap_err(), "stream");
        let stream = async { inside.down(Ask::default()).await?.into_inner().message().await };
        refused(&stream.await.unwrap_err(), "stream by way of the gateway");
        assert!(!backend_connection.is_finished(), "its session goes on");
        backend_connection.abort();
        lab.until_figure(&super::lab::backend_connections_of("default"), |count| count == 0.0).await;
    }
}

/// To a handler that reads bodies as they are, to a stub, with objects and without, and to elsewhere.
#[tokio::test]
async fn an_object_that_a_caller_sends_unasked_reaches_nobody() {
    let (address, elsewhere) = serve(Server::builder()).await;
    let target = format!("http://{address}");
    let groups = format!("[groups.default]\nvia = [\"{target}\"]\n");
    for more in ["", "backends.objects = false\n"] {
        let lab = Lab::start(&format!("{more}{groups}")).await;
        let reader = Reader::default();
        let server = Server::builder().add_service(reader.clone());
        let attaching = server.attach(lab.backends()).group("default");
        let backends = tokio::spawn(attaching.into_future());
        lab.until_figure(&super::lab::backend_connections_of("default"), |count| count == 1.0).await;
        for to in ["group:default", &target] {
            let session = raw::via(&lab, to).await;
            for (method, len) in [("Unary", 50), ("Up", 50), ("Unary", 100_000)] {
                let messages = vec![of(&object(len))];
                let (code, words) = raw::call(&session, method, Bytes::new(), messages, 0).await;
                assert_eq!(code, Code::Internal, "{more}{to}, {method}: {words}");
                // HTTP/2 has no words for a request that breaks off.
                let is_told = to != "group:default" || words.contains("flat message");
                assert!(is_told, "{more}{to}, {method}: {words}");
            }
            assert!(session.is_open());
        }
        assert!(reader.0.lock().is_empty(), "{more}nothing of it was read");
        backends.abort();
    }
    // The handler of a stream begins before a message comes.
    assert!(elsewhere.begun.load(Ordering::SeqCst) <= 2);
}

#[tokio::test]
async fn an_object_that_a_client_sends_unasked_is_no_bytes_to_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let reader = Reader::default();
    let serving = tokio::spawn(Server::builder().add_service(reader.clone()).serve(uri.clone()));
    let session = loop {
        if let Ok(session) = Attachment::connect(&uri.parse().unwrap(), &Config::default()).await {
            break session;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    };
    for len in [50, 100_000] {
        let (code, words) =
            raw::call(&session, "Unary", pairs(1, "x-a", b"1"), vec![of(&object(len))], 0).await;
        assert!(code == Code::Internal && words.contains("flat message"), "{code:?}: {words}");
    }
    assert!(reader.0.lock().is_empty());
    serving.abort();
}

#[tokio::test]
async fn an_object_that_a_server_sends_unasked_is_no_bytes_to_a_client() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("shm://{}", directory.path().join("s.sock").display());
    let mut listener = Listener::bind(&address.parse().unwrap(), Config::default()).unwrap();
    let object = object(50);
    let serving = tokio::spawn(async move {
        let session = listener.accept().await.unwrap();
        loop {
            let mut place = None;
            poll_fn(|cx| session.poll_accept(cx, &mut place)).await.unwrap();
            let call = place.unwrap().into_call(true);
            let mut outgoing = whole(of(&object));
            drop(poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await);
        }
    });
    let mut channel = Channel::connect(address).await.unwrap();
    refused(&ProbeClient::new(channel.clone()).unary(Ask::default()).await.unwrap_err(), "a stub");
    // One who reads bodies as they are.
    let request = http::Request::post("http://localhost/tollfree.probe.v1.Probe/Unary").body(Body::empty());
    let failed = match channel.call(request.unwrap()).await {
        Err(status) => status,
        Ok(response) => response.into_body().collect().await.expect_err("its bytes are no message"),
    };
    refused(&failed, "a body");
    serving.abort();
}
