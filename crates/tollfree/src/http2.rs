//! tonic's own transport, for addresses of HTTP/2: what a channel does to its endpoints, and an attempt of a call by it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri};
use tollfree_transport::now_ns;
use tonic::body::Body;
#[cfg(feature = "tls")]
use tonic::transport::ClientTlsConfig;
use tonic::transport::Endpoint;
use tower_service::Service;

use crate::attempts::Failed;
use crate::body::{Deadline, ResponseBody};
use crate::channel::ChannelError;
use crate::framing::Told;
use crate::metadata::{GRPC_TIMEOUT, timeout_value};
use crate::status;

/// An HTTP/2 server that has not answered by then is not there, unless the channel says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings that a session doesn't have, or has by other means.
#[derive(Clone, Default)]
pub(crate) struct Http2 {
    settle: Option<Arc<dyn Fn(Endpoint) -> Endpoint + Send + Sync>>,
    pub(crate) user_agent: Option<HeaderValue>,
    pub(crate) origin: Option<Uri>,
    pub(crate) connect_timeout: Option<Duration>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<ClientTlsConfig>,
}

impl Http2 {
    /// Settles endpoints further.
    pub(crate) fn add(&mut self, settle: impl Fn(Endpoint) -> Endpoint + Send + Sync + 'static) {
        let before = self.settle.take();
        self.settle = Some(Arc::new(move |endpoint| match &before {
            Some(before) => settle(before(endpoint)),
            None => settle(endpoint),
        }));
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// tonic's endpoint for an address.
    ///
    /// # Errors
    /// [`ChannelError::Http2`], and [`ChannelError::Tls`] where TLS is asked for and can't be had.
    pub(crate) fn endpoint(&self, uri: &str) -> Result<Endpoint, ChannelError> {
        let error = |source| ChannelError::Http2 { address: uri.into(), source };
        let mut endpoint = Endpoint::from_shared(uri.to_owned()).map_err(error)?;
        endpoint = endpoint.connect_timeout(self.connect_timeout());
        if let Some(settle) = &self.settle {
            endpoint = settle(endpoint);
        }
        if let Some(origin) = &self.origin {
            endpoint = endpoint.origin(origin.clone());
        }
        if let Some(agent) = &self.user_agent {
            endpoint = endpoint.user_agent(agent.clone()).map_err(error)?;
        }
        if is_tls(uri) { self.with_tls(uri, endpoint) } else { Ok(endpoint) }
    }

    #[cfg(feature = "tls")]
    fn with_tls(&self, uri: &str, endpoint: Endpoint) -> Result<Endpoint, ChannelError> {
        let error = |reason| ChannelError::Tls { address: uri.into(), reason };
        let tls = self.tls.clone().ok_or_else(|| {
            error(
                "it needs to know whose certificates to trust: give them to ChannelBuilder::tls_config"
                    .into(),
            )
        })?;
        endpoint.tls_config(tls).map_err(|failed| {
            // tonic's own text says no more than "transport error".
            let source = std::error::Error::source(&failed);
            error(source.map_or_else(|| failed.to_string(), ToString::to_string))
        })
    }

    #[cfg(not(feature = "tls"))]
    fn with_tls(&self, uri: &str, _: Endpoint) -> Result<Endpoint, ChannelError> {
        let reason = "TLS is not built in: build tollfree with its feature \"tls\"".into();
        Err(ChannelError::Tls { address: uri.into(), reason })
    }
}

/// Whether an address is one of HTTP/2.
pub(crate) fn is_http2(uri: &str) -> bool {
    is_tls(uri) || uri.starts_with("http://") || uri.starts_with("unix:")
}

/// Whether an address is one of TLS.
pub(crate) fn is_tls(uri: &str) -> bool {
    uri.starts_with("https://")
}

/// One attempt of a call, by a connection of tonic's.
pub(crate) async fn attempt(
    mut channel: tonic::transport::Channel,
    endpoint: &crate::endpoint::Endpoint,
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

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2")
            .field("user_agent", &self.user_agent)
            .field("origin", &self.origin)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
