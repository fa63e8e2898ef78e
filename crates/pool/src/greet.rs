//! A member's first words: connect, check the user, JOIN, and the answer.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tollfree_layout::pool::{POOL_VERSION, PoolMessage, pool_kind};
use tollfree_rendezvous::{Address, PeerIdentity};

use crate::agent::{Known, timespec};
use crate::error::{JoinError, Refusal};
use crate::link::{Came, Inbox, post};

/// Connects and joins; comes back to a pool, if `known`.
pub(crate) fn greet(
    address: &Address,
    limit: Duration,
    known: Option<Known>,
) -> Result<(UnixStream, PoolMessage), JoinError> {
    let until = Instant::now() + limit;
    let failed = |source| JoinError::Connect { address: address.clone(), source };
    let socket = dial(address, until).map_err(failed)?;
    let coordinator = PeerIdentity::of(&socket).map_err(failed)?;
    if coordinator.uid != rustix::process::geteuid().as_raw() {
        return Err(JoinError::User { address: address.clone(), uid: coordinator.uid });
    }
    let mut join = PoolMessage::new(pool_kind::JOIN);
    if let Some((pool, member)) = known {
        join.pool = pool;
        join.member = member.0.into();
    }
    post(&socket, &join, &[]).map_err(failed)?;
    let answer = answer(address, &socket, until, limit)?;
    match answer.kind.get() {
        _ if answer.version.get() != POOL_VERSION => {
            Err(JoinError::Refused { address: address.clone(), reason: Refusal::Version })
        }
        pool_kind::WELCOME => Ok((socket, answer)),
        pool_kind::REFUSAL => Err(JoinError::Refused {
            address: address.clone(),
            reason: Refusal::from_wire(answer.reason.get()),
        }),
        _ => Err(JoinError::NotACoordinator(address.clone())),
    }
}

/// Connects. A coordinator whose backlog is full gets some time.
fn dial(address: &Address, until: Instant) -> io::Result<UnixStream> {
    let at = match address {
        Address::Path(path) => SocketAddrUnix::new(path)?,
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    };
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &at) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn answer(
    address: &Address,
    socket: &UnixStream,
    until: Instant,
    limit: Duration,
) -> Result<PoolMessage, JoinError> {
    let mut inbox = Inbox::new();
    loop {
        match inbox.recv(socket) {
            Came::Message(message, _) => return Ok(message),
            Came::Over => return Err(JoinError::NotACoordinator(address.clone())),
            Came::Nothing => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(JoinError::Timeout { address: address.clone(), limit });
        }
        // However it ends, the next look says what is the matter.
        let _ = rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timespec(left)));
    }
}
