//! The first message on a socket, as far as it has come.

use tollfree_kill_points::{Point, here};
use tollfree_layout::handshake::{HTTP2_PREFACE, Hello, MAGIC};
use tollfree_layout::limits::HELLO_LEN;
use tollfree_os::fd::AsFd;
use tollfree_region::GivenFd;
use tollfree_rendezvous::socket::{self, Heard, Lost};
use zerocopy::FromBytes;

use crate::error::HandshakeError;

const TOO_MANY: HandshakeError = HandshakeError::Malformed("it came with more than one descriptor");

/// A message, as far as it has come, and what follows it.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// As long as what is expected.
    bytes: Vec<u8>,
    len: usize,
    fds: Vec<GivenFd>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { bytes: vec![0; HELLO_LEN], len: 0, fds: Vec::new() }
    }

    /// So many bytes are to follow the message.
    pub(crate) fn expect(&mut self, body_len: usize) {
        self.bytes.resize(HELLO_LEN + body_len, 0);
    }

    /// The message. Call when it is there.
    pub(crate) fn hello(&self) -> Hello {
        Hello::read_from_bytes(&self.bytes[..HELLO_LEN]).expect("the length is the type's own")
    }

    /// What followed it. Call when it is there.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[HELLO_LEN..]
    }

    /// The message, and the descriptor that came with it.
    pub(crate) fn take(&mut self) -> (Hello, Option<GivenFd>) {
        (self.hello(), self.fds.pop())
    }

    /// Takes what has come. `false`: that is not all of it.
    pub(crate) fn look(&mut self, stream: impl AsFd) -> Result<bool, HandshakeError> {
        while self.len < self.bytes.len() {
            match socket::recv(&stream, &mut self.bytes[self.len..])? {
                Heard::Nothing => return Ok(false),
                Heard::HungUp => return Err(HandshakeError::HungUp),
                Heard::Cut(_, Lost::Excess) => return Err(TOO_MANY),
                Heard::Cut(_, Lost::OutOfDescriptors) => return Err(HandshakeError::Descriptors),
                Heard::Bytes(count, more) => {
                    self.len += count;
                    self.fds.extend(more);
                }
            }
            check_start(&self.bytes[..self.len])?;
            if self.fds.len() > 1 {
                return Err(TOO_MANY);
            }
        }
        here(Point::HandshakeHeard);
        Ok(true)
    }
}

/// A peer that speaks something else is told so at its first bytes: it may never send a whole message.
fn check_start(bytes: &[u8]) -> Result<(), HandshakeError> {
    let len = bytes.len().min(MAGIC.len());
    if bytes[..len] == MAGIC[..len] {
        return Ok(());
    }
    if bytes[..len] == HTTP2_PREFACE[..len] {
        return Err(HandshakeError::Http2);
    }
    let mut start = [0; 8];
    start[..len].copy_from_slice(&bytes[..len]);
    // An HTTP/2 server speaks first: a SETTINGS frame of stream 0, after 3 bytes of length.
    if start[0] == 0 && start[3..] == [4, 0, 0, 0, 0] {
        return Err(HandshakeError::Http2);
    }
    Err(HandshakeError::Magic(start))
}
