//! How busy a server is: its calls counted over all sessions and connections, limited, and told to clients.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tollfree_driver_tokio::Attachment;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::metadata::{ended_with, status_code, timeout};
use crate::metrics::{Metrics, ServedCall};
use crate::server::connection::{CallOn, ServedConnection};
use crate::server::http2_body::Http2RequestBody;
use crate::status;

/// Clients are told at most this often.
const TELL_EVERY: Duration = Duration::from_millis(1);

/// How busy a server is; from [`Server::load`](crate::Server::load). Clones look at the same server.
#[derive(Clone, Debug, Default)]
pub struct ServerLoad {
    tally: Arc<Tally>,
}

impl ServerLoad {
    /// Calls under way, over all sessions and connections. Counted where there is a limit, or a client that chooses by it;
    /// 0 otherwise.
    pub fn under_way(&self) -> u32 {
        self.tally.under_way.load(Ordering::Relaxed)
    }

    /// Calls turned away because of the limit, so far.
    pub fn shed_count(&self) -> u64 {
        self.tally.shed_count.load(Ordering::Relaxed)
    }

    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }
}

/// Counts a server's calls.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    under_way: AtomicU32,
    shed_count: AtomicU64,
    /// Calls at once; 0: no limit.
    limit: AtomicU32,
    /// Somebody wants the count. Calls begun before aren't in it.
    counts: AtomicBool,
    /// Sessions whose clients want to be told.
    told: Mutex<Vec<Weak<Attachment>>>,
    /// There is something to tell, or nobody to tell it to: the publisher need not be called.
    news: AtomicBool,
    changed: Notify,
}

/// Whether a call is taken.
pub(crate) enum CallAdmission {
    /// It is, and nobody counts.
    Uncounted,
    /// It is; it counts until this goes.
    Counted(CountedCall),
    /// It isn't, for this reason.
    Shed(Status),
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct CountedCall {
    tally: Arc<Tally>,
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.tally.under_way.fetch_sub(1, Ordering::SeqCst);
        self.tally.tell();
    }
}

impl Tally {
    pub(crate) fn limit(&self, count: u32) {
        self.limit.store(count, Ordering::Relaxed);
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Whether calls are counted, or may be shed.
    #[inline]
    pub(crate) fn is_counting(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// A call has come.
    #[inline]
    pub(crate) fn admit(self: &Arc<Self>) -> CallAdmission {
        if !self.counts.load(Ordering::Relaxed) {
            return CallAdmission::Uncounted;
        }
        self.count()
    }

    fn count(self: &Arc<Self>) -> CallAdmission {
        let before = self.under_way.fetch_add(1, Ordering::SeqCst);
        let counted = CountedCall { tally: self.clone() };
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != 0 && before >= limit {
            self.shed_count.fetch_add(1, Ordering::Relaxed);
            let words =
                format!("the server has its limit of {limit} calls under way; try again later, or elsewhere");
            return CallAdmission::Shed(Status::resource_exhausted(words));
        }
        self.tell();
        CallAdmission::Counted(counted)
    }

    fn tell(&self) {
        // A teller clears this before it reads the count: one of the two sees the other's step.
        if !self.news.load(Ordering::SeqCst) && !self.news.swap(true, Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// A session whose client may want to know.
    pub(crate) fn attach(&self, attachment: &Arc<Attachment>) {
        if attachment.shares_load() {
            self.counts.store(true, Ordering::Relaxed);
            let mut told = self.told.lock();
            told.push(Arc::downgrade(attachment));
            // The next change is told again, and there may have been one that was not.
            self.news.store(false, Ordering::SeqCst);
            attachment.report_load(self.under_way.load(Ordering::SeqCst));
        }
    }

    /// Tells all that want to know, whenever there is something to tell. Never ends.
    pub(crate) async fn publish(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            // Whatever changes from here on is told in the next turn.
            self.news.store(false, Ordering::SeqCst);
            let count = self.under_way.load(Ordering::SeqCst);
            {
                let mut told = self.told.lock();
                told.retain(|session| match session.upgrade() {
                    Some(session) => {
                        session.report_load(count);
                        true
                    }
                    None => false,
                });
                if told.is_empty() {
                    // Nobody listens: nothing is news until somebody does.
                    self.news.store(true, Ordering::SeqCst);
                }
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }
}

/// Counts the calls that come over HTTP/2, has their requests end as their clients end them, and has answers go out that their clients
/// take.
#[derive(Clone, Debug)]
pub(crate) struct TallyLayer {
    pub(crate) tally: Arc<Tally>,
    pub(crate) metrics: Option<Metrics>,
    /// How long a handler may take.
    pub(crate) timeout: Option<Duration>,
    /// Whose calls they are.
    pub(crate) connection: Arc<ServedConnection>,
}

impl TallyLayer {
    /// The request with a body that a handler can't take for complete where it was cut.
    fn checked(&self, request: Request<Body>, time: Option<Duration>) -> Request<Body> {
        // A request over HTTP/1 that is cut is an error already.
        if request.version() != Version::HTTP_2 {
            return request;
        }
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        request.map(|body| Body::new(Http2RequestBody::new(body, deadline).map_err(status::for_handler)))
    }

    /// How long a call may take.
    ///
    /// # Errors
    /// The status of one that has no time, or says what is none.
    fn time(&self, headers: &HeaderMap) -> Result<Option<Duration>, Status> {
        match timeout(headers)?.into_iter().chain(self.timeout).min() {
            Some(Duration::ZERO) => Err(status::deadline()),
            time => Ok(time),
        }
    }
}

impl<S> tower_layer::Layer<S> for TallyLayer {
    type Service = TallyService<S>;

    fn layer(&self, inner: S) -> TallyService<S> {
        TallyService { inner, layer: self.clone() }
    }
}

/// A service whose calls are counted.
#[derive(Clone, Debug)]
pub(crate) struct TallyService<S> {
    inner: S,
    layer: TallyLayer,
}

impl<S> Service<Request<Body>> for TallyService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<CountedBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<CountedBody>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = self.layer.connection.call();
        let record = self.layer.metrics.as_ref().map(|metrics| metrics.serve(request.uri().path()));
        let time = self.layer.time(request.headers());
        let admitted = time.and_then(|time| match self.layer.tally.admit() {
            CallAdmission::Uncounted => Ok((time, None)),
            CallAdmission::Counted(counted) => Ok((time, Some(counted))),
            CallAdmission::Shed(status) => Err(status),
        });
        let (time, counted) = match admitted {
            Ok(admitted) => admitted,
            Err(status) => {
                let response = status.into_http::<Body>();
                return Box::pin(async move { Ok(CountedBody::of(response, call, None, record)) });
            }
        };
        let mut request = self.layer.checked(request, time);
        if let Some(record) = &record {
            record.is_served();
            request = request.map(|body| record.tell_received(body, None));
        }
        let response = self.inner.call(request);
        Box::pin(async move { Ok(CountedBody::of(response.await?, call, counted, record)) })
    }
}

/// A response body that counts as a call until it has ended, or is dropped.
#[derive(Debug)]
pub(crate) struct CountedBody {
    body: Body,
    call: CallOn,
    counted: Option<CountedCall>,
    record: Option<ServedCall>,
}

impl CountedBody {
    fn of(
        response: Response<Body>,
        call: CallOn,
        counted: Option<CountedCall>,
        record: Option<ServedCall>,
    ) -> Response<CountedBody> {
        let response = match call.check(response.headers()) {
            Ok(()) => response,
            Err(instead) => instead.into_http(),
        };
        if let (Some(record), Some(code)) = (&record, status_code(response.headers())) {
            record.end(Code::from_i32(code.into()));
        }
        response.map(|body| {
            let body = match &record {
                None => body,
                Some(record) => record.tell_sent(body),
            };
            CountedBody { body, call, counted, record }
        })
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(sent)) = &mut frame
            && let Some(trailers) = sent.trailers_mut()
            && let Err(instead) = self.call.check(trailers)
        {
            trailers.clear();
            // One that can't be written leaves them empty: the client then sees UNKNOWN.
            _ = instead.add_header(trailers);
        }
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.counted = None;
        }
        if let Some(record) = &self.record
            && let Some(ended) = ended_with(&frame)
        {
            record.end(ended);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
