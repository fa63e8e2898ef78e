//! The generated stubs, the same for every side that speaks gRPC: only the channel beneath differs.

use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use super::pairs::Pairs;
use super::turns::{Answers, Structs};
use crate::load::EchoCall;
use crate::message::Message;
use crate::plan::Case;
use crate::proto::echo_client::EchoClient;
use crate::proto::echo_server::{Echo, EchoServer};
use crate::proto::messages_client::MessagesClient;
use crate::proto::messages_server::MessagesServer;
use crate::proto::{EchoReply, EchoRequest};

/// What tonic receives at most unless told otherwise.
const TONIC_LIMIT: usize = 4 << 20;

/// More than a message of one `bytes` field needs around the bytes.
const FIELD_ROOM: usize = 64;

/// The message limit for bodies of `size` bytes: tonic's own as long as that is enough.
pub(super) fn limit(size: usize) -> usize {
    (size + FIELD_ROOM).max(TONIC_LIMIT)
}

/// The service: gives back the bytes that it gets, with as many pairs.
pub(crate) struct EchoService {
    pairs: Pairs,
}

#[tonic::async_trait]
impl Echo for EchoService {
    async fn call(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        self.pairs.look(request.metadata()).map_err(Status::invalid_argument)?;
        let mut reply = Response::new(EchoReply { body: request.into_inner().body });
        self.pairs.put(reply.metadata_mut());
        Ok(reply)
    }
}

/// The generated server around the service, for a case's bodies and metadata.
pub(crate) fn server(case: Case) -> EchoServer<EchoService> {
    EchoServer::new(EchoService { pairs: Pairs::new(case.metadata) })
        .max_decoding_message_size(limit(case.size))
}

/// The generated server of messages with many fields.
pub(super) fn messages() -> MessagesServer<Answers> {
    MessagesServer::new(Answers)
}

/// A router of stock tonic with the generated service that carries a case's messages.
pub(super) fn router(case: Case) -> Router {
    match case.message {
        Message::Probe => Server::builder().add_service(server(case)),
        _ => Server::builder().add_service(messages()),
    }
}

/// The generated client over a channel.
#[derive(Clone)]
pub(crate) struct Stub<T> {
    client: EchoClient<T>,
    pairs: Pairs,
    messages: MessagesClient<T>,
    structs: Option<Structs>,
}

impl<T> Stub<T>
where
    T: GrpcService<Body> + Clone,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// For a case's bodies and metadata.
    pub(crate) fn new(channel: T, case: Case) -> Self {
        let client = EchoClient::new(channel.clone()).max_decoding_message_size(limit(case.size));
        let messages = MessagesClient::new(channel);
        Self { client, pairs: Pairs::new(case.metadata), messages, structs: None }
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
        if let Some(structs) = &mut self.structs {
            let client = &mut self.messages;
            match structs {
                Structs::M3(turns) => turns.exchange(|message| client.m3(message)).await?,
                Structs::Order(turns) => turns.exchange(|message| client.order(message)).await?,
                Structs::Fds(turns) => turns.exchange(|message| client.fds(message)).await?,
            }
            return Ok(body);
        }
        let mut request = Request::new(EchoRequest { body });
        self.pairs.put(request.metadata_mut());
        let reply = self.client.call(request).await.map_err(|status| format!("a call failed: {status}"))?;
        self.pairs.look(reply.metadata())?;
        Ok(reply.into_inner().body)
    }

    fn take(&mut self, message: Message, samples: &[Vec<u8>]) -> Result<(), String> {
        self.structs = Some(Structs::new(message, samples)?);
        Ok(())
    }
}
