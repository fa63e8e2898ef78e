//! tonic's own transport, for addresses of HTTP/2: what a channel does to its endpoints, and an attempt of a call by it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};
#[cfg(feature = "tls")]
use tonic::transport::ClientTlsConfig;
use tonic::transport::Endpoint;

use crate::endpoint::error::ChannelError;

/// An HTTP/2 server that has not answered by then is not there, unless the channel says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings that a session doesn't have, or has by other means.
#[derive(Clone, Default)]
pub(crate) struct Http2Settings {
    settle: Option<Arc<dyn Fn(Endpoint) -> Endpoint + Send + Sync>>,
    pub(crate) user_agent: Option<HeaderValue>,
    pub(crate) origin: Option<Uri>,
    pub(crate) connect_timeout: Option<Duration>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<ClientTlsConfig>,
}

impl Http2Settings {
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

impl fmt::Debug for Http2Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Settings")
            .field("user_agent", &self.user_agent)
            .field("origin", &self.origin)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
