//! What went wrong with a call that Tollfree ended, for those who are told nothing of sockets, processes and groups.
//!
//! A status that is made here names the peer: it is read where the session is. The status has a typed source beside its words, and a
//! gateway says the error again from that ([`for_outside`]). It passes no words on that it doesn't know: what has no such source is said
//! by its code alone.

use std::error::Error;
use std::io;

use tollfree_driver_tokio::{Closed, SendError};
use tollfree_layout::errors;
use tonic::Status;

/// What went wrong with a call, without a word about who and where.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("the process that was to answer this call has ended, or takes no more calls")]
    Gone,
    #[error("the process that was to answer this call did not take it; it is safe to send it again")]
    NotTaken,
    #[error("the process that was to answer this call has cancelled it")]
    Cancelled,
    #[error("the process that was to answer this call has ended it without a status")]
    NoStatus,
    #[error("the call has ended")]
    Ended,
    #[error("the deadline has passed")]
    Late,
    #[error(
        "the call's metadata take {len} bytes on their way to the process that is to answer it; {max} are allowed"
    )]
    MetadataLen { len: usize, max: usize },
    #[error("a message of {len} bytes is longer than can be carried")]
    MessageLen { len: usize },
    #[error("a method's path of {len} bytes can't be carried")]
    MethodPath { len: usize },
    #[error("a message of the call can't be encoded")]
    Misencoded,
    #[error("the server can't be reached{}", of_kind(*.0))]
    Unreachable(Option<io::ErrorKind>),
    /// Something about what the call carries: its messages and metadata. The status' own words are about that, and about nothing else.
    #[error("what the call carries is refused")]
    Content,
}

/// As part of a status that somebody prints.
impl std::fmt::Debug for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

fn of_kind(kind: Option<io::ErrorKind>) -> String {
    kind.map_or_else(String::new, |kind| format!(": {kind}"))
}

impl From<&SendError> for Trouble {
    fn from(error: &SendError) -> Trouble {
        match error {
            SendError::Ended => Trouble::Ended,
            SendError::MetadataLen { len, max } => Trouble::MetadataLen { len: *len, max: *max },
            SendError::MessageLen { len } => Trouble::MessageLen { len: *len },
            SendError::MethodPath { len } => Trouble::MethodPath { len: *len },
            SendError::Misencoded(_) => Trouble::Misencoded,
            _ => Trouble::Gone,
        }
    }
}

impl Trouble {
    /// The number of the error that it is, if it is one alone.
    pub(crate) fn number(self) -> Option<u16> {
        match self {
            Trouble::Ended => Some(errors::CALL_ENDED),
            Trouble::MetadataLen { .. } => Some(errors::CALL_METADATA_LEN),
            Trouble::MessageLen { .. } => Some(errors::CALL_MESSAGE_LEN),
            Trouble::MethodPath { .. } => Some(errors::CALL_METHOD_PATH),
            Trouble::Misencoded => Some(errors::CALL_MISENCODED),
            _ => None,
        }
    }

    /// What is behind a status, if it is known.
    fn of(status: &Status) -> Option<Trouble> {
        let mut source = status.source();
        let mut is_http2 = false;
        while let Some(error) = source {
            if let Some(trouble) = error.downcast_ref() {
                return Some(*trouble);
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                let is_closed = error.get_ref().is_some_and(|inner| inner.is::<Closed>());
                return Some(if is_closed {
                    Trouble::Gone
                } else {
                    Trouble::Unreachable(Some(error.kind()))
                });
            }
            if let Some(error) = error.downcast_ref::<h2::Error>() {
                return Some(match (error.is_reset(), error.is_remote()) {
                    (true, true) => Trouble::Cancelled,
                    // The request itself has failed.
                    (true, false) => Trouble::Ended,
                    (false, _) => Trouble::Gone,
                });
            }
            is_http2 |= error.is::<tonic::transport::Error>();
            source = error.source();
        }
        is_http2.then_some(Trouble::Unreachable(None))
    }
}

/// A status that Tollfree has ended a call with, as it is told to others than the process itself: with the same code, and nothing of
/// sockets, processes and groups in its words. Statuses of handlers are not changed so: they are answers.
pub fn for_outside(status: &Status) -> Status {
    let words = match Trouble::of(status) {
        Some(Trouble::Content) => status.message().to_owned(),
        Some(trouble) => trouble.to_string(),
        None => "the call has failed on its way to the process that was to answer it".to_owned(),
    };
    Status::new(status.code(), words)
}

#[cfg(test)]
mod tests {
    use tollfree_driver_tokio::{ConnectError, ConnectErrorKind};
    use tollfree_pool::RefError;
    use tonic::Code;

    use super::*;
    use crate::status;

    const PEER: &str = "shm:///run/secret.sock (backend connection 3 of process 4711 in group hush)";

    /// Every way in which a session ends.
    fn ends() -> Vec<Closed> {
        let by_peer = Closed::ByPeer(format!("says {PEER}"));
        let here = Closed::Here("the socket /run/secret.sock of process 4711");
        vec![by_peer, Closed::HungUp, here]
    }

    /// Every error that a status is made of, with its words for this process.
    fn statuses() -> Vec<Status> {
        let len = (1, 2);
        let sends = [
            SendError::Ended,
            SendError::Draining,
            SendError::StreamCount { max: 1 },
            SendError::MetadataLen { len: len.0, max: len.1 },
            SendError::MethodPath { len: 1 },
            SendError::MessageLen { len: 1 },
            SendError::OutOfOrder("/run/secret.sock"),
        ];
        let kinds = [
            ConnectErrorKind::NotFound,
            ConnectErrorKind::Permission,
            ConnectErrorKind::Stale,
            ConnectErrorKind::Io(io::Error::other(PEER)),
        ];
        let refs = [
            RefError::Empty,
            RefError::Forged,
            RefError::ForeignPool,
            RefError::Stale,
            RefError::Gone,
            RefError::Full,
            RefError::NotHere,
            RefError::Coordinator,
            RefError::Malformed("its page"),
            RefError::Forked,
        ];
        let mut all = vec![
            status::deadline(),
            status::gone(PEER),
            status::unsaid(PEER),
            // From nobody knows where.
            Status::internal(PEER),
            Status::unknown(PEER),
        ];
        all.extend(ends().iter().map(|closed| status::closed(closed, PEER)));
        all.extend(ends().into_iter().map(|closed| status::unsent(closed.into(), PEER)));
        all.extend(sends.into_iter().map(|error| status::unsent(error, PEER)));
        all.extend(refs.iter().map(status::refs));
        all.extend(
            kinds.into_iter().map(|kind| {
                status::connect(&ConnectError { address: "shm:///run/secret.sock".into(), kind })
            }),
        );
        for code in 0..20 {
            all.extend([true, false].map(|refused| status::cancelled(code, refused, PEER)));
        }
        all
    }

    #[test]
    fn no_error_tells_others_of_sockets_processes_and_groups() {
        for status in statuses() {
            let told = for_outside(&status);
            assert_eq!(told.code(), status.code());
            assert!(!told.message().is_empty() && told.source().is_none(), "{told:?}");
            for secret in ["shm", "sock", "/run", "4711", "backend_connection", "hush"] {
                assert!(!told.message().contains(secret), "{secret} in {told:?}, of {status:?}");
            }
        }
    }

    #[test]
    fn what_is_known_of_a_failure_is_told() {
        let told = |status: Status| for_outside(&status).message().to_owned();
        assert!(told(status::closed(&Closed::HungUp, PEER)).contains("has ended"));
        let long = SendError::MetadataLen { len: 15_400, max: 15_360 };
        assert!(told(status::unsent(long, PEER)).contains("15360 are allowed"));
        let words = "the message breaks off";
        assert_eq!(told(status::of_content(Code::Internal, words)), words);
        // As tonic gives it to a body's reader, and as a retry policy does.
        let boxed: Box<dyn Error + Send + Sync> = Box::new(status::of_content(Code::Internal, words));
        assert_eq!(told(Status::from_error(boxed)), words);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let mut status = Status::unavailable(PEER);
        status.set_source(std::sync::Arc::new(refused));
        assert_eq!(told(status), "the server can't be reached: connection refused");
    }
}
