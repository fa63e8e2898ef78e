//! What each process does on each side.

use std::future::Future;
use std::io;
use std::path::Path;

use ::tollfree::{Channel, Generated, Server, Way};
use futures_util::{StreamExt as _, stream};
use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;
use tollfree_gateway::{Config, Gateway};
use tonic::transport::Endpoint;
use tonic::transport::server::Router;

use super::client::{Caller, carry, prove};
use super::objects;
use super::service::Service;
use super::{Calls, Part, Role, StreamCase, StreamSide, Streamed, blocking};
use crate::BenchError;
use crate::order::{self, Serving};
use crate::peer::Starter;
use crate::plan::RuntimeKind;
use crate::side::program::{Program, ns};
use crate::side::{tollfree, tollfree_blocking, tonic_tcp, tonic_unix};
use crate::{direct, proto};

/// Bytes that a pipe holds: about what a Unix socket does.
const PIPE: usize = 208 << 10;

/// Carries out a process's part.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let failed = |what: String| BenchError::Side { side: part.case.side.name(), what };
    let ready = |serving: Serving| starter.say(serving);
    match &part.role {
        Role::Between { dir } => {
            // As the command does it: a thread for each core that it may use.
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(BenchError::system("cannot start the async runtime"))?;
            order::block_on(&runtime, gateway(dir, ready)).map_err(failed)
        }
        Role::Serve { dir, warm_up } => {
            serve(part.case.side, dir, Service { warm_up: *warm_up }, ready).map_err(failed)
        }
        Role::Call(calls) => {
            starter.say(call(part.case, calls).map_err(failed)?);
            Ok(())
        }
    }
}

/// The runtime of both ends, as a program has it that says nothing about it: work is stolen among two workers.
fn runtime() -> Result<Runtime, String> {
    order::runtime(RuntimeKind::Multi).map_err(|error| error.to_string())
}

fn stock(service: Service) -> proto::streams_server::StreamsServer<Service> {
    proto::streams_server::StreamsServer::new(service)
}

fn router(service: Service) -> Router {
    tonic::transport::Server::builder().add_service(stock(service))
}

fn own(service: Service) -> direct::streams_server::StreamsServer<Service> {
    direct::streams_server::StreamsServer::new(service)
}

fn serve(side: StreamSide, dir: &Path, service: Service, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let server = Server::builder();
    match side {
        StreamSide::TonicUnix => order::block_on(&runtime()?, tonic_unix::serve(router(service), dir, ready)),
        StreamSide::TonicTcp => order::block_on(&runtime()?, tonic_tcp::serve(router(service), ready)),
        StreamSide::TonicPipe => Err("its client serves itself".to_owned()),
        StreamSide::Tollfree => session(server.add_service(stock(service)), dir, ready),
        StreamSide::TollfreeDirect => session(server.add_service(own(service)), dir, ready),
        StreamSide::TollfreeView => session(server.add_service(objects::server(service)), dir, ready),
        StreamSide::TollfreeBlocking => {
            tollfree_blocking::serve_on(server.add_service(own(service)), dir, ready)
        }
        StreamSide::Go | StreamSide::GrpcGo => serve_by(Program::Go, side, dir, &service, ready),
        StreamSide::Python | StreamSide::Grpcio => serve_by(Program::Python, side, dir, &service, ready),
        StreamSide::Gateway => order::block_on(&runtime()?, async {
            let address = meeting_place(dir);
            let attaching = server.add_service(stock(service)).attach(&address);
            // Calls that come before it is there wait at the gateway.
            ready(Serving { address: address.clone() });
            Err(tollfree::ending(&address, attaching.await))
        }),
    }
}

fn serve_by(
    program: Program,
    side: StreamSide,
    dir: &Path,
    service: &Service,
    ready: impl FnOnce(Serving),
) -> Result<(), String> {
    program.serve("stream-serve", side.name(), dir, &[("-warm-up", ns(service.warm_up))], ready)
}

fn call_by(program: Program, case: StreamCase, calls: &Calls) -> Result<Streamed, String> {
    program.measure(
        "stream-call",
        case.side.name(),
        &[
            ("-address", calls.address.clone()),
            ("-kind", case.kind.name().to_owned()),
            ("-size", case.size.to_string()),
            ("-streams", case.streams.to_string()),
            ("-warm-up", ns(calls.warm_up)),
            ("-measure", ns(calls.measure)),
        ],
    )
}

fn session(server: Server, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    order::block_on(&runtime()?, tollfree::serve(server, dir, ready))
}

fn meeting_place(dir: &Path) -> String {
    format!("shm://{}", dir.join("gateway.sock").display())
}

/// Its limits are those that it has unless told otherwise.
async fn gateway(dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let world = format!("unix:{}", dir.join("world.sock").display());
    let text =
        format!("listeners.world.address = \"{world}\"\nbackends.socket = \"{}\"\n", meeting_place(dir));
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    let gateway = Gateway::bind(config).await.map_err(|error| error.to_string())?;
    ready(Serving { address: world });
    gateway.run(std::future::pending()).await;
    Err("the gateway has stopped".to_owned())
}

fn call(case: StreamCase, calls: &Calls) -> Result<Streamed, String> {
    let address = calls.address.as_str();
    let stock = proto::streams_client::StreamsClient::<tonic::transport::Channel>::new;
    match case.side {
        StreamSide::TonicUnix | StreamSide::Gateway => {
            on_tokio(case, calls, async { tonic_unix::connect(address).await.map(stock) })
        }
        StreamSide::TonicTcp => on_tokio(case, calls, async { tonic_tcp::connect(address).await.map(stock) }),
        StreamSide::TonicPipe => {
            let service = Service { warm_up: calls.warm_up };
            let piped = on_tokio(case, calls, async { pipe(service).await.map(stock) })?;
            // The one process is both ends.
            Ok(Streamed { server_cpu_ns: Some(0), ..piped })
        }
        StreamSide::Tollfree => on_tokio(case, calls, async {
            connect(address).await.map(proto::streams_client::StreamsClient::<Channel>::new)
        }),
        StreamSide::TollfreeDirect => on_tokio(case, calls, async {
            directly(direct::streams_client::StreamsClient::new(connect(address).await?))
        }),
        StreamSide::TollfreeView => {
            on_tokio(case, calls, async { directly(objects::client(connect(address).await?)) })
        }
        StreamSide::TollfreeBlocking => blocking::call(case, calls),
        StreamSide::Go | StreamSide::GrpcGo => call_by(Program::Go, case, calls),
        StreamSide::Python | StreamSide::Grpcio => call_by(Program::Python, case, calls),
    }
}

async fn connect(address: &str) -> Result<Channel, String> {
    Channel::connect(address).await.map_err(|error| format!("cannot connect: {error}"))
}

/// A client, if its calls go the way that the side is for.
pub(super) fn directly<C: Generated>(client: C) -> Result<C, String> {
    match client.way() {
        Way::Direct => Ok(client),
        way => Err(format!("calls would go {way}")),
    }
}

/// A channel to a server in the same runtime.
async fn pipe(service: Service) -> Result<tonic::transport::Channel, String> {
    let (near, far) = tokio::io::duplex(PIPE);
    // It serves for as long as something might come.
    let incoming = stream::iter([Ok::<_, io::Error>(far)]).chain(stream::pending());
    tokio::spawn(router(service).serve_with_incoming(incoming));
    let mut near = Some(near);
    let once = tower::service_fn(move |_| {
        let near = near.take().map(TokioIo::new);
        std::future::ready(near.ok_or_else(|| io::Error::other("the pipe has been taken")))
    });
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(once).await.map_err(|error| format!("cannot connect: {error}"))
}

fn on_tokio<C: Caller>(
    case: StreamCase,
    calls: &Calls,
    connect: impl Future<Output = Result<C, String>>,
) -> Result<Streamed, String> {
    order::block_on(&runtime()?, async {
        let caller = connect.await?;
        prove(caller.clone(), case.size).await?;
        carry(&caller, case, calls).await
    })
}
