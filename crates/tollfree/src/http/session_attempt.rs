//! One attempt of a call by a session, from request to response head.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use tokio::sync::oneshot;
use tollfree_driver_tokio::{
    Attachment, Closed, End, GRPC_PREFIX_LEN, Incoming, IncomingPiece, Opener, Opening, Outgoing, Part,
    SingleFrame, Started, Stream,
};
use tollfree_layout::metadata::pairs;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call::attempts::Failed;
use crate::call::deadline::Deadline;
use crate::endpoint::Subchannel;
use crate::http::keeping::KeptRequest;
use crate::http::request_sender::RequestSender;
use crate::http::response_body::{ClientCall, HELP_COUNT, ResponseBody, trailers};
use crate::message::out_of_band::{OfClient, OutOfBand};
use crate::message::received::{Given, Later, past};
use crate::metadata::{GRPC, GRPC_STATUS, pack, unpack_but};
use crate::status;

enum State {
    /// On no session.
    Idle,
    /// Opening the call; the opener is of one that has to wait.
    Open(Arc<Attachment>, Option<Opener>),
    /// Sending what did not fit the first frame.
    Send(Arc<ClientCall>),
    /// Waiting for the response to a request that went as a whole: nobody else has to do with the call yet.
    Await(Stream, Arc<Attachment>),
    /// Waiting for the response.
    Receive(Arc<ClientCall>),
    /// The response has come; its message is on its way from another thread.
    Convert(Box<Converted>),
    /// Ended without a response; the request is on its way back from the task that has sent it.
    Return(Box<Return>),
    /// Ended without a response by this session.
    Refused(Arc<Attachment>),
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

/// A response whose message is verified, and perhaps encoded, elsewhere.
struct Converted {
    message: Later,
    headers: HeaderMap,
    code: u16,
    trailers: Bytes,
}

/// An attempt that no server has looked at, until its request is here again.
struct Return {
    back: oneshot::Receiver<RequestSender>,
    attachment: Arc<Attachment>,
    status: Status,
}

/// An attempt under way; resolves to the response's head. Dropping it cancels the call.
pub(crate) struct ResponseFuture {
    endpoint: Arc<Subchannel>,
    path: http::uri::PathAndQuery,
    /// The application's.
    extensions: Extensions,
    /// Where the response's large messages and objects go, if its reader takes them there.
    out_of_band: Option<OutOfBand>,
    /// All of the request, after an attempt that no server has looked at; what is not yet on its way during one.
    sender: Option<RequestSender>,
    deadline_ns: Option<u64>,
    deadline: Deadline,
    state: State,
    /// Whether the request is kept while it may come back.
    keeps: bool,
    /// The request, kept until the server is known to have looked at it.
    kept: Option<KeptRequest>,
}

impl std::fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ResponseFuture {
    /// A call that is to be made by a session of this endpoint, once it is [placed](ResponseFuture::place). One that `keeps`
    /// its request can be placed again after an attempt that no server has looked at.
    ///
    /// # Errors
    /// A request that can't be sent to anybody.
    #[inline]
    pub(crate) fn new(
        endpoint: &Arc<Subchannel>,
        deadline_ns: Option<u64>,
        keeps: bool,
        request: Request<Body>,
    ) -> Result<ResponseFuture, Status> {
        let (parts, body) = request.into_parts();
        let headers = pack(&parts.headers).map_err(|error| {
            status::of_content(Code::ResourceExhausted, format!("request metadata: {error}"))
        })?;
        let path = parts.uri.path_and_query().cloned();
        let path = path.ok_or_else(|| Status::internal("a request without a path"))?;
        let outgoing = Outgoing { headers: Some(headers), ..Outgoing::default() };
        let out_of_band = OfClient::of(&parts.extensions);
        if let Some(out_of_band) = &out_of_band {
            out_of_band.take_from(endpoint.sharing.threshold);
        }
        let sender = RequestSender::new(body, outgoing, out_of_band.clone());
        Ok(ResponseFuture {
            state: State::Idle,
            endpoint: endpoint.clone(),
            path,
            extensions: parts.extensions,
            out_of_band,
            sender: Some(sender),
            deadline_ns,
            deadline: Deadline::new(deadline_ns),
            keeps,
            kept: None,
        })
    }

    /// Makes the call, all of which is here, by this session.
    pub(crate) fn place(&mut self, attachment: Arc<Attachment>) {
        if let Some(sender) = &mut self.sender {
            sender.place(&attachment, &self.path);
        }
        self.state = State::Open(attachment, None);
    }

    /// Whether nothing of the call was sent: it waits for its turn.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.state, State::Open(..))
    }

    /// Whether all of the request is here.
    pub(crate) fn is_whole(&self) -> bool {
        self.sender.is_some()
    }

    /// The session by which the last attempt ended without a response.
    pub(crate) fn refused_by(&self) -> Option<&Arc<Attachment>> {
        match &self.state {
            State::Refused(attachment) => Some(attachment),
            _ => None,
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Failed>> {
        match &mut self.state {
            State::Open(..) => return self.poll_open(cx),
            State::Send(call) => {
                let sender = self.sender.as_mut().expect("kept while sending");
                match sender.poll_send_first(cx, call) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => {
                        // The server may answer before it has read everything.
                        return self.poll_receive(cx, None);
                    }
                }
                self.begin_receiving();
            }
            State::Receive(call) => {
                for _ in 0..HELP_COUNT {
                    if !call.outflow.help(call) {
                        return self.poll_receive(cx, None);
                    }
                    match call.stream.try_incoming() {
                        Ok(None) => {}
                        incoming => return self.poll_receive(cx, incoming.transpose()),
                    }
                }
                call.outflow.leave();
                return self.poll_receive(cx, None);
            }
            State::Await(..) => return self.poll_receive(cx, None),
            State::Convert(converted) => {
                let (message, held) = ready!(converted.message.poll(cx))?;
                let body = ResponseBody::whole(
                    message?,
                    converted.code,
                    std::mem::take(&mut converted.trailers),
                    self.out_of_band.clone(),
                );
                let response = response(std::mem::take(&mut converted.headers), body);
                self.state = State::Done;
                drop(held);
                return Poll::Ready(Ok(Some(response)));
            }
            State::Return(returning) => {
                // Where it is too long by now, it does not come back.
                let sender = ready!(Pin::new(&mut returning.back).poll(cx)).ok();
                self.sender = sender.and_then(RequestSender::again);
                let Return { attachment, status, .. } = &**returning;
                let failed = Failed { status: status.clone(), unseen: true };
                self.state = State::Refused(attachment.clone());
                return Poll::Ready(Err(failed));
            }
            State::Idle | State::Refused(_) | State::Done => {
                return Poll::Ready(Err(Status::internal("the call is on no session").into()));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Opens the call; the response of one whose answer is there at once.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Response<ResponseBody>>, Failed>> {
        // A peer that answers within one look must not keep this task from ever yielding to the others.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
        let State::Open(attachment, opener) = &mut self.state else { unreachable!("the caller has matched") };
        let sender = self.sender.as_mut().expect("kept until opened");
        // A first message that is there already goes in the first frame; headers don't wait for one that isn't.
        match sender.poll_fill(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            Poll::Pending if sender.is_decoding() => return Poll::Pending,
            Poll::Pending | Poll::Ready(Ok(())) => {}
        }
        sender.look_ahead(cx);
        if self.keeps && self.kept.is_none() {
            self.kept = Some(sender.keep());
        }
        sender.address(&self.endpoint.sharing, attachment)?;
        let opening = Opening { path: self.path.as_str(), deadline_ns: self.deadline_ns.unwrap_or(0) };
        let started = match opener {
            None => attachment.start(cx, opening, sender.outgoing_mut(), None),
            Some(_) => Ok(Started::MustWait),
        };
        let mut waits = false;
        let opened = match started {
            Ok(Started::Answered(answer)) => {
                turn.made_progress();
                return Poll::Ready(Ok(self.answered_whole(answer)?));
            }
            Ok(Started::Open(stream)) => Ok(stream),
            Ok(Started::Waits(stream)) => {
                waits = true;
                Ok(stream)
            }
            Err(error) => Err(error),
            Ok(Started::MustWait) => {
                let opener = opener.get_or_insert_with(|| attachment.open());
                ready!(opener.poll_open(cx, opening, sender.outgoing_mut()))
            }
        };
        turn.made_progress();
        let State::Open(attachment, _) = std::mem::replace(&mut self.state, State::Done) else {
            unreachable!("the caller has matched")
        };
        match opened {
            Ok(stream) if sender.is_sent() => {
                self.sender = None;
                self.state = State::Await(stream, attachment);
                if waits {
                    return Poll::Pending;
                }
            }
            Ok(stream) => {
                let is_sent = sender.has_said_all_at_hand();
                let call = self.share(stream, attachment);
                if is_sent {
                    self.state = State::Receive(call);
                    self.begin_receiving();
                } else {
                    self.state = State::Send(call);
                }
            }
            // Nothing of the call was sent.
            Err(error) => {
                self.state = State::Refused(attachment);
                return Poll::Ready(Err(Failed::to_send(error, &self.endpoint.name)));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// A call that more than this future has to do with.
    fn share(&self, stream: Stream, attachment: Arc<Attachment>) -> Arc<ClientCall> {
        Arc::new(ClientCall {
            stream,
            outflow: Default::default(),
            failure: Default::default(),
            peer: self.endpoint.name.clone(),
            sharing: self.endpoint.sharing.clone(),
            attachment,
            still: OnceLock::new(),
        })
    }

    /// What is left of the request goes on in a task of its own.
    fn begin_receiving(&mut self) {
        let (State::Send(call) | State::Receive(call)) = std::mem::replace(&mut self.state, State::Done)
        else {
            return;
        };
        if let Some(mut sender) = self.sender.take() {
            let is_sent = sender.is_sent();
            match &self.kept {
                Some(KeptRequest::Sending) if is_sent => {
                    self.kept = Some(KeptRequest::Sent(Box::new(sender)))
                }
                Some(KeptRequest::Sending) => {
                    self.kept = sender.wanted_back().map(KeptRequest::Away);
                    call.send(sender);
                }
                _ if is_sent => {}
                _ => {
                    sender.settle();
                    call.send(sender);
                }
            }
        }
        self.state = State::Receive(call);
    }

    /// The response, where all of it has come: the call is over. It may have to be [converted](State::Convert) first. Any other call is
    /// from now on shared with its body.
    ///
    /// # Errors
    /// The status for an object that is refused.
    fn whole(&mut self, incoming: &mut Part) -> Result<Option<Response<ResponseBody>>, Status> {
        let State::Await(stream, attachment) = std::mem::replace(&mut self.state, State::Done) else {
            return Ok(None);
        };
        if let (Some(block), Some(chunk), Some(End::Trailers { code, block: trailers })) =
            (&incoming.headers, &mut incoming.chunk, &mut incoming.end)
            && chunk.is_whole()
        {
            let (data, trailers) = (std::mem::take(&mut chunk.bytes).freeze(), std::mem::take(trailers));
            return self.answered(block, data, *code, trailers);
        }
        self.state = State::Receive(self.share(stream, attachment));
        Ok(None)
    }

    /// A response that came in one piece.
    fn answered_whole(&mut self, answer: SingleFrame) -> Result<Option<Response<ResponseBody>>, Status> {
        let headers = Bytes::copy_from_slice(answer.headers());
        let trailers = Bytes::copy_from_slice(answer.trailers());
        self.answered(&headers, answer.into_prefixed(), 0, trailers)
    }

    /// A response all of which has come, with gRPC's prefix before the message. `None`: that is converted first.
    ///
    /// # Errors
    /// The status for an object that is refused.
    fn answered(
        &mut self,
        headers: &Bytes,
        data: Bytes,
        code: u16,
        trailers: Bytes,
    ) -> Result<Option<Response<ResponseBody>>, Status> {
        let sharing = &self.endpoint.sharing;
        self.state = State::Done;
        sharing.received_inline(data.len().saturating_sub(GRPC_PREFIX_LEN), 0);
        let (given, headers) =
            (past(self.out_of_band.as_ref(), 0, data, sharing)?, response_headers(headers));
        match given {
            Given::Now(data) => {
                let body = ResponseBody::whole(data, code, trailers, self.out_of_band.clone());
                Ok(Some(response(headers, body)))
            }
            Given::Later(message) => {
                let converted = Converted { message, headers, code, trailers };
                self.state = State::Convert(Box::new(converted));
                Ok(None)
            }
        }
    }

    /// Goes on with what has come, or waits for that.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        come: Option<Result<Incoming, Closed>>,
    ) -> Poll<Result<Option<Response<ResponseBody>>, Failed>> {
        let stream = self.state.stream().expect("the caller has matched");
        let incoming = match come {
            Some(come) => come,
            None => ready!(stream.poll_incoming(cx)),
        };
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(closed) => return Poll::Ready(Err(status::closed(&closed, &self.endpoint.name).into())),
        };
        let mut incoming = match (incoming, &self.state) {
            (Incoming::Answer(answer), State::Await(..)) => {
                return Poll::Ready(Ok(self.answered_whole(answer)?));
            }
            (incoming, _) => incoming.into_part(),
        };
        if let State::Await(..) = &self.state {
            let response = self.whole(&mut incoming)?;
            if response.is_some() || matches!(self.state, State::Convert(_)) {
                return Poll::Ready(Ok(response));
            }
        }
        let (State::Send(call) | State::Receive(call)) = &self.state else {
            unreachable!("no other waits for a response, or is shared now")
        };
        // What came is never empty.
        let Some(piece) = incoming.take_next() else { return Poll::Ready(Ok(None)) };
        let response = match piece {
            IncomingPiece::Headers(block) => {
                let headers = response_headers(&block);
                self.kept = None;
                // A server that answers before it has read everything leaves the rest to be sent on.
                self.begin_receiving();
                let State::Receive(call) = std::mem::replace(&mut self.state, State::Done) else {
                    unreachable!("just set")
                };
                let deadline = std::mem::take(&mut self.deadline);
                let body = ResponseBody::new(call, incoming, deadline, self.out_of_band.take());
                response(headers, body)
            }
            IncomingPiece::End(End::Trailers { code, block }) => {
                let mut headers = trailers(code, &block);
                headers.entry(CONTENT_TYPE).or_insert(GRPC);
                response(headers, ResponseBody::ended(call.clone()))
            }
            IncomingPiece::End(end) => {
                call.ended();
                let unseen = matches!(end, End::Cancelled { refused: true, .. });
                let status = call.end_status(end);
                let (attachment, sender) = (call.attachment.clone(), self.sender.take());
                self.sender = match self.kept.take().filter(|_| unseen) {
                    None => None,
                    Some(KeptRequest::Whole(outgoing, past)) => Some(RequestSender::whole(outgoing, past)),
                    Some(KeptRequest::Sending) => sender.and_then(RequestSender::again),
                    Some(KeptRequest::Sent(sender)) => sender.again(),
                    Some(KeptRequest::Away(back)) => {
                        self.state = State::Return(Box::new(Return { back, attachment, status }));
                        return Poll::Ready(Ok(None));
                    }
                };
                self.state = State::Refused(attachment);
                return Poll::Ready(Err(Failed { status, unseen }));
            }
            IncomingPiece::Chunk(_) => {
                return Poll::Ready(Err(
                    status::of_content(Code::Internal, "a message before the headers").into()
                ));
            }
        };
        Poll::Ready(Ok(Some(response)))
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let Some(stream) = self.state.stream() {
            stream.cancel(Code::Cancelled as u16);
        }
        if let State::Send(call) | State::Receive(call) = &self.state {
            call.ended();
        }
    }
}

/// The headers that HTTP/2 would carry, with room for trailers: tonic adds them.
fn response_headers(block: &Bytes) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4 + pairs(block).count());
    headers.insert(CONTENT_TYPE, GRPC);
    // A status among the headers would end the call, whatever follows.
    unpack_but(block, &mut headers, |name| *name == GRPC_STATUS);
    headers
}

fn response(headers: HeaderMap<HeaderValue>, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.version_mut() = http::Version::HTTP_2;
    *response.headers_mut() = headers;
    response
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match this.poll_step(cx) {
                Poll::Ready(Ok(Some(response))) => return Poll::Ready(Ok(response)),
                Poll::Ready(Ok(None)) => continue,
                Poll::Ready(Err(failed)) => return Poll::Ready(Err(failed)),
                Poll::Pending => {
                    ready!(this.deadline.poll(cx));
                    if let Some(stream) = this.state.stream() {
                        stream.cancel(Code::DeadlineExceeded as u16);
                    }
                    return Poll::Ready(Err(status::deadline().into()));
                }
            }
        }
    }
}
