//! Why two processes did not become a session.

use std::io;
use std::time::Duration;

use tollfree_layout::errors;
use tollfree_layout::handshake::{VERSION_MAX, VERSION_MIN, reason};
use tollfree_region::RegionError;
use tollfree_session::Role;

use crate::tokens::TokenError;

/// Why two processes did not become a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// No complete message in time.
    #[error("no answer to the handshake within {0:?}: is the server stopped, or not a Tollfree server?")]
    Timeout(Duration),
    /// The peer hung up in the middle.
    #[error("the peer hung up during the handshake")]
    HungUp,
    /// The process that connected, or listened, has ended; a child that it forked keeps its socket open.
    #[error("the peer's process has died, and a process forked from it keeps its socket open")]
    Dead,
    /// Too many clients have connected and said nothing, this one among them, and before others.
    #[error("many clients are connecting at once, and this one has not said anything yet; try again")]
    Crowded,
    /// The client's process or user has all that it may have of this server.
    #[error("{whose} has its {most} {what} (the server's {setting}); try again later")]
    Quota {
        /// Whose.
        whose: &'static str,
        /// What it has.
        what: &'static str,
        /// How many of them it may have.
        most: u64,
        /// What the server's owner can change.
        setting: &'static str,
    },
    /// This process has no descriptors left for another session.
    #[error(
        "the server has no descriptors left for another session; try again later, or raise its limit (ulimit -n)"
    )]
    Descriptors,
    /// The listener was closed before this client had said anything.
    #[error("the server is shutting down")]
    Closing,
    /// The peer speaks HTTP/2.
    #[error(
        "the peer speaks HTTP/2: one side has a shm: address and the other a unix: one for the same socket"
    )]
    Http2,
    /// The peer speaks something else.
    #[error("the peer does not speak Tollfree's handshake (its message begins with {0:02x?})")]
    Magic([u8; 8]),
    /// A message that makes no sense at this point.
    #[error("the peer's handshake is malformed: {0}")]
    Malformed(&'static str),
    /// No version in common.
    #[error(
        "no protocol version in common: the peer speaks {theirs_min} to {theirs_max}, this side {VERSION_MIN} to {VERSION_MAX}"
    )]
    Version {
        /// Oldest the peer speaks.
        theirs_min: u16,
        /// Newest the peer speaks.
        theirs_max: u16,
    },
    /// The peer insists on features that are not known here.
    #[error("the peer requires features {0:#x} that this side does not know")]
    Feature(u64),
    /// The peer's user is not allowed.
    #[error("{}", user_words(*uid, policy, *here))]
    User {
        /// Who it is.
        uid: u32,
        /// The policy in words.
        policy: &'static str,
        /// Who doesn't allow it: this side.
        here: Role,
    },
    /// The peer's region or this side's was no good.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A size in the message is outside the protocol's limits.
    #[error("the peer announces {what} of {value}, which the protocol does not allow")]
    Size {
        /// Which.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// The client presents a token that is not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// TLS says that the peer is not what its certificate, or its records, have to show.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// A file of this process's certificates can't be used.
    #[error("{0}")]
    Certificates(String),
    /// The peer's certificate names nobody, or there is none.
    #[error("the peer's certificate names nobody who may attach")]
    NoCertificate,
    /// The server has not answered the token.
    #[error("the server has not answered the token that it was shown")]
    NoAnswer,
    /// The client wants a gateway.
    #[error(
        "no gateway listens at this socket, but a server; give Server::attach and Channel::via that of a gateway"
    )]
    NoGateway,
    /// The client wants a server.
    #[error("a gateway listens at this socket; reach it by Server::attach, or by Channel::via")]
    Gateway,
    /// A backend may not attach as it wants to.
    #[error("{0}")]
    NotAdmitted(String),
    /// The peer declined.
    #[error("the server refused: {text}")]
    Refused {
        /// One of [`reason`].
        reason: u32,
        /// The peer's words.
        text: String,
    },
}

impl HandshakeError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            HandshakeError::Io(_) => errors::HANDSHAKE_SOCKET,
            HandshakeError::Timeout(_) => errors::HANDSHAKE_TIMEOUT,
            HandshakeError::HungUp => errors::HANDSHAKE_HUNG_UP,
            HandshakeError::Dead => errors::HANDSHAKE_PEER_DIED,
            HandshakeError::Crowded => errors::HANDSHAKE_CROWDED,
            HandshakeError::Quota { .. } => errors::HANDSHAKE_QUOTA,
            HandshakeError::Descriptors => errors::HANDSHAKE_DESCRIPTORS,
            HandshakeError::Closing => errors::HANDSHAKE_CLOSING,
            HandshakeError::Http2 => errors::HANDSHAKE_HTTP2,
            HandshakeError::Magic(_) => errors::HANDSHAKE_OTHER_PROTOCOL,
            HandshakeError::Malformed(_) => errors::HANDSHAKE_MALFORMED,
            HandshakeError::Version { .. } => errors::HANDSHAKE_VERSION,
            HandshakeError::Feature(_) => errors::HANDSHAKE_FEATURE,
            HandshakeError::User { .. } | HandshakeError::NotAdmitted(_) => errors::HANDSHAKE_USER,
            HandshakeError::Region(_) => errors::HANDSHAKE_MEMORY,
            HandshakeError::Size { .. } => errors::HANDSHAKE_SIZE,
            HandshakeError::Token(_) => errors::HANDSHAKE_TOKEN,
            HandshakeError::Tls(_) => errors::HANDSHAKE_TLS,
            HandshakeError::Certificates(_) => errors::HANDSHAKE_CERTIFICATES,
            HandshakeError::NoCertificate => errors::HANDSHAKE_NO_CERTIFICATE,
            HandshakeError::NoAnswer => errors::HANDSHAKE_NO_ANSWER,
            HandshakeError::NoGateway => errors::HANDSHAKE_NO_GATEWAY,
            HandshakeError::Gateway => errors::HANDSHAKE_GATEWAY,
            HandshakeError::Refused { .. } => errors::HANDSHAKE_REFUSED,
        }
    }

    /// What to tell the peer: one of [`reason`].
    pub(crate) fn reason(&self) -> u32 {
        match self {
            HandshakeError::Version { .. } => reason::VERSION,
            HandshakeError::Feature(_) => reason::FEATURE,
            HandshakeError::User { .. } | HandshakeError::NoCertificate | HandshakeError::NotAdmitted(_) => {
                reason::USER
            }
            HandshakeError::Region(error) if error.is_peer_fault() => reason::REGION,
            HandshakeError::Size { .. } => reason::REGION,
            HandshakeError::Token(TokenError::Random(_)) => reason::BUSY,
            HandshakeError::Token(TokenError::Ends(_)) => reason::ENDS,
            HandshakeError::Token(_) => reason::TOKEN,
            HandshakeError::Region(_)
            | HandshakeError::Io(_)
            | HandshakeError::Crowded
            | HandshakeError::Quota { .. }
            | HandshakeError::Descriptors
            | HandshakeError::Closing => reason::BUSY,
            _ => reason::MALFORMED,
        }
    }

    /// Whether the same attempt may work later, without anybody changing anything but load.
    pub fn is_transient(&self) -> bool {
        match self {
            HandshakeError::Io(_)
            | HandshakeError::Timeout(_)
            | HandshakeError::HungUp
            | HandshakeError::Crowded
            | HandshakeError::Quota { .. }
            | HandshakeError::Descriptors
            | HandshakeError::Closing
            | HandshakeError::Dead => true,
            HandshakeError::Region(error) => error.is_exhausted(),
            HandshakeError::Refused { reason, .. } => *reason == reason::BUSY,
            _ => false,
        }
    }
}

fn user_words(uid: u32, policy: &str, here: Role) -> String {
    match here {
        Role::Client => format!(
            "the server runs as user {uid}, and this client trusts {policy}: ChannelBuilder::peers says whom else"
        ),
        Role::Server => {
            format!(
                "the peer runs as user {uid}, and this server lets in {policy}: Server::peers says whom else"
            )
        }
    }
}
