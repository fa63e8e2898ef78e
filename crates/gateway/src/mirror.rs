//! Copies of calls for a second group: nobody sees their answers, and nothing of them reaches the call itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, request};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tollfree::gateway::Dispatch;
use tonic::Status;
use tonic::body::Body;

use crate::arrival;
use crate::backend_connection::Handover;
use crate::backend_connections::{BackendConnections, Wanted};
use crate::bodies::{Asked, Passage};
use crate::client::Client;
use crate::config::Config;
use crate::deadline;
use crate::metrics::Metrics;
use crate::policy::MirrorPlace;
use crate::refusal::Refused;

/// The longest request that is copied, in bytes. A longer one's copy ends there.
const COPIED_LEN_MAX: usize = 256 << 10;
/// How long a copy may take, whatever the call's deadline is.
const COPY_TIME: Duration = Duration::from_secs(30);

/// What has come of a request, for its copy.
type Copied = mpsc::UnboundedSender<Result<Frame<Bytes>, Status>>;

/// A request's body, of which a copy is made on its way.
pub(crate) struct Tapped<B> {
    inner: B,
    copied: Option<(Copied, usize)>,
}

impl<B> Tapped<B> {
    /// Without a copy.
    pub(crate) fn none(inner: B) -> Tapped<B> {
        Tapped { inner, copied: None }
    }
}

impl<B: http_body::Body> Tapped<B> {
    /// A body and its copy.
    fn new(inner: B) -> (Tapped<B>, RequestCopy) {
        let (sender, receiver) = mpsc::unbounded_channel();
        // Of what is empty, nothing is asked for.
        let copied = (!inner.is_end_stream()).then_some((sender, 0));
        (Tapped { inner, copied }, RequestCopy { receiver, is_over: false })
    }
}

impl<B: http_body::Body<Data = Bytes, Error = Status> + Unpin> http_body::Body for Tapped<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        let Some((sender, len)) = &mut this.copied else { return polled };
        let goes_on = match &polled {
            Poll::Pending => true,
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => {
                    *len += data.len();
                    *len <= COPIED_LEN_MAX && sender.send(Ok(Frame::data(data.clone()))).is_ok()
                }
                None => false,
            },
            Poll::Ready(_) => false,
        };
        if !goes_on {
            let is_whole = matches!(&polled, Poll::Ready(None))
                || matches!(&polled, Poll::Ready(Some(Ok(frame))) if !frame.is_data());
            if !is_whole {
                _ = sender.send(Err(Status::cancelled("the request has no whole copy")));
            }
            this.copied = None;
        } else if this.inner.is_end_stream() {
            this.copied = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for Tapped<B> {
    /// A request that was not read to its end has no whole copy.
    fn drop(&mut self) {
        if let Some((sender, _)) = &self.copied {
            _ = sender.send(Err(Status::cancelled("the call has ended before its request")));
        }
    }
}

/// The body of a copy.
struct RequestCopy {
    receiver: mpsc::UnboundedReceiver<Result<Frame<Bytes>, Status>>,
    is_over: bool,
}

impl http_body::Body for RequestCopy {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = self.receiver.poll_recv(cx);
        self.is_over = matches!(&polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

/// What copies are sent with.
pub(crate) struct Mirror {
    pub(crate) backend_connections: Arc<BackendConnections>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Arc<Config>,
    pub(crate) client: Arc<Client>,
}

impl Mirror {
    /// Sends a copy of a call to a group, beside the call. Where there are as many copies as may be, there is none.
    pub(crate) fn begin<B: http_body::Body>(
        self,
        place: MirrorPlace,
        parts: &request::Parts,
        body: B,
        deadline: Option<Instant>,
    ) -> Tapped<B> {
        let Ok(permit) = place.places.try_acquire_owned() else {
            self.metrics.copies(&place.group, "left_out").inc();
            return Tapped::none(body);
        };
        let (tapped, copy) = Tapped::new(body);
        let mut copied = Request::new(());
        *copied.method_mut() = parts.method.clone();
        *copied.uri_mut() = parts.uri.clone();
        *copied.headers_mut() = parts.headers.clone();
        let (parts, ()) = copied.into_parts();
        let end = Instant::now() + COPY_TIME;
        let deadline = deadline.map_or(end, |deadline| deadline.min(end));
        tokio::spawn(self.send(place.group, parts, copy, deadline, permit));
        tapped
    }

    async fn send(
        self,
        group: Arc<str>,
        parts: request::Parts,
        copy: RequestCopy,
        deadline: Instant,
        _permit: OwnedSemaphorePermit,
    ) {
        let sent = tokio::time::timeout_at(deadline.into(), self.call(&group, parts, copy, deadline));
        let became = match sent.await {
            Ok(Ok(true)) => "answered",
            _ => "failed",
        };
        self.metrics.copies(&group, became).inc();
    }

    /// Whether it ends OK.
    async fn call(
        &self,
        group: &str,
        mut parts: request::Parts,
        copy: RequestCopy,
        deadline: Instant,
    ) -> Result<bool, Refused> {
        let began = Instant::now();
        let path = parts.uri.path().trim_start_matches('/').to_owned();
        let passage = Arc::new(Passage::new(&self.client));
        let mut wanted = Wanted {
            path: &path,
            group: Some(group),
            client: &self.client,
            owner: self.client.owner(),
            has_message: false,
            began,
            deadline: Some(deadline),
        };
        let asked = |charge| Asked::new(copy, self.config.clone(), passage.clone(), charge);
        let limits = &self.config.limits;
        let (place, asked) =
            arrival::place(&self.backend_connections, &mut wanted, (&passage, limits), asked).await?;
        self.client.sign(&mut parts.headers);
        deadline::shrink(&mut parts.headers, began)?;
        let dispatch = Dispatch::new(Request::from_parts(parts, Body::new(asked)));
        let handover = Handover::new(dispatch.count_holdings(passage.clone()), None, None);
        let (handed, _place) = self.backend_connections.hand(&wanted, place, handover).await?;
        let Ok(response) = handed else { return Ok(false) };
        passage.answered();
        let mut is_ok = is_ok_in(response.headers());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Ok(false) };
            is_ok &= frame.trailers_ref().is_none_or(is_ok_in);
        }
        Ok(is_ok)
    }
}

/// Whether headers or trailers tell of no failure.
fn is_ok_in(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_none_or(|status| status == "0")
}
