//! How long a task goes on without waiting, before others on its thread have a turn.
//!
//! Who sends to a peer that reads faster than messages are made never has to wait: timers of its thread would not ring, and other tasks not
//! run. To yield costs some microseconds, so that is done by the clock, which is read for one message, or batch, in a few.

use std::pin::pin;
use std::task::{Context, Poll};

use tollfree_driver_tokio::now_ns;

/// A task yields after so many nanoseconds.
const TURN_NS: u64 = 1_000_000;
/// Steps for each of which the clock is read.
const STEP_COUNT: u32 = 16;

/// One turn: at most one `poll`.
#[derive(Debug, Default)]
pub(crate) struct PollTurn {
    steps: u32,
    /// When the clock was read first; 0: it was not.
    since_ns: u64,
}

impl PollTurn {
    /// A step is done. Whether the turn is over, and another begins with the next step.
    #[inline]
    fn is_over(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        self.steps += 1;
        if !self.steps.is_multiple_of(STEP_COUNT) {
            return false;
        }
        let now_ns = now_ns();
        if self.since_ns == 0 {
            self.since_ns = now_ns;
        }
        let is_over = now_ns.saturating_sub(self.since_ns) >= TURN_NS;
        if is_over {
            *self = PollTurn::default();
        }
        is_over
    }

    /// A step is done. Pending where others are to have a turn, after which the task goes on.
    #[inline]
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.is_over(now_ns) {
            // Also for what the runtime has yet to hear of: timers, sockets.
            true => pin!(tokio::task::yield_now()).poll(cx),
            false => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_after_its_time_and_the_clock_is_read_for_one_step_in_a_few() {
        let (mut turn, mut now, mut readings) = (PollTurn::default(), 5, 0);
        let mut lengths = Vec::new();
        let mut began = now;
        for _ in 0..10_000 {
            now += 10_000;
            if turn.is_over(|| {
                readings += 1;
                now
            }) {
                lengths.push(now - began);
                began = now;
            }
        }
        assert!(
            lengths.len() > 50 && lengths.iter().all(|ns| (TURN_NS..2 * TURN_NS).contains(ns)),
            "{lengths:?}"
        );
        assert_eq!(readings, 10_000 / STEP_COUNT);
    }
}
