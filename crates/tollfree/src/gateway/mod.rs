//! For infrastructure processes: the backend listener of a gateway, at which backends attach
//! ([`Server::attach`](crate::Server::attach)) and call out ([`Channel::via`](crate::Channel::via)).
//!
//! A *gateway* is a process that speaks gRPC to the world and hands calls to backends. This module is what it
//! needs towards those: everything else of it (HTTP/2, TLS, routes, limits of tenants) is its own.
//!
//! # Example
//! ```no_run
//! # use tollfree::gateway::*;
//! # async fn example<S>(egress: S) -> Result<(), Box<dyn std::error::Error>>
//! # where
//! #     S: tower_service::Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>>
//! #         + Clone + Send + 'static,
//! #     S::Future: Send + 'static,
//! #     S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
//! # {
//! let mut listener = BackendListener::bind("shm:///run/tollfree/gateway.sock", Limits::default()).await?;
//! let mut connections = Vec::new(); // those that calls from outside are handed to
//! while let Some(arrival) = listener.accept().await {
//!     match arrival {
//!         Accepted::Attached(attached) => connections.push(attached),
//!         Accepted::Session(session) => {
//!             tokio::spawn(session.serve(egress.clone(), std::future::pending()));
//!         }
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod admission;
mod call_rules;
mod dispatch;
mod out_of_band;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::watch;
#[cfg(feature = "tls")]
use tollfree_driver_tokio::StreamListener;
use tollfree_driver_tokio::{
    Accepts, Address, AddressError, Attachment, Config, Listener, LocalPeer, PeerIdentity, PeerPolicy,
    Purpose, Quotas, Refusals, Registration, WaitPolicy,
};
use tollfree_layout::limits::WINDOW_RESERVE;
use tollfree_pool::Pool;
use tonic::body::Body;
use tonic::service::Routes;
use tower_service::Service;

use crate::channel::Channel;
use crate::endpoint::Subchannel;
use crate::message::payloads::PayloadCounts;
use crate::server::http_handle::ErasedService;
use crate::server::session_task::{Age, ServerContext, Services, SessionTask};
use crate::server::{bound, layers};
use crate::status::ServeError;

pub use crate::metadata::greeting::Greeting;
pub use crate::metadata::header_list;
pub use crate::metadata::{timeout, timeout_value};
pub use crate::server::caller::{Caller, CallerAddress, remove_ours};
pub use crate::server::http2_body::Http2RequestBody;
pub use crate::server::linger::{Cut, Lingering};
pub use crate::status::status_name;
pub use crate::trouble::for_outside;
pub use admission::Admission;
pub use call_rules::{CallRules, check_service_config};
pub use dispatch::{Dispatch, Unanswered};
pub use out_of_band::OutOfBandMessages;
#[cfg(feature = "tls")]
pub use tollfree_driver_tokio::StreamPolicy;
pub use tollfree_driver_tokio::{
    Admits, Announced, Attacher, Batch, BindError, DoorbellMode, Encoded, FileError, PeerActivity,
    RateLimitedLog, RegisterError, Registers, RemoteIdentity, SocketFile, SocketMode, Spin, Token, aside,
    bind_unix, is_listed, is_master_of, is_same_user, own_user, read_file,
};
pub use tollfree_os::{group_number, user_number};

/// What both ends of a stream say in TLS that they speak (ALPN).
#[cfg(feature = "tls")]
pub const STREAM_PROTOCOL: &[u8] = tollfree_layout::device::PROTOCOL;

pub use crate::http::call::RequestChange;
pub use crate::message::aside::{Turns, run_aside};
pub use crate::message::converter::{Converter, Which};
pub use crate::message::framing::{Deframer, Lengths, tell_lengths};
pub use crate::message::holdings::{Held, Holdings};
pub use crate::status::about_content;

/// What those who come to a backend listener may have.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Which users may come.
    pub peers: PeerPolicy,
    /// Which of their backends may attach. Without it, all may.
    pub admits: Option<Admits>,
    /// Sessions of one process at once, its backend connections and channels together. `None`: as for a
    /// [server](crate::Server::sessions_per_process).
    pub sessions_per_process: Option<u32>,
    /// Sessions of one user at once. `None`: as for a [server](crate::Server::sessions_per_user).
    pub sessions_per_user: Option<u32>,
    /// Calls that one session of a [`Channel::via`](crate::Channel::via) may have under way; further ones wait at the caller.
    pub calls_per_session: u32,
    /// How sessions wait.
    pub wait: WaitPolicy,
    /// Whether calls may be handed as objects to handlers that take them so: those of backends are handed on as they come, where a [`Converter`]
    /// is said, and backends are told that they may be asked to join a pool.
    pub objects: bool,
    /// Length of the ring by which each session is told, in bytes: a power of two from 4 KiB to 32 KiB.
    pub ring_len: usize,
    /// Length of the payload area that a session gets for large messages to it, in bytes: 64 KiB to 16 MiB.
    pub area_len: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            peers: PeerPolicy::default(),
            admits: None,
            sessions_per_process: None,
            sessions_per_user: None,
            calls_per_session: tollfree_layout::limits::STREAM_COUNT_DEFAULT,
            wait: WaitPolicy::default(),
            objects: true,
            ring_len: tollfree_layout::limits::RING_LEN_DEFAULT,
            area_len: tollfree_layout::limits::AREA_LEN_DEFAULT,
        }
    }
}

impl Limits {
    fn config(self) -> Config {
        let mut config = Config {
            wait: self.wait,
            peers: self.peers,
            admits: self.admits,
            agent: Some("tollfree-gateway".into()),
            accepts: Accepts::Backends,
            load: true,
            ring_len: self.ring_len,
            area_len: self.area_len,
            lending: self.objects,
            ..Config::default()
        };
        let calls = self.calls_per_session.max(1);
        config.limits.stream_count = calls;
        config.limits.session_window =
            config.limits.stream_window.saturating_mul(calls.into()).saturating_add(WINDOW_RESERVE);
        // As many backend connections as usual may have areas, however long these are.
        let usual = Quotas::default();
        let times = (self.area_len / tollfree_layout::limits::AREA_LEN_DEFAULT).max(1) as u64;
        config.quotas = Quotas {
            sessions_per_process: self.sessions_per_process,
            sessions_per_user: self.sessions_per_user,
            ended_memory_per_process: times * usual.ended_memory_per_process,
            ended_memory_per_user: times * usual.ended_memory_per_user,
        };
        config
    }
}

/// The socket of a gateway. Dropping it closes it; sessions go on.
#[derive(Debug)]
pub struct BackendListener {
    entrance: Entrance,
    refusals: Refusals,
    objects: bool,
    /// Sessions of channels that are served.
    sessions: Arc<AtomicUsize>,
}

/// Where they come in.
#[derive(Debug)]
enum Entrance {
    /// From this host.
    Memory(Listener),
    /// From other hosts.
    #[cfg(feature = "tls")]
    Stream(StreamListener),
}

impl Entrance {
    async fn accept(&mut self) -> Option<Attachment> {
        match self {
            Entrance::Memory(listener) => listener.accept().await,
            #[cfg(feature = "tls")]
            Entrance::Stream(listener) => listener.accept().await,
        }
    }

    fn address(&self) -> String {
        match self {
            Entrance::Memory(listener) => listener.address().to_string(),
            #[cfg(feature = "tls")]
            Entrance::Stream(listener) => format!("tcp+tls://{}", listener.address()),
        }
    }
}

fn address_of(uri: String) -> Result<Address, ServeError> {
    uri.parse().map_err(|error: AddressError| ServeError::Address { address: uri, reason: error.to_string() })
}

/// Who has come to a backend listener.
#[derive(Debug)]
#[non_exhaustive]
pub enum Accepted {
    /// A backend connection of a backend, to which calls can be handed.
    Attached(Attached),
    /// A channel of a backend, whose calls are to go elsewhere.
    Session(ViaSession),
}

impl BackendListener {
    /// Binds an address, `shm:///path` or `shm-abstract:name`. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ServeError`] when the address is none, or can't be bound.
    pub async fn bind(uri: impl Into<String>, limits: Limits) -> Result<BackendListener, ServeError> {
        let (address, objects) = (address_of(uri.into())?, limits.objects);
        let config = limits.config();
        let refusals = config.refusals.clone();
        let listener = bound::listen(address, config).await?;
        Ok(BackendListener::of(Entrance::Memory(listener), refusals, objects))
    }

    /// As [`bind`](BackendListener::bind) for a path, under a name beside it where no backend looks, until
    /// [`publish`](BackendListener::publish): for a gateway that takes the place of a running one.
    ///
    /// # Errors
    /// [`ServeError`] when the address is no path, or can't be bound.
    pub async fn bind_beside(uri: impl Into<String>, limits: Limits) -> Result<BackendListener, ServeError> {
        let (address, objects) = (address_of(uri.into())?, limits.objects);
        let config = limits.config();
        let refusals = config.refusals.clone();
        let listener = bound::listen_beside(address, config).await?;
        Ok(BackendListener::of(Entrance::Memory(listener), refusals, objects))
    }

    /// Has backends find, at its path, a socket that was [bound beside it](BackendListener::bind_beside). The socket of a gateway that
    /// still listens there is replaced in one step. Does nothing for other sockets.
    ///
    /// # Errors
    /// [`ServeError`]; what stands at the path stays.
    pub async fn publish(&mut self) -> Result<(), ServeError> {
        match &mut self.entrance {
            Entrance::Memory(listener) => Ok(listener.publish().await?),
            #[cfg(feature = "tls")]
            Entrance::Stream(_) => Ok(()),
        }
    }

    /// Where the socket's file is at the moment, if it has one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.entrance {
            Entrance::Memory(listener) => listener.path(),
            #[cfg(feature = "tls")]
            Entrance::Stream(_) => None,
        }
    }

    /// Whether a socket file is this socket's.
    pub fn is_at(&self, file: &SocketFile) -> bool {
        match &self.entrance {
            Entrance::Memory(listener) => listener.file_id() == Some(file.id()),
            #[cfg(feature = "tls")]
            Entrance::Stream(_) => false,
        }
    }

    fn of(entrance: Entrance, refusals: Refusals, objects: bool) -> BackendListener {
        BackendListener { entrance, refusals, objects, sessions: Arc::default() }
    }

    /// Binds `host:port` for backends of other hosts, which come over TCP with TLS and show certificates. Of the limits,
    /// [`peers`](Limits::peers) and [`wait`](Limits::wait) are not theirs: [`StreamPolicy`] says who they are, and no thread looks
    /// for what they send. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`ServeError`] when the address can't be bound.
    #[cfg(feature = "tls")]
    pub async fn bind_stream(
        address: &str,
        policy: StreamPolicy,
        limits: Limits,
    ) -> Result<BackendListener, ServeError> {
        let objects = limits.objects;
        let config = limits.config();
        let refusals = config.refusals.clone();
        let listener = StreamListener::bind(address, policy, config)
            .await
            .map_err(|source| ServeError::Socket { address: address.to_owned(), source })?;
        Ok(BackendListener::of(Entrance::Stream(listener), refusals, objects))
    }

    /// The same with a socket that listens already, which another gateway has passed. `address` is what it is called in errors.
    ///
    /// # Errors
    /// [`ServeError`] when it can't be served.
    #[cfg(feature = "tls")]
    pub fn adopt_stream(
        socket: std::net::TcpListener,
        address: &str,
        policy: StreamPolicy,
        limits: Limits,
    ) -> Result<BackendListener, ServeError> {
        let objects = limits.objects;
        let config = limits.config();
        let refusals = config.refusals.clone();
        let listener = StreamListener::adopt(socket, policy, config)
            .map_err(|source| ServeError::Socket { address: address.to_owned(), source })?;
        Ok(BackendListener::of(Entrance::Stream(listener), refusals, objects))
    }

    /// The listening socket of one for backends of other hosts, for as long as it is accepted from: what a gateway passes to the one that
    /// takes its place.
    #[cfg(feature = "tls")]
    pub fn stream_socket(&self) -> Option<std::sync::Weak<tokio::net::TcpListener>> {
        match &self.entrance {
            Entrance::Memory(_) => None,
            Entrance::Stream(listener) => Some(listener.socket()),
        }
    }

    /// Where they come: an address that the system chose is among it.
    pub fn address(&self) -> String {
        self.entrance.address()
    }

    /// The next that has come, after its handshake; `None` after those that had begun one when the backend listener was closed. Cancel safe.
    pub async fn accept(&mut self) -> Option<Accepted> {
        let attachment = Arc::new(self.entrance.accept().await?);
        Some(match attachment.purpose().clone() {
            Purpose::Attach(registration) => {
                Accepted::Attached(Attached::new(attachment, registration, &self.entrance.address()))
            }
            Purpose::Via(target) => {
                let (target, sessions) = (ViaTarget(target), self.sessions.clone());
                Accepted::Session(ViaSession { attachment, target, sessions, objects: self.objects })
            }
            Purpose::Call => unreachable!("the handshake refuses it at a gateway's socket"),
        })
    }

    /// Lets nobody in any more and removes the socket. Those that are half in still come out of [`accept`](BackendListener::accept).
    pub fn close(&mut self) {
        match &mut self.entrance {
            Entrance::Memory(listener) => listener.close(),
            #[cfg(feature = "tls")]
            Entrance::Stream(listener) => listener.close(),
        }
    }

    /// Has those that are refused shown among the figures of the gateway.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self, metrics: &crate::metrics::Metrics) {
        metrics.watch_clients(self.refusals());
    }

    /// Counts those that were refused.
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
    }
}

/// A backend, as its backend connections have it in common. Two of them are the same server of the same process; what a process
/// says of itself does not make it another's.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Who it is, as the kernel says. One of another host has no number and no user here.
    pub identity: PeerIdentity,
    /// The subject of its certificate, if it is of another host.
    pub subject: Option<Arc<str>>,
    server: [u8; 16],
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = u128::from_be_bytes(self.server) >> 96;
        if let Some(subject) = &self.subject {
            return write!(
                f,
                "a process of another host with the certificate of {subject}, server {server:08x}"
            );
        }
        write!(f, "process {} of user {}, server {server:08x}", self.identity.pid, self.identity.uid)
    }
}

/// A backend connection of a backend: one session, in which the gateway calls. It ends when this and all its channels are dropped.
#[derive(Debug)]
pub struct Attached {
    attachment: Arc<Attachment>,
    registration: Registration,
    endpoint: Arc<Subchannel>,
    channel: Channel,
}

impl Attached {
    fn new(attachment: Arc<Attachment>, registration: Registration, backend_listener: &str) -> Attached {
        let process = match attachment.remote() {
            Some(remote) => remote.address.to_string(),
            None => format!("process {}", attachment.peer().pid),
        };
        let name = format!(
            "{backend_listener} (backend connection {} of {process} in group {})",
            registration.backend_connection, registration.group
        );
        let endpoint = Arc::new(Subchannel::attached(name, attachment.clone()));
        let channel = Channel::of_attached(endpoint.clone());
        Attached { attachment, registration, endpoint, channel }
    }

    /// The fingerprint of the types that a method takes as flat messages ([`Converter::types`]), once its process has said so: from its first
    /// call on.
    pub fn object_types(&self, path: &str) -> Option<u64> {
        self.attachment.object_types(path)
    }

    /// Whether its process may be asked to join a pool in which large flat messages are placed for it: the kernel says that it is
    /// of this process's own user, and it has said that it can.
    pub fn reads_in_place(&self) -> bool {
        let is_own = |peer: LocalPeer| PeerPolicy::SameUser.allows(peer.identity().uid);
        self.attachment.lends() && self.attachment.local_peer().is_some_and(is_own)
    }

    /// Places large flat messages for it in this pool from now on, of which its process is a member. To be said once.
    pub fn place_objects_in(&self, pool: Pool) {
        _ = self.endpoint.sharing.places_in.set(pool);
    }

    /// How it is called in log lines.
    pub fn name(&self) -> &str {
        &self.endpoint.name
    }

    /// The group that it says it belongs to.
    pub fn group(&self) -> &str {
        &self.registration.group
    }

    /// The services that it says it serves, in the order of their names.
    pub fn services(&self) -> &[String] {
        &self.registration.services
    }

    /// Whose backend connection it is.
    pub fn process(&self) -> Process {
        Process {
            identity: self.attachment.peer(),
            subject: self.remote().map(|remote| remote.subject.clone()),
            server: self.registration.process,
        }
    }

    /// Who it is, if it is a process of another host.
    pub fn remote(&self) -> Option<&RemoteIdentity> {
        self.attachment.remote()
    }

    /// Its number within its process.
    pub fn backend_connection(&self) -> u32 {
        self.registration.backend_connection
    }

    /// The name and version of the library that it uses.
    pub fn agent(&self) -> &str {
        self.attachment.agent()
    }

    /// Has its session's rings shown among the figures of the gateway.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self, metrics: &crate::metrics::Metrics) {
        metrics.watch_session(&self.attachment);
    }

    /// A channel whose calls go to this backend connection. They end UNAVAILABLE when it is gone, and never go elsewhere.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Calls that the process has under way in all its backend connections, as it says itself. It may be any number.
    pub fn load(&self) -> Option<u32> {
        self.attachment.peer_load()
    }

    /// What became of messages on their way: how many were handed over, and came back, as objects.
    pub fn payloads(&self) -> PayloadCounts {
        self.endpoint.sharing.payloads.counts()
    }

    /// Announces calls to this backend connection in another way from now on, and asks it to wait for them so. No call is lost by that.
    pub fn set_registers(&self, registers: &Registers) {
        self.attachment.set_registers(registers);
    }

    /// What was announced to this backend connection so far.
    pub fn announced(&self) -> Announced {
        self.attachment.announced()
    }

    /// How far its process has come with what was sent to it. Two looks with some time between tell whether it takes calls. Wakes nobody. `None`:
    /// the session is over, or its process is on another host.
    pub fn activity(&self) -> Option<PeerActivity> {
        self.attachment.peer_activity()
    }

    /// Calls under way in this backend connection.
    pub fn live_count(&self) -> u32 {
        self.attachment.live_count()
    }

    /// Calls that may be under way in this backend connection at once, as its process has it; further ones wait. 0 once its session has ended.
    pub fn call_count_max(&self) -> u32 {
        self.attachment.call_count_max()
    }

    /// Whether new calls can be made.
    pub fn is_open(&self) -> bool {
        self.attachment.is_open()
    }

    /// Resolves when no new call can be made any more: the process has ended, or takes none for it is being shut down. Calls under
    /// way go on in the latter case, as long as they are held. One task at a time may wait so.
    pub async fn closed(&self) {
        std::future::poll_fn(|cx| self.attachment.poll_over(cx)).await;
    }

    /// Ends the session; the process is told why, and will come again after a pause.
    pub fn close(&self, reason: &'static str) {
        self.attachment.close(reason);
    }
}

/// The target that a call is to go to, in the extensions of a [`ViaSession`]'s requests. It has been said in the handshake, so no
/// header of a call says another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViaTarget(pub Arc<str>);

/// A session of a backend whose calls are to go elsewhere.
#[derive(Debug)]
pub struct ViaSession {
    attachment: Arc<Attachment>,
    target: ViaTarget,
    /// Those of the backend listener that are served.
    sessions: Arc<AtomicUsize>,
    /// Whether objects are wanted at all.
    objects: bool,
}

impl ViaSession {
    /// Where the calls are to go, as the process gave it: up to 1024 visible ASCII characters.
    pub fn target(&self) -> &str {
        &self.target.0
    }

    /// Who calls, as the kernel says. A process of another host has no number and no user here.
    pub fn peer(&self) -> PeerIdentity {
        self.attachment.peer()
    }

    /// Who calls, if it is a process of another host.
    pub fn remote(&self) -> Option<&RemoteIdentity> {
        self.attachment.remote()
    }

    /// Gives the session's calls to `service`, with tonic's `UdsConnectInfo` and [`ViaTarget`] in their extensions, until the session ends,
    /// or until `stop` resolves and the calls under way are answered. A session that may not be is best given to a service that
    /// answers PERMISSION_DENIED: a channel whose session just ends makes another one.
    pub async fn serve<S, B>(self, service: S, stop: impl Future<Output = ()> + Send)
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (stopping, stopped) = watch::channel(false);
        let duty = duty_of(layers::erase(service), self.sessions, self.objects);
        let serving = SessionTask::new(self.attachment, Arc::new(duty)).with(self.target).run(stopped);
        tokio::pin!(serving, stop);
        tokio::select! {
            () = &mut serving => return,
            () = &mut stop => drop(stopping.send(true)),
        }
        serving.await;
    }
}

/// What sessions have in common whose calls all go to one handler; `sessions` is how many there are.
fn duty_of(
    handler: Arc<dyn ErasedService>,
    sessions: Arc<AtomicUsize>,
    relays_objects: bool,
) -> ServerContext {
    ServerContext {
        services: Services::default(),
        others: Some(handler),
        routes: Routes::default(),
        tally: Arc::default(),
        metrics: None,
        sharing: Arc::default(),
        age: Age::default(),
        timeout: None,
        http_details: false,
        http2: None,
        sessions,
        backend_connection: None,
        relays_objects,
    }
}
