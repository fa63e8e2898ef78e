//! Why a channel could not be made.

use tollfree_balancer::ServiceConfigError;
use tollfree_driver_tokio::ConnectError;
use tonic::Status;

use crate::endpoint::place::Misplaced;

/// Why a channel could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// A blocking channel's own runtime can't be had.
    #[error("no runtime for a blocking channel: {0}")]
    Runtime(std::io::Error),
    /// Not an address of a session.
    #[error("{0}{hint}", hint = other_addresses(.0))]
    Address(#[from] tollfree_driver_tokio::AddressError),
    /// An address for HTTP/2 that is none.
    #[error("\"{address}\" is not an address for HTTP/2: {source}; write http://host:port or unix:/path")]
    Http2 {
        /// As given.
        address: String,
        /// What tonic said.
        source: tonic::transport::Error,
    },
    /// TLS that can't be had.
    #[error("{address} can't be reached by TLS: {reason}")]
    Tls {
        /// As given.
        address: String,
        /// What is missing or wrong, and what to do.
        reason: String,
    },
    /// A name for the channel that can't be sent.
    #[error(
        "ChannelBuilder::user_agent: {0:?} can't be sent: write up to {USER_AGENT_LEN_MAX} visible ASCII characters"
    )]
    UserAgent(String),
    /// Nobody there, or no session came of it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// None of the endpoints can be reached; the status says why the first can't.
    #[error("{}", .0.message())]
    Unreachable(Status),
    /// Calls are to move over to shared memory by themselves, and that can't come to anything.
    #[error("moving over to shared memory: {0}")]
    Upgrade(String),
    /// Calls are to go via a gateway that can't be one or is told too little, or to a target that is none.
    #[error("calls via a gateway: {0}")]
    Via(String),
    /// The service config can't be read, or asks for what there is not.
    #[error(transparent)]
    ServiceConfig(#[from] ServiceConfigError),
}

impl From<Misplaced> for ChannelError {
    fn from(why: Misplaced) -> ChannelError {
        match why {
            Misplaced::Address(error) => ChannelError::Address(error),
            #[cfg(feature = "tls")]
            other => ChannelError::Via(other.to_string()),
        }
    }
}

/// Longest name that a channel can give itself, in bytes.
pub(crate) const USER_AGENT_LEN_MAX: usize = 80;

/// What else an address may be, where it is of no kind at all.
fn other_addresses(error: &tollfree_driver_tokio::AddressError) -> &'static str {
    match error {
        tollfree_driver_tokio::AddressError::Scheme(_) => {
            "; or http://host:port, https://host:port or unix:/path for a server that speaks HTTP/2"
        }
        _ => "",
    }
}
