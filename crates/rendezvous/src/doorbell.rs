//! A doorbell that is rung by reading: an eventfd whose owner sleeps, and which the peer takes from.
//!
//! A peer may do to a descriptor that it was given whatever it likes: a write to an eventfd of the peer's may never return, and
//! a flag of the description, which both ends share, is no protection (`docs/adr/0001-doorbell-over-the-socket.md`). A
//! read can be told not to wait by a flag of the call (`RWF_NOWAIT`). And a process that watches an eventfd for room (`EPOLLOUT`, by
//! edges) hears of each read, since each one makes room, though there was room before. So the doorbell is a semaphore with a
//! count that does not run out, rung by reads, and its owner never touches it: one system call, for both together.
//! `docs/adr/0041-doorbell-rung-by-reading.md` has the figures.

use std::io::{self, IoSliceMut};

use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use tollfree_os::rustix::io::{Errno, ReadWriteFlags};
use tollfree_region::{GivenFd, GivenKind};

/// How often it can be rung: more often than anybody ever will.
const COUNT: u64 = 1 << 62;
/// Reads at the position of the file, of which an eventfd has none.
const NO_OFFSET: u64 = u64::MAX;

/// This side's doorbell.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Makes one. It becomes writable anew each time that it is rung.
    ///
    /// # Errors
    /// The system calls': no descriptor is left, or they are forbidden here.
    pub fn new() -> io::Result<Doorbell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = rustix::event::eventfd(0, flags)?;
        rustix::io::write(&fd, &COUNT.to_ne_bytes())?;
        Ok(Doorbell(fd))
    }

    /// Whether a doorbell of this side's, in whatever holds it now, is in a state of error, which to a poller looks like being
    /// rung without end. Only the kernel can count so far, and a peer can have it do so, by having it signal the end of
    /// other work there. One system call.
    pub fn is_spoilt(doorbell: impl AsFd) -> bool {
        let mut asked = [PollFd::new(&doorbell, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut asked, Some(&now)).is_ok_and(|count| count > 0)
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Doorbell> for OwnedFd {
    fn from(doorbell: Doorbell) -> OwnedFd {
        doorbell.0
    }
}

/// The peer's doorbell.
#[derive(Debug)]
pub struct PeerDoorbell(OwnedFd);

impl PeerDoorbell {
    /// What a peer gives for its doorbell: an eventfd, and nothing else. To read a file, a socket or a device might wait for
    /// the process behind it.
    ///
    /// # Errors
    /// What it is instead, in words.
    pub fn new(fd: GivenFd) -> Result<PeerDoorbell, &'static str> {
        fd.accept(GivenKind::Event).map(PeerDoorbell).map_err(GivenKind::words)
    }

    /// Rings it, and never waits.
    ///
    /// # Errors
    /// The peer has spoilt it, it is none, or this system can't ring it: use another way from now on.
    pub fn ring(&self) -> io::Result<()> {
        let mut taken = [0; 8];
        loop {
            let place = &mut [IoSliceMut::new(&mut taken)];
            return match rustix::io::preadv2(&self.0, place, NO_OFFSET, ReadWriteFlags::NOWAIT) {
                Ok(8) => Ok(()),
                Ok(_) => Err(Errno::INVAL.into()),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_os::rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    use tollfree_os::rustix::event::eventfd;
    use tollfree_os::unix::net::UnixStream;

    fn given(doorbell: &Doorbell) -> PeerDoorbell {
        PeerDoorbell::new(rustix::io::dup(doorbell).unwrap().into()).unwrap()
    }

    #[test]
    fn each_ring_is_heard_by_whoever_watches_and_never_touches_it() {
        let doorbell = Doorbell::new().unwrap();
        let poller = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&poller, &doorbell, EventData::new_u64(1), EventFlags::OUT | EventFlags::ET).unwrap();
        let heard = || {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 2];
            epoll::wait(&poller, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap()
        };
        assert_eq!(heard(), 1, "there is room from the start");
        let peers = given(&doorbell);
        for _ in 0..1000 {
            assert_eq!(heard(), 0);
            peers.ring().unwrap();
            assert_eq!(heard(), 1);
        }
    }

    #[test]
    fn one_that_the_peer_has_spoilt_is_told_and_waits_for_nobody() {
        for flags in [EventfdFlags::empty(), EventfdFlags::SEMAPHORE] {
            // Without NONBLOCK, and nothing in it: a plain read would wait.
            let spoilt = PeerDoorbell::new(eventfd(0, flags).unwrap().into()).unwrap();
            assert_eq!(spoilt.ring().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_state_of_error_is_seen_and_nothing_else_is_taken_for_one() {
        let doorbell = Doorbell::new().unwrap();
        assert!(!Doorbell::is_spoilt(&doorbell));
        given(&doorbell).ring().unwrap();
        rustix::io::write(&doorbell, &(u64::MAX - COUNT).to_ne_bytes()).unwrap();
        assert!(!Doorbell::is_spoilt(&doorbell), "full");
        let (reader, writer) = io::pipe().unwrap();
        assert!(!Doorbell::is_spoilt(&writer));
        drop(reader);
        assert!(Doorbell::is_spoilt(&writer), "as an eventfd that the kernel has counted to its end");
    }

    #[test]
    fn what_could_wait_for_somebody_is_none() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (socket, _) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let directory = std::fs::File::open("/").unwrap();
        let device = std::fs::File::open("/dev/zero").unwrap();
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let poller = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let fds: [OwnedFd; 8] = [
            reader.into(),
            writer.into(),
            socket.into(),
            file.into(),
            directory.into(),
            device.into(),
            memory,
            poller,
        ];
        for fd in fds {
            assert_ne!(PeerDoorbell::new(fd.into()).unwrap_err(), GivenKind::Event.words());
        }
    }
}
