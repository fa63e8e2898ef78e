//! The pool of a server and its client, where a side has one.

use std::path::Path;

use tollfree::pool::{Address, Capacity, Config, Pool};

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

/// The server's, of which it is the coordinator.
pub(super) fn create(directory: &Path) -> Result<Pool, String> {
    let created = Pool::create(&pool_address(directory)?, Capacity::default(), Config::default());
    warm(created.map_err(|error| error.to_string())?)
}

/// The client's, of the server at this address.
pub(super) fn join(address: &str) -> Result<Pool, String> {
    let path = Path::new(address.strip_prefix("shm://").unwrap_or(address));
    let directory = path.parent().ok_or_else(|| format!("{address} is in no directory"))?;
    let joined = Pool::join(&pool_address(directory)?, Config::default());
    warm(joined.map_err(|error| error.to_string())?)
}
