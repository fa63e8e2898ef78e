//! Whether the process at the other end lives: its pidfd, beside its socket.
//!
//! The kernel closes a dead process's sockets, which is how its death is learnt, at once. But a child that it forked holds
//! copies of all of them, for as long as it lives, and nothing can be closed by a fork. So the process itself is watched
//! too: a pidfd becomes readable when it has ended, no matter which process holds what of it (`docs/adr/0010-death-by-pidfd.md`).
//!
//! # Trust
//! The kernel says which process connected, or listens, and gives its pidfd (`SO_PEERPIDFD`, Linux 6.5). An older one says its
//! number (`SO_PEERCRED`), which is used once, to get the pidfd; a process that is gone by then is told by that. Were the number
//! given to another process in the moment between, the session would end with that one's life: harm to nobody else.

use std::io;

use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::socket::PeerIdentity;

/// What there is to say of a process when it is first looked at.
#[derive(Debug)]
pub enum Liveness {
    /// It has ended.
    Dead,
    /// It lives; the descriptor becomes readable when it doesn't any more.
    Watched(OwnedFd),
    /// Nothing but its socket can tell: it is this process itself, or not visible in this one's pid namespace, or policy
    /// forbids the call.
    Unknown,
}

impl Liveness {
    /// Of the process at a socket's other end, of which the kernel has said `pid`.
    pub fn of(socket: impl AsFd, pid: i32) -> Liveness {
        if u32::try_from(pid) == Ok(std::process::id()) {
            return Liveness::Unknown;
        }
        match tollfree_os::nix::sys::socket::getsockopt(
            &socket.as_fd(),
            tollfree_os::nix::sys::socket::sockopt::PeerPidfd,
        ) {
            Ok(pidfd) if is_dead(&pidfd) => Liveness::Dead,
            Ok(pidfd) => Liveness::Watched(pidfd),
            Err(_) => Liveness::of_number(pid),
        }
    }

    /// Where the socket can't tell.
    fn of_number(pid: i32) -> Liveness {
        // 0: in no pid namespace that this process sees.
        let Some(pid) = Pid::from_raw(pid.max(0)).filter(|pid| *pid != rustix::process::getpid()) else {
            return Liveness::Unknown;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) if is_dead(&pidfd) => Liveness::Dead,
            Ok(pidfd) => Liveness::Watched(pidfd),
            Err(Errno::SRCH) => Liveness::Dead,
            Err(error) => {
                tracing::debug!(%error, ?pid, "a peer's process can't be watched; its socket tells of its end");
                Liveness::Unknown
            }
        }
    }
}

/// The process that connected to a socket, or listens at its other end, whatever its namespace: a descriptor that becomes
/// readable when it has ended, no matter which process holds what of it. The kernel names the process (`SO_PEERPIDFD`); one before 6.5 names
/// only its number (`SO_PEERCRED`).
///
/// # Errors
/// What the kernel says where the process can't be watched, or has ended.
pub fn process_at(socket: &impl AsFd) -> io::Result<OwnedFd> {
    match tollfree_os::nix::sys::socket::getsockopt(socket, tollfree_os::nix::sys::socket::sockopt::PeerPidfd)
    {
        Ok(pidfd) => Ok(pidfd),
        Err(tollfree_os::nix::errno::Errno::ENOPROTOOPT | tollfree_os::nix::errno::Errno::EINVAL) => {
            let pid = Pid::from_raw(PeerIdentity::of(socket)?.pid.max(0)).ok_or(Errno::SRCH)?;
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a pidfd's process has ended. One that nobody has waited for yet has, too.
fn is_dead(pidfd: impl AsFd) -> bool {
    let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut watched, Some(&now)) {
            Err(Errno::INTR) => continue,
            result => return result == Ok(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended_waited_for_or_not() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let Liveness::Watched(pidfd) = Liveness::of_number(pid) else { panic!("it lives") };
        assert!(!is_dead(&pidfd));
        child.kill().unwrap();
        while !is_dead(&pidfd) {
            std::thread::yield_now();
        }
        assert!(matches!(Liveness::of_number(pid), Liveness::Dead), "nobody has waited for it");
        child.wait().unwrap();
        assert!(matches!(Liveness::of_number(pid), Liveness::Dead));
    }

    #[test]
    fn the_process_behind_a_socket_is_watched_itself_included() {
        let (a, _b) = tollfree_os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_dead(process_at(&a).unwrap()));
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(process_at(&file).is_err(), "no socket");
    }

    #[test]
    fn itself_and_the_invisible_are_not_watched() {
        for pid in [0, -1, std::process::id() as i32] {
            assert!(matches!(Liveness::of_number(pid), Liveness::Unknown), "{pid}");
        }
    }
}
