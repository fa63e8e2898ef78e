//! A message on its way out, over a socket that does not block.

use std::io;
use std::time::Duration;

use tollfree_os::fd::{AsFd, BorrowedFd};
use tollfree_rendezvous::socket;

/// Times, a millisecond apart, that a message is sent again for which the kernel has no memory, or too many descriptors on
/// their way.
const STALL_COUNT_MAX: u32 = 500;
const STALL: Duration = Duration::from_millis(1);

/// What a handshake does next.
#[derive(Debug)]
pub enum Step<T> {
    /// It is over.
    Done(T),
    /// It goes on when the socket has something to read.
    Read,
    /// It goes on when the socket takes more.
    Write,
    /// It goes on after so long.
    Pause(Duration),
}

impl<T> Step<T> {
    /// The same as another step, unless it is over.
    pub(crate) fn pending<U>(self) -> Option<Step<U>> {
        match self {
            Step::Done(_) => None,
            Step::Read => Some(Step::Read),
            Step::Write => Some(Step::Write),
            Step::Pause(pause) => Some(Step::Pause(pause)),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mail {
    bytes: Vec<u8>,
    stall_count: u32,
}

impl Mail {
    pub(crate) fn new(bytes: Vec<u8>) -> Mail {
        Mail { bytes, stall_count: 0 }
    }

    /// Sends it, with a descriptor.
    pub(crate) fn step(&mut self, socket: impl AsFd, fd: BorrowedFd<'_>) -> io::Result<Step<()>> {
        match socket::send(socket, &self.bytes, Some(fd)) {
            Ok(true) => Ok(Step::Done(())),
            // A fresh socket has room for one message; waiting here is for a peer that has filled it on purpose.
            Ok(false) => Ok(Step::Write),
            Err(error) if socket::is_stall(&error) && self.stall_count < STALL_COUNT_MAX => {
                self.stall_count += 1;
                Ok(Step::Pause(STALL))
            }
            Err(error) => Err(error),
        }
    }
}
