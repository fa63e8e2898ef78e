//! The deadline of one call, at either end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tollfree_transport::now_ns;

/// Fires when a call's deadline passes; costs nothing without one.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    pub(crate) at_ns: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// `at_ns` is on the monotonic clock.
    pub(crate) fn new(at_ns: Option<u64>) -> Deadline {
        Deadline { at_ns, sleep: None }
    }

    /// Whether the deadline has passed, for those who are always busy.
    pub(crate) fn is_past(&self) -> bool {
        self.at_ns.is_some_and(|at_ns| now_ns() >= at_ns)
    }

    /// Ready when the deadline has passed. Asked after everything else was found pending, so that calls that are
    /// answered at once never make a timer.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at_ns) = self.at_ns else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| {
            let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
            // Beyond tokio's reach is as good as never.
            Box::pin(tokio::time::sleep_until(Instant::now() + left.min(Duration::from_secs(86400 * 365))))
        });
        sleep.as_mut().poll(cx)
    }
}
