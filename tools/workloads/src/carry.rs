//! Connecting and serving on either stack.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tollfree::WaitPolicy;
use tonic::transport::Endpoint;
use tonic::transport::server::Router;

use crate::seat::Seat;

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
    let mut builder = tollfree::Channel::builder(address);
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
