//! What was received on a call, as the HTTP body that tonic's decoder reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep};
use tollfree_transport::{End, Incoming, Stream, now_ns};
use tonic::{Code, Status};

use crate::metadata::{GRPC_STATUS, status_value, unpack};
use crate::status;

/// Fires when a call's deadline passes; costs nothing without one.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    at_ns: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// `at_ns` is on the monotonic clock.
    pub(crate) fn new(at_ns: Option<u64>) -> Deadline {
        Deadline { at_ns, sleep: None }
    }

    /// Ready when the deadline has passed. Asked after everything else was found pending, so that calls that are
    /// answered at once never make a timer.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at_ns) = self.at_ns else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| {
            let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
            // Beyond tokio's reach is as good as never.
            Box::pin(tokio::time::sleep_until(Instant::now() + left.min(Duration::from_secs(86400 * 365))))
        });
        sleep.as_mut().poll(cx)
    }
}

/// A call of the client's side, shared by those who send for it and those who read from it.
#[derive(Debug)]
pub(crate) struct ClientCall {
    pub(crate) stream: Stream,
    /// What went wrong while sending, for the reader to report.
    pub(crate) failure: parking_lot::Mutex<Option<Status>>,
    pub(crate) peer: Arc<str>,
}

impl ClientCall {
    /// The status for a call that ended without trailers.
    pub(crate) fn end_status(&self, end: End) -> Status {
        if let Some(failure) = self.failure.lock().take() {
            return failure;
        }
        match end {
            End::Cancelled { code, refused } => status::cancelled(code, refused, &self.peer),
            _ => match self.stream.session_closed() {
                Some(closed) => status::closed(&closed, &self.peer),
                None => Status::internal(format!("{} ended the call without a status", self.peer)),
            },
        }
    }
}

/// The body of a response. Dropping it before its end cancels the call.
#[derive(Debug)]
pub struct ResponseBody {
    call: Arc<ClientCall>,
    deadline: Deadline,
    ended: bool,
}

impl ResponseBody {
    pub(crate) fn new(call: Arc<ClientCall>, deadline: Deadline) -> ResponseBody {
        ResponseBody { call, deadline, ended: false }
    }

    /// The body of a trailers-only response.
    pub(crate) fn ended(call: Arc<ClientCall>) -> ResponseBody {
        ResponseBody { call, deadline: Deadline::default(), ended: true }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.call.stream.cancel(Code::Cancelled as u16);
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let incoming = match this.call.stream.poll_recv(cx) {
            Poll::Ready(Ok(incoming)) => incoming,
            Poll::Ready(Err(closed)) => {
                this.ended = true;
                return Poll::Ready(Some(Err(status::closed(&closed, &this.call.peer))));
            }
            Poll::Pending => {
                ready!(this.deadline.poll(cx));
                this.ended = true;
                this.call.stream.cancel(Code::DeadlineExceeded as u16);
                return Poll::Ready(Some(Err(status::deadline())));
            }
        };
        Poll::Ready(Some(match incoming {
            Incoming::Chunk(chunk) => Ok(Frame::data(chunk.bytes)),
            Incoming::End(End::Trailers { code, block }) => {
                this.ended = true;
                Ok(Frame::trailers(trailers(code, &block)))
            }
            Incoming::End(end) => {
                this.ended = true;
                Err(this.call.end_status(end))
            }
            Incoming::Headers(_) => Err(Status::internal("response headers came twice")),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// The trailing headers that HTTP/2 would carry.
pub(crate) fn trailers(code: u16, block: &Bytes) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(GRPC_STATUS, status_value(code));
    unpack(block, &mut headers);
    headers
}

/// The body of a request, on the server.
#[derive(Debug)]
pub(crate) struct RequestBody {
    stream: Arc<Stream>,
    ended: bool,
}

impl RequestBody {
    pub(crate) fn new(stream: Arc<Stream>) -> RequestBody {
        RequestBody { stream, ended: false }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let incoming = ready!(self.stream.poll_recv(cx));
        if !matches!(incoming, Ok(Incoming::Chunk(_))) {
            self.ended = true;
        }
        Poll::Ready(match incoming {
            Ok(Incoming::Chunk(chunk)) => Some(Ok(Frame::data(chunk.bytes))),
            Ok(Incoming::End(End::HalfClosed)) => None,
            Ok(Incoming::End(End::Cancelled { .. })) => {
                Some(Err(Status::cancelled("the client cancelled the call")))
            }
            Err(closed) => Some(Err(status::closed(&closed, "the client"))),
            Ok(_) => {
                let closed = self.stream.session_closed();
                Some(Err(closed.map_or_else(
                    || Status::cancelled("the call has ended"),
                    |closed| status::closed(&closed, "the client"),
                )))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
