//! How long to spin before sleeping, learnt from how long recent waits were, and when not to spin at all.
//!
//! Waking a sleeping process costs about 60 µs there and back, so a wait that ends sooner should be spun through, and
//! one that takes much longer should not be spun for at all. The budget is a few times the recent average, and not less than
//! sleeping costs, while that average is worth spinning for. Where it isn't, one wait in a few is begun with a short probe, so
//! that a peer that is fast again is noticed: by two short waits in a row, for one may have been short by chance. Who probes
//! has armed the doorbell before and counts as asleep, so that nobody need watch it; who spins has put the doorbell away.
//!
//! Whoever spins for longer than a few microseconds offers its processor to others at each turn. Fellow spinners give it
//! back within microseconds; where a process that computes took it, waiting is left to the kernel for a while
//! ([`Crowd`]): a spinner that is runnable is not woken, it has to wait for its turn.

use std::cell::Cell;

use crate::config::WaitPolicy;

/// Waits beyond this are not worth spinning for, in nanoseconds: about four times a wake-up. A megabyte that the peer reads and
/// writes takes half of it.
const WORTH_NS: u64 = 250_000;
/// The shortest budget of one who spins at all: about what going to sleep and being woken costs. Where waits are short, one
/// that is longer than this by far was disturbed, and would be longer still asleep.
const SPIN_NS_MIN: u64 = 100_000;
/// How long a probe looks.
const PROBE_NS: u64 = 5_000;
/// The budget after a wait that ended within a probe.
const TRIAL_NS: u64 = 4 * PROBE_NS;
/// Of waits that are not worth spinning for, one in so many is probed.
const PROBE_EVERY: u32 = 8;
/// A single wait counts for at most this much.
const WAIT_NS_MAX: u64 = 1_000_000;
/// Weight of the newest wait: 1 / 8.
const WEIGHT_SHIFT: u32 = 3;

/// What recent waits were like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpinBudget {
    policy: WaitPolicy,
    average_ns: u64,
    /// Waits since one was probed.
    unprobed: u32,
    /// The last wait ended within a probe, where waits have not been worth spinning for.
    on_trial: bool,
}

impl SpinBudget {
    pub(crate) fn new(policy: WaitPolicy) -> SpinBudget {
        SpinBudget { policy, average_ns: 15_000, unprobed: 0, on_trial: false }
    }

    /// A wait came to its end after `waited_ns`, whether by spinning or asleep.
    pub(crate) fn learn(&mut self, waited_ns: u64) {
        let is_worth = self.average_ns <= WORTH_NS;
        // Waits that are slept through last as long as a wake-up, however fast the peer is: only probes can tell.
        if self.on_trial && waited_ns <= TRIAL_NS {
            self.average_ns = WORTH_NS / 8;
        }
        self.on_trial = !is_worth && !self.on_trial && waited_ns <= PROBE_NS;
        self.unprobed = if is_worth { 0 } else { (self.unprobed + 1) % PROBE_EVERY };
        let waited = waited_ns.min(WAIT_NS_MAX);
        self.average_ns = self.average_ns - (self.average_ns >> WEIGHT_SHIFT) + (waited >> WEIGHT_SHIFT);
    }

    /// Whether the next wait is only probed, because such waits have not been worth spinning for.
    pub(crate) fn is_probe(&self) -> bool {
        self.policy == WaitPolicy::Adaptive && (self.on_trial || self.average_ns > WORTH_NS)
    }

    /// How long to spin for the next wait, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        match self.policy {
            WaitPolicy::Poll => u64::MAX,
            WaitPolicy::Park => 0,
            WaitPolicy::Adaptive if self.on_trial => TRIAL_NS,
            WaitPolicy::Adaptive if self.average_ns > WORTH_NS && self.unprobed > 0 => 0,
            WaitPolicy::Adaptive if self.average_ns > WORTH_NS => PROBE_NS,
            WaitPolicy::Adaptive => (self.average_ns * 4).clamp(SPIN_NS_MIN, WORTH_NS),
        }
    }
}

/// Spinning for longer than this, a thread offers its processor to others at each turn.
pub(crate) const OFFER_AFTER_NS: u64 = 8_000;
/// A processor that was offered and comes back later than this was taken by one that computes, not by one that spins.
const TAKEN_NS: u64 = 200_000;
/// A thread doesn't spin then for so many times what it lost, and at most this long: where others compute all the time, a
/// tenth of it goes by in finding that out, and one short disturbance is over soon.
const CROWDED_FACTOR: u64 = 10;
const CROWDED_NS_MAX: u64 = 40_000_000;

/// Whether others want a thread's processor.
pub(crate) struct Crowd;

thread_local! {
    /// Until when it counts as crowded, on the monotonic clock in nanoseconds.
    static CROWDED_UNTIL_NS: Cell<u64> = const { Cell::new(0) };
}

impl Crowd {
    /// Whether this thread had better sleep than spin.
    #[inline]
    pub(crate) fn is_here(now_ns: u64) -> bool {
        now_ns < CROWDED_UNTIL_NS.get()
    }

    /// This thread offered its processor at `now_ns`, and had it back after `away_ns`.
    #[inline]
    pub(crate) fn offered(now_ns: u64, away_ns: u64) {
        if away_ns > TAKEN_NS {
            let pause_ns = away_ns.saturating_mul(CROWDED_FACTOR).min(CROWDED_NS_MAX);
            CROWDED_UNTIL_NS.set(now_ns.saturating_add(away_ns).saturating_add(pause_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_stop_the_spinning_but_for_probes_and_two_short_waits_bring_it_back() {
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
        for _ in 0..20 {
            budget.learn(10_000_000);
        }
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
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
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
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
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
        let mut budget = SpinBudget::new(WaitPolicy::Adaptive);
        let waits = [100_000, 130_000, 90_000, 150_000];
        waits.into_iter().cycle().take(20).for_each(|wait| budget.learn(wait));
        for wait in waits.into_iter().cycle().take(100) {
            budget.learn(wait);
            assert_eq!(budget.ns(), WORTH_NS);
        }
    }

    #[test]
    fn policies_are_absolute() {
        let mut poll = SpinBudget::new(WaitPolicy::Poll);
        let mut park = SpinBudget::new(WaitPolicy::Park);
        for wait in [1, 1_000_000_000] {
            poll.learn(wait);
            park.learn(wait);
            assert_eq!((poll.ns(), park.ns()), (u64::MAX, 0));
            assert!(!poll.is_probe() && !park.is_probe());
        }
    }

    #[test]
    fn a_processor_that_was_taken_is_not_spun_on_for_ten_times_as_long() {
        Crowd::offered(1_000, TAKEN_NS);
        assert!(!Crowd::is_here(1_000), "fellow spinners are no crowd");
        let away = TAKEN_NS + 1;
        Crowd::offered(1_000, away);
        let until = 1_000 + away + CROWDED_FACTOR * away;
        assert!(Crowd::is_here(until - 1) && !Crowd::is_here(until));
        Crowd::offered(until, 1_000_000_000);
        let until = until + 1_000_000_000 + CROWDED_NS_MAX;
        assert!(Crowd::is_here(until - 1) && !Crowd::is_here(until), "it has an end");
        Crowd::offered(until, u64::MAX);
        assert!(Crowd::is_here(u64::MAX - 1));
    }
}
