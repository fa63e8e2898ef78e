//! The socket between two processes after the handshake: doorbells, descriptors of payload areas, and the end of it (wire.md, section 7).

use std::collections::VecDeque;

use tollfree_connection::{AreaFd, PeerIo, Report};
use tollfree_kill_points::{Point, here};
use tollfree_layout::RingPos;
use tollfree_os::fd::{AsFd, BorrowedFd};
use tollfree_os::rustix;
use tollfree_region::GivenFd;
use tollfree_rendezvous::socket::{self, Heard, Lost};
use tollfree_rendezvous::{PeerDoorbell, RateLimitedLog};
use tollfree_session::{Closed, Violation};

use crate::counts;

use tollfree_os::clock::now_ns;

/// Descriptors that may lie between their arrival and the records that announce them.
const FD_COUNT_MAX: usize = 2;
/// Bytes that may lie on the socket at once. A peer rings once each time that this side parks, and the kernel queues a
/// few hundred such bytes at most.
const DOORBELL_COUNT_MAX: usize = 4096;
/// Reads of doorbells at most, before the descriptor that should have come with one is missed.
const DOORBELL_READ_COUNT_MAX: usize = 8;

/// What a peer does that is logged.
static VIOLATED: RateLimitedLog = RateLimitedLog::new();
static NO_AREA: RateLimitedLog = RateLimitedLog::new();
static NOT_MADE: RateLimitedLog = RateLimitedLog::new();
static NO_DOORBELL: RateLimitedLog = RateLimitedLog::new();
static NO_DESCRIPTOR: RateLimitedLog = RateLimitedLog::new();
static NOT_HEARD: RateLimitedLog = RateLimitedLog::new();

/// What was heard on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// Nothing.
    Silent,
    /// Doorbells or descriptors. Whether the peer has hung up behind them was not looked at.
    Rang,
    /// The peer has hung up, or the session is closed.
    Dead,
}

/// How the peer is woken.
#[derive(Debug)]
enum PeerWake {
    /// By a byte on the socket.
    Socket,
    /// Likewise, until its doorbell comes, which is the first descriptor of all and comes before the first record.
    Awaited,
    /// By its doorbell.
    Given(PeerDoorbell),
}

/// What is known of the peer's end of the socket. The socket itself is a driver's, and does not block.
#[derive(Debug)]
pub struct SessionSocket {
    wake: PeerWake,
    /// Descriptors that arrived, in order; `None` for one that this process had no number free for.
    fds: VecDeque<Option<GivenFd>>,
}

/// The same with the socket itself, for one step.
#[derive(Debug)]
pub struct OnSocket<'a, F> {
    peer: &'a mut SessionSocket,
    socket: &'a F,
}

impl SessionSocket {
    /// `gives_doorbell`: the peer's doorbell is on its way.
    pub fn new(gives_doorbell: bool) -> SessionSocket {
        let wake = if gives_doorbell { PeerWake::Awaited } else { PeerWake::Socket };
        SessionSocket { wake, fds: VecDeque::new() }
    }

    /// With the socket.
    #[inline]
    pub fn on<'a, F: AsFd>(&'a mut self, socket: &'a F) -> OnSocket<'a, F> {
        OnSocket { peer: self, socket }
    }

    /// Keeps a descriptor that has come; `None` for one that this process could not have.
    fn keep_fd(&mut self, fd: Option<GivenFd>) {
        if !matches!(self.wake, PeerWake::Awaited) {
            self.fds.push_back(fd);
            return;
        }
        self.wake = match fd.map(PeerDoorbell::new) {
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

    /// Reads the socket empty: doorbells are forgotten, descriptors kept.
    ///
    /// # Errors
    /// What the peer has done that no peer does.
    fn hear(&mut self, socket: impl AsFd) -> Result<SocketEvent, Violation> {
        let mut buffer = [0; 256];
        let mut heard_len = 0;
        loop {
            let mut is_empty = false;
            match socket::recv(&socket, &mut buffer) {
                Ok(Heard::Nothing) if heard_len == 0 => return Ok(SocketEvent::Silent),
                Ok(Heard::Nothing) => return Ok(SocketEvent::Rang),
                Ok(Heard::HungUp) => return Ok(SocketEvent::Dead),
                Ok(Heard::Bytes(len, fds)) => {
                    heard_len += len;
                    // Only descriptors cut a receive short that more bytes follow.
                    is_empty = fds.is_empty() && len < buffer.len();
                    fds.into_iter().for_each(|fd| self.keep_fd(Some(fd)));
                }
                Ok(Heard::Cut(len, Lost::OutOfDescriptors)) => {
                    if let Some(unsaid) = NO_DESCRIPTOR.turn() {
                        tracing::warn!(unsaid, "out of descriptors: one that the peer has sent can't be had");
                    }
                    heard_len += len;
                    self.keep_fd(None);
                }
                Ok(Heard::Cut(_, Lost::Excess)) => heard_len = usize::MAX,
                Err(error) => {
                    if let Some(unsaid) = NOT_HEARD.turn() {
                        tracing::warn!(%error, unsaid, "receiving from the peer's socket");
                    }
                    return Ok(SocketEvent::Dead);
                }
            }
            if self.fds.len() > FD_COUNT_MAX || heard_len > DOORBELL_COUNT_MAX {
                let excess = if heard_len > DOORBELL_COUNT_MAX {
                    "more doorbells, or descriptors at once, than any peer has reason to send"
                } else {
                    "more descriptors than were announced"
                };
                self.fds.clear();
                return Err(Violation::Socket(excess));
            }
            if is_empty {
                return Ok(SocketEvent::Rang);
            }
        }
    }
}

impl<F: AsFd> OnSocket<'_, F> {
    /// Reads the socket empty: doorbells are forgotten, descriptors kept.
    ///
    /// # Errors
    /// What the peer has done that no peer does.
    pub fn hear(&mut self) -> Result<SocketEvent, Violation> {
        self.peer.hear(self.socket)
    }

    /// The peer has said something, so its doorbell has come, or never will.
    #[cold]
    fn hear_of_doorbell(&mut self) -> Result<(), Violation> {
        // Should the peer have hung up, the driver finds it so too.
        self.peer.hear(self.socket)?;
        if matches!(self.peer.wake, PeerWake::Awaited) {
            self.peer.wake = PeerWake::Socket;
        }
        Ok(())
    }
}

impl<F: AsFd> PeerIo for OnSocket<'_, F> {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn ring(&mut self, _: RingPos) {
        counts::rung();
        if let PeerWake::Given(doorbell) = &self.peer.wake {
            let Err(error) = doorbell.ring() else { return };
            tracing::debug!(%error, "the peer's doorbell is of no use: it is rung over the socket from now on");
            self.peer.wake = PeerWake::Socket;
        }
        socket::ring(self.socket);
    }

    #[inline]
    fn record_came(&mut self) -> Result<(), Violation> {
        if matches!(self.peer.wake, PeerWake::Awaited) { self.hear_of_doorbell() } else { Ok(()) }
    }

    fn send_area(&mut self, area: BorrowedFd<'_>) -> Result<(), String> {
        match socket::send(self.socket, b"a", Some(area)) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the socket's buffer is full".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn take_area(&mut self) -> AreaFd {
        for _ in 0..DOORBELL_READ_COUNT_MAX {
            if !self.peer.fds.is_empty() {
                break;
            }
            match self.peer.hear(self.socket) {
                Ok(SocketEvent::Rang) => {}
                Ok(_) => break,
                Err(violation) => return AreaFd::Violation(violation),
            }
        }
        match self.peer.fds.pop_front() {
            Some(Some(fd)) => AreaFd::Came(fd),
            Some(None) => AreaFd::NoNumber,
            None => AreaFd::Missing,
        }
    }

    fn hang_up(&mut self, _: RingPos, is_new: bool) {
        if is_new {
            here(Point::ClosePublished);
            socket::ring(self.socket);
        }
        let _ = rustix::net::shutdown(self.socket, rustix::net::Shutdown::Both);
        here(Point::SocketShutDown);
    }

    fn report(&mut self, report: Report<'_>) {
        log_report(report);
    }
}

/// Tells the log what a connection reports, at most now and then.
pub fn log_report(report: Report<'_>) {
    match report {
        Report::Closing(Closed::Here(reason)) => tracing::debug!(reason, "closing a session"),
        Report::Closing(reason) => {
            if let Some(unsaid) = VIOLATED.turn() {
                tracing::warn!(%reason, unsaid, "closing a session");
            }
        }
        Report::AreaWithheld => {
            tracing::debug!("no payload area now: large messages of this session go through the ring");
        }
        Report::AreaNotMade(reason) => {
            if let Some(unsaid) = NOT_MADE.turn() {
                tracing::warn!(
                    %reason,
                    unsaid,
                    "no payload area: large messages of this session go through the ring"
                );
            }
        }
        Report::AreaRefused => {
            if let Some(unsaid) = NO_AREA.turn() {
                tracing::warn!(
                    unsaid,
                    "the peer could not map a payload area: large messages go through the ring"
                );
            }
        }
        Report::AreaForged(error) => {
            if let Some(unsaid) = NO_AREA.turn() {
                tracing::warn!(%error, unsaid, "refusing a payload area");
            }
        }
        Report::AreaNotMapped(error) => {
            if let Some(unsaid) = NO_AREA.turn() {
                tracing::warn!(%error, unsaid, "can't map a payload area; the peer goes on without");
            }
        }
    }
}
