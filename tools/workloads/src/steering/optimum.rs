//! The most hits that anybody could have who knew all requests beforehand.

use std::collections::BTreeSet;

use super::trace::Arrival;

/// An upper bound: Belady's rule on one cache that is as large as all workers' together. Each worker's cache holds a part of what this
/// one could hold, so no choice of workers hits more often, with a bound of imbalance or without.
pub(super) fn belady(trace: &[Arrival], capacity: usize) -> usize {
    let mut next_use = vec![usize::MAX; trace.len()];
    let mut last = std::collections::HashMap::new();
    for (at, arrival) in trace.iter().enumerate().rev() {
        next_use[at] = last.insert(arrival.function, at).unwrap_or(usize::MAX);
    }
    // By the time of the next use.
    let mut cache: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut hits = 0;
    for (at, arrival) in trace.iter().enumerate() {
        if cache.remove(&(at, arrival.function)) {
            hits += 1;
        } else if cache.len() == capacity {
            cache.pop_last();
        }
        cache.insert((next_use[at], arrival.function));
    }
    hits
}

/// All choices of workers and of functions to forget, under a bound of imbalance: for small traces only.
pub(super) struct Exact<'t> {
    trace: &'t [Arrival],
    functions: usize,
    bound: f64,
    best: usize,
}

#[derive(Clone, Default)]
struct Worker {
    cache: Vec<usize>,
    ends_us: Vec<f64>,
}

impl Exact<'_> {
    /// The most hits with `workers` that each keep `functions`, where a request goes to a worker that has at most the mean and `bound`
    /// requests outstanding, or the fewest.
    pub(super) fn hits(trace: &[Arrival], workers: usize, functions: usize, bound: u32) -> usize {
        let mut search = Exact { trace, functions, bound: bound.into(), best: 0 };
        search.go(0, 0, &vec![Worker::default(); workers]);
        search.best
    }

    fn go(&mut self, at: usize, hits: usize, workers: &[Worker]) {
        self.best = self.best.max(hits);
        let Some(arrival) = self.trace.get(at) else { return };
        if hits + self.trace.len() - at <= self.best {
            return;
        }
        let mut workers = workers.to_vec();
        for worker in &mut workers {
            worker.ends_us.retain(|end| *end > arrival.at_us);
        }
        let counts: Vec<f64> = workers.iter().map(|worker| worker.ends_us.len() as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let least = counts.iter().copied().fold(f64::MAX, f64::min);
        let mut allowed: Vec<usize> = (0..workers.len())
            .filter(|worker| counts[*worker] == least || counts[*worker] <= mean + self.bound)
            .collect();
        // Hits first: a good choice early cuts much off.
        allowed.sort_by_key(|worker| !workers[*worker].cache.contains(&arrival.function));
        let mut has_begun_new = false;
        for worker in allowed {
            let is_new = workers[worker].cache.is_empty();
            // Workers that have had nothing are all the same.
            if is_new && std::mem::replace(&mut has_begun_new, true) {
                continue;
            }
            let is_hit = workers[worker].cache.contains(&arrival.function);
            let is_full = workers[worker].cache.len() == self.functions;
            let victims = if is_hit || !is_full { 0..1 } else { 0..self.functions };
            for victim in victims {
                let mut then = workers.clone();
                let chosen = &mut then[worker];
                if !is_hit {
                    match is_full {
                        true => chosen.cache[victim] = arrival.function,
                        false => chosen.cache.push(arrival.function),
                    }
                }
                let start = chosen.ends_us.last().copied().unwrap_or(0.0).max(arrival.at_us);
                chosen.ends_us.push(start + arrival.takes_us);
                self.go(at + 1, hits + usize::from(is_hit), &then);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steering::trace::{Mix, trace};

    fn of(functions: &[usize], apart_us: f64) -> Vec<Arrival> {
        let arrival = |(at, function): (usize, &usize)| Arrival {
            at_us: at as f64 * apart_us,
            function: *function,
            takes_us: 10.0,
            connection: 0,
        };
        functions.iter().enumerate().map(arrival).collect()
    }

    #[test]
    fn belady_forgets_what_is_used_last() {
        // With room for two, 2 takes the place of 1, and 1 that of 2.
        assert_eq!(belady(&of(&[0, 1, 2, 0, 1, 0], 1.0), 2), 2);
        assert_eq!(belady(&of(&[0, 1, 2, 0, 1, 2], 1.0), 3), 3);
        assert_eq!(belady(&of(&[0, 0, 0], 1.0), 1), 2);
    }

    #[test]
    fn the_exact_optimum_heeds_the_bound() {
        // Nothing is outstanding: two workers of one function each hit all but the first two.
        assert_eq!(Exact::hits(&of(&[0, 1, 0, 1, 0, 1], 100.0), 2, 1, 0), 4);
        // All at once, and nobody may be above the mean: the third of a function finds it, at either.
        assert_eq!(Exact::hits(&of(&[0, 0, 0, 0], 0.0), 2, 1, 0), 2);
        assert_eq!(Exact::hits(&of(&[0, 0, 0, 0], 0.0), 2, 1, 9), 3);
    }

    #[test]
    fn no_exact_optimum_is_above_the_bound_of_belady() {
        for seed in 0..20 {
            let trace = trace(&Mix::zipf("small", 5), 2, 0.7, 10, seed);
            let (exact, bound) = (Exact::hits(&trace, 2, 2, 1), belady(&trace, 4));
            assert!(exact <= bound, "{exact} of {bound}, seed {seed}");
        }
    }
}
