//! The client's end.

use std::fmt;

use bytes::Bytes;
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::CompressionEncoding;
use tonic::service::interceptor::InterceptedService;
use tonic::{IntoRequest, IntoStreamingRequest, Response, Status};

use crate::by_bytes::Method;
use crate::message::as_bytes::AsBytes;
use crate::message::streaming::Streaming;
use crate::typed::client::{Generated, Grpc, Way};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes calls of any method. A clone shares the channel.
///
/// Messages are at most 4 MiB long when they come, unless this is told otherwise; a longer one ends its call with OUT_OF_RANGE, as in generated
/// clients.
#[derive(Clone)]
pub struct Client<T> {
    grpc: Grpc<T>,
}

impl<T> fmt::Debug for Client<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("way", &self.grpc.way()).finish_non_exhaustive()
    }
}

impl<T> Generated for Client<T> {
    fn way(&self) -> Way {
        self.grpc.way()
    }
}

impl<T> Client<T> {
    /// Compresses requests, one by one, by the call's `grpc-encoding`.
    pub fn send_compressed(self, encoding: CompressionEncoding) -> Client<T> {
        Client { grpc: self.grpc.send_compressed(encoding) }
    }

    /// Accepts compressed answers. They come inflated.
    pub fn accept_compressed(self, encoding: CompressionEncoding) -> Client<T> {
        Client { grpc: self.grpc.accept_compressed(encoding) }
    }

    /// Limits messages that come, in bytes.
    pub fn max_decoding_message_size(self, limit: usize) -> Client<T> {
        Client { grpc: self.grpc.max_decoding_message_size(limit) }
    }

    /// Limits messages that go, in bytes.
    pub fn max_encoding_message_size(self, limit: usize) -> Client<T> {
        Client { grpc: self.grpc.max_encoding_message_size(limit) }
    }
}

impl<T, F> Client<InterceptedService<T, F>>
where
    T: GrpcService<Body>,
{
    /// A client whose requests an interceptor sees first.
    pub fn with_interceptor(service: T, interceptor: F) -> Client<InterceptedService<T, F>> {
        Client { grpc: Grpc::intercepted(service, interceptor) }
    }
}

impl<T> Client<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: HttpBody + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<BoxError>,
{
    /// A client of a channel.
    pub fn new(service: T) -> Client<T> {
        Client { grpc: Grpc::new(service) }
    }

    /// A call with one message each way.
    ///
    /// # Errors
    /// The call's status.
    pub async fn unary(
        &mut self,
        method: &Method,
        request: impl IntoRequest<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.grpc.unary(request.into_request(), method, AsBytes).await
    }

    /// A call with one message there and many back.
    ///
    /// # Errors
    /// The call's status.
    pub async fn server_streaming(
        &mut self,
        method: &Method,
        request: impl IntoRequest<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.grpc.server_streaming(request.into_request(), method, AsBytes).await
    }

    /// A call with many messages there and one back.
    ///
    /// # Errors
    /// The call's status.
    pub async fn client_streaming(
        &mut self,
        method: &Method,
        request: impl IntoStreamingRequest<Message = Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.grpc.client_streaming(request.into_streaming_request(), method, AsBytes).await
    }

    /// A call with many messages each way.
    ///
    /// # Errors
    /// The call's status.
    pub async fn streaming(
        &mut self,
        method: &Method,
        request: impl IntoStreamingRequest<Message = Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.grpc.streaming(request.into_streaming_request(), method, AsBytes).await
    }
}
