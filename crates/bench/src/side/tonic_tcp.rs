//! Stock tonic, HTTP/2 over TCP on the loopback interface, without Nagle's delay on either end.

use std::net::Ipv4Addr;

use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use super::AsyncSide;
use super::stub::{self, Stub};
use crate::order::{Serve, Serving};

pub(super) struct TonicTcp;

impl AsyncSide for TonicTcp {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let refused = |error| format!("cannot listen on the loopback interface: {error}");
        let incoming = TcpIncoming::bind(any).map_err(refused)?.with_nodelay(Some(true));
        let address = incoming.local_addr().map_err(refused)?;
        ready(Serving { address: format!("http://{address}") });
        Server::builder()
            .add_service(stub::server(order.case.size))
            .serve_with_incoming(incoming)
            .await
            .map_err(|error| format!("serving on {address} ended: {error}"))
    }

    async fn connect(address: &str, size: usize) -> Result<Stub<Channel>, String> {
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|error| format!("{address} is no address: {error}"))?
            .tcp_nodelay(true);
        let channel =
            endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Stub::new(channel, size))
    }
}
