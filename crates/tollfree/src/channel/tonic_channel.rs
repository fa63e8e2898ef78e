//! A channel with tonic's own types in its answers, for code that names them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::channel::{CallFuture, Channel};

/// A [`Channel`] that answers with `http::Response<tonic::body::Body>`, as `tonic::transport::Channel` does: for middleware
/// that names this type. It takes one allocation a call more than the channel itself.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = tollfree::Channel::connect("shm:///run/app/greeter.sock").await?.into_tonic();
/// // let mut client = GreeterClient::new(MyMiddleware::new(channel));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TonicChannel(Channel);

impl Channel {
    /// This channel with tonic's own type of response.
    pub fn into_tonic(self) -> TonicChannel {
        TonicChannel(self)
    }
}

impl Service<Request<Body>> for TonicChannel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = TonicFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> TonicFuture {
        TonicFuture(self.0.call(request))
    }
}

/// A call of a [`TonicChannel`] under way.
pub struct TonicFuture(CallFuture);

impl fmt::Debug for TonicFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TonicFuture").finish_non_exhaustive()
    }
}

impl Future for TonicFuture {
    type Output = Result<Response<Body>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.0).poll(cx))?;
        Poll::Ready(Ok(response.map(Body::new)))
    }
}
