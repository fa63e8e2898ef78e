//! What comes over the socket: doorbells, descriptors of payload areas, and the end of it.

use std::os::fd::OwnedFd;

use tollfree_rendezvous::socket::{self, Heard, Lost};
use tollfree_session::{Closed, Violation};

use crate::core::Core;
use crate::shared::Socket;

/// Descriptors that may lie between their arrival and the records that announce them.
const FD_COUNT_MAX: usize = 2;
/// Bytes that may lie on the socket at once. A peer rings once each time that this side parks, and the kernel queues a
/// few hundred such bytes at most.
const DOORBELL_COUNT_MAX: usize = 4096;
/// Reads of doorbells at most, before the descriptor that should have come with one is missed.
const DOORBELL_READ_COUNT_MAX: usize = 8;

/// What was heard on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Silent,
    /// Doorbells or descriptors. Whether the peer has hung up behind them was not looked at.
    Rang,
    /// The peer has hung up, or the session is closed.
    Dead,
}

impl Core {
    /// The descriptor that an offer speaks of. `Some(None)`: it came, and this process could not have it.
    pub(crate) fn next_fd(&mut self, socket: &Socket) -> Option<Option<OwnedFd>> {
        for _ in 0..DOORBELL_READ_COUNT_MAX {
            if !self.fds.is_empty() || self.hear(socket) != Line::Rang {
                break;
            }
        }
        self.fds.pop_front()
    }

    /// Reads the socket empty: doorbells are forgotten, descriptors kept.
    pub(crate) fn hear(&mut self, socket: &Socket) -> Line {
        let mut buffer = [0; 256];
        let mut heard_len = 0;
        loop {
            let mut is_empty = false;
            match socket::recv(socket, &mut buffer) {
                Ok(Heard::Nothing) if heard_len == 0 => return Line::Silent,
                Ok(Heard::Nothing) => return Line::Rang,
                Ok(Heard::HungUp) => return Line::Dead,
                Ok(Heard::Bytes(len, fds)) => {
                    heard_len += len;
                    // Only descriptors cut a receive short that more bytes follow.
                    is_empty = fds.is_empty() && len < buffer.len();
                    self.fds.extend(fds.into_iter().map(Some));
                }
                Ok(Heard::Cut(len, Lost::OutOfDescriptors)) => {
                    tracing::warn!("out of descriptors: a payload area can't be had");
                    heard_len += len;
                    self.fds.push_back(None);
                }
                Ok(Heard::Cut(_, Lost::Excess)) => heard_len = usize::MAX,
                Err(error) => {
                    tracing::warn!(%error, "receiving from the peer's socket");
                    return Line::Dead;
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
                return Line::Dead;
            }
            if is_empty {
                return Line::Rang;
            }
        }
    }
}
