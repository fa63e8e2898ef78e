//! How long to spin before sleeping, learnt from how long recent waits were.
//!
//! Waking a sleeping process costs about 60 µs there and back, so a wait that ends sooner should be spun through, and
//! one that doesn't should not be spun for at all. The budget is a few times the recent average while that average is
//! worth spinning for, and a short probe otherwise: one slow peer costs 5 µs a wait, one that is fast again is
//! noticed by the probe.

use crate::config::WaitPolicy;

/// Waits beyond this are not worth spinning for, in nanoseconds: about twice a wake-up.
const WORTH_NS: u64 = 120_000;
/// The shortest budget.
const PROBE_NS: u64 = 5_000;
/// A single wait counts for at most this much.
const WAIT_NS_MAX: u64 = 1_000_000;
/// Weight of the newest wait: 1 / 8.
const WEIGHT_SHIFT: u32 = 3;

/// What recent waits were like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinBudget {
    policy: WaitPolicy,
    average_ns: u64,
}

impl SpinBudget {
    pub(crate) fn new(policy: WaitPolicy) -> SpinBudget {
        SpinBudget { policy, average_ns: WORTH_NS / 8 }
    }

    /// A wait came to its end after `waited_ns`, whether by spinning or asleep.
    pub(crate) fn learn(&mut self, waited_ns: u64) {
        let waited = waited_ns.min(WAIT_NS_MAX);
        self.average_ns = self.average_ns - (self.average_ns >> WEIGHT_SHIFT) + (waited >> WEIGHT_SHIFT);
    }

    /// How long to spin for the next wait, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        match self.policy {
            WaitPolicy::Poll => u64::MAX,
            WaitPolicy::Park => 0,
            WaitPolicy::Adaptive if self.average_ns > WORTH_NS => PROBE_NS,
            WaitPolicy::Adaptive => (self.average_ns * 4).clamp(PROBE_NS, WORTH_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_stop_the_spinning_and_short_ones_bring_it_back() {
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
        for _ in 0..20 {
            budget.learn(10_000_000);
        }
        assert_eq!(budget.ns(), PROBE_NS);
        let mut waits = 0;
        while budget.ns() <= PROBE_NS {
            budget.learn(3_000);
            waits += 1;
            assert!(waits < 40, "short waits bring the budget back");
        }
        for _ in 0..100 {
            budget.learn(2_000);
        }
        assert!((PROBE_NS..=10_000).contains(&budget.ns()));
    }

    #[test]
    fn one_outlier_is_forgotten_soon() {
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
        for _ in 0..100 {
            budget.learn(2_000);
        }
        budget.learn(50_000_000);
        let mut waits = 0;
        while budget.ns() == PROBE_NS {
            budget.learn(2_000);
            waits += 1;
        }
        assert!(waits <= 8, "{waits} waits");
    }

    #[test]
    fn policies_are_absolute() {
        let mut poll = SpinBudget::new(WaitPolicy::Poll);
        let mut park = SpinBudget::new(WaitPolicy::Park);
        for wait in [1, 1_000_000_000] {
            poll.learn(wait);
            park.learn(wait);
            assert_eq!((poll.ns(), park.ns()), (u64::MAX, 0));
        }
    }
}
