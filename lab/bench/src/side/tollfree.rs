//! Tollfree under the same unmodified stubs, every setting as Tollfree has it.

use std::path::Path;

use tollfree::{Channel, Server, WaitPolicy};

use super::AsyncSide;
use super::stub::{self, Stub};
use crate::message::Message;
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct Tollfree;

impl AsyncSide for Tollfree {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(with_stub(Server::builder(), order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        let channel = Channel::connect(address).await.map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Stub::new(channel, case))
    }
}

/// The same where no core may spin: every wait is slept through.
pub(super) struct TollfreePark;

impl AsyncSide for TollfreePark {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let server = Server::builder().wait(WaitPolicy::Park);
        serve(with_stub(server, order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        let channel = Channel::builder(address).wait(WaitPolicy::Park).connect().await;
        Ok(Stub::new(channel.map_err(|error| format!("cannot connect: {error}"))?, case))
    }
}

/// A server with the generated service that carries a case's messages.
pub(crate) fn with_stub(server: Server, case: Case) -> Server {
    match case.message {
        Message::Probe => server.add_service(stub::server(case)),
        _ => server.add_service(stub::messages()),
    }
}

/// Serves in a directory, and calls `ready` once clients may connect.
pub(crate) async fn serve(server: Server, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = dir.join("tollfree.sock");
    let address = format!("shm://{}", path.display());
    let serving = server.serve(&address);
    tokio::pin!(serving);
    // Both in one task: where the socket is seen, the server's turn is over and it listens.
    tokio::select! {
        biased;
        ended = &mut serving => return Err(ending(&address, ended)),
        () = appears(&path) => ready(Serving { address: address.clone() }),
    }
    Err(ending(&address, serving.await))
}

/// Resolves as soon as there is a socket. The server has its turn between two looks.
pub(super) async fn appears(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn ending(address: &str, ended: Result<(), tollfree::ServeError>) -> String {
    match ended {
        Ok(()) => format!("serving on {address} ended"),
        Err(error) => format!("serving on {address} ended: {error}"),
    }
}
