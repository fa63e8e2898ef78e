//! One call of a client, from request to response head.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body as _;
use tollfree_transport::{Attachment, Emission, EmitError, End, Ending, Incoming, Opener, Opening, now_ns};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::body::{ClientCall, Deadline, ResponseBody, trailers};
use crate::channel::{Acquire, Channel};
use crate::framing::Deframer;
use crate::metadata::{GRPC, pack, timeout, unpack};
use crate::status;

/// Sends a request body message by message.
#[derive(Debug)]
struct RequestSender {
    body: Body,
    deframer: Deframer,
    emission: Emission,
    /// The body has ended; its half-close is in `emission` or sent.
    ended: bool,
    /// The body failed after the message at hand.
    failed: Option<Status>,
}

impl RequestSender {
    /// Moves the next message of the body, or its end, into the emission. Pending: the body has nothing now.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.emission.message.is_none() && !self.ended {
            if let Some(message) = self.deframer.next() {
                self.emission.message = Some(message);
                break;
            }
            if let Some(failure) = self.failed.take() {
                return Poll::Ready(Err(failure));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.deframer.push(data);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None if self.deframer.is_partial() => {
                    return Poll::Ready(Err(Status::internal("the request ends in the middle of a message")));
                }
                None => self.end(),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Looks whether the body ends right after the message at hand, so that both go in one frame.
    fn look_ahead(&mut self, cx: &mut Context<'_>) {
        if self.ended || self.deframer.is_partial() {
            return;
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.deframer.push(data);
                }
            }
            Poll::Ready(Some(Err(failure))) => self.failed = Some(failure),
            Poll::Pending => {}
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.emission.ending = Some(Ending::HalfClose);
    }

    /// Sends all of the body. Ready when it is sent, or can't be any more.
    fn poll_send(&mut self, cx: &mut Context<'_>, call: &ClientCall) -> Poll<Result<(), Status>> {
        loop {
            if !self.emission.is_empty() {
                match ready!(call.stream.poll_emit(cx, &mut self.emission)) {
                    Ok(()) => {}
                    // The reader learns how the call ended.
                    Err(EmitError::Ended | EmitError::Closed(_)) => return Poll::Ready(Ok(())),
                    Err(error) => return Poll::Ready(Err(status::emit(error, &call.peer))),
                }
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // While the application has nothing to send, only the call's end is of interest.
                    ready!(call.stream.poll_ended(cx));
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Sends the rest of a request body while the application reads the response.
async fn send_rest(mut sender: RequestSender, call: Arc<ClientCall>) {
    let result = std::future::poll_fn(|cx| sender.poll_send(cx, &call)).await;
    if let Err(failure) = result {
        let code = failure.code() as u16;
        *call.failure.lock() = Some(failure);
        call.stream.cancel(code);
    }
}

enum State {
    /// Getting hold of a session.
    Acquire(Acquire),
    /// Opening the call on it.
    Open(Arc<Attachment>, Opener),
    /// Sending what did not fit the first frame.
    Send(Arc<ClientCall>),
    /// Waiting for the response.
    Receive(Arc<ClientCall>),
    Done,
}

/// A call under way; resolves to the response's head. Dropping it cancels the call.
pub(crate) struct ResponseFuture {
    channel: Channel,
    path: http::uri::PathAndQuery,
    sender: Option<RequestSender>,
    deadline_ns: Option<u64>,
    deadline: Deadline,
    state: State,
    /// Sessions tried: a call that no server has seen moves over to a new session once.
    attempts: u32,
}

impl std::fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ResponseFuture {
    pub(crate) fn new(channel: Channel, request: Request<Body>) -> Result<ResponseFuture, Status> {
        let (parts, body) = request.into_parts();
        let wanted = match (timeout(&parts.headers), channel.timeout()) {
            (Some(call), Some(channel)) => Some(call.min(channel)),
            (call, channel) => call.or(channel),
        };
        let deadline_ns = wanted.map(|timeout| {
            let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            now_ns().saturating_add(timeout).max(1)
        });
        let headers = pack(&parts.headers)
            .map_err(|error| Status::resource_exhausted(format!("request metadata: {error}")))?;
        let path = parts.uri.path_and_query().cloned();
        let path = path.ok_or_else(|| Status::internal("a request without a path"))?;
        let emission = Emission { headers: Some(headers), ..Emission::default() };
        let sender =
            RequestSender { body, deframer: Deframer::default(), emission, ended: false, failed: None };
        Ok(ResponseFuture {
            state: match channel.live() {
                Some(attachment) => {
                    let opener = attachment.open();
                    State::Open(attachment, opener)
                }
                None => State::Acquire(channel.acquire()),
            },
            channel,
            path,
            sender: Some(sender),
            deadline_ns,
            deadline: Deadline::new(deadline_ns),
            attempts: 0,
        })
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Status>> {
        match &mut self.state {
            State::Acquire(acquire) => {
                let attachment = ready!(acquire.as_mut().poll(cx))?;
                let opener = attachment.open();
                self.state = State::Open(attachment, opener);
            }
            State::Open(..) => ready!(self.poll_open(cx))?,
            State::Send(call) => {
                let sender = self.sender.as_mut().expect("kept while sending");
                match sender.poll_send_first(cx, call) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        // The server may answer before it has read everything.
                        return self.poll_receive(cx);
                    }
                }
                self.begin_receiving();
            }
            State::Receive(_) => return self.poll_receive(cx),
            State::Done => return Poll::Ready(Err(Status::internal("polled after the response"))),
        }
        Poll::Ready(Ok(None))
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let State::Open(attachment, opener) = &mut self.state else { unreachable!("the caller has matched") };
        let sender = self.sender.as_mut().expect("kept until opened");
        // A first message that is there already goes in the first frame; headers don't wait for one that isn't.
        if let Poll::Ready(Err(error)) = sender.poll_fill(cx) {
            return Poll::Ready(Err(error));
        }
        sender.look_ahead(cx);
        let opening = Opening { path: self.path.as_str(), deadline_ns: self.deadline_ns.unwrap_or(0) };
        let stream = match ready!(opener.poll_open(cx, opening, &mut sender.emission)) {
            Ok(stream) => stream,
            Err(EmitError::Closed(_) | EmitError::Draining) if self.attempts == 0 => {
                // Nothing of the call was sent: it moves to a new session.
                self.attempts += 1;
                self.channel.retire(attachment);
                self.state = State::Acquire(self.channel.acquire());
                return Poll::Ready(Ok(()));
            }
            Err(error) => return Poll::Ready(Err(status::emit(error, self.channel.peer()))),
        };
        let call = ClientCall { stream, failure: Default::default(), peer: self.channel.peer().clone() };
        let call = Arc::new(call);
        if sender.emission.is_empty() {
            self.state = State::Receive(call);
            self.begin_receiving();
        } else {
            self.state = State::Send(call);
        }
        Poll::Ready(Ok(()))
    }

    /// What is left of the request goes on in a task of its own.
    fn begin_receiving(&mut self) {
        let (State::Send(call) | State::Receive(call)) = std::mem::replace(&mut self.state, State::Done)
        else {
            return;
        };
        if let Some(sender) = self.sender.take()
            && !(sender.ended && sender.emission.is_empty())
        {
            tokio::spawn(send_rest(sender, call.clone()));
        }
        self.state = State::Receive(call);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Status>> {
        let (State::Send(call) | State::Receive(call)) = &self.state else {
            unreachable!("the caller has matched")
        };
        let incoming = match ready!(call.stream.poll_recv(cx)) {
            Ok(incoming) => incoming,
            Err(closed) => return Poll::Ready(Err(status::closed(&closed, &call.peer))),
        };
        let response = match incoming {
            Incoming::Headers(block) => {
                let mut headers = HeaderMap::with_capacity(1);
                headers.insert(CONTENT_TYPE, GRPC);
                unpack(&block, &mut headers);
                // A server that answers before it has read everything leaves the rest to be sent on.
                self.begin_receiving();
                let State::Receive(call) = std::mem::replace(&mut self.state, State::Done) else {
                    unreachable!("just set")
                };
                let body = ResponseBody::new(call, std::mem::take(&mut self.deadline));
                response(headers, body)
            }
            Incoming::End(End::Trailers { code, block }) => {
                let mut headers = trailers(code, &block);
                headers.entry(CONTENT_TYPE).or_insert(GRPC);
                response(headers, ResponseBody::ended(call.clone()))
            }
            Incoming::End(end) => return Poll::Ready(Err(call.end_status(end))),
            Incoming::Chunk(_) => return Poll::Ready(Err(Status::internal("a message before the headers"))),
        };
        Poll::Ready(Ok(Some(response)))
    }
}

impl RequestSender {
    /// Sends what is at hand, without asking the body for more.
    fn poll_send_first(&mut self, cx: &mut Context<'_>, call: &ClientCall) -> Poll<Result<(), Status>> {
        match ready!(call.stream.poll_emit(cx, &mut self.emission)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(EmitError::Ended | EmitError::Closed(_)) => {
                self.ended = true;
                self.emission = Emission::default();
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(status::emit(error, &call.peer))),
        }
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let State::Send(call) | State::Receive(call) = &self.state {
            call.stream.cancel(Code::Cancelled as u16);
        }
    }
}

fn response(headers: HeaderMap<HeaderValue>, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.version_mut() = http::Version::HTTP_2;
    *response.headers_mut() = headers;
    response
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match this.poll_step(cx) {
                Poll::Ready(Ok(Some(response))) => return Poll::Ready(Ok(response)),
                Poll::Ready(Ok(None)) => continue,
                Poll::Ready(Err(status)) => return Poll::Ready(Err(status)),
                Poll::Pending => {
                    ready!(this.deadline.poll(cx));
                    if let State::Send(call) | State::Receive(call) = &this.state {
                        call.stream.cancel(Code::DeadlineExceeded as u16);
                    }
                    return Poll::Ready(Err(status::deadline()));
                }
            }
        }
    }
}
