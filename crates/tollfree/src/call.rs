//! One call of a client, from request to response head.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use http_body::Body as _;
use tollfree_transport::{
    Attachment, Emission, EmitError, End, Ending, Incoming, Opener, Opening, Outgoing, now_ns,
};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::body::{ClientCall, Deadline, ResponseBody, trailers};
use crate::channel::WaitForReady;
use crate::direct::{Bypass, Large, OfClient};
use crate::endpoint::{Acquire, Endpoint};
use crate::framing::Deframer;
use crate::metadata::{GRPC, pack, timeout, unpack};
use crate::payloads::Sharing;
use crate::status;

/// Sends a request body message by message.
struct RequestSender {
    body: Body,
    deframer: Deframer,
    emission: Emission,
    /// The body has ended; its half-close is in `emission` or sent.
    ended: bool,
    /// The body failed after the message at hand.
    failed: Option<Status>,
    /// The session that it goes to, once that is known: large messages may be made ropes for it.
    session: Option<(Arc<Sharing>, Arc<Attachment>)>,
    /// The first message as it was before it became a rope, while it may have to go to another session.
    plain: Option<Outgoing>,
    /// Where large messages come from, and how many have been read from the body.
    bypass: Option<Bypass>,
    count: u64,
    /// The message at hand, if it came past tonic: an empty one stands in for it until it is encoded for a session.
    past: Option<Arc<dyn Large>>,
}

impl RequestSender {
    fn new(body: Body, emission: Emission, bypass: Option<Bypass>) -> RequestSender {
        RequestSender {
            body,
            deframer: Deframer::default(),
            emission,
            ended: false,
            failed: None,
            session: None,
            plain: None,
            bypass,
            count: 0,
            past: None,
        }
    }

    /// All of a request that has gone nowhere yet.
    fn again(kept: Kept) -> RequestSender {
        let Kept { emission, past } = kept;
        RequestSender { ended: true, past, ..RequestSender::new(Body::empty(), emission, None) }
    }

    /// Moves the next message of the body, or its end, into the emission. Pending: the body has nothing now.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.emission.message.is_none() && !self.ended {
            if let Some(message) = self.deframer.next() {
                self.emission.message = Some(message);
                self.past = self.bypass.as_ref().and_then(|bypass| bypass.take_out(self.count));
                self.count += 1;
                if let Err(refused) = self.wrap() {
                    return Poll::Ready(Err(refused));
                }
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

    /// Makes the message at hand a rope, where that is worth it and the session can have one.
    fn wrap(&mut self) -> Result<(), Status> {
        let Some((sharing, session)) = &self.session else { return Ok(()) };
        if let Some(past) = &self.past {
            self.emission.message = Some(past.encode(sharing, session.peer_pool(), &**session)?);
            return Ok(());
        }
        sharing.wrap(&mut self.emission.message, session.peer_pool(), &**session)
    }

    /// It goes to this session.
    fn address(&mut self, sharing: &Arc<Sharing>, session: &Arc<Attachment>) -> Result<(), Status> {
        if self.session.is_none() {
            self.session = Some((sharing.clone(), session.clone()));
            let is_large = |message: &&Outgoing| sharing.is_large(message.data.len());
            self.plain = self.emission.message.as_ref().filter(is_large).cloned();
            self.wrap()?;
        }
        Ok(())
    }

    /// It goes to another session after all, and nothing of it has gone anywhere. A message that came past tonic is encoded
    /// anew then.
    fn readdress(&mut self) {
        if self.session.take().is_some()
            && let Some(plain) = self.plain.take()
        {
            self.emission.message = Some(plain);
        }
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
                    Ok(()) => self.past = None,
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

/// A request as a whole, for any session.
struct Kept {
    emission: Emission,
    past: Option<Arc<dyn Large>>,
}

/// Sends the rest of a request body while the application reads the response.
async fn send_rest(mut sender: RequestSender, call: Arc<ClientCall>) {
    let result = std::future::poll_fn(|cx| sender.poll_send(cx, &call)).await;
    if let Err(failure) = result {
        let code = failure.code() as u16;
        *call.failure.lock() = Some(failure);
        // The application may be waiting for the response: it is to learn of this.
        call.stream.abort(code);
    }
}

/// A timeout as a time on the monotonic clock; never 0, which means none.
pub(crate) fn deadline_ns(timeout: Duration) -> u64 {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(timeout).max(1)
}

/// Whether a call waits for a server instead of failing.
pub(crate) fn does_wait(extensions: &Extensions, channel: bool) -> bool {
    extensions.get::<WaitForReady>().map_or(channel, |wait| wait.0)
}

fn open_on(attachment: Arc<Attachment>) -> State {
    let opener = attachment.open();
    State::Open(attachment, opener)
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
    endpoint: Arc<Endpoint>,
    path: http::uri::PathAndQuery,
    /// The application's, asked when there is no session.
    extensions: Extensions,
    /// Where the response's large messages go, if its reader takes them there.
    bypass: Option<Bypass>,
    /// What the channel does about [`WaitForReady`] by itself.
    waits: bool,
    sender: Option<RequestSender>,
    deadline_ns: Option<u64>,
    deadline: Deadline,
    state: State,
    /// The whole request, kept until the server is known to have looked at it.
    kept: Option<Kept>,
    /// A call that no server has looked at moves over to a new session once.
    moved: bool,
    /// It failed, and no server has looked at it.
    unseen: bool,
}

impl std::fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ResponseFuture {
    /// A call by an endpoint's session, or a new one. The shorter of the request's timeout and `limit` holds.
    ///
    /// # Errors
    /// A request that can't be sent to anybody.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint>,
        limit: Option<Duration>,
        waits: bool,
        request: Request<Body>,
    ) -> Result<ResponseFuture, Status> {
        let wanted = match (timeout(request.headers()), limit) {
            (Some(call), Some(channel)) => Some(call.min(channel)),
            (call, channel) => call.or(channel),
        };
        let state = match endpoint.live() {
            Some(attachment) => open_on(attachment),
            None => State::Acquire(endpoint.acquire(does_wait(request.extensions(), waits))),
        };
        ResponseFuture::with(endpoint, state, wanted.map(deadline_ns), waits, request)
    }

    /// A call by a session that somebody has chosen, and by no other.
    ///
    /// # Errors
    /// A request that can't be sent to anybody.
    pub(crate) fn on(
        endpoint: &Arc<Endpoint>,
        attachment: Arc<Attachment>,
        deadline_ns: Option<u64>,
        request: Request<Body>,
    ) -> Result<ResponseFuture, Status> {
        let mut call = ResponseFuture::with(endpoint, open_on(attachment), deadline_ns, false, request)?;
        call.moved = true;
        Ok(call)
    }

    #[inline]
    fn with(
        endpoint: &Arc<Endpoint>,
        state: State,
        deadline_ns: Option<u64>,
        waits: bool,
        request: Request<Body>,
    ) -> Result<ResponseFuture, Status> {
        let (parts, body) = request.into_parts();
        let headers = pack(&parts.headers)
            .map_err(|error| Status::resource_exhausted(format!("request metadata: {error}")))?;
        let path = parts.uri.path_and_query().cloned();
        let path = path.ok_or_else(|| Status::internal("a request without a path"))?;
        let emission = Emission { headers: Some(headers), ..Emission::default() };
        let bypass = parts.extensions.get().map(|OfClient(bypass)| bypass.clone());
        if let Some(bypass) = &bypass {
            bypass.take_from(endpoint.sharing.threshold);
        }
        let sender = RequestSender::new(body, emission, bypass.clone());
        Ok(ResponseFuture {
            state,
            endpoint: endpoint.clone(),
            path,
            extensions: parts.extensions,
            bypass,
            waits,
            sender: Some(sender),
            deadline_ns,
            deadline: Deadline::new(deadline_ns),
            kept: None,
            moved: false,
            unseen: false,
        })
    }

    /// Whether no server has looked at the call, which has failed.
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen
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
        if sender.ended && !self.moved && self.kept.is_none() {
            self.kept = Some(Kept { emission: sender.emission.clone(), past: sender.past.clone() });
        }
        sender.address(&self.endpoint.sharing, attachment)?;
        let opening = Opening { path: self.path.as_str(), deadline_ns: self.deadline_ns.unwrap_or(0) };
        let stream = match ready!(opener.poll_open(cx, opening, &mut sender.emission)) {
            Ok(stream) => stream,
            Err(EmitError::Closed(_) | EmitError::Draining) if !self.moved => {
                // Nothing of the call was sent.
                let attachment = attachment.clone();
                self.move_over(&attachment);
                return Poll::Ready(Ok(()));
            }
            Err(error) => {
                self.unseen = matches!(error, EmitError::Closed(_) | EmitError::Draining);
                return Poll::Ready(Err(status::emit(error, &self.endpoint.name)));
            }
        };
        let call = Arc::new(ClientCall {
            stream,
            failure: Default::default(),
            peer: self.endpoint.name.clone(),
            sharing: self.endpoint.sharing.clone(),
            attachment: attachment.clone(),
        });
        if sender.emission.is_empty() {
            sender.past = None;
            self.state = State::Receive(call);
            self.begin_receiving();
        } else {
            self.state = State::Send(call);
        }
        Poll::Ready(Ok(()))
    }

    /// The session is over or draining, and its server has not looked at the call: it is made in a new one.
    fn move_over(&mut self, attachment: &Arc<Attachment>) {
        let waits = does_wait(&self.extensions, self.waits);
        // One that waits anyway does so until a session takes it.
        self.moved = !waits;
        if let Some(sender) = &mut self.sender {
            sender.readdress();
        }
        self.endpoint.retire(attachment);
        self.state = State::Acquire(self.endpoint.acquire(waits));
    }

    /// A server that drains has refused the call without looking at it. Moves it over if all of it is still here.
    fn resend(&mut self) -> bool {
        let (State::Send(call) | State::Receive(call)) = &self.state else { return false };
        let attachment = call.attachment.clone();
        // One that is open refuses for another reason, and would again.
        if attachment.is_open() {
            return false;
        }
        let Some(kept) = self.kept.take() else { return false };
        self.sender = Some(RequestSender::again(kept));
        self.move_over(&attachment);
        true
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
        let mut arrival = match ready!(call.stream.poll_arrival(cx)) {
            Ok(arrival) => arrival,
            Err(closed) => return Poll::Ready(Err(status::closed(&closed, &call.peer))),
        };
        // An arrival is never empty.
        let Some(incoming) = arrival.take_next() else { return Poll::Ready(Ok(None)) };
        let response = match incoming {
            Incoming::Headers(block) => {
                let mut headers = HeaderMap::with_capacity(1);
                headers.insert(CONTENT_TYPE, GRPC);
                unpack(&block, &mut headers);
                self.kept = None;
                // A server that answers before it has read everything leaves the rest to be sent on.
                self.begin_receiving();
                let State::Receive(call) = std::mem::replace(&mut self.state, State::Done) else {
                    unreachable!("just set")
                };
                let deadline = std::mem::take(&mut self.deadline);
                let body = ResponseBody::new(call, arrival, deadline, self.bypass.take());
                response(headers, body)
            }
            Incoming::End(End::Trailers { code, block }) => {
                let mut headers = trailers(code, &block);
                headers.entry(CONTENT_TYPE).or_insert(GRPC);
                response(headers, ResponseBody::ended(call.clone()))
            }
            Incoming::End(End::Cancelled { refused: true, .. }) if self.resend() => {
                return Poll::Ready(Ok(None));
            }
            Incoming::End(end) => {
                self.unseen = matches!(end, End::Cancelled { refused: true, .. });
                let (State::Send(call) | State::Receive(call)) = &self.state else {
                    unreachable!("the call has not moved")
                };
                return Poll::Ready(Err(call.end_status(end)));
            }
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
