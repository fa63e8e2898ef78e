//! Fairness among threads whose calls block.
//!
//! A thread that finds each answer at once never sleeps, and the kernel lets it go on for milliseconds, in which it makes hundreds of calls.
//! Others wait meanwhile whose answers have come long ago: of 64 threads on a processor one is quick, and 63 wait for tens of milliseconds.
//! So a thread that has gone on for as long as some calls take offers its processor, if the process has other threads that call.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollfree_driver_tokio::now_ns;

/// A turn among threads that want to go on, in nanoseconds: some calls, and many times what a change of threads costs.
const TURN_NS: u64 = 50_000;
/// A thread whose calls end at a greater distance, in nanoseconds, has done something else in between, or slept: the longest look for an answer
/// and a turn.
const GAP_NS_MIN: u64 = 200_000 + TURN_NS;
/// Turns are so many times longer in the end where nobody takes the processor: an offer is a system call.
const LONGER_MAX: u64 = 16;
/// Nobody else took a processor that comes back within this, in nanoseconds.
const UNTAKEN_NS: u64 = 2_000;
/// A processor that comes back later than after so many turns for each thread was not taken by them, but by others who compute.
const TURNS_EACH: u64 = 4;
/// It is not offered for so many times what that took, and at most for so many nanoseconds: the kernel is fair to those who don't offer.
const PAUSE_FACTOR: u64 = 10;
const PAUSE_NS_MAX: u64 = 40_000_000;

/// Threads that have made a call that blocks, and have not ended.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::new());
}

/// What a thread knows, counted while it lives.
struct Thread {
    turns: ThreadTurns,
}

impl Thread {
    fn new() -> Thread {
        THREADS.fetch_add(1, Ordering::Relaxed);
        Thread { turns: ThreadTurns::new(now_ns()) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call of this thread is over, and it has not slept for it: others may have their turn.
#[inline]
pub(crate) fn call_ended() {
    // A thread that is ending has no more turns.
    let _ = THREAD.try_with(|thread| {
        let others = THREADS.load(Ordering::Relaxed).saturating_sub(1) as u64;
        if others > 0 {
            thread.borrow_mut().turns.call_ended(others, now_ns, std::thread::yield_now);
        }
    });
}

/// This thread has slept: its turn begins.
pub(crate) fn slept() {
    let _ = THREAD.try_with(|thread| thread.borrow_mut().turns.begin(now_ns()));
}

/// When a thread offers its processor.
#[derive(Debug)]
struct ThreadTurns {
    began_ns: u64,
    /// When the last call was over.
    ended_ns: u64,
    /// How long it may last.
    len_ns: u64,
}

impl ThreadTurns {
    fn new(now_ns: u64) -> ThreadTurns {
        ThreadTurns { began_ns: now_ns, ended_ns: now_ns, len_ns: TURN_NS }
    }

    fn begin(&mut self, now_ns: u64) {
        if !self.is_paused() {
            (self.began_ns, self.len_ns) = (now_ns, TURN_NS);
        }
    }

    /// Others compute: nothing is offered for a time.
    fn is_paused(&self) -> bool {
        self.len_ns > LONGER_MAX * TURN_NS
    }

    /// A call is over. Offers the processor to so many others, where a turn is over too.
    #[inline]
    fn call_ended(&mut self, others: u64, now_ns: impl Fn() -> u64, offer: impl FnOnce()) {
        let now = now_ns();
        let since_ns = now.saturating_sub(std::mem::replace(&mut self.ended_ns, now));
        if since_ns > GAP_NS_MIN && !self.is_paused() {
            self.began_ns = now;
        }
        if now.saturating_sub(self.began_ns) < self.len_ns {
            return;
        }
        offer();
        let back = now_ns();
        self.ended_ns = back;
        self.came_back(back, back.saturating_sub(now), others);
    }

    fn came_back(&mut self, now_ns: u64, away_ns: u64, others: u64) {
        self.began_ns = now_ns;
        self.len_ns = if away_ns < UNTAKEN_NS {
            (2 * self.len_ns).min(LONGER_MAX * TURN_NS)
        } else if away_ns <= TURNS_EACH * TURN_NS * (others + 1) {
            TURN_NS
        } else {
            (PAUSE_FACTOR * away_ns).min(PAUSE_NS_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often a thread offers its processor in calls of 5 µs for `total_ns`, where each offer takes so long.
    fn offers(total_ns: u64, others: u64, away_ns: u64) -> u64 {
        let (clock, count) = (Cell::new(0), Cell::new(0));
        let mut turns = ThreadTurns::new(0);
        while clock.get() < total_ns {
            clock.set(clock.get() + 5_000);
            turns.call_ended(
                others,
                || clock.get(),
                || {
                    clock.set(clock.get() + away_ns);
                    count.set(count.get() + 1);
                },
            );
        }
        count.get()
    }

    #[test]
    fn a_thread_offers_seldom_what_nobody_takes() {
        // Most turns are the longest.
        let count = offers(100_000_000, 7, 300);
        assert!((100_000_000 / (LONGER_MAX * TURN_NS + 5_000)..150).contains(&count), "{count}");
    }

    #[test]
    fn fellows_have_turns_of_a_length() {
        // Seven others have a turn each before it has another.
        let count = offers(100 * 8 * TURN_NS, 7, 7 * TURN_NS);
        assert!((95..=100).contains(&count), "{count}");
    }

    #[test]
    fn who_computes_is_not_offered_more_than_a_tenth() {
        let away_ns = 3_000_000;
        let count = offers(1_000_000_000, 1, away_ns);
        assert!((28..=31).contains(&count), "{count}");
        assert!(offers(1_000_000_000, 1, 20_000_000) <= 1_000 / 60 + 1, "a pause has an end");
        let mut turns = ThreadTurns::new(0);
        turns.came_back(away_ns, away_ns, 1);
        turns.begin(2 * away_ns);
        turns.call_ended(1, || 2 * away_ns + TURN_NS, || panic!("sleep is no end of a pause"));
    }

    #[test]
    fn who_calls_now_and_then_offers_nothing() {
        // 1,000 calls a second, and others that wait for much longer.
        let mut turns = ThreadTurns::new(0);
        for number in 1..1_000 {
            turns.call_ended(7, || number * 1_000_000, || panic!("it has slept in between"));
        }
        // Calls of 200 µs, one after the other, are no pauses.
        let offered = Cell::new(0);
        for number in 0..10 {
            turns.call_ended(7, || 1_000_000_000 + number * 200_000, || offered.set(offered.get() + 1));
        }
        assert!(offered.get() > 2, "{}", offered.get());
    }

    #[test]
    fn a_turn_begins_with_sleep() {
        let mut turns = ThreadTurns::new(0);
        turns.begin(TURN_NS - 1);
        turns.call_ended(1, || TURN_NS, || panic!("it has just begun"));
    }

    #[test]
    fn threads_that_end_are_not_counted() {
        std::thread::spawn(|| {
            let before = THREADS.load(Ordering::Relaxed);
            call_ended();
            assert!(THREADS.load(Ordering::Relaxed) > before);
        })
        .join()
        .unwrap();
    }
}
