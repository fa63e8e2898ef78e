//! The client's end: a channel that any generated client takes.

pub mod blocking;
pub(crate) mod changing;
mod fellows;
pub(crate) mod slot;
pub(crate) mod tonic_channel;

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Uri};
use tollfree_balancer::{Member, Target};
use tollfree_driver_tokio::{Config, PeerPolicy, Purpose, WaitPolicy};
use tollfree_pool::Pool;
use tonic::Status;
use tonic::body::Body;

use crate::call::attempts::{Failed, Terms};
use crate::call::retry::Throttle;
use crate::call::routing::{Changes, Routing};
use crate::channel::changing::Maker;
use crate::channel::slot::Slot;
use crate::endpoint::Subchannel;
use crate::endpoint::balance::{Balance, Balancer, HealthCheck};
use crate::endpoint::error::{ChannelError, USER_AGENT_LEN_MAX};
use crate::endpoint::http2::Http2Settings;
use crate::endpoint::path::Path;
use crate::endpoint::place::{Files, is_device, is_gateway_address};
use crate::endpoint::upgrade::{Upgrade, UpgradeSettings};
use crate::http::response_body::ResponseBody;
use crate::http::session_attempt::ResponseFuture;
use crate::http::{call as http_call, health};
use crate::message::out_of_band::OfClient;
use crate::message::payloads::{Payloads, Sharing, WhenPoolFull};
use crate::metadata::metadata_len_max;
use crate::metrics::{MadeCall, Metrics, Outcome};
use tollfree_balancer::ServiceConfig;

/// A way to one server or several, over shared memory or HTTP/2, for any client that tonic generates. Clones share the
/// connections.
///
/// A connection that ends is replaced; a call whose outcome is unknown ends UNAVAILABLE and is never sent again by itself,
/// unless a retry policy ([`ChannelBuilder::service_config`]) says so. A channel may be used from several runtimes at once.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = tollfree::Channel::connect("shm:///run/app/greeter.sock").await?;
/// println!("{}", channel.path());
/// // let mut client = GreeterClient::new(channel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Routing>,
}

/// Settings of a channel; see [`Channel::builder`]. The default has no server: [`endpoint`](ChannelBuilder::endpoint) adds one,
/// and [`balance_channel`](ChannelBuilder::balance_channel) lets them come and go.
#[derive(Clone, Debug, Default)]
pub struct ChannelBuilder {
    targets: Vec<Target>,
    config: Config,
    sharing: Sharing,
    timeout: Option<Duration>,
    balance: Option<Balance>,
    waits: bool,
    service_config: Option<String>,
    upgrade: UpgradeSettings,
    user_agent: Option<String>,
    http_details: bool,
    http2: Http2Settings,
    files: Files,
    metrics: Option<Metrics>,
}

impl From<&str> for ChannelBuilder {
    fn from(uri: &str) -> ChannelBuilder {
        Channel::builder(uri)
    }
}

impl From<String> for ChannelBuilder {
    fn from(uri: String) -> ChannelBuilder {
        Channel::builder(uri)
    }
}

impl From<&String> for ChannelBuilder {
    fn from(uri: &String) -> ChannelBuilder {
        Channel::builder(uri)
    }
}

impl From<Uri> for ChannelBuilder {
    fn from(uri: Uri) -> ChannelBuilder {
        Channel::builder(uri.to_string())
    }
}

impl ChannelBuilder {
    /// A further server: of any kind, `shm:///path`, `shm-abstract:name`, `unix:/path`, `http://host:port` or
    /// `https://host:port`.
    pub fn endpoint(mut self, uri: impl Into<String>) -> Self {
        self.targets.push(Target::new(uri.into()));
        self
    }

    /// Further servers, with weights and priorities.
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = changing::Endpoint>) -> Self {
        self.targets.extend(endpoints.into_iter().map(changing::Endpoint::into_target));
        self
    }

    /// The target of all calls, where the addresses are those of gateways ([`Channel::via`]).
    pub fn via(mut self, target: impl Into<String>) -> Self {
        self.config.via = Some(Arc::from(target.into()));
        self
    }

    /// What to show and to trust at a gateway of another host (`device+tls://host:port`), PEM files each: who signs the gateway's
    /// certificate, this process's own, and its key. They are read anew for each connection.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = tollfree::Channel::builder("device+tls://gateway.example:9443")
    ///     .certificates("ca.pem", "orders.pem", "orders.key")
    ///     .via("http://inventory:80")
    ///     .connect()
    ///     .await?;
    /// println!("{}", channel.path());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn certificates(
        mut self,
        ca: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.files = Some(tollfree_driver_tokio::Certificates {
            ca: ca.into(),
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// How an endpoint is chosen for a call, where there are several. The service config's choice counts where this is
    /// not said.
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = Some(balance);
        self
    }

    /// A timeout for calls that bring none or a longer one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long connecting may take, the handshake included: 5 s unless this says otherwise.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.handshake_timeout = timeout;
        self.http2.connect_timeout = Some(timeout);
        self
    }

    /// What this client calls itself, before the name of the library, in the requests' `user-agent`: up to 80 visible ASCII
    /// characters.
    pub fn user_agent(mut self, agent: impl Into<String>) -> Self {
        self.user_agent = Some(agent.into());
        self
    }

    /// Whether answers to level 2's unary calls over shared memory show `content-type` and `grpc-status` among the metadata,
    /// as all others do. They don't unless this is said: a header map takes two allocations a call.
    pub fn http_details(mut self, shown: bool) -> Self {
        self.http_details = shown;
        self
    }

    /// Scheme and authority of requests over HTTP/2, where they are not those of the address. A session doesn't carry them.
    pub fn origin(mut self, origin: Uri) -> Self {
        self.http2.origin = Some(origin);
        self
    }

    /// The longest block of metadata that is received with a response, in bytes: from 256 to 15,360, which is also what
    /// counts where this is not said. A server shortens the text of a status that is longer. HTTP/2 heeds it as tonic does,
    /// with any number.
    pub fn http2_max_header_list_size(mut self, len: u32) -> Self {
        self.config.limits.metadata_len_max = metadata_len_max(len);
        self.http2_settings(move |endpoint| endpoint.http2_max_header_list_size(len))
    }

    /// What is to be said to tonic's own endpoints for addresses of HTTP/2: windows, keepalive, limits, TCP's settings.
    /// `http://` connections do not heed `local_address`, which tonic shows to nobody.
    ///
    /// # Example
    /// ```
    /// let builder = tollfree::Channel::builder("http://localhost:50051")
    ///     .http2_settings(|endpoint| endpoint.initial_stream_window_size(1 << 20).http2_adaptive_window(true));
    /// ```
    pub fn http2_settings(
        mut self,
        settle: impl Fn(tonic::transport::Endpoint) -> tonic::transport::Endpoint + Send + Sync + 'static,
    ) -> Self {
        self.http2.add(settle);
        self
    }

    /// Whose certificates are trusted at `https://` addresses, and which the client shows, as for tonic's own endpoints
    /// (feature `tls`). Without it such an address is an error.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: tonic::transport::ClientTlsConfig) -> Self {
        self.http2.tls = Some(config);
        self
    }

    /// Whether calls wait for a server instead of failing where none can be reached; [`WaitForReady`](crate::WaitForReady) says it for one call.
    pub fn wait_for_ready(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// gRPC's service config, as JSON: `loadBalancingConfig` (also `outlier_detection_experimental` of gRFC A50), `methodConfig` with `name`, `timeout`, `waitForReady` and
    /// `retryPolicy`, `retryThrottling`, and `healthCheckConfig`, which as in gRPC is heeded by all balancing but
    /// `pick_first`. Of a request to be sent again 256 KiB are kept; a longer one is sent once, unless it is a unary call of
    /// level 2 over shared memory, whose message stays with the caller. Hedging and message limits are refused, fields that
    /// gRPC doesn't know passed over.
    pub fn service_config(mut self, json: impl Into<String>) -> Self {
        self.service_config = Some(json.into());
        self
    }

    /// Counts the channel's calls and their attempts, whichever way they go (feature `metrics`). Their target is what
    /// [`via`](Self::via) says, or else the addresses that the builder was given.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// How tasks wait for replies.
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.config.wait = wait;
        self
    }

    /// Lets large payloads go by ref, through a pool that this process is a member of, to servers that are members of the
    /// same. To all others they go inline; [`Channel::path`] says which.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollfree::pool::{Config, Pool};
    ///
    /// let pool = Pool::join(&"shm:///run/app/pool.sock".parse()?, Config::default())?;
    /// let channel = tollfree::Channel::builder("shm:///run/app/scaler.sock").pool(pool.clone()).connect().await?;
    /// let mut pixels = pool.buffer(1 << 20)?; // to produce into; `Bytes` of it go by ref with no copy at all
    /// pixels.resize_zeroed(1 << 20).fill(7);
    /// let pixels = bytes::Bytes::from(pixels.freeze()?);
    /// // let reply = ScalerClient::new(channel.clone()).scale(Image { pixels }).await?;
    /// println!("{}: {:?}", channel.path(), channel.payloads());
    /// # Ok(())
    /// # }
    /// ```
    pub fn pool(mut self, pool: Pool) -> Self {
        self.sharing.pool = Some(pool);
        self
    }

    /// From which length on, in bytes, something goes by ref: a field of level 2
    /// ([`REF_THRESHOLD_DEFAULT`](crate::REF_THRESHOLD_DEFAULT) unless this says otherwise), or a message of level 1
    /// ([`REF_THRESHOLD_ENCODED_DEFAULT`](crate::REF_THRESHOLD_ENCODED_DEFAULT)).
    pub fn ref_threshold(mut self, len: usize) -> Self {
        self.sharing.set_threshold(len);
        self
    }

    /// What happens to payloads for which the pool has no room.
    pub fn when_pool_full(mut self, policy: WhenPoolFull) -> Self {
        self.sharing.when_full = policy;
        self
    }

    /// Which users' servers are trusted.
    pub fn peers(mut self, peers: PeerPolicy) -> Self {
        self.config.peers = peers;
        self
    }

    /// Whether calls to `http://host:port` move over to shared memory by themselves. Where this is not said they do if a
    /// directory is known ([`upgrade_directory`](Self::upgrade_directory)).
    pub fn upgrade(mut self, policy: Upgrade) -> Self {
        self.upgrade.policy = Some(policy);
        self
    }

    /// A directory in which a server's local socket may lie, at any depth: what a server on `http://host:port` offers
    /// elsewhere is not used. May be said several times. Where it is not said, the environment's
    /// `TOLLFREE_UPGRADE_DIRECTORY` counts, which lists directories as `PATH` does.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = tollfree::Channel::builder("http://localhost:50051").upgrade_directory("/run/app").connect().await?;
    /// println!("{}", channel.path());
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.upgrade.directories.push(directory.into());
        self
    }

    /// Whether calls may move over where something stands between the client and the server: a proxy, which will not see
    /// them any more, or a translation of addresses. They don't unless this is said.
    pub fn upgrade_through_proxies(mut self, through: bool) -> Self {
        self.upgrade.through_proxies = through;
        self
    }

    /// Connects now; with several endpoints, to one at least.
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub async fn connect(self) -> Result<Channel, ChannelError> {
        let channel = self.connect_lazy()?;
        match &channel.inner.plain {
            Some(endpoint) => endpoint.connect_now().await?,
            None => drop(channel.inner.balancer.pick(false, None).await.map_err(ChannelError::Unreachable)?),
        }
        Ok(channel)
    }

    /// Connects now, for calls that block their threads: [`blocking`].
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub fn connect_blocking(mut self) -> Result<blocking::Channel, ChannelError> {
        self.config.dedicated = true;
        blocking::Channel::new(self)
    }

    /// Connects at the first call.
    ///
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub fn connect_lazy(self) -> Result<Channel, ChannelError> {
        Ok(self.make(false)?.0)
    }

    /// A channel, and what makes endpoints for it, of which there may come to be more or fewer if it `changes`.
    ///
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub(crate) fn make(mut self, changes: bool) -> Result<(Channel, Maker), ChannelError> {
        if let Some(agent) = self.user_agent.take() {
            let value = http::HeaderValue::from_str(&agent).ok();
            let sendable =
                agent.len() <= USER_AGENT_LEN_MAX && agent.bytes().all(|byte| (32..127).contains(&byte));
            let Some(value) = value.filter(|_| sendable) else { return Err(ChannelError::UserAgent(agent)) };
            self.http2.user_agent = Some(value);
            self.config.agent = Some(agent);
        }
        let managed = self.service_config.is_some() || self.targets.len() != 1 || changes;
        let config =
            self.service_config.as_deref().map(ServiceConfig::parse).transpose()?.unwrap_or_default();
        let balance = self.balance.or(config.balance.map(Balance::from)).unwrap_or_default();
        if let Some(target) = self.config.via.clone() {
            let other = self.uris().find(|uri| !is_gateway_address(uri));
            let wrong = other.map(|uri| {
                format!("{uri} is no gateway's address: write shm:///path or device+tls://host:port")
            });
            let wrong = wrong.or_else(|| Purpose::Via(target).check().err().map(Into::into));
            wrong.map_or(Ok(()), |wrong| Err(ChannelError::Via(wrong)))?;
            if let Some(uri) = self.uris().find(|uri| self.config.dedicated && is_device(uri)) {
                return Err(ChannelError::Via(format!(
                    "a channel for calls that block their thread says nothing between them, so {uri} would take it for dead: use one that doesn't"
                )));
            }
        }
        let target =
            self.config.via.clone().unwrap_or_else(|| self.uris().collect::<Vec<_>>().join(",").into());
        // A target elsewhere is nobody that could be met; a channel that chooses does so among gateways.
        let is_plain = !managed && !self.config.dedicated;
        let direct_connections =
            is_plain && self.config.via.as_ref().is_some_and(|via| via.starts_with("group:"));
        let maker = Maker {
            direct_connections,
            settings: Config { load: balance == Balance::LeastOutstanding, ..self.config },
            sharing: Arc::new(self.sharing),
            plan: self.upgrade.plan()?,
            http2: self.http2,
            files: self.files,
        };
        let health =
            config.health_service.clone().map(|service| HealthCheck { service, watch: health::watch });
        let balancer = Balancer::new(balance, config.outlier_detection.clone(), health);
        balancer.replace(self.targets, |target, record| maker.make(&target.address, record))?;
        let plain = balancer.endpoints().first().map(Member::endpoint).cloned();
        let plain = plain.filter(|endpoint| !managed && endpoint.is_session());
        let inner = Routing {
            plain,
            balancer,
            sharing: maker.sharing.clone(),
            changes: OnceLock::new(),
            throttle: config.throttling.map(|throttling| Arc::new(Throttle::new(throttling))),
            config,
            timeout: self.timeout,
            waits: self.waits,
            http_details: self.http_details,
            metrics: self.metrics.clone().map(|metrics| (metrics, target)),
        };
        let inner = Arc::new(inner);
        if let Some(metrics) = &self.metrics {
            let routing = Arc::downgrade(&inner);
            metrics.watch_channel(Box::new(move || Some(routing.upgrade()?.sessions())));
        }
        Ok((Channel { inner }, maker))
    }

    fn uris(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| &*target.address)
    }
}

impl Channel {
    /// Connects to `shm:///path/to.sock` or `shm-abstract:name`, or over HTTP/2 to `unix:/path`, `http://host:port` or
    /// `https://host:port`. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub async fn connect(uri: impl Into<String>) -> Result<Channel, ChannelError> {
        Channel::builder(uri).connect().await
    }

    /// A channel with settings, to one server or (with [`ChannelBuilder::endpoint`]) several.
    pub fn builder(uri: impl Into<String>) -> ChannelBuilder {
        ChannelBuilder { targets: vec![Target::new(uri.into())], ..ChannelBuilder::default() }
    }

    /// Connects to the gateway at a session's address, `shm:///path` or `shm-abstract:name`, which makes all calls of this channel
    /// at `target`, say `https://inventory:443`: connections, TLS, names, retries and balancing are the gateway's then. Which
    /// targets it calls for whom is its configuration. Must be called in a tokio runtime with IO and time. One of another host is
    /// met at `device+tls://host:port`, by a builder that is told [`certificates`](ChannelBuilder::certificates).
    ///
    /// # Errors
    /// [`ChannelError`], which names the socket and what to do.
    pub async fn via(gateway: impl Into<String>, target: impl Into<String>) -> Result<Channel, ChannelError> {
        Channel::builder(gateway).via(target).connect().await
    }

    /// A channel to a process that has connected by itself.
    pub(crate) fn of_attached(endpoint: Arc<Subchannel>) -> Channel {
        let balancer = Balancer::new(Balance::default(), None, None);
        let target = Target::new(endpoint.name.clone());
        let Ok(()) = balancer.replace(vec![target], |_, _| Ok::<_, Infallible>(endpoint.clone()));
        Channel {
            inner: Arc::new(Routing {
                plain: Some(endpoint.clone()),
                sharing: endpoint.sharing.clone(),
                balancer,
                changes: OnceLock::new(),
                config: ServiceConfig::default(),
                throttle: None,
                timeout: None,
                waits: false,
                http_details: false,
                metrics: None,
            }),
        }
    }

    /// Which way calls take now.
    pub fn path(&self) -> Path {
        let balancer = &self.inner.balancer;
        let path_of = |member: &Member<Arc<Subchannel>>| {
            let path = member.endpoint().path();
            if member.is_ejected() { path.ejected() } else { path }
        };
        let endpoints = balancer.endpoints().iter().map(path_of).collect();
        Path { balance: balancer.balance, endpoints }
    }

    /// What became of large payloads so far.
    pub fn payloads(&self) -> Payloads {
        self.sharing().payloads.clone()
    }

    /// What the channel was told about large payloads.
    pub(crate) fn sharing(&self) -> &Arc<Sharing> {
        &self.inner.sharing
    }

    /// Whether messages of all its calls may be segmented messages: it has a pool, and no call goes over HTTP/2.
    pub(crate) fn passes_refs(&self) -> bool {
        self.sharing().pool_id().is_some() && self.has_sessions_only()
    }

    /// Whether no call goes over HTTP/2, nor may come to.
    pub(crate) fn has_sessions_only(&self) -> bool {
        self.inner.changes.get().is_none()
            && self.inner.balancer.endpoints().iter().all(|member| member.endpoint().is_session())
    }

    /// Its endpoints change from here on.
    pub(crate) fn change(&self, changes: Changes) {
        // A channel is made to change when it is made, and once.
        let _ = self.inner.changes.set(changes);
    }

    /// What its clones share, as long as there are some.
    pub(crate) fn downgrade(&self) -> Weak<Routing> {
        Arc::downgrade(&self.inner)
    }

    /// What its clones share.
    pub(crate) fn inner(&self) -> &Routing {
        &self.inner
    }

    /// Whether calls go by sessions, at times at least: the shorter way is open whenever there is one.
    pub(crate) fn may_be_direct(&self) -> bool {
        self.inner.changes.get().is_some()
            || self.inner.balancer.endpoints().iter().any(|member| member.endpoint().may_have_session())
    }

    /// Whether the shorter way is open now.
    pub(crate) fn is_direct(&self) -> bool {
        let endpoints = self.inner.balancer.endpoints();
        endpoints.iter().map(Member::endpoint).any(|known| known.is_session() || known.live().is_some())
    }

    /// Looks after the sessions where no runtime runs that would.
    pub(crate) fn attend(&self) {
        for endpoint in self.inner.balancer.endpoints().iter().map(Member::endpoint) {
            if let Some(attachment) = endpoint.live() {
                attachment.attend();
                if attachment.closed().is_some() {
                    endpoint.retire(&attachment);
                }
            }
        }
    }

    /// Whether answers show what HTTP/2 would have carried.
    pub(crate) fn shows_http_details(&self) -> bool {
        self.inner.http_details
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.inner.balancer.endpoints();
        let names: Vec<_> = endpoints.iter().map(|member| &member.endpoint().name).collect();
        f.debug_struct("Channel").field("endpoints", &names).finish_non_exhaustive()
    }
}

impl tower_service::Service<Request<Body>> for Channel {
    type Response = http::Response<ResponseBody>;
    type Error = Status;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, mut request: Request<Body>) -> CallFuture {
        if let Some(slot) = Slot::of(&mut request) {
            slot.fill(&mut request, Some(self.clone()));
            return CallFuture { way: CallWay::Failed(None), outcome: None };
        }
        let outcome = self.inner.begin(request.uri().path());
        let made = outcome.as_ref().map(|outcome| outcome.0.clone());
        let way = match &self.inner.plain {
            Some(endpoint) => self.call_by(endpoint, request, made),
            None => CallWay::Boxed(Box::pin(http_call::run(self.inner.clone(), request, made))),
        };
        CallFuture { way, outcome }
    }
}

impl Channel {
    /// A call by the session of a plain channel's endpoint.
    #[inline]
    fn call_by(
        &self,
        endpoint: &Arc<Subchannel>,
        mut request: Request<Body>,
        made: Option<MadeCall>,
    ) -> CallWay {
        if let Some(made) = &made {
            let out_of_band = OfClient::of(request.extensions());
            request = request.map(|body| made.tell_sent(body, out_of_band));
        }
        let inner = &self.inner;
        let terms = match Terms::new(inner, request.uri().path(), request.headers(), request.extensions()) {
            Ok(terms) => terms,
            Err(status) => return CallWay::Failed(Some(status)),
        };
        let mut call = match ResponseFuture::new(endpoint, terms.deadline_ns, true, request) {
            Ok(call) => call,
            Err(status) => return CallWay::Failed(Some(status)),
        };
        match endpoint.live() {
            Some(attachment) => {
                if let Some(made) = &made {
                    made.attempt();
                }
                call.place(attachment);
                CallWay::Placed(call, inner.clone())
            }
            None => CallWay::Boxed(Box::pin(http_call::move_over(inner.clone(), call, None, made))),
        }
    }
}

/// A call under way; resolves to the response's head. Dropping it cancels the call.
pub struct CallFuture {
    way: CallWay,
    /// Where the channel has metrics.
    outcome: Option<Outcome>,
}

type Boxed = Pin<Box<dyn Future<Output = Result<http::Response<ResponseBody>, Status>> + Send>>;

#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and need not be allocated")]
enum CallWay {
    /// By the only session.
    Placed(ResponseFuture, Arc<Routing>),
    /// By a connection to be chosen, perhaps several times.
    Boxed(Boxed),
    /// Not at all.
    Failed(Option<Status>),
}

impl CallWay {
    /// What becomes of a call that has failed on the only session.
    #[cold]
    fn after(&mut self, failed: Failed, made: Option<MadeCall>) {
        *self = match std::mem::replace(self, CallWay::Failed(None)) {
            CallWay::Placed(call, channel) if failed.unseen => {
                CallWay::Boxed(Box::pin(http_call::move_over(channel, call, Some(failed), made)))
            }
            _ => CallWay::Failed(Some(failed.status)),
        };
    }
}

impl fmt::Debug for CallFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}

impl Future for CallFuture {
    type Output = Result<http::Response<ResponseBody>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut result = ready!(self.poll_way(cx));
        if let Some(outcome) = self.outcome.take() {
            count(outcome, &mut result);
        }
        Poll::Ready(result)
    }
}

impl CallFuture {
    #[inline]
    fn poll_way(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::Response<ResponseBody>, Status>> {
        loop {
            match &mut self.way {
                CallWay::Placed(call, _) => match ready!(Pin::new(call).poll(cx)) {
                    Ok(response) => return Poll::Ready(Ok(response)),
                    Err(failed) => {
                        let made = self.outcome.as_ref().map(|outcome| outcome.0.clone());
                        self.way.after(failed, made);
                    }
                },
                CallWay::Boxed(call) => return call.as_mut().poll(cx),
                CallWay::Failed(status) => {
                    let ended = || Status::internal("polled after its end");
                    return Poll::Ready(Err(status.take().unwrap_or_else(ended)));
                }
            }
        }
    }
}

/// Says how a call has ended, or has its body say so.
fn count(outcome: Outcome, result: &mut Result<http::Response<ResponseBody>, Status>) {
    match result {
        Err(status) => outcome.is(status.code()),
        Ok(response) => match http_call::status_alone(response) {
            Some(code) => outcome.is(code),
            None => response.body_mut().count(outcome.0.clone(), Some(outcome)),
        },
    }
}
