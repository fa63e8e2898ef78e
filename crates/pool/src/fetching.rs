//! Segmented messages whose extents are not mapped here yet, for drivers that wait in their own way.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::RefError;
use crate::patience::Patience;
use crate::pool::Pool;
use crate::segmented::{Plan, SegmentedMessage};

/// How long an extent may be on its way here, in turns of which those that came late count little, before the bytes are asked
/// for instead: a third party that doesn't answer costs a call no more than that, and those after it nothing until it answers.
const FETCH_PATIENCE: Duration = Duration::from_millis(20);

/// A segmented message whose extents are on their way here. The clock is the driver's.
pub struct Fetching {
    fetch: Pin<Box<dyn Future<Output = Result<SegmentedMessage, RefError>> + Send>>,
    patience: Patience,
}

impl Fetching {
    /// Has the extents of a message's refs fetched from now on.
    pub fn new(plan: &Plan, pool: &Pool) -> Fetching {
        // An owner that was stopped doesn't answer. One wait is enough until it does.
        let limit = if plan.is_waited_for(pool) { Duration::ZERO } else { FETCH_PATIENCE };
        let (plan, pool) = (plan.clone(), pool.clone());
        Fetching { fetch: Box::pin(async move { plan.fetch(&pool).await }), patience: Patience::new(limit) }
    }

    /// For so long [`poll`](Fetching::poll) is waited for now, before [`waited`](Fetching::waited) is told.
    ///
    /// # Errors
    /// [`RefError::Timeout`]: it was waited for long enough.
    pub fn turn(&self) -> Result<Duration, RefError> {
        self.patience.turn().ok_or(RefError::Timeout(FETCH_PATIENCE))
    }

    /// Nothing came in this turn, which took so long.
    pub fn waited(&mut self, took: Duration) {
        self.patience.waited(took);
    }

    /// The message, once hold was taken of its refs.
    ///
    /// # Errors
    /// Ready with the [`RefError`] of the first that can't be had.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<SegmentedMessage, RefError>> {
        self.fetch.as_mut().poll(cx)
    }
}

impl fmt::Debug for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetching").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl RefError {
    /// Whether it is no fault of the ref's that it can't be had here and now: its sender may be asked for its bytes.
    pub fn may_be_asked_for(&self) -> bool {
        !self.is_forbidden() && !matches!(self, RefError::Stale | RefError::Empty | RefError::Forked)
    }

    /// The gRPC status of a call whose message has such a ref, as the specification lists them.
    pub fn grpc_code(&self) -> u16 {
        match self {
            error if error.is_forbidden() => 7,
            RefError::Stale => 9,
            RefError::Full | RefError::Region(_) => 8,
            RefError::Gone | RefError::Coordinator | RefError::Timeout(_) | RefError::Refused(_) => 14,
            _ => 13,
        }
    }
}
