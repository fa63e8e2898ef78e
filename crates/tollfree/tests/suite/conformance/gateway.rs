//! The least that a gateway can be: calls that come in by one session go out by another.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use tollfree::Channel;
use tollfree::gateway::{Accepted, BackendListener, Limits};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

/// Hands calls to the process that has attached last.
#[derive(Clone, Default)]
struct Inward(Arc<Mutex<Option<Channel>>>);

impl Service<Request<Body>> for Inward {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let channel = self.0.lock().unwrap().clone();
        Box::pin(async move {
            let mut channel = channel.ok_or_else(|| Status::unavailable("nobody has attached"))?;
            Ok(channel.call(request).await?.map(Body::new))
        })
    }
}

/// Runs for as long as its test. Channels are served once somebody has attached.
pub(crate) async fn run(uri: String) {
    let mut listener = BackendListener::bind(&uri, Limits::default()).await.unwrap();
    let inward = Inward::default();
    let mut early = Vec::new();
    while let Some(arrival) = listener.accept().await {
        match arrival {
            Accepted::Attached(attached) => *inward.0.lock().unwrap() = Some(attached.channel()),
            Accepted::Session(session) => early.push(session),
            _ => unreachable!("there are no others"),
        }
        if inward.0.lock().unwrap().is_some() {
            for session in early.drain(..) {
                tokio::spawn(session.serve(inward.clone(), std::future::pending()));
            }
        }
    }
}
