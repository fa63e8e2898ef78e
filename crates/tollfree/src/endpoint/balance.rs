//! Choosing an endpoint for a call, and keeping endpoints connected.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tollfree_balancer::{Event, List, Look, Member, OutlierDetection, Pick, Policy, Record, Target};
use tollfree_driver_tokio::now_ns;
use tonic::Status;

use crate::endpoint::{Connection, Health, Subchannel, upgrade};
use tollfree_balancer::PROVEN;

/// How a channel chooses an endpoint for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// The first in the list that can be reached. One further down is used while those before it fail, and no longer.
    #[default]
    PickFirst,
    /// Each in turn, as often as its weight says.
    RoundRobin,
    /// The one with the fewest calls under way, beside its weight: by the word of the server, where it is reached through a session, for
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

impl From<Policy> for Balance {
    fn from(policy: Policy) -> Balance {
        match policy {
            Policy::PickFirst => Balance::PickFirst,
            Policy::RoundRobin => Balance::RoundRobin,
            Policy::LeastOutstanding => Balance::LeastOutstanding,
        }
    }
}

/// An endpoint and a connection to it.
#[derive(Clone)]
pub(crate) struct Picked {
    pub(crate) endpoint: Arc<Subchannel>,
    pub(crate) connection: Connection,
}

/// What is done while an endpoint is watched: its health is noted, and those that wait are told.
pub(crate) type Watching<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How an endpoint's health is asked for.
#[derive(Clone)]
pub(crate) struct HealthCheck {
    pub(crate) service: Arc<str>,
    /// Watches an endpoint by one of its connections, for as long as it is polled.
    pub(crate) watch: for<'a> fn(&'a Arc<Subchannel>, &'a Connection, &'a str, &'a Notify) -> Watching<'a>,
}

/// Chooses among endpoints: the rules are those of [`tollfree_balancer`]; connections, health and waiting are here.
pub(crate) struct Balancer {
    pub(crate) balance: Balance,
    /// Written to only where endpoints change while the channel is used, and where they may be ejected.
    list: RwLock<List<Arc<Subchannel>>>,
    /// How health is asked for, if it is.
    health: Option<HealthCheck>,
    /// A call has been made.
    is_used: AtomicBool,
    /// The last choice, to say when it changes: of `pick_first` its place in the list, else its priority.
    chosen: AtomicUsize,
    /// Something became of an endpoint.
    changed: Arc<Notify>,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.list.get_mut().members().iter().for_each(|member| member.endpoint().let_go());
    }
}

/// What a look at the endpoints came to.
enum Choice {
    Picked(Arc<Subchannel>, Connection),
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
        detection: Option<OutlierDetection>,
        health: Option<HealthCheck>,
    ) -> Balancer {
        let policy = match balance {
            Balance::PickFirst => Policy::PickFirst,
            Balance::RoundRobin => Policy::RoundRobin,
            Balance::LeastOutstanding => Policy::LeastOutstanding,
        };
        Balancer {
            balance,
            health,
            is_used: AtomicBool::new(false),
            chosen: AtomicUsize::new(usize::MAX),
            changed: Arc::default(),
            list: RwLock::new(List::new(policy, detection, now_ns())),
        }
    }

    /// Chooses from these endpoints from here on. One whose address is known stays, with its connection; of the others `make` makes one each.
    /// Calls under way at those that are left out go on. Must be called in a tokio runtime if calls have been made.
    ///
    /// # Errors
    /// What `make` says; nothing has changed then.
    pub(crate) fn replace<X>(
        &self,
        targets: Vec<Target>,
        make: impl FnMut(&Target, Option<&Arc<Record>>) -> Result<Arc<Subchannel>, X>,
    ) -> Result<(), X> {
        let mut list = self.list.write();
        let gone = list.replace(targets, now_ns(), make)?;
        gone.iter().for_each(|endpoint| endpoint.let_go());
        if self.is_used.load(Ordering::Relaxed) {
            self.keep_first(&list);
        }
        // The number of the last choice may be another's now.
        self.chosen.store(usize::MAX, Ordering::Relaxed);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Chooses an endpoint, not `avoid` if there is another. With `wait` it waits until there is one; without, only while
    /// one is being connected that has not failed.
    ///
    /// # Errors
    /// UNAVAILABLE when all fail, with the reason of the first.
    pub(crate) async fn pick(&self, wait: bool, avoid: Option<&Arc<Subchannel>>) -> Result<Picked, Status> {
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
                Choice::Picked(endpoint, connection) => return Ok(Picked { endpoint, connection }),
                Choice::Failing(status) => status,
                Choice::Wait => {
                    changed.await;
                    continue;
                }
            };
            tokio::select! {
                tried = self.try_again() => match tried {
                    Tried::Nothing if wait => tokio::select! {
                        () = changed => {}
                        () = self.return_of_one() => {}
                    },
                    Tried::Nothing => return Err(failing),
                    Tried::Failed(status) if !wait => return Err(status),
                    Tried::Failed(_) => {}
                    Tried::Connected => self.changed.notify_waiters(),
                },
                () = &mut changed => {}
                () = self.return_of_one(), if wait => {}
            }
        }
    }

    /// Resolves when an endpoint may return that is ejected; never where none is.
    async fn return_of_one(&self) {
        let returns_ns = self.list.read().returns_ns();
        match returns_ns {
            Some(at_ns) => tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await,
            None => std::future::pending().await,
        }
    }

    /// Tries all endpoints at once that calls try, until one is connected.
    async fn try_again(&self) -> Tried {
        let tried: Vec<_> = {
            let list = self.list.read();
            let endpoints = list.members().iter().map(Member::endpoint);
            endpoints.filter(|endpoint| endpoint.is_tried_by_calls()).cloned().collect()
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
    pub(crate) fn pick_now(&self) -> Option<(Arc<Subchannel>, Connection)> {
        tokio::runtime::Handle::try_current().ok()?;
        match self.look(None) {
            Choice::Picked(endpoint, connection) => Some((endpoint, connection)),
            _ => None,
        }
    }

    fn look(&self, avoid: Option<&Arc<Subchannel>>) -> Choice {
        let mut list = self.list.read();
        if list.is_detecting() {
            let now_ns = now_ns();
            if list.is_due(now_ns) {
                drop(list);
                self.sweep(now_ns);
                list = self.list.read();
            }
        }
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
            self.keep_first(&list);
        }
        let is_first = self.balance == Balance::PickFirst;
        let look = |endpoint: &Arc<Subchannel>| {
            if !is_first || endpoint.mover().is_some() {
                // It may have work to do there beyond the first connection.
                self.keep(endpoint);
            }
            if let Some(connection) = endpoint.ready() {
                return Look::Ready(connection);
            }
            if is_first {
                self.keep(endpoint);
            }
            endpoint.failing().map_or(Look::Waits, Look::Fails)
        };
        let is_avoided = |endpoint: &Arc<Subchannel>| avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, endpoint));
        match list.pick(is_avoided, look, |endpoint| endpoint.load()) {
            Pick::Chosen(chosen) => {
                let number = if is_first { chosen.place } else { chosen.priority as usize };
                if self.chosen.load(Ordering::Relaxed) != number {
                    self.say_where(&list, number);
                }
                Choice::Picked(chosen.endpoint.clone(), chosen.reached)
            }
            Pick::Wait => Choice::Wait,
            Pick::Failing(Some(status)) => Choice::Failing(status),
            Pick::Failing(None) => Choice::Failing(Status::unavailable(
                "no endpoint may be used now: calls have failed at each of them (outlier detection), or their weights are 0",
            )),
        }
    }

    /// Calls go elsewhere than before.
    #[cold]
    fn say_where(&self, list: &List<Arc<Subchannel>>, number: usize) {
        let last = self.chosen.swap(number, Ordering::Relaxed);
        if last == number || last == usize::MAX {
            return;
        }
        if self.balance != Balance::PickFirst {
            tracing::info!(from = last, to = number, "calls go to endpoints of another priority");
        } else if let (Some(last), Some(now)) = (list.members().get(last), list.members().get(number)) {
            tracing::info!(
                from = %last.endpoint().name,
                to = %now.endpoint().name,
                "calls go to another endpoint: it is the first that can be reached"
            );
        }
    }

    /// Ejects endpoints, and has them return.
    #[cold]
    fn sweep(&self, now_ns: u64) {
        let events = self.list.write().sweep(now_ns);
        for event in events {
            match event {
                Event::Ejected { address, cause, for_ns } => {
                    let seconds = for_ns as f64 / 1e9;
                    tracing::warn!(%address, ?cause, seconds, "an endpoint is ejected: too many of its calls have failed");
                }
                Event::Returned { address } => {
                    tracing::info!(%address, "an endpoint that was ejected gets calls again");
                    self.changed.notify_waiters();
                }
            }
        }
    }

    /// Has all that calls go to first connected, as in gRPC: a call may find one that is ready, and look no further.
    fn keep_first(&self, list: &List<Arc<Subchannel>>) {
        if self.balance != Balance::PickFirst {
            list.first_priority().for_each(|endpoint| self.keep(endpoint));
        }
    }

    /// Sees to it that an endpoint gets connected, and connected again.
    fn keep(&self, endpoint: &Arc<Subchannel>) {
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

    /// The endpoints, as they are now: by priority, and as they were given. They can't change while this is held.
    pub(crate) fn endpoints(&self) -> MappedRwLockReadGuard<'_, [Member<Arc<Subchannel>>]> {
        RwLockReadGuard::map(self.list.read(), List::members)
    }
}

/// Keeps one endpoint connected, and watches its health where that is asked for.
async fn keep(endpoint: Arc<Subchannel>, health: Option<HealthCheck>, changed: Arc<Notify>) {
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
async fn over(endpoint: &Subchannel, connection: &Connection) {
    match connection {
        Connection::Session(attachment) => poll_fn(|cx| attachment.poll_over(cx)).await,
        Connection::Http2(..) => endpoint.broken.notified().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::upgrade::Plan;
    use crate::message::payloads::Sharing;

    #[tokio::test]
    async fn one_call_has_all_endpoints_connected_though_the_first_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let config = tollfree_driver_tokio::Config::default();
        let mut servers = tokio::task::JoinSet::new();
        let endpoints = ["a", "b", "c"].map(|name| {
            let uri = format!("shm://{}", directory.path().join(name).display());
            let endpoint = Subchannel::new(
                &uri,
                &config,
                &Arc::<Sharing>::default(),
                &Plan::Stay("it has a session"),
                &crate::endpoint::http2::Http2Settings::default(),
                &None,
            );
            servers.spawn(async move { crate::Server::builder().serve(&uri).await });
            Arc::new(endpoint.unwrap())
        });
        let connected = async {
            while endpoints[0].connect_now().await.is_err() {
                tokio::task::yield_now().await;
            }
            let balancer = Balancer::new(Balance::RoundRobin, None, None);
            let mut made = endpoints.iter().cloned();
            let targets = endpoints.each_ref().map(|endpoint| Target::new(endpoint.name.clone()));
            balancer.replace(targets.into(), |_, _| made.next().ok_or("one for each")).unwrap();
            let picked = balancer.pick(false, None).await.unwrap();
            assert_eq!(picked.endpoint.name, endpoints[0].name, "it was ready before");
            while !endpoints.iter().all(|endpoint| endpoint.ready().is_some()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), connected).await.expect("all are connected");
    }
}
