//! Calls of a channel that has something to decide: which endpoint, whether to wait, whether to try again.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderValue, Request, Response, Uri};
use tollfree_transport::now_ns;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::balance::Picked;
use crate::body::{Afterwards, Deadline, ResponseBody};
use crate::call::{ResponseFuture, deadline_ns};
use crate::channel::{Inner, WaitForReady};
use crate::direct::OfClient;
use crate::endpoint::{Connection, Endpoint};
use crate::framing::Told;
use crate::metadata::{GRPC_MESSAGE, GRPC_TIMEOUT, status_code, timeout, timeout_value};
use crate::replay::Replay;
use crate::retry::{Attempts, PREVIOUS_ATTEMPTS, Pushback};
use crate::service_config::MethodConfig;
use crate::status;

/// An attempt that brought no response.
pub(crate) struct Failed {
    status: Status,
    /// No server has looked at the call: it may be made elsewhere.
    unseen: bool,
}

/// Makes a call: chooses an endpoint, and another, or the same again, where that is allowed.
pub(crate) async fn run(
    channel: Arc<Inner>,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, Status> {
    let (parts, body) = request.into_parts();
    let method = channel.config.method(parts.uri.path()).clone();
    let asked = parts.extensions.get::<WaitForReady>().map(|wait| wait.0);
    let wanted = [timeout(&parts.headers), channel.timeout, method.timeout].into_iter().flatten().min();
    let call = ManagedCall {
        waits: asked.or(method.waits).unwrap_or(channel.waits),
        deadline_ns: wanted.map(deadline_ns),
        replay: Replay::new(body, parts.extensions.get().map(|OfClient(bypass)| bypass.clone())),
        uri: parts.uri,
        headers: parts.headers,
        extensions: parts.extensions,
        channel,
        method,
    };
    let mut deadline = Deadline::new(call.deadline_ns);
    let made = call.make();
    tokio::pin!(made);
    tokio::select! {
        biased;
        result = &mut made => result,
        () = poll_fn(|cx| deadline.poll(cx)) => Err(status::deadline()),
    }
}

/// What comes after an attempt that failed.
enum Next {
    /// Another attempt.
    Again,
    /// None.
    Over,
    /// None, though the policy says so: the request is not kept any more.
    TooLong,
}

/// What a call's status says that is not made again for its length.
const TOO_LONG: &str = " [not made again, as the retry policy says: more than 256 KiB of the request were sent, which is what a channel keeps]";

impl Next {
    /// # Errors
    /// The status that the call ends with, unless it is made again.
    fn or_fail(self, status: Status) -> Result<(), Status> {
        match self {
            Next::Again => Ok(()),
            Next::Over => Err(status),
            Next::TooLong => {
                let (code, words) = (status.code(), format!("{}{TOO_LONG}", status.message()));
                let details = status.details().to_vec().into();
                let mut told =
                    Status::with_details_and_metadata(code, words, details, status.metadata().clone());
                told.set_source(Arc::new(status));
                Err(told)
            }
        }
    }
}

/// The same, in the headers of an answer that is nothing but a status.
fn say_too_long(headers: &mut HeaderMap) {
    let before = headers.get(GRPC_MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
    if let Ok(words) = HeaderValue::from_bytes(&[before, TOO_LONG.as_bytes()].concat()) {
        headers.insert(GRPC_MESSAGE, words);
    }
}

struct ManagedCall {
    channel: Arc<Inner>,
    method: Arc<MethodConfig>,
    uri: Uri,
    headers: HeaderMap,
    extensions: Extensions,
    replay: Replay,
    deadline_ns: Option<u64>,
    waits: bool,
}

impl ManagedCall {
    async fn make(self) -> Result<Response<ResponseBody>, Status> {
        let mut attempts = Attempts::default();
        // Each endpoint may turn a call away once, and one more for the one that has come back meanwhile.
        let mut turns_left = self.channel.balancer.endpoints().len() + 1;
        let mut avoid: Option<Arc<Endpoint>> = None;
        loop {
            let picked = match self.channel.balancer.pick(self.waits, avoid.as_ref()).await {
                Ok(picked) => picked,
                Err(failed) => {
                    self.again(&mut attempts, failed.code(), Pushback::None).await.or_fail(failed)?;
                    continue;
                }
            };
            let guard = picked.endpoint.begin_call();
            let request = self.request(&attempts);
            match attempt(&picked, self.deadline_ns, request).await {
                Ok(mut response) => {
                    let ended = trailers_only(&response);
                    if let Some(code) = ended.filter(|code| *code != Code::Ok) {
                        match self.again(&mut attempts, code, Pushback::of(response.headers())).await {
                            Next::Again => continue,
                            Next::TooLong => say_too_long(response.headers_mut()),
                            Next::Over => {}
                        }
                    }
                    self.replay.commit();
                    if ended == Some(Code::Ok) {
                        self.channel.throttle.iter().for_each(|throttle| throttle.succeeded());
                    }
                    let throttle = self.channel.throttle.clone().filter(|_| ended.is_none());
                    let codes =
                        self.method.retry.as_ref().map(|retry| retry.codes.clone()).unwrap_or_default();
                    response.body_mut().afterwards(Afterwards { _guard: guard, throttle, codes });
                    return Ok(response);
                }
                Err(failed) if failed.unseen && turns_left > 0 && self.replay.is_whole() => {
                    turns_left -= 1;
                    picked.endpoint.retire_connection(&picked.connection);
                    avoid = Some(picked.endpoint);
                }
                Err(failed) => {
                    let code = failed.status.code();
                    let pushback = Pushback::of(failed.status.metadata().as_ref());
                    self.again(&mut attempts, code, pushback).await.or_fail(failed.status)?;
                    avoid = Some(picked.endpoint);
                }
            }
        }
    }

    /// Notes that an attempt failed, and waits until it is time for another, where one is to be made.
    async fn again(&self, attempts: &mut Attempts, code: Code, pushback: Pushback) -> Next {
        let policy = self.method.retry.as_ref();
        let Some(pause) = attempts.fail(policy, self.channel.throttle.as_deref(), code, pushback) else {
            return Next::Over;
        };
        if self.replay.is_too_long() {
            return Next::TooLong;
        }
        if !self.replay.is_whole() || self.is_beyond_deadline(pause) {
            return Next::Over;
        }
        tracing::debug!(
            path = self.uri.path(),
            ?code,
            attempt = attempts.failed,
            ?pause,
            "making a call again"
        );
        tokio::time::sleep(pause).await;
        Next::Again
    }

    /// Whether the deadline passes while a pause lasts.
    fn is_beyond_deadline(&self, pause: Duration) -> bool {
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns.is_some_and(|deadline_ns| now_ns().saturating_add(pause_ns) >= deadline_ns)
    }

    /// The request of the next attempt.
    fn request(&self, attempts: &Attempts) -> Request<Body> {
        let mut request = Request::new(self.replay.again());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        if attempts.failed > 0 {
            request.headers_mut().insert(PREVIOUS_ATTEMPTS, HeaderValue::from(attempts.failed));
        }
        request
    }
}

/// The status of a response that has nothing else.
fn trailers_only(response: &Response<ResponseBody>) -> Option<Code> {
    status_code(response.headers()).map(|code| Code::from_i32(code.into()))
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
            let mut call = ResponseFuture::on(endpoint, attachment.clone(), deadline_ns, request)
                .map_err(|status| Failed { status, unseen: false })?;
            let result = (&mut call).await;
            result.map_err(|status| Failed { status, unseen: call.is_unseen() })
        }
        Connection::Http2(channel, _) => attempt_http2(channel.clone(), endpoint, deadline_ns, request).await,
    }
}

async fn attempt_http2(
    mut channel: tonic::transport::Channel,
    endpoint: &Endpoint,
    deadline_ns: Option<u64>,
    mut request: Request<Body>,
) -> Result<Response<ResponseBody>, Failed> {
    if let Some(deadline_ns) = deadline_ns {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        request.headers_mut().insert(GRPC_TIMEOUT, timeout_value(left));
    }
    let failed = |error: tonic::transport::Error| {
        let unseen = status::is_unseen_by_http2(&error);
        let status = status::in_time(status::http2(error, &endpoint.name), deadline_ns);
        Failed { status, unseen }
    };
    poll_fn(|cx| channel.poll_ready(cx)).await.map_err(failed)?;
    let (sent, received) = (endpoint.sharing.clone(), endpoint.sharing.clone());
    let request = request.map(|body| Told::body(body, move |len| sent.sent_by_http2(len)));
    let response = channel.call(request).await.map_err(failed)?;
    Ok(response.map(|body| {
        let body = Told::body(body, move |len| received.received_by_http2(len));
        ResponseBody::http2(body, Deadline::new(deadline_ns))
    }))
}

impl Failed {
    /// What the application is told.
    pub(crate) fn into_status(self) -> Status {
        self.status
    }
}
