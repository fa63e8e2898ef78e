//! One server that a channel may use: where it is, the connection to it, and how it has fared.

pub(crate) mod attempt;
pub(crate) mod balance;
pub(crate) mod connectors;
pub(crate) mod direct_connection;
pub(crate) mod error;
pub(crate) mod greeted;
pub(crate) mod http2;
pub(crate) mod path;
pub(crate) mod place;
pub(crate) mod redial;
pub(crate) mod upgrade;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tollfree_balancer::Record;
use tollfree_driver_tokio::{Attachment, Config, ConnectError, Ends, PeerIdentity, PeerPool, now_ns};
use tonic::{Code, Status};

use crate::endpoint::attempt::Attempt;
use crate::endpoint::connectors::{TcpConnector, UnixConnector};
use crate::endpoint::direct_connection::{Asking, DirectConnection};
use crate::endpoint::error::ChannelError;
use crate::endpoint::greeted::ServerLimit;
use crate::endpoint::path::{EndpointPath, EndpointState, PayloadPath, Transport};
use crate::endpoint::place::{Files, Place};
use crate::endpoint::redial::{Failure, Pace, Redial, failure};
use crate::endpoint::upgrade::{Mover, Plan};
use crate::message::payloads::Sharing;
use crate::status;

/// A connection that calls can be made on.
#[derive(Clone)]
pub(crate) enum Connection {
    /// A session.
    Session(Arc<Attachment>),
    /// tonic's own, and which in the order of their making.
    Http2(tonic::transport::Channel, u32),
}

/// How an endpoint is reached.
enum Kind {
    Session {
        /// Missing for a process that has connected itself, and does so again when it likes.
        dial: Option<Box<(Place, Config)>>,
        current: Mutex<Option<Arc<Attachment>>>,
        /// How calls by way of a gateway come to go to another session than the one that was dialed, where they may.
        direct_connection: Option<Box<DirectConnection>>,
    },
    Http2 {
        endpoint: Box<tonic::transport::Endpoint>,
        current: Mutex<Http2Connection>,
        /// Under TLS nobody sees what the server says.
        limit: ServerLimit,
        /// How calls move over to shared memory, or why they don't.
        mover: Result<Box<Mover>, &'static str>,
    },
}

#[derive(Default)]
struct Http2Connection {
    channel: Option<tonic::transport::Channel>,
    /// How many there have been.
    number: u32,
}

/// What an endpoint's health service says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    /// It serves, or nobody has asked.
    Good,
    /// It has been asked, and has not answered yet.
    Unknown,
    /// It doesn't serve.
    Bad,
}

/// One server of a channel.
pub(crate) struct Subchannel {
    pub(crate) name: Arc<str>,
    pub(crate) sharing: Arc<Sharing>,
    kind: Kind,
    redial: Redial,
    /// Calls of this channel under way here; counted where several endpoints are chosen from.
    calls: AtomicU32,
    /// How calls of this channel end here, where endpoints may be ejected for that.
    record: Option<Arc<Record>>,
    /// A [`Health`], as a number.
    health: AtomicU8,
    /// Told when an HTTP/2 connection turned out to be broken.
    pub(crate) broken: tokio::sync::Notify,
    /// The task that keeps it connected, where there is one.
    keeper: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What an attempt to connect has brought.
enum Dialed {
    Session(Attachment),
    Http2(tonic::transport::Channel),
}

/// Why an endpoint could not be reached.
enum Unreached {
    Session(ConnectError),
    Status(Status),
}

impl Unreached {
    fn status(&self) -> Status {
        match self {
            Unreached::Session(error) => status::connect(error),
            Unreached::Status(status) => status.clone(),
        }
    }

    fn failure(&self) -> Failure {
        match self {
            Unreached::Session(error) => failure(error),
            Unreached::Status(_) => Failure::Absent,
        }
    }
}

impl Subchannel {
    /// An endpoint of any kind.
    ///
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub(crate) fn new(
        uri: &str,
        config: &Config,
        sharing: &Arc<Sharing>,
        plan: &Plan,
        http2: &http2::Http2Settings,
        files: &Files,
    ) -> Result<Subchannel, ChannelError> {
        let is_tls = http2::is_tls(uri);
        let (name, kind) = if http2::is_http2(uri) {
            let endpoint = Box::new(http2.endpoint(uri)?);
            let mover = match plan {
                Plan::Move { required: true, .. } if !uri.starts_with("http://") => {
                    let reason =
                        format!("it is required, but {uri} can't move over: only http://host:port can");
                    return Err(ChannelError::Upgrade(reason));
                }
                _ if uri.starts_with("unix:") => Err("the address is that of a Unix socket for HTTP/2"),
                _ if is_tls => Err("the address asks for TLS, under which no server offers another way"),
                plan => Mover::new(plan, config).map(Box::new),
            };
            (
                uri.to_owned(),
                Kind::Http2 { endpoint, current: Mutex::default(), limit: ServerLimit::default(), mover },
            )
        } else {
            let place = Place::of(uri, files)?;
            if place.is_stream() && config.via.is_none() {
                return Err(ChannelError::Via(format!(
                    "{uri} is a gateway's address: say by via() what it is to call"
                )));
            }
            (
                place.to_string(),
                Kind::Session {
                    dial: Some(Box::new((place, config.clone()))),
                    current: Mutex::default(),
                    direct_connection: None,
                },
            )
        };
        Ok(Subchannel::of(name, sharing.clone(), kind))
    }

    /// A process that has connected by itself.
    pub(crate) fn attached(name: String, attachment: Arc<Attachment>) -> Subchannel {
        let kind =
            Kind::Session { dial: None, current: Mutex::new(Some(attachment)), direct_connection: None };
        Subchannel::of(name, Arc::default(), kind)
    }

    fn of(name: String, sharing: Arc<Sharing>, kind: Kind) -> Subchannel {
        let is_local = match &kind {
            Kind::Session { dial, .. } => dial.as_ref().is_none_or(|dial| !dial.0.is_stream()),
            Kind::Http2 { .. } => name.starts_with("unix:"),
        };
        let redial = Redial::new(if is_local { Pace::Local } else { Pace::Remote });
        Subchannel {
            name: name.into(),
            sharing,
            kind,
            redial,
            calls: AtomicU32::new(0),
            record: None,
            health: AtomicU8::new(Health::Good as u8),
            broken: tokio::sync::Notify::new(),
            keeper: Mutex::default(),
        }
    }

    /// Has it count how its calls end.
    pub(crate) fn counting(self, record: Option<&Arc<Record>>) -> Subchannel {
        Subchannel { record: record.cloned(), ..self }
    }

    /// Has it ask its gateway for direct connections, whenever it has a session there. One of another host has none to give.
    pub(crate) fn asking(mut self, asking: Asking) -> Arc<Subchannel> {
        if let Kind::Session { dial: Some(dial), direct_connection, .. } = &mut self.kind
            && !dial.0.is_stream()
        {
            *direct_connection = Some(Box::new(DirectConnection::new(asking, &dial.1)));
        }
        let endpoint = Arc::new(self);
        endpoint.direct_connection().inspect(|direct_connection| direct_connection.of(&endpoint));
        endpoint
    }

    /// What it knows of direct connections, where it asks for some.
    pub(crate) fn direct_connection(&self) -> Option<&DirectConnection> {
        match &self.kind {
            Kind::Session { direct_connection, .. } => direct_connection.as_deref(),
            Kind::Http2 { .. } => None,
        }
    }

    /// Has calls go by a direct connection from here on.
    pub(crate) fn shorten(&self, direct: &Arc<Attachment>) {
        if let Kind::Session { current, .. } = &self.kind {
            *current.lock() = Some(direct.clone());
        }
    }

    /// Whether the two ends share no memory, though there is a session.
    fn is_stream(&self) -> bool {
        matches!(&self.kind, Kind::Session { dial: Some(dial), .. } if dial.0.is_stream())
    }

    /// Whether it has connected by itself, so that nobody here can connect to it.
    fn is_attached(&self) -> bool {
        matches!(self.kind, Kind::Session { dial: None, .. })
    }

    /// Whether calls to it go by a session.
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.kind, Kind::Session { .. })
    }

    /// Whether calls to it go over shared memory, or may come to.
    pub(crate) fn may_have_session(&self) -> bool {
        self.is_session() || self.mover().is_some()
    }

    /// What it takes to move calls over from TCP, where that is wanted.
    pub(crate) fn mover(&self) -> Option<&Mover> {
        match &self.kind {
            Kind::Http2 { mover: Ok(mover), .. } => Some(mover),
            _ => None,
        }
    }

    /// The session that calls use now. It may have ended without anybody having noticed yet.
    pub(crate) fn live(&self) -> Option<Arc<Attachment>> {
        match &self.kind {
            Kind::Session { current, .. } => current.lock().clone(),
            Kind::Http2 { mover, .. } => mover.as_ref().ok()?.live(),
        }
    }

    /// Gets hold of a connection: the present one, or a new one. With `wait` it goes on trying until there is one.
    pub(crate) async fn acquire(self: &Arc<Self>, wait: bool) -> Result<Connection, Status> {
        loop {
            match self.connection().await {
                Err(_) if wait && !self.is_attached() => tokio::time::sleep(self.redial.pause()).await,
                outcome => return outcome,
            }
        }
    }

    /// A session turned out to be over or draining: the next call makes a new one.
    pub(crate) fn retire(&self, attachment: &Arc<Attachment>) {
        match &self.kind {
            Kind::Session { current, direct_connection, .. } => {
                let mut current = current.lock();
                let instead = direct_connection
                    .as_ref()
                    .and_then(|direct_connection| direct_connection.instead_of(attachment));
                if current.as_ref().is_some_and(|known| Arc::ptr_eq(known, attachment)) {
                    if instead.is_none() {
                        self.redial.lost();
                    }
                    *current = instead;
                }
            }
            Kind::Http2 { mover, .. } => mover.iter().for_each(|mover| mover.retire(attachment)),
        }
    }

    /// A connection turned out to be of no use for new calls.
    pub(crate) fn retire_connection(&self, connection: &Connection) {
        match (connection, &self.kind) {
            (Connection::Session(attachment), _) => self.retire(attachment),
            (Connection::Http2(_, number), Kind::Http2 { current, .. }) => {
                let mut current = current.lock();
                if current.number == *number && current.channel.take().is_some() {
                    self.redial.lost();
                    self.broken.notify_one();
                }
            }
            _ => {}
        }
    }

    /// The connection, if calls can be made on it as far as is known.
    pub(crate) fn ready(&self) -> Option<Connection> {
        if self.health.load(Ordering::Relaxed) == Health::Good as u8 { self.connected() } else { None }
    }

    /// The connection, whatever its health.
    fn connected(&self) -> Option<Connection> {
        match &self.kind {
            Kind::Session { current, .. } => {
                let attachment = current.lock().clone()?;
                attachment.is_open().then_some(Connection::Session(attachment))
            }
            Kind::Http2 { mover: Ok(mover), .. } => match mover.live().filter(|session| session.is_open()) {
                Some(session) => Some(Connection::Session(session)),
                None if mover.required => None,
                None => self.http2(),
            },
            Kind::Http2 { .. } => self.http2(),
        }
    }

    /// The connection over HTTP/2.
    fn http2(&self) -> Option<Connection> {
        let Kind::Http2 { current, .. } = &self.kind else { return None };
        let current = current.lock();
        Some(Connection::Http2(current.channel.clone()?, current.number))
    }

    /// Why calls can't be made here: it has failed, and has not come back since.
    pub(crate) fn failing(&self) -> Option<Status> {
        let unreached = match self.mover() {
            // Whether there is a connection over TCP does not matter then.
            Some(mover) if mover.required || mover.live().is_some() => mover.failing(&self.name),
            _ => self.redial.failing(),
        };
        if unreached.is_some() {
            return unreached;
        }
        let is_bad = self.health.load(Ordering::Relaxed) == Health::Bad as u8 && self.connected().is_some();
        is_bad.then(|| {
            Status::unavailable(format!("{}: its health service says that it doesn't serve", self.name))
        })
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    /// Waits before the next attempt to connect that no call asks for.
    pub(crate) async fn rest(&self) {
        self.redial.rest().await;
    }

    /// Whether a call that finds it without a connection begins an attempt.
    pub(crate) fn is_tried_by_calls(&self) -> bool {
        self.redial.pace() == Pace::Local && !self.is_attached() && self.connected().is_none()
    }

    /// The present connection, or a new one. For an address of HTTP/2 it is one over HTTP/2, whether calls have moved over
    /// or not. Dropped, it leaves the attempt that it waits for to the next one. Must be called in a tokio runtime.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Connection, Status> {
        let came = self.redial.begun();
        let mut turn = self.redial.turn().await;
        loop {
            if let Some(connection) = self.present() {
                return Ok(connection);
            }
            if self.is_attached() {
                return Err(self.gone());
            }
            let is_own = turn.is_free();
            if is_own {
                self.redial.due(&turn, came).await?;
            }
            match turn.outcome(|| Attempt::begin(self)).await {
                Some(outcome) if is_own => return outcome,
                None if is_own => {
                    return Err(Status::unavailable(format!(
                        "{}: the runtime of this call has ended",
                        self.name
                    )));
                }
                // It may have begun before this call came, and what it has brought may be gone.
                _ => {}
            }
        }
    }

    /// What calls would be tried on without a look whether it is still good.
    fn present(&self) -> Option<Connection> {
        match &self.kind {
            Kind::Session { .. } => self.live().map(Connection::Session),
            Kind::Http2 { .. } => self.http2(),
        }
    }

    /// Connects whatever was before, for a channel that is being made.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub(crate) async fn connect_now(&self) -> Result<(), ChannelError> {
        match self.settle(self.dial().await, false) {
            Ok(_) => Ok(()),
            Err(Unreached::Session(error)) => Err(error.into()),
            Err(Unreached::Status(status)) => Err(ChannelError::Unreachable(status)),
        }
    }

    /// Why no calls can be made at a process that had connected by itself.
    fn gone(&self) -> Status {
        status::gone(&self.name)
    }

    /// The time that an attempt to connect has, where nobody waits for it.
    fn patience(&self) -> Duration {
        let given = match &self.kind {
            Kind::Session { dial, .. } => dial.as_ref().map(|dial| dial.1.handshake_timeout),
            Kind::Http2 { endpoint, .. } => endpoint.get_connect_timeout(),
        };
        given.map_or(attempt::PATIENCE, |given| given.max(attempt::PATIENCE))
    }

    /// Begins an attempt to connect; what it does has nothing to do with the endpoint.
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Dialed, Unreached>> + Send>> {
        self.redial.begin();
        let name = self.name.clone();
        match &self.kind {
            Kind::Session { dial: None, .. } => {
                let gone = Unreached::Status(self.gone());
                Box::pin(async move { Err(gone) })
            }
            Kind::Session { dial: Some(dial), .. } => {
                let (place, config) = (dial.0.clone(), dial.1.clone());
                let config = Config { pool: self.sharing.pool_id(), ..config };
                Box::pin(async move {
                    let attached = match &place {
                        Place::Memory(address) => Attachment::connect(address, &config).await,
                        #[cfg(feature = "tls")]
                        Place::Stream(address, files) => {
                            Attachment::connect_over(address, files, &config, config.purpose()).await
                        }
                    };
                    attached.map(Dialed::Session).map_err(Unreached::Session)
                })
            }
            Kind::Http2 { endpoint, limit, mover, .. } => {
                let (endpoint, limit) = (endpoint.clone(), limit.clone());
                let ends = mover.as_ref().ok().map(|mover| mover.ends());
                Box::pin(async move {
                    let connected = connect_http2(&name, &endpoint, &limit, ends).await;
                    let unreached = |error| Unreached::Status(status::http2_connect(error, &name));
                    connected.map(Dialed::Http2).map_err(unreached)
                })
            }
        }
    }

    /// An attempt to connect has come to an end. `in_use`: the channel goes on where it has failed, which is said then.
    fn settle(&self, dialed: Result<Dialed, Unreached>, in_use: bool) -> Result<Connection, Unreached> {
        let connection = match dialed {
            Ok(dialed) => self.connection_of(dialed),
            Err(error) => {
                let status = error.status();
                if self.redial.failed(status.clone(), error.failure()) && in_use {
                    tracing::warn!(address = %self.name, reason = status.message(), "no connection; calls fail or wait until there is one");
                }
                return Err(error);
            }
        };
        self.redial.succeeded();
        Ok(connection)
    }

    /// Has calls go by a new connection.
    fn connection_of(&self, dialed: Dialed) -> Connection {
        match (dialed, &self.kind) {
            (Dialed::Session(attachment), kind) => {
                let attachment = Arc::new(attachment);
                match self.is_stream() {
                    false => tracing::info!(
                        address = %self.name,
                        peer = ?attachment.peer(),
                        agent = attachment.agent(),
                        "calls go over shared memory: the address names a session and the server answered the handshake"
                    ),
                    true => tracing::info!(
                        address = %self.name,
                        agent = attachment.agent(),
                        "calls go over TCP with TLS to a gateway's device: the address names one and it answered the handshake"
                    ),
                }
                if let Kind::Session { current, direct_connection, .. } = kind {
                    *current.lock() = Some(attachment.clone());
                    direct_connection
                        .iter()
                        .for_each(|direct_connection| direct_connection.begin(&attachment));
                }
                Connection::Session(attachment)
            }
            (Dialed::Http2(channel), Kind::Http2 { current, mover, .. }) => {
                match mover {
                    Ok(_) => tracing::debug!(address = %self.name, "connected over TCP"),
                    Err(why) => tracing::info!(address = %self.name, "calls go over HTTP/2: {why}"),
                }
                let mut current = current.lock();
                current.number += 1;
                current.channel = Some(channel.clone());
                Connection::Http2(channel, current.number)
            }
            (Dialed::Http2(channel), Kind::Session { .. }) => Connection::Http2(channel, 0),
        }
    }

    /// How long a header list the server takes over HTTP/2.
    pub(crate) fn server_limit(&self) -> Option<&ServerLimit> {
        match &self.kind {
            Kind::Http2 { limit, .. } => Some(limit),
            Kind::Session { .. } => None,
        }
    }

    /// An attempt of a call begins here; it counts until the guard goes.
    pub(crate) fn begin_call(self: &Arc<Self>, deadline_ns: Option<u64>) -> CallGuard {
        self.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard { endpoint: self.clone(), deadline_ns, is_told: false }
    }

    /// How busy it is: as it says itself where it does, else by the calls of this channel.
    pub(crate) fn load(&self) -> u32 {
        let own = self.calls.load(Ordering::Relaxed);
        let said = self.live().and_then(|attachment| attachment.peer_load());
        // Calls on their way there are not in its word yet.
        said.map_or(own, |said| said.max(own))
    }

    /// Has `task` keep it connected, unless that is being done. Must be called in a tokio runtime.
    pub(crate) fn keep<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        let mut keeper = self.keeper.lock();
        // The runtime that the last one ran in may be gone.
        if keeper.as_ref().is_none_or(|keeper| keeper.is_finished()) {
            *keeper = Some(tokio::spawn(task()));
        }
    }

    /// Nobody needs the endpoint any more.
    pub(crate) fn let_go(&self) {
        if let Some(keeper) = self.keeper.lock().take() {
            keeper.abort();
        }
    }

    /// What is known of it, for people.
    pub(crate) fn path(&self) -> EndpointPath {
        let connected = self.connected();
        let peer: Option<PeerIdentity> = match &connected {
            // Of a process of another host the kernel says nothing.
            Some(_) if self.is_stream() => None,
            Some(Connection::Session(attachment)) => Some(attachment.peer()),
            _ => None,
        };
        let state = match (self.failing(), &connected) {
            (Some(status), _) => EndpointState::Failing(status.message().into()),
            (None, Some(_)) => EndpointState::Ready,
            (None, None) => EndpointState::Idle,
        };
        let payloads = match (self.sharing.pool_id(), self.live()) {
            (None, _) => PayloadPath::NoPool,
            (Some(_), None) if self.is_session() => PayloadPath::Unknown,
            (Some(_), None) => PayloadPath::NoMemory,
            (Some(_), Some(_)) if self.is_stream() => PayloadPath::NoMemory,
            (Some(_), Some(attachment)) => match attachment.peer_pool() {
                PeerPool::Same if !attachment.gives_inline() => PayloadPath::ByRef,
                PeerPool::Same if self.sharing.is_attached() => PayloadPath::AskedFor,
                PeerPool::Same => PayloadPath::NoCoordinator,
                PeerPool::Other => PayloadPath::OtherPool,
                PeerPool::None => PayloadPath::NoPoolThere,
            },
        };
        let transport = match &self.kind {
            Kind::Session { .. } if self.is_stream() => Transport::Stream,
            Kind::Session { .. } => Transport::SharedMemory,
            Kind::Http2 { mover: Ok(mover), .. } if mover.required || peer.is_some() => {
                Transport::SharedMemory
            }
            Kind::Http2 { .. } => Transport::Http2,
        };
        let reason = match &self.kind {
            Kind::Session { dial: None, .. } => "it has attached to this process".into(),
            Kind::Session { dial: Some(dial), direct_connection, .. } => {
                match (&dial.1.via, direct_connection) {
                    (Some(target), Some(direct_connection)) => direct_connection.words(target, &self.name),
                    (Some(target), None) => match self.is_stream() {
                        false => format!("calls {target} via the gateway at {}", self.name),
                        true => format!(
                            "calls {target} via the gateway there, which has no direct connection for processes of other hosts"
                        ),
                    },
                    (None, _) => "the address names a session".into(),
                }
            }
            Kind::Http2 { mover: Ok(mover), .. } => mover.why(),
            Kind::Http2 { mover: Err(why), .. } => (*why).into(),
        };
        let other_schemas = match &connected {
            Some(Connection::Session(attachment)) => attachment.differing(),
            _ => Vec::new(),
        };
        EndpointPath {
            address: self.name.to_string(),
            transport,
            state,
            reason,
            peer,
            payloads,
            other_schemas,
        }
    }
}

async fn connect_http2(
    address: &str,
    endpoint: &tonic::transport::Endpoint,
    limit: &ServerLimit,
    ends: Option<watch::Sender<Option<Ends>>>,
) -> Result<tonic::transport::Channel, tonic::transport::Error> {
    if http2::is_tls(address) {
        return endpoint.connect().await;
    }
    if let Some(connector) = UnixConnector::of(address, limit) {
        return endpoint.connect_with_connector(connector).await;
    }
    endpoint.connect_with_connector(TcpConnector::new(endpoint, limit, ends)).await
}

/// An attempt of a call under way at an endpoint. How it has ended is told once. One that nobody tells of has failed if it had until its
/// deadline; else its caller has lost interest, or no server has looked at it, which says nothing of the endpoint.
#[derive(Debug)]
pub(crate) struct CallGuard {
    endpoint: Arc<Subchannel>,
    deadline_ns: Option<u64>,
    is_told: bool,
}

impl CallGuard {
    /// How the attempt has ended.
    #[inline]
    pub(crate) fn tell(&mut self, code: Code) {
        if let Some(record) = &self.endpoint.record
            && !std::mem::replace(&mut self.is_told, true)
        {
            match code {
                Code::Ok => record.succeeded(),
                _ => record.failed(),
            }
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.endpoint.record.is_some()
            && !self.is_told
            && self.deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns)
        {
            self.tell(Code::DeadlineExceeded);
        }
        self.endpoint.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Subchannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subchannel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A number from 0 to 1, different for each call and process. Good enough to spread things in time, for nothing else.
pub(crate) fn chance() -> f64 {
    let noise = tollfree_driver_tokio::now_ns() ^ u64::from(std::process::id()) << 32;
    (noise.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64
}
