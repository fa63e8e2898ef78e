//! What was received on a call, as the HTTP body that tonic's decoder reads.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use tollfree_driver_tokio::{Attachment, End, Part, Stream};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call::afterwards::Afterwards;
use crate::call::deadline::Deadline;
use crate::call::still::StillRuntime;
use crate::http::outflow::Outflow;
use crate::http::request_sender::{RequestSender, send_rest};
use crate::message::framing::Lengths;
use crate::message::out_of_band::OutOfBand;
use crate::message::payloads::Sharing;
use crate::message::received::{BodyStep, Inflow};
use crate::metadata::{
    GRPC_MESSAGE, GRPC_STATUS, drop_malformed_details, ended_with, status_code, status_value, unpack,
};
use crate::metrics::{MadeCall, Outcome};
use crate::status;

/// Times that who waits for the answer sends some of the request before others have their turn.
pub(crate) const HELP_COUNT: usize = 32;

/// A call of the client's side, shared by those who send for it and those who read from it.
#[derive(Debug)]
pub(crate) struct ClientCall {
    pub(crate) stream: Stream,
    /// What is left of the request.
    pub(crate) outflow: Outflow,
    /// What went wrong while sending, for the reader to report.
    pub(crate) failure: parking_lot::Mutex<Option<Status>>,
    pub(crate) peer: Arc<str>,
    pub(crate) sharing: Arc<Sharing>,
    /// Keeps the session while the call lasts, also when the channel has turned to another one.
    pub(crate) attachment: Arc<Attachment>,
    /// The runtime of the task that sends the rest of the request, where that runs only while somebody waits.
    pub(crate) still: OnceLock<Weak<StillRuntime>>,
}

impl ClientCall {
    /// Sends what is left of the request beside the response's reader.
    pub(crate) fn send(self: &Arc<ClientCall>, sender: RequestSender) {
        if let Some(still) = StillRuntime::current() {
            _ = self.still.set(still);
        }
        self.outflow.begin(sender);
        tokio::spawn(send_rest(self.clone()));
    }

    /// It has ended: a task that still sends for it is to find out.
    pub(crate) fn ended(&self) {
        if let Some(still) = self.still.get().and_then(Weak::upgrade) {
            still.turn();
        }
    }

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
            None => status::unsaid(peer),
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
    /// Where the channel has metrics.
    counted: Option<Box<Counted>>,
}

/// A response that is counted, and its call's outcome unless somebody else says that.
#[derive(Debug)]
struct Counted {
    call: MadeCall,
    outcome: Option<Outcome>,
    lengths: Lengths,
}

/// Where a response comes from.
#[derive(Debug)]
enum Source {
    /// All of it is here: the message, nothing once that was read, and the trailers.
    Whole {
        data: Bytes,
        code: u16,
        block: Bytes,
        /// Where the message is that an empty one stands in for.
        out_of_band: Option<OutOfBand>,
    },
    Session(Box<(Arc<ClientCall>, Inflow)>),
    /// And whether its trailers have to say the status: its head did not.
    Http2(Body, bool),
}

impl Source {
    /// Where messages are that empty ones stand in for.
    fn out_of_band(&self) -> Option<&OutOfBand> {
        match self {
            Source::Whole { out_of_band, .. } => out_of_band.as_ref(),
            Source::Session(session) => session.1.out_of_band(),
            Source::Http2(..) => None,
        }
    }
}

impl ResponseBody {
    /// The body of a response whose head was read; `rest` came together with that. SegmentedMessages and objects may take the `out_of_band`.
    pub(crate) fn new(
        call: Arc<ClientCall>,
        rest: Part,
        deadline: Deadline,
        out_of_band: Option<OutOfBand>,
    ) -> ResponseBody {
        let source = Source::Session(Box::new((call, Inflow::after(Some(rest), out_of_band))));
        ResponseBody { source, deadline, ended: false, afterwards: None, counted: None }
    }

    /// The body of a response that came as a whole, with gRPC's prefix before the message; the call is over. The message may
    /// have taken the `out_of_band`.
    pub(crate) fn whole(
        data: Bytes,
        code: u16,
        block: Bytes,
        out_of_band: Option<OutOfBand>,
    ) -> ResponseBody {
        let source = Source::Whole { data, code, block, out_of_band };
        ResponseBody { source, deadline: Deadline::default(), ended: false, afterwards: None, counted: None }
    }

    /// The body of a trailers-only response.
    pub(crate) fn ended(call: Arc<ClientCall>) -> ResponseBody {
        call.ended();
        let source = Source::Session(Box::new((call, Inflow::default())));
        ResponseBody { source, deadline: Deadline::default(), ended: true, afterwards: None, counted: None }
    }

    /// A body that tonic's transport receives behind this head.
    pub(crate) fn http2(head: &http::response::Parts, body: Body, deadline: Deadline) -> ResponseBody {
        // What is not gRPC's has the meaning of its HTTP status, which tonic looks up.
        let lacks_status = head.status == http::StatusCode::OK && status_code(&head.headers).is_none();
        let source = Source::Http2(body, lacks_status);
        ResponseBody { source, deadline, ended: false, afterwards: None, counted: None }
    }

    /// Has something done when the call has ended; at once where it has.
    pub(crate) fn afterwards(&mut self, afterwards: Afterwards) {
        if !self.ended {
            self.afterwards = Some(Box::new(afterwards));
        }
    }

    /// Counts what comes of an answer, and how it ends.
    pub(crate) fn count(&mut self, call: MadeCall, outcome: Option<Outcome>) {
        self.counted = Some(Box::new(Counted { call, outcome, lengths: Lengths::default() }));
    }

    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Source::Session(session) = &mut self.source else { return Poll::Ready(None) };
        let (call, inflow) = &mut **session;
        let mut has_more = call.outflow.help(call);
        let mut polled = inflow.poll(cx, &call.stream, &call.sharing, !has_more);
        for _ in 0..HELP_COUNT {
            if polled.is_ready() || !has_more {
                break;
            }
            has_more = call.outflow.help(call);
            polled = inflow.poll(cx, &call.stream, &call.sharing, !has_more);
        }
        if has_more {
            call.outflow.leave();
            if polled.is_pending() {
                polled = inflow.poll(cx, &call.stream, &call.sharing, true);
            }
        }
        let step = match polled {
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
            BodyStep::Data(bytes) => Ok(Frame::data(bytes)),
            BodyStep::Failed(failure) => {
                self.ended = true;
                call.stream.cancel(failure.code() as u16);
                Err(failure)
            }
            BodyStep::End(End::Trailers { code, block }) => {
                self.ended = true;
                Ok(Frame::trailers(trailers(code, &block)))
            }
            BodyStep::End(end) => {
                self.ended = true;
                Err(call.end_status(end))
            }
            BodyStep::Headers => Err(status::of_content(Code::Internal, "response headers came twice")),
        }))
    }

    fn poll_http2(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Source::Http2(body, lacks_status) = &mut self.source else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let Poll::Ready(mut frame) = polled else {
            ready!(self.deadline.poll(cx));
            self.ended = true;
            // Dropping it resets the stream.
            *body = Body::empty();
            return Poll::Ready(Some(Err(status::deadline())));
        };
        self.ended = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    drop_malformed_details(trailers);
                    if *lacks_status {
                        says_status(trailers);
                    }
                }
            }
            // tonic takes an answer that was cut, or lacks its trailers, for complete.
            Some(Err(error)) => {
                let broken = std::mem::replace(error, Status::unknown(""));
                *error = status::broken_answer(broken);
            }
            None if *lacks_status => frame = Some(Err(status::unfinished_answer(!body.is_end_stream()))),
            _ => {}
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|status| status::in_time(status, self.deadline.at_ns))))
    }

    /// Tells the channel how the call ended.
    #[cold]
    fn tell_end(&mut self, frame: &Option<Result<Frame<Bytes>, Status>>) {
        let Some(afterwards) = self.afterwards.take() else { return };
        let code = ended_with(frame).unwrap_or(Code::Unknown);
        afterwards.end(code);
    }
}

impl Counted {
    fn see(&mut self, frame: &Option<Result<Frame<Bytes>, Status>>, out_of_band: Option<&OutOfBand>) {
        let Counted { call, outcome, lengths } = self;
        if let Some(Ok(frame)) = frame
            && let Some(bytes) = frame.data_ref()
        {
            let past = |number| out_of_band.and_then(|out_of_band| out_of_band.back_len_of(number));
            lengths.pass(bytes, &mut |number, len| call.received(past(number).unwrap_or(len)));
        }
        if let (Some(code), Some(outcome)) = (ended_with(frame), outcome) {
            outcome.is(code);
        }
    }
}

impl Default for ResponseBody {
    fn default() -> ResponseBody {
        let source = Source::Http2(Body::empty(), false);
        ResponseBody { source, deadline: Deadline::default(), ended: true, afterwards: None, counted: None }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Source::Session(session) = &self.source {
            session.0.stream.cancel(Code::Cancelled as u16);
            if !self.ended {
                session.0.ended();
            }
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
            Source::Http2(..) => ready!(this.poll_http2(cx)),
        };
        if this.ended
            && let Source::Session(session) = &this.source
        {
            session.0.ended();
        }
        if this.ended && this.afterwards.is_some() {
            this.tell_end(&frame);
        }
        if let Some(counted) = &mut this.counted {
            counted.see(&frame, this.source.out_of_band());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// Has trailers that came over HTTP/2 say a status: UNKNOWN where they say none, or one that is no code.
fn says_status(trailers: &mut HeaderMap) {
    let code = status_code(trailers).unwrap_or_else(|| {
        let words = HeaderValue::from_static("the answer's trailers have no grpc-status");
        trailers.insert(GRPC_MESSAGE, words);
        Code::Unknown as u16
    });
    trailers.insert(GRPC_STATUS, status_value(code));
}

/// The trailing headers that HTTP/2 would carry.
pub(crate) fn trailers(code: u16, block: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    unpack(block, &mut headers);
    drop_malformed_details(&mut headers);
    // Last, as tonic's server does over HTTP/2: where it is taken out again, the others keep their order.
    headers.insert(GRPC_STATUS, status_value(status::code(code) as u16));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_say_a_code_that_is_one_and_no_other() {
        for (number, said) in [(0, "0"), (5, "5"), (16, "16"), (17, "2"), (4711, "2"), (u16::MAX, "2")] {
            assert_eq!(trailers(number, &[])[GRPC_STATUS], said, "{number}");
        }
        for (said, is) in
            [(Some("0"), "0"), (Some("5"), "5"), (Some("+5"), "2"), (Some("17"), "2"), (None, "2")]
        {
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert(GRPC_STATUS, HeaderValue::from_static(said));
            }
            says_status(&mut headers);
            assert_eq!(
                (&headers[GRPC_STATUS], headers.contains_key(GRPC_MESSAGE)),
                (&HeaderValue::from_static(is), said.is_none())
            );
        }
    }
}
