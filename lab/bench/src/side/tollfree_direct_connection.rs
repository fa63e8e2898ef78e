//! Two processes behind a gateway, which has led one to the other: the client measures once its calls go directly.

use std::path::Path;
use std::time::{Duration, Instant};

use tollfree::{Channel, Server};
use tollfree_gateway::{Config, Gateway};

use super::AsyncSide;
use super::stub::Stub;
use super::tollfree::{ending, with_stub};
use crate::BenchError;
use crate::harness::Crew;
use crate::order::{self, Order, PEER, Serve, Serving};
use crate::peer::Starter;
use crate::plan::{Case, Side};

/// Calls that go through the gateway by then go on to.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct TollfreeDirectConnection;

impl AsyncSide for TollfreeDirectConnection {
    type Caller = Stub<Channel>;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let in_words = |error: BenchError| error.to_string();
        let crew = Crew::within(PEER, &order.dir);
        let gateway = crew.ready("gateway", None, Order::Gateway(order.dir.clone())).await;
        // It goes with this process.
        let (_gateway, Serving { address }) = gateway.map_err(in_words)?;
        let attaching = with_stub(Server::builder(), order.case).attach(&address);
        // Who calls waits for the gateway to have somebody to lead it to.
        ready(Serving { address: address.clone() });
        Err(ending(&address, attaching.await))
    }

    async fn connect(address: &str, case: Case) -> Result<Stub<Channel>, String> {
        let channel = Channel::via(address, "group:default").await;
        let channel = channel.map_err(|error| format!("cannot connect: {error}"))?;
        let began = Instant::now();
        loop {
            let path = channel.path().to_string();
            if path.contains(" by a direct connection ") {
                return Ok(Stub::new(channel, case));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the gateway leads nobody to the server: {path}"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The process that both meet at. It has nothing to do once it has led the client to the server.
pub(crate) fn gateway(dir: &Path, starter: &Starter) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::system("cannot start the async runtime"))?;
    let gateway = async {
        let address = format!("shm://{}", dir.join("gateway.sock").display());
        let text = format!(
            "listeners.world.address = \"unix:{}\"\nbackends.socket = \"{address}\"\n\
             [groups.default]\ndirect_connections = true\n",
            dir.join("world.sock").display()
        );
        let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
        let gateway = Gateway::bind(config).await.map_err(|error| error.to_string())?;
        starter.say(Serving { address });
        gateway.run(std::future::pending()).await;
        Err("the gateway has stopped".to_owned())
    };
    order::block_on(&runtime, gateway).map_err(super::failed(Side::TollfreeDirectConnection))
}
