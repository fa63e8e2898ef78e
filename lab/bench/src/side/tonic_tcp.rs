//! Stock tonic, HTTP/2 over TCP on the loopback interface, without Nagle's delay on either end.

use std::net::Ipv4Addr;

use tonic::transport::server::Router;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

use super::AsyncSide;
use super::stub::{self, Stub};
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct TonicTcp;

impl AsyncSide for TonicTcp {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        serve(stub::router(order.case), ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        Ok(Stub::new(connect(address).await?, case))
    }
}

/// Serves what the router knows, and calls `ready` once clients may connect.
pub(crate) async fn serve(router: Router, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let refused = |error| format!("cannot listen on the loopback interface: {error}");
    let incoming = TcpIncoming::bind(any).map_err(refused)?.with_nodelay(Some(true));
    let address = incoming.local_addr().map_err(refused)?;
    ready(Serving { address: format!("http://{address}") });
    let ended = router.serve_with_incoming(incoming).await;
    ended.map_err(|error| format!("serving on {address} ended: {error}"))
}

pub(crate) async fn connect(address: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(|error| format!("{address} is no address: {error}"))?
        .tcp_nodelay(true);
    endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))
}
