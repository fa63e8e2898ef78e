//! A service made by hand, in the form of a generated one, that panics before it has returned anything.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tollfree::{Channel, Server};
use tollfree_stubs::greeter::HelloRequest;
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

/// Its second call panics; the first is answered after that.
#[derive(Clone, Default)]
struct Rash {
    calls: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
}

impl NamedService for Rash {
    const NAME: &'static str = "tollfree.greeter.v1.Greeter";
}

impl Service<http::Request<Body>> for Rash {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        assert_ne!(self.calls.fetch_add(1, Ordering::SeqCst), 1, "it is the second call");
        let go_on = self.go_on.clone();
        Box::pin(async move {
            go_on.notified().await;
            Ok(Status::already_exists("the first call's answer").into_http())
        })
    }
}

#[tokio::test]
async fn a_service_that_panics_at_once_harms_only_its_call() {
    let uri = format!("shm-abstract:tollfree-rash-{}", std::process::id());
    let rash = Rash::default();
    let (server, address) = (Server::builder().add_service(rash.clone()), uri.clone());
    let serving = tokio::spawn(async move { server.serve(&address).await });
    let channel = loop {
        match Channel::connect(uri.clone()).await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let mut client = GreeterClient::new(channel);
    let mut other = client.clone();
    let first = tokio::spawn(async move { other.hello(HelloRequest::default()).await });
    while rash.calls.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let status = client.hello(HelloRequest::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
    rash.go_on.notify_one();
    // In the same session, which the panic has not ended.
    assert_eq!(first.await.unwrap().unwrap_err().code(), Code::AlreadyExists);
    serving.abort();
}
