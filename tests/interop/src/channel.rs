//! A way to a server of any kind: Tollfree's channel, and tonic's own where there is TLS.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use tokio::time::{Sleep, sleep};
use tonic::body::Body;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tower_service::Service;

use crate::cases::Failure;

/// Where a server is.
#[derive(Clone, Debug)]
pub struct Target {
    /// `shm:///path`, `shm-abstract:name`, `unix:/path`, `http://host:port` or `https://host:port`.
    pub uri: String,
    /// Who vouches for an `https` server: certificates as PEM.
    pub ca: Option<String>,
    /// How long connecting is tried: a server may be on its way up.
    pub patience: Duration,
    /// A memory pool by which large payloads go, where the server is a member of it too.
    pub pool: Option<tollfree::pool::Pool>,
    /// What the calls are to reach, where the server is a gateway.
    pub via: Option<Via>,
}

/// The target of calls by way of a gateway.
#[derive(Clone, Debug)]
pub struct Via {
    /// `group:name`, `http://host:port` or `https://host:port`.
    pub target: String,
    /// Whether calls begin only when they go by a direct connection.
    pub is_direct: bool,
}

impl Target {
    /// Connects as soon as the server listens.
    ///
    /// # Errors
    /// [`Failure`] with what the last attempt said.
    pub async fn connect(&self) -> Result<AnyChannel, Failure> {
        let began = Instant::now();
        loop {
            match self.attempt().await {
                Err(error) if began.elapsed() > self.patience => {
                    return Err(Failure::Connect { uri: self.uri.clone(), reason: chain(&*error) });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(channel) => return Ok(channel),
            }
        }
    }

    async fn attempt(&self) -> Result<AnyChannel, StdError> {
        if !self.uri.starts_with("https:") {
            let mut builder = tollfree::Channel::builder(&*self.uri);
            if let Some(pool) = &self.pool {
                builder = builder.pool(pool.clone());
            }
            if let Some(via) = &self.via {
                builder = builder.via(&*via.target);
            }
            let channel = builder.connect().await?;
            if self.via.as_ref().is_some_and(|via| via.is_direct) {
                until_direct(&channel).await?;
            }
            return Ok(AnyChannel::Ours(channel));
        }
        let ca = self.ca.as_ref().ok_or("an https server needs certificates to check it with")?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        let endpoint = Endpoint::try_from(self.uri.clone())?.tls_config(tls)?;
        Ok(AnyChannel::Tonic(endpoint.connect().await?))
    }
}

/// Waits until calls go by a direct connection.
async fn until_direct(channel: &tollfree::Channel) -> Result<(), StdError> {
    let began = Instant::now();
    while !channel.path().to_string().contains("by a direct connection") {
        if began.elapsed() > Duration::from_secs(20) {
            return Err(channel.path().to_string().into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// An error and what caused it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

type StdError = Box<dyn std::error::Error + Send + Sync>;

/// A channel of either kind.
#[derive(Clone, Debug)]
pub enum AnyChannel {
    /// Over shared memory, or over HTTP/2 without TLS.
    Ours(tollfree::Channel),
    /// Over HTTP/2 with TLS.
    Tonic(tonic::transport::Channel),
}

impl Service<Request<Body>> for AnyChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            AnyChannel::Ours(channel) => channel.poll_ready(cx).map_err(Into::into),
            AnyChannel::Tonic(channel) => channel.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            AnyChannel::Ours(channel) => {
                let call = channel.call(request);
                Box::pin(async move { Ok(call.await?.map(Body::new)) })
            }
            AnyChannel::Tonic(channel) => {
                let deadline = timeout(request.headers()).map(|timeout| Box::pin(sleep(timeout)));
                let call = channel.call(request);
                Box::pin(async move { timed(deadline, call).await })
            }
        }
    }
}

/// What a request says of its time (gRPC over HTTP/2, "Timeout").
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count.checked_mul(3600)?)),
        "M" => Some(Duration::from_secs(count.checked_mul(60)?)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the deadline has passed")
}

/// tonic's channel looks at the clock until the response's head has come; gRPC's deadline is for the whole call.
async fn timed(
    deadline: Option<Pin<Box<Sleep>>>,
    call: impl Future<Output = Result<Response<Body>, tonic::transport::Error>>,
) -> Result<Response<Body>, StdError> {
    let Some(mut deadline) = deadline else { return Ok(call.await?) };
    let outcome = tokio::select! {
        outcome = call => outcome,
        () = &mut deadline => return Err(deadline_exceeded().into()),
    };
    match outcome {
        Ok(response) => Ok(response.map(|body| Body::new(Timed { body, deadline }))),
        // tonic's clock may be the first to ring; its word for it is CANCELLED.
        Err(_) if Instant::now() >= deadline.deadline().into_std() => Err(deadline_exceeded().into()),
        Err(error) => Err(error.into()),
    }
}

/// A response's body, until the call's deadline.
struct Timed {
    body: Body,
    deadline: Pin<Box<Sleep>>,
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // A server whose clock rings first resets the stream.
        let is_reset = matches!(&frame, Poll::Ready(Some(Err(status))) if status.code() == Code::Cancelled);
        if (frame.is_pending() || is_reset) && self.deadline.as_mut().poll(cx).is_ready() {
            self.body = Body::empty();
            return Poll::Ready(Some(Err(deadline_exceeded())));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
