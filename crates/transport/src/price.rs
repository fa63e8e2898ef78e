//! What being woken costs, learnt from one's own parks: no benchmark at the start, no constant of some machine.
//!
//! Two parts make a wake-up: who sleeps pays for going to sleep and for coming back, who wakes it pays for ringing. The first is the processor time that a
//! thread takes from parking until its driver hears the doorbell; the second is how long ringing the peer takes. Both are
//! measured one time in a few, and the least of some is kept: whatever else ran in between made a sample longer, never shorter.

use std::thread::{self, ThreadId};

use tollfree_os::rustix::time::{ClockId, clock_gettime};

use crate::clock::now_ns;

/// Of parks, and of rings, one in so many is measured.
const MEASURED_EVERY: u32 = 8;
/// The least of so many samples is kept.
const SAMPLE_COUNT: u32 = 8;
/// What is assumed before anything was measured, in nanoseconds.
const PARK_NS: u64 = 8_000;
const RING_NS: u64 = 4_000;
/// Nothing that was measured counts for less or more than this: a clock may be coarse, or stand still.
const PART_NS_MIN: u64 = 1_000;
const PART_NS_MAX: u64 = 30_000;

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
pub(crate) struct Price {
    park: Least,
    ring: Least,
    parks: u32,
    rings: u32,
    /// A park that is measured: its thread, and the processor time that this had taken.
    parked: Option<(ThreadId, u64)>,
}

impl Price {
    pub(crate) fn new() -> Price {
        Price { park: Least::new(PARK_NS), ring: Least::new(RING_NS), parks: 0, rings: 0, parked: None }
    }

    /// Both ends' processor time for one wake-up, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.park.kept_ns + self.ring.kept_ns
    }

    /// This thread is about to sleep until the doorbell rings.
    pub(crate) fn parks(&mut self) {
        self.parks = self.parks.wrapping_add(1);
        self.parked =
            self.parks.is_multiple_of(MEASURED_EVERY).then(|| (thread::current().id(), thread_time_ns()));
    }

    /// The doorbell rang. Says nothing where another thread hears it than the one that went to sleep.
    pub(crate) fn woken(&mut self) {
        if let Some((thread, before_ns)) = self.parked.take()
            && thread == thread::current().id()
        {
            self.park.learn(thread_time_ns().saturating_sub(before_ns));
        }
    }

    /// The peer is about to be rung: when that began, if it is measured.
    pub(crate) fn rings(&mut self) -> Option<u64> {
        self.rings = self.rings.wrapping_add(1);
        self.rings.is_multiple_of(MEASURED_EVERY).then(now_ns)
    }

    /// The peer was rung.
    pub(crate) fn rang(&mut self, began_ns: u64) {
        self.ring.learn(now_ns().saturating_sub(began_ns));
    }
}

/// Processor time that this thread has taken, in nanoseconds.
fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
        let mut price = Price::new();
        let before = price.ns();
        for _ in 0..2 * MEASURED_EVERY * SAMPLE_COUNT {
            price.parks();
            price = thread::spawn(move || {
                price.woken();
                price
            })
            .join()
            .unwrap();
        }
        assert_eq!(price.ns(), before);
        for _ in 0..MEASURED_EVERY * SAMPLE_COUNT {
            price.parks();
            price.woken();
        }
        assert!(price.ns() < before, "nothing happened in between, so that costs less than assumed");
    }
}
