//! Which way a channel's calls take, for people and logs.

use std::fmt;

use tollfree_driver_tokio::PeerIdentity;

use crate::endpoint::balance::Balance;

/// How an endpoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Through a session, over shared memory.
    SharedMemory,
    /// Through a session with a gateway of another host, over TCP with TLS.
    Stream,
    /// Over TCP or a Unix socket, as tonic does it.
    Http2,
}

/// How an endpoint fares.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointState {
    /// Not connected, and nothing known against it.
    Idle,
    /// Calls can be made there.
    Ready,
    /// Not used now, for this reason; it is tried again by itself.
    Failing(String),
}

/// One endpoint of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointPath {
    /// The server's address.
    pub address: String,
    /// How it is reached.
    pub transport: Transport,
    /// How it fares.
    pub state: EndpointState,
    /// Why it is reached in this way and not in the other.
    pub reason: String,
    /// The server's process while there is a session with it, on this host.
    pub peer: Option<PeerIdentity>,
    /// How large payloads go there.
    pub payloads: PayloadPath,
    /// Methods whose requests are objects here, and that the server takes as objects of another schema: they go there encoded.
    pub other_schemas: Vec<String>,
}

/// How large payloads go to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadPath {
    /// By ref: both ends are members of one pool.
    ByRef,
    /// Inline: the server asked for the bytes of the last ref, since the pool's coordinator is away. What it has mapped already
    /// goes by ref.
    NoCoordinator,
    /// Inline: the server asked for the bytes of the last ref, since it could not map them in time, or at all. What it has mapped
    /// already goes by ref.
    AskedFor,
    /// Inline: the channel was given no pool.
    NoPool,
    /// Inline: the server was given none.
    NoPoolThere,
    /// Inline: the server is a member of another pool.
    OtherPool,
    /// Inline: there is no shared memory on the way.
    NoMemory,
    /// There is no session now that would say.
    Unknown,
}

impl PayloadPath {
    /// What to add to a description of the way, where a pool was given.
    fn words(self) -> &'static str {
        match self {
            PayloadPath::NoPool | PayloadPath::Unknown => "",
            PayloadPath::ByRef => ", large payloads by ref",
            PayloadPath::NoCoordinator => {
                ", large payloads inline unless they are mapped there, since the pool's coordinator is away"
            }
            PayloadPath::AskedFor => {
                ", large payloads inline since the server asks for what it can't map in time"
            }
            PayloadPath::NoPoolThere => ", large payloads inline since the server has no pool",
            PayloadPath::OtherPool => ", large payloads inline since the server is in another pool",
            PayloadPath::NoMemory => ", large payloads inline",
        }
    }
}

/// Which way a channel's calls take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// How an endpoint is chosen for a call.
    pub balance: Balance,
    /// By priority, and in the order in which they were given.
    pub endpoints: Vec<EndpointPath>,
}

impl Path {
    /// The first endpoint that is ready: the one that calls use, where one is used.
    pub fn ready(&self) -> Option<&EndpointPath> {
        self.endpoints.iter().find(|endpoint| endpoint.state == EndpointState::Ready)
    }
}

impl EndpointPath {
    /// The same for one that gets no calls for a time.
    pub(crate) fn ejected(self) -> EndpointPath {
        let state =
            EndpointState::Failing("it is ejected for a time: too many of its calls have failed".into());
        EndpointPath { state, ..self }
    }
}

impl fmt::Display for EndpointPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.state, self.transport, self.peer) {
            (EndpointState::Ready, Transport::SharedMemory, Some(peer)) => {
                match peer.pid {
                    // What the kernel says of one that this process can't see.
                    0 => f.write_str("shared memory with a process of another pid namespace")?,
                    pid => write!(f, "shared memory with process {pid}")?,
                }
                let (uid, address, payloads) = (peer.uid, &self.address, self.payloads.words());
                write!(f, " of user {uid}, met at {address}{payloads}")?;
                if !self.other_schemas.is_empty() {
                    let methods = self.other_schemas.join(", ");
                    write!(f, ", requests of {methods} encoded since the server has another schema of them")?;
                }
                write!(f, ": {}", self.reason)
            }
            (EndpointState::Ready, Transport::Stream, _) => {
                write!(
                    f,
                    "TCP with TLS to the device at {}{}: {}",
                    self.address,
                    self.payloads.words(),
                    self.reason
                )
            }
            (EndpointState::Ready, ..) => {
                write!(f, "HTTP/2 with {}{}: {}", self.address, self.payloads.words(), self.reason)
            }
            (EndpointState::Failing(reason), ..) => write!(f, "not using {}: {reason}", self.address),
            (EndpointState::Idle, ..) => {
                write!(f, "not connected to {}; the next call connects", self.address)
            }
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [endpoint] = &self.endpoints[..] {
            return endpoint.fmt(f);
        }
        write!(f, "{} of {} endpoints", self.balance, self.endpoints.len())?;
        self.endpoints.iter().try_for_each(|endpoint| write!(f, "; {endpoint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cant_be_seen_has_no_number() {
        let mut path = EndpointPath {
            address: "shm:///run/x.sock".into(),
            transport: Transport::SharedMemory,
            state: EndpointState::Ready,
            reason: "the address names a session".into(),
            peer: Some(PeerIdentity { pid: 0, uid: 7, gid: 7 }),
            payloads: PayloadPath::NoPool,
            other_schemas: Vec::new(),
        };
        assert!(
            path.to_string().starts_with("shared memory with a process of another pid namespace of user 7")
        );
        path.peer = Some(PeerIdentity { pid: 12, uid: 7, gid: 7 });
        assert!(
            path.to_string().starts_with("shared memory with process 12 of user 7, met at shm:///run/x.sock")
        );
    }
}
