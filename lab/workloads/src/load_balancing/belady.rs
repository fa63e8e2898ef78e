//! More hits than anybody could have who knew all requests beforehand.

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

/// Requests for functions at equal intervals, of 10 us each.
#[cfg(test)]
pub(super) fn of(functions: &[usize], apart_us: f64) -> Vec<Arrival> {
    let arrival = |(at, function): (usize, &usize)| Arrival {
        at_us: at as f64 * apart_us,
        function: *function,
        takes_us: 10.0,
        connection: 0,
    };
    functions.iter().enumerate().map(arrival).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belady_forgets_what_is_used_last() {
        // With room for two, 2 takes the place of 1, and 1 that of 2.
        assert_eq!(belady(&of(&[0, 1, 2, 0, 1, 0], 1.0), 2), 2);
        assert_eq!(belady(&of(&[0, 1, 2, 0, 1, 2], 1.0), 3), 3);
        assert_eq!(belady(&of(&[0, 0, 0], 1.0), 1), 2);
    }
}
