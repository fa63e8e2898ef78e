//! Where objects are placed for workers that read them there: a pool for each group.
//!
//! # Trust
//! Members can read all of a pool. So no two groups have one in common, and only processes of the shepherd's own user are asked to join. The
//! shepherd reads nothing in it but what it wrote itself: a rope that a worker sends is refused. What one process may hold of
//! the pool is limited; a worker that gives nothing back gets copies then, and others go on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use http::HeaderValue;
use tokio::sync::Mutex;
use tollfree_pool::{Address, Capacity, Config, Pool};
use tollfree_transport::Token;

/// Bytes of objects that a group's workers may hold together.
const GROUP_LEN_MAX: u64 = 64 << 20;
/// Bytes of them that one process may hold.
const PROCESS_LEN_MAX: u64 = GROUP_LEN_MAX / 4;

/// A group's pool.
pub(super) struct Place {
    pub(super) pool: Pool,
    /// Where its members join.
    pub(super) address: HeaderValue,
}

impl Place {
    /// Waits for threads to start.
    fn make() -> Result<Place, String> {
        let name = Token::random().map_err(|error| error.to_string())?;
        let address = Address::Abstract(format!("tollfree-objects-{name}"));
        let capacity =
            Capacity { total: 2 * GROUP_LEN_MAX, member_quota: GROUP_LEN_MAX, ..Capacity::default() };
        let config = Config { reader_limit: Some(PROCESS_LEN_MAX), ..Config::default() };
        let pool = Pool::create(&address, capacity, config).map_err(|error| error.to_string())?;
        let address = HeaderValue::try_from(address.to_string()).map_err(|error| error.to_string())?;
        Ok(Place { pool, address })
    }
}

/// The pools of all groups that have workers.
#[derive(Default)]
pub(super) struct Places {
    by_group: Mutex<HashMap<Arc<str>, Weak<Place>>>,
}

impl Places {
    /// The pool of a group, which is there for as long as a worker keeps it.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn of(&self, group: &Arc<str>) -> Result<Arc<Place>, String> {
        let mut by_group = self.by_group.lock().await;
        by_group.retain(|_, place| place.strong_count() > 0);
        if let Some(place) = by_group.get(group).and_then(Weak::upgrade) {
            return Ok(place);
        }
        let made = tokio::task::spawn_blocking(Place::make).await;
        let place = Arc::new(made.map_err(|error| error.to_string())??);
        by_group.insert(group.clone(), Arc::downgrade(&place));
        Ok(place)
    }
}
