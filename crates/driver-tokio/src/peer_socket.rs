//! The peer's end of a session's socket: on this host, or on another over a stream.

use tollfree_connection::{AreaFd, PeerIo, Report};
use tollfree_host::{OnSocket, SessionSocket, SocketEvent, counts};
use tollfree_layout::RingPos;
use tollfree_os::clock::now_ns;
use tollfree_os::fd::BorrowedFd;
use tollfree_os::rustix;
use tollfree_session::Violation;

use crate::link::Link;
use crate::shared::Socket;

/// See the module.
#[derive(Debug)]
pub(crate) enum PeerSocket {
    Here(SessionSocket),
    /// What was published is sent.
    Elsewhere(Box<Link>),
}

/// The same with the socket itself, for one step.
pub(crate) enum PeerOnSocket<'a> {
    Here(OnSocket<'a, Socket>),
    Elsewhere(&'a mut Link, &'a Socket),
}

impl PeerSocket {
    /// `gives_doorbell`: the doorbell of a peer on this host is on its way.
    pub(crate) fn new(link: Option<Box<Link>>, gives_doorbell: bool) -> PeerSocket {
        match link {
            Some(link) => PeerSocket::Elsewhere(link),
            None => PeerSocket::Here(SessionSocket::new(gives_doorbell)),
        }
    }

    #[inline]
    pub(crate) fn on<'a>(&'a mut self, socket: &'a Socket) -> PeerOnSocket<'a> {
        match self {
            PeerSocket::Here(peer) => PeerOnSocket::Here(peer.on(socket)),
            PeerSocket::Elsewhere(link) => PeerOnSocket::Elsewhere(link, socket),
        }
    }

    /// The stream, where the peer is on another host.
    #[inline]
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        match self {
            PeerSocket::Here(_) => None,
            PeerSocket::Elsewhere(link) => Some(link),
        }
    }
}

impl PeerOnSocket<'_> {
    /// Reads the socket empty: doorbells are forgotten, descriptors kept. Of a stream, takes what it brings into the mirror of the peer's
    /// region; `published` is in the ring.
    ///
    /// # Errors
    /// What the peer has done that no peer does.
    pub(crate) fn hear(&mut self, published: RingPos) -> Result<SocketEvent, Violation> {
        match self {
            PeerOnSocket::Here(peer) => peer.hear(),
            PeerOnSocket::Elsewhere(link, socket) => {
                let event = link.hear(*socket)?;
                // TLS may have something to answer.
                link.flush(*socket, published);
                Ok(event)
            }
        }
    }
}

impl PeerIo for PeerOnSocket<'_> {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn ring(&mut self, published: RingPos) {
        match self {
            PeerOnSocket::Here(peer) => peer.ring(published),
            PeerOnSocket::Elsewhere(link, socket) => {
                counts::rung();
                link.flush(*socket, published);
            }
        }
    }

    #[inline]
    fn record_came(&mut self) -> Result<(), Violation> {
        match self {
            PeerOnSocket::Here(peer) => peer.record_came(),
            PeerOnSocket::Elsewhere(..) => Ok(()),
        }
    }

    fn send_area(&mut self, area: BorrowedFd<'_>) -> Result<(), String> {
        match self {
            PeerOnSocket::Here(peer) => peer.send_area(area),
            PeerOnSocket::Elsewhere(..) => Err("the peer is on another host".to_owned()),
        }
    }

    fn take_area(&mut self) -> AreaFd {
        match self {
            PeerOnSocket::Here(peer) => peer.take_area(),
            PeerOnSocket::Elsewhere(..) => AreaFd::Missing,
        }
    }

    fn hang_up(&mut self, published: RingPos, is_new: bool) {
        match self {
            PeerOnSocket::Here(peer) => peer.hang_up(published, is_new),
            PeerOnSocket::Elsewhere(link, socket) => {
                link.close(*socket, published);
                let _ = rustix::net::shutdown(*socket, rustix::net::Shutdown::Both);
            }
        }
    }

    fn report(&mut self, report: Report<'_>) {
        tollfree_host::log_report(report);
    }
}
