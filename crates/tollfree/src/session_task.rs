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
use tollfree_layout::MethodIdx;
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
/// A method whose first step takes longer than this is served in tasks of its own for a while, so that it holds up
/// neither the ring nor other calls.
const INLINE_NS: u64 = 20_000;
/// The longest such while, in calls; then one is tried here again.
const APART_COUNT_MAX: u32 = 1024;
/// Replies held back to go out together wait for a step of at most this long.
const QUICK_NS: u64 = 4_000;

/// What is known of a method after its first call.
struct Known {
    handler: Option<Arc<dyn Handler>>,
    uri: Uri,
    pace: Pace,
}

/// Whether a method's calls are quick enough to be begun in the session's own task. One that was not is served apart
/// for a number of calls that doubles each time: a single hiccup of the machine costs one call, a method that computes
/// for long is tried once in a thousand.
#[derive(Debug, Default)]
struct Pace {
    /// Calls yet to be served apart.
    apart_count: u32,
    /// How many that were the last time.
    penalty: u32,
    /// The last one begun here was so quick that replies to others may wait for it.
    quick: bool,
}

impl Pace {
    /// Whether the next call is begun here.
    fn is_inline(&mut self) -> bool {
        let inline = self.apart_count == 0;
        self.apart_count = self.apart_count.saturating_sub(1);
        inline
    }

    /// A call begun here took so long for its first step.
    fn learn(&mut self, step_ns: u64) {
        self.quick = step_ns <= QUICK_NS;
        if step_ns > INLINE_NS {
            self.penalty = (self.penalty * 2).clamp(1, APART_COUNT_MAX);
            self.apart_count = self.penalty;
        } else {
            self.penalty /= 2;
        }
    }
}

pub(crate) struct SessionTask {
    attachment: Arc<Attachment>,
    services: Services,
    /// By their indices in the session, of which there is a limited number.
    methods: Vec<Option<Known>>,
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
            methods: Vec::new(),
            extensions,
            tasks: JoinSet::new(),
        }
    }

    /// Serves until the session ends, or until `shutdown` and all calls are answered.
    pub(crate) async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let asked = shutdown.clone();
        let stop = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        tokio::pin!(stop);
        let mut draining = false;
        loop {
            // Calls that never stop coming must keep neither the shutdown nor other tasks waiting.
            tokio::task::consume_budget().await;
            if !draining && asked.has_changed().unwrap_or(true) {
                self.attachment.drain();
                draining = true;
            }
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
        let method = call.method;
        let (mut serving, inline) = self.begin(call);
        if !inline {
            self.tasks.spawn(serving);
            return;
        }
        if !self.known(method).is_some_and(|known| known.pace.quick) {
            self.attachment.flush();
        }
        let began = now_ns();
        let polled = poll_fn(|cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut serving).poll(cx))).await;
        let step_ns = now_ns() - began;
        if let Some(known) = self.known(method) {
            known.pace.learn(step_ns);
        }
        if polled.is_pending() {
            self.tasks.spawn(serving);
        }
    }

    fn known(&mut self, method: Option<MethodIdx>) -> Option<&mut Known> {
        self.methods.get_mut(usize::from(method?.0))?.as_mut()
    }

    fn begin(&mut self, call: Call) -> (Serving, bool) {
        let mut unlisted;
        let place = match call.method.map(|method| usize::from(method.0)) {
            Some(idx) => {
                if self.methods.len() <= idx {
                    self.methods.resize_with(idx + 1, || None);
                }
                &mut self.methods[idx]
            }
            // More names than a session keeps an index of: nothing is learnt about these, or the list had no end.
            None => {
                unlisted = None;
                &mut unlisted
            }
        };
        if place.is_none() {
            *place = known(&call.path, &self.services);
        }
        let Some(known) = place else {
            let refusal = Status::unimplemented("the method's path is not one of gRPC's");
            return (Serving::refused(call.stream, refusal), true);
        };
        let Some(handler) = &known.handler else {
            let refusal = Status::unimplemented(format!("no service here has the method {}", known.uri));
            return (Serving::refused(call.stream, refusal), true);
        };
        let inline = known.pace.is_inline();
        let (handler, uri) = (handler.clone(), known.uri.clone());
        let stream = Arc::new(call.stream);
        let mut request = Request::new(Body::new(RequestBody::new(stream.clone())));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = uri;
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers(&call.headers, call.deadline_ns);
        (Serving::new(stream, call.deadline_ns, handler.handle(request)), inline)
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
    Some(Known { handler: services.get(service).cloned(), uri, pace: Pace::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served_here(pace: &mut Pace, calls: u32, step_ns: u64) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            if pace.is_inline() {
                pace.learn(step_ns);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn one_hiccup_costs_one_call() {
        let mut pace = Pace::default();
        pace.learn(4_000_000);
        assert_eq!(served_here(&mut pace, 100, 1_000), 99);
    }

    #[test]
    fn a_method_that_computes_for_long_is_rarely_begun_here_and_comes_back() {
        let mut pace = Pace::default();
        assert!(served_here(&mut pace, 100_000, 1_000_000) < 120);
        let back = served_here(&mut pace, 10_000, 1_000);
        assert!(back > 8_000, "{back} of 10000 calls");
    }
}
