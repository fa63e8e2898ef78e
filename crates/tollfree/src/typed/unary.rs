//! A unary call of typed messages: answered by the first session mostly, else made attempt by attempt as the channel says.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes};
use http::Extensions;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tollfree_driver_tokio::{Attachment, SingleFrame};
use tonic::body::Body;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};
use tower_service::Service;

use crate::call::afterwards::Afterwards;
use crate::call::attempts::{Call, Failed, First, Terms, make};
use crate::call::retry::{PREVIOUS_ATTEMPTS, Pushback, pushback};
use crate::channel::Channel;
use crate::endpoint::balance::Picked;
use crate::endpoint::{Connection, Subchannel};
use crate::http::call::{attempt, status_alone};
use crate::http::response_body::{ResponseBody, trailers};
use crate::message::codec::FormDecoder;
use crate::message::deferred::Deferred;
use crate::message::encoding::{
    Gathered, Received, check_received, decode, decode_single_frame, encode, pack_to_keep,
};
use crate::message::form::{Form, Ready as _, types_of};
use crate::metadata::{self, GRPC, template, unpack_custom};
use crate::metrics::MadeCall;
use crate::typed::Named;
use crate::typed::client::{ClientSettings, tonic_client};
use crate::typed::exchange::{self, AttemptState, ExchangeStep, Reply, UnaryAttempt};

/// A unary call.
///
/// # Errors
/// The call's status.
pub(crate) async fn unary<F, M1, M2, N>(
    channel: &Channel,
    settings: &ClientSettings,
    request: &mut Request<M1>,
    method: &N,
    made: Option<MadeCall>,
) -> Result<Response<M2>, Status>
where
    N: Named,
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    // The request stays where it is: parts of it that go from hand to hand are what a call would mostly do.
    let headers = request.metadata().as_ref();
    let block = pack_to_keep(headers).map_err(unsendable)?;
    let inner = channel.inner();
    let terms = Terms::new(inner, method.path(), headers, request.extensions())?.counted(made.clone());
    let call = exchange::Request {
        sharing: channel.sharing(),
        path: method.path(),
        block,
        deadline_ns: terms.deadline_ns,
        len_max: settings.decoding_len_max,
        types: types_of::<F, M1, M2>(),
        made,
    };
    let (mut first, mut begun, mut deferred) = (None, None, None);
    if let Some((endpoint, connection)) = inner.pick_now() {
        let is_plain = inner.plain.is_some();
        let mut guard = if is_plain { None } else { Some(endpoint.begin_call(terms.deadline_ns)) };
        if let Connection::Session(attachment) = &connection {
            if let Some(made) = &call.made {
                made.attempt();
            }
            let mut attempt = UnaryAttempt::new(attachment.clone(), &call);
            attempt.encode::<F, M1>(&call, request.get_mut(), &mut deferred, settings.encoding_len_max)?;
            let mut poll = |cx: &mut Context<'_>| {
                // Nobody asks for metadata again that were packed, unless the call may have to go another way.
                let spent = if is_plain { Some(request.metadata_mut()) } else { None };
                attempt.poll(cx, &call, &endpoint.name, spent)
            };
            match poll_fn(&mut poll).await {
                ExchangeStep::Answered(answer) => {
                    inner.succeeded(&mut guard);
                    return answered::<F, M2>(channel, &call, &answer);
                }
                ExchangeStep::On(mut how) => {
                    // What comes by ref mostly comes in one go, too.
                    if let Some(came) = how.take_answer(&call)? {
                        inner.succeeded(&mut guard);
                        let message = match came.message {
                            Gathered::Here(message) => message,
                            Gathered::Fetching(parts, what) => Box::pin(attempt.fetched(parts, what)).await?,
                        };
                        let message = taken::<F, M2>(&call, message)?;
                        return Ok(response(channel, method.path(), &came.headers, &came.trailers, message));
                    }
                    begun = Some((attempt, *how));
                }
            }
        }
        first = Some(First { picked: Picked { endpoint: endpoint.into_owned(), connection }, guard });
    }
    // Boxed, as is all that few calls come to.
    let mut typed: Box<Typed<'_, F, M1, M2, N>> =
        Box::new(Typed { channel, call, settings, request, deferred, method, begun, reply: PhantomData });
    Box::pin(make(inner, &terms, &mut *typed, first)).await?.result
}

/// A unary call whose first attempt has not been answered, or has not been made.
struct Typed<'a, F, M1, M2, N> {
    channel: &'a Channel,
    call: exchange::Request<'a>,
    settings: &'a ClientSettings,
    request: &'a mut Request<M1>,
    /// The message, if it isn't in the request any more.
    deferred: Option<Arc<Deferred<F, M1>>>,
    method: &'a N,
    begun: Option<(UnaryAttempt, AttemptState)>,
    reply: PhantomData<fn(F) -> M2>,
}

/// A reply, or the status of a call that a server has ended.
struct Ended<M2> {
    result: Result<Response<M2>, Status>,
    /// A status has come, and nothing before it.
    alone: bool,
}

impl<F, M1, M2, N> Call for Typed<'_, F, M1, M2, N>
where
    N: Named,
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    type Reply = Ended<M2>;

    async fn attempt(&mut self, picked: &Picked, failed: u32) -> Result<Ended<M2>, Failed> {
        match &picked.connection {
            Connection::Session(attachment) => self.by_session(&picked.endpoint, attachment, failed).await,
            Connection::Http2(..) => self.by_http2(picked, failed).await,
        }
    }

    /// The message is the caller's, and stays until the call is over.
    fn is_whole(&self) -> bool {
        true
    }

    fn is_too_long(&self) -> bool {
        false
    }

    fn status_alone(reply: &Ended<M2>) -> Option<(Code, Pushback)> {
        match &reply.result {
            Err(status) if reply.alone => Some((status.code(), pushback(status.metadata().as_ref()))),
            _ => None,
        }
    }

    fn say_too_long(_: &mut Ended<M2>) {}

    fn settle(&mut self, reply: &mut Ended<M2>, afterwards: Afterwards) {
        afterwards.end(reply.result.as_ref().map_or_else(Status::code, |_| Code::Ok));
    }
}

impl<F, M1, M2, N> Typed<'_, F, M1, M2, N>
where
    N: Named,
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    async fn by_session(
        &mut self,
        endpoint: &Subchannel,
        attachment: &Arc<Attachment>,
        failed: u32,
    ) -> Result<Ended<M2>, Failed> {
        let (mut attempt, begun) = match self.begun.take() {
            Some(begun) => begun,
            None => {
                if failed > 0 {
                    self.call.block = pack_to_keep(&self.headers(failed)).map_err(unsendable)?;
                }
                let mut attempt = UnaryAttempt::new(attachment.clone(), &self.call);
                let len_max = self.settings.encoding_len_max;
                attempt.encode::<F, M1>(&self.call, self.request.get_mut(), &mut self.deferred, len_max)?;
                (attempt, AttemptState::Not)
            }
        };
        let mut reply = Reply::default();
        let went_on = exchange::go_on(&self.call, &endpoint.name, &mut attempt, begun, &mut reply).await;
        match went_on {
            Err(failed) if reply.headers.is_none() => Err(failed),
            Err(failed) => Ok(Ended { result: Err(failed.status), alone: false }),
            Ok(()) => {
                let alone = reply.headers.is_none() && reply.message.is_none();
                Ok(Ended { result: self.response(reply), alone })
            }
        }
    }

    fn response(&self, mut reply: Reply) -> Result<Response<M2>, Status> {
        if reply.code != 0 {
            return Err(failure(&reply));
        }
        let Some(message) = reply.message.take() else {
            return Err(Status::internal("Missing response message."));
        };
        let headers = reply.headers.as_deref().unwrap_or_default();
        Ok(response(
            self.channel,
            self.method.path(),
            headers,
            &reply.trailers,
            taken::<F, M2>(&self.call, message)?,
        ))
    }

    /// The metadata of an attempt after so many that failed.
    fn headers(&self, failed: u32) -> HeaderMap {
        let mut headers = self.request.metadata().as_ref().clone();
        if failed > 0 {
            headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(failed));
        }
        headers
    }

    /// The same call by tonic's own client, on a connection of HTTP/2.
    async fn by_http2(&mut self, picked: &Picked, failed: u32) -> Result<Ended<M2>, Failed> {
        let metadata = MetadataMap::from_headers(self.headers(failed));
        let mut extensions = self.request.extensions().clone();
        self.method.note(&mut extensions);
        let message = self.deferred.as_ref().map_or(self.request.get_ref(), |deferred| &deferred.message);
        let message = F::ready(message, |message: <F as Form<M1>>::Ready<'_>| {
            let len = message.encoded_len();
            Ok(encode(message, len).into_bytes())
        })?;
        let request = Request::from_parts(metadata, extensions, message);
        let fixed = Fixed {
            picked: picked.clone(),
            deadline_ns: self.call.deadline_ns,
            came: Arc::default(),
            made: self.call.made.clone(),
        };
        let came = fixed.came.clone();
        let mut grpc = tonic_client(self.settings, fixed);
        let result = grpc.unary(request, self.method.path_and_query(), Encoded::<F, M2>(PhantomData)).await;
        let came = *came.lock();
        match (result, came) {
            (result, Http2Progress::Head { alone }) => Ok(Ended { result, alone }),
            (Err(status), Http2Progress::Nothing { unseen }) => Err(Failed { status, unseen }),
            (Ok(_), Http2Progress::Nothing { .. }) => {
                Err(Status::internal("a reply without a response").into())
            }
        }
    }
}

/// What an attempt by HTTP/2 has brought.
#[derive(Clone, Copy)]
enum Http2Progress {
    /// `unseen`: and no server has looked at the call.
    Nothing { unseen: bool },
    /// The response's head. `alone`: which is all.
    Head { alone: bool },
}

impl Default for Http2Progress {
    fn default() -> Http2Progress {
        Http2Progress::Nothing { unseen: false }
    }
}

/// One connection, for tonic's own client and one call.
#[derive(Clone)]
struct Fixed {
    picked: Picked,
    deadline_ns: Option<u64>,
    came: Arc<Mutex<Http2Progress>>,
    made: Option<MadeCall>,
}

impl Service<http::Request<Body>> for Fixed {
    type Response = http::Response<ResponseBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<ResponseBody>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Fixed { picked, deadline_ns, came, made } = self.clone();
        let request = match &made {
            None => request,
            Some(made) => request.map(|body| made.tell_sent(body, None)),
        };
        Box::pin(async move {
            match attempt(&picked, deadline_ns, request).await {
                Ok(mut response) => {
                    if let Some(made) = made {
                        response.body_mut().count(made, None);
                    }
                    *came.lock() = Http2Progress::Head { alone: status_alone(&response).is_some() };
                    Ok(response)
                }
                Err(Failed { status, unseen }) => {
                    *came.lock() = Http2Progress::Nothing { unseen };
                    Err(status)
                }
            }
        })
    }
}

/// Requests that are encoded already, replies as in every call.
struct Encoded<F, M>(PhantomData<fn(F) -> M>);

struct Copied;

impl<F: Form<M>, M: Send + Sync + 'static> Codec for Encoded<F, M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = Copied;
    type Decoder = FormDecoder<F, M>;

    fn encoder(&mut self) -> Copied {
        Copied
    }

    fn decoder(&mut self) -> FormDecoder<F, M> {
        FormDecoder::default()
    }
}

impl Encoder for Copied {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

#[cold]
fn unsendable(error: tollfree_layout::metadata::BlockError) -> Status {
    Status::resource_exhausted(format!("request metadata: {error}"))
}

/// The response of a call all of whose answer has come, with status OK.
///
/// # Errors
/// The status for a message that is longer than the limit, or can't be decoded.
fn answered<F: Form<M2>, M2: Send + Sync + 'static>(
    channel: &Channel,
    call: &exchange::Request<'_>,
    answer: &SingleFrame,
) -> Result<Response<M2>, Status> {
    let long = check_received(answer, call.len_max)?;
    call.sharing.received_inline(answer.message().len(), 0);
    if let Some(made) = &call.made {
        made.received(answer.message().len());
    }
    if F::OBJECTS && answer.is_object() {
        call.sharing.payloads.received_object();
    }
    let message = match long {
        None => decode_single_frame::<F, M2>(answer, None)?,
        Some(object) => decode::<F, M2>(object, None)?,
    };
    Ok(response(channel, call.path, answer.headers(), answer.trailers(), message))
}

/// The message of an answer that came in parts, or together with what is no answer.
///
/// # Errors
/// The status for one that can't be decoded.
fn taken<F: Form<M2>, M2: Send + Sync + 'static>(
    call: &exchange::Request<'_>,
    message: Received,
) -> Result<M2, Status> {
    if let Some(made) = &call.made {
        made.received(message.len());
    }
    if F::OBJECTS && message.is_object() {
        call.sharing.payloads.received_object();
    }
    decode::<F, M2>(message, None)
}

/// A response with the metadata of two packed blocks.
fn response<M2>(channel: &Channel, path: &str, headers: &[u8], trailers: &[u8], message: M2) -> Response<M2> {
    if channel.shows_http_details() {
        return detailed(headers, trailers, message);
    }
    if headers.is_empty() && trailers.is_empty() {
        return Response::new(message);
    }
    let mut metadata = template::of_method(path, headers);
    if !trailers.is_empty() {
        let mut last = HeaderMap::new();
        unpack_custom(trailers, &mut last);
        metadata.extend(last);
    }
    Response::from_parts(MetadataMap::from_headers(metadata), message, Extensions::new())
}

/// The same with what HTTP/2 would have carried.
#[cold]
fn detailed<M2>(headers: &[u8], block: &[u8], message: M2) -> Response<M2> {
    let mut metadata = HeaderMap::with_capacity(4);
    metadata.insert(CONTENT_TYPE, GRPC);
    metadata::unpack(headers, &mut metadata);
    metadata.extend(trailers(0, block));
    Response::from_parts(MetadataMap::from_headers(metadata), message, Extensions::new())
}

/// The status of a reply that is none, as tonic reads it out of headers and trailers.
#[cold]
fn failure(reply: &Reply) -> Status {
    let mut last = trailers(reply.code, &reply.trailers);
    if reply.headers.is_none() {
        last.entry(CONTENT_TYPE).or_insert(GRPC);
    }
    let unknown = || Status::unknown("the server's status can't be read");
    let mut status = Status::from_header_map(&last).unwrap_or_else(unknown);
    if let (Some(block), None) = (&reply.headers, &reply.message) {
        let mut first = HeaderMap::new();
        first.insert(CONTENT_TYPE, GRPC);
        metadata::unpack(block, &mut first);
        let mut merged = std::mem::take(status.metadata_mut()).into_headers();
        merged.extend(first);
        *status.metadata_mut() = MetadataMap::from_headers(merged);
    }
    status
}
