//! Tollfree under its own stubs: the same service, from typed message to session and back.

use tollfree::{Channel, ChannelBuilder, Generated as _, Server, Way};
use tonic::{Request, Response, Status};

use super::AsyncSide;
use super::stub::limit;
use super::tollfree::serve;
use crate::direct::echo_client::EchoClient;
use crate::direct::echo_server::{Echo, EchoServer};
use crate::direct::{EchoReply, EchoRequest};
use crate::load::EchoCall;
use crate::order::{Serve, Serving};

pub(super) struct TollfreeDirect;

/// The service: gives back the bytes that it gets.
struct EchoService;

#[tonic::async_trait]
impl Echo for EchoService {
    async fn call(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        Ok(Response::new(EchoReply { body: request.into_inner().body }))
    }
}

/// The generated server around the service, for bodies of up to `size` bytes.
pub(super) fn service(size: usize) -> EchoServer<impl Echo> {
    EchoServer::new(EchoService).max_decoding_message_size(limit(size))
}

impl AsyncSide for TollfreeDirect {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(Server::builder().add_service(service(order.case.size)), order, ready).await
    }

    async fn connect(address: &str, size: usize) -> Result<Caller, String> {
        caller(Channel::builder(address), size).await
    }
}

/// A caller through such a channel, for bodies of up to `size` bytes.
pub(super) async fn caller(builder: ChannelBuilder, size: usize) -> Result<Caller, String> {
    let channel = builder.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    let client = EchoClient::new(channel).max_decoding_message_size(limit(size));
    match client.way() {
        Way::Direct => Ok(Caller { client }),
        way => Err(format!("calls would go {way}")),
    }
}

#[derive(Clone)]
pub(super) struct Caller {
    client: EchoClient<Channel>,
}

impl EchoCall for Caller {
    type Body = Vec<u8>;

    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        match self.client.call(EchoRequest { body }).await {
            Ok(reply) => Ok(reply.into_inner().body),
            Err(status) => Err(format!("a call failed: {status}")),
        }
    }
}
