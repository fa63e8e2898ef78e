//! Generated stubs of levels 2 and 3 by way of a gateway, and by a direct connection.

use futures_util::stream::BoxStream;
use tollfree::gateway::Caller;
use tollfree::{Channel, Generated as _, Server, Way};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectsClient;
use tollfree_direct_stubs::objects::probe::probe_server::{
    Probe as ObjectsProbe, ProbeServer as ObjectsServer,
};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1 as views;
use tollfree_direct_stubs::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::probe::{Answer, Ask};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tonic::{Code, Request, Response, Status, Streaming};

use super::direct_connections::{GROUP, SHORT, handed, until_path};
use super::lab::{Lab, backend_connections_of};

/// Calls of each kind.
const COUNT: usize = 20;
/// The arenas that objects are built in, in bytes.
const ARENA_LEN_MAX: usize = 1 << 20;

/// Serves one method at either level: it gives back the body, or fails where that is empty, and says more than it may.
pub(crate) struct Levels;

/// What is said with each answer and each failure; a gateway lets through the last of them.
fn say_much(said: &mut tonic::metadata::MetadataMap) {
    for name in ["tollfree-offer", "tollfree-said", "x-said"] {
        said.insert(name, "by the callee".parse().unwrap());
    }
}

fn answer<T>(
    extensions: &tonic::Extensions,
    is_empty: bool,
    made: impl FnOnce() -> T,
) -> Result<Response<T>, Status> {
    let mut status = Status::invalid_argument("without a body");
    say_much(status.metadata_mut());
    if is_empty {
        return Err(status);
    }
    extensions.get::<Caller>().ok_or_else(|| Status::unauthenticated("nobody says who calls"))?;
    let mut response = Response::new(made());
    say_much(response.metadata_mut());
    Ok(response)
}

fn not_here() -> Status {
    Status::unimplemented("these tests make unary calls")
}

#[tonic::async_trait]
impl Probe for Levels {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let (_, extensions, ask) = request.into_parts();
        answer(&extensions, ask.body.is_empty(), || Answer { body: ask.body, ..Answer::default() })
    }

    type DownStream = BoxStream<'static, Result<Answer, Status>>;

    async fn down(&self, _: Request<Ask>) -> Result<Response<Self::DownStream>, Status> {
        Err(not_here())
    }

    async fn up(&self, _: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        Err(not_here())
    }

    type BothStream = BoxStream<'static, Result<Answer, Status>>;

    async fn both(&self, _: Request<Streaming<Ask>>) -> Result<Response<Self::BothStream>, Status> {
        Err(not_here())
    }
}

#[tonic::async_trait]
impl ObjectsProbe for Levels {
    async fn unary(
        &self,
        request: Request<Owned<views::Ask>>,
    ) -> Result<Response<Owned<views::Answer>>, Status> {
        let (_, extensions, ask) = request.into_parts();
        answer(&extensions, ask.view().body().is_empty(), || {
            let mut builder = Builder::<views::Answer>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
            builder.edit().set_body(ask.view().body()).unwrap();
            builder.freeze().unwrap()
        })
    }

    type DownStream = BoxStream<'static, Result<Owned<views::Answer>, Status>>;

    async fn down(&self, _: Request<Owned<views::Ask>>) -> Result<Response<Self::DownStream>, Status> {
        Err(not_here())
    }

    async fn up(
        &self,
        _: Request<Streaming<Owned<views::Ask>>>,
    ) -> Result<Response<Owned<views::Answer>>, Status> {
        Err(not_here())
    }

    type BothStream = BoxStream<'static, Result<Owned<views::Answer>, Status>>;

    async fn both(
        &self,
        _: Request<Streaming<Owned<views::Ask>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Err(not_here())
    }
}

async fn attach(lab: &Lab, server: Server) -> tokio::task::JoinHandle<()> {
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    task
}

/// What has been said is the same on both ways.
fn said_what_it_may(said: &tonic::metadata::MetadataMap, way: &str) {
    let ours: Vec<_> =
        said.keys().map(|key| format!("{key:?}")).filter(|key| key.contains("tollfree-")).collect();
    assert!(said.contains_key("x-said") && ours.is_empty(), "{way}: {said:?}");
}

fn refused(outcome: Result<(), Status>, way: &str) {
    let status = outcome.expect_err("it has no body");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "without a body"), "{way}");
    said_what_it_may(status.metadata(), way);
}

/// The config, and what the path of a channel says then.
const WAYS: [(&str, &str); 2] =
    [("[groups.default]\n", "without a direct connection"), (SHORT, "by a direct connection")];

#[tokio::test]
async fn level_2_goes_by_a_direct_connection_as_by_the_gateway() {
    for (config, way) in WAYS {
        let lab = Lab::start(config).await;
        let attached = attach(&lab, Server::builder().add_service(ProbeServer::new(Levels))).await;
        let channel = Channel::via(lab.backends(), GROUP).await.unwrap();
        until_path(&channel, way).await;
        let mut client = ProbeClient::new(channel.clone());
        assert_eq!(client.way(), Way::Direct, "{way}");
        let before = handed(&lab).await;
        for nth in 1..=COUNT {
            let body = vec![nth as u8; nth * nth * 100];
            let answer = client.unary(Ask { body: body.clone(), ..Ask::default() }).await.unwrap();
            assert_eq!(answer.get_ref().body, body, "{way}");
            said_what_it_may(answer.metadata(), way);
        }
        refused(client.unary(Ask::default()).await.map(drop), way);
        let through = if config == SHORT { 0 } else { COUNT as u64 + 1 };
        assert_eq!(handed(&lab).await - before, through, "{way}");
        attached.abort();
    }
}

#[tokio::test]
async fn level_3_goes_by_a_direct_connection_as_by_the_gateway() {
    let ask = |body: &[u8]| {
        let mut builder = Builder::<views::Ask>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
        builder.edit().set_body(body).unwrap();
        builder.freeze().unwrap()
    };
    for (config, way) in WAYS {
        let lab = Lab::start(config).await;
        let attached = attach(&lab, Server::builder().add_service(ObjectsServer::new(Levels))).await;
        let channel = Channel::via(lab.backends(), GROUP).await.unwrap();
        until_path(&channel, way).await;
        let mut client = ObjectsClient::new(channel.clone());
        assert_eq!(client.way(), Way::Direct, "{way}");
        let before = handed(&lab).await;
        for nth in 1..=COUNT {
            let body = vec![nth as u8; nth * nth * 100];
            let answer = client.unary(ask(&body)).await.unwrap();
            assert_eq!(answer.get_ref().view().body(), body, "{way}");
            said_what_it_may(answer.metadata(), way);
        }
        refused(client.unary(ask(b"")).await.map(drop), way);
        let through = if config == SHORT { 0 } else { COUNT as u64 + 1 };
        assert_eq!(handed(&lab).await - before, through, "{way}");
        // The first call tells that both ends have the same types; a gateway tells when it has the tables.
        let objects = channel.payloads().counts().sent_objects;
        assert!(if config == SHORT { objects == COUNT as u64 } else { objects < COUNT as u64 }, "{way}");
        attached.abort();
    }
}
