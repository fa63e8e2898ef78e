//! One call on the server, from the client's headers to the trailers.

use std::any::{Any, TypeId};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use tollfree_transport::Stream;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::call::deadline::Deadline;
use crate::message::bypass::Bypass;
use crate::message::framing::Deframer;
use crate::metadata::{pack, status_code};
use crate::metrics::ServedCall;
use crate::server::speech::Speech;
use crate::server::typed::run::Passing;
use crate::status;

/// A service with its types erased.
pub(crate) trait Handler: Send + Sync {
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
type Generated = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A handler under way.
pub(crate) enum Handling {
    Generated(Generated),
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

impl<S, B> Handler for S
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
        if TypeId::of::<S::Future>() != TypeId::of::<Generated>() {
            return Handling::Other(self.handle(request));
        }
        let mut service = self.clone();
        if service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            // The caller that polls asks it again.
            return Handling::Other(service.handle(request));
        }
        let mut called = Some(service.call(request));
        let generated = (&mut called as &mut dyn Any).downcast_mut::<Option<Generated>>();
        Handling::Generated(generated.and_then(Option::take).expect("its type was compared"))
    }
}

enum State {
    /// The handler has not answered yet.
    Handler(Handling),
    /// Its response is being sent.
    Response(Body),
    /// Its last words are being sent.
    Ending,
}

/// A call's stream, and who holds it.
pub(crate) enum Held {
    /// Nobody else: the request came as a whole.
    Own(Stream),
    /// The request's body too.
    Shared(Arc<Stream>),
}

impl Borrow<Stream> for Held {
    fn borrow(&self) -> &Stream {
        match self {
            Held::Own(stream) => stream,
            Held::Shared(stream) => stream,
        }
    }
}

/// A call that is being served. Resolves when everything is said or nobody listens any more.
pub(crate) struct Serving {
    speech: Speech<Held>,
    deadline: Deadline,
    deframer: Deframer,
    /// How payloads are passed; not known for a call that is refused.
    passing: Option<Passing>,
    /// Where large messages come from, and how many have been read from the body.
    bypass: Option<Bypass>,
    count: u64,
    state: State,
}

impl Serving {
    pub(crate) fn new(
        stream: Held,
        deadline_ns: Option<u64>,
        handler: Handling,
        passing: Option<Passing>,
        bypass: Option<Bypass>,
        record: Option<ServedCall>,
    ) -> Serving {
        if let (Some(passing), Some(bypass)) = (&passing, &bypass) {
            bypass.take_from(passing.sharing.threshold);
        }
        Serving {
            speech: Speech::new(stream, record),
            deadline: Deadline::new(deadline_ns),
            deframer: Deframer::default(),
            passing,
            bypass,
            count: 0,
            state: State::Handler(handler),
        }
    }

    /// A call that is answered without a handler.
    pub(crate) fn refused(stream: Held, refusal: Status, record: Option<ServedCall>) -> Serving {
        let handler = Handling::Other(Box::pin(std::future::ready(Response::default())));
        let mut serving = Serving::new(stream, None, handler, None, None, record);
        serving.end_with(refusal);
        serving
    }

    /// Ends the call with a status, after what is at hand was sent.
    fn end_with(&mut self, last: Status) {
        self.speech.end_with(last);
        self.state = State::Ending;
    }

    /// One step; `true` when the call is over.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.state {
            State::Handler(handler) => {
                // A handler that panics must not take the session's other calls with it.
                match std::panic::catch_unwind(AssertUnwindSafe(|| handler.poll(cx))) {
                    Ok(Poll::Ready(response)) => self.begin_response(response),
                    Ok(Poll::Pending) => {
                        ready!(self.speech.poll_ended(cx));
                        return Poll::Ready(true);
                    }
                    Err(_) => self.end_with(Status::internal("the handler panicked")),
                }
                Poll::Ready(false)
            }
            State::Response(_) => self.poll_response(cx),
            State::Ending => {
                let over = ready!(self.speech.poll_emit(cx));
                Poll::Ready(over || self.speech.is_said())
            }
        }
    }

    fn begin_response(&mut self, response: Response<Body>) {
        let (parts, body) = response.into_parts();
        if parts.status != http::StatusCode::OK {
            // The response is there, as it is over HTTP/2, and ends with what its status means.
            self.speech.emission.headers = pack(&parts.headers).ok();
            self.end_with(http_status(parts.status));
            return;
        }
        if let Some(code) = status_code(&parts.headers) {
            // Trailers-only: the status is in the headers, and there is no body.
            self.speech.end_with_headers(code, &parts.headers, "response metadata");
            self.state = State::Ending;
            return;
        }
        match pack(&parts.headers) {
            Ok(block) => {
                self.speech.emission.headers = Some(block);
                self.state = State::Response(body);
            }
            Err(error) => self.end_with(Status::resource_exhausted(format!("response metadata: {error}"))),
        }
    }

    /// Gathers what the body has and sends it: headers, message and trailers go in one frame where they are there
    /// together.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.speech.emission.message.is_none()
                && let Err(refused) = self.next_message()
            {
                self.speech.emission.message = None;
                self.end_with(refused);
                return Poll::Ready(false);
            }
            if self.speech.emission.message.is_some() && self.deframer.has_whole() {
                if ready!(self.speech.poll_emit(cx)) {
                    return Poll::Ready(true);
                }
                continue;
            }
            // A stream that always has something would never come to wait for its deadline.
            if self.deadline.is_past() {
                self.speech.abort_with(status::deadline());
                self.state = State::Ending;
                return Poll::Ready(false);
            }
            let State::Response(body) = &mut self.state else { return Poll::Ready(false) };
            let frame = match std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(cx))) {
                Ok(Poll::Ready(frame)) => frame,
                Ok(Poll::Pending) if self.speech.is_said() => {
                    ready!(self.speech.poll_ended(cx));
                    return Poll::Ready(true);
                }
                Ok(Poll::Pending) => {
                    if ready!(self.speech.poll_emit(cx)) {
                        return Poll::Ready(true);
                    }
                    continue;
                }
                Err(_) => {
                    self.end_with(Status::internal("the handler panicked"));
                    return Poll::Ready(false);
                }
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.deframer.push(data),
                    Err(frame) => self.end_with_trailers(&frame.into_trailers().unwrap_or_default()),
                },
                Some(Err(failure)) => self.end_with(failure),
                None => self.end_with(Status::unknown("the handler's response has no status")),
            }
        }
    }

    /// Puts the next message, if there is one, where it is sent from: by ref if it is large.
    fn next_message(&mut self) -> Result<(), Status> {
        self.speech.emission.message = self.deframer.next();
        if self.speech.emission.message.is_none() {
            return Ok(());
        }
        let number = self.count;
        self.count += 1;
        let Some(Passing { sharing, peer }) = &self.passing else { return Ok(()) };
        let (stream, message): (&Stream, _) =
            (self.speech.stream.borrow(), &mut self.speech.emission.message);
        match self.bypass.as_ref().and_then(|bypass| bypass.take_out(number)) {
            Some(large) => *message = Some(large.encode(sharing, *peer, stream)?),
            None => sharing.wrap(message, *peer, stream)?,
        }
        Ok(())
    }

    fn end_with_trailers(&mut self, headers: &HeaderMap) {
        let code = status_code(headers).unwrap_or(Code::Unknown as u16);
        self.speech.end_with_headers(code, headers, "trailing metadata");
        self.state = State::Ending;
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match this.poll_step(cx) {
                Poll::Ready(true) => return Poll::Ready(()),
                Poll::Ready(false) => {}
                Poll::Pending if matches!(this.state, State::Ending) => return Poll::Pending,
                Poll::Pending => {
                    ready!(this.deadline.poll(cx));
                    this.speech.abort_with(status::deadline());
                    this.state = State::Ending;
                }
            }
        }
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
