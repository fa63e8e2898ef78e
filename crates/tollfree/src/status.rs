//! The one place where what happens to a session becomes a gRPC status.

use tollfree_transport::{BindError, Closed, ConnectError, ConnectErrorKind, EmitError};
use tonic::{Code, Status};

/// A session that ended under a call. The outcome of the call is unknown: it may have been served.
pub(crate) fn closed(closed: &Closed, peer: &str) -> Status {
    Status::unavailable(format!("session with {peer} {closed}"))
}

/// A call that could not be sent.
pub(crate) fn emit(error: EmitError, peer: &str) -> Status {
    match error {
        EmitError::Closed(reason) => closed(&reason, peer),
        EmitError::Ended => Status::cancelled("the call has ended"),
        EmitError::Draining => Status::unavailable(format!("{peer} is shutting down")),
        EmitError::MetadataLen { .. } | EmitError::MessageLen { .. } => {
            Status::resource_exhausted(format!("not sent to {peer}: {error}"))
        }
        EmitError::MethodPath { .. } => Status::internal(format!("not sent to {peer}: {error}")),
        _ => Status::unavailable(format!("not sent to {peer}: {error}")),
    }
}

/// A server that could not be reached.
pub(crate) fn connect(error: &ConnectError) -> Status {
    match &error.kind {
        ConnectErrorKind::Permission => Status::permission_denied(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    }
}

/// A call that the peer cancelled, or that was cancelled here for it.
pub(crate) fn cancelled(code: u16, refused: bool, peer: &str) -> Status {
    let code = Code::from_i32(code.into());
    if refused {
        return Status::new(code, format!("{peer} did not take the call; it is safe to send it again"));
    }
    match code {
        Code::DeadlineExceeded => Status::deadline_exceeded("the deadline has passed"),
        code => Status::new(code, format!("{peer} cancelled the call")),
    }
}

/// The deadline of a call has passed here.
pub(crate) fn deadline() -> Status {
    Status::deadline_exceeded("the deadline has passed")
}

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is none of those that can be served.
    #[error("\"{address}\" can't be served: {reason}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it, and how to write one.
        reason: String,
    },
    /// The rendezvous socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A TCP or Unix socket could not be bound.
    #[error("{address} can't be bound: {source}")]
    Socket {
        /// As given.
        address: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The HTTP/2 server ended with an error.
    #[error("serving {address} over HTTP/2: {source}")]
    Http {
        /// As given.
        address: String,
        /// What tonic said.
        source: tonic::transport::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_peer_is_unavailable_and_named() {
        let status = closed(&Closed::HungUp, "shm:///run/x.sock");
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "session with shm:///run/x.sock the peer hung up");
    }

    #[test]
    fn what_is_too_long_is_resource_exhausted() {
        let status = emit(EmitError::MetadataLen { len: 2, max: 1 }, "p");
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}
