//! What the processes of each group have open elsewhere by way of the gateway, and the limits of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::shares::Owner;
use crate::target::Target;

/// How many of something a group has at the moment.
#[derive(Debug)]
struct Count {
    now: AtomicU32,
    gauge: Gauge,
    freed: Notify,
}

impl Count {
    fn new(gauge: Gauge) -> Arc<Count> {
        Arc::new(Count { now: AtomicU32::new(0), gauge, freed: Notify::new() })
    }

    /// One more, unless there are `limit` of them.
    fn take(self: &Arc<Count>, limit: u32) -> Option<Counted> {
        let within = |now: u32| (now < limit).then(|| now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        self.gauge.inc();
        Some(Counted(self.clone()))
    }
}

/// One of what is counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.dec();
        self.0.freed.notify_waiters();
    }
}

/// A group's connections to elsewhere.
#[derive(Clone)]
pub(crate) struct EgressConnections {
    count: Arc<Count>,
    config: Current,
}

impl EgressConnections {
    /// One more; none where the group has as many as `limits.egress_connections` allows.
    pub(crate) fn take(&self) -> Option<Counted> {
        self.count.take(self.config.load().limits.egress_connections)
    }

    /// Resolves when one of them is given back after this was first polled or enabled.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.count.freed.notified()
    }
}

/// A target that a group has open.
struct Open {
    target: Target,
    calls: Mutex<TargetCalls>,
    _counted: Counted,
    _closing: Closing,
}

/// The task that closes a target when it is idle, until the target is closed or its account is gone.
struct Closing(JoinHandle<()>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A target's calls under way.
struct TargetCalls {
    count: u32,
    idle_since: Instant,
}

/// A target that is open for as long as a call holds this.
pub(crate) struct Used(Arc<Open>);

impl Used {
    fn new(open: &Arc<Open>) -> Used {
        open.calls.lock().count += 1;
        Used(open.clone())
    }

    pub(crate) fn target(&self) -> &Target {
        &self.0.target
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.count -= 1;
        calls.idle_since = Instant::now();
    }
}

/// One group's.
pub(crate) struct Account {
    group: String,
    /// As who it shares in the groups that it calls.
    owner: Owner,
    config: Current,
    metrics: Arc<Metrics>,
    calls: Arc<Count>,
    targets: Arc<Count>,
    connections: EgressConnections,
    open: Mutex<HashMap<String, Arc<Open>>>,
}

impl Account {
    fn new(group: &str, config: Current, metrics: Arc<Metrics>) -> Account {
        let connections = EgressConnections {
            count: Count::new(metrics.egress_connections(group)),
            config: config.clone(),
        };
        Account {
            group: group.to_owned(),
            owner: Owner::Group(group.into()),
            calls: Count::new(metrics.egress_calls(group)),
            targets: Count::new(metrics.egress_targets(group)),
            connections,
            config,
            metrics,
            open: Mutex::default(),
        }
    }

    /// Whose it is.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// As who it shares in the groups that it calls.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// One more call under way.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there are too many.
    pub(crate) fn call(&self) -> Result<Counted, Status> {
        let limit = self.config.load().limits.egress_calls;
        self.calls.take(limit).ok_or_else(|| {
            self.refused(
                Refusal::EgressCalls,
                &format!("has {limit} calls under way"),
                "make fewer calls at once",
            )
        })
    }

    /// A target; where it isn't open, `open` opens it. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where too many are open, and UNAVAILABLE where it can't be opened.
    pub(crate) fn target(
        self: &Arc<Account>,
        name: &str,
        open: impl FnOnce(EgressConnections) -> Result<Target, String>,
    ) -> Result<Used, Status> {
        let mut targets = self.open.lock();
        if let Some(open) = targets.get(name) {
            return Ok(Used::new(open));
        }
        let limit = self.config.load().limits.egress_targets;
        let counted = self.targets.take(limit).ok_or_else(|| {
            self.refused(
                Refusal::EgressTargets,
                &format!("has {limit} targets open, and {name} is not among them"),
                "wait until one has been idle for limits.egress_idle_ms",
            )
        })?;
        let target = open(self.connections.clone());
        let target = target.map_err(|why| Status::unavailable(format!("{name} can't be called: {why}")))?;
        let calls = Mutex::new(TargetCalls { count: 0, idle_since: Instant::now() });
        let closing = Closing(tokio::spawn(close_when_idle(Arc::downgrade(self), name.to_owned())));
        let open = Arc::new(Open { target, calls, _counted: counted, _closing: closing });
        let used = Used::new(&open);
        targets.insert(name.to_owned(), open);
        Ok(used)
    }

    /// What a call is told to whose target no connection is left.
    pub(crate) fn no_connection(&self, target: &str) -> Status {
        let limit = self.config.load().limits.egress_connections;
        self.refused(
            Refusal::EgressConnections,
            &format!("has {limit} connections open, and none of them is to {target}"),
            "wait until other targets have been idle for limits.egress_idle_ms",
        )
    }

    /// Beyond a limit is what the group has; what to do there instead.
    fn refused(&self, why: Refusal, has: &str, instead: &str) -> Status {
        let (group, key) = (&self.group, why.name());
        let words = format!(
            "the group {group} {has} by way of the gateway; limits.{key} allows no more: {instead}, or raise the limit in the gateway's config"
        );
        self.metrics.refused_inside(why, group, &words);
        Status::resource_exhausted(words)
    }

    /// Closes a target without a call for as long as the config allows; else says when to look again.
    fn close_if_idle(&self, name: &str) -> Option<Duration> {
        let idle = Duration::from_millis(self.config.load().limits.egress_idle_ms);
        let mut targets = self.open.lock();
        let left = {
            let calls = targets.get(name)?.calls.lock();
            if calls.count > 0 { idle } else { idle.saturating_sub(calls.idle_since.elapsed()) }
        };
        if !left.is_zero() {
            return Some(left);
        }
        let open = targets.remove(name);
        drop(targets);
        self.metrics.ended(Refusal::EgressIdle);
        tracing::debug!(group = self.group, target = name, "closed: there was no call for too long");
        drop(open);
        None
    }
}

async fn close_when_idle(account: Weak<Account>, target: String) {
    loop {
        let left = account.upgrade().and_then(|account| account.close_if_idle(&target));
        let Some(left) = left else { return };
        tokio::time::sleep(left).await;
    }
}

/// All groups'.
pub(crate) struct Accounts {
    by_group: Mutex<HashMap<String, Arc<Account>>>,
    config: Current,
    metrics: Arc<Metrics>,
}

impl Accounts {
    pub(crate) fn new(config: Current, metrics: Arc<Metrics>) -> Accounts {
        Accounts { by_group: Mutex::default(), config, metrics }
    }

    pub(crate) fn of(&self, group: &str) -> Arc<Account> {
        let mut accounts = self.by_group.lock();
        // A group that has nothing open, and no process that could open something, begins anew.
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.open.lock().is_empty());
        let account = accounts
            .entry(group.to_owned())
            .or_insert_with(|| Arc::new(Account::new(group, self.config.clone(), self.metrics.clone())));
        account.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_given_back_and_never_beyond_the_limit() {
        let count = Count::new(Gauge::default());
        let (one, two) = (count.take(2).unwrap(), count.take(2).unwrap());
        assert!(count.take(2).is_none());
        drop(one);
        // A limit that has become lower takes nothing away.
        assert!(count.take(1).is_none());
        let three = count.take(2).unwrap();
        assert_eq!((count.now.load(Ordering::Relaxed), count.gauge.get()), (2, 2));
        drop((two, three));
        assert_eq!((count.now.load(Ordering::Relaxed), count.gauge.get()), (0, 0));
    }
}
