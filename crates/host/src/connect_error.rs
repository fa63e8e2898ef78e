//! Why a client did not get a session, and how long it tries.

use std::io;
use std::path::Path;
use std::time::Duration;

use tollfree_layout::errors;
use tollfree_os::unix::fs::FileTypeExt;

use crate::error::HandshakeError;

/// A server that starts has bound its socket a moment before it listens there. What refuses for longer is left over from a dead one.
pub const STARTING: Duration = Duration::from_millis(10);
/// The pause between two attempts.
pub const DIAL_PAUSE: Duration = Duration::from_millis(1);

/// For how long, from the first attempt on, to try again after this error: a server whose backlog is full is busy accepting others, and gets
/// `busy`; a server that does not listen gets `starting` ([`STARTING`] as a rule); for all else there is no other attempt.
pub fn patience(error: &io::Error, busy: Duration, starting: Duration) -> Duration {
    match error.kind() {
        io::ErrorKind::WouldBlock => busy,
        io::ErrorKind::ConnectionRefused => starting,
        _ => Duration::ZERO,
    }
}

/// Why a client did not get a session.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {kind}")]
pub struct ConnectError {
    /// Where to.
    pub address: String,
    /// What happened.
    #[source]
    pub kind: ConnectErrorKind,
}

/// The kinds of [`ConnectError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// There is no socket.
    #[error("no server there (the socket does not exist)")]
    NotFound,
    /// A socket that nobody listens on.
    #[error("no server there (nobody listens on the socket; its server has died)")]
    Stale,
    /// Something else than a socket lies at the path.
    #[error(
        "no server there (the path is {0}, and not a socket): compare it with the address that the server is given"
    )]
    NotASocket(&'static str),
    /// No permission to open the socket.
    #[error("no permission to open the socket")]
    Permission,
    /// The socket call failed otherwise.
    #[error("can't connect: {0}")]
    Io(#[source] io::Error),
    /// Connected, but no session came of it.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl ConnectError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        self.kind.number()
    }
}

impl ConnectErrorKind {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            ConnectErrorKind::NotFound => errors::CONNECT_NO_SOCKET,
            ConnectErrorKind::Stale => errors::CONNECT_NOBODY_LISTENS,
            ConnectErrorKind::NotASocket(_) => errors::CONNECT_NOT_A_SOCKET,
            ConnectErrorKind::Permission => errors::CONNECT_NO_PERMISSION,
            ConnectErrorKind::Io(_) => errors::CONNECT_FAILED,
            ConnectErrorKind::Handshake(error) => error.number(),
        }
    }

    /// What an error of `connect` means for a server's path.
    pub fn of(error: io::Error, path: &Path) -> ConnectErrorKind {
        match error.kind() {
            io::ErrorKind::NotFound => ConnectErrorKind::NotFound,
            io::ErrorKind::ConnectionRefused => match other_than_socket(path) {
                Some(what) => ConnectErrorKind::NotASocket(what),
                None => ConnectErrorKind::Stale,
            },
            io::ErrorKind::PermissionDenied => ConnectErrorKind::Permission,
            _ => ConnectErrorKind::Io(error),
        }
    }

    /// Whether the same attempt may work later without anybody changing code or settings.
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectErrorKind::Handshake(error) => error.is_transient(),
            ConnectErrorKind::Permission | ConnectErrorKind::NotASocket(_) => false,
            _ => true,
        }
    }
}

/// What lies at a path, where that is no socket.
fn other_than_socket(path: &Path) -> Option<&'static str> {
    // An abstract name is no path.
    let found = std::fs::metadata(path).ok()?.file_type();
    match found {
        found if found.is_socket() => None,
        found if found.is_dir() => Some("a directory"),
        found if found.is_file() => Some("a regular file"),
        _ => Some("a device or pipe"),
    }
}
