//! Giving way: a task that always finds something to do lets others have their turn now and then.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

/// Times in a row that a task may find something at once. A unary call takes a handful.
const STREAK_MAX: u32 = 128;

/// Counts how often in a row a poll function was ready.
#[derive(Debug, Default)]
pub(crate) struct CooperativeBudget(AtomicU32);

impl CooperativeBudget {
    /// Polls; after too many times in a row wakes the task and says `Pending` instead. A peer that sends without end
    /// would else keep its reader's thread from all other tasks.
    #[inline]
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let count = self.0.load(Ordering::Relaxed);
        if count >= STREAK_MAX {
            self.0.store(0, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = poll(cx);
        self.0.store(if polled.is_ready() { count + 1 } else { 0 }, Ordering::Relaxed);
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_cooperative_budget_is_broken_once_and_begins_anew() {
        let cooperative_budget = CooperativeBudget::default();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            for _ in 0..STREAK_MAX {
                assert!(cooperative_budget.poll(&mut cx, |_| Poll::Ready(())).is_ready());
            }
            assert!(cooperative_budget.poll(&mut cx, |_| Poll::Ready(())).is_pending());
        }
        for _ in 0..3 * STREAK_MAX {
            assert!(cooperative_budget.poll(&mut cx, |_| Poll::Ready(())).is_ready());
            assert!(cooperative_budget.poll(&mut cx, |_| Poll::<()>::Pending).is_pending());
        }
    }
}
