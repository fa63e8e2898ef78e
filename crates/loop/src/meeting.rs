//! Sockets on their way to become sessions: connecting, and both sides' handshakes.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tollfree_host::{Accepting, Attached, Config, Connecting, HandshakeError, Ledger, Purpose, Step};
use tollfree_os::rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tollfree_rendezvous::Address;

use crate::{ConnectError, ConnectErrorKind, ListenerId};

/// A server whose queue is full is tried again after so long.
const BUSY: Duration = Duration::from_millis(1);
/// What a meeting waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Read,
    Write,
    After(Duration),
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Met {
    Session(Box<Attached>),
    Waits(Wants),
}

/// Where a session comes from.
#[derive(Debug)]
pub(crate) enum Side {
    /// This side connects there.
    Connects { address: Address, connecting: Option<Box<Connecting>>, is_connected: bool },
    /// A client has come to a listener.
    Accepts { listener: ListenerId, accepting: Accepting, ledger: Arc<Ledger> },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) socket: UnixStream,
    pub(crate) side: Side,
    /// When it has to be over, on the monotonic clock in nanoseconds.
    pub(crate) until_ns: u64,
    /// What it waits for, as the poller was told.
    pub(crate) wants: Wants,
}

impl Meeting {
    /// Begins to connect.
    pub(crate) fn dial(address: &Address, until_ns: u64) -> io::Result<Meeting> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let side = Side::Connects { address: address.clone(), connecting: None, is_connected: false };
        Ok(Meeting { socket: socket.into(), side, until_ns, wants: Wants::After(Duration::ZERO) })
    }

    /// Goes on.
    pub(crate) fn step(&mut self, config: &Config) -> Result<Met, ConnectErrorKind> {
        let step = match &mut self.side {
            Side::Connects { address, connecting, is_connected } => {
                if !*is_connected {
                    match connect(&self.socket, address) {
                        Ok(true) => *is_connected = true,
                        Ok(false) => return Ok(Met::Waits(Wants::After(BUSY))),
                        Err(error) => return Err(connect_error(error)),
                    }
                }
                let connecting = match connecting {
                    Some(connecting) => connecting,
                    None => connecting.insert(Box::new(Connecting::new(
                        &self.socket,
                        config,
                        Purpose::Call,
                        None,
                    )?)),
                };
                connecting.step(&self.socket, config)?
            }
            Side::Accepts { accepting, ledger, .. } => accepting.step(&self.socket, config, ledger)?,
        };
        Ok(match step {
            Step::Done(attached) => Met::Session(Box::new(attached)),
            Step::Read => Met::Waits(Wants::Read),
            Step::Write => Met::Waits(Wants::Write),
            Step::Pause(pause) => Met::Waits(Wants::After(pause)),
        })
    }

    /// Whether it is a client that has not said all of its first message.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(&self.side, Side::Accepts { accepting, .. } if !accepting.has_heard())
    }

    /// Tells a client that it is refused.
    pub(crate) fn refuse(&self, config: &Config, error: &HandshakeError) {
        if matches!(self.side, Side::Accepts { .. }) {
            Accepting::refuse(&self.socket, config, error);
        }
    }

    /// An error of its own, with its address.
    pub(crate) fn error(&self, kind: ConnectErrorKind) -> ConnectError {
        let address = match &self.side {
            Side::Connects { address, .. } => address.to_string(),
            Side::Accepts { .. } => String::new(),
        };
        ConnectError { address, kind }
    }
}

/// `false`: the server's queue is full.
fn connect(socket: &UnixStream, address: &Address) -> io::Result<bool> {
    let path = address.socket_path();
    let to = match path.as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    match net::connect(socket, &to).map_err(io::Error::from) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn connect_error(error: io::Error) -> ConnectErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ConnectErrorKind::NotFound,
        io::ErrorKind::ConnectionRefused => ConnectErrorKind::Refused,
        io::ErrorKind::PermissionDenied => ConnectErrorKind::Permission,
        _ => HandshakeError::Io(error).into(),
    }
}
