//! Connecting and serving on either stack.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tollfree::{Transport, WaitPolicy};
use tollfree_bench::certificates;
use tonic::transport::Endpoint;
use tonic::transport::server::Router;

use crate::process::Serving;
use crate::seat::Seat;
use crate::side::Side;

/// Pause between two looks at whether the server's socket is there.
const GLANCE: Duration = Duration::from_millis(1);

pub(crate) async fn connect_tonic(address: &str) -> Result<tonic::transport::Channel, String> {
    let endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(|error| format!("{address} is no address: {error}"))?;
    endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))
}

/// Stock tonic, HTTP/2 over a Unix socket, every setting as tonic has it.
pub(crate) async fn serve_tonic(
    router: Router,
    seat: &Seat,
    ready: impl FnOnce(String),
) -> Result<(), String> {
    let path = &seat.socket;
    let listener =
        UnixListener::bind(path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
    ready(format!("unix:{}", path.display()));
    let served = router.serve_with_incoming(UnixListenerStream::new(listener)).await;
    served.map_err(|error| format!("serving on {} ended: {error}", path.display()))
}

/// A channel of Tollfree's, with the pool where the side has one.
pub(crate) async fn connect_tollfree(seat: &Seat, address: &str) -> Result<tollfree::Channel, String> {
    let mut builder = match seat.side {
        side if side.has_gateway() => {
            let [ca, certificate, key] = certificates(seat);
            // One of this host wants to see none.
            tollfree::Channel::builder(meeting_place(seat)?).certificates(ca, certificate, key).via(address)
        }
        _ => tollfree::Channel::builder(address),
    };
    if let Some(pool) = &seat.pool {
        builder = builder.pool(pool.clone());
    }
    if let Some(threshold) = seat.ref_threshold {
        builder = builder.ref_threshold(threshold);
    }
    if seat.park {
        builder = builder.wait(WaitPolicy::Park);
    }
    let channel = builder.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    let (path, is_far) = (channel.path(), seat.side == Side::GatewayStream);
    if is_far != path.endpoints.iter().all(|endpoint| endpoint.transport == Transport::Stream) {
        return Err(format!("calls to {address} would go another way: {path}"));
    }
    seat.counters.also_count(channel.payloads());
    Ok(channel)
}

/// A server of Tollfree's, with the pool where the side has one.
pub(crate) fn server(seat: &Seat) -> tollfree::Server {
    let mut server = tollfree::Server::builder();
    if let Some(pool) = &seat.pool {
        server = server.pool(pool.clone());
    }
    if let Some(threshold) = seat.ref_threshold {
        server = server.ref_threshold(threshold);
    }
    if seat.park {
        server = server.wait(WaitPolicy::Park);
    }
    seat.counters.also_count(server.payloads());
    server
}

pub(crate) async fn serve_tollfree(
    server: tollfree::Server,
    seat: &Seat,
    ready: impl FnOnce(String),
) -> Result<(), String> {
    let address = format!("shm://{}", seat.socket.display());
    let serving = server.serve(&address);
    tokio::pin!(serving);
    // Both in one task: where the socket is seen, the server's turn is over and it listens.
    let ended = tokio::select! {
        biased;
        ended = &mut serving => ended,
        () = appears(&seat.socket) => {
            ready(address.clone());
            serving.await
        }
    };
    match ended {
        Ok(()) => Err(format!("serving on {address} ended")),
        Err(error) => Err(format!("serving on {address} ended: {error}")),
    }
}

async fn appears(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(GLANCE).await;
    }
}

/// The group that all services attach to: each may call its own group.
const GROUP: &str = "hotel";
/// Processes may start this late on a busy machine: calls of their services wait.
const ATTACH_WAIT_MS: u64 = 30_000;

/// Where services and their gateway meet.
fn meeting_place(seat: &Seat) -> Result<&str, String> {
    seat.gateway.as_deref().ok_or_else(|| "nobody has said where the gateway is".to_owned())
}

/// What a service shows and trusts at a gateway of another host.
fn certificates(seat: &Seat) -> [PathBuf; 3] {
    certificates::files(seat.dir(), certificates::BACKENDS)
}

/// Serves by way of the gateway.
pub(crate) async fn attach(
    server: tollfree::Server,
    seat: &Seat,
    ready: impl FnOnce(String),
) -> Result<(), String> {
    // Calls wait at the gateway until it is attached.
    ready(format!("group:{GROUP}"));
    let meeting_place = meeting_place(seat)?;
    let [ca, certificate, key] = certificates(seat);
    match server.attach(meeting_place).certificates(ca, certificate, key).group(GROUP).await {
        Ok(()) => Err(format!("the gateway at {meeting_place} let the service go")),
        Err(error) => Err(format!("cannot attach to {meeting_place}: {error}")),
    }
}

/// Is the gateway, as the command is: with a thread for each core that it may use.
pub(crate) fn gateway(seat: &Seat, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let mut text = format!(
        "listeners.world.address = \"unix:{}\"\nbackends.socket = \"shm://{}\"\nlimits.streams = 4096\n\
         limits.attach_wait_ms = {ATTACH_WAIT_MS}\n",
        seat.socket.display(),
        seat.dir().join("backends.sock").display()
    );
    if seat.side == Side::GatewayStream {
        let [ca, certificate, key] = certificates::files(seat.dir(), "server");
        text += &format!(
            "[backends.stream]\naddress = \"127.0.0.1:0\"\ncertificate = {certificate:?}\nkey = {key:?}\n\
             client_ca = {ca:?}\n[groups.{GROUP}]\nsubjects = [\"CN={}\"]\n",
            certificates::BACKENDS
        );
    }
    let config = tollfree_gateway::Config::from_toml(&text).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the async runtime: {error}"))?;
    runtime.block_on(async {
        let gateway = tollfree_gateway::Gateway::bind(config).await.map_err(|error| error.to_string())?;
        let mut addresses = gateway.addresses();
        let mut of = |name: &str| addresses.remove(name);
        let meeting_place = match of("backends.stream") {
            // The certificate names the host, and not its number.
            Some(stream) => {
                stream.rsplit_once(':').map(|(_, port)| format!("device+tls://{}:{port}", certificates::HOST))
            }
            None => of("backends"),
        };
        ready(Serving { address: of("listeners.world").unwrap_or_default(), meeting_place });
        gateway.run(std::future::pending()).await;
        Err("the gateway has stopped".to_owned())
    })
}
