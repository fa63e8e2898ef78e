//! Stock tonic, HTTP/2 over a Unix socket, every setting as tonic has it.

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};

use super::AsyncSide;
use super::stub::{self, Stub};
use crate::order::{Serve, Serving};

pub(super) struct TonicUnix;

impl AsyncSide for TonicUnix {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let path = order.dir.join("tonic.sock");
        let listener = UnixListener::bind(&path)
            .map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
        ready(Serving { address: format!("unix:{}", path.display()) });
        Server::builder()
            .add_service(stub::server(order.case.size))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .map_err(|error| format!("serving on {} ended: {error}", path.display()))
    }

    async fn connect(address: &str, size: usize) -> Result<Stub<Channel>, String> {
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|error| format!("{address} is no address: {error}"))?;
        let channel =
            endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Stub::new(channel, size))
    }
}
