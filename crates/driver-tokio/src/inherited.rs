//! What a child of `fork` must not let go of: sockets that are registered with its parent's poller.
//!
//! Parent and child share one epoll instance, and what is registered there is the parent's. A socket of tokio's takes leave
//! of the poller when it is dropped, which in a child would be for the parent: it would hear nothing of that socket any
//! more. So a child leaves it as it is, open and registered, until it ends or executes another program.

use std::ops::Deref;

use tollfree_os::fd::AsFd;
use tollfree_rendezvous::socket;

/// A socket that only the process that made it lets go of, and without what a peer may have left in it.
#[derive(Debug)]
pub(crate) struct OfProcess<T: AsFd> {
    socket: Option<T>,
    pid: u32,
    /// Others hold it too, and go on with it.
    is_shared: bool,
}

impl<T: AsFd> OfProcess<T> {
    /// This process's.
    pub(crate) fn new(socket: T) -> OfProcess<T> {
        OfProcess { socket: Some(socket), pid: std::process::id(), is_shared: false }
    }

    /// One that was passed by a process which keeps it: it is not hung up here.
    pub(crate) fn shared(socket: T) -> OfProcess<T> {
        OfProcess { socket: Some(socket), pid: std::process::id(), is_shared: true }
    }

    /// For somebody who sees to it from here on.
    pub(crate) fn into_inner(mut self) -> T {
        self.socket.take().expect("there until now")
    }
}

impl<T: AsFd> Deref for OfProcess<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.socket.as_ref().expect("there until dropped")
    }
}

impl<T: AsFd> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.socket.take());
        } else if let Some(socket) = self.socket.as_ref().filter(|_| !self.is_shared) {
            socket::leave(socket);
        }
    }
}
