//! Methods of generated servers as services, for tonic's own layers to call.

use std::task::{Context, Poll};

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::metadata::{GRPC, GRPC_STATUS};

/// A function that takes requests, as a service.
pub struct Handler<F>(F);

/// Makes a service of a function.
pub fn handler<F>(handle: F) -> Handler<F> {
    Handler(handle)
}

impl<F, R, Fut, A> Service<R> for Handler<F>
where
    F: Fn(R) -> Fut,
    Fut: Future<Output = Result<A, Status>>,
{
    type Response = A;
    type Error = Status;
    type Future = Fut;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Fut {
        (self.0)(request)
    }
}

/// What a generated server answers to a method that it doesn't have.
pub fn unimplemented() -> http::Response<Body> {
    let mut response = http::Response::new(Body::default());
    let headers = response.headers_mut();
    headers.insert(GRPC_STATUS, HeaderValue::from(Code::Unimplemented as i32));
    headers.insert(CONTENT_TYPE, GRPC);
    response
}
