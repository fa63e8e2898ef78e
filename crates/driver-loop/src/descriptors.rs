//! The descriptors of a session, and who is at their other end.

use std::io;
use std::os::unix::net::UnixStream;

use tollfree_host::{Attached, OnSocket, SessionSocket};
use tollfree_os::fd::OwnedFd;
use tollfree_os::rustix::net::{Shutdown, shutdown};
use tollfree_rendezvous::{Doorbell, PeerIdentity};

use crate::poller::{Poller, Source};

/// What a session has beside its socket.
#[derive(Debug)]
pub(crate) struct Beside {
    doorbell: Option<Doorbell>,
    death: Option<OwnedFd>,
}

impl Beside {
    /// Has all descriptors watched of what is about to be a session.
    ///
    /// # Errors
    /// The kernel's: no memory is left for that.
    pub(crate) fn watched(
        attached: &mut Attached,
        socket: &UnixStream,
        idx: u32,
        poller: &Poller,
    ) -> io::Result<Beside> {
        let beside = Beside { doorbell: attached.take_doorbell(), death: attached.take_pidfd() };
        poller.wait_for(socket, Source::Socket(idx), false)?;
        if let Some(doorbell) = &beside.doorbell {
            poller.watch_rings(doorbell, Source::Doorbell(idx))?;
        }
        if let Some(death) = &beside.death {
            poller.watch_reads(death, Source::Death(idx))?;
        }
        Ok(beside)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Descriptors {
    peer: SessionSocket,
    socket: UnixStream,
    beside: Beside,
    identity: PeerIdentity,
}

impl Descriptors {
    pub(crate) fn new(attached: &Attached, socket: UnixStream, beside: Beside) -> Descriptors {
        let peer = SessionSocket::new(attached.gives_doorbells);
        Descriptors { peer, socket, beside, identity: attached.identity }
    }

    /// Has none watched any more: a child of `fork` may hold copies, and the kernel would go on to tell of these.
    pub(crate) fn forget(&self, poller: &Poller) {
        poller.forget(&self.socket);
        if let Some(doorbell) = &self.beside.doorbell {
            poller.forget(doorbell);
        }
        if let Some(death) = &self.beside.death {
            poller.forget(death);
        }
    }

    /// For the connection.
    pub(crate) fn io(&mut self) -> OnSocket<'_, UnixStream> {
        self.peer.on(&self.socket)
    }

    pub(crate) fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// This side's doorbell can't be listened to any more.
    pub(crate) fn is_doorbell_spoilt(&self) -> bool {
        self.beside.doorbell.as_ref().is_some_and(Doorbell::is_spoilt)
    }

    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        tollfree_rendezvous::socket::leave(&self.socket);
    }
}
