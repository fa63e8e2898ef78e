//! Handlers that take an `http::Request` (level 1): how a call is given to one, and what it says.

use std::any::{Any, TypeId};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use tollfree_driver_tokio::Stream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::call::deadline::{Deadline, Deadlines};
use crate::call::turn::PollTurn;
use crate::message::aside::Worked;
use crate::message::batching::next_batch;
use crate::message::compression::{PLAIN, is_plain};
use crate::message::framing::Deframer;
use crate::message::out_of_band::{OutOfBand, Takes};
use crate::metadata::status_code;
use crate::metrics::ServedCall;
use crate::server::caller::ClientRole;
use crate::server::response_writer::ResponseWriter;
use crate::server::serving::{Handle, HandlerStep, Serving};
use crate::server::typed::run::Passing;

/// A service with its types erased.
pub(crate) trait ErasedService: Send + Sync {
    /// Calls a clone of the service, once the future is polled.
    fn handle(&self, request: Request<Body>) -> HandlerFuture;

    /// Calls a clone of the service, at once if it is ready: what panics in that panics here.
    fn begin(&self, request: Request<Body>) -> Handling {
        Handling::Other(self.handle(request))
    }
}

/// What a handler returns.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// What tonic's generated servers return: it need not be put into another box.
type BoxedAnswer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A handler under way.
pub(crate) enum Handling {
    Generated(BoxedAnswer),
    Other(HandlerFuture),
}

impl Handling {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        match self {
            Handling::Generated(handler) => handler.as_mut().poll(cx).map(|Ok(response)| response),
            Handling::Other(handler) => handler.as_mut().poll(cx),
        }
    }
}

impl<S, B> ErasedService for S
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let mut service = self.clone();
        Box::pin(async move {
            match std::future::poll_fn(|cx| service.poll_ready(cx)).await {
                Ok(()) => {}
                Err(never) => match never {},
            }
            match service.call(request).await {
                Ok(response) => response.map(Body::new),
                Err(never) => match never {},
            }
        })
    }

    fn begin(&self, request: Request<Body>) -> Handling {
        if TypeId::of::<S::Future>() != TypeId::of::<BoxedAnswer>() {
            return Handling::Other(self.handle(request));
        }
        let mut service = self.clone();
        if service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            // The caller that polls asks it again.
            return Handling::Other(service.handle(request));
        }
        let mut called = Some(service.call(request));
        let generated = (&mut called as &mut dyn Any).downcast_mut::<Option<BoxedAnswer>>();
        Handling::Generated(generated.and_then(Option::take).expect("its type was compared"))
    }
}

/// A call's stream, and who holds it.
pub(crate) enum HeldStream {
    /// Nobody else: the request came as a whole.
    Own(Stream),
    /// The request's body too.
    Shared(Arc<Stream>),
}

impl Borrow<Stream> for HeldStream {
    fn borrow(&self) -> &Stream {
        match self {
            HeldStream::Own(stream) => stream,
            HeldStream::Shared(stream) => stream,
        }
    }
}

/// A handler under way, or the response that it has begun.
pub(crate) struct HttpHandle {
    state: State,
    deframer: Deframer,
    /// How payloads are passed; not known for a call that is refused.
    passing: Option<Passing>,
    /// Where large messages and objects come from, and how many messages have been read from the body.
    out_of_band: Option<OutOfBand>,
    count: u64,
    /// The head is on its way, and with it what the handler had to say at once.
    has_spoken: bool,
}

enum State {
    /// The handler has not answered yet.
    Handler(Handling),
    /// Its response is being sent.
    Response(Body),
    /// It has said everything, or goes no further.
    Ended,
}

impl HttpHandle {
    /// A handler that was begun; large messages may take the `out_of_band`.
    pub(crate) fn new(handler: Handling, passing: Passing, out_of_band: Option<OutOfBand>) -> HttpHandle {
        if let Some(out_of_band) = &out_of_band {
            out_of_band.take_from(passing.sharing.threshold);
        }
        let state = State::Handler(handler);
        HttpHandle {
            state,
            deframer: Deframer::default(),
            passing: Some(passing),
            out_of_band,
            count: 0,
            has_spoken: false,
        }
    }

    /// The head of the response. `Some`: there is nothing else to it.
    fn begin_response(
        &mut self,
        response: Response<Body>,
        response_writer: &mut ResponseWriter<HeldStream>,
    ) -> Option<HandlerStep> {
        let (mut parts, body) = response.into_parts();
        if parts.status != http::StatusCode::OK {
            // The response is there, as it is over HTTP/2, and ends with what its status means.
            response_writer.outgoing.headers = response_writer.pack(&parts.headers).ok();
            return Some(HandlerStep::Last(http_status(parts.status)));
        }
        if let Some(code) = status_code(&parts.headers) {
            // Trailers-only: the status is in the headers, and there is no body.
            response_writer.end_with_headers(code, &parts.headers, "response metadata");
            return Some(HandlerStep::Said);
        }
        // A gateway deflates in this process's place.
        if is_plain(&parts.extensions)
            && self.passing.as_ref().is_some_and(|passing| passing.client.compresses())
        {
            parts.headers.insert(PLAIN, HeaderValue::from_static("1"));
        }
        match response_writer.pack(&parts.headers) {
            Ok(block) => response_writer.outgoing.headers = Some(block),
            Err(error) => {
                return Some(HandlerStep::Last(Status::resource_exhausted(format!(
                    "response metadata: {error}"
                ))));
            }
        }
        self.state = State::Response(body);
        None
    }

    /// Gathers what the body has and sends it: headers, message and trailers go in one frame where they are there
    /// together.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        response_writer: &mut ResponseWriter<HeldStream>,
        deadline: &Deadline,
    ) -> Poll<HandlerStep> {
        let mut turn = PollTurn::default();
        loop {
            if response_writer.outgoing.message.is_none()
                && let Err(refused) = self.next_message(response_writer)
            {
                response_writer.outgoing.message = None;
                return Poll::Ready(HandlerStep::Last(refused));
            }
            // The first message waits for what the handler says next, which may be the end; the others are answers to somebody who waits.
            if response_writer.outgoing.message.is_some() && (self.has_spoken || self.deframer.has_whole()) {
                if ready!(response_writer.poll_send(cx)) {
                    return Poll::Ready(HandlerStep::Over);
                }
                self.has_spoken = true;
                ready!(turn.poll_step(cx));
                continue;
            }
            // A stream that always has something would never come to wait for its deadline.
            if deadline.is_past() {
                return Poll::Ready(HandlerStep::Late);
            }
            let State::Response(body) = &mut self.state else { return Poll::Ready(HandlerStep::Said) };
            // A handler that answers what it reads is not to look for more before its answer is on its way.
            let is_said = response_writer.is_said();
            let stream: &Stream = response_writer.stream.borrow();
            stream.answers(!is_said);
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if is_said => return Poll::Pending,
                Poll::Pending => {
                    if ready!(response_writer.poll_send(cx)) {
                        return Poll::Ready(HandlerStep::Over);
                    }
                    self.has_spoken = true;
                    continue;
                }
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.deframer.push(data),
                    Err(frame) => {
                        let headers = frame.into_trailers().unwrap_or_default();
                        let code = status_code(&headers).unwrap_or(Code::Unknown as u16);
                        response_writer.end_with_headers(code, &headers, "trailing metadata");
                        return Poll::Ready(HandlerStep::Said);
                    }
                },
                Some(Err(failure)) => return Poll::Ready(HandlerStep::Last(failure)),
                None => {
                    let last = Status::unknown("the handler's response has no status");
                    return Poll::Ready(HandlerStep::Last(last));
                }
            }
        }
    }

    /// Puts the next message, if there is one, where it is sent from: by ref if it is large.
    fn next_message(&mut self, response_writer: &mut ResponseWriter<HeldStream>) -> Result<(), Status> {
        let out_of_band = self.out_of_band.as_ref();
        let takes = match out_of_band.is_some_and(OutOfBand::takes_objects) {
            true => Takes::Objects,
            false => Takes::Bytes,
        };
        if let Some(Passing { sharing, .. }) = &self.passing
            && let Some((batch, count)) = next_batch(
                &mut self.deframer,
                out_of_band,
                takes,
                sharing,
                self.count,
                &mut Worked::default(),
            )
        {
            self.count += count as u64;
            response_writer.outgoing.message = Some(batch);
            return Ok(());
        }
        response_writer.outgoing.message = self.deframer.next();
        if response_writer.outgoing.message.is_none() {
            return Ok(());
        }
        let number = self.count;
        self.count += 1;
        let Some(Passing { sharing, peer, .. }) = &self.passing else { return Ok(()) };
        let (stream, message): (&Stream, _) =
            (response_writer.stream.borrow(), &mut response_writer.outgoing.message);
        match out_of_band.and_then(|out_of_band| out_of_band.take_out(number)) {
            Some(past) => *message = Some(past.encode(sharing, *peer, stream, takes)?),
            None => sharing.wrap(message, *peer, stream)?,
        }
        Ok(())
    }
}

impl Handle for HttpHandle {
    type Held = HeldStream;

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        response_writer: &mut ResponseWriter<HeldStream>,
        deadline: &Deadline,
    ) -> Poll<HandlerStep> {
        if let State::Handler(handler) = &mut self.state {
            let response = ready!(handler.poll(cx));
            if let Some(step) = self.begin_response(response, response_writer) {
                return Poll::Ready(step);
            }
        }
        self.poll_response(cx, response_writer, deadline)
    }

    fn client(&self) -> ClientRole {
        self.passing.as_ref().map_or(ClientRole::Caller, |passing| passing.client)
    }

    fn end(&mut self, _: bool) {
        self.state = State::Ended;
    }
}

impl Serving<HttpHandle> {
    /// A call that is answered without a handler.
    pub(crate) fn refused(
        stream: HeldStream,
        refusal: Status,
        deadlines: Deadlines,
        record: Option<ServedCall>,
    ) -> Serving<HttpHandle> {
        let (state, deframer) = (State::Ended, Deframer::default());
        let handle =
            HttpHandle { state, deframer, passing: None, out_of_band: None, count: 0, has_spoken: false };
        let mut serving = Serving::idle(handle);
        serving.begin(stream, deadlines, record);
        serving.take_up(HandlerStep::Last(refusal));
        serving
    }
}

/// What a response that is not gRPC's means, after gRPC's table of HTTP status codes.
fn http_status(status: http::StatusCode) -> Status {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("the service answered with HTTP status {status}"))
}
