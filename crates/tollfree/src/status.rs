//! The one place where what happens to a session becomes a gRPC status.

use std::error::Error;
use std::io;
use std::sync::Arc;

use tollfree_balancer::STATUS_NAMES;
use tollfree_driver_tokio::{BindError, Closed, ConnectError, ConnectErrorKind, SendError};
use tollfree_pool::{AllocError, RefError, SegmentedError};
use tonic::{Code, Status};

use crate::trouble::Trouble;

/// A status code's name in gRPC, such as `NOT_FOUND`.
pub fn status_name(code: Code) -> &'static str {
    STATUS_NAMES[code as usize]
}

/// A session that ended under a call. The outcome of the call is unknown: it may have been served.
pub(crate) fn closed(closed: &Closed, peer: &str) -> Status {
    let told = format!("session with {peer}: {closed}");
    sourced(Status::unavailable(told), io::Error::new(io::ErrorKind::BrokenPipe, closed.clone()))
}

/// A status with what is behind it, where tonic's users look for an `io::Error`.
fn sourced(mut status: Status, source: impl Error + Send + Sync + 'static) -> Status {
    status.set_source(Arc::new(source));
    status
}

/// A status whose words are about what the call carries, and about nothing else: anybody may read them.
pub(crate) fn of_content(code: Code, words: impl Into<String>) -> Status {
    sourced(Status::new(code, words), Trouble::Content)
}

/// Marks a status of a gateway's own whose words are about what a call carries, and about nothing else: the client may read them
/// ([`for_outside`](crate::gateway::for_outside)).
#[cold]
pub fn about_content(status: Status) -> Status {
    sourced(status, Trouble::Content)
}

/// A call that could not be sent.
pub(crate) fn unsent(error: SendError, peer: &str) -> Status {
    let trouble = Trouble::from(&error);
    let status = match error {
        SendError::Closed(reason) => return closed(&reason, peer),
        SendError::Ended => Status::cancelled("the call has ended"),
        SendError::Draining => Status::unavailable(format!("{peer} is shutting down")),
        SendError::MetadataLen { .. } | SendError::MessageLen { .. } => {
            Status::resource_exhausted(format!("not sent to {peer}: {error}"))
        }
        SendError::MethodPath { .. } | SendError::Misencoded(_) => {
            Status::internal(format!("not sent to {peer}: {error}"))
        }
        _ => Status::unavailable(format!("not sent to {peer}: {error}")),
    };
    sourced(status, trouble)
}

/// A server that could not be reached.
pub(crate) fn connect(error: &ConnectError) -> Status {
    let told = error.to_string();
    let (status, kind) = match &error.kind {
        ConnectErrorKind::Permission => (Status::permission_denied(&*told), io::ErrorKind::PermissionDenied),
        ConnectErrorKind::NotFound => (Status::unavailable(&*told), io::ErrorKind::NotFound),
        ConnectErrorKind::Stale => (Status::unavailable(&*told), io::ErrorKind::ConnectionRefused),
        ConnectErrorKind::Io(source) => (Status::unavailable(&*told), source.kind()),
        _ => (Status::unavailable(&*told), io::ErrorKind::ConnectionAborted),
    };
    sourced(status, io::Error::new(kind, Unconnected { number: error.number(), told }))
}

/// What is behind the status of a server that could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
struct Unconnected {
    number: u16,
    told: String,
}

/// The number of the error that a status of this process's own was made of, as `spec/errors.md` has it: of the session that was lost, was not
/// had or took no more. `None`: a status of the server's, or of another cause.
pub fn error_number(status: &Status) -> Option<u16> {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(trouble) = error.downcast_ref::<Trouble>() {
            return trouble.number();
        }
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            let closed = inner.downcast_ref::<Closed>().map(Closed::number);
            return closed.or_else(|| Some(inner.downcast_ref::<Unconnected>()?.number));
        }
        source = error.source();
    }
    None
}

/// An HTTP/2 server that could not be reached.
pub(crate) fn http2_connect(error: tonic::transport::Error, peer: &str) -> Status {
    let told = format!("{peer}: can't connect: {}", innermost(&error));
    sourced(Status::unavailable(told), error)
}

/// A call over HTTP/2 that brought no response.
pub(crate) fn http2(error: tonic::transport::Error, peer: &str) -> Status {
    if innermost(&error).is::<tonic::TimeoutExpired>() {
        return deadline();
    }
    let told = format!("{peer}: {}", innermost(&error));
    if is_cancelled(&error) {
        return sourced(Status::cancelled(told), error);
    }
    let mut status = Status::from_error(Box::new(error));
    let code = match status.code() {
        // What breaks a connection is the server's going, whichever way the libraries put it.
        Code::Unknown | Code::Cancelled => Code::Unavailable,
        code => code,
    };
    let source = std::mem::replace(&mut status, Status::new(code, told));
    sourced(status, source)
}

/// What a layer's service failed with: a layer that limits time says DEADLINE_EXCEEDED, as gRPC does.
pub(crate) fn of_layer(error: Box<dyn Error + Send + Sync>) -> Status {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = cause {
        if error.is::<tower::timeout::error::Elapsed>() || error.is::<tonic::TimeoutExpired>() {
            return Status::deadline_exceeded(format!("a layer of the server gave the call up: {error}"));
        }
        cause = error.source();
    }
    Status::from_error(error)
}

/// A call over HTTP/2 that was cancelled after its deadline has met the deadline: a server's clock may ring first, and then
/// it resets the stream. `deadline_ns` is on the monotonic clock.
pub(crate) fn in_time(status: Status, deadline_ns: Option<u64>) -> Status {
    let is_late = deadline_ns.is_some_and(|deadline_ns| tollfree_driver_tokio::now_ns() >= deadline_ns);
    if is_late && status.code() == Code::Cancelled { deadline() } else { status }
}

/// The code with which a peer ends a call. A number that is none means UNKNOWN.
pub(crate) fn code(number: u16) -> Code {
    Code::from_i32(number.into())
}

/// The code with which a peer gives a call up. It can't be OK: that means UNKNOWN, too, or a call that was cut would look complete.
pub(crate) fn failure_code(number: u16) -> Code {
    match code(number) {
        Code::Ok => Code::Unknown,
        code => code,
    }
}

/// A call that ended before its client had sent everything, with the code that says why.
pub(crate) fn unfinished(code: Code) -> Status {
    match code {
        Code::DeadlineExceeded => deadline(),
        Code::Cancelled => Status::cancelled("the call was cancelled before the client had sent everything"),
        code => {
            Status::new(failure_code(code as u16), "the call ended before the client had sent everything")
        }
    }
}

/// A request over HTTP/2 whose client has not finished it. What breaks a connection is the client's going, as in [`http2`].
pub(crate) fn broken_request(error: Box<dyn Error + Send + Sync>) -> Status {
    let mut status = Status::from_error(error);
    match status.code() {
        Code::Unknown => {
            let source =
                std::mem::replace(&mut status, Status::unavailable("the connection of the client is lost"));
            sourced(status, source)
        }
        code => sourced(unfinished(code), status),
    }
}

/// The status that a handler reads where its request was cut. tonic's `Streaming` takes CANCELLED for the orderly end of a request.
/// So a handler reads ABORTED instead, whose source is the status CANCELLED.
pub(crate) fn for_handler(status: Status) -> Status {
    match status.code() {
        Code::Cancelled => sourced(Status::aborted(status.message()), status),
        _ => status,
    }
}

/// The status that [`for_handler`] was given: for those who pass a request on.
pub(crate) fn as_it_was(status: Status) -> Status {
    let cause = status.source().and_then(|source| source.downcast_ref::<Status>());
    match cause {
        Some(cause) if status.code() == Code::Aborted && cause.code() == Code::Cancelled => cause.clone(),
        _ => status,
    }
}

/// An answer over HTTP/2 that ends without a status. hyper gives one that was reset with NO_ERROR the same end as one that is
/// complete; gRPC's word for that reset is INTERNAL.
pub(crate) fn unfinished_answer(was_reset: bool) -> Status {
    match was_reset {
        true => Status::internal("the server reset the call before its answer was complete"),
        false => Status::unknown("the answer ended without a grpc-status"),
    }
}

/// An answer over HTTP/2 that broke off. What breaks a connection is the server's going, as in [`http2`].
pub(crate) fn broken_answer(status: Status) -> Status {
    match status.code() {
        Code::Unknown => sourced(Status::unavailable("the connection to the server is lost"), status),
        _ => status,
    }
}

/// Whether a call over HTTP/2 was cancelled, by its own request or by the server; nothing is wrong with the connection.
fn is_cancelled(error: &tonic::transport::Error) -> bool {
    let reset = innermost(error).downcast_ref::<h2::Error>();
    reset.is_some_and(|error| error.is_reset() && error.reason() == Some(h2::Reason::CANCEL))
}

/// Whether a call that failed over HTTP/2 can't have reached a handler: there was no connection, the connection ended before
/// the call was sent, or the server's GOAWAY or REFUSED_STREAM says so.
pub(crate) fn is_unseen_by_http2(error: &tonic::transport::Error) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        let is_unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        if is_unsent || error.is::<tonic::ConnectError>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let reason = error.reason();
            return reason == Some(h2::Reason::REFUSED_STREAM)
                || (error.is_go_away() && error.is_remote() && reason == Some(h2::Reason::NO_ERROR));
        }
        source = error.source();
    }
    false
}

/// The cause behind the layers.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// A call that the peer cancelled, or that was cancelled here for it.
pub(crate) fn cancelled(code: u16, refused: bool, peer: &str) -> Status {
    let code = failure_code(code);
    if refused {
        let told = format!("{peer} did not take the call; it is safe to send it again");
        return sourced(Status::new(code, told), Trouble::NotTaken);
    }
    match code {
        Code::DeadlineExceeded => deadline(),
        code => sourced(Status::new(code, format!("{peer} cancelled the call")), Trouble::Cancelled),
    }
}

/// A process that had connected by itself, and can't be called any more.
pub(crate) fn gone(peer: &str) -> Status {
    sourced(Status::unavailable(format!("{peer}: it has gone, or takes no more calls")), Trouble::Gone)
}

/// A call that the peer has ended, and said nothing of how.
pub(crate) fn unsaid(peer: &str) -> Status {
    sourced(Status::internal(format!("{peer} ended the call without a status")), Trouble::NoStatus)
}

/// The deadline of a call has passed here.
pub(crate) fn deadline() -> Status {
    sourced(Status::deadline_exceeded("the deadline has passed"), Trouble::Late)
}

/// A payload for which the pool has no room, where that is to be said. Who has what of the pool isn't the caller's business.
pub(crate) fn pool_full(shortage: &AllocError) -> Status {
    let told = match shortage {
        AllocError::Exhausted { len, by, .. } => format!("the pool has no {len} bytes for it: {by}"),
        other => other.to_string(),
    };
    of_content(Code::ResourceExhausted, format!("a payload was to go by ref, and {told}"))
}

/// A received message whose refs can't be had.
pub(crate) fn refs(error: &RefError) -> Status {
    let told = format!("a ref in the message is of no use: {error}");
    of_content(Code::from(i32::from(error.grpc_code())), told)
}

/// A received message that says it has refs, and makes no sense.
pub(crate) fn segmented(error: &SegmentedError) -> Status {
    of_content(Code::Internal, format!("protocol error: {error}"))
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
    /// A setting of the server can't be meant.
    #[error("Server::{setting}: {reason}")]
    Setting {
        /// The method that it was given to.
        setting: &'static str,
        /// What is wrong with it, and what to write.
        reason: &'static str,
    },
    /// The user that was named as the gateway's is unknown here.
    #[error("{setting} names the user \"{user}\": {problem}")]
    GatewayUser {
        /// The method or variable that names it.
        setting: &'static str,
        /// The name.
        user: String,
        /// What is wrong with it, and what to write.
        problem: String,
    },
    /// The rendezvous socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A gateway refuses this server.
    #[error("can't attach: {0}")]
    Attach(#[from] ConnectError),
    /// A TCP or Unix socket could not be bound.
    #[error("{address} can't be bound: {source}")]
    Socket {
        /// As given.
        address: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The certificate or the key can't be used.
    #[cfg(feature = "tls")]
    #[error("{address} can't be served with this certificate and key: {reason}")]
    Tls {
        /// As given.
        address: String,
        /// What rustls said.
        reason: String,
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
    use tollfree_layout::errors;

    use super::*;

    #[test]
    fn a_dead_peer_is_unavailable_and_named() {
        let status = closed(&Closed::HungUp, "shm:///run/x.sock");
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "session with shm:///run/x.sock: the peer hung up");
        let source = status.source().and_then(|source| source.downcast_ref::<io::Error>()).expect("as tonic");
        assert_eq!(source.kind(), io::ErrorKind::BrokenPipe);
        assert!(source.get_ref().is_some_and(|inner| inner.is::<Closed>()));
    }

    #[test]
    fn statuses_of_this_process_have_the_numbers_of_their_errors() {
        let unconnected = |kind| connect(&ConnectError { address: "shm:///run/x.sock".into(), kind });
        for (status, number) in [
            (closed(&Closed::HungUp, "p"), Some(errors::SESSION_HUNG_UP)),
            (closed(&Closed::ByPeer("it ends".into()), "p"), Some(errors::SESSION_CLOSED_BY_PEER)),
            (unsent(SendError::MessageLen { len: 1 }, "p"), Some(errors::CALL_MESSAGE_LEN)),
            (unsent(SendError::Closed(Closed::Here("x")), "p"), Some(errors::SESSION_CLOSED_HERE)),
            (unconnected(ConnectErrorKind::Stale), Some(errors::CONNECT_NOBODY_LISTENS)),
            (unconnected(ConnectErrorKind::Io(io::Error::other("x"))), Some(errors::CONNECT_FAILED)),
            (deadline(), None),
            (Status::not_found("a server's own"), None),
        ] {
            assert_eq!(error_number(&status), number, "{status}");
        }
    }

    #[test]
    fn a_call_that_is_cancelled_after_its_deadline_has_met_it() {
        let after = |deadline_ns| in_time(Status::cancelled("reset"), deadline_ns).code();
        assert_eq!(after(Some(1)), Code::DeadlineExceeded);
        assert_eq!((after(Some(u64::MAX)), after(None)), (Code::Cancelled, Code::Cancelled));
        assert_eq!(in_time(Status::aborted("other"), Some(1)).code(), Code::Aborted);
    }

    #[test]
    fn a_code_that_cant_be_one_is_unknown() {
        for (number, code, failure) in [
            (0, Code::Ok, Code::Unknown),
            (1, Code::Cancelled, Code::Cancelled),
            (16, Code::Unauthenticated, Code::Unauthenticated),
            (17, Code::Unknown, Code::Unknown),
            (u16::MAX, Code::Unknown, Code::Unknown),
        ] {
            assert_eq!((super::code(number), failure_code(number)), (code, failure), "{number}");
            for refused in [false, true] {
                assert_eq!(cancelled(number, refused, "p").code(), failure, "{number}");
            }
        }
    }

    #[test]
    fn a_handler_reads_aborted_where_the_client_cancelled_and_others_read_what_it_was() {
        let status = for_handler(unfinished(Code::Cancelled));
        assert_eq!(status.code(), Code::Aborted, "tonic takes CANCELLED for an end");
        assert_eq!(as_it_was(status).code(), Code::Cancelled);
        for code in [Code::DeadlineExceeded, Code::Unavailable, Code::Aborted] {
            let status = for_handler(unfinished(code));
            assert_eq!((status.code(), as_it_was(status).code()), (code, code));
        }
        assert_eq!(unfinished(Code::Ok).code(), Code::Unknown);
    }

    #[test]
    fn refs_that_cant_be_had_have_a_status_each() {
        for (error, code) in [
            (RefError::Forged, Code::PermissionDenied),
            (RefError::ForeignPool, Code::PermissionDenied),
            (RefError::Malformed("its page"), Code::PermissionDenied),
            (RefError::Stale, Code::FailedPrecondition),
            (RefError::Gone, Code::Unavailable),
            (RefError::Coordinator, Code::Unavailable),
            (RefError::Full, Code::ResourceExhausted),
            (RefError::Empty, Code::Internal),
        ] {
            let status = refs(&error);
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(&error.to_string()), "{status}");
        }
    }

    #[test]
    fn what_is_too_long_is_resource_exhausted() {
        let status = unsent(SendError::MetadataLen { len: 2, max: 1 }, "p");
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}
