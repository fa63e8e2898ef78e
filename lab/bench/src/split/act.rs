//! What the three processes do.

use std::path::Path;
use std::time::{Duration, Instant};

use tollfree::WaitPolicy;
use tollfree_gateway::{Config, Gateway};

use super::objects::Objects;
use super::proxy;
use super::service::Backends;
use super::{Part, Role, SplitCase, SplitMessage, SplitSide};
use super::{beyond, client};
use crate::BenchError;
use crate::certificates;
use crate::harness::Crew;
use crate::order::{self, Serving};
use crate::peer::Starter;
use crate::plan::RuntimeKind;
use crate::side::tonic_unix;

/// Carries out a process' part.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let case = part.case;
    let failed = |what: String| BenchError::Side { side: case.side.name(), what };
    let ready = |serving: Serving| starter.say(serving);
    match &part.role {
        Role::Between { dir, groups } if case.side.is_gateway() => {
            // As the command does it: a thread for each core that it may use.
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(BenchError::system("cannot start the async runtime"))?;
            order::block_on(&runtime, gateway(case.side, dir, *groups, ready)).map_err(failed)
        }
        Role::Between { dir, .. } => {
            // There before it is: whoever calls waits until it listens.
            ready(Serving { address: format!("unix:{}", proxy::front(dir).display()) });
            Err(failed(proxy::become_one(case.side, dir)))
        }
        Role::Backends { dir, group } => {
            let backends = backends(case, dir, group.as_deref(), ready);
            order::block_on(&order::runtime(RuntimeKind::Current)?, backends).map_err(failed)
        }
        Role::Call(calls) => {
            let bytes = read(&calls.message)?;
            let measured = async {
                if calls.address.starts_with("unix:") {
                    appears(&calls.address).await?;
                }
                client::measure(case.message, bytes, calls, case.inflight).await
            };
            starter.say(order::runtime(RuntimeKind::Current)?.block_on(measured).map_err(failed)?);
            Ok(())
        }
        Role::Flood { calls, rate } => {
            let bytes = read(&calls.message)?;
            let flood = beyond::flood(case.message, bytes, calls, *rate, || starter.say(()));
            starter.say(order::runtime(RuntimeKind::Current)?.block_on(flood).map_err(failed)?);
            Ok(())
        }
        Role::Ask(asking) => {
            let ask = beyond::ask(case.message, asking);
            starter.say(order::runtime(RuntimeKind::Current)?.block_on(ask).map_err(failed)?);
            Ok(())
        }
    }
}

fn read(message: &Path) -> Result<Vec<u8>, BenchError> {
    std::fs::read(message).map_err(BenchError::system("cannot read the message"))
}

/// Waits until a proxy listens.
async fn appears(address: &str) -> Result<(), String> {
    let path = address.strip_prefix("unix:").unwrap_or(address);
    let began = Instant::now();
    while tokio::net::UnixStream::connect(path).await.is_err() {
        if began.elapsed() > Crew::PATIENCE {
            return Err(format!("nobody listens on {path}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// With two groups, those of [`beyond`], calls of one message go to the other one.
async fn gateway(
    side: SplitSide,
    dir: &Path,
    groups: Option<SplitMessage>,
    ready: impl FnOnce(Serving),
) -> Result<(), String> {
    let mut text = format!(
        "listeners.world.address = \"unix:{}\"\nbackends.socket = \"{}\"\nlimits.streams = 4096\n\
         limits.message_bytes = 67108864\n",
        proxy::front(dir).display(),
        meeting_place(dir)
    );
    if side == SplitSide::GatewayLowLatency {
        text += "backends.wait = \"low-latency\"\n";
    }
    if let Some(message) = groups {
        let (service, own, other) = ("tollfree.bench.v1.Split", beyond::OWN, beyond::OTHER);
        // A service that nobody serves is refused at once, also by a gateway that is young.
        text += &format!(
            "limits.attach_wait_ms = 0\n[groups.{own}]\n[groups.{other}]\n[routes]\n\"{service}\" = \"{own}\"\n\
             \"{service}/{}\" = \"{other}\"\n",
            client::method(message)
        );
    }
    if side == SplitSide::GatewayStream {
        let [ca, certificate, key] = certificates::files(dir, "server");
        text += &format!(
            "[backends.stream]\naddress = \"127.0.0.1:0\"\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}\n\
             [groups.default]\nsubjects = [\"CN={}\"]\n",
            certificates::BACKENDS
        );
    }
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    let gateway = Gateway::bind(config).await.map_err(|error| error.to_string())?;
    let mut addresses = gateway.addresses();
    if let Some(stream) = addresses.get("backends.stream") {
        std::fs::write(dir.join(STREAM), stream).map_err(|error| format!("cannot tell the port: {error}"))?;
    }
    let address = addresses.remove("listeners.world").unwrap_or_default();
    ready(Serving { address });
    gateway.run(std::future::pending()).await;
    Err("the gateway has stopped".to_owned())
}

/// The file in which a gateway tells where backends of other hosts attach.
const STREAM: &str = "stream";

/// Attaches as the side says.
fn attach(side: SplitSide, server: tollfree::Server, dir: &Path) -> Result<tollfree::Attaching, String> {
    if side != SplitSide::GatewayStream {
        return Ok(server.attach(meeting_place(dir)));
    }
    let stream =
        std::fs::read_to_string(dir.join(STREAM)).map_err(|error| format!("no port is told: {error}"))?;
    let port = stream.rsplit_once(':').map_or("", |(_, port)| port);
    let [ca, certificate, key] = certificates::files(dir, certificates::BACKENDS);
    let attaching = server.attach(format!("device+tls://{}:{port}", certificates::HOST));
    Ok(attaching.certificates(ca, certificate, key))
}

/// Serves over TCP with TLS.
async fn serve_tls(backends: Backends, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let service = crate::proto::split_server::SplitServer::new(backends);
    let service = service.max_decoding_message_size(usize::MAX);
    let router = tonic::transport::Server::builder()
        .tls_config(certificates::of_server(dir)?)
        .map_err(|error| error.to_string())?
        .add_service(service);
    let incoming =
        tonic::transport::server::TcpIncoming::bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))
            .map_err(|error| error.to_string())?
            .with_nodelay(Some(true));
    let address = incoming.local_addr().map_err(|error| error.to_string())?;
    ready(Serving { address: format!("https://{address}") });
    router.serve_with_incoming(incoming).await.map_err(|error| error.to_string())
}

fn meeting_place(dir: &Path) -> String {
    format!("shm://{}", dir.join("gateway.sock").display())
}

async fn backends(
    case: SplitCase,
    dir: &Path,
    group: Option<&str>,
    ready: impl FnOnce(Serving),
) -> Result<(), String> {
    let backends = Backends { busy: Duration::from_nanos(case.busy_ns) };
    if case.side == SplitSide::TonicTls {
        return serve_tls(backends, dir, ready).await;
    }
    if !case.side.is_gateway() {
        let service = crate::proto::split_server::SplitServer::new(backends);
        let service = service.max_decoding_message_size(usize::MAX);
        return tonic_unix::serve(tonic::transport::Server::builder().add_service(service), dir, ready).await;
    }
    let server = match case.side {
        SplitSide::GatewayLowLatency => tollfree::Server::builder().wait(WaitPolicy::LowLatency),
        SplitSide::GatewayObjects => {
            tollfree::Server::builder().trusted_gateways(tollfree::PeerPolicy::Users(Vec::new()))
        }
        _ => tollfree::Server::builder(),
    };
    let server = if case.side.has_objects() {
        let service = crate::objects::split_server::SplitServer::new(Objects::new(backends));
        server.add_service(service.max_decoding_message_size(usize::MAX))
    } else {
        let service = crate::direct::split_server::SplitServer::new(backends);
        server.add_service(service.max_decoding_message_size(usize::MAX))
    };
    ready(Serving { address: meeting_place(dir) });
    let attaching = attach(case.side, server, dir)?;
    let ended = match group {
        Some(group) => attaching.group(group).await,
        None => attaching.await,
    };
    Err(ended.map_or_else(|error| format!("attaching failed: {error}"), |()| "it was let go".to_owned()))
}
