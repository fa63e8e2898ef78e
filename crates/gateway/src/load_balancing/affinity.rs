//! The policy `affinity`: backend connections that ran a function lately, and which backend connection is to learn it.
//!
//! A request goes to the backend connection with the fewest outstanding among those that have its function, unless all of them are too far above the mean:
//! then to one that has not, which forgets the function that it used least recently. That one is chosen by what is lost: nothing where
//! a backend connection has room for another function, little where other backend connections have the forgotten one too, and else by how often that one is
//! called. Where nothing is lost a less loaded backend connection learns the function even if those that have it are within the bound. So each function
//! is at as many backend connections as its load asks for and memory allows.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use super::load::{Function, Load};
use super::rules::{Chosen, Remember, Rules};

/// Backend connections that are looked at as those that may learn a function: what a choice costs doesn't grow with the square of a group.
const LOOKED_AT: usize = 4;
/// By how many requests a backend connection may be above the mean and learn a function.
const LEARNERS_ABOVE: u64 = 1;

/// What a backend connection forgets that learns a function. The least is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    /// No other backend connection has it.
    is_last: bool,
    /// Requests of the group between two calls that it would have answered, in parts.
    interval: Reverse<u64>,
}

impl Rules {
    pub(super) fn choose_familiar<'l, W: Copy>(
        &'l self,
        path: &str,
        backend_connections: impl Iterator<Item = (&'l Load, W)> + Clone,
    ) -> Option<Chosen<'l, W>> {
        let function = Function::of(path);
        let count = self.functions.load(Ordering::Relaxed);
        let bound = u64::from(self.imbalance.load(Ordering::Relaxed));
        let now = self.tick();
        let (all, sum) = backend_connections
            .clone()
            .fold((0, 0), |(all, sum), (load, _)| (all + 1, sum + u64::from(load.outstanding())));
        // Where more requests wait, counts differ more: by half the mean.
        let is_within = |load: &Load| 2 * u64::from(load.outstanding()) * all <= 3 * sum + 2 * bound * all;
        let is_free = |load: &Load| u64::from(load.outstanding()) * all <= sum + LEARNERS_ABOVE * all;
        let have = |function| {
            backend_connections.clone().filter(move |(load, _)| load.has(function, count)).count() as u64
        };

        let with_room = backend_connections.clone().filter(|(load, _)| self.has_room(load));
        let familiar = with_room.clone().filter(|(load, _)| load.has(function, count));
        let near = self.least_outstanding(familiar).filter(|(load, _)| is_within(load));
        let may_learn = |load: &Load| match near {
            Some((near, _)) => load.outstanding() < near.outstanding(),
            None => is_free(load),
        };
        let loss = |load: &Load| match load.oldest(count, now) {
            None => Loss { is_last: false, interval: Reverse(u64::MAX) },
            Some(oldest) => {
                let holders = have(oldest);
                let interval = self.rates.interval(oldest, now).saturating_mul(holders);
                Loss { is_last: holders < 2, interval: Reverse(interval) }
            }
        };
        let start = now as usize % (all as usize).max(1);
        let in_turn = with_room.clone().skip(start).chain(with_room.clone().take(start));
        let learner = in_turn
            .filter(|(load, _)| !load.has(function, count) && may_learn(load))
            .take(LOOKED_AT)
            .map(|(load, backend_connection)| (loss(load), load, backend_connection))
            .min_by_key(|(loss, load, _)| (*loss, load.outstanding()));

        let (load, backend_connection) = match (near, learner) {
            (Some(near), Some((loss, load, backend_connection))) => {
                let Reverse(interval) = loss.interval;
                let own = self.rates.interval(function, now).saturating_mul(have(function) + 1);
                if !loss.is_last && interval > own { (load, backend_connection) } else { near }
            }
            (Some(near), None) => near,
            (None, Some((_, load, backend_connection))) => (load, backend_connection),
            (None, None) => with_room.min_by_key(|(load, _)| load.outstanding())?,
        };
        let hit = load.has(function, count);
        let remember = Remember { rates: &self.rates, function, count, now };
        Some(Chosen { backend_connection, load, hit: Some(hit), remember: Some(remember) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoadBalancing, Policy};
    use crate::load_balancing::Asking;

    /// Rules for backend connections that keep one function each.
    fn rules(imbalance: u32) -> Rules {
        Rules::new(&LoadBalancing {
            policy: Policy::Affinity,
            functions: 1,
            imbalance,
            ..LoadBalancing::default()
        })
    }

    /// Backend connections that have one function each, or none, and so many requests outstanding.
    fn backend_connections(having: &[(Option<&str>, u32)]) -> Vec<Load> {
        let backend_connection = |(at, (path, outstanding)): (usize, &(Option<&str>, u32))| {
            let load = Load::new(at as u64);
            path.iter().for_each(|path| load.remember(Function::of(path), 1, 0));
            (0..*outstanding).for_each(|_| load.begin());
            load
        };
        having.iter().enumerate().map(backend_connection).collect()
    }

    /// Has functions called at intervals of so many requests.
    fn call(rules: &Rules, intervals: &[(&str, u32)]) {
        for now in 0..200 {
            let due = intervals.iter().filter(|(_, interval)| now % interval == 0);
            due.for_each(|(path, _)| rules.rates.count(Function::of(path), now));
        }
        for _ in 0..200 {
            rules.tick();
        }
    }

    /// Who gets the request, and whether it has had the function.
    fn give(rules: &Rules, loads: &[Load], path: &str) -> (usize, bool) {
        let chosen = rules.choose(&Asking { path, connection: 0 }, loads.iter().zip(0..)).unwrap();
        chosen.begin();
        (chosen.backend_connection, chosen.hit.unwrap())
    }

    #[test]
    fn a_function_stays_with_a_backend_connection_until_that_has_too_much() {
        let rules = rules(2);
        let loads = backend_connections(&[(Some("A"), 0), (Some("B"), 0), (Some("C"), 0), (Some("D"), 0)]);
        call(&rules, &[("A", 2), ("B", 4), ("C", 50), ("D", 4)]);
        // The last one finds three requests, and a mean of three quarters: three may be, and an eighth.
        for _ in 0..4 {
            assert_eq!(give(&rules, &loads, "A"), (0, true));
        }
        assert_eq!(give(&rules, &loads, "A"), (2, false), "in place of what is called the least");
        assert_eq!(give(&rules, &loads, "A"), (2, true), "the least loaded of two that have it");
    }

    #[test]
    fn a_function_comes_to_less_loaded_backend_connections_for_nothing() {
        let rules = rules(9);
        let loads = backend_connections(&[(None, 0), (Some("B"), 0), (None, 0)]);
        let (first, hit) = give(&rules, &loads, "A");
        assert!(first != 1 && !hit);
        let (second, hit) = give(&rules, &loads, "A");
        assert!(![first, 1].contains(&second) && !hit, "it has room, and nothing to do");
        let (third, hit) = give(&rules, &loads, "A");
        assert!(third != 1 && hit, "nobody else has B");
    }

    #[test]
    fn a_function_takes_the_place_of_another_that_more_backend_connections_have_than_it_needs() {
        let at = |having: [&str; 3], intervals| {
            let rules = rules(9);
            call(&rules, intervals);
            let [first, second, third] = having;
            give(&rules, &backend_connections(&[(Some(first), 1), (Some(second), 0), (Some(third), 0)]), "A")
        };
        let (backend_connection, hit) = at(["A", "B", "B"], &[("A", 2), ("B", 10)]);
        assert!(backend_connection != 0 && !hit);
        assert_eq!(at(["A", "B", "B"], &[("A", 10), ("B", 2)]), (0, true), "B is called more often");
        assert_eq!(at(["A", "B", "C"], &[("A", 2), ("B", 10)]), (0, true), "nobody else has them");
    }
}
