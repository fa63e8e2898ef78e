//! A server behind a gateway that it trusts becomes a member of the pool in which the gateway places objects for it.
//!
//! Joins of sessions with one gateway stand in line, so that they are one member. Nobody else's wait for them: who coordinates a pool may
//! be silent.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;
use tollfree_driver_tokio::aside;
use tollfree_pool::{Address, Config, Invitation, Pool};
use tonic::Status;

/// This process only reads there: it asks for no memory of its own.
fn config() -> Config {
    Config { low_watermark: 0, ..Config::default() }
}

/// The memberships of a server's sessions, by where each pool is. Backend connections with the same gateway are one member.
#[derive(Clone, Default)]
pub(crate) struct Memberships {
    known: Arc<Mutex<HashMap<Address, Weak<Line>>>>,
}

/// A session that has joined: what keeps the membership in it.
type Member = Weak<OnceLock<Pool>>;

/// The sessions that have joined one pool. Whoever is about to join it holds the lock.
type Line = Turn<Vec<Member>>;

/// What one session needs for that.
#[derive(Clone)]
pub(crate) struct Joining {
    memberships: Memberships,
    /// It joins once, and one pool at a time.
    turn: Arc<Turn<Option<Arc<Line>>>>,
    /// Where the session finds the pool then.
    reads_in: Arc<OnceLock<Pool>>,
}

impl Memberships {
    /// For a session.
    pub(crate) fn joining(&self, reads_in: Arc<OnceLock<Pool>>) -> Joining {
        Joining { memberships: self.clone(), turn: Arc::default(), reads_in }
    }

    /// The sessions that have joined a pool, or are about to.
    fn at(&self, address: &Address) -> Arc<Line> {
        let mut known = self.known.lock();
        known.retain(|_, members| members.strong_count() > 0);
        let at = known.get(address).and_then(Weak::upgrade).unwrap_or_default();
        known.insert(address.clone(), Arc::downgrade(&at));
        at
    }
}

impl Joining {
    /// Becomes a member of the pool that is coordinated there, and to which this process was invited.
    ///
    /// # Errors
    /// UNAVAILABLE with the pool's own words; ALREADY_EXISTS where the session has joined, or is about to.
    pub(crate) async fn join(self, address: Address, invitation: Invitation) -> Result<(), Status> {
        let again = || Status::already_exists("this session has joined a pool, or is about to");
        let mut own = self.turn.try_lock().map_err(|_| again())?;
        if own.is_some() {
            return Err(again());
        }
        let at = self.memberships.at(&address);
        let mut members = at.lock().await;
        members.retain(|session| session.strong_count() > 0);
        let pool = match members.iter().find_map(|session| session.upgrade()?.get().cloned()) {
            Some(pool) => pool,
            None => {
                let unavailable = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
                let joined = aside(move || Pool::join_by_invitation(&address, &invitation, config())).await;
                joined.map_err(|error| unavailable(&error))?.map_err(|error| unavailable(&error))?
            }
        };
        self.reads_in.set(pool).map_err(|_| again())?;
        members.push(Arc::downgrade(&self.reads_in));
        *own = Some(at.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollfree_os::linux::net::SocketAddrExt;
    use tollfree_os::unix::net::{SocketAddr, UnixListener};
    use tollfree_pool::Capacity;
    use tonic::Code;

    use super::*;

    fn address(name: &str) -> Address {
        format!("shm-abstract:tollfree-joining-{name}-{}", std::process::id()).parse().unwrap()
    }

    /// A pool's coordinator that says nothing holds up those who join it, and nobody else.
    #[tokio::test]
    async fn nobody_waits_for_anothers_join() {
        let [silent, good] = ["silent", "good"].map(address);
        let Address::Abstract(name) = &silent else { unreachable!() };
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let made = Pool::create_by_invitation(&good, Capacity::default(), config()).unwrap();
        let (memberships, invite) = (Memberships::default(), || made.1.invite().unwrap());
        let sessions = [(); 4].map(|()| memberships.joining(Arc::default()));
        let waiting = tokio::spawn(sessions[0].clone().join(silent.clone(), invite()));
        let behind = tokio::spawn(sessions[1].clone().join(silent, invite()));
        tokio::task::yield_now().await;
        for session in &sessions[2..] {
            let joined = session.clone().join(good.clone(), invite());
            tokio::time::timeout(Duration::from_secs(60), joined).await.unwrap().unwrap();
        }
        assert!(!waiting.is_finished() && !behind.is_finished(), "it was in line behind the silent one");
        let [one, other] = [2, 3].map(|at: usize| sessions[at].reads_in.get().unwrap().clone());
        let bytes = one.copy_from_slice(&[7; 5000]).unwrap();
        assert!(other.has(&bytes), "sessions with one gateway are one member");
        // Each session joins once, and one pool at a time.
        for session in [&sessions[0], &sessions[2]] {
            let again = session.clone().join(good.clone(), invite()).await.unwrap_err();
            assert_eq!(again.code(), Code::AlreadyExists);
        }
        waiting.abort();
        behind.abort();
    }
}
