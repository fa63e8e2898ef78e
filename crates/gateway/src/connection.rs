//! One connection from outside: HTTP/2, and what it may do.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tollfree::gateway::{Greeting, Lingering};

use crate::bodies::Answer;
use crate::client::Client;
use crate::config::{Limits, WebConfig};
use crate::connections::Connected;
use crate::frontend::Frontend;
use crate::refusal::Refusal;
use crate::unread::{Calls, Watched};
use crate::web;

/// What HTTP/2 begins with: the preface, and the head of a SETTINGS frame.
const BEGINNING_LEN: u64 = 24 + 9;
/// How often a silent peer is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(60);
/// As above.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The shortest buffer that hyper has for a head of HTTP/1.1, in bytes.
const HEAD_LEN_MIN: usize = 8192;
/// A client without a call has so long to answer the PING that follows GOAWAY. Any HTTP/2 stack does so by itself.
const QUIET: Duration = Duration::from_secs(1);

/// What a connection does, as its limits see it.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The longest header list that the client says it takes; `u32::MAX` where it doesn't say.
    header_list_max: AtomicU32,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    calls: AtomicU32,
    calls_total: AtomicU64,
    /// When the last call ended.
    idle_since: Mutex<Instant>,
    /// The last call under way has ended.
    last_ended: Notify,
    resets: Mutex<Bucket>,
    is_stormed: AtomicBool,
    storm: Notify,
}

/// Resets that a connection has left.
#[derive(Debug)]
struct Bucket {
    left: u32,
    burst: u32,
    every: Duration,
    filled: Instant,
}

impl Bucket {
    fn new(burst: u32, every: Duration) -> Bucket {
        Bucket { left: burst, burst, every, filled: Instant::now() }
    }

    /// Takes one; false if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let new = now.saturating_duration_since(self.filled).as_nanos() / self.every.as_nanos().max(1);
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        if new > 0 {
            self.left = self.left.saturating_add(new).min(self.burst);
            self.filled = now;
        }
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Meter {
        Meter {
            header_list_max: AtomicU32::new(u32::MAX),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            calls_total: AtomicU64::new(0),
            idle_since: Mutex::new(Instant::now()),
            last_ended: Notify::new(),
            resets: Mutex::new(Bucket::new(limits.reset_burst, Duration::from_millis(limits.reset_every_ms))),
            is_stormed: AtomicBool::new(false),
            storm: Notify::new(),
        }
    }

    fn call_began(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.calls_total.fetch_add(1, Ordering::Relaxed);
    }

    /// The longest header list that the client takes, in bytes by HTTP/2's count, where that is less than `limit`.
    pub(crate) fn header_list_max(&self, limit: u32) -> u32 {
        self.header_list_max.load(Ordering::Relaxed).min(limit)
    }

    /// Calls under way, calls that there were, bytes that came and bytes that went.
    pub(crate) fn counts(&self) -> (u32, u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (
            self.calls.load(Ordering::Relaxed),
            of(&self.calls_total),
            of(&self.read_bytes),
            of(&self.written_bytes),
        )
    }

    pub(crate) fn call_ended(&self) {
        *self.idle_since.lock() = Instant::now();
        if self.calls.fetch_sub(1, Ordering::Release) == 1 {
            self.last_ended.notify_one();
        }
    }

    /// Waits until no call is under way.
    async fn calls_ended(&self) {
        while self.calls.load(Ordering::Acquire) > 0 {
            self.last_ended.notified().await;
        }
    }

    /// A call ended before its answer did: its client has reset it, or is gone.
    pub(crate) fn was_reset(&self) {
        if !self.resets.lock().take(Instant::now()) {
            self.is_stormed.store(true, Ordering::Relaxed);
            self.storm.notify_one();
        }
    }

    /// Whether a client that had sent so many bytes when it was told of the end has sent nothing since, and has no call.
    fn is_quiet(&self, told: u64) -> bool {
        self.read_bytes.load(Ordering::Relaxed) == told
            && self.idle_since().is_some_and(|since| since.elapsed() >= QUIET)
    }

    fn idle_since(&self) -> Option<Instant> {
        (self.calls.load(Ordering::Relaxed) == 0).then(|| *self.idle_since.lock())
    }
}

/// A socket whose bytes are counted, and that is written to when the tasks that are ready had their turn: what several calls have
/// to say then goes out together.
struct Metered<S> {
    inner: Lingering<S>,
    meter: Arc<Meter>,
    greeting: Greeting,
    /// The others had their turn since the last flush.
    is_due: bool,
}

impl<S> Metered<S> {
    /// Ready when the others had their turn.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_due, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.meter.read_bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        if !self.greeting.is_over()
            && let Some(max) = self.greeting.read(&buffer.filled()[before..])
        {
            self.meter.header_list_max.store(max, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_due(cx));
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.meter.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_due(cx));
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, slices))?;
        self.meter.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.is_due = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

fn builder(limits: &Limits) -> http2::Builder<Calls> {
    let mut builder = http2::Builder::new(Calls);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        // Up to twice the limit the gateway refuses in words; beyond, HTTP/2 does with 431.
        .max_header_list_size(limits.header_bytes.saturating_mul(2))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// What may end a connection, in the order in which it is looked at.
struct Ends {
    begun_by: Instant,
    age: Option<Instant>,
    idle: Duration,
    has_begun: bool,
}

/// What the clock says about a connection.
enum Due {
    Nothing(Instant),
    /// No further call.
    Drain(Refusal),
    /// Nothing more at all.
    Cut(Refusal),
}

impl Ends {
    fn new(limits: &Limits, begun_by: Instant) -> Ends {
        let now = Instant::now();
        let age = (limits.age_ms > 0).then(|| now + Duration::from_millis(limits.age_ms));
        Ends { begun_by, age, idle: Duration::from_millis(limits.idle_ms), has_begun: false }
    }

    fn has_begun(&mut self, meter: &Meter) -> bool {
        self.has_begun |= meter.read_bytes.load(Ordering::Relaxed) >= BEGINNING_LEN;
        self.has_begun
    }

    fn due(&mut self, meter: &Meter, now: Instant) -> Due {
        if !self.has_begun(meter) && now >= self.begun_by {
            return Due::Cut(Refusal::Handshake);
        }
        let idle = meter.idle_since().map(|since| since + self.idle);
        if idle.is_some_and(|end| now >= end) {
            return Due::Drain(Refusal::Idle);
        }
        if self.age.is_some_and(|age| now >= age) {
            return Due::Drain(Refusal::Age);
        }
        let handshake = (!self.has_begun).then_some(self.begun_by);
        let next = [idle.or(Some(now + self.idle)), self.age, handshake].into_iter().flatten().min();
        Due::Nothing(next.unwrap_or(now + self.idle))
    }
}

/// Serves a connection of a listener until it and its calls have ended. `begun_by` is when HTTP/2 must have begun.
pub(crate) async fn serve<S>(
    frontend: Arc<Frontend>,
    socket: S,
    client: Client,
    (listener, is_tls): (&str, bool),
    begun_by: Instant,
    stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // HTTP/2's limits are said once, at the beginning.
    let config = frontend.config.load_full();
    let meter = Arc::new(Meter::new(&config.limits));
    let inner = Lingering::new(socket, ());
    let metered = Metered { inner, meter: meter.clone(), greeting: Greeting::of_client(), is_due: false };
    let (id, peer) = (client.connection(), client.address().to_owned());
    let listed = frontend.connections.add(id, listener, peer, is_tls, meter.clone());
    let client = Arc::new(client);
    let talk = Talk {
        frontend,
        client,
        meter: meter.clone(),
        connected: &listed.connected,
        limits: &config.limits,
        begun_by,
        stopping,
    };
    match config.listeners.get(listener).and_then(|listener| listener.web.clone()) {
        None => http2(talk, metered).await,
        Some(web) => with_browsers(talk, metered, web).await,
    }
    // hyper runs calls in tasks of their own, and these have still to see that the connection is gone.
    meter.calls_ended().await;
}

/// A connection is cut whose calls were to be over by now: each is counted, and the log has a line.
fn tell_cut(frontend: &Frontend, client: &Client, calls: u32) {
    if calls > 0 {
        let words = format!("{calls} calls were cut off: they were not over within limits.drain_ms");
        frontend.metrics.refused(Refusal::Drain, client, "", &words);
        frontend.metrics.calls_cut.inc_by(calls.into());
    }
}

/// What a connection needs until its end.
struct Talk<'c> {
    frontend: Arc<Frontend>,
    client: Arc<Client>,
    meter: Arc<Meter>,
    connected: &'c Connected,
    limits: &'c Limits,
    begun_by: Instant,
    stopping: watch::Receiver<bool>,
}

impl Talk<'_> {
    fn caller(&self) -> Caller {
        Caller { frontend: self.frontend.clone(), client: self.client.clone(), meter: self.meter.clone() }
    }
}

/// Whose requests a connection brings.
#[derive(Clone)]
struct Caller {
    frontend: Arc<Frontend>,
    client: Arc<Client>,
    meter: Arc<Meter>,
}

impl Caller {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
        let Caller { frontend, client, meter } = self;
        Ok(frontend.answer(request, &client, meter, Ok(())).await)
    }

    async fn answer_browser(
        self,
        request: Request<Incoming>,
        config: Arc<WebConfig>,
    ) -> Result<Response<web::WebAnswer>, Infallible> {
        let Caller { frontend, client, meter } = self;
        Ok(web::answer(&frontend, request, &config, &client, meter).await)
    }
}

/// gRPC.
async fn http2<S>(talk: Talk<'_>, metered: Metered<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let caller = talk.caller();
    let service = service_fn(move |request| {
        caller.meter.call_began();
        // Boxed where it is made: hyper moves it several times before it first polls it.
        Box::pin(caller.clone().answer(request))
    });
    let connection = builder(talk.limits).serve_connection(TokioIo::new(metered), service);
    until_end(talk, connection, http2::Connection::graceful_shutdown, |ended| {
        ended.err().map(BoxError::from)
    })
    .await;
}

/// gRPC and gRPC-Web, over HTTP/2 or HTTP/1.1.
async fn with_browsers<S>(talk: Talk<'_>, metered: Metered<S>, web: WebConfig)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (caller, web, limits) = (talk.caller(), Arc::new(web), talk.limits);
    let service = service_fn(move |request| {
        caller.meter.call_began();
        Box::pin(caller.clone().answer_browser(request, web.clone()))
    });
    let mut builder = auto::Builder::new(Calls);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.idle_ms))
        .max_buf_size((limits.header_bytes.saturating_mul(2) as usize).max(HEAD_LEN_MIN));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.header_bytes.saturating_mul(2))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    // HTTP/1.1 answers in the connection's own task, where nobody else sees to answers that are not read.
    let connection = Watched::new(builder.serve_connection(TokioIo::new(metered), service));
    until_end(
        talk,
        connection,
        |connection| connection.inner().graceful_shutdown(),
        |ended| ended.and_then(Result::err),
    )
    .await;
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Polls a connection until its end. `end_soon` has it take no further call.
async fn until_end<C: Future>(
    talk: Talk<'_>,
    connection: C,
    end_soon: impl Fn(Pin<&mut C>),
    error_of: impl Fn(C::Output) -> Option<BoxError>,
) {
    let Talk { frontend, client, meter, connected, limits, begun_by, mut stopping } = talk;
    tokio::pin!(connection);
    let mut ends = Ends::new(limits, begun_by);
    let mut due = ends.begun_by.min(Instant::now() + ends.idle);
    let mut is_draining = false;
    // When a connection that drains is cut, and what its client had sent when it was told.
    let (mut cut, mut told) = (due, 0);
    loop {
        let stop = async { stopping.wait_for(|stop| *stop).await.is_ok() };
        tokio::select! {
            ended = &mut connection => {
                if let Some(error) = error_of(ended) {
                    tracing::debug!(error, "a connection has ended");
                }
                return;
            }
            () = meter.storm.notified() => {
                let words = "the connection is closed: too many of its calls were reset";
                return frontend.metrics.refused(Refusal::Resets, &client, "", words);
            }
            () = tokio::time::sleep_until(due), if is_draining => {
                // What is left then is cut off, and a client that would only be waited for is before.
                if Instant::now() >= cut {
                    return tell_cut(&frontend, &client, meter.calls.load(Ordering::Relaxed));
                }
                if meter.is_quiet(told) {
                    return;
                }
                due = cut.min(Instant::now() + QUIET);
                continue;
            }
            () = tokio::time::sleep_until(due), if !is_draining => match ends.due(&meter, Instant::now()) {
                Due::Nothing(next) => { due = next; continue }
                Due::Cut(why) => {
                    return frontend.metrics.refused(why, &client, "", "HTTP/2 did not begin in time");
                }
                Due::Drain(why) => frontend.metrics.ended(why),
            },
            _ = stop, if !is_draining => {}
            () = connected.closing.notified(), if !is_draining => {}
        }
        is_draining = true;
        connected.is_draining.store(true, Ordering::Relaxed);
        if !ends.has_begun(&meter) {
            // HTTP/2 waits for its beginning before it can be told of its end.
            return;
        }
        told = meter.read_bytes.load(Ordering::Relaxed);
        end_soon(connection.as_mut());
        cut = Instant::now() + Duration::from_millis(frontend.config.load().limits.drain_ms);
        due = cut.min(Instant::now() + QUIET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_limited_by_burst_and_by_rate() {
        let mut bucket = Bucket::new(3, Duration::from_secs(10));
        let start = bucket.filled;
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!([0, 0, 0, 0].map(|seconds| bucket.take(at(seconds))), [true, true, true, false]);
        assert_eq!([9, 10, 10].map(|seconds| bucket.take(at(seconds))), [false, true, false]);
        assert_eq!([500, 500, 500, 500].map(|seconds| bucket.take(at(seconds))), [true, true, true, false]);
    }
}
