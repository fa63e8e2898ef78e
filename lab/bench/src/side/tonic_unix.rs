//! Stock tonic, HTTP/2 over a Unix socket, every setting as tonic has it.

use std::path::Path;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint};

use super::AsyncSide;
use super::stub::{self, Stub};
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct TonicUnix;

impl AsyncSide for TonicUnix {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(stub::router(order.case), &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        Ok(Stub::new(connect(address).await?, case))
    }
}

/// Serves what the router knows in a directory, and calls `ready` once clients may connect.
pub(crate) async fn serve(router: Router, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = dir.join("tonic.sock");
    let listener =
        UnixListener::bind(&path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
    ready(Serving { address: format!("unix:{}", path.display()) });
    let ended = router.serve_with_incoming(UnixListenerStream::new(listener)).await;
    ended.map_err(|error| format!("serving on {} ended: {error}", path.display()))
}

pub(crate) async fn connect(address: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(|error| format!("{address} is no address: {error}"))?;
    endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))
}
