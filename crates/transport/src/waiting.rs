//! How long to spin before sleeping, learnt from how long recent waits were, and when not to spin at all.
//!
//! The default is a good neighbor: what a wait is worth follows from what being woken costs ([`crate::price`]) and what is waited for
//! ([`crate::patience`]), so that where calls come seldom nobody spins. Nor does anybody under a quota
//! ([`crate::allowance`]), or where others want the processor ([`Crowd`]). `LowLatency` asks for none of this: there the budget is a few times the
//! recent average, 100 µs at least, as long as waits take no longer than 250 µs.
//!
//! Where waits are not worth spinning for, one in a few is begun with a probe, so
//! that a peer that is fast again is noticed: by two short waits in a row, for one may have been short by chance. Who probes
//! has armed the doorbell before and counts as asleep, so that nobody need watch it; who spins has put the doorbell away.
//!
//! A task that spins for longer than a few microseconds offers its processor to others at each turn. Fellow spinners give it
//! back within microseconds; where a process that computes took it, waiting is left to the kernel for a while
//! ([`Crowd`]): a spinner that is runnable is not woken, it has to wait for its turn.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tollfree_os::rustix;

use crate::clock::now_ns;
use crate::config::WaitPolicy;

/// Waits beyond this are not worth spinning for where latency is all that counts, in nanoseconds: about four times a wake-up. A megabyte
/// that the peer reads and writes takes half of it.
const WORTH_NS: u64 = 250_000;
/// The shortest budget of one who spins there at all: about what going to sleep and being woken costs. Where waits are short, one
/// that is longer than this by far was disturbed, and would be longer still asleep.
const SPIN_NS_MIN: u64 = 100_000;
/// How long a probe looks.
const PROBE_NS: u64 = 5_000;
/// The budget after a wait that ended within a probe.
const TRIAL_NS: u64 = 4 * PROBE_NS;
/// Of waits that are not worth spinning for, one in so many is probed.
const PROBE_EVERY: u32 = 8;
/// A good neighbor whose waits are up to so many times what is worth it may be one of two that wake each other, where each
/// would be quick were the other awake: only a probe as long as a wake-up finds that out. One in so many is that long.
const NEAR_FACTOR: u64 = 8;
const LONG_PROBE_EVERY: u32 = 2 * PROBE_EVERY;
/// A single wait counts for at most this much more than the average: so many times what is worth it.
const OUTLIER_FACTOR: u64 = 4;
/// The average counts up to so many times what is worth it.
const AVERAGE_FACTOR: u64 = 2 * NEAR_FACTOR;
/// Weight of the newest wait: 1 / 8.
const WEIGHT_SHIFT: u32 = 3;

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
        SpinBudget { policy, worth_ns, average_ns: worth_ns / 16, unprobed: 0, on_trial: false }
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
            self.average_ns = self.worth_ns / 8;
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
        if self.is_thrifty() { self.worth_ns } else { (self.average_ns * 4).clamp(SPIN_NS_MIN, WORTH_NS) }
    }
}

/// Spinning for longer than this, a thread offers its processor to others at each turn.
pub(crate) const OFFER_AFTER_NS: u64 = 8_000;
/// A processor that was offered and comes back later than this was taken by one that computes, not by one that spins. A good
/// neighbor doesn't ask: if it was gone for longer than a wake-up costs, somebody else has a use for it.
pub(crate) const TAKEN_NS: u64 = 200_000;
/// A good neighbor offers its processor once in so many waits, however short they are.
const OFFER_EVERY: u32 = 64;
/// A thread doesn't spin then for so many times what it lost, and at most this long: where others compute all the time, a
/// tenth of it goes by in finding that out, and one short disturbance is over soon.
const CROWDED_FACTOR: u64 = 10;
const CROWDED_NS_MAX: u64 = 40_000_000;

/// Whether others want a thread's processor.
pub(crate) struct Crowd;

/// The same for all good neighbors among this process's sessions: their tasks go from thread to thread.
static ALL_CROWDED_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Until when it counts as crowded, on the monotonic clock in nanoseconds.
    static CROWDED_UNTIL_NS: Cell<u64> = const { Cell::new(0) };
    /// Waits since this thread offered its processor.
    static UNOFFERED_COUNT: Cell<u32> = const { Cell::new(0) };
}

impl Crowd {
    /// Whether this thread had better sleep than spin.
    #[inline]
    pub(crate) fn is_here(now_ns: u64) -> bool {
        now_ns < CROWDED_UNTIL_NS.get()
    }

    /// The same for good neighbors, without a look at the clock where nobody has taken a processor lately.
    #[inline]
    pub(crate) fn is_around() -> bool {
        let until_ns = ALL_CROWDED_UNTIL_NS.load(Ordering::Relaxed);
        if until_ns == 0 {
            return false;
        }
        let is_around = now_ns() < until_ns;
        if !is_around {
            ALL_CROWDED_UNTIL_NS.store(0, Ordering::Relaxed);
        }
        is_around
    }

    /// Whether a good neighbor is to offer this processor: once in a number of waits, however short. A thread that never waits
    /// for long would else keep it until the kernel takes it, and not know that others want it.
    #[inline]
    pub(crate) fn is_due() -> bool {
        let count = (UNOFFERED_COUNT.get() + 1) % OFFER_EVERY;
        UNOFFERED_COUNT.set(count);
        count == 0
    }

    /// Offers this processor. If that takes longer than `taken_ns`, others want it.
    pub(crate) fn offer(taken_ns: u64) {
        let now = now_ns();
        rustix::thread::sched_yield();
        Crowd::offered_to_all(now, now_ns().saturating_sub(now), taken_ns);
    }

    /// As [`offered`](Crowd::offered), and all good neighbors of this process go by it.
    pub(crate) fn offered_to_all(now_ns: u64, away_ns: u64, taken_ns: u64) {
        Crowd::offered(now_ns, away_ns, taken_ns);
        if away_ns > taken_ns {
            ALL_CROWDED_UNTIL_NS.fetch_max(CROWDED_UNTIL_NS.get(), Ordering::Relaxed);
        }
    }

    /// This thread offered its processor at `now_ns`, and had it back after `away_ns`. Beyond `taken_ns`, others want it.
    #[inline]
    pub(crate) fn offered(now_ns: u64, away_ns: u64, taken_ns: u64) {
        if away_ns > taken_ns {
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

    #[test]
    fn a_processor_that_was_taken_is_not_spun_on_for_ten_times_as_long() {
        Crowd::offered(1_000, TAKEN_NS, TAKEN_NS);
        assert!(!Crowd::is_here(1_000), "fellow spinners are no crowd");
        let away = TAKEN_NS + 1;
        Crowd::offered(1_000, away, TAKEN_NS);
        let until = 1_000 + away + CROWDED_FACTOR * away;
        assert!(Crowd::is_here(until - 1) && !Crowd::is_here(until));
        Crowd::offered(until, 1_000_000_000, TAKEN_NS);
        let until = until + 1_000_000_000 + CROWDED_NS_MAX;
        assert!(Crowd::is_here(until - 1) && !Crowd::is_here(until), "it has an end");
        Crowd::offered(until, u64::MAX, TAKEN_NS);
        assert!(Crowd::is_here(u64::MAX - 1));
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
