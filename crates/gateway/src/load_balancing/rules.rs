//! The policies.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollfree_balancer::Turn;

use super::load::{Function, Load};
use super::rates::Rates;
use crate::config::{LoadBalancing, Policy};

/// A request that wants a backend connection.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'p> {
    /// As `acme.v1.Orders/Get`.
    pub path: &'p str,
    /// The connection that it came by.
    pub connection: u64,
}

/// The backend connection that was chosen.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'l, W> {
    /// As it was handed to [`Rules::choose`].
    pub backend_connection: W,
    pub(super) load: &'l Load,
    /// Whether it ran the function lately, where the policy asks for that.
    pub hit: Option<bool>,
    pub(super) remember: Option<Remember<'l>>,
}

/// What is remembered of a request that was given to a backend connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remember<'l> {
    pub(super) rates: &'l Rates,
    pub(super) function: Function,
    /// How many functions are remembered of a backend connection.
    pub(super) count: u32,
    pub(super) now: u32,
}

impl<W> Chosen<'_, W> {
    /// Gives it the request.
    pub fn begin(&self) {
        self.load.begin();
        if let Some(Remember { rates, function, count, now }) = self.remember {
            self.load.remember(function, count, now);
            rates.count(function, now);
        }
    }
}

/// By what a backend connection is chosen. May change at any time: a choice that is under way heeds the old or the new value of each.
#[derive(Debug)]
pub struct Rules {
    policy: AtomicU32,
    pub(super) functions: AtomicU32,
    pub(super) imbalance: AtomicU32,
    depth: AtomicU32,
    waiting: AtomicU32,
    hang_ms: AtomicU32,
    /// Whose turn it is among equals.
    turn: Turn,
    /// Counts requests, for what is remembered of functions.
    clock: AtomicU32,
    pub(super) rates: Rates,
}

impl Rules {
    /// As a config says.
    pub fn new(load_balancing: &LoadBalancing) -> Rules {
        let rules = Rules {
            policy: AtomicU32::new(0),
            functions: AtomicU32::new(0),
            imbalance: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            hang_ms: AtomicU32::new(0),
            turn: Turn::default(),
            clock: AtomicU32::new(0),
            rates: Rates::new(),
        };
        rules.change(load_balancing);
        rules
    }

    /// As another config says.
    pub fn change(&self, load_balancing: &LoadBalancing) {
        self.functions.store(load_balancing.functions, Ordering::Relaxed);
        self.imbalance.store(load_balancing.imbalance, Ordering::Relaxed);
        self.waiting.store(load_balancing.waiting, Ordering::Relaxed);
        self.hang_ms.store(load_balancing.hang_ms, Ordering::Relaxed);
        self.policy.store(load_balancing.policy.number(), Ordering::Relaxed);
        self.depth.store(load_balancing.depth, Ordering::SeqCst);
    }

    /// Whether there is no bound of what a backend connection may have outstanding.
    pub(crate) fn is_unbounded(&self) -> bool {
        self.depth.load(Ordering::SeqCst) == 0
    }

    /// How many requests a backend connection may have that takes `most` at once.
    pub(crate) fn places_of(&self, most: u32) -> u32 {
        match self.depth.load(Ordering::SeqCst) {
            0 => most,
            depth => depth.min(most),
        }
    }

    /// Whether a backend connection may have one more.
    pub(crate) fn has_room(&self, load: &Load) -> bool {
        let depth = match self.depth.load(Ordering::SeqCst) {
            0 => u32::MAX,
            depth => depth,
        };
        load.outstanding() < depth.min(load.allowance())
    }

    /// How long a backend connection may leave lying what is there for it, before it hangs. Zero: it never hangs.
    pub(crate) fn hang(&self) -> Duration {
        Duration::from_millis(self.hang_ms.load(Ordering::Relaxed).into())
    }

    /// Requests that may wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// By what a backend connection is chosen now.
    pub(crate) fn policy(&self) -> Policy {
        Policy::ALL[self.policy.load(Ordering::Relaxed) as usize % Policy::ALL.len()]
    }

    /// Ticks with each request that asks.
    pub(super) fn tick(&self) -> u32 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// The backend connection with the fewest requests outstanding; among equals each in its turn.
    pub(super) fn least_outstanding<'l, W: Copy>(
        &self,
        backend_connections: impl Iterator<Item = (&'l Load, W)> + Clone,
    ) -> Option<(&'l Load, W)> {
        self.turn.least(backend_connections, |(load, backend_connection)| {
            Some((load.outstanding(), 1, (load, backend_connection)))
        })
    }

    /// Chooses among the backend connections of a group that may have a request, in the order in which they attached. None where each of those
    /// that the policy allows has as many requests as it may.
    pub fn choose<'l, W: Copy>(
        &'l self,
        asking: &Asking<'_>,
        backend_connections: impl Iterator<Item = (&'l Load, W)> + Clone,
    ) -> Option<Chosen<'l, W>> {
        let with_room = backend_connections.clone().filter(|(load, _)| self.has_room(load));
        let chosen =
            |(load, backend_connection)| Chosen { backend_connection, load, hit: None, remember: None };
        match self.policy() {
            Policy::LeastOutstanding => self.least_outstanding(with_room).map(chosen),
            Policy::RoundRobin => self.turn.next(with_room, Some).map(chosen),
            Policy::Static => {
                let owner = backend_connections.max_by_key(|(load, _)| load.share_of(asking.connection));
                owner.filter(|(load, _)| self.has_room(load)).map(chosen)
            }
            Policy::Affinity => self.choose_familiar(asking.path, backend_connections),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(policy: Policy, change: impl FnOnce(&mut LoadBalancing)) -> Rules {
        let mut load_balancing = LoadBalancing { policy, ..LoadBalancing::default() };
        change(&mut load_balancing);
        Rules::new(&load_balancing)
    }

    fn loads(outstanding: &[u32]) -> Vec<Load> {
        let load = |(at, count): (usize, &u32)| {
            let load = Load::new(at as u64);
            (0..*count).for_each(|_| load.begin());
            load
        };
        outstanding.iter().enumerate().map(load).collect()
    }

    /// Who is chosen, without that it gets the request.
    fn ask(rules: &Rules, loads: &[Load], path: &str, connection: u64) -> Option<(usize, Option<bool>)> {
        let backend_connections = loads.iter().zip(0..);
        let chosen = rules.choose(&Asking { path, connection }, backend_connections)?;
        Some((chosen.backend_connection, chosen.hit))
    }

    #[test]
    fn least_outstanding_takes_the_fewest_and_equals_in_turn() {
        let rules = rules(Policy::LeastOutstanding, |_| ());
        let loads = loads(&[2, 1, 1, 3]);
        let chosen: Vec<_> = (0..4).map(|_| ask(&rules, &loads, "", 0).unwrap().0).collect();
        assert_eq!(chosen, [1, 2, 1, 2]);
        assert!(ask(&rules, &[], "", 0).is_none());
    }

    #[test]
    fn round_robin_heeds_no_load() {
        let rules = rules(Policy::RoundRobin, |_| ());
        let loads = loads(&[9, 0, 5]);
        let chosen: Vec<_> = (0..6).map(|_| ask(&rules, &loads, "", 0).unwrap().0).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn static_keeps_connections_and_a_leaving_backend_connection_moves_its_own_only() {
        let rules = rules(Policy::Static, |_| ());
        let mut loads = loads(&[0, 7, 0, 3]);
        let ids = |loads: &[Load]| -> Vec<u64> {
            let owner = |connection| loads[ask(&rules, loads, "", connection).unwrap().0].id;
            (0..1000).map(owner).collect()
        };
        let before = ids(&loads);
        assert_eq!(before, ids(&loads));
        for id in 0..4 {
            let count = before.iter().filter(|owner| **owner == id).count();
            assert!((200..300).contains(&count), "backend connection {id} has {count} of 1000 connections");
        }
        loads.remove(2);
        for (was, is) in before.iter().zip(ids(&loads)) {
            assert!(*was == is || *was == 2, "{was} to {is}");
        }
    }

    #[test]
    fn nobody_gets_more_than_the_depth() {
        for policy in Policy::ALL {
            let rules = rules(policy, |load_balancing| load_balancing.depth = 2);
            let full = loads(&[2, 3, 2]);
            assert!(ask(&rules, &full, "x.A/A", 1).is_none(), "{policy:?}");
            full[1].end();
            full[1].end();
            let is_owner =
                |connection| full.iter().max_by_key(|load| load.share_of(connection)).unwrap().id == 1;
            let connection = (0..).find(|connection| is_owner(*connection)).unwrap();
            assert_eq!(ask(&rules, &full, "x.A/A", connection).unwrap().0, 1, "{policy:?}");
            let elsewhere = (0..).find(|connection| !is_owner(*connection)).unwrap();
            assert_eq!(ask(&rules, &full, "x.A/A", elsewhere).is_none(), policy == Policy::Static);
        }
    }
}
