//! The most hits that anybody could have within the bound, exactly: all choices of workers are tried. For short traces only.

use super::trace::Arrival;
use super::worker::{Worker, allowed};

struct Search<'t> {
    trace: &'t [Arrival],
    functions: usize,
    bound: u32,
    best: usize,
}

/// The most hits of a trace that finds `workers` as they are, each of which keeps the last `functions` that it ran, where a request
/// goes to a worker that the gateway's bound allows.
pub(super) fn most_hits(trace: &[Arrival], workers: &[Worker], functions: u32, bound: u32) -> usize {
    let mut search = Search { trace, functions: functions as usize, bound, best: 0 };
    search.go(0, 0, workers);
    search.best
}

impl Search<'_> {
    fn go(&mut self, at: usize, hits: usize, workers: &[Worker]) {
        self.best = self.best.max(hits);
        let Some(arrival) = self.trace.get(at) else { return };
        if hits + self.trace.len() - at <= self.best {
            return;
        }
        let mut workers = workers.to_vec();
        workers.iter_mut().for_each(|worker| _ = worker.advance(arrival.at_us));
        let mut choices: Vec<usize> = allowed(&workers, self.bound).collect();
        // Hits first: a good choice early cuts much off.
        choices.sort_by_key(|choice| !workers[*choice].has(arrival.function));
        let mut has_begun_new = false;
        for choice in choices {
            // Workers that have had nothing are all the same.
            if workers[choice].kept().is_empty() && std::mem::replace(&mut has_begun_new, true) {
                continue;
            }
            let mut then = workers.clone();
            let (is_hit, _) = then[choice].take(arrival, self.functions);
            self.go(at + 1, hits + usize::from(is_hit), &then);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::belady::{belady, of};
    use super::super::trace::{Mix, trace};
    use super::*;

    #[test]
    fn the_bound_is_heeded() {
        let two = vec![Worker::default(); 2];
        // Nothing is outstanding: two workers of one function each hit all but the first two.
        assert_eq!(most_hits(&of(&[0, 1, 0, 1, 0, 1], 100.0), &two, 1, 0), 4);
        // All at once, and nobody may be above the mean: the third of a function finds it, at either.
        assert_eq!(most_hits(&of(&[0, 0, 0, 0], 0.0), &two, 1, 0), 2);
        assert_eq!(most_hits(&of(&[0, 0, 0, 0], 0.0), &two, 1, 9), 3);
        // The worker that has run 0, 1 and 2 has forgotten 0.
        assert_eq!(most_hits(&of(&[0, 1, 2, 0], 100.0), &two[..1], 2, 0), 0);
    }

    #[test]
    fn no_exact_optimum_is_above_the_bound_of_belady() {
        for seed in 0..20 {
            let trace = trace(&Mix::zipf("small", 5), 2, 0.7, 10, seed);
            let exact = most_hits(&trace, &vec![Worker::default(); 2], 2, 1);
            let bound = belady(&trace, 4);
            assert!(exact <= bound, "{exact} of {bound}, seed {seed}");
        }
    }
}
