//! What was received on a call, as the HTTP body that tonic's decoder reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::{Instant, Sleep};
use tollfree_transport::{Attachment, End, Part, Stream, now_ns};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::channel::Inner;
use crate::direct::Bypass;
use crate::endpoint::CallGuard;
use crate::inflow::{Inflow, Step};
use crate::metadata::{GRPC_STATUS, status_code, status_value, unpack};
use crate::payloads::Sharing;
use crate::retry::Throttle;
use crate::service_config::MethodConfig;
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

    /// Whether the deadline has passed, for those who are always busy.
    pub(crate) fn is_past(&self) -> bool {
        self.at_ns.is_some_and(|at_ns| now_ns() >= at_ns)
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
    pub(crate) sharing: Arc<Sharing>,
    /// Keeps the session while the call lasts, also when the channel has turned to another one.
    pub(crate) attachment: Arc<Attachment>,
}

impl ClientCall {
    /// The status for a call that ended without trailers.
    pub(crate) fn end_status(&self, end: End) -> Status {
        if let Some(failure) = self.failure.lock().take() {
            return failure;
        }
        end_status(&self.stream, end, &self.peer)
    }
}

/// The status for a call that ended without trailers.
pub(crate) fn end_status(stream: &Stream, end: End, peer: &str) -> Status {
    match end {
        End::Cancelled { code, refused } => status::cancelled(code, refused, peer),
        _ => match stream.session_closed() {
            Some(closed) => status::closed(&closed, peer),
            None => Status::internal(format!("{peer} ended the call without a status")),
        },
    }
}

/// The body of a response. Dropping it before its end cancels the call. By default an empty one, without a call.
#[derive(Debug)]
pub struct ResponseBody {
    source: Source,
    deadline: Deadline,
    ended: bool,
    /// What is to be done at the end of a call that its channel keeps count of.
    afterwards: Option<Box<Afterwards>>,
}

/// Where a response comes from.
#[derive(Debug)]
enum Source {
    /// All of it is here: the message, nothing once that was read, and the trailers.
    Whole {
        data: Bytes,
        code: u16,
        block: Bytes,
    },
    Session(Box<(Arc<ClientCall>, Inflow)>),
    Http2(Body),
}

/// What a channel does when a call has ended.
#[derive(Debug)]
pub(crate) struct Afterwards {
    _guard: Option<CallGuard>,
    /// Told how it ended.
    throttle: Option<Arc<Throttle>>,
    /// Statuses that count as failures.
    codes: Vec<Code>,
}

impl Afterwards {
    /// `ended`: the call has, with this status and nothing else.
    pub(crate) fn new(
        channel: &Inner,
        method: &MethodConfig,
        guard: Option<CallGuard>,
        ended: Option<Code>,
    ) -> Afterwards {
        let throttle = channel.throttle.clone();
        if let (Some(throttle), Some(Code::Ok)) = (&throttle, ended) {
            throttle.succeeded();
        }
        let codes = method.retry.as_ref().map(|retry| retry.codes.clone()).unwrap_or_default();
        Afterwards { _guard: guard, throttle: throttle.filter(|_| ended.is_none()), codes }
    }

    pub(crate) fn end(self, code: Code) {
        match self.throttle {
            Some(throttle) if code == Code::Ok => throttle.succeeded(),
            Some(throttle) if self.codes.contains(&code) => drop(throttle.failed()),
            _ => {}
        }
    }
}

impl ResponseBody {
    /// The body of a response whose head was read; `rest` came together with that. Ropes may take the `bypass`.
    pub(crate) fn new(
        call: Arc<ClientCall>,
        rest: Part,
        deadline: Deadline,
        bypass: Option<Bypass>,
    ) -> ResponseBody {
        let source = Source::Session(Box::new((call, Inflow::after(Some(rest), bypass))));
        ResponseBody { source, deadline, ended: false, afterwards: None }
    }

    /// The body of a response that came as a whole, with gRPC's prefix before the message; the call is over.
    pub(crate) fn whole(data: Bytes, code: u16, block: Bytes) -> ResponseBody {
        let source = Source::Whole { data, code, block };
        ResponseBody { source, deadline: Deadline::default(), ended: false, afterwards: None }
    }

    /// The body of a trailers-only response.
    pub(crate) fn ended(call: Arc<ClientCall>) -> ResponseBody {
        let source = Source::Session(Box::new((call, Inflow::default())));
        ResponseBody { source, deadline: Deadline::default(), ended: true, afterwards: None }
    }

    /// A body that tonic's transport receives.
    pub(crate) fn http2(body: Body, deadline: Deadline) -> ResponseBody {
        ResponseBody { source: Source::Http2(body), deadline, ended: false, afterwards: None }
    }

    /// Has something done when the call has ended; at once where it has.
    pub(crate) fn afterwards(&mut self, afterwards: Afterwards) {
        if !self.ended {
            self.afterwards = Some(Box::new(afterwards));
        }
    }

    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Source::Session(session) = &mut self.source else { return Poll::Ready(None) };
        let (call, inflow) = &mut **session;
        let step = match inflow.poll(cx, &call.stream, &call.sharing) {
            Poll::Ready(Ok(step)) => step,
            Poll::Ready(Err(closed)) => {
                self.ended = true;
                return Poll::Ready(Some(Err(status::closed(&closed, &call.peer))));
            }
            Poll::Pending => {
                ready!(self.deadline.poll(cx));
                self.ended = true;
                call.stream.cancel(Code::DeadlineExceeded as u16);
                return Poll::Ready(Some(Err(status::deadline())));
            }
        };
        Poll::Ready(Some(match step {
            Step::Data(bytes) => Ok(Frame::data(bytes)),
            Step::Failed(failure) => {
                self.ended = true;
                call.stream.cancel(failure.code() as u16);
                Err(failure)
            }
            Step::End(End::Trailers { code, block }) => {
                self.ended = true;
                Ok(Frame::trailers(trailers(code, &block)))
            }
            Step::End(end) => {
                self.ended = true;
                Err(call.end_status(end))
            }
            Step::Headers => Err(Status::internal("response headers came twice")),
        }))
    }

    fn poll_http2(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Source::Http2(body) = &mut self.source else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let Poll::Ready(frame) = polled else {
            ready!(self.deadline.poll(cx));
            self.ended = true;
            // Dropping it resets the stream.
            *body = Body::empty();
            return Poll::Ready(Some(Err(status::deadline())));
        };
        self.ended = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
        Poll::Ready(frame.map(|frame| frame.map_err(|status| status::in_time(status, self.deadline.at_ns))))
    }

    /// Tells the channel how the call ended.
    #[cold]
    fn tell_end(&mut self, frame: &Option<Result<Frame<Bytes>, Status>>) {
        let Some(afterwards) = self.afterwards.take() else { return };
        let code = match frame {
            Some(Ok(frame)) => frame
                .trailers_ref()
                .and_then(status_code)
                .map_or(Code::Unknown, |code| Code::from_i32(code.into())),
            Some(Err(status)) => status.code(),
            None => Code::Unknown,
        };
        afterwards.end(code);
    }
}

impl Default for ResponseBody {
    fn default() -> ResponseBody {
        let source = Source::Http2(Body::empty());
        ResponseBody { source, deadline: Deadline::default(), ended: true, afterwards: None }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Source::Session(session) = &self.source {
            session.0.stream.cancel(Code::Cancelled as u16);
        }
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
        let frame = match &mut this.source {
            Source::Whole { data, .. } if !data.is_empty() => Some(Ok(Frame::data(std::mem::take(data)))),
            Source::Whole { code, block, .. } => {
                this.ended = true;
                Some(Ok(Frame::trailers(trailers(*code, block))))
            }
            Source::Session(_) => ready!(this.poll_session(cx)),
            Source::Http2(_) => ready!(this.poll_http2(cx)),
        };
        if this.ended && this.afterwards.is_some() {
            this.tell_end(&frame);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// The trailing headers that HTTP/2 would carry.
pub(crate) fn trailers(code: u16, block: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    unpack(block, &mut headers);
    // Last, as tonic's server does over HTTP/2: where it is taken out again, the others keep their order.
    headers.insert(GRPC_STATUS, status_value(code));
    headers
}

/// The body of a request that did not come as a whole, on the server.
#[derive(Debug)]
pub(crate) struct RequestBody {
    stream: Arc<Stream>,
    sharing: Arc<Sharing>,
    inflow: Inflow,
    ended: bool,
}

impl RequestBody {
    /// The body of a call that `arrival` came with. Ropes may take the `bypass`.
    pub(crate) fn new(
        stream: Arc<Stream>,
        arrival: Option<Part>,
        sharing: Arc<Sharing>,
        bypass: Option<Bypass>,
    ) -> RequestBody {
        RequestBody { stream, sharing, inflow: Inflow::after(arrival, bypass), ended: false }
    }
}

impl http_body::Body for RequestBody {
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
        let step = ready!(this.inflow.poll(cx, &this.stream, &this.sharing));
        if !matches!(step, Ok(Step::Data(_))) {
            this.ended = true;
        }
        Poll::Ready(match step {
            Ok(Step::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Ok(Step::Failed(failure)) => Some(Err(failure)),
            Ok(Step::End(End::HalfClosed)) => None,
            Ok(Step::End(End::Cancelled { .. })) => {
                Some(Err(Status::cancelled("the client cancelled the call")))
            }
            Err(closed) => Some(Err(status::closed(&closed, "the client"))),
            Ok(_) => {
                let closed = this.stream.session_closed();
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
