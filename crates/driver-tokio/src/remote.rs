//! Which host a peer is of.

use std::net::SocketAddr;
use std::sync::Arc;

use tollfree_rendezvous::PeerIdentity;

/// A peer of this host: the kernel says who it is. Only a session over memory has one, so what needs this value can't be asked
/// for over a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPeer(PeerIdentity);

impl LocalPeer {
    /// The peer of a session over memory.
    pub(crate) fn of_memory(identity: PeerIdentity) -> LocalPeer {
        LocalPeer(identity)
    }

    /// Its process, user and group.
    pub fn identity(self) -> PeerIdentity {
        self.0
    }
}

/// Who is at the other end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteIdentity {
    /// The subject of its certificate, as the listener names it.
    pub subject: Arc<str>,
    /// Where its connection comes from.
    pub address: SocketAddr,
}
