//! The rendezvous socket after `connect`: bytes, file descriptors, doorbells, hang-up.
//!
//! What the bytes mean is for those above: a session's are doorbells after its handshake. All calls are non-blocking by their own flags (`MSG_DONTWAIT`), not by the state of the
//! descriptor, which the two ends of an eventfd or pipe would share: no peer can make a doorbell block
//! (`docs/adr/0001-doorbell-over-the-socket.md`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use tollfree_os::fd::{AsFd, BorrowedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};
use tollfree_region::GivenFd;

/// File descriptors that a peer may send at once.
const FD_COUNT_MAX: usize = 4;
/// As many as the kernel lets anybody send at once (`SCM_MAX_FD`). There is room for all of them: what finds none the kernel
/// closes before it returns, and that may wait for the process behind it.
const FD_COUNT_ROOM: usize = 253;
/// Receives at most before a socket is let go of; more than its buffer holds.
const LEAVE_COUNT_MAX: usize = 4096;

/// What one receive brought.
#[derive(Debug)]
pub enum Heard {
    /// Bytes, and the descriptors that came with them.
    Bytes(usize, Vec<GivenFd>),
    /// Bytes, and descriptors that could not all be had. All of them are closed.
    Cut(usize, Lost),
    /// Nothing now.
    Nothing,
    /// The peer is gone.
    HungUp,
}

/// Why descriptors were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// More came at once than the protocol ever sends.
    Excess,
    /// This process can have no more.
    OutOfDescriptors,
}

/// Receives once and never waits. Descriptors are close-on-exec.
///
/// # Errors
/// What the kernel says, other than that the peer is gone.
pub fn recv(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Heard> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT_ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => continue,
            other => break other,
        }
    };
    let message = match result {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Ok(Heard::Nothing),
        Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => return Ok(Heard::HungUp),
        Err(error) => return Err(error.into()),
    };
    let mut fds = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
            fds.extend(rights.map(GivenFd::from));
        }
    }
    if message.bytes == 0 {
        return Ok(Heard::HungUp);
    }
    if fds.len() > FD_COUNT_MAX {
        return Ok(Heard::Cut(message.bytes, Lost::Excess));
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Heard::Cut(message.bytes, Lost::OutOfDescriptors));
    }
    Ok(Heard::Bytes(message.bytes, fds))
}

/// Sends bytes, with a descriptor or without, and never waits. `Ok(false)`: the socket's buffer is full.
///
/// # Errors
/// What the kernel says; that the peer is gone is `EPIPE` or `ECONNRESET`.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    send_with(socket, bytes, fd.as_slice())
}

/// As [`send`], with several descriptors (4 at the most).
///
/// # Errors
/// As [`send`].
pub fn send_with(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOMANYREFS.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        return match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) if sent == bytes.len() => Ok(true),
            Ok(_) => Err(Errno::MSGSIZE.into()),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
}

/// Whether nothing can be sent for now because too many descriptors are on their way, or the machine is short of memory.
#[must_use]
pub fn is_stall(error: &io::Error) -> bool {
    let stalls = [Errno::TOOMANYREFS, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| stalls.iter().any(|stall| stall.raw_os_error() == code))
}

/// Hangs up, and takes out what the peer may have left in the socket: closed with descriptors in it, it would close them too, and
/// wait for the processes behind them. Nothing comes in any more afterwards.
pub fn leave(socket: impl AsFd) {
    let _ = rustix::net::shutdown(&socket, Shutdown::Both);
    let mut buffer = [0; 1024];
    for _ in 0..LEAVE_COUNT_MAX {
        if !matches!(recv(&socket, &mut buffer), Ok(Heard::Bytes(..) | Heard::Cut(..))) {
            return;
        }
    }
}

/// Rings the peer. A full buffer means that a doorbell is already there; a dead peer is noticed elsewhere.
pub fn ring(socket: impl AsFd) {
    while let Err(Errno::INTR) = rustix::net::send(&socket, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
    }
}

/// Who is at the other end, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// Process id at the time of connect, in this process's pid namespace (0 where it has none there). For people to
    /// read: a pid may be reused, so no right hangs on it alone.
    pub pid: i32,
    /// Effective user id at the time of connect, as seen from this process's user namespace.
    pub uid: u32,
    /// Effective group id, likewise.
    pub gid: u32,
}

impl PeerIdentity {
    /// Who connected to this socket, or listens at its other end.
    ///
    /// # Errors
    /// The system call's: the descriptor is no Unix socket.
    pub fn of(socket: &impl AsFd) -> io::Result<PeerIdentity> {
        // Not rustix's: a process of another pid namespace has the pid 0 here, which its type can't hold.
        let found = tollfree_os::nix::sys::socket::getsockopt(
            socket,
            tollfree_os::nix::sys::socket::sockopt::PeerCredentials,
        )?;
        Ok(PeerIdentity { pid: found.pid(), uid: found.uid(), gid: found.gid() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = PeerIdentity::of(&a).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(PeerIdentity::of(&file).is_err());
    }

    #[test]
    fn bytes_fds_silence_and_hang_up_are_told_apart() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut buffer = [0; 8];
        assert!(matches!(recv(&b, &mut buffer).unwrap(), Heard::Nothing));
        ring(&a);
        assert!(matches!(recv(&b, &mut buffer).unwrap(), Heard::Bytes(1, fds) if fds.is_empty()));
        assert!(send(&a, b"f", Some(a.as_fd())).unwrap());
        assert!(matches!(recv(&b, &mut buffer).unwrap(), Heard::Bytes(1, fds) if fds.len() == 1));
        drop(a);
        // The copy that was sent is closed elsewhere: what stands behind a socket may wait.
        let began = std::time::Instant::now();
        while !matches!(recv(&b, &mut buffer).unwrap(), Heard::HungUp) {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "never closed");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_full_socket_does_not_block() {
        let (a, _b) = UnixStream::pair().unwrap();
        while send(&a, &[0; 1024], None).unwrap() {}
        ring(&a);
    }
}
