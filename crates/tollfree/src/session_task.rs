//! One client's session on the server: accepts its calls and serves them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollfree_transport::{Attachment, Call, now_ns};
use tonic::Status;
use tonic::body::Body;

use crate::body::RequestBody;
use crate::metadata::{GRPC, GRPC_TIMEOUT, timeout_value, unpack};
use crate::serving::{Handler, Serving};

/// Services by name, shared by all sessions of a server.
pub(crate) type Services = Arc<HashMap<&'static str, Arc<dyn Handler>>>;

/// Calls served in the session's own task before it looks at the ring again.
const INLINE_COUNT: usize = 16;
/// A method whose first step takes longer than this on average is served in tasks of its own, so that it holds up
/// neither the ring nor other calls.
const INLINE_NS: u64 = 20_000;

/// What is known of a method after its first call.
struct Known {
    handler: Option<Arc<dyn Handler>>,
    uri: Uri,
    /// How long its first step takes, in nanoseconds; recent calls count more.
    step_ns: u64,
}

pub(crate) struct SessionTask {
    attachment: Arc<Attachment>,
    services: Services,
    methods: HashMap<Bytes, Known>,
    /// Given to each request: who is at the other end.
    extensions: Extensions,
    agent: HeaderValue,
    tasks: JoinSet<()>,
}

impl SessionTask {
    pub(crate) fn new(attachment: Attachment, services: Services) -> SessionTask {
        let mut extensions = Extensions::new();
        extensions.insert(attachment.peer());
        let agent = HeaderValue::from_str(attachment.agent());
        SessionTask {
            agent: agent.unwrap_or(HeaderValue::from_static("tollfree")),
            attachment: Arc::new(attachment),
            services,
            methods: HashMap::new(),
            extensions,
            tasks: JoinSet::new(),
        }
    }

    /// Serves until the session ends, or until `shutdown` and all calls are answered.
    pub(crate) async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let stop = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        tokio::pin!(stop);
        let mut draining = false;
        loop {
            let attachment = self.attachment.clone();
            tokio::select! {
                biased;
                call = poll_fn(|cx| attachment.poll_accept(cx)) => match call {
                    Ok(call) => self.serve_batch(call).await,
                    Err(closed) => {
                        tracing::debug!(reason = %closed, "a session ended");
                        return;
                    }
                },
                () = &mut stop, if !draining => {
                    self.attachment.drain();
                    draining = true;
                }
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                () = std::future::ready(()), if draining && self.attachment.live_count() == 0 => {
                    self.attachment.close("the server is shutting down");
                    return;
                }
            }
        }
    }

    async fn serve_batch(&mut self, first: Call) {
        self.serve(first).await;
        for _ in 1..INLINE_COUNT {
            match self.attachment.try_accept() {
                Some(call) => self.serve(call).await,
                None => break,
            }
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// Takes the first step of a call right here; what can't be answered at once goes on in a task.
    async fn serve(&mut self, call: Call) {
        let path = call.path.clone();
        let (mut serving, inline) = match self.begin(call) {
            Ok(begun) => begun,
            Err(refused) => (refused, true),
        };
        if !inline {
            self.tasks.spawn(serving);
            return;
        }
        let began = now_ns();
        let polled = poll_fn(|cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut serving).poll(cx))).await;
        let step_ns = now_ns() - began;
        if let Some(known) = self.methods.get_mut(&path) {
            known.step_ns = (known.step_ns * 7 + step_ns) / 8;
        }
        if polled.is_pending() {
            self.tasks.spawn(serving);
        }
    }

    fn begin(&mut self, call: Call) -> Result<(Serving, bool), Serving> {
        if !self.methods.contains_key(&call.path) {
            match known(&call.path, &self.services) {
                Some(known) => self.methods.insert(call.path.clone(), known),
                None => {
                    let refusal = Status::unimplemented("the method's path is not one of gRPC's");
                    return Err(Serving::refused(call.stream, refusal));
                }
            };
        }
        let known = &self.methods[&call.path];
        let Some(handler) = &known.handler else {
            let refusal = Status::unimplemented(format!("no service here has the method {}", known.uri));
            return Err(Serving::refused(call.stream, refusal));
        };
        let inline = known.step_ns <= INLINE_NS;
        let stream = Arc::new(call.stream);
        let mut request = Request::new(Body::new(RequestBody::new(stream.clone())));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = known.uri.clone();
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers(&call.headers, call.deadline_ns);
        Ok((Serving::new(stream, call.deadline_ns, handler.handle(request)), inline))
    }

    /// The headers that HTTP/2 would have carried.
    fn headers(&self, block: &Bytes, deadline_ns: Option<u64>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(6);
        unpack(block, &mut headers);
        headers.entry(CONTENT_TYPE).or_insert(GRPC);
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        if let Some(deadline_ns) = deadline_ns {
            let left = std::time::Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
            headers.insert(GRPC_TIMEOUT, timeout_value(left));
        }
        headers
    }
}

/// Finds the service of a path. `None`: the path is not one.
fn known(path: &Bytes, services: &Services) -> Option<Known> {
    let text = std::str::from_utf8(path).ok()?;
    let (service, method) = text.strip_prefix('/')?.split_once('/')?;
    if method.is_empty() || method.contains('/') {
        return None;
    }
    let uri = Uri::from(PathAndQuery::from_maybe_shared(path.clone()).ok()?);
    Some(Known { handler: services.get(service).cloned(), uri, step_ns: 0 })
}
