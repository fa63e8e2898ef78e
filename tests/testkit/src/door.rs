//! The rendezvous socket by hand.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tollfree_layout::control::RING_OFF;
use tollfree_layout::handshake::{Hello, kind};
use tollfree_layout::limits;
use tollfree_region::Region;
use zerocopy::{FromBytes, IntoBytes};

use crate::peer::HostilePeer;

/// Longest that a door waits for the other side.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connected rendezvous socket before the handshake. All calls block, for a minute at most.
#[derive(Debug)]
pub struct Door {
    pub(crate) socket: UnixStream,
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Door {
    /// Connects as a client does.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn knock(path: &Path) -> io::Result<Door> {
        Door::over(UnixStream::connect(path)?)
    }

    /// A connection that was accepted.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn over(socket: UnixStream) -> io::Result<Door> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Door { socket })
    }

    /// A region of this side with a ring of `ring_len` bytes.
    ///
    /// # Panics
    /// Without memory.
    pub fn region(ring_len: usize) -> Region {
        Region::create("tollfree-hostile", RING_OFF + ring_len).expect("the test has memory")
    }

    /// The message that an honest peer would send with [`Door::region`].
    pub fn hello(kind: u32, ring_len: usize) -> Hello {
        let mut hello = Hello::new(kind);
        hello.region_len = ((RING_OFF + ring_len) as u32).into();
        hello.ring_len = (ring_len as u32).into();
        hello.stream_window = limits::STREAM_WINDOW_DEFAULT.into();
        hello.session_window = (64 * limits::STREAM_WINDOW_DEFAULT).into();
        hello.stream_count = if kind == kind::WELCOME { 64 } else { 0 }.into();
        hello.area_len_max = (limits::AREA_LEN_MAX as u32).into();
        hello.metadata_len_max = (limits::METADATA_LEN_MAX as u32).into();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        hello.clock_ns = (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).into();
        hello.set_text("tollfree-hostile");
        hello
    }

    /// Sends bytes, with descriptors or without.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        Ok(rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
    }

    /// Sends bytes alone, all of them.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Receives once: bytes (none: the other side hung up) and descriptors.
    ///
    /// # Errors
    /// What the kernel said, a timeout included.
    pub fn recv(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; limits::HELLO_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        bytes.truncate(message.bytes);
        let mut fds = Vec::new();
        for ancillary in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
                fds.extend(rights);
            }
        }
        Ok((bytes, fds))
    }

    /// Receives a whole handshake message. `None`: the other side hung up instead.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn recv_hello(&self) -> io::Result<Option<(Hello, Vec<OwnedFd>)>> {
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        while bytes.len() < limits::HELLO_LEN {
            let (more, more_fds) = match self.recv() {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                other => other?,
            };
            if more.is_empty() {
                return Ok(None);
            }
            bytes.extend(more);
            fds.extend(more_fds);
        }
        Ok(Hello::read_from_bytes(&bytes[..limits::HELLO_LEN]).ok().map(|hello| (hello, fds)))
    }

    /// Waits until the other side has hung up, reading whatever comes.
    ///
    /// # Errors
    /// When it does not within the patience of a door.
    pub fn wait_for_hang_up(&self) -> io::Result<()> {
        loop {
            match self.recv() {
                Ok((bytes, _)) if bytes.is_empty() => return Ok(()),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the other side has hung up, without taking anything from the socket.
    pub fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // A doorbell may lie before the hang-up; the next look sees more only once it is taken.
        let mut bytes = [0; 4096];
        match rustix::net::recv(&self.socket, &mut bytes[..], flags) {
            Ok((_, 0)) => true,
            Ok(_) => rustix::net::send(&self.socket, b"", SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err(),
            Err(rustix::io::Errno::AGAIN) => false,
            Err(_) => true,
        }
    }

    /// Closes one half or both.
    pub fn shutdown(&self, how: Shutdown) {
        let _ = self.socket.shutdown(how);
    }

    /// Plays the client's part of the handshake, with a message as `edit` makes it.
    ///
    /// # Errors
    /// What the kernel said; the server's words when it refuses.
    pub fn enter(self, edit: impl FnOnce(&mut Hello)) -> io::Result<HostilePeer> {
        let own = Door::region(limits::RING_LEN_DEFAULT);
        let mut hello = Door::hello(kind::HELLO, limits::RING_LEN_DEFAULT);
        edit(&mut hello);
        self.send(hello.as_bytes(), &[own.fd().as_fd()])?;
        let (welcome, mut fds) =
            self.recv_hello()?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        match fds.pop() {
            Some(fd) if welcome.kind.get() == kind::WELCOME => HostilePeer::new(self, own, fd, &welcome),
            _ => Err(io::Error::other(welcome.text())),
        }
    }

    /// Plays the server's part of the handshake, with an answer as `edit` makes it.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn welcome(self, edit: impl FnOnce(&mut Hello)) -> io::Result<HostilePeer> {
        let (hello, mut fds) =
            self.recv_hello()?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let fd = fds.pop().ok_or_else(|| io::Error::other("the client sent no descriptor"))?;
        let own = Door::region(limits::RING_LEN_DEFAULT);
        let mut welcome = Door::hello(kind::WELCOME, limits::RING_LEN_DEFAULT);
        edit(&mut welcome);
        self.send(welcome.as_bytes(), &[own.fd().as_fd()])?;
        HostilePeer::new(self, own, fd, &hello)
    }
}
