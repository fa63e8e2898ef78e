//! Where objects are placed for backend connections that read them there: a pool for each group.
//!
//! # Trust
//! Members can read all of a pool. So no two groups have one in common, and only processes of the gateway's own user are asked to join: each by an
//! invitation that is told to it in its session and is good once. Where the pool is anybody can see. The
//! gateway reads nothing in it but what it wrote itself: a segmented message that a backend connection sends is refused. What one process may hold of
//! the pool is limited; a backend connection that gives nothing back gets copies then, and others go on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;
use tollfree::gateway::{Token, aside};
use tollfree_pool::{Address, Capacity, Config, Inviter, Pool};

/// Bytes of objects that a group's backend connections may hold together.
const GROUP_LEN_MAX: u64 = 64 << 20;
/// Bytes of them that one process may hold.
const PROCESS_LEN_MAX: u64 = GROUP_LEN_MAX / 4;

/// A group's pool.
pub(super) struct GroupPool {
    pub(super) pool: Pool,
    inviter: Inviter,
    /// Where its members join.
    pub(super) address: HeaderValue,
}

impl GroupPool {
    /// Waits for threads to start.
    fn make() -> Result<GroupPool, String> {
        let name = Token::random().map_err(|error| error.to_string())?;
        let address = Address::Abstract(format!("tollfree-objects-{name}"));
        let capacity =
            Capacity { total: 2 * GROUP_LEN_MAX, member_quota: GROUP_LEN_MAX, ..Capacity::default() };
        let config = Config { reader_limit: Some(PROCESS_LEN_MAX), ..Config::default() };
        let made = Pool::create_by_invitation(&address, capacity, config);
        let (pool, inviter) = made.map_err(|error| error.to_string())?;
        let address = HeaderValue::try_from(address.to_string()).map_err(|error| error.to_string())?;
        Ok(GroupPool { pool, inviter, address })
    }

    /// By what one process can join.
    pub(super) fn invite(&self) -> Result<HeaderValue, String> {
        let invitation = self.inviter.invite().map_err(|error| error.to_string())?;
        let mut value = HeaderValue::try_from(invitation.to_text()).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Where a group's pool is, if it has one. Whoever makes it holds the lock.
type Slot = Turn<Weak<GroupPool>>;

/// The pools of all groups that have backend connections.
#[derive(Default)]
pub(super) struct GroupPools {
    by_group: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
}

impl GroupPools {
    /// The pool of a group, which is there for as long as a backend connection keeps it.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn of(&self, group: &Arc<str>) -> Result<Arc<GroupPool>, String> {
        // One group's pool is made once, and no other group waits for it.
        let turn = {
            let mut by_group = self.by_group.lock();
            by_group.retain(|_, turn| {
                Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|place| place.strong_count() > 0)
            });
            by_group.entry(group.clone()).or_default().clone()
        };
        let mut of_group = turn.lock().await;
        if let Some(place) = of_group.upgrade() {
            return Ok(place);
        }
        let made = aside(GroupPool::make).await;
        let place = Arc::new(made.map_err(|error| error.to_string())??);
        *of_group = Arc::downgrade(&place);
        Ok(place)
    }
}
