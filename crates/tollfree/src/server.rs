//! The server's end: the same services over shared memory, Unix sockets and TCP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tollfree_transport::{Address, Config, Listener, PeerPolicy, WaitPolicy};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower_service::Service;

use crate::serving::Handler;
use crate::session_task::{Services, SessionTask};
use crate::status::ServeError;

/// Serves generated services. Made by [`Server::builder`].
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_, greeter) = tonic_health::server::health_reporter();
/// tollfree::Server::builder()
///     .add_service(greeter) // GreeterServer::new(…), as tonic generates it
///     .serve("shm:///run/app/greeter.sock")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    config: Config,
    services: HashMap<&'static str, Arc<dyn Handler>>,
    routes: Routes,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("services", &self.services.keys()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without services.
    pub fn builder() -> Server {
        Server { config: Config::default(), services: HashMap::new(), routes: Routes::default() }
    }

    /// How sessions wait for requests.
    pub fn wait(mut self, wait: WaitPolicy) -> Server {
        self.config.wait = wait;
        self
    }

    /// Which users may connect over shared memory.
    pub fn peers(mut self, peers: PeerPolicy) -> Server {
        self.config.peers = peers;
        self
    }

    /// How many calls one session may have under way; further ones wait at the client.
    pub fn concurrency_limit_per_session(mut self, count: u32) -> Server {
        let window = self.config.limits.stream_window;
        let reserve = tollfree_layout::limits::WINDOW_RESERVE;
        self.config.limits.stream_count = count.max(1);
        self.config.limits.session_window =
            window.saturating_mul(count.max(1).into()).saturating_add(reserve);
        self
    }

    /// Adds a service, as for tonic's own server.
    pub fn add_service<S, B>(mut self, service: S) -> Server
    where
        S: Service<Request<Body>, Response = http::Response<B>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.services.insert(S::NAME, Arc::new(service.clone()));
        self.routes = self.routes.add_service(service);
        self
    }

    /// Serves one address until the process ends.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound.
    pub async fn serve(self, uri: &str) -> Result<(), ServeError> {
        self.serve_many([uri]).await
    }

    /// Serves one address until `signal` resolves and the calls under way are answered.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound.
    pub async fn serve_with_shutdown(
        self,
        uri: &str,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_many_with_shutdown([uri], signal).await
    }

    /// Serves several addresses at once, of any kind: `shm:///path`, `shm-abstract:name`, `unix:/path`,
    /// `http://host:port`.
    ///
    /// # Errors
    /// [`ServeError`] when one of them can't be bound; none is served then.
    pub async fn serve_many<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<(), ServeError> {
        self.serve_many_with_shutdown(uris, pending()).await
    }

    /// [`serve_many`](Server::serve_many) until `signal` resolves: new calls are refused, those under way answered.
    ///
    /// # Errors
    /// [`ServeError`] when one of the addresses can't be bound, or an HTTP/2 listener fails.
    pub async fn serve_many_with_shutdown<'a>(
        self,
        uris: impl IntoIterator<Item = &'a str>,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stop, stopped) = watch::channel(false);
        let services: Services = Arc::new(self.services);
        let mut servers = JoinSet::new();
        let mut bound = Vec::new();
        for uri in uris {
            bound.push(Bound::bind(uri, &self.config).await?);
        }
        for bound in bound {
            servers.spawn(bound.run(services.clone(), self.routes.clone(), stopped.clone()));
        }
        tokio::pin!(signal);
        let mut result = Ok(());
        loop {
            tokio::select! {
                () = &mut signal, if !*stop.borrow() => { _ = stop.send(true); }
                ended = servers.join_next() => match ended {
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => {
                        result = result.and(Err(error));
                        _ = stop.send(true);
                    }
                    Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                    None => return result,
                },
            }
        }
    }
}

/// An address that is bound and not yet served.
enum Bound {
    Shm(Listener),
    Unix(String, UnixListener, UnixFile),
    Tcp(String, TcpListener),
}

/// Removes the file of a `unix:` socket when its server ends.
struct UnixFile(std::path::PathBuf);

impl Drop for UnixFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Bound {
    async fn bind(uri: &str, config: &Config) -> Result<Bound, ServeError> {
        let socket = |source| ServeError::Socket { address: uri.into(), source };
        if uri.starts_with("shm:") || uri.starts_with("shm-abstract:") {
            let address: Address = uri.parse().map_err(|error: tollfree_transport::AddressError| {
                ServeError::Address { address: uri.into(), reason: error.to_string() }
            })?;
            return Ok(Bound::Shm(Listener::bind(&address, config.clone())?));
        }
        if let Some(path) = uri.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let listener = UnixListener::bind(path).map_err(socket)?;
            return Ok(Bound::Unix(uri.into(), listener, UnixFile(path.into())));
        }
        if let Some(host) = uri.strip_prefix("http://") {
            let listener = TcpListener::bind(host.trim_end_matches('/')).await.map_err(socket)?;
            return Ok(Bound::Tcp(uri.into(), listener));
        }
        Err(ServeError::Address {
            address: uri.into(),
            reason: "write shm:///path, shm-abstract:name, unix:/path or http://host:port".into(),
        })
    }

    async fn run(
        self,
        services: Services,
        routes: Routes,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), ServeError> {
        let http = |address: String| move |source| ServeError::Http { address, source };
        let mut stop = stopped.clone();
        let stop = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let builder = tonic::transport::Server::builder().add_routes(routes);
        match self {
            Bound::Shm(listener) => serve_sessions(listener, services, stopped).await,
            Bound::Unix(address, listener, _file) => {
                let incoming = UnixListenerStream::new(listener);
                builder.serve_with_incoming_shutdown(incoming, stop).await.map_err(http(address))?;
            }
            Bound::Tcp(address, listener) => {
                let incoming = TcpListenerStream::new(listener);
                builder.serve_with_incoming_shutdown(incoming, stop).await.map_err(http(address))?;
            }
        }
        Ok(())
    }
}

async fn serve_sessions(mut listener: Listener, services: Services, stopped: watch::Receiver<bool>) {
    let mut stop = stopped.clone();
    tracing::info!(address = %listener.address(), "serving over shared memory");
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            attached = listener.accept() => match attached {
                Some(attachment) => {
                    tracing::debug!(peer = ?attachment.peer(), agent = attachment.agent(), "a client attached");
                    sessions.spawn(SessionTask::new(attachment, services.clone()).run(stopped.clone()));
                }
                None => break,
            },
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
        }
    }
    drop(listener);
    while sessions.join_next().await.is_some() {}
}
