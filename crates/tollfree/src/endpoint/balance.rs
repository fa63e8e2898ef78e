//! Choosing an endpoint for a call, and keeping endpoints connected.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;

use crate::endpoint::redial::PROVEN;
use crate::endpoint::{Connection, Endpoint, Health, upgrade};

/// How a channel chooses an endpoint for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// The first in the list that can be reached. One further down is used while those before it fail, and no longer.
    #[default]
    PickFirst,
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest calls under way: by the word of the server, where it is reached through a session, for
    /// that counts everybody's calls; by the channel's own calls elsewhere.
    LeastOutstanding,
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Balance::PickFirst => "pick_first",
            Balance::RoundRobin => "round_robin",
            Balance::LeastOutstanding => "least_outstanding",
        })
    }
}

/// An endpoint and a connection to it.
#[derive(Clone)]
pub(crate) struct Picked {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) connection: Connection,
}

/// What is done while an endpoint is watched: its health is noted, and those that wait are told.
pub(crate) type Watching<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How an endpoint's health is asked for.
#[derive(Clone)]
pub(crate) struct HealthCheck {
    pub(crate) service: Arc<str>,
    /// Watches an endpoint by one of its connections, for as long as it is polled.
    pub(crate) watch: for<'a> fn(&'a Arc<Endpoint>, &'a Connection, &'a str, &'a Notify) -> Watching<'a>,
}

/// Chooses among endpoints.
pub(crate) struct Balancer {
    pub(crate) balance: Balance,
    /// Written to by channels only whose endpoints change while they are used.
    endpoints: RwLock<Vec<Arc<Endpoint>>>,
    /// How health is asked for, if it is.
    health: Option<HealthCheck>,
    /// Counts choices.
    turn: AtomicUsize,
    /// The last choice of `pick_first`, to say when it changes.
    chosen: AtomicUsize,
    /// Something became of an endpoint.
    changed: Arc<Notify>,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.endpoints.get_mut().iter().for_each(|endpoint| endpoint.let_go());
    }
}

/// What a look at the endpoints came to.
enum Look {
    Picked(Arc<Endpoint>, Connection),
    /// One of them is being connected for the first time, or again.
    Wait,
    /// None of them can be reached now.
    Failing(Status),
}

/// What a call's own attempts came to.
enum Tried {
    /// There was none to make.
    Nothing,
    Connected,
    /// The reason of one.
    Failed(Status),
}

impl Balancer {
    pub(crate) fn new(
        balance: Balance,
        endpoints: Vec<Arc<Endpoint>>,
        health: Option<HealthCheck>,
    ) -> Balancer {
        Balancer {
            balance,
            health,
            turn: AtomicUsize::new(0),
            chosen: AtomicUsize::new(usize::MAX),
            changed: Arc::default(),
            endpoints: RwLock::new(endpoints),
        }
    }

    /// Chooses from a further endpoint, in the place of `old` if there is one. Must be called in a tokio runtime.
    pub(crate) fn insert(&self, endpoint: Arc<Endpoint>, old: Option<&Arc<Endpoint>>) {
        let mut endpoints = self.endpoints.write();
        let place = old.and_then(|old| endpoints.iter().position(|known| Arc::ptr_eq(known, old)));
        match place {
            Some(idx) => std::mem::replace(&mut endpoints[idx], endpoint.clone()).let_go(),
            None => endpoints.push(endpoint.clone()),
        }
        if self.balance != Balance::PickFirst && self.turn.load(Ordering::Relaxed) > 0 {
            // The others have been connected since the first call.
            self.keep(&endpoint);
        }
        self.note_change(&endpoints);
    }

    /// Chooses from an endpoint no more. Calls under way there go on.
    pub(crate) fn remove(&self, endpoint: &Arc<Endpoint>) {
        let mut endpoints = self.endpoints.write();
        endpoints.retain(|known| !Arc::ptr_eq(known, endpoint));
        endpoint.let_go();
        self.note_change(&endpoints);
    }

    /// The list has changed, and is still held.
    fn note_change(&self, _: &RwLockWriteGuard<'_, Vec<Arc<Endpoint>>>) {
        // The number of the last choice may be another's now.
        self.chosen.store(usize::MAX, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Chooses an endpoint, not `avoid` if there is another. With `wait` it waits until there is one; without, only while
    /// one is being connected that has not failed.
    ///
    /// # Errors
    /// UNAVAILABLE when all fail, with the reason of the first.
    pub(crate) async fn pick(&self, wait: bool, avoid: Option<&Arc<Endpoint>>) -> Result<Picked, Status> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Status::internal(
                "a channel with several endpoints is to be called in a tokio runtime",
            ));
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let failing = match self.look(avoid) {
                Look::Picked(endpoint, connection) => return Ok(Picked { endpoint, connection }),
                Look::Failing(status) => status,
                Look::Wait => {
                    changed.await;
                    continue;
                }
            };
            tokio::select! {
                tried = self.try_again() => match tried {
                    Tried::Nothing if wait => changed.await,
                    Tried::Nothing => return Err(failing),
                    Tried::Failed(status) if !wait => return Err(status),
                    Tried::Failed(_) => {}
                    Tried::Connected => self.changed.notify_waiters(),
                },
                () = &mut changed => {}
            }
        }
    }

    /// Tries all endpoints at once that calls try, until one is connected.
    async fn try_again(&self) -> Tried {
        let tried: Vec<_> = {
            let endpoints = self.endpoints.read();
            endpoints.iter().filter(|endpoint| endpoint.is_tried_by_calls()).cloned().collect()
        };
        if tried.is_empty() {
            return Tried::Nothing;
        }
        let mut attempts: FuturesUnordered<_> = tried.iter().map(|endpoint| endpoint.connection()).collect();
        let mut first_failure = None;
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(_) => return Tried::Connected,
                Err(status) => first_failure = first_failure.or(Some(status)),
            }
        }
        first_failure.map_or(Tried::Nothing, Tried::Failed)
    }

    /// The same, where nothing has to be waited for.
    pub(crate) fn pick_now(&self) -> Option<(Arc<Endpoint>, Connection)> {
        tokio::runtime::Handle::try_current().ok()?;
        match self.look(None) {
            Look::Picked(endpoint, connection) => Some((endpoint, connection)),
            _ => None,
        }
    }

    fn look(&self, avoid: Option<&Arc<Endpoint>>) -> Look {
        let endpoints = self.endpoints.read();
        match self.balance {
            // One that changes, and has none yet.
            _ if endpoints.is_empty() => Look::Wait,
            Balance::PickFirst => self.look_in_order(&endpoints, avoid),
            _ => self.look_around(&endpoints, avoid),
        }
    }

    fn look_in_order(&self, endpoints: &[Arc<Endpoint>], avoid: Option<&Arc<Endpoint>>) -> Look {
        let mut first_failure = None;
        for (idx, endpoint) in endpoints.iter().enumerate() {
            if endpoint.mover().is_some() {
                // It has work to do there beyond the first connection.
                self.keep(endpoint);
            }
            if let Some(connection) = endpoint.ready() {
                let last = self.chosen.swap(idx, Ordering::Relaxed);
                if last != idx
                    && let Some(last) = endpoints.get(last)
                {
                    tracing::info!(
                        from = %last.name,
                        to = %endpoint.name,
                        "calls go to another endpoint: it is the first that can be reached"
                    );
                }
                return Look::Picked(endpoint.clone(), connection);
            }
            self.keep(endpoint);
            match endpoint.failing() {
                Some(status) => first_failure = first_failure.or(Some(status)),
                // Just lost: while it is tried again, a call that was there already goes on to the next.
                None if avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, endpoint)) && endpoints.len() > 1 => {}
                None => return Look::Wait,
            }
        }
        first_failure.map_or(Look::Wait, Look::Failing)
    }

    fn look_around(&self, endpoints: &[Arc<Endpoint>], avoid: Option<&Arc<Endpoint>>) -> Look {
        let count = endpoints.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if turn == 0 {
            // All from the first call on, as in gRPC: that one may find an endpoint that is ready, and look no further.
            endpoints.iter().for_each(|endpoint| self.keep(endpoint));
        }
        let first = turn % count;
        let (mut best, mut spare): (Option<(u32, _)>, _) = (None, None);
        let (mut failure, mut waits) = (None, false);
        for step in 0..count {
            let endpoint = &endpoints[(first + step) % count];
            self.keep(endpoint);
            let Some(connection) = endpoint.ready() else {
                match endpoint.failing() {
                    Some(status) => failure = failure.or(Some(status)),
                    None => waits = true,
                }
                continue;
            };
            let picked = (endpoint, connection);
            if avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, endpoint)) {
                spare = Some(picked);
                continue;
            }
            if self.balance == Balance::RoundRobin {
                return Look::Picked(picked.0.clone(), picked.1);
            }
            let load = endpoint.load();
            if best.as_ref().is_none_or(|(least, _)| load < *least) {
                best = Some((load, picked));
            }
        }
        match (best.map(|(_, picked)| picked).or(spare), failure) {
            (Some((endpoint, connection)), _) => Look::Picked(endpoint.clone(), connection),
            (None, Some(status)) if !waits => Look::Failing(status),
            _ => Look::Wait,
        }
    }

    /// Sees to it that an endpoint gets connected, and connected again.
    fn keep(&self, endpoint: &Arc<Endpoint>) {
        endpoint.keep(|| {
            // `pick_first` knows no health, as in gRPC.
            let health = self.health.clone().filter(|_| self.balance != Balance::PickFirst);
            let (endpoint, changed) = (endpoint.clone(), self.changed.clone());
            async move {
                tokio::join!(
                    keep(endpoint.clone(), health, changed.clone()),
                    upgrade::keep(&endpoint, &changed)
                );
            }
        });
    }

    /// The endpoints, as they are now. They can't change while this is held.
    pub(crate) fn endpoints(&self) -> RwLockReadGuard<'_, Vec<Arc<Endpoint>>> {
        self.endpoints.read()
    }
}

/// Keeps one endpoint connected, and watches its health where that is asked for.
async fn keep(endpoint: Arc<Endpoint>, health: Option<HealthCheck>, changed: Arc<Notify>) {
    loop {
        if health.is_some() {
            endpoint.set_health(Health::Unknown);
        }
        let connection = match endpoint.connection().await {
            Ok(connection) => connection,
            Err(_) => {
                changed.notify_waiters();
                endpoint.rest().await;
                continue;
            }
        };
        let began = Instant::now();
        changed.notify_waiters();
        match &health {
            None => over(&endpoint, &connection).await,
            Some(health) => tokio::select! {
                () = over(&endpoint, &connection) => {}
                () = (health.watch)(&endpoint, &connection, &health.service, &changed) => {}
            },
        }
        endpoint.retire_connection(&connection);
        changed.notify_waiters();
        if began.elapsed() < PROVEN {
            endpoint.rest().await;
        }
    }
}

/// Resolves when a connection is of no use for new calls any more.
async fn over(endpoint: &Endpoint, connection: &Connection) {
    match connection {
        Connection::Session(attachment) => poll_fn(|cx| attachment.poll_over(cx)).await,
        Connection::Http2(..) => endpoint.broken.notified().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoint::upgrade::Plan;
    use crate::message::payloads::Sharing;

    #[tokio::test]
    async fn one_call_has_all_endpoints_connected_though_the_first_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let config = tollfree_transport::Config::default();
        let mut servers = tokio::task::JoinSet::new();
        let endpoints = ["a", "b", "c"].map(|name| {
            let uri = format!("shm://{}", directory.path().join(name).display());
            let endpoint = Endpoint::new(
                &uri,
                &config,
                &Arc::<Sharing>::default(),
                &Plan::Stay("it has a session"),
                &crate::endpoint::http2::Http2::default(),
                &None,
            );
            servers.spawn(async move { crate::Server::builder().serve(&uri).await });
            Arc::new(endpoint.unwrap())
        });
        let connected = async {
            while endpoints[0].connect_now().await.is_err() {
                tokio::task::yield_now().await;
            }
            let balancer = Balancer::new(Balance::RoundRobin, endpoints.to_vec(), None);
            let picked = balancer.pick(false, None).await.unwrap();
            assert_eq!(picked.endpoint.name, endpoints[0].name, "it was ready before");
            while !endpoints.iter().all(|endpoint| endpoint.ready().is_some()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), connected).await.expect("all are connected");
    }
}
