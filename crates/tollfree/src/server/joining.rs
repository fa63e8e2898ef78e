//! A server behind a shepherd that it trusts becomes a member of the pool in which the shepherd places objects for it.

use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::Mutex;
use tollfree_pool::{Address, Config, Pool};
use tonic::Status;

/// This process only reads there: it asks for no memory of its own.
fn config() -> Config {
    Config { low_watermark: 0, ..Config::default() }
}

/// Where a pool is, and what keeps the membership in one session.
type Membership = (Address, Weak<OnceLock<Pool>>);

/// The memberships of a server's sessions, by where each pool is. Workers with the same shepherd are one member.
#[derive(Clone, Default)]
pub(crate) struct Memberships {
    known: Arc<Mutex<Vec<Membership>>>,
}

/// What one session needs for that.
#[derive(Clone)]
pub(crate) struct Joining {
    memberships: Memberships,
    /// Where the session finds the pool then.
    reads_in: Arc<OnceLock<Pool>>,
}

impl Memberships {
    /// For a session.
    pub(crate) fn joining(&self, reads_in: Arc<OnceLock<Pool>>) -> Joining {
        Joining { memberships: self.clone(), reads_in }
    }
}

impl Joining {
    /// Becomes a member of the pool that is coordinated there.
    ///
    /// # Errors
    /// UNAVAILABLE with the pool's own words.
    pub(crate) async fn join(self, address: Address) -> Result<(), Status> {
        let mut known = self.memberships.known.lock().await;
        known.retain(|(_, session)| session.strong_count() > 0);
        let mut same = known.iter().filter(|(at, _)| *at == address);
        let pool = match same.find_map(|(_, session)| session.upgrade()?.get().cloned()) {
            Some(pool) => pool,
            None => {
                let at = address.clone();
                let joined = tokio::task::spawn_blocking(move || Pool::join(&at, config())).await;
                let joined = joined.map_err(|error| Status::unavailable(error.to_string()))?;
                joined.map_err(|error| Status::unavailable(error.to_string()))?
            }
        };
        if self.reads_in.set(pool).is_err() {
            return Err(Status::already_exists("this session has joined a pool"));
        }
        known.push((address, Arc::downgrade(&self.reads_in)));
        Ok(())
    }
}
