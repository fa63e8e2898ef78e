//! What being woken costs, learnt from one's own parks: no benchmark at the start, no constant of some machine.
//!
//! Two parts make a wake-up: who sleeps pays for going to sleep and for coming back, who wakes it pays for ringing. The first is the
//! processor time that a thread takes from parking until its driver hears the doorbell; the second is how long ringing the peer takes. Both
//! are measured one time in a few, and the least of some is kept.

use crate::constants::{MEASURED_EVERY, PARK_NS, PART_NS_MAX, PART_NS_MIN, RING_NS, SAMPLE_COUNT};

/// Processor time that a thread has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// Which thread: any number that no other one of the process has.
    pub thread: u64,
    /// In nanoseconds, since any time.
    pub taken_ns: u64,
}

/// The least of the latest samples.
#[derive(Clone, Copy, Debug)]
struct Least {
    kept_ns: u64,
    least_ns: u64,
    count: u32,
}

impl Least {
    fn new(assumed_ns: u64) -> Least {
        Least { kept_ns: assumed_ns, least_ns: u64::MAX, count: 0 }
    }

    fn learn(&mut self, sample_ns: u64) {
        self.least_ns = self.least_ns.min(sample_ns);
        self.count += 1;
        if self.count == SAMPLE_COUNT {
            self.kept_ns = self.least_ns.clamp(PART_NS_MIN, PART_NS_MAX);
            (self.least_ns, self.count) = (u64::MAX, 0);
        }
    }
}

/// What a wake-up of this session costs.
#[derive(Debug)]
pub(crate) struct WakeCost {
    park: Least,
    ring: Least,
    park_count: u32,
    ring_count: u32,
    /// A park that is measured.
    parked: Option<ThreadTime>,
}

impl WakeCost {
    pub(crate) fn new() -> WakeCost {
        WakeCost {
            park: Least::new(PARK_NS),
            ring: Least::new(RING_NS),
            park_count: 0,
            ring_count: 0,
            parked: None,
        }
    }

    /// Both ends' processor time for one wake-up, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.park.kept_ns + self.ring.kept_ns
    }

    /// A thread is about to sleep until the doorbell rings.
    pub(crate) fn parks(&mut self, time: impl FnOnce() -> ThreadTime) {
        self.park_count = self.park_count.wrapping_add(1);
        self.parked = self.park_count.is_multiple_of(MEASURED_EVERY).then(time);
    }

    /// The doorbell rang. Says nothing where the thread that hears it is not the thread that slept.
    pub(crate) fn woken(&mut self, time: impl FnOnce() -> ThreadTime) {
        let Some(before) = self.parked.take() else { return };
        let now = time();
        if before.thread == now.thread {
            self.park.learn(now.taken_ns.saturating_sub(before.taken_ns));
        }
    }

    /// The peer is about to be rung: when that began, if it is measured.
    pub(crate) fn ring_begins(&mut self, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        self.ring_count = self.ring_count.wrapping_add(1);
        self.ring_count.is_multiple_of(MEASURED_EVERY).then(now_ns)
    }

    /// The peer was rung.
    pub(crate) fn ring_ended(&mut self, began_ns: u64, now_ns: u64) {
        self.ring.learn(now_ns.saturating_sub(began_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_latest_samples_is_kept_within_bounds() {
        let mut least = Least::new(PARK_NS);
        for sample in [9_000_000, 70_000, 6_000, 50_000, 12_000, 6_500, 80_000] {
            least.learn(sample);
            assert_eq!(least.kept_ns, PARK_NS, "too few so far");
        }
        least.learn(40_000);
        assert_eq!(least.kept_ns, 6_000);
        (0..SAMPLE_COUNT).for_each(|_| least.learn(9_000));
        assert_eq!(least.kept_ns, 9_000, "what was is forgotten");
        (0..SAMPLE_COUNT).for_each(|_| least.learn(0));
        assert_eq!(least.kept_ns, PART_NS_MIN, "a clock that stands still");
        (0..SAMPLE_COUNT).for_each(|_| least.learn(4_000_000));
        assert_eq!(least.kept_ns, PART_NS_MAX, "a clock that counts ticks");
    }

    #[test]
    fn a_park_that_another_thread_ends_says_nothing() {
        let mut cost = WakeCost::new();
        let before = cost.ns();
        for _ in 0..2 * MEASURED_EVERY * SAMPLE_COUNT {
            cost.parks(|| ThreadTime { thread: 1, taken_ns: 5 });
            cost.woken(|| ThreadTime { thread: 2, taken_ns: 5 });
        }
        assert_eq!(cost.ns(), before);
        for _ in 0..MEASURED_EVERY * SAMPLE_COUNT {
            cost.parks(|| ThreadTime { thread: 1, taken_ns: 5 });
            cost.woken(|| ThreadTime { thread: 1, taken_ns: 2_000 });
        }
        assert!(cost.ns() < before);
    }
}
