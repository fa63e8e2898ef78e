//! What comes over the socket: the peer's doorbell, rings where there is no other, descriptors of payload areas, and the end
//! of it.

use tollfree_region::GivenFd;
use tollfree_rendezvous::socket::{self, Heard, Lost};
use tollfree_rendezvous::{PeerDoorbell, Seldom};
use tollfree_session::{Closed, Violation};

use crate::clock::now_ns;
use crate::core::Core;
use crate::counts;
use crate::link::Link;
use crate::shared::Socket;

/// Descriptors that may lie between their arrival and the records that announce them.
const FD_COUNT_MAX: usize = 2;
/// Bytes that may lie on the socket at once. A peer rings once each time that this side parks, and the kernel queues a
/// few hundred such bytes at most.
const DOORBELL_COUNT_MAX: usize = 4096;
/// Reads of doorbells at most, before the descriptor that should have come with one is missed.
const DOORBELL_READ_COUNT_MAX: usize = 8;

static NO_DOORBELL: Seldom = Seldom::new();
static NO_DESCRIPTOR: Seldom = Seldom::new();
static NOT_HEARD: Seldom = Seldom::new();

/// What was heard on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    Silent,
    /// Doorbells or descriptors. Whether the peer has hung up behind them was not looked at.
    Rang,
    /// The peer has hung up, or the session is closed.
    Dead,
}

/// How the peer is woken.
#[derive(Debug)]
pub(crate) enum PeerWake {
    /// By a byte on the socket.
    Socket,
    /// Likewise, until its doorbell comes, which is the first descriptor of all and comes before the first record.
    Awaited,
    /// By its doorbell.
    Given(PeerDoorbell),
    /// It is on another host: what was published is sent.
    Link(Box<Link>),
}

impl Core {
    /// The stream, where the peer is on another host.
    #[inline]
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        match &mut self.bell {
            PeerWake::Link(link) => Some(link),
            _ => None,
        }
    }

    /// The stream takes more, or may.
    pub(crate) fn unblock(&mut self, socket: &Socket) {
        let published = self.sending.ring.published();
        if let Some(link) = self.link() {
            link.unblock();
            link.flush(socket, published);
        }
    }

    /// A part of the longest silence has passed. `false`: the peer is taken for dead.
    pub(crate) fn beat(&mut self, socket: &Socket) -> bool {
        let published = self.sending.ring.published();
        self.link().is_none_or(|link| link.beat(socket, published))
    }

    /// Takes what the stream brings into the mirror of the peer's region.
    fn hear_stream(&mut self, socket: &Socket) -> SocketEvent {
        let published = self.sending.ring.published();
        let Some(link) = self.link() else { return SocketEvent::Silent };
        match link.hear(socket) {
            Ok(event) => {
                // TLS may have something to answer.
                link.flush(socket, published);
                event
            }
            Err(violation) => {
                self.close(Closed::Violation(violation), socket);
                SocketEvent::Dead
            }
        }
    }

    /// Wakes the peer.
    pub(crate) fn ring(&mut self, socket: &Socket) {
        counts::rung();
        let began = self.wait.ring_begins(now_ns);
        self.ring_once(socket);
        if let Some(began) = began {
            self.wait.ring_ended(began, now_ns());
        }
    }

    fn ring_once(&mut self, socket: &Socket) {
        let published = self.sending.ring.published();
        if let Some(link) = self.link() {
            return link.flush(socket, published);
        }
        if let PeerWake::Given(doorbell) = &self.bell {
            let Err(error) = doorbell.ring() else { return };
            tracing::debug!(%error, "the peer's doorbell is of no use: it is rung over the socket from now on");
            self.bell = PeerWake::Socket;
        }
        socket::ring(socket);
    }

    /// The peer has said something, so its doorbell has come, or never will.
    #[cold]
    pub(crate) fn hear_of_doorbell(&mut self, socket: &Socket) {
        // Should the peer have hung up, the driver finds it so too.
        self.hear(socket);
        if matches!(self.bell, PeerWake::Awaited) {
            self.bell = PeerWake::Socket;
        }
    }

    /// Keeps a descriptor that has come; `None` for one that this process could not have.
    fn take_fd(&mut self, fd: Option<GivenFd>) {
        if !matches!(self.bell, PeerWake::Awaited) {
            self.fds.push_back(fd);
            return;
        }
        self.bell = match fd.map(PeerDoorbell::new) {
            Some(Ok(doorbell)) => PeerWake::Given(doorbell),
            Some(Err(instead)) => {
                if let Some(unsaid) = NO_DOORBELL.turn() {
                    tracing::warn!(
                        instead,
                        unsaid,
                        "the peer's doorbell is none: it is rung over the socket"
                    );
                }
                PeerWake::Socket
            }
            None => PeerWake::Socket,
        };
    }

    /// The descriptor that an offer speaks of. `Some(None)`: it came, and this process could not have it.
    pub(crate) fn next_fd(&mut self, socket: &Socket) -> Option<Option<GivenFd>> {
        for _ in 0..DOORBELL_READ_COUNT_MAX {
            if !self.fds.is_empty() || self.hear(socket) != SocketEvent::Rang {
                break;
            }
        }
        self.fds.pop_front()
    }

    /// Reads the socket empty: doorbells are forgotten, descriptors kept.
    pub(crate) fn hear(&mut self, socket: &Socket) -> SocketEvent {
        if matches!(self.bell, PeerWake::Link(_)) {
            return self.hear_stream(socket);
        }
        let mut buffer = [0; 256];
        let mut heard_len = 0;
        loop {
            let mut is_empty = false;
            match socket::recv(socket, &mut buffer) {
                Ok(Heard::Nothing) if heard_len == 0 => return SocketEvent::Silent,
                Ok(Heard::Nothing) => return SocketEvent::Rang,
                Ok(Heard::HungUp) => return SocketEvent::Dead,
                Ok(Heard::Bytes(len, fds)) => {
                    heard_len += len;
                    // Only descriptors cut a receive short that more bytes follow.
                    is_empty = fds.is_empty() && len < buffer.len();
                    fds.into_iter().for_each(|fd| self.take_fd(Some(fd)));
                }
                Ok(Heard::Cut(len, Lost::OutOfDescriptors)) => {
                    if let Some(unsaid) = NO_DESCRIPTOR.turn() {
                        tracing::warn!(unsaid, "out of descriptors: one that the peer has sent can't be had");
                    }
                    heard_len += len;
                    self.take_fd(None);
                }
                Ok(Heard::Cut(_, Lost::Excess)) => heard_len = usize::MAX,
                Err(error) => {
                    if let Some(unsaid) = NOT_HEARD.turn() {
                        tracing::warn!(%error, unsaid, "receiving from the peer's socket");
                    }
                    return SocketEvent::Dead;
                }
            }
            if self.fds.len() > FD_COUNT_MAX || heard_len > DOORBELL_COUNT_MAX {
                let excess = if heard_len > DOORBELL_COUNT_MAX {
                    "more doorbells, or descriptors at once, than any peer has reason to send"
                } else {
                    "more descriptors than were announced"
                };
                self.fds.clear();
                self.close(Closed::Violation(Violation::Socket(excess)), socket);
                return SocketEvent::Dead;
            }
            if is_empty {
                return SocketEvent::Rang;
            }
        }
    }
}
