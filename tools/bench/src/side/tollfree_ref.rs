//! Tollfree's own stubs with a pool: the bodies of requests and replies go by ref, however short they are.
//!
//! Neither end has them in the pool beforehand, and both want them in private memory in the end: what is compared is the
//! way between. Where it gets shorter than through the session is what [`tollfree::REF_THRESHOLD_DEFAULT`] says.

use std::path::Path;

use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, Server};

use super::AsyncSide;
use super::tollfree::serve;
use super::tollfree_direct::{Caller, caller, with_service};
use crate::order::{Serve, Serving};
use crate::plan::Case;

pub(super) struct TollfreeRef;

/// Where the pool of a server's directory is coordinated.
fn pool_address(directory: &Path) -> Result<Address, String> {
    let address = format!("shm://{}/pool.sock", directory.display());
    address.parse().map_err(|error| format!("no address for a pool: {error}"))
}

/// A member has some memory before the first call that counts.
fn warm(pool: Pool) -> Result<Pool, String> {
    drop(pool.buffer(1).map_err(|error| format!("no memory in the pool: {error}"))?);
    Ok(pool)
}

impl AsyncSide for TollfreeRef {
    type Caller = Caller;

    async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
        let created = Pool::create(&pool_address(&order.dir)?, Capacity::default(), Config::default());
        let pool = warm(created.map_err(|error| error.to_string())?)?;
        let server = with_service(Server::builder().pool(pool).ref_threshold(1), order.case);
        serve(server, &order.dir, ready).await
    }

    async fn connect(address: &str, case: Case) -> Result<Caller, String> {
        let path = Path::new(address.strip_prefix("shm://").unwrap_or(address));
        let directory = path.parent().ok_or_else(|| format!("{address} is in no directory"))?;
        let joined = Pool::join(&pool_address(directory)?, Config::default());
        let pool = warm(joined.map_err(|error| error.to_string())?)?;
        caller(Channel::builder(address).pool(pool).ref_threshold(1), case).await
    }
}
