//! One server that a channel may use: where it is, the connection to it, and how it has fared.

pub(crate) mod balance;
pub(crate) mod connectors;
pub(crate) mod error;
pub(crate) mod greeted;
pub(crate) mod http2;
pub(crate) mod path;
pub(crate) mod place;
pub(crate) mod shortcut;
pub(crate) mod upgrade;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollfree_transport::{Attachment, Config, ConnectError, PeerIdentity, PeerPool};
use tonic::Status;

use crate::endpoint::connectors::{TcpConnector, UnixConnector};
use crate::endpoint::error::ChannelError;
use crate::endpoint::greeted::ServerLimit;
use crate::endpoint::path::{EndpointPath, EndpointState, PayloadPath, Transport};
use crate::endpoint::place::{Files, Place};
use crate::endpoint::shortcut::{Asking, Shortcut};
use crate::endpoint::upgrade::{Mover, Plan};
use crate::message::payloads::Sharing;
use crate::status;

/// After a failed attempt to connect, calls fail at once for this long; doubled each time up to the maximum.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

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
        /// How calls by way of a shepherd come to go to another session than the one that was dialed, where they may.
        shortcut: Option<Box<Shortcut>>,
    },
    Http2 {
        endpoint: Box<tonic::transport::Endpoint>,
        current: Mutex<Http2>,
        /// Under TLS nobody sees what the server says.
        limit: ServerLimit,
        /// How calls move over to shared memory, or why they don't.
        mover: Result<Box<Mover>, &'static str>,
    },
}

#[derive(Default)]
struct Http2 {
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

/// How connecting has gone.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
    last: Option<Status>,
}

/// One server of a channel.
pub(crate) struct Endpoint {
    pub(crate) name: Arc<str>,
    pub(crate) sharing: Arc<Sharing>,
    kind: Kind,
    /// Held while connecting: others wait for the outcome instead of connecting too.
    connecting: tokio::sync::Mutex<()>,
    backoff: Mutex<Backoff>,
    /// Calls of this channel under way here; counted where several endpoints are chosen from.
    calls: AtomicU32,
    /// A [`Health`], as a number.
    health: AtomicU8,
    /// Told when an HTTP/2 connection turned out to be broken.
    pub(crate) broken: tokio::sync::Notify,
    /// The task that keeps it connected, where there is one.
    keeper: Mutex<Option<tokio::task::JoinHandle<()>>>,
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
}

impl Endpoint {
    /// An endpoint of any kind.
    ///
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub(crate) fn new(
        uri: &str,
        config: &Config,
        sharing: &Arc<Sharing>,
        plan: &Plan,
        http2: &http2::Http2,
        files: &Files,
    ) -> Result<Endpoint, ChannelError> {
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
                    "{uri} is a shepherd's address: say by via() what it is to call"
                )));
            }
            (
                place.to_string(),
                Kind::Session {
                    dial: Some(Box::new((place, config.clone()))),
                    current: Mutex::default(),
                    shortcut: None,
                },
            )
        };
        Ok(Endpoint::of(name, sharing.clone(), kind))
    }

    /// A process that has connected by itself.
    pub(crate) fn attached(name: String, attachment: Arc<Attachment>) -> Endpoint {
        let kind = Kind::Session { dial: None, current: Mutex::new(Some(attachment)), shortcut: None };
        Endpoint::of(name, Arc::default(), kind)
    }

    fn of(name: String, sharing: Arc<Sharing>, kind: Kind) -> Endpoint {
        Endpoint {
            name: name.into(),
            sharing,
            kind,
            connecting: tokio::sync::Mutex::default(),
            backoff: Mutex::default(),
            calls: AtomicU32::new(0),
            health: AtomicU8::new(Health::Good as u8),
            broken: tokio::sync::Notify::new(),
            keeper: Mutex::default(),
        }
    }

    /// Has it ask its shepherd for shortcuts, whenever it has a session there. One of another host has none to give.
    pub(crate) fn asking(mut self, asking: Asking) -> Arc<Endpoint> {
        if let Kind::Session { dial: Some(dial), shortcut, .. } = &mut self.kind
            && !dial.0.is_stream()
        {
            *shortcut = Some(Box::new(Shortcut::new(asking, &dial.1)));
        }
        let endpoint = Arc::new(self);
        endpoint.shortcut().inspect(|shortcut| shortcut.of(&endpoint));
        endpoint
    }

    /// What it knows of shortcuts, where it asks for some.
    pub(crate) fn shortcut(&self) -> Option<&Shortcut> {
        match &self.kind {
            Kind::Session { shortcut, .. } => shortcut.as_deref(),
            Kind::Http2 { .. } => None,
        }
    }

    /// Has calls go by a shortcut from here on.
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
    pub(crate) async fn acquire(&self, wait: bool) -> Result<Connection, Status> {
        loop {
            match self.connection().await {
                Err(_) if wait && !self.is_attached() => tokio::time::sleep(self.pause()).await,
                outcome => return outcome,
            }
        }
    }

    /// A session turned out to be over or draining: the next call makes a new one.
    pub(crate) fn retire(&self, attachment: &Arc<Attachment>) {
        match &self.kind {
            Kind::Session { current, shortcut, .. } => {
                let mut current = current.lock();
                let instead = shortcut.as_ref().and_then(|shortcut| shortcut.instead_of(attachment));
                if current.as_ref().is_some_and(|known| Arc::ptr_eq(known, attachment)) {
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
            _ => self.backoff.lock().last.clone(),
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

    /// How long to wait before the next attempt to connect.
    pub(crate) fn pause(&self) -> Duration {
        let until = self.backoff.lock().until;
        until.map_or(BACKOFF_FIRST, |until| until.saturating_duration_since(Instant::now()))
    }

    /// A connection that ended as soon as it was made: the next one is not made at once.
    pub(crate) fn ended_early(&self) {
        let mut backoff = self.backoff.lock();
        backoff.until = Some(Instant::now() + delay(backoff.failures));
        backoff.failures = backoff.failures.saturating_add(1);
    }

    /// The present connection, or a new one. For an address of HTTP/2 it is one over HTTP/2, whether calls have moved over
    /// or not.
    pub(crate) async fn connection(&self) -> Result<Connection, Status> {
        let _turn = self.connecting.lock().await;
        if let Some(connection) = self.present() {
            return Ok(connection);
        }
        if self.is_attached() {
            return Err(self.gone());
        }
        {
            let backoff = self.backoff.lock();
            if let (Some(until), Some(last)) = (backoff.until, &backoff.last)
                && Instant::now() < until
            {
                return Err(last.clone());
            }
        }
        self.try_connect(true).await.map_err(|error| error.status())
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
        match self.try_connect(false).await {
            Ok(_) => Ok(()),
            Err(Unreached::Session(error)) => Err(error.into()),
            Err(Unreached::Status(status)) => Err(ChannelError::Unreachable(status)),
        }
    }

    /// Why no calls can be made at a process that had connected by itself.
    fn gone(&self) -> Status {
        status::gone(&self.name)
    }

    async fn dial(&self, dial: Option<&(Place, Config)>) -> Result<Attachment, Unreached> {
        let (place, config) = dial.ok_or_else(|| Unreached::Status(self.gone()))?;
        let config = Config { pool: self.sharing.pool_id(), ..config.clone() };
        let connected = match place {
            Place::Memory(address) => Attachment::connect(address, &config).await,
            #[cfg(feature = "tls")]
            Place::Stream(address, files) => {
                Attachment::connect_over(address, files, &config, config.purpose()).await
            }
        };
        connected.map_err(Unreached::Session)
    }

    /// `in_use`: the channel goes on where this fails, which is said then.
    async fn try_connect(&self, in_use: bool) -> Result<Connection, Unreached> {
        let connected = match &self.kind {
            Kind::Session { dial, current, shortcut } => match self.dial(dial.as_deref()).await {
                Ok(attachment) => {
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
                            "calls go over TCP with TLS to a shepherd's device: the address names one and it answered the handshake"
                        ),
                    }
                    *current.lock() = Some(attachment.clone());
                    shortcut.iter().for_each(|shortcut| shortcut.begin(&attachment));
                    Ok(Connection::Session(attachment))
                }
                Err(unreached) => Err(unreached),
            },
            Kind::Http2 { endpoint, current, limit, mover } => {
                match connect_http2(&self.name, endpoint, limit, mover).await {
                    Ok(channel) => {
                        match mover {
                            Ok(_) => tracing::debug!(address = %self.name, "connected over TCP"),
                            Err(why) => tracing::info!(address = %self.name, "calls go over HTTP/2: {why}"),
                        }
                        let mut current = current.lock();
                        current.number += 1;
                        current.channel = Some(channel.clone());
                        Ok(Connection::Http2(channel, current.number))
                    }
                    Err(error) => Err(Unreached::Status(status::http2_connect(error, &self.name))),
                }
            }
        };
        let mut backoff = self.backoff.lock();
        match connected {
            Ok(connection) => {
                *backoff = Backoff { failures: backoff.failures, ..Backoff::default() };
                Ok(connection)
            }
            Err(error) => {
                if backoff.last.is_none() && in_use {
                    tracing::warn!(address = %self.name, reason = error.status().message(), "no connection; calls fail or wait until there is one");
                }
                backoff.last = Some(error.status());
                backoff.until = Some(Instant::now() + delay(backoff.failures));
                backoff.failures = backoff.failures.saturating_add(1);
                Err(error)
            }
        }
    }

    /// How long a header list the server takes over HTTP/2.
    pub(crate) fn server_limit(&self) -> Option<&ServerLimit> {
        match &self.kind {
            Kind::Http2 { limit, .. } => Some(limit),
            Kind::Session { .. } => None,
        }
    }

    /// The connection has proven itself: the next failure is the first.
    pub(crate) fn proven(&self) {
        self.backoff.lock().failures = 0;
    }

    /// A call begins here; it counts until the guard goes.
    pub(crate) fn begin_call(self: &Arc<Self>) -> CallGuard {
        self.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard { endpoint: self.clone() }
    }

    /// How busy it is: by its own word where it gives one, else by the calls of this channel.
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
            Kind::Session { dial: Some(dial), shortcut, .. } => match (&dial.1.via, shortcut) {
                (Some(target), Some(shortcut)) => shortcut.words(target, &self.name),
                (Some(target), None) => match self.is_stream() {
                    false => format!("calls {target} via the shepherd at {}", self.name),
                    true => format!(
                        "calls {target} via the shepherd there, which has no shortcut for processes of other hosts"
                    ),
                },
                (None, _) => "the address names a session".into(),
            },
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
    mover: &Result<Box<Mover>, &'static str>,
) -> Result<tonic::transport::Channel, tonic::transport::Error> {
    if http2::is_tls(address) {
        return endpoint.connect().await;
    }
    if let Some(connector) = UnixConnector::of(address, limit) {
        return endpoint.connect_with_connector(connector).await;
    }
    let ends = mover.as_ref().ok().map(|mover| mover.ends());
    endpoint.connect_with_connector(TcpConnector::new(endpoint, limit, ends)).await
}

/// A call under way at an endpoint.
#[derive(Debug)]
pub(crate) struct CallGuard {
    endpoint: Arc<Endpoint>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.endpoint.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Exponential, with jitter so that clients of one server do not come back all at once.
pub(crate) fn delay(failures: u32) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    full.mul_f64(0.8 + 0.4 * chance())
}

/// A number from 0 to 1, different for each call and process. Good enough to spread things in time, for nothing else.
pub(crate) fn chance() -> f64 {
    let noise = tollfree_transport::now_ns() ^ u64::from(std::process::id()) << 32;
    (noise.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A herd: clients that lost the same server at the same time must not come back at the same time.
    #[test]
    fn delays_of_a_herd_are_spread_and_bounded() {
        for (failures, full) in [(0, BACKOFF_FIRST), (2, BACKOFF_FIRST * 4), (40, BACKOFF_MAX)] {
            let mut slots = [0usize; 8];
            for _ in 0..800 {
                let share = delay(failures).as_secs_f64() / full.as_secs_f64();
                assert!((0.8..=1.2).contains(&share), "{share} of {full:?}");
                slots[(((share - 0.8) / 0.4 * 8.0) as usize).min(7)] += 1;
            }
            assert!(slots.iter().all(|count| *count > 20), "{slots:?} of 800 in eighths of the spread");
        }
    }
}
