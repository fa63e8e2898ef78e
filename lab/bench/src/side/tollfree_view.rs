//! Tollfree under its own stubs that take objects: messages are read and built in place, and the objects themselves travel.

use std::hint::black_box;

use tollfree::{Channel, ChannelBuilder, Generated as _, Server, Way};
use tollfree_processor::typed::{self, Builder, MessageMut as _, Owned};
use tollfree_processor::{Arenas, BuildError, Limits};
use tonic::{Request, Response, Status};

use super::AsyncSide;
use super::pairs::Pairs;
use super::pool;
use super::stub::limit;
use super::tollfree::serve;
use super::turns::{Turns, other};
use crate::load::EchoCall;
use crate::message::{Message, Read, walks};
use crate::objects::echo_client::EchoClient;
use crate::objects::echo_server::{Echo, EchoServer};
use crate::objects::messages_client::MessagesClient;
use crate::objects::messages_server::{Messages, MessagesServer};
use crate::objects::views::fds::FileDescriptorSet;
use crate::objects::views::hyperprotobench::M3;
use crate::objects::views::shop::Order;
use crate::objects::views::tollfree::bench::v1::{EchoReply, EchoRequest};
use crate::order::{Serve, Serving};
use crate::plan::{Case, INFLIGHT_MAX, SIZE_MAX};

pub(super) struct TollfreeView;

/// Arenas for the largest bodies; those of all calls in flight are used again.
fn arenas() -> Arenas {
    Arenas::new(2 * SIZE_MAX, INFLIGHT_MAX)
}

fn full(error: BuildError) -> Status {
    Status::resource_exhausted(error.to_string())
}

/// A message that `fill` has built.
fn built<M: typed::Message>(
    arenas: &Arenas,
    fill: impl FnOnce(M::Mut<'_>) -> Result<(), BuildError>,
) -> Result<Owned<M>, BuildError> {
    let mut builder = Builder::<M>::new(arenas.take())?;
    fill(builder.edit())?;
    builder.freeze()
}

/// Both services.
struct Answers {
    arenas: Arenas,
    pairs: Pairs,
    message: Message,
}

impl Answers {
    fn new(case: Case) -> Answers {
        Answers { arenas: arenas(), pairs: Pairs::new(case.metadata), message: case.message }
    }

    fn answer<M: typed::Message>(
        &self,
        fill: impl FnOnce(M::Mut<'_>) -> Result<(), BuildError>,
    ) -> Result<Response<Owned<M>>, Status> {
        built(&self.arenas, fill).map(Response::new).map_err(full)
    }
}

#[tonic::async_trait]
impl Echo for Answers {
    async fn call(&self, request: Request<Owned<EchoRequest>>) -> Result<Response<Owned<EchoReply>>, Status> {
        self.pairs.look(request.metadata()).map_err(Status::invalid_argument)?;
        let body = request.get_ref().view().body();
        let mut reply = self.answer::<EchoReply>(|mut to| to.set_body(body))?;
        self.pairs.put(reply.metadata_mut());
        Ok(reply)
    }
}

#[tonic::async_trait]
impl Messages for Answers {
    async fn m3(&self, request: Request<Owned<M3>>) -> Result<Response<Owned<M3>>, Status> {
        let view = request.get_ref().view();
        black_box(view.read());
        self.answer(|to| walks::build_hyperprotobench_m3(view, to))
    }

    async fn order(&self, request: Request<Owned<Order>>) -> Result<Response<Owned<Order>>, Status> {
        let view = request.get_ref().view();
        black_box(view.read());
        self.answer(|to| walks::build_shop_order(view, to))
    }

    async fn fds(
        &self,
        request: Request<Owned<FileDescriptorSet>>,
    ) -> Result<Response<Owned<FileDescriptorSet>>, Status> {
        let view = request.get_ref().view();
        black_box(view.read());
        if self.message == Message::FdsCopy {
            return self.answer::<FileDescriptorSet>(|mut to| to.copy_from(view));
        }
        self.answer(|to| walks::build_fds_filedescriptorset(view, to))
    }
}

/// The server with the service that a case calls.
fn with_service(server: Server, case: Case) -> Server {
    let answers = Answers::new(case);
    match case.message {
        Message::Probe => {
            server.add_service(EchoServer::new(answers).max_decoding_message_size(limit(case.size)))
        }
        _ => server.add_service(MessagesServer::new(answers)),
    }
}

async fn caller(channel: ChannelBuilder, case: Case) -> Result<Caller, String> {
    let channel = channel.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    let client = EchoClient::new(channel.clone()).max_decoding_message_size(limit(case.size));
    match client.way() {
        Way::Direct => {}
        way => return Err(format!("calls would go {way}")),
    }
    let messages = MessagesClient::new(channel);
    let pairs = Pairs::new(case.metadata);
    Ok(Caller { client, pairs, arenas: arenas(), messages, objects: None })
}

impl AsyncSide for TollfreeView {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(with_service(Server::builder(), order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        caller(Channel::builder(address), case).await
    }
}

/// The same where both ends are members of a pool: objects as long as [`tollfree::REF_THRESHOLD_DEFAULT`] go by ref, and are
/// read there.
pub(super) struct TollfreeViewPool;

impl AsyncSide for TollfreeViewPool {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let server = Server::builder().pool(pool::create(&order.dir)?);
        serve(with_service(server, order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        caller(Channel::builder(address).pool(pool::join(address)?), case).await
    }
}

/// The messages that a caller sends.
#[derive(Clone)]
enum Objects {
    M3(Turns<Owned<M3>>),
    Order(Turns<Owned<Order>>),
    Fds(Turns<Owned<FileDescriptorSet>>),
}

#[derive(Clone)]
pub(super) struct Caller {
    client: EchoClient<Channel>,
    pairs: Pairs,
    arenas: Arenas,
    messages: MessagesClient<Channel>,
    objects: Option<Objects>,
}

/// A body before the first call, and in the replies.
pub(super) enum Body {
    Bytes(Vec<u8>),
    Reply(Owned<EchoReply>),
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::Bytes(bytes)
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        match self {
            Body::Bytes(bytes) => bytes,
            Body::Reply(reply) => reply.view().body(),
        }
    }
}

/// Calls with a copy of the next message, and reads every field of the reply.
macro_rules! exchange {
    ($ty:ty, $turns:ident, $arenas:ident, $client:ident.$method:ident) => {{
        let (kept, is_first) = $turns.take();
        let request = built::<$ty>($arenas, |mut to| to.copy_from(kept.message.view()));
        let request = request.map_err(|error| format!("a request cannot be built: {error}"))?;
        let reply = $client.$method(request).await.map_err(|status| format!("a call failed: {status}"))?;
        let view = reply.get_ref().view();
        let is_same = view.read() == kept.sum && !(is_first && view != kept.message.view());
        if is_same { Ok(()) } else { Err(other()) }
    }};
}

impl EchoCall for Caller {
    type Body = Body;

    async fn call(&mut self, body: Body) -> Result<Body, String> {
        if let Some(objects) = &mut self.objects {
            let (arenas, client) = (&self.arenas, &mut self.messages);
            let outcome: Result<(), String> = match objects {
                Objects::M3(turns) => exchange!(M3, turns, arenas, client.m3),
                Objects::Order(turns) => exchange!(Order, turns, arenas, client.order),
                Objects::Fds(turns) => exchange!(FileDescriptorSet, turns, arenas, client.fds),
            };
            return outcome.map(|()| body);
        }
        let request = built::<EchoRequest>(&self.arenas, |mut to| to.set_body(body.as_ref()));
        let mut request =
            Request::new(request.map_err(|error| format!("a request cannot be built: {error}"))?);
        drop(body);
        self.pairs.put(request.metadata_mut());
        let reply = self.client.call(request).await.map_err(|status| format!("a call failed: {status}"))?;
        self.pairs.look(reply.metadata())?;
        Ok(Body::Reply(reply.into_inner()))
    }

    fn take(&mut self, message: Message, samples: &[Vec<u8>]) -> Result<(), String> {
        macro_rules! kept {
            ($ty:ty) => {
                Turns::new(samples, |bytes| {
                    let message = Owned::<$ty>::decode(bytes, self.arenas.take(), &Limits::default());
                    let message = message.map_err(|error| format!("a message cannot be decoded: {error}"))?;
                    let sum = message.view().read();
                    Ok((message, sum))
                })?
            };
        }
        self.objects = match message {
            Message::Probe => None,
            Message::M3 => Some(Objects::M3(kept!(M3))),
            Message::Order => Some(Objects::Order(kept!(Order))),
            Message::Fds | Message::FdsCopy => Some(Objects::Fds(kept!(FileDescriptorSet))),
        };
        Ok(())
    }
}
