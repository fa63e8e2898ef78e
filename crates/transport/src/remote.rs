//! Peers of other hosts.

use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteIdentity {
    /// The subject of its certificate, as the listener names it.
    pub subject: Arc<str>,
    /// Where its connection comes from.
    pub address: SocketAddr,
}
