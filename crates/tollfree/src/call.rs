//! One call of a client, from request to response head.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use http_body::Body as _;
use tollfree_layout::metadata::pairs;
use tollfree_transport::{
    Attachment, Emission, EmitError, End, Ending, GRPC_PREFIX_LEN, Incoming, Opener, Opening, Outgoing, Part,
    Started, Stream, now_ns,
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
    /// It is known to which session it goes.
    addressed: bool,
    /// That session, for messages that are still to come: large ones may be made ropes for it.
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
            addressed: false,
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
        match &self.session {
            Some((sharing, session)) => {
                wrap(&mut self.emission.message, self.past.as_deref(), sharing, session)
            }
            None => Ok(()),
        }
    }

    /// It goes to this session.
    fn address(&mut self, sharing: &Arc<Sharing>, session: &Arc<Attachment>) -> Result<(), Status> {
        if !self.addressed {
            self.addressed = true;
            let is_large = |message: &&Outgoing| sharing.is_large(message.data.len());
            self.plain = self.emission.message.as_ref().filter(is_large).cloned();
            wrap(&mut self.emission.message, self.past.as_deref(), sharing, session)?;
            if !self.ended {
                self.session = Some((sharing.clone(), session.clone()));
            }
        }
        Ok(())
    }

    /// It goes to another session after all, and nothing of it has gone anywhere. A message that came past tonic is encoded
    /// anew then.
    fn readdress(&mut self) {
        self.session = None;
        if std::mem::take(&mut self.addressed)
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

/// Makes a message a rope for a session, where that is worth it and the session can have one. One that came past tonic is
/// encoded for it.
fn wrap(
    message: &mut Option<Outgoing>,
    past: Option<&dyn Large>,
    sharing: &Sharing,
    session: &Attachment,
) -> Result<(), Status> {
    if let Some(past) = past {
        *message = Some(past.encode(sharing, session.peer_pool(), session)?);
        return Ok(());
    }
    sharing.wrap(message, session.peer_pool(), session)
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

enum State {
    /// Getting hold of a session.
    Acquire(Acquire),
    /// Opening the call on it; the opener is of one that has to wait.
    Open(Arc<Attachment>, Option<Opener>),
    /// Sending what did not fit the first frame.
    Send(Arc<ClientCall>),
    /// Waiting for the response to a request that went as a whole: nobody else has to do with the call yet.
    Await(Stream, Arc<Attachment>),
    /// Waiting for the response.
    Receive(Arc<ClientCall>),
    Done,
}

impl State {
    /// The call, once it is opened.
    fn stream(&self) -> Option<&Stream> {
        match self {
            State::Await(stream, _) => Some(stream),
            State::Send(call) | State::Receive(call) => Some(&call.stream),
            _ => None,
        }
    }
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
            Some(attachment) => State::Open(attachment, None),
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
        let mut call =
            ResponseFuture::with(endpoint, State::Open(attachment, None), deadline_ns, false, request)?;
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
                self.state = State::Open(attachment, None);
            }
            State::Open(..) => return self.poll_open(cx),
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
            State::Await(..) | State::Receive(_) => return self.poll_receive(cx),
            State::Done => return Poll::Ready(Err(Status::internal("polled after the response"))),
        }
        Poll::Ready(Ok(None))
    }

    /// Opens the call; the response of one whose answer is there at once.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Status>> {
        // A peer that answers within one look must not keep this task from ever yielding to the others.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
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
        let emission = &mut sender.emission;
        let started = match opener {
            None => attachment.start(cx, opening, emission, None),
            Some(_) => Ok(Started::MustWait),
        };
        let mut waits = false;
        let opened = match started {
            Ok(Started::Answered(answer)) => {
                turn.made_progress();
                self.state = State::Done;
                let headers = Bytes::copy_from_slice(answer.headers());
                let trailers = Bytes::copy_from_slice(answer.trailers());
                let message = answer.into_prefixed();
                return Poll::Ready(Ok(Some(self.answered(&headers, message, 0, trailers))));
            }
            Ok(Started::Open(stream)) => Ok(stream),
            Ok(Started::Waits(stream)) => {
                waits = true;
                Ok(stream)
            }
            Err(error) => Err(error),
            Ok(Started::MustWait) => {
                let opener = opener.get_or_insert_with(|| attachment.open());
                ready!(opener.poll_open(cx, opening, emission))
            }
        };
        turn.made_progress();
        let State::Open(attachment, _) = std::mem::replace(&mut self.state, State::Done) else {
            unreachable!("the caller has matched")
        };
        match opened {
            Ok(stream) if sender.ended && emission.is_empty() => {
                self.sender = None;
                self.state = State::Await(stream, attachment);
                if waits {
                    return Poll::Pending;
                }
            }
            Ok(stream) => {
                let is_sent = emission.is_empty();
                let call = self.share(stream, attachment);
                if is_sent {
                    self.state = State::Receive(call);
                    self.begin_receiving();
                } else {
                    self.state = State::Send(call);
                }
            }
            // Nothing of the call was sent.
            Err(EmitError::Closed(_) | EmitError::Draining) if !self.moved => self.move_over(&attachment),
            Err(error) => {
                self.unseen = matches!(error, EmitError::Closed(_) | EmitError::Draining);
                return Poll::Ready(Err(status::emit(error, &self.endpoint.name)));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// A call that more than this future has to do with.
    fn share(&self, stream: Stream, attachment: Arc<Attachment>) -> Arc<ClientCall> {
        Arc::new(ClientCall {
            stream,
            failure: Default::default(),
            peer: self.endpoint.name.clone(),
            sharing: self.endpoint.sharing.clone(),
            attachment,
        })
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

    /// The response, where all of it has come: the call is over. Any other call is from now on shared with its body.
    fn whole(&mut self, arrival: &mut Part) -> Option<Response<ResponseBody>> {
        let State::Await(stream, attachment) = std::mem::replace(&mut self.state, State::Done) else {
            return None;
        };
        if let (Some(block), Some(chunk), Some(End::Trailers { code, block: trailers })) =
            (&arrival.headers, &mut arrival.chunk, &mut arrival.end)
            && chunk.is_whole()
        {
            let (data, trailers) = (std::mem::take(&mut chunk.bytes), std::mem::take(trailers));
            return Some(self.answered(block, data, *code, trailers));
        }
        self.state = State::Receive(self.share(stream, attachment));
        None
    }

    /// A response all of which has come, with gRPC's prefix before the message.
    fn answered(&self, headers: &Bytes, data: Bytes, code: u16, trailers: Bytes) -> Response<ResponseBody> {
        self.endpoint.sharing.received_inline(data.len().saturating_sub(GRPC_PREFIX_LEN), 0);
        response(response_headers(headers), ResponseBody::whole(data, code, trailers))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Status>> {
        let stream = self.state.stream().expect("the caller has matched");
        let mut arrival = match ready!(stream.poll_arrival(cx)) {
            Ok(arrival) => arrival.into_part(),
            Err(closed) => return Poll::Ready(Err(status::closed(&closed, &self.endpoint.name))),
        };
        if let State::Await(..) = &self.state
            && let Some(response) = self.whole(&mut arrival)
        {
            return Poll::Ready(Ok(Some(response)));
        }
        let (State::Send(call) | State::Receive(call)) = &self.state else {
            unreachable!("no other waits for a response, or is shared now")
        };
        // An arrival is never empty.
        let Some(incoming) = arrival.take_next() else { return Poll::Ready(Ok(None)) };
        let response = match incoming {
            Incoming::Headers(block) => {
                let headers = response_headers(&block);
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
        if let Some(stream) = self.state.stream() {
            stream.cancel(Code::Cancelled as u16);
        }
    }
}

/// The headers that HTTP/2 would carry, with room for trailers: tonic adds them.
fn response_headers(block: &Bytes) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4 + pairs(block).count());
    headers.insert(CONTENT_TYPE, GRPC);
    unpack(block, &mut headers);
    headers
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
                    if let Some(stream) = this.state.stream() {
                        stream.cancel(Code::DeadlineExceeded as u16);
                    }
                    return Poll::Ready(Err(status::deadline()));
                }
            }
        }
    }
}
