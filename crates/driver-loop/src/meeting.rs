//! Sockets on their way to become sessions: connecting, and both sides' handshakes.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tollfree_host::{
    Accepting, Attached, Config, ConnectError, ConnectErrorKind, Connecting, DIAL_PAUSE, HandshakeError,
    Purpose, QuotaUsage, STARTING, Step, patience,
};
use tollfree_os::rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tollfree_rendezvous::Address;

use crate::{Event, ListenerId, SessionId};

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
enum Side {
    /// This side connects there.
    Connects {
        address: Address,
        purpose: Purpose,
        began_ns: Option<u64>,
        connecting: Option<Box<Connecting>>,
        is_connected: bool,
    },
    /// A client has come to a listener.
    Accepts { listener: ListenerId, accepting: Accepting, quota_usage: Arc<QuotaUsage> },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Meeting {
    socket: UnixStream,
    side: Side,
    /// When it has to be over, on the monotonic clock in nanoseconds.
    until_ns: u64,
    /// What its socket is watched for. It is not before it is connected: it would say at once that it is not.
    watched: Option<Wants>,
}

impl Meeting {
    /// Begins to connect.
    pub(crate) fn dial(address: &Address, purpose: Purpose, until_ns: u64) -> io::Result<Meeting> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?.into();
        let address = address.clone();
        let side = Side::Connects { address, purpose, began_ns: None, connecting: None, is_connected: false };
        Ok(Meeting { socket, side, until_ns, watched: None })
    }

    /// A client has come.
    pub(crate) fn accept(
        socket: UnixStream,
        listener: ListenerId,
        accepting: Accepting,
        quota_usage: Arc<QuotaUsage>,
        until_ns: u64,
    ) -> Meeting {
        Meeting { socket, side: Side::Accepts { listener, accepting, quota_usage }, until_ns, watched: None }
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// When it has to be over.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    pub(crate) fn is_late(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// It waits for this. Whether its socket is to be watched for something else than it is.
    pub(crate) fn is_to_be_watched(&mut self, wants: Wants) -> bool {
        match wants {
            Wants::After(_) => false,
            wants => self.watched.replace(wants) != Some(wants),
        }
    }

    /// Goes on.
    pub(crate) fn step(&mut self, config: &Config, now_ns: u64) -> Result<Met, ConnectErrorKind> {
        let step = match &mut self.side {
            Side::Connects { address, purpose, began_ns, connecting, is_connected } => {
                if !*is_connected {
                    let began_ns = *began_ns.get_or_insert(now_ns);
                    if let Err(error) = connect(&self.socket, address) {
                        let patience = patience(&error, config.handshake_timeout, STARTING);
                        if now_ns - began_ns >= patience.as_nanos() as u64 {
                            return Err(ConnectErrorKind::of(error, &address.socket_path()));
                        }
                        return Ok(Met::Waits(Wants::After(DIAL_PAUSE)));
                    }
                    *is_connected = true;
                }
                let connecting = match connecting {
                    Some(connecting) => connecting,
                    None => {
                        let begun = Connecting::new(&self.socket, config, purpose.clone(), None)?;
                        connecting.insert(Box::new(begun))
                    }
                };
                connecting.step(&self.socket, config)?
            }
            Side::Accepts { accepting, quota_usage, .. } => {
                accepting.step(&self.socket, config, quota_usage)?
            }
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

    /// It has become a session: its socket, and what the application is told.
    pub(crate) fn met(self, session: SessionId) -> (UnixStream, Event) {
        let event = match self.side {
            Side::Connects { .. } => Event::Connected { session },
            Side::Accepts { listener, .. } => Event::Accepted { session, listener },
        };
        (self.socket, event)
    }

    /// It has failed: tells a client why, and hangs up. What the application is told, if anything.
    pub(crate) fn failed(self, session: SessionId, kind: ConnectErrorKind, config: &Config) -> Option<Event> {
        let event = match (self.side, kind) {
            (Side::Accepts { listener, .. }, ConnectErrorKind::Handshake(error)) => {
                Accepting::refuse(&self.socket, config, &error);
                // A client that looks whether somebody listens, or has thought better of it: nothing is wrong with either.
                let is_told = !matches!(error, HandshakeError::Dead | HandshakeError::HungUp);
                is_told.then_some(Event::Refused { listener, error })
            }
            (Side::Connects { address, .. }, kind) => {
                let error = ConnectError { address: address.to_string(), kind };
                Some(Event::NotConnected { session, error })
            }
            (Side::Accepts { .. }, _) => None,
        };
        tollfree_rendezvous::socket::leave(&self.socket);
        event
    }
}

fn connect(socket: &UnixStream, address: &Address) -> io::Result<()> {
    let path = address.socket_path();
    let to = match path.as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    Ok(net::connect(socket, &to)?)
}
