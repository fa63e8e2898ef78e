//! The server's end: the same services over shared memory, Unix sockets and TCP.

mod attach;
pub(crate) mod bound;
mod call_tasks;
pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod direct_connection;
pub(crate) mod final_status;
pub(crate) mod http2_body;
pub(crate) mod http_handle;
pub(crate) mod inline_policy;
pub(crate) mod joining;
pub(crate) mod layers;
pub(crate) mod linger;
pub(crate) mod load;
pub(crate) mod moving;
pub(crate) mod offer;
pub(crate) mod request_body;
pub(crate) mod response_writer;
pub(crate) mod serving;
pub(crate) mod session_task;
pub(crate) mod trace;
pub(crate) mod typed;

use std::collections::HashMap;
use std::convert::Infallible;
#[cfg(feature = "tls")]
use std::error::Error as _;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tollfree_driver_tokio::{Config, Listener, PeerPolicy, Refusals, Tokens, WaitPolicy};
use tollfree_os::unix::net::UnixListener;
use tollfree_pool::Pool;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
#[cfg(feature = "tls")]
use tonic::transport::ServerTlsConfig;
use tonic::transport::server::Connected;
use tower_service::Service;

use crate::message::payloads::{Payloads, Sharing, WhenPoolFull};
use crate::metadata::metadata_len_max;
use crate::metrics::Metrics;
use crate::server::bound::{Bound, served};
use crate::server::http_handle::ErasedService;
use crate::server::layers::{AnyService, Layers};
use crate::server::load::ServerLoad;
use crate::server::session_task::{Age, Served, ServerContext, Services};
use crate::server::trace::TraceLayer;
use crate::server::typed::run;
use crate::status::ServeError;

pub use attach::Attaching;

/// What is done to tonic's server.
pub(crate) type Http2Setup = Arc<dyn Fn(tonic::transport::Server) -> tonic::transport::Server + Send + Sync>;

/// Why no limit may be 0.
const NO_CALLS: &str = "with a limit of 0 no call would be served; give a number of calls, or don't set it";

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
    sharing: Sharing,
    services: HashMap<&'static str, Served>,
    routes: Routes,
    /// There are routes that no service of `services` stands for.
    has_other_routes: bool,
    layers: Layers,
    /// A setting that can't be meant, and what to do about it.
    refused: Option<(&'static str, &'static str)>,
    /// How long a handler may take.
    timeout: Option<Duration>,
    /// Handlers that are called directly see what HTTP/2 would have carried with the metadata.
    http_details: bool,
    /// What is done to tonic's server for addresses of HTTP/2.
    http2: Option<Http2Setup>,
    load: ServerLoad,
    metrics: Option<Metrics>,
    age: Age,
    offers_upgrade: bool,
    /// Whose gateways' objects need not be verified, if that was said.
    trusted_gateways: Option<PeerPolicy>,
    /// Set where a thread serves and does nothing else: the sessions on it.
    backend_connection: Option<Arc<AtomicUsize>>,
    #[cfg(feature = "tls")]
    tls: Option<ServerTlsConfig>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("services", &self.services.keys()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without services.
    pub fn builder() -> Server {
        Server {
            config: Config { load: true, ..Config::default() },
            sharing: Sharing::default(),
            services: HashMap::new(),
            routes: Routes::default(),
            has_other_routes: false,
            layers: Layers::default(),
            refused: None,
            timeout: None,
            http_details: false,
            http2: None,
            load: ServerLoad::default(),
            metrics: None,
            age: Age::default(),
            offers_upgrade: true,
            trusted_gateways: None,
            backend_connection: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// How sessions wait for requests.
    pub fn wait(mut self, wait: WaitPolicy) -> Server {
        self.config.wait = wait;
        self
    }

    /// Lets large payloads go by ref, through a pool that this process is a member of, to clients that are members of the
    /// same. To all others they go inline.
    pub fn pool(mut self, pool: Pool) -> Server {
        self.sharing.pool = Some(pool);
        self
    }

    /// From which length on, in bytes, something goes by ref: a field of level 2
    /// ([`REF_THRESHOLD_DEFAULT`](crate::REF_THRESHOLD_DEFAULT) unless this says otherwise), or a message of level 1
    /// ([`REF_THRESHOLD_ENCODED_DEFAULT`](crate::REF_THRESHOLD_ENCODED_DEFAULT)).
    pub fn ref_threshold(mut self, len: usize) -> Server {
        self.sharing.set_threshold(len);
        self
    }

    /// What happens to payloads for which the pool has no room.
    pub fn when_pool_full(mut self, policy: WhenPoolFull) -> Server {
        self.sharing.when_full = policy;
        self
    }

    /// What becomes of large payloads, for monitoring.
    pub fn payloads(&self) -> Payloads {
        self.sharing.payloads.clone()
    }

    /// Which users may connect over shared memory.
    pub fn peers(mut self, peers: PeerPolicy) -> Server {
        self.config.peers = peers;
        self
    }

    /// The users whose gateways are trusted with objects as a device is that writes to memory, as the kernel says who runs the
    /// gateway that this server [attaches](Server::attach) to. What such a gateway hands over as an object is read as it comes;
    /// every other one's is verified first, which costs this process time. Unless this says otherwise, root's and this process's own
    /// user's are trusted; `PeerPolicy::Users(vec![])` trusts nobody's. Other clients are never trusted so, and a gateway trusts no
    /// server. `SECURITY.md` says what a gateway that is trusted can do.
    pub fn trusted_gateways(mut self, users: PeerPolicy) -> Server {
        self.trusted_gateways = Some(users);
        self
    }

    /// How many sessions one client process may have at once. Unless this says otherwise, an eighth of the descriptors that this
    /// process may have, from 16 to 1024. Who wants one more is refused in words, and counted ([`Server::refusals`]).
    pub fn sessions_per_process(mut self, count: u32) -> Server {
        self.config.quotas.sessions_per_process = Some(count.max(1));
        self
    }

    /// The same for all processes of one user. Unless this says otherwise, three eighths of the descriptors that this process may
    /// have, from 16 to 8192.
    pub fn sessions_per_user(mut self, count: u32) -> Server {
        self.config.quotas.sessions_per_user = Some(count.max(1));
        self
    }

    /// How much memory, in bytes, may have been made for sessions and payload areas of one client process that ended within the
    /// last ten minutes (256 MiB unless this says otherwise). The client may keep it for as long as it lives, and this process
    /// is charged with it. A session has some 36 KiB. The areas that its sessions have count too, and none is made beyond half of this:
    /// long messages go through the ring then.
    pub fn ended_memory_per_process(mut self, len: u64) -> Server {
        self.config.quotas.ended_memory_per_process = len;
        self
    }

    /// The same for all processes of one user (1 GiB unless this says otherwise).
    pub fn ended_memory_per_user(mut self, len: u64) -> Server {
        self.config.quotas.ended_memory_per_user = len;
        self
    }

    /// Counts the clients that were refused at shared memory addresses, for monitoring.
    pub fn refusals(&self) -> Refusals {
        self.config.refusals.clone()
    }

    /// Whether clients on `http://` are told of a `shm:///path` of the same server when they ask for it; they are unless this
    /// says otherwise. Only clients on the same host are told in any case.
    pub fn offer_upgrade(mut self, offers: bool) -> Server {
        self.offers_upgrade = offers;
        self
    }

    /// How many calls one session may have under way; further ones wait at the client.
    pub fn concurrency_limit_per_session(mut self, count: u32) -> Server {
        if count == 0 {
            self.refused = Some(("concurrency_limit_per_session", NO_CALLS));
        }
        let window = self.config.limits.stream_window;
        let reserve = tollfree_layout::limits::WINDOW_RESERVE;
        self.config.limits.stream_count = count.max(1);
        self.config.limits.session_window =
            window.saturating_mul(count.max(1).into()).saturating_add(reserve);
        self
    }

    /// What `https://` addresses are served with: the server's certificate and key, and whose clients are let in, as for
    /// tonic's own server (feature `tls`). Without an identity serving such an address is an error. Other addresses are served as before:
    /// shared memory never leaves the host and knows its peers from the kernel.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: ServerTlsConfig) -> Server {
        self.tls = Some(config);
        self
    }

    /// How many calls the server as a whole may have under way, over all sessions and connections. Further ones are
    /// answered with RESOURCE_EXHAUSTED at once, without a handler's having seen them, and counted
    /// ([`ServerLoad::shed_count`]).
    pub fn concurrency_limit(mut self, count: u32) -> Server {
        if count == 0 {
            self.refused = Some(("concurrency_limit", NO_CALLS));
        }
        self.load.tally().limit(count.max(1));
        self
    }

    /// How long handlers may take. Calls that take longer end DEADLINE_EXCEEDED, as with a deadline of their own: the
    /// shorter of the two holds. An answer that was given in time still waits for a slow client, up to the call's own deadline.
    /// Over HTTP/2 it is tonic's own timeout, which says CANCELLED.
    pub fn timeout(mut self, timeout: Duration) -> Server {
        self.timeout = Some(timeout);
        self
    }

    /// The longest block of metadata that is received with a call, in bytes: from 256 to 15,360, which is also what counts
    /// where this is not said. A client that would send a longer one is told so with RESOURCE_EXHAUSTED. HTTP/2 heeds it as
    /// tonic does, with any number.
    pub fn http2_max_header_list_size(mut self, len: u32) -> Server {
        self.config.limits.metadata_len_max = metadata_len_max(len);
        self.http2_settings(move |builder| builder.http2_max_header_list_size(len))
    }

    /// Whether handlers of level 2's unary calls over shared memory see `content-type`, `te` and `user-agent` among the
    /// metadata, as all others do. They don't unless this is said: a header map takes two allocations a call.
    pub fn http_details(mut self, shown: bool) -> Server {
        self.http_details = shown;
        self
    }

    /// What is to be said to tonic's own server for addresses of HTTP/2: windows, keepalive, frames, TCP's settings. Those
    /// that concern calls, as timeouts and limits do, are the [`Server`]'s own and count for all addresses.
    ///
    /// # Example
    /// ```
    /// # use std::time::Duration;
    /// let server = tollfree::Server::builder()
    ///     .http2_settings(|http2| http2.http2_keepalive_interval(Some(Duration::from_secs(20))));
    /// ```
    pub fn http2_settings(
        mut self,
        settle: impl Fn(tonic::transport::Server) -> tonic::transport::Server + Send + Sync + 'static,
    ) -> Server {
        let before = self.http2.take();
        self.http2 = Some(Arc::new(move |builder| match &before {
            Some(before) => settle(before(builder)),
            None => settle(builder),
        }));
        self
    }

    /// Makes a span for each call, which its handler runs in, as tonic's does: `make` sees the request without its body. It
    /// is a [layer](Server::layer).
    pub fn trace_fn<F>(self, make: F) -> Server
    where
        F: Fn(&Request<()>) -> tracing::Span + Send + Sync + 'static,
    {
        self.layer(TraceLayer(Arc::new(make)))
    }

    /// How busy the server is, for monitoring.
    pub fn load(&self) -> ServerLoad {
        self.load.clone()
    }

    /// Counts the server's calls, whichever way they come, and whom it turns away (feature `metrics`). Unary calls of level 2 are served
    /// in a somewhat longer way then.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &Metrics) -> Server {
        self.metrics = Some(metrics.clone());
        self
    }

    /// How long a session or connection may exist. Then its client is told to make another (DRAIN, or GOAWAY): calls under
    /// way go on, new ones go by the new one, and none fails for it. A tenth more or less, so that clients that came
    /// together don't all come back together.
    pub fn max_connection_age(mut self, age: Duration) -> Server {
        self.age.age = Some(age);
        self
    }

    /// How long calls may go on in a session or connection that has reached its age. Then it is closed, and they end
    /// UNAVAILABLE. Without it they may go on without end.
    pub fn max_connection_age_grace(mut self, grace: Duration) -> Server {
        self.age.grace = Some(grace);
        self
    }

    /// Puts a layer of tower around all services, whichever way calls come, as tonic's own server does: the first one given
    /// is the outermost. What a layer's service fails with becomes a gRPC status. Services within layers are called by
    /// `http::Request`, also those that could be called in a shorter way.
    ///
    /// # Example
    /// ```
    /// # use std::time::Duration;
    /// let server = tollfree::Server::builder().layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(5)));
    /// ```
    pub fn layer<L, B>(mut self, layer: L) -> Server
    where
        L: tower_layer::Layer<AnyService>,
        L::Service: Service<Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.layers.push(layers::put(layer));
        self
    }

    /// Adds everything that tonic's routes hold. They must not hold a service that was added before.
    pub fn add_routes(mut self, routes: Routes) -> Server {
        let others = routes.into_axum_router().reset_fallback();
        self.routes = Routes::from(self.routes.into_axum_router().merge(others));
        self.has_other_routes = true;
        self.layers.forget();
        self
    }

    /// Serves every method of a service that the server does not have: by bytes, as [`by_bytes`](crate::by_bytes) has it. A method that a service of the
    /// server lacks is answered by that service, with UNIMPLEMENTED.
    pub fn fallback<S>(mut self, service: S) -> Server
    where
        S: Service<Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes = layers::with_fallback(self.routes, Arc::new(service));
        self.has_other_routes = true;
        self.layers.forget();
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
        let direct = run::find::<S, Request<Body>>(&service);
        match &direct {
            Some(found) => tracing::debug!(
                service = S::NAME,
                intercepted = found.intercepted,
                "unary calls over shared memory are served directly"
            ),
            None => tracing::debug!(
                service = S::NAME,
                "calls are served as HTTP requests: not generated by tollfree-build, or with other layers around it"
            ),
        }
        self.services.insert(S::NAME, Served { handler: Arc::new(service.clone()), direct });
        self.routes = self.routes.add_service(service);
        self.layers.forget();
        self
    }

    /// Adds a service if there is one, as for tonic's own server.
    pub fn add_optional_service<S, B>(self, service: Option<S>) -> Server
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
        match service {
            Some(service) => self.add_service(service),
            None => self,
        }
    }

    /// Serves one address until the process ends.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound.
    pub async fn serve(self, uri: impl Into<String>) -> Result<(), ServeError> {
        self.serve_many([uri]).await
    }

    /// Serves one address until `signal` resolves and the calls under way are answered.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound.
    pub async fn serve_with_shutdown(
        self,
        uri: impl Into<String>,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_many_with_shutdown([uri], signal).await
    }

    /// Serves several addresses at once, of any kind: `shm:///path`, `shm-abstract:name`, `unix:/path`,
    /// `http://host:port`, `https://host:port`.
    ///
    /// Clients on `http://` that ask for it are told of the first `shm:///path`, so that those on the same host can move
    /// over by themselves ([`ChannelBuilder::upgrade_directory`](crate::ChannelBuilder::upgrade_directory)).
    ///
    /// # Errors
    /// [`ServeError`] when one of them can't be bound; none is served then.
    pub async fn serve_many(
        self,
        uris: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<(), ServeError> {
        self.serve_many_with_shutdown(uris, pending()).await
    }

    /// Serves one address on the calling thread, which does nothing else until the process ends: a thread, pinned to a
    /// core of its own where the lowest latency is wanted. While a single client is attached and no handler is under way
    /// it spins for longer than a task of a shared runtime may; otherwise it waits as any server does. Handlers run on
    /// this thread, in a runtime that is made here.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound or no runtime can be had.
    ///
    /// # Panics
    /// In a task of a tokio runtime.
    pub fn serve_blocking(self, uri: impl Into<String>) -> Result<(), ServeError> {
        self.serve_blocking_with_shutdown(uri, pending())
    }

    /// [`serve_blocking`](Server::serve_blocking) until `signal` resolves and the calls under way are answered.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound or no runtime can be had.
    ///
    /// # Panics
    /// In a task of a tokio runtime.
    pub fn serve_blocking_with_shutdown(
        mut self,
        uri: impl Into<String>,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let uri = uri.into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| ServeError::Socket { address: uri.clone(), source })?;
        self.backend_connection = Some(Arc::default());
        runtime.block_on(self.serve_with_shutdown(uri, signal))
    }

    /// [`serve_many`](Server::serve_many) until `signal` resolves: new calls are refused, those under way answered.
    ///
    /// # Errors
    /// [`ServeError`] when one of the addresses can't be bound, or an HTTP/2 listener fails.
    pub async fn serve_many_with_shutdown(
        mut self,
        uris: impl IntoIterator<Item = impl Into<String>>,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.check()?;
        let mut bound = Vec::new();
        let uris: Vec<String> = uris.into_iter().map(Into::into).collect();
        let offers = self.offers_upgrade && uris.iter().any(|uri| uri.starts_with("http://"));
        self.config.tokens = offers.then(Arc::<Tokens>::default);
        for uri in &uris {
            bound.push(Bound::bind(uri, &self).await?);
        }
        self.serve_bound(bound, signal).await
    }

    /// Serves over shared memory at a socket that listens already: one that a service manager passes (`LISTEN_FDS`), so that
    /// it can be met before the server has started and while it is started anew. That one removes its file.
    ///
    /// A client that had connected before this was called knows the process that bound the socket for its peer: that one's
    /// user has to be among those that the client trusts, and its end is taken for the server's.
    ///
    /// # Errors
    /// [`ServeError::Bind`] when it is no socket that listens for streams, or memory can't be shared.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example(listener: std::os::unix::net::UnixListener) -> Result<(), Box<dyn std::error::Error>> {
    /// // let listener = listenfd::ListenFd::from_env().take_unix_listener(0)?.ok_or("started by hand")?;
    /// # let (_, greeter) = tonic_health::server::health_reporter();
    /// tollfree::Server::builder().add_service(greeter).serve_listener(listener).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve_listener(self, listener: UnixListener) -> Result<(), ServeError> {
        self.serve_listener_with_shutdown(listener, pending()).await
    }

    /// [`serve_listener`](Server::serve_listener) until `signal` resolves: new calls are refused, those under way answered.
    ///
    /// # Errors
    /// The same.
    pub async fn serve_listener_with_shutdown(
        self,
        listener: UnixListener,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.check()?;
        let listener = Listener::adopt(listener, self.session_config())?;
        self.serve_bound(vec![Bound::Shm(listener)], signal).await
    }

    /// Serves connections of HTTP/2 that somebody else accepts, as tonic's own server does, until there are no more of
    /// them and the last one has ended. For shared memory there is [`serve_listener`](Server::serve_listener).
    ///
    /// # Errors
    /// [`ServeError::Http`] when the stream fails.
    pub async fn serve_with_incoming<I, IO, E>(self, incoming: I) -> Result<(), ServeError>
    where
        I: Stream<Item = Result<IO, E>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.serve_with_incoming_shutdown(incoming, pending()).await
    }

    /// [`serve_with_incoming`](Server::serve_with_incoming) until `signal` resolves: new calls are refused, those under way
    /// answered.
    ///
    /// # Errors
    /// The same.
    pub async fn serve_with_incoming_shutdown<I, IO, E>(
        self,
        incoming: I,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        I: Stream<Item = Result<IO, E>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.check()?;
        let duty = self.duty()?;
        let (stop, stopped) = watch::channel(false);
        let (address, routes) = ("connections that were handed over".to_owned(), duty.routes.clone());
        let serving = bound::serve_http2(address, Box::default(), routes, incoming, &duty, stopped);
        tokio::pin!(serving, signal);
        loop {
            tokio::select! {
                served = &mut serving => return served,
                () = &mut signal, if !*stop.borrow() => { _ = stop.send(true); }
            }
        }
    }

    /// Serves what is bound until `signal` resolves and all calls are answered.
    async fn serve_bound(
        self,
        bound: Vec<Bound>,
        signal: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stop, stopped) = watch::channel(false);
        let mut servers = JoinSet::new();
        let tokens = self.config.tokens.clone();
        let offer =
            tokens.and_then(|tokens| bound.iter().find_map(|bound| bound.offer(&tokens)).map(Arc::new));
        let duty = Arc::new(self.duty()?);
        for bound in bound {
            servers.spawn(bound.run(duty.clone(), offer.clone(), stopped.clone()));
        }
        let publish = duty.tally.clone().publish();
        tokio::pin!(signal, publish);
        let mut result = Ok(());
        loop {
            tokio::select! {
                () = &mut publish => {}
                () = &mut signal, if !*stop.borrow() => { _ = stop.send(true); }
                ended = servers.join_next() => {
                    let Some(ended) = ended else { return result };
                    if let Err(error) = served(ended) {
                        result = result.and(Err(error));
                        _ = stop.send(true);
                    }
                }
            }
        }
    }

    /// # Errors
    /// [`ServeError::Setting`] for what can't be meant.
    fn check(&self) -> Result<(), ServeError> {
        match self.refused {
            Some((setting, reason)) => Err(ServeError::Setting { setting, reason }),
            None => Ok(()),
        }
    }

    /// What sessions are told.
    pub(crate) fn session_config(&self) -> Config {
        Config { pool: self.sharing.pool_id(), ..self.config.clone() }
    }
}

#[cfg(feature = "tls")]
impl Server {
    /// tonic's server with the identity that was given.
    pub(crate) fn with_tls(&self, uri: &str) -> Result<tonic::transport::Server, ServeError> {
        let config = self.tls.clone().ok_or_else(|| ServeError::Address {
            address: uri.into(),
            reason: "it needs a certificate and a key: give them to Server::tls_config".into(),
        })?;
        // A configuration doesn't let anybody see whether it has an identity, and tonic panics where it has none.
        let configured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tonic::transport::Server::builder().tls_config(config)
        }));
        let error = |reason| ServeError::Tls { address: uri.into(), reason };
        match configured {
            // tonic's own text says no more than "transport error".
            Ok(server) => server.map_err(|failed| {
                error(failed.source().map_or_else(|| failed.to_string(), ToString::to_string))
            }),
            Err(_) => Err(error("it has no certificate and key: ServerTlsConfig::identity".into())),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Server {
    pub(crate) fn with_tls(&self, uri: &str) -> Result<tonic::transport::Server, ServeError> {
        Err(ServeError::Address {
            address: uri.into(),
            reason: "TLS is not built in: build tollfree with its feature \"tls\"".into(),
        })
    }
}

impl Server {
    /// What all sessions and connections have in common.
    fn duty(self) -> Result<ServerContext, ServeError> {
        if let Some(metrics) = &self.metrics {
            metrics.watch_clients(self.refusals());
            let load = self.load.clone();
            metrics.watch_calls(Box::new(move || load.shed_count()));
        }
        let tally = self.load.tally().clone();
        let sharing = Arc::new(self.sharing);
        if self.layers.is_empty() {
            let others: Option<Arc<dyn ErasedService>> =
                if self.has_other_routes { Some(Arc::new(self.routes.clone())) } else { None };
            let services = Arc::new(self.services);
            return Ok(ServerContext {
                services,
                others,
                routes: self.routes,
                tally,
                metrics: self.metrics,
                sharing,
                age: self.age,
                timeout: self.timeout,
                http_details: self.http_details,
                http2: self.http2,
                sessions: Arc::default(),
                backend_connection: self.backend_connection,
                relays_objects: false,
            });
        }
        // Layers see HTTP requests: nothing is called directly within them.
        let services = self.services.into_iter().map(|(name, served)| (name, served.handler)).collect();
        let all = self.layers.stack(services, self.routes)?;
        Ok(ServerContext {
            services: Services::default(),
            others: Some(all.clone()),
            routes: layers::into_routes(all),
            tally,
            metrics: self.metrics,
            sharing,
            age: self.age,
            timeout: self.timeout,
            http_details: self.http_details,
            http2: self.http2,
            sessions: Arc::default(),
            backend_connection: self.backend_connection,
            relays_objects: false,
        })
    }
}
