//! Timing: all rows of a payload by turns, a median for each.
//!
//! The clock is the thread's own processor time, so that what others do on the core meanwhile is not counted.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollfree_bench::harness::rounds::order;

use super::report::Row;

/// Runs an operation a number of times and tells how long that took.
pub(super) type Batch<'r> = Box<dyn FnMut(u32) -> Result<Duration, String> + 'r>;

/// A row before it was measured.
pub(super) struct Runner<'r> {
    pub operation: &'static str,
    pub side: &'static str,
    pub batch: Result<Batch<'r>, String>,
}

impl<'r> Runner<'r> {
    /// A row of `run`, called again and again.
    pub(super) fn new(operation: &'static str, side: &'static str, mut run: impl FnMut() + 'r) -> Self {
        let batch = move |count: u32| {
            let start = processor_time();
            for _ in 0..count {
                run();
            }
            Ok(processor_time() - start)
        };
        Self { operation, side, batch: Ok(Box::new(batch)) }
    }

    pub(super) fn not_run(operation: &'static str, side: &'static str, why: impl Into<String>) -> Self {
        Self { operation, side, batch: Err(why.into()) }
    }
}

/// What this thread has had of its processor.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Copying the message's bytes.
pub(super) fn memcpy(bytes: &[u8]) -> Runner<'_> {
    let mut copy = bytes.to_vec();
    Runner::new("copy", "memcpy", move || {
        copy.copy_from_slice(black_box(bytes));
        black_box(&mut copy);
    })
}

/// Runs each row once in each round, for about `time`.
pub(super) fn interleaved(rows: Vec<Runner<'_>>, rounds: usize, time: Duration) -> Vec<Row> {
    let mut ready: Vec<_> =
        rows.into_iter().map(|row| (prepare(row.batch, time), row.operation, row.side)).collect();
    let mut figures = vec![Vec::with_capacity(rounds); ready.len()];
    for round in 1..=rounds {
        for idx in order(ready.len(), round) {
            let (batch, ..) = &mut ready[idx];
            let Ok((run, count)) = batch else { continue };
            match run(*count) {
                Ok(elapsed) => figures[idx].push(elapsed.as_nanos() as f64 / f64::from(*count)),
                Err(why) => *batch = Err(why),
            }
        }
    }
    let finished = ready.into_iter().zip(figures);
    finished
        .map(|((batch, operation, side), rounds_ns)| match batch {
            Ok(_) => Row::measured(operation, side, rounds_ns),
            Err(why) => Row::not_run(operation, side, why),
        })
        .collect()
}

/// Warms a row up and finds how often it runs in `time`.
fn prepare(batch: Result<Batch<'_>, String>, time: Duration) -> Result<(Batch<'_>, u32), String> {
    let mut run = batch?;
    let mut count = 1u32;
    // The first calls take memory; they do not tell how long the others last.
    run(3)?;
    loop {
        let elapsed = run(count)?;
        if elapsed * 2 >= time || count >= 1 << 28 {
            let one = elapsed.as_nanos().max(1) as f64 / f64::from(count);
            return Ok((run, ((time.as_nanos() as f64 / one) as u32).clamp(1, 1 << 28)));
        }
        count *= 2;
    }
}
