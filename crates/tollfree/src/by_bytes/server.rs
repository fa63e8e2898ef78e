//! The server's end.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tower_service::Service;

use crate::by_bytes::{Method, trailers};
use crate::message::as_bytes::AsBytes;
use crate::message::codec::codec;
use crate::message::streaming::Streaming;
use crate::server::typed::streams::streaming;
use crate::typed::Named as _;

/// Serves calls of any method and any kind with one handler, which is given the method, the request's metadata and its messages, and gives
/// metadata and the messages of the answer: one, for methods that have one. An error among them ends the call with that status; trailing metadata of a
/// call that ends well are given by [`Trailers`](crate::by_bytes::Trailers).
///
/// The request of a call that its client has left ends with an error. A handler that passes messages on must not take that for their end:
/// [`Client::pass_on`](crate::by_bytes::Client::pass_on) does not.
///
/// Messages are at most 4 MiB long when they come, unless this is told otherwise; a longer one ends its call with OUT_OF_RANGE, as in generated
/// servers.
pub struct AnyMethod<H> {
    handler: Arc<H>,
    decoding_len_max: Option<usize>,
    encoding_len_max: Option<usize>,
    accept: EnabledCompressionEncodings,
    send: EnabledCompressionEncodings,
}

impl<H> Clone for AnyMethod<H> {
    fn clone(&self) -> AnyMethod<H> {
        AnyMethod { handler: self.handler.clone(), ..*self }
    }
}

impl<H> fmt::Debug for AnyMethod<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyMethod").finish_non_exhaustive()
    }
}

impl<H, Fut, S> AnyMethod<H>
where
    H: Fn(Method, Request<Streaming<Bytes>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    S: Stream<Item = Result<Bytes, Status>> + Send + 'static,
{
    /// Served by this handler.
    pub fn new(handler: H) -> AnyMethod<H> {
        let (accept, send) = Default::default();
        AnyMethod { handler: Arc::new(handler), decoding_len_max: None, encoding_len_max: None, accept, send }
    }

    /// Limits messages that come, in bytes.
    pub fn max_decoding_message_size(self, limit: usize) -> AnyMethod<H> {
        AnyMethod { decoding_len_max: Some(limit), ..self }
    }

    /// Limits messages that go, in bytes.
    pub fn max_encoding_message_size(self, limit: usize) -> AnyMethod<H> {
        AnyMethod { encoding_len_max: Some(limit), ..self }
    }

    /// Accepts compressed requests. They come inflated.
    pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> AnyMethod<H> {
        self.accept.enable(encoding);
        self
    }

    /// Compresses answers for clients that accept it.
    pub fn send_compressed(mut self, encoding: CompressionEncoding) -> AnyMethod<H> {
        self.send.enable(encoding);
        self
    }
}

impl<H, Fut, S> Service<http::Request<Body>> for AnyMethod<H>
where
    H: Fn(Method, Request<Streaming<Bytes>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    S: Stream<Item = Result<Bytes, Status>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let Some(method) = request.uri().path_and_query().cloned().and_then(Method::of) else {
                let words = format!("{:?} is no path of a method", request.uri().path());
                return Ok(Status::unimplemented(words).into_http());
            };
            method.note(request.extensions_mut());
            let compresses = !this.send.is_empty();
            let (encoding, decoding) = (this.encoding_len_max, this.decoding_len_max);
            let codec =
                codec::<AsBytes, Bytes, Bytes, _>(AsBytes, &mut request, encoding, decoding, compresses);
            let grpc = Grpc::new(codec.clone())
                .apply_compression_config(this.accept, this.send)
                .apply_max_message_size_config(decoding, encoding);
            let handler = &this.handler;
            let response = streaming(grpc, codec, |request| handler(method.clone(), request), request).await;
            Ok(trailers::added(response))
        })
    }
}
