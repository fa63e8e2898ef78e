//! How often each function is called, as far as the requests of a group tell.

use std::sync::atomic::{AtomicU64, Ordering};

use super::load::Function;

/// Functions that are told apart; two that share a place are taken for one that is called more often.
const PLACES: usize = 256;
/// Parts of a request in which intervals are kept.
const PARTS: u64 = 16;
/// The share of a new interval in the mean, as a shift.
const SHARE: u32 = 3;
/// Requests between two calls of a function that has not been called; longer intervals count as this, so that a function that was not
/// called for a long time is known again after a few calls.
const LONGEST: u64 = 1000;

/// The mean interval between two calls of each function, in requests of the group. Recent intervals count most.
#[derive(Debug)]
pub(super) struct Rates {
    /// A mean interval in the upper half, and when the last call was in the lower.
    places: [AtomicU64; PLACES],
}

impl Rates {
    pub(super) fn new() -> Rates {
        Rates { places: [const { AtomicU64::new((LONGEST * PARTS) << 32) }; PLACES] }
    }

    fn place(&self, function: Function) -> &AtomicU64 {
        &self.places[function.number() as usize % PLACES]
    }

    /// Counts a call. Of two threads that do so at once one may not be counted.
    pub(super) fn count(&self, function: Function, now: u32) {
        let place = self.place(function);
        let word = place.load(Ordering::Relaxed);
        let (mean, since) = (word >> 32, u64::from(now.wrapping_sub(word as u32)));
        let mean = mean - (mean >> SHARE) + ((since.min(LONGEST) * PARTS) >> SHARE);
        place.store(mean << 32 | u64::from(now), Ordering::Relaxed);
    }

    /// Requests between two calls of a function; at least half of those since the last one, so that it grows while there is none.
    /// In parts of a request.
    pub(super) fn interval(&self, function: Function, now: u32) -> u64 {
        let word = self.place(function).load(Ordering::Relaxed);
        let since = u64::from(now.wrapping_sub(word as u32));
        (word >> 32).max(since * PARTS / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_learned_and_grow_while_there_is_no_call() {
        let rates = Rates::new();
        let [often, rate_limited_log] = ["x.A/A", "x.A/B"].map(Function::of);
        // Over the end of the clock.
        let mut now = u32::MAX - 500;
        for tick in 0..1000 {
            now = now.wrapping_add(1);
            match tick % 10 {
                0 => rates.count(rate_limited_log, now),
                1 | 6 => rates.count(often, now),
                _ => {}
            }
        }
        let [frequent, rare] = [often, rate_limited_log].map(|function| rates.interval(function, now));
        assert!((5 * PARTS - PARTS..=5 * PARTS + PARTS).contains(&frequent), "{frequent}");
        assert!((10 * PARTS - PARTS..=10 * PARTS + PARTS).contains(&rare), "{rare}");
        assert_eq!(rates.interval(often, now.wrapping_add(2000)) / PARTS, 1001);
        let unknown = rates.interval(Function::of("x.A/C"), 7);
        assert_eq!(unknown, LONGEST * PARTS);
        rates.count(rate_limited_log, now.wrapping_add(1 << 30));
        assert!(rates.interval(rate_limited_log, now.wrapping_add(1 << 30)) <= LONGEST * PARTS);
    }
}
