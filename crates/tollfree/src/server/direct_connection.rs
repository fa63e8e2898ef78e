//! A server behind a gateway lets in processes that the gateway names, each by a socket that is there for it alone.
//!
//! # Trust
//! The gateway says whom to let in; the kernel says who has come. Nobody but the process that was named gets a session, and it gets one.
//! What it may do there is what any client may, and its handlers are told who it is, as the kernel says.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tollfree_driver_tokio::{Address, Config, Listener, PeerPolicy, RateLimitedLog, Token};
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::direct_connection::{PROCESS, is_process, read_process};
use crate::endpoint::upgrade::OFFER;
use crate::metadata::GRPC;
use crate::server::bound;
use crate::server::http_handle::{ErasedService, HandlerFuture};
use crate::server::session_task::{ServerContext, SessionTask};

/// Processes that are let in, or may come, at once.
const ADMITTED_COUNT_MAX: usize = 256;

static NOT_NAMED: RateLimitedLog = RateLimitedLog::new();
static LET_IN: RateLimitedLog = RateLimitedLog::new();

/// Answers the gateway that names a process.
#[derive(Clone)]
pub(crate) struct Admitting {
    config: Config,
    admitted: mpsc::UnboundedSender<Admitted>,
    permits: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

/// A process that may come.
pub(crate) struct Admitted {
    listener: Listener,
    process: (i32, u32),
    /// Resolves when it may not any more.
    revoked: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Admitting {
    /// `config` is that of the server's sessions; until `stopped`. Those who are let in come out of the receiver.
    pub(crate) fn new(
        config: Config,
        stopped: watch::Receiver<bool>,
    ) -> (Admitting, mpsc::UnboundedReceiver<Admitted>) {
        let (admitted, receiver) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(ADMITTED_COUNT_MAX));
        (Admitting { config, admitted, permits, stopped }, receiver)
    }

    async fn admit(self, headers: HeaderMap) -> Result<Response<Body>, Status> {
        let process = headers.get(PROCESS).and_then(|value| read_process(value.to_str().ok()?));
        let process = process.ok_or_else(|| Status::invalid_argument("tollfree-process names no process"))?;
        let permit = self.permits.try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{ADMITTED_COUNT_MAX} processes have direct connections to this one already"
            ))
        })?;
        let name =
            Token::random().map_err(|error| Status::unavailable(format!("no name for a socket: {error}")))?;
        let address = Address::Abstract(format!("tollfree-direct-{name}"));
        let offer = HeaderValue::try_from(address.to_string());
        let offer = offer.map_err(|_| Status::internal("a socket's name is no header"))?;
        let config = Config { peers: PeerPolicy::Users(vec![process.1]), ..self.config };
        let listener = bound::listen(address, config).await;
        let listener = listener.map_err(|error| Status::unavailable(error.to_string()))?;
        let (revoke, revoked) = watch::channel(false);
        let admitted = Admitted { listener, process, revoked, _permit: permit };
        let stopping = || Status::unavailable("the process is being shut down");
        self.admitted.send(admitted).map_err(|_| stopping())?;
        let mut stopped = self.stopped;
        let until = async move {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => {}
                // All of it is over: the process has gone.
                () = revoke.closed() => {}
            }
        };
        let mut response = standing(until);
        response.headers_mut().insert(OFFER, offer);
        Ok(response)
    }
}

impl ErasedService for Admitting {
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let admitting = self.clone();
        Box::pin(async move {
            let admitted = admitting.admit(request.into_parts().0.headers).await;
            admitted.unwrap_or_else(Status::into_http)
        })
    }
}

impl Admitted {
    /// Serves the session of the process that was named, until it ends, or what stands for it does and its calls are answered.
    pub(crate) async fn serve(mut self, duty: Arc<ServerContext>) {
        let attachment = loop {
            tokio::select! {
                came = self.listener.accept() => match came {
                    Some(attachment) if is_process(attachment.peer(), self.process) => break attachment,
                    Some(other) => {
                        if let Some(unsaid) = NOT_NAMED.turn() {
                            tracing::warn!(peer = ?other.peer(), unsaid, "a process came by a direct connection that is another's");
                        }
                        other.close("this socket is there for another process");
                    }
                    None => return,
                },
                _ = self.revoked.wait_for(|revoked| *revoked) => return,
            }
        };
        self.listener.close();
        if let Some(unsaid) = LET_IN.turn() {
            let peer = attachment.peer();
            tracing::info!(
                ?peer,
                unsaid,
                "a process that the gateway has named calls by a direct connection"
            );
        }
        SessionTask::new(attachment, duty).of_neighbor().run(self.revoked).await;
    }
}

/// An answer without messages, which ends well when something has happened.
pub(crate) fn standing(until: impl Future<Output = ()> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::new(Standing { until: Some(Box::pin(until)) }));
    response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
    response
}

struct Standing {
    until: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl http_body::Body for Standing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(until) = &mut self.until else { return Poll::Ready(None) };
        ready!(until.as_mut().poll(cx));
        self.until = None;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
