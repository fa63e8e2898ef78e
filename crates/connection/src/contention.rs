//! Whether others want the processor of a thread that spins.
//!
//! A thread that spins for longer than a few microseconds offers its processor. Fellow spinners give it back within microseconds; where a
//! process that computes took it, waiting is left to the kernel for a while: a spinner that is runnable is not woken, it has to wait for
//! its turn.

use crate::constants::{CROWDED_FACTOR, CROWDED_NS_MAX, OFFER_EVERY};

/// What a driver knows of who else wants to run. Each answer may cost a reading of a clock or of a file, and is asked for only where it counts.
pub trait Surroundings {
    /// Whether others want the processor of this thread.
    fn want_this_processor(&self, now_ns: u64) -> bool;

    /// Whether others have lately taken a processor of any of this process's threads.
    fn want_any_processor(&self) -> bool;

    /// Whether a quota leaves this process no time for spinning.
    fn is_quota_tight(&self, now_ns: u64) -> bool;
}

/// Nobody else wants to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Surroundings for Alone {
    fn want_this_processor(&self, _: u64) -> bool {
        false
    }

    fn want_any_processor(&self) -> bool {
        false
    }

    fn is_quota_tight(&self, _: u64) -> bool {
        false
    }
}

/// What one thread has learnt by offering its processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contention {
    until_ns: u64,
    unoffered_count: u32,
}

impl Contention {
    /// Nobody else has been met.
    pub const NONE: Contention = Contention { until_ns: 0, unoffered_count: 0 };

    /// Whether this thread had better sleep than spin.
    #[inline]
    pub fn is_met(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Until when, in nanoseconds of the driver's clock.
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// A wait begins. Whether a good neighbor is to offer the processor before: once in a number of waits, however short.
    #[inline]
    pub fn is_offer_due(&mut self) -> bool {
        self.unoffered_count = (self.unoffered_count + 1) % OFFER_EVERY;
        self.unoffered_count == 0
    }

    /// The processor was offered at `now_ns`, and came back after `away_ns`. Beyond `taken_ns` others want it, which is returned.
    #[inline]
    pub fn offered(&mut self, now_ns: u64, away_ns: u64, taken_ns: u64) -> bool {
        let was_taken = away_ns > taken_ns;
        if was_taken {
            let pause_ns = away_ns.saturating_mul(CROWDED_FACTOR).min(CROWDED_NS_MAX);
            self.until_ns = now_ns.saturating_add(away_ns).saturating_add(pause_ns);
        }
        was_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::TAKEN_NS;

    #[test]
    fn a_processor_that_was_taken_is_not_spun_on_for_ten_times_as_long() {
        let mut contention = Contention::NONE;
        assert!(!contention.offered(1_000, TAKEN_NS, TAKEN_NS));
        assert!(!contention.is_met(1_000), "fellow spinners are no crowd");
        let away = TAKEN_NS + 1;
        assert!(contention.offered(1_000, away, TAKEN_NS));
        let until = 1_000 + away + CROWDED_FACTOR * away;
        assert!(contention.is_met(until - 1) && !contention.is_met(until));
        contention.offered(until, 1_000_000_000, TAKEN_NS);
        let until = until + 1_000_000_000 + CROWDED_NS_MAX;
        assert!(contention.is_met(until - 1) && !contention.is_met(until), "it has an end");
        contention.offered(until, u64::MAX, TAKEN_NS);
        assert!(contention.is_met(u64::MAX - 1));
    }

    #[test]
    fn a_processor_is_offered_once_in_a_number_of_waits() {
        let mut contention = Contention::NONE;
        let due = (0..10 * OFFER_EVERY).filter(|_| contention.is_offer_due()).count();
        assert_eq!(due, 10);
    }
}
