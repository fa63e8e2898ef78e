//! Tollfree under its own stubs: the same service, from typed message to session and back.

use tollfree::{Channel, ChannelBuilder, Generated as _, Server, Way};
use tonic::{Request, Response, Status};

use super::AsyncSide;
use super::pairs::Pairs;
use super::stub::limit;
use super::tollfree::serve;
use super::turns::{Answers, Structs};
use crate::direct::echo_client::EchoClient;
use crate::direct::echo_server::{Echo, EchoServer};
use crate::direct::messages_client::MessagesClient;
use crate::direct::messages_server::MessagesServer;
use crate::direct::{EchoReply, EchoRequest};
use crate::load::EchoCall;
use crate::message::Message;
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct TollfreeDirect;

/// The service: gives back the bytes that it gets, with as many pairs.
struct EchoService {
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
pub(crate) fn service(case: Case) -> EchoServer<impl Echo> {
    EchoServer::new(EchoService { pairs: Pairs::new(case.metadata) })
        .max_decoding_message_size(limit(case.size))
}

/// A server with the service that carries a case's messages.
pub(super) fn with_service(server: Server, case: Case) -> Server {
    match case.message {
        Message::Probe => server.add_service(service(case)),
        _ => server.add_service(MessagesServer::new(Answers)),
    }
}

impl AsyncSide for TollfreeDirect {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(with_service(Server::builder(), order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        caller(Channel::builder(address), case).await
    }
}

/// A caller through such a channel, for a case's bodies and metadata.
pub(crate) async fn caller(builder: ChannelBuilder, case: Case) -> Result<Caller, String> {
    let channel = builder.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    caller_of(channel, case)
}

/// The same through a channel that is there.
pub(crate) fn caller_of(channel: Channel, case: Case) -> Result<Caller, String> {
    let client = EchoClient::new(channel.clone()).max_decoding_message_size(limit(case.size));
    match client.way() {
        Way::Direct => {
            let messages = MessagesClient::new(channel);
            Ok(Caller { client, pairs: Pairs::new(case.metadata), messages, structs: None })
        }
        way => Err(format!("calls would go {way}")),
    }
}

#[derive(Clone)]
pub(crate) struct Caller {
    client: EchoClient<Channel>,
    pairs: Pairs,
    messages: MessagesClient<Channel>,
    structs: Option<Structs>,
}

impl EchoCall for Caller {
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
