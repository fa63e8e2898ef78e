//! Errors of sessions and channels in here, and the one place where they are said again for others.

use tollfree::gateway::{RateLimitedLog, for_outside};
use tonic::Status;

static FAILED: RateLimitedLog = RateLimitedLog::new();

/// A status that Tollfree has ended a call with in here. It may name sockets, processes, groups and addresses, so nobody else gets it.
#[derive(Debug)]
pub(crate) struct Inside(Status);

impl From<Status> for Inside {
    fn from(status: Status) -> Inside {
        Inside(status)
    }
}

impl Inside {
    /// What those are told who made the call, of the world or by way of the gateway: the same code, and nothing of the inside. `to`
    /// is the group or the target that the call went to; the log has all of it.
    pub(crate) fn told(self, to: &str, path: &str) -> Status {
        let Inside(status) = self;
        if let Some(unsaid) = FAILED.turn() {
            tracing::info!(to, path, %status, unsaid, "a call did not come to an answer");
        }
        for_outside(&status)
    }
}
