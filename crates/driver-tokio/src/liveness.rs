//! Waiting for the end of the process at the other end, beside waiting for its socket to hang up.

use std::io;
use std::task::{Context, Poll};

use tollfree_os::fd::OwnedFd;
use tollfree_os::rustix;
use tollfree_os::tokio_net::unix::pipe;

/// A pidfd in a runtime's poller.
#[derive(Debug)]
pub(crate) struct DeathWatch {
    /// Nothing is read from it, and it is no pipe: this is tokio's way to watch any descriptor that one may own.
    pidfd: pipe::Receiver,
}

impl DeathWatch {
    /// In the runtime that calls.
    pub(crate) fn new(pidfd: OwnedFd) -> io::Result<DeathWatch> {
        Ok(DeathWatch { pidfd: pipe::Receiver::from_owned_fd_unchecked(pidfd)? })
    }

    /// The same in the runtime that calls.
    pub(crate) fn duplicate(&self) -> io::Result<DeathWatch> {
        DeathWatch::new(rustix::io::fcntl_dupfd_cloexec(&self.pidfd, 0)?)
    }

    /// Ready when the process has ended. One task may wait.
    ///
    /// # Errors
    /// When the runtime shuts down: nothing is known of the process then.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pidfd.poll_read_ready(cx)
    }
}
