//! How long a wait is worth spinning for, learnt from how long recent ones were.
//!
//! For a good neighbor a wait is worth what being woken costs, so that where calls come seldom nobody spins. `LowLatency` doesn't ask:
//! there the budget is a few times the recent average, 100 µs at least, as long as waits take no longer than 250 µs.
//!
//! Where waits are not worth spinning for, one in a few is begun with a probe, so that a peer that is fast again is noticed: by two short
//! waits in a row, for one may have been short by chance.

use crate::constants::{
    AVERAGE_FACTOR, FIRST_AVERAGE, LONG_PROBE_EVERY, NEAR_FACTOR, OUTLIER_FACTOR, PROBE_EVERY, PROBE_NS,
    SPIN_FACTOR, SPIN_NS_MIN, TRIAL_NS, TRIED_AVERAGE, WEIGHT_SHIFT, WORTH_NS,
};
use crate::policy::WaitPolicy;

/// What recent waits were like, and how long the next one is worth spinning for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinBudget {
    policy: WaitPolicy,
    /// Waits beyond this are not worth spinning for.
    worth_ns: u64,
    average_ns: u64,
    /// Waits since one was probed.
    unprobed: u32,
    /// The last wait ended within a probe, where waits have not been worth spinning for.
    on_trial: bool,
}

impl SpinBudget {
    /// Waits are worth spinning for up to `worth_ns`, where the policy asks what that costs.
    pub(crate) fn new(policy: WaitPolicy, worth_ns: u64) -> SpinBudget {
        let worth_ns = if policy == WaitPolicy::Adaptive { worth_ns } else { WORTH_NS };
        SpinBudget { policy, worth_ns, average_ns: worth_ns / FIRST_AVERAGE, unprobed: 0, on_trial: false }
    }

    /// It has turned out that waits are worth spinning for up to so many nanoseconds.
    pub(crate) fn set_worth(&mut self, worth_ns: u64) {
        if self.is_thrifty() {
            self.worth_ns = worth_ns;
        }
    }

    /// Whether it counts what spinning costs oneself and others.
    pub(crate) fn is_thrifty(&self) -> bool {
        self.policy == WaitPolicy::Adaptive
    }

    /// A wait came to its end after `waited_ns`, whether by spinning or asleep.
    pub(crate) fn learn(&mut self, waited_ns: u64) {
        let is_worth = self.average_ns <= self.worth_ns;
        // Waits that are slept through last as long as a wake-up, however fast the peer is: only probes can tell.
        if self.on_trial && waited_ns <= self.trial_ns() {
            self.average_ns = self.worth_ns / TRIED_AVERAGE;
        }
        self.on_trial = !is_worth && !self.on_trial && waited_ns <= self.probe_ns();
        self.unprobed = if is_worth { 0 } else { (self.unprobed + 1) % LONG_PROBE_EVERY };
        let most = self.average_ns + OUTLIER_FACTOR * self.worth_ns;
        let waited = waited_ns.min(most).min(AVERAGE_FACTOR * self.worth_ns);
        self.average_ns = self.average_ns - (self.average_ns >> WEIGHT_SHIFT) + (waited >> WEIGHT_SHIFT);
    }

    /// How long a probe looks that finds out whether spinning is worth it after all.
    fn probe_ns(&self) -> u64 {
        let is_near = self.average_ns <= NEAR_FACTOR * self.worth_ns;
        if self.is_thrifty() && is_near { self.worth_ns } else { PROBE_NS.min(self.worth_ns) }
    }

    fn trial_ns(&self) -> u64 {
        if self.is_thrifty() { self.worth_ns } else { TRIAL_NS }
    }

    /// Whether the next wait is only probed, because such waits have not been worth spinning for.
    pub(crate) fn is_probe(&self) -> bool {
        let learns = matches!(self.policy, WaitPolicy::Adaptive | WaitPolicy::LowLatency);
        learns && (self.on_trial || self.average_ns > self.worth_ns)
    }

    /// How long to spin for the next wait, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        match self.policy {
            WaitPolicy::Poll => return u64::MAX,
            WaitPolicy::Park => return 0,
            WaitPolicy::Adaptive | WaitPolicy::LowLatency => {}
        }
        if self.on_trial {
            return self.trial_ns();
        }
        if self.average_ns > self.worth_ns {
            let probe_ns = self.probe_ns();
            let every = if probe_ns > PROBE_NS { LONG_PROBE_EVERY } else { PROBE_EVERY };
            return if self.unprobed.is_multiple_of(every) { probe_ns } else { 0 };
        }
        // Who has spun for as long as sleeping would have cost has lost no more than that.
        if self.is_thrifty() {
            self.worth_ns
        } else {
            (self.average_ns * SPIN_FACTOR).clamp(SPIN_NS_MIN, WORTH_NS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_stop_the_spinning_but_for_probes_and_two_short_waits_bring_it_back() {
        let mut budget = SpinBudget::new(WaitPolicy::LowLatency, 0);
        for _ in 0..20 {
            budget.learn(10_000_000);
        }
        // The first wait that is worth nothing is probed too.
        (0..LONG_PROBE_EVERY).for_each(|_| budget.learn(10_000_000));
        let probes: u64 = (0..10 * PROBE_EVERY)
            .map(|_| {
                budget.learn(10_000_000);
                budget.ns()
            })
            .sum();
        assert_eq!(probes, 10 * PROBE_NS);
        assert!(budget.is_probe());
        budget.learn(3_000);
        assert_eq!(budget.ns(), TRIAL_NS);
        assert!(budget.is_probe(), "a trial is one, too");
        budget.learn(10_000_000);
        assert!(budget.ns() <= PROBE_NS, "it was by chance");
        budget.learn(3_000);
        budget.learn(3_000);
        assert!(budget.ns() > 5 * PROBE_NS && !budget.is_probe());
        for _ in 0..100 {
            budget.learn(2_000);
        }
        assert_eq!(budget.ns(), SPIN_NS_MIN);
    }

    #[test]
    fn waits_that_are_slept_through_bring_spinning_back_where_waking_up_is_quick() {
        let mut budget = SpinBudget::new(WaitPolicy::LowLatency, 0);
        for _ in 0..20 {
            budget.learn(10_000_000);
        }
        for _ in 0..20 {
            budget.learn(60_000);
        }
        assert!(budget.ns() > 60_000);
    }

    #[test]
    fn one_outlier_is_forgotten_soon() {
        let mut budget = SpinBudget::new(WaitPolicy::LowLatency, 0);
        for _ in 0..100 {
            budget.learn(2_000);
        }
        budget.learn(50_000_000);
        let mut waits = 0;
        while budget.ns() <= 2_000 {
            budget.learn(2_000);
            waits += 1;
        }
        assert!(waits <= 8, "{waits} waits");
    }

    #[test]
    fn waits_about_as_long_as_a_megabyte_takes_are_spun_through() {
        let mut budget = SpinBudget::new(WaitPolicy::LowLatency, 0);
        let waits = [100_000, 130_000, 90_000, 150_000];
        waits.into_iter().cycle().take(20).for_each(|wait| budget.learn(wait));
        for wait in waits.into_iter().cycle().take(100) {
            budget.learn(wait);
            assert_eq!(budget.ns(), WORTH_NS);
        }
    }

    #[test]
    fn policies_are_absolute() {
        let mut poll = SpinBudget::new(WaitPolicy::Poll, 20_000);
        let mut park = SpinBudget::new(WaitPolicy::Park, 20_000);
        for wait in [1, 1_000_000_000] {
            poll.learn(wait);
            park.learn(wait);
            assert_eq!((poll.ns(), park.ns()), (u64::MAX, 0));
            assert!(!poll.is_probe() && !park.is_probe());
        }
    }

    /// What is worth it in these tests.
    const COST_NS: u64 = 20_000;

    /// A good neighbor after many waits of such a length.
    fn neighbor(wait_ns: u64) -> SpinBudget {
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive, COST_NS);
        (0..200).for_each(|_| budget.learn(wait_ns));
        budget
    }

    /// How long it spins of so many waits of such a length, at most.
    fn spun_ns(budget: &mut SpinBudget, waits: u64, wait_ns: u64) -> u64 {
        (0..waits)
            .map(|_| {
                let spun = budget.ns().min(wait_ns);
                budget.learn(wait_ns);
                spun
            })
            .sum()
    }

    #[test]
    fn a_good_neighbor_spins_no_longer_than_being_woken_costs() {
        for wait_ns in [1_000, 10_000, COST_NS, COST_NS + 5_000, 50_000, 190_000, 1_000_000, 10_000_000] {
            let mut budget = neighbor(wait_ns);
            assert!(budget.ns() <= COST_NS, "{wait_ns}");
            let spun = spun_ns(&mut budget, 1600, wait_ns);
            let most = if wait_ns <= COST_NS { wait_ns * 1600 } else { 1600 * COST_NS / 8 };
            assert!(spun <= most, "{spun} ns of 1600 waits of {wait_ns} ns");
        }
        assert_eq!(neighbor(2_000).ns(), COST_NS);
    }

    #[test]
    fn two_that_wake_each_other_find_out_that_both_are_quick() {
        // As long as waking the other takes and being woken; a look that is long enough sees the answer.
        let mut budget = neighbor(3 * COST_NS);
        let mut waits = 0;
        while budget.is_probe() {
            let wait_ns = if budget.ns() >= COST_NS { COST_NS - 1_000 } else { 3 * COST_NS };
            budget.learn(wait_ns);
            waits += 1;
            assert!(waits < 100);
        }
    }

    #[test]
    fn one_outlier_does_not_make_a_good_neighbor_sleep_and_a_change_of_the_price_counts_at_once() {
        let mut budget = neighbor(2_000);
        budget.learn(50_000_000);
        assert_eq!(budget.ns(), COST_NS);
        let mut budget = neighbor(30_000);
        assert!(budget.is_probe());
        budget.set_worth(40_000);
        assert_eq!((budget.ns(), budget.is_probe()), (40_000, false));
        let mut budget = SpinBudget::new(WaitPolicy::LowLatency, COST_NS);
        budget.set_worth(40_000);
        assert_eq!(budget.ns(), SPIN_NS_MIN, "it doesn't ask what spinning costs");
    }
}
