//! The deadline of one call, at either end, and the two that a server has to keep.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tollfree_driver_tokio::now_ns;

/// Until when a server works for a call, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    client_ns: Option<u64>,
    handler_ns: Option<u64>,
}

impl Deadlines {
    /// The client's deadline alone.
    pub(crate) fn of_client(client_ns: Option<u64>) -> Deadlines {
        Deadlines { client_ns, handler_ns: client_ns }
    }

    /// The client's deadline, and one of the server's own for the handler.
    pub(crate) fn with_timeout(client_ns: Option<u64>, timeout_ns: u64) -> Deadlines {
        Deadlines { client_ns, handler_ns: Some(client_ns.unwrap_or(u64::MAX).min(timeout_ns)) }
    }

    /// After this nobody waits for the rest of an answer.
    pub(crate) fn client_ns(&self) -> Option<u64> {
        self.client_ns
    }

    /// After this the handler goes no further. Never later than the client's deadline.
    pub(crate) fn handler_ns(&self) -> Option<u64> {
        self.handler_ns
    }
}

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

    /// Goes on until another time.
    pub(crate) fn move_to(&mut self, at_ns: Option<u64>) {
        if self.at_ns != at_ns {
            *self = Deadline::new(at_ns);
        }
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
