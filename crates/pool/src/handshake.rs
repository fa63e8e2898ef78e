//! A member's first words: connect, check the user, JOIN, and the answer.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tollfree_layout::MemberIdx;
use tollfree_layout::pool::{
    ExtentShape, POOL_ID_LEN, POOL_MAGIC, POOL_VERSION, PoolMessage, SECRET_LEN, keyed_hash, member_of,
    pool_kind,
};
use tollfree_os::rustix;
use tollfree_os::rustix::event::{PollFd, PollFlags};
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tollfree_os::unix::ffi::OsStrExt;
use tollfree_os::unix::fs::MetadataExt;
use tollfree_os::unix::net::UnixStream;
use tollfree_rendezvous::{Address, PeerIdentity, PeerPolicy};

use crate::agent::timespec;
use crate::error::{JoinError, Refusal};
use crate::extent::PoolId;
use crate::invitation::Invitation;
use crate::link::{Came, Inbox, post};

/// What a member says of itself when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) pool: PoolId,
    pub(crate) member: MemberIdx,
    pub(crate) secret: [u8; SECRET_LEN],
}

/// As what somebody comes to a coordinator.
#[derive(Clone, Copy)]
pub(crate) enum Entry<'i> {
    /// Any process of its user.
    New,
    /// One that was invited.
    Invited(&'i Invitation),
    /// A member that was there before.
    Back(Known),
}

/// Connects and joins, or comes back.
pub(crate) fn greet(
    address: &Address,
    limit: Duration,
    entry: Entry<'_>,
) -> Result<(UnixStream, PoolMessage), JoinError> {
    let until = Instant::now() + limit;
    let (word, known) = match entry {
        Entry::New => (join_word(None), None),
        Entry::Invited(invitation) => {
            let mut word = join_word(None);
            word.secret = invitation.0;
            (word, None)
        }
        Entry::Back(known) => (join_word(Some(known)), Some(known)),
    };
    let socket = ask(address, until, &word)?;
    let answer = answer(address, &socket, &mut Inbox::new(), until, limit)?;
    match answer.kind.get() {
        _ if answer.version.get() != POOL_VERSION => {
            Err(JoinError::Refused { address: address.clone(), reason: Refusal::Version })
        }
        pool_kind::WELCOME if is_sound(&answer, known) => Ok((socket, answer)),
        pool_kind::REFUSAL => Err(JoinError::Refused {
            address: address.clone(),
            reason: Refusal::from_wire(answer.reason.get()),
        }),
        _ => Err(JoinError::NotACoordinator(address.clone())),
    }
}

/// What a member says first.
pub(crate) fn join_word(known: Option<Known>) -> PoolMessage {
    let mut join = PoolMessage::new(pool_kind::JOIN);
    if let Some(Known { pool, member, secret }) = known {
        join.pool = pool;
        join.member = member.0.into();
        join.secret = secret;
    }
    join
}

/// Connects to a coordinator of this user, and says the first word.
pub(crate) fn ask(address: &Address, until: Instant, word: &PoolMessage) -> Result<UnixStream, JoinError> {
    let failed = |source| JoinError::Connect { address: address.clone(), source };
    let socket = dial(address, until).map_err(failed)?;
    let coordinator = PeerIdentity::of(&socket).map_err(failed)?;
    if !PeerPolicy::SameUser.allows(coordinator.uid) {
        let policy = PeerPolicy::SameUser.words();
        return Err(JoinError::User { address: address.clone(), uid: coordinator.uid, policy });
    }
    match post(&socket, word, &[]) {
        // It has been refused before it said anything: why, it can read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        posted => drop(posted.map_err(failed)?),
    }
    Ok(socket)
}

/// Whether a welcome can be one, and is for the member that came back.
pub(crate) fn is_sound(welcome: &PoolMessage, known: Option<Known>) -> bool {
    let batch = welcome.len.get();
    let (pool, member, secret) = (welcome.pool, welcome.member(), welcome.secret);
    ExtentShape::of_data(batch).is_some()
        && welcome.amount.get() >= batch
        && pool != [0; POOL_ID_LEN]
        && member.0 != 0
        && member == member_of(&secret, &pool)
        && known.is_none_or(|known| known == Known { pool, member, secret })
}

/// The name of the pool that is coordinated at an address: another one for each directory and file, or for each network
/// namespace and abstract name. A coordinator that takes another's place gives it the same name.
pub(crate) fn name_at(address: &Address) -> io::Result<PoolId> {
    let place = match address {
        Address::Path(path) => path.parent().filter(|parent| !parent.as_os_str().is_empty()),
        Address::Abstract(_) => Some(Path::new("/proc/self/ns/net")),
    };
    let found = std::fs::metadata(place.unwrap_or(Path::new(".")))?;
    let mut words = Vec::from(found.dev().to_le_bytes());
    words.extend(found.ino().to_le_bytes());
    words.extend(match address {
        Address::Path(path) => path.file_name().unwrap_or_default().as_bytes(),
        Address::Abstract(name) => name.as_bytes(),
    });
    let mut name = [0; POOL_ID_LEN];
    for (half, bytes) in name.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *bytes = keyed_hash(u64::from_le_bytes(POOL_MAGIC), half as u64, &words).to_le_bytes();
    }
    Ok(name)
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

/// The coordinator's next word.
pub(crate) fn answer(
    address: &Address,
    socket: &UnixStream,
    inbox: &mut Inbox,
    until: Instant,
    limit: Duration,
) -> Result<PoolMessage, JoinError> {
    loop {
        match inbox.recv(socket) {
            Came::Message(message, _) => return Ok(message),
            Came::Over => return Err(JoinError::NotACoordinator(address.clone())),
            Came::Broken(source) => {
                return Err(JoinError::System { what: "the answer of the pool's coordinator", source });
            }
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
