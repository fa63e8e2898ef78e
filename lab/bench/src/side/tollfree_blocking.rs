//! Tollfree under its own stubs, blocking: no runtime is asked for anything while calls go on.

use std::future::ready;
use std::path::Path;
use std::time::Instant;

use tollfree::{Channel, ChannelBuilder, Generated as _, Server, Way};
use tonic::Request;

use super::pairs::Pairs;
use super::stub::limit;
use super::tollfree::{appears, ending};
use super::tollfree_direct::with_service;
use super::turns::Structs;
use crate::direct::EchoRequest;
use crate::direct::echo_blocking_client::EchoBlockingClient;
use crate::direct::messages_blocking_client::MessagesBlockingClient;
use crate::load::{self, EchoCall};
use crate::message::Message;
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::Case;

/// Serves on this thread, and calls `listens` once clients may connect.
pub(super) fn serve(order: &Serve, listens: impl FnOnce(Serving)) -> Result<(), String> {
    serve_with(Server::builder(), order.case, &order.dir, listens)
}

/// The same with a server's settings.
pub(crate) fn serve_with(
    server: Server,
    case: Case,
    dir: &Path,
    listens: impl FnOnce(Serving),
) -> Result<(), String> {
    serve_on(with_service(server, case), dir, listens)
}

/// The same with a server that has its services.
pub(crate) fn serve_on(server: Server, dir: &Path, listens: impl FnOnce(Serving)) -> Result<(), String> {
    let path = dir.join("tollfree.sock");
    let address = format!("shm://{}", path.display());
    let listening = async {
        appears(&path).await;
        listens(Serving { address: address.clone() });
        std::future::pending().await
    };
    Err(ending(&address, server.serve_blocking_with_shutdown(&address, listening)))
}

/// Calls with a thread and a session for each call in flight.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    load::run_on_threads(|| connect(Channel::builder(&load.address), load.case), load)
}

/// Calls with a thread for each call in flight, which share a session.
pub(super) fn measure_shared(load: &Load) -> Result<Measured, String> {
    let caller = connect(Channel::builder(&load.address), load.case)?;
    load::run_on_threads(|| Ok(caller.clone()), load)
}

/// A caller through such a channel, for a case's bodies and metadata.
pub(crate) fn connect(builder: ChannelBuilder, case: Case) -> Result<Caller, String> {
    let channel = builder.connect_blocking().map_err(|error| format!("cannot connect: {error}"))?;
    let client = EchoBlockingClient::new(channel.clone());
    let client = client.configure(|inner| inner.max_decoding_message_size(limit(case.size)));
    match client.way() {
        Way::Direct => {
            let messages = MessagesBlockingClient::new(channel);
            Ok(Caller { client, pairs: Pairs::new(case.metadata), messages, structs: None })
        }
        way => Err(format!("calls would go {way}")),
    }
}

#[derive(Clone)]
pub(crate) struct Caller {
    client: EchoBlockingClient<tollfree::Channel>,
    pairs: Pairs,
    messages: MessagesBlockingClient<tollfree::Channel>,
    structs: Option<Structs>,
}

impl EchoCall for Caller {
    type Body = Vec<u8>;

    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        if let Some(structs) = &mut self.structs {
            let client = &mut self.messages;
            match structs {
                Structs::M3(turns) => turns.exchange(|message| ready(client.m3(message))).await?,
                Structs::Order(turns) => turns.exchange(|message| ready(client.order(message))).await?,
                Structs::Fds(turns) => turns.exchange(|message| ready(client.fds(message))).await?,
            }
            return Ok(body);
        }
        let mut request = Request::new(EchoRequest { body });
        self.pairs.put(request.metadata_mut());
        let reply = self.client.call(request).map_err(|status| format!("a call failed: {status}"))?;
        self.pairs.look(reply.metadata())?;
        Ok(reply.into_inner().body)
    }

    fn take(&mut self, message: Message, samples: &[Vec<u8>]) -> Result<(), String> {
        self.structs = Some(Structs::new(message, samples)?);
        Ok(())
    }

    async fn rest(&self, until: Instant) {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}
