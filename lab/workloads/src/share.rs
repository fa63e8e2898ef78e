//! The share of useful work: how much of a service's processor time its handlers take, the calls that they make left out. All the
//! rest is what calls cost. NotNets, figure 1b. The same by the clock on the wall: how much of a request's latency its handlers are,
//! while no call of theirs is under way. Dagger, figure 1.
//!
//! Of the requests of a process one in [`SAMPLED_EVERY`] is measured, by the thread's processor time around each turn of its handler
//! and of the calls that this makes. Reading that clock is a system call: what it takes itself is measured once, and left out.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use tonic::Status;

use crate::tally::Counters;

/// Of a process's requests, one in so many is measured.
pub(crate) const SAMPLED_EVERY: u64 = 16;
/// The least of so many readings is what the clock takes.
const READING_COUNT: usize = 100;

/// The calls of a handler that is measured, by the clock on the wall.
#[derive(Default)]
struct Waits {
    open_count: u32,
    since: Option<Instant>,
    waited: Duration,
}

impl Waits {
    fn begin(&mut self) {
        self.open_count += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(&mut self) {
        self.open_count -= 1;
        if self.open_count == 0 {
            self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

/// A turn of such a handler.
struct Turn {
    /// What the calls that it makes have taken of it, in nanoseconds.
    in_calls_ns: u64,
    waits: Arc<Mutex<Waits>>,
}

thread_local! {
    /// While a handler that is measured has its turn.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// What a reading of the clock takes, in nanoseconds.
static READING_NS: LazyLock<u64> = LazyLock::new(|| {
    let reading = |_| {
        let before_ns = thread_ns();
        thread_ns().saturating_sub(before_ns)
    };
    (0..READING_COUNT).map(reading).min().unwrap_or(0)
});

/// Answers a request that a service got. Counts it, and measures one in a few: how long messages are, too.
pub(crate) async fn handler<Q: Message, A: Message, F: Future<Output = Result<A, Status>>>(
    counters: &Counters,
    request: Q,
    work: impl FnOnce(Q) -> F,
) -> Result<A, Status> {
    if !is_sampled(counters) {
        return work(request).await;
    }
    counters.sizes.request(request.encoded_len());
    let answer = measured(counters, work(request)).await;
    if let Ok(answer) = &answer {
        counters.sizes.reply(answer.encoded_len());
    }
    answer
}

/// The same of a request that is an object.
pub(crate) async fn object_handler<T>(counters: &Counters, work: impl Future<Output = T>) -> T {
    if is_sampled(counters) { measured(counters, work).await } else { work.await }
}

fn is_sampled(counters: &Counters) -> bool {
    counters.request().is_multiple_of(SAMPLED_EVERY)
}

/// A handler's work on one request.
async fn measured<T>(counters: &Counters, work: impl Future<Output = T>) -> T {
    let (mut work, mut useful_ns, reading_ns) = (pin!(work), 0, *READING_NS);
    let (began, waits) = (Instant::now(), Arc::<Mutex<Waits>>::default());
    let done = poll_fn(|cx| {
        let before_ns = thread_ns();
        let turn = Turn { in_calls_ns: reading_ns, waits: waits.clone() };
        let outer = TURN.replace(Some(turn));
        let polled = work.as_mut().poll(cx);
        let in_calls_ns = TURN.replace(outer).map_or(0, |turn| turn.in_calls_ns);
        useful_ns += thread_ns().saturating_sub(before_ns).saturating_sub(in_calls_ns);
        polled
    })
    .await;
    let own = began.elapsed().saturating_sub(waits.lock().waited);
    counters.worked(useful_ns, own.as_nanos() as u64);
    done
}

/// A call that a handler makes.
pub(crate) async fn call<T>(made: impl Future<Output = T>) -> T {
    let (mut made, mut has_begun) = (pin!(made), false);
    poll_fn(|cx| {
        let waits = TURN.with_borrow(|turn| turn.as_ref().map(|turn| turn.waits.clone()));
        let Some(waits) = waits else { return made.as_mut().poll(cx) };
        if !std::mem::replace(&mut has_begun, true) {
            waits.lock().begin();
        }
        let began_ns = thread_ns();
        let polled = made.as_mut().poll(cx);
        if polled.is_ready() {
            waits.lock().end();
        }
        // Two readings, of which one lies within what is measured.
        let took_ns = thread_ns().saturating_sub(began_ns) + *READING_NS;
        TURN.with_borrow_mut(|turn| turn.iter_mut().for_each(|turn| turn.in_calls_ns += took_ns));
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
                    0 => object_handler(&counters, one).await,
                    _ => object_handler(&counters, async {}).await,
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
        // By the clock on the wall it is as much, or more where the thread was kept from its processor.
        assert!(tally.own_ns / 2 >= 2 * WORK_NS, "{tally:?}");
    }

    /// While one of them is under way the handler waits, however many there are.
    #[test]
    fn calls_at_the_same_time_are_waited_for_once() {
        let counters = Counters::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let began = Instant::now();
        runtime.block_on(object_handler(&counters, async {
            let nap = |ms| call(tokio::time::sleep(Duration::from_millis(ms)));
            tokio::join!(nap(30), nap(60));
            tokio::time::sleep(Duration::from_millis(20)).await;
            nap(10).await;
        }));
        let (all, own) = (began.elapsed(), Duration::from_nanos(counters.read().own_ns));
        assert!(
            own >= Duration::from_millis(20) && own <= all - Duration::from_millis(70),
            "{own:?} of {all:?}"
        );
    }

    #[test]
    fn lengths_are_those_of_encoded_messages_of_calls_that_are_measured() {
        let counters = Counters::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for number in 0..=SAMPLED_EVERY {
            let answered = handler(&counters, vec![7_u8; number as usize], async |request: Vec<u8>| {
                if request.is_empty() { Ok(request) } else { Err(Status::internal("no")) }
            });
            let _ = runtime.block_on(answered);
        }
        let sizes = counters.sizes.read();
        let lens: Vec<_> = sizes.requests.pairs().collect();
        // As the value of a `bytes` field of a message that has nothing else.
        assert_eq!(lens, [(0, 1), (SAMPLED_EVERY + 2, 1)]);
        assert_eq!(sizes.replies.pairs().collect::<Vec<_>>(), [(0, 1)]);
    }
}
