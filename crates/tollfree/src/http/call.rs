//! HTTP requests as calls of a channel (level 1): sent by a session, or by HTTP/2 where an endpoint is reached so.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http::{Extensions, HeaderMap, HeaderValue, Request, Response, Uri};
use tollfree_driver_tokio::Attachment;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call::afterwards::Afterwards;
use crate::call::attempts::{Call, Failed, First, TOO_LONG, Terms, make};
use crate::call::retry::{PREVIOUS_ATTEMPTS, Pushback, pushback};
use crate::call::routing::Routing;
use crate::endpoint::balance::Picked;
use crate::endpoint::{Connection, Subchannel};
use crate::http::http2_attempt;
use crate::http::replay::Replay;
use crate::http::response_body::ResponseBody;
use crate::http::session_attempt::ResponseFuture;
use crate::message::converter::Converter;
use crate::message::holdings::Holdings;
use crate::message::out_of_band::{OfClient, OutOfBand};
use crate::metadata::{GRPC_MESSAGE, status_code};
use crate::metrics::MadeCall;

/// Makes a call of a channel that chooses: its request may be sent several times.
///
/// # Errors
/// The call's status.
pub(crate) async fn run(
    channel: Arc<Routing>,
    request: Request<Body>,
    made: Option<MadeCall>,
) -> Result<Response<ResponseBody>, Status> {
    let (parts, body) = request.into_parts();
    let terms = Terms::new(&channel, parts.uri.path(), &parts.headers, &parts.extensions)?;
    let terms = terms.counted(made.clone());
    let deadline_ns = terms.deadline_ns;
    let mut call = Replayed::new(parts.uri.clone(), parts.headers, parts.extensions, body, deadline_ns);
    call.made = made;
    make(&channel, &terms, &mut call, None).await
}

/// Changes a request before it is sent, which may be more than once: its headers, and its body for another one.
pub type RequestChange = dyn Fn(&mut HeaderMap, Body) -> Body + Send + Sync;

/// A request that can be sent again while it is short.
pub(crate) struct Replayed {
    uri: Uri,
    headers: HeaderMap,
    extensions: Extensions,
    replay: Replay,
    deadline_ns: Option<u64>,
    /// Where the channel has metrics.
    made: Option<MadeCall>,
    /// How each attempt's request is changed, where a gateway has something to change.
    change: Option<Arc<RequestChange>>,
}

impl Replayed {
    pub(crate) fn new(
        uri: Uri,
        headers: HeaderMap,
        extensions: Extensions,
        body: Body,
        deadline_ns: Option<u64>,
    ) -> Replayed {
        let replay = Replay::new(body, OfClient::of(&extensions));
        Replayed { uri, headers, extensions, replay, deadline_ns, made: None, change: None }
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Its messages are changed on their way, or are not any more. What is held of objects of its answer is counted.
    pub(crate) fn convert(
        &mut self,
        converter: Option<Arc<dyn Converter>>,
        holdings: Option<Arc<dyn Holdings>>,
    ) {
        let out_of_band = self
            .extensions
            .remove()
            .and_then(|OfClient(out_of_band)| out_of_band.handed_to(converter.clone()));
        if let Some(out_of_band) = out_of_band.or_else(|| converter.map(OutOfBand::of_converter)) {
            self.extensions.insert(OfClient(out_of_band.counted(holdings)));
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Each attempt's request is changed so, or not any more.
    pub(crate) fn change(&mut self, change: Option<Arc<RequestChange>>) {
        self.change = change;
    }

    /// One attempt by a session, which ends when `withdrawn` resolves while nothing of the request was sent. One that no server has looked at is
    /// none to the server that answers. `failed`: how many have failed before.
    pub(crate) async fn attempt_unless(
        &self,
        endpoint: &Arc<Subchannel>,
        attachment: &Arc<Attachment>,
        failed: u32,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<Response<ResponseBody>, Failed> {
        let mut call = ResponseFuture::new(endpoint, self.deadline_ns, false, self.request(failed))?;
        call.place(attachment.clone());
        let mut withdrawn = pin!(withdrawn);
        poll_fn(|cx| {
            if let Poll::Ready(answered) = Pin::new(&mut call).poll(cx) {
                return Poll::Ready(answered);
            }
            // Polled only while it matters: most calls are sent at once. One of which a part is gone already stays where it is.
            if call.is_unsent() && self.replay.is_whole() && withdrawn.as_mut().poll(cx).is_ready() {
                let status = Status::unavailable(format!("{} takes no calls at the moment", endpoint.name));
                return Poll::Ready(Err(Failed { status, unseen: true }));
            }
            Poll::Pending
        })
        .await
    }

    /// A server has answered: what comes of the request from here on need not be kept.
    pub(crate) fn commit(&self) {
        self.replay.commit();
    }

    /// The request of the next attempt.
    fn request(&self, failed: u32) -> Request<Body> {
        let body = self.replay.again();
        let mut headers = self.headers.clone();
        let body = match &self.change {
            Some(change) => change(&mut headers, body),
            None => body,
        };
        let mut request = Request::new(match &self.made {
            None => body,
            Some(made) => made.tell_sent(body, OfClient::of(&self.extensions)),
        });
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.extensions.clone();
        if failed > 0 {
            request.headers_mut().insert(PREVIOUS_ATTEMPTS, HeaderValue::from(failed));
        }
        request
    }
}

impl Call for Replayed {
    type Reply = Response<ResponseBody>;

    async fn attempt(&mut self, picked: &Picked, failed: u32) -> Result<Response<ResponseBody>, Failed> {
        attempt(picked, self.deadline_ns, self.request(failed)).await
    }

    fn is_whole(&self) -> bool {
        self.replay.is_whole()
    }

    fn is_too_long(&self) -> bool {
        self.replay.is_too_long()
    }

    fn status_alone(reply: &Response<ResponseBody>) -> Option<(Code, Pushback)> {
        status_alone(reply).map(|code| (code, pushback(reply.headers())))
    }

    fn say_too_long(reply: &mut Response<ResponseBody>) {
        let headers = reply.headers_mut();
        let before = headers.get(GRPC_MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
        if let Ok(words) = HeaderValue::from_bytes(&[before, TOO_LONG.as_bytes()].concat()) {
            headers.insert(GRPC_MESSAGE, words);
        }
    }

    fn settle(&mut self, reply: &mut Response<ResponseBody>, afterwards: Afterwards) {
        self.replay.commit();
        reply.body_mut().afterwards(afterwards);
    }
}

/// The code of a response that is nothing but a status.
pub(crate) fn status_alone(response: &Response<ResponseBody>) -> Option<Code> {
    status_code(response.headers()).map(|code| Code::from_i32(code.into()))
}

/// Goes on with a call of a plain channel, in which nothing has to be decided: the channel has no session now, or the one
/// that the call was placed on has `failed` without its server having looked at it.
///
/// # Errors
/// The call's status.
pub(crate) async fn move_over(
    channel: Arc<Routing>,
    call: ResponseFuture,
    failed: Option<Failed>,
    made: Option<MadeCall>,
) -> Result<Response<ResponseBody>, Status> {
    let refused = call.refused_by().cloned();
    let first = channel.plain.clone().zip(refused).map(|(endpoint, attachment)| First {
        picked: Picked { endpoint, connection: Connection::Session(attachment) },
        guard: None,
    });
    let (path, extensions) = (call.path().to_owned(), call.extensions().clone());
    let terms = Terms::until(&channel, &path, call.deadline_ns(), &extensions).counted(made);
    make(&channel, &terms, &mut SingleUseRequest { call, failed }, first).await
}

/// A request that is sent once, by the first session that takes it.
struct SingleUseRequest {
    call: ResponseFuture,
    /// What its first attempt has come to.
    failed: Option<Failed>,
}

impl Call for SingleUseRequest {
    type Reply = Response<ResponseBody>;

    async fn attempt(&mut self, picked: &Picked, _: u32) -> Result<Response<ResponseBody>, Failed> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let Connection::Session(attachment) = &picked.connection else {
            return Err(Status::internal("a plain channel has sessions only").into());
        };
        self.call.place(attachment.clone());
        (&mut self.call).await
    }

    fn is_whole(&self) -> bool {
        self.call.is_whole()
    }

    fn is_too_long(&self) -> bool {
        false
    }

    fn status_alone(_: &Response<ResponseBody>) -> Option<(Code, Pushback)> {
        None
    }

    fn say_too_long(_: &mut Response<ResponseBody>) {}

    fn settle(&mut self, _: &mut Response<ResponseBody>, _: Afterwards) {}
}

/// One attempt, on one connection.
pub(crate) async fn attempt(
    picked: &Picked,
    deadline_ns: Option<u64>,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, Failed> {
    let Picked { endpoint, connection } = picked;
    match connection {
        Connection::Session(attachment) => {
            let mut call = ResponseFuture::new(endpoint, deadline_ns, false, request)?;
            call.place(attachment.clone());
            call.await
        }
        Connection::Http2(channel, _) => {
            http2_attempt::attempt(channel.clone(), endpoint, deadline_ns, request).await
        }
    }
}
