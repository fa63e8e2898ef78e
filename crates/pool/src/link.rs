//! The way to the coordinator: messages that any thread leaves, and the agent sends.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tollfree_layout::pool::{POOL_MAGIC, POOL_MESSAGE_LEN, PoolMessage};
use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::event::EventfdFlags;
use tollfree_region::GivenFd;
use tollfree_rendezvous::socket::{self, Heard, Lost};
use zerocopy::{FromBytes, IntoBytes};

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) message: PoolMessage,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Letters for the coordinator, and whether there is one.
#[derive(Debug)]
pub(crate) struct Link {
    outbox: Mutex<VecDeque<Letter>>,
    bell: OwnedFd,
    attached: AtomicBool,
    closed: AtomicBool,
}

impl Link {
    pub(crate) fn new() -> io::Result<Link> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Link {
            outbox: Mutex::new(VecDeque::new()),
            bell,
            attached: AtomicBool::new(true),
            closed: AtomicBool::new(false),
        })
    }

    /// Leaves a letter. Never waits. Without a coordinator it is dropped: the next one learns all it needs to know.
    pub(crate) fn send(&self, message: PoolMessage, fds: Vec<OwnedFd>) -> bool {
        if !self.is_attached() {
            return false;
        }
        self.outbox.lock().push_back(Letter { message, fds });
        self.ring();
        true
    }

    /// Wakes the agent.
    pub(crate) fn ring(&self) {
        // It counts; full means rung.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn quieten(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }

    pub(crate) fn outbox(&self) -> parking_lot::MutexGuard<'_, VecDeque<Letter>> {
        self.outbox.lock()
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// The coordinator is there, or gone. What was to be sent to the one before is dropped.
    pub(crate) fn set_attached(&self, attached: bool) {
        self.attached.store(attached, Ordering::Release);
        if !attached {
            let letters = std::mem::take(&mut *self.outbox.lock());
            drop(letters);
        }
    }

    /// The member leaves: its agent ends.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ring();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// What came.
pub(crate) enum Came {
    /// A message.
    Message(PoolMessage, Vec<GivenFd>),
    /// A part of one, or nothing.
    Nothing,
    /// The other side is gone, or speaks nonsense.
    Over,
    /// The kernel gives nothing more of what it says.
    Broken(io::Error),
}

/// Most descriptors that a message has.
const MESSAGE_FD_COUNT_MAX: usize = 2;

/// Puts messages together out of what a socket gives.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: [u8; POOL_MESSAGE_LEN],
    len: usize,
    fds: Vec<GivenFd>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { bytes: [0; POOL_MESSAGE_LEN], len: 0, fds: Vec::new() }
    }

    /// Receives once, never waits.
    pub(crate) fn recv(&mut self, stream: impl AsFd) -> Came {
        match socket::recv(stream, &mut self.bytes[self.len..]) {
            Ok(Heard::Bytes(count, fds)) => {
                self.len += count;
                self.fds.extend(fds);
                if self.fds.len() > MESSAGE_FD_COUNT_MAX {
                    return Came::Over;
                }
            }
            // The asker is told that the descriptor is missing.
            Ok(Heard::Cut(count, Lost::OutOfDescriptors)) => self.len += count,
            Ok(Heard::Nothing) => return Came::Nothing,
            Ok(Heard::HungUp | Heard::Cut(_, Lost::Excess)) => return Came::Over,
            Err(error) => return Came::Broken(error),
        }
        if self.len < POOL_MESSAGE_LEN {
            return Came::Nothing;
        }
        self.len = 0;
        let fds = std::mem::take(&mut self.fds);
        match PoolMessage::read_from_bytes(&self.bytes) {
            Ok(message) if message.magic == POOL_MAGIC => Came::Message(message, fds),
            _ => Came::Over,
        }
    }
}

/// Sends one letter and never waits. `Ok(false)`: no room now.
pub(crate) fn post(stream: impl AsFd, message: &PoolMessage, fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    socket::send_with(stream, message.as_bytes(), fds)
}
