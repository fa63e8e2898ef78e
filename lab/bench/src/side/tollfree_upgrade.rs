//! Tollfree at level 0: the client is told an address on TCP, and measures when its calls have left it for shared memory.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use tollfree::{Channel, Server, Transport};

use super::AsyncSide;
use super::stub::Stub;
use super::tollfree::{appears, ending, with_stub};
use crate::order::{Serve, Serving};
use crate::plan::Case;

/// A channel that has not moved over by then does not do so.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between the two parts of the address that clients are told: where the server is on TCP, and the directory of its socket.
const AND: &str = " in ";

pub(super) struct TollfreeUpgrade;

impl AsyncSide for TollfreeUpgrade {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let free = free.map_err(|error| format!("no port on the loopback interface: {error}"))?;
        let path = order.dir.join("tollfree.sock");
        // The socket is bound last: where it is seen, both listen.
        let uris = [format!("http://{free}"), format!("shm://{}", path.display())];
        let server = with_stub(Server::builder(), order.case);
        let serving = server.serve_many(uris.iter().map(String::as_str));
        tokio::pin!(serving);
        tokio::select! {
            biased;
            ended = &mut serving => return Err(ending(&uris[0], ended)),
            () = appears(&path) => ready(Serving { address: format!("{}{AND}{}", uris[0], order.dir.display()) }),
        }
        Err(ending(&uris[0], serving.await))
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        let (uri, directory) =
            address.split_once(AND).ok_or_else(|| format!("{address} has no directory"))?;
        let channel = Channel::builder(uri).upgrade_directory(directory).connect().await;
        let channel = channel.map_err(|error| format!("cannot connect: {error}"))?;
        let began = Instant::now();
        while channel.path().endpoints[0].transport != Transport::SharedMemory {
            if began.elapsed() > PATIENCE {
                return Err(format!("calls have not moved over: {}", channel.path()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Stub::new(channel, case))
    }
}
