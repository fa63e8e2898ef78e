//! The generated stubs, the same for every side that speaks gRPC: only the channel beneath differs.

use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::{Request, Response, Status};

use crate::load::EchoCall;
use crate::proto::echo_client::EchoClient;
use crate::proto::echo_server::{Echo, EchoServer};
use crate::proto::{EchoReply, EchoRequest};

/// What tonic receives at most unless told otherwise.
const TONIC_LIMIT: usize = 4 << 20;

/// More than a message of one `bytes` field needs around the bytes.
const FIELD_ROOM: usize = 64;

/// The message limit for bodies of `size` bytes: tonic's own as long as that is enough.
pub(super) fn limit(size: usize) -> usize {
    (size + FIELD_ROOM).max(TONIC_LIMIT)
}

/// The service: gives back the bytes that it gets.
pub(super) struct EchoService;

#[tonic::async_trait]
impl Echo for EchoService {
    async fn call(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        Ok(Response::new(EchoReply { body: request.into_inner().body }))
    }
}

/// The generated server around the service, for bodies of up to `size` bytes.
pub(super) fn server(size: usize) -> EchoServer<EchoService> {
    EchoServer::new(EchoService).max_decoding_message_size(limit(size))
}

/// The generated client over a channel.
#[derive(Clone)]
pub(super) struct Stub<T> {
    client: EchoClient<T>,
}

impl<T> Stub<T>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// For bodies of up to `size` bytes.
    pub(super) fn new(channel: T, size: usize) -> Self {
        Self { client: EchoClient::new(channel).max_decoding_message_size(limit(size)) }
    }
}

impl<T> EchoCall for Stub<T>
where
    T: GrpcService<Body> + Clone + Send + 'static,
    T::Future: Send,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    type Body = Vec<u8>;

    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        match self.client.call(EchoRequest { body }).await {
            Ok(reply) => Ok(reply.into_inner().body),
            Err(status) => Err(format!("a call failed: {status}")),
        }
    }
}
