//! The share of useful work: how much of a service's processor time its handlers take, the calls that they make left out. All the
//! rest is what calls cost. NotNets, figure 1b.
//!
//! Of the requests of a process one in [`SAMPLED_EVERY`] is measured, by the thread's processor time around each turn of its handler
//! and of the calls that this makes. Reading that clock is a system call: what it takes itself is measured once, and left out.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;

use rustix::time::{ClockId, clock_gettime};

use crate::tally::Counters;

/// Of a process's requests, one in so many is measured.
pub(crate) const SAMPLED_EVERY: u64 = 16;
/// The least of so many readings is what the clock takes.
const READING_COUNT: usize = 100;

thread_local! {
    /// While a handler that is measured has its turn: what the calls that it makes have taken of that, in nanoseconds.
    static IN_CALLS_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What a reading of the clock takes, in nanoseconds.
static READING_NS: LazyLock<u64> = LazyLock::new(|| {
    let reading = |_| {
        let before_ns = thread_ns();
        thread_ns().saturating_sub(before_ns)
    };
    (0..READING_COUNT).map(reading).min().unwrap_or(0)
});

/// A handler's work on one request. Counts the request, and measures one in a few.
pub(crate) async fn handler<T>(counters: &Counters, work: impl Future<Output = T>) -> T {
    if !counters.request().is_multiple_of(SAMPLED_EVERY) {
        return work.await;
    }
    let (mut work, mut useful_ns, reading_ns) = (pin!(work), 0, *READING_NS);
    let done = poll_fn(|cx| {
        let before_ns = thread_ns();
        let outer = IN_CALLS_NS.replace(Some(reading_ns));
        let polled = work.as_mut().poll(cx);
        let in_calls_ns = IN_CALLS_NS.replace(outer).unwrap_or(0);
        useful_ns += thread_ns().saturating_sub(before_ns).saturating_sub(in_calls_ns);
        polled
    })
    .await;
    counters.worked(useful_ns);
    done
}

/// A call that a handler makes.
pub(crate) async fn call<T>(made: impl Future<Output = T>) -> T {
    let mut made = pin!(made);
    poll_fn(|cx| {
        let Some(before) = IN_CALLS_NS.get() else { return made.as_mut().poll(cx) };
        let began_ns = thread_ns();
        let polled = made.as_mut().poll(cx);
        // Two readings, of which one lies within what is measured.
        let took_ns = thread_ns().saturating_sub(began_ns) + *READING_NS;
        IN_CALLS_NS.set(Some(before + took_ns));
        polled
    })
    .await
}

/// Processor time that this thread has taken.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes about so much processor time.
    fn work(ns: u64) {
        let until = thread_ns() + ns;
        while thread_ns() < until {}
    }

    #[test]
    fn calls_that_a_handler_makes_are_no_work_of_its_own() {
        const WORK_NS: u64 = 3_000_000;
        let counters = Counters::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..2 * SAMPLED_EVERY {
                let one = async {
                    work(WORK_NS);
                    call(async {
                        work(4 * WORK_NS);
                        tokio::task::yield_now().await;
                        work(4 * WORK_NS);
                    })
                    .await;
                    work(WORK_NS);
                };
                // Only those that are measured need do anything.
                match counters.read().requests % SAMPLED_EVERY {
                    0 => handler(&counters, one).await,
                    _ => handler(&counters, async {}).await,
                }
            }
        });
        let tally = counters.read();
        assert_eq!((tally.requests, tally.measured), (2 * SAMPLED_EVERY, 2));
        let each_ns = tally.useful_ns / 2;
        assert!(
            (2 * WORK_NS..4 * WORK_NS).contains(&each_ns),
            "{each_ns} ns of work instead of {}",
            2 * WORK_NS
        );
    }
}
