//! Sockets on which the world is served: who is let in.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tollfree::gateway::{BindError, RateLimitedLog, SocketFile, SocketMode, bind_unix};

use crate::client::{Class, Client};
use crate::config::{Config, Listener};
use crate::connection;
use crate::descriptors;
use crate::frontend::Frontend;
use crate::metrics::Metrics;
use crate::passed::{self, Passed};
use crate::proxied::read_header;
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::shares::Owner;
use crate::takeover::{Sockets, Takeover};
use crate::tls::{Certificates, Protocol, TlsError};

/// How long nobody is accepted after that has failed, as it does without a free descriptor: at first, and when it fails again and again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a connection that is refused stays open, so that its client does not come again at once.
const AWAY_PAUSE: Duration = Duration::from_secs(1);
/// Refused connections that stay open so. Their descriptors come out of those that are kept back.
const AWAY_MAX: usize = 64;
static NOT_ACCEPTED: RateLimitedLog = RateLimitedLog::new();

/// Why a listener can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address can't be bound.
    #[error("listeners.{listener}.address: {address} can't be bound: {source}")]
    Bind {
        /// The listener's name.
        listener: String,
        /// As configured.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The path can't be bound.
    #[error("listeners.{listener}.address: {source}")]
    Unix {
        /// The listener's name.
        listener: String,
        /// What is in the way; it names the path.
        source: BindError,
    },
    /// No TLS.
    #[error("listeners.{listener}.tls: {source}")]
    Tls {
        /// The listener's name.
        listener: String,
        /// What is wrong.
        source: TlsError,
    },
}

/// Places for connections.
pub(crate) struct Places {
    config: Current,
    taken: Mutex<Taken>,
    metrics: Arc<Metrics>,
    turned_away: Arc<Semaphore>,
}

#[derive(Default)]
struct Taken {
    count: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl Taken {
    fn count_address(&mut self, address: Option<IpAddr>, config: &Config) -> Result<(), Refusal> {
        let Some(address) = address else { return Ok(()) };
        let most = descriptors::connections_per_address_max(config);
        if self.by_address.get(&address).is_some_and(|count| *count >= most) {
            return Err(Refusal::ConnectionsPerAddress);
        }
        *self.by_address.entry(address).or_default() += 1;
        Ok(())
    }
}

/// One connection's place, until it is dropped.
pub(crate) struct Admitted {
    places: Arc<Places>,
    address: Option<IpAddr>,
}

impl Places {
    pub(crate) fn new(config: Current, metrics: Arc<Metrics>) -> Places {
        Places { config, taken: Mutex::default(), metrics, turned_away: Arc::new(Semaphore::new(AWAY_MAX)) }
    }

    /// Where `address` is none, those that come share with nobody, or are of this host.
    fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Admitted, Refusal> {
        let config = self.config.load();
        let mut taken = self.taken.lock();
        if taken.count >= descriptors::connections_max(&config) {
            return Err(Refusal::Connections);
        }
        taken.count_address(address, &config)?;
        taken.count += 1;
        self.metrics.connections.inc();
        Ok(Admitted { places: self.clone(), address })
    }
}

impl Admitted {
    /// The connection turns out to be an address'.
    fn count(&mut self, address: Option<IpAddr>) -> Result<(), Refusal> {
        let config = self.places.config.load();
        self.places.taken.lock().count_address(address, &config)?;
        self.address = address;
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.count -= 1;
        if let Some(address) = self.address
            && let Some(count) = taken.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&address);
            }
        }
        self.places.metrics.connections.dec();
    }
}

#[derive(Clone)]
enum Socket {
    Tcp(Arc<TcpListener>),
    Unix(Arc<UnixListener>),
}

/// A bound listener.
pub(crate) struct Bound {
    name: String,
    socket: Socket,
    certificates: Option<Arc<Certificates>>,
}

impl Bound {
    /// Binds it, or takes the socket that the service manager, or the running gateway, passes. Gives the socket's file too, unless somebody
    /// else keeps it.
    pub(crate) async fn bind(
        name: &str,
        listener: &Listener,
        passed: &mut Passed,
        claim: Option<&mut Takeover>,
    ) -> Result<(Bound, Option<SocketFile>), ListenError> {
        let certificates = match &listener.tls {
            None => None,
            Some(files) => {
                let protocol = if listener.web.is_some() { Protocol::Web } else { Protocol::Http2 };
                let read = Certificates::read(files, protocol).await;
                let read = read.map_err(|source| ListenError::Tls { listener: name.into(), source })?;
                Some(Arc::new(read))
            }
        };
        let address = &*listener.address;
        let bind_error =
            |source| ListenError::Bind { listener: name.into(), address: listener.address.clone(), source };
        let mut file = None;
        let taken = claim.map(|claim| Socket::take(name, address, claim)).transpose().map_err(bind_error)?;
        let socket = if let Some(socket) = taken.flatten() {
            socket
        } else if let Some(name) = address.strip_prefix(passed::SCHEME) {
            match passed.take(name).map_err(bind_error)? {
                passed::PassedSocket::Tcp(listener) => Socket::Tcp(listener.into()),
                passed::PassedSocket::Unix(listener) => Socket::Unix(listener.into()),
            }
        } else if let Some(path) = address.strip_prefix("unix:") {
            let bound = bind_unix(Path::new(path), SocketMode::Umask).await;
            let (listener, bound) =
                bound.map_err(|source| ListenError::Unix { listener: name.into(), source })?;
            file = bound;
            Socket::Unix(listener.into())
        } else {
            Socket::Tcp(TcpListener::bind(address).await.map_err(bind_error)?.into())
        };
        Ok((Bound { name: name.into(), socket, certificates }, file))
    }

    /// Has another gateway take the socket, which the config gives this `address`.
    pub(crate) fn offer(&self, address: &str, sockets: &mut Sockets) {
        let key = key_of(&self.name);
        match &self.socket {
            Socket::Tcp(listener) => sockets.add_tcp(key, address, Arc::downgrade(listener)),
            Socket::Unix(listener) => sockets.add_unix(key, address, listener),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.certificates.as_ref()
    }

    /// As clients write it: with the port that was chosen where the config says 0.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        match &self.socket {
            Socket::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("{scheme}://{address}"),
                Err(error) => format!("{scheme}://({error})"),
            },
            Socket::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(|| "unix:".into(), |path| format!("unix:{}", path.display()))
            }
        }
    }

    /// Lets clients in until the gateway stops; then waits for the connections that are open.
    pub(crate) async fn serve(
        self,
        frontend: Arc<Frontend>,
        places: Arc<Places>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut connections = JoinSet::new();
        let mut follow = JoinSet::new();
        if let Some(certificates) = &self.certificates {
            follow.spawn(certificates.clone().follow(self.name.clone(), frontend.metrics.clone()));
        }
        let entrance = Entrance {
            listener: self.name.as_str().into(),
            frontend,
            places,
            certificates: self.certificates.clone(),
            stopping: stopping.clone(),
        };
        let mut pause = PAUSE;
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stopping.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((WorldStream::Tcp(stream), client)) => entrance.enter(stream, client, &mut connections),
                Ok((WorldStream::Unix(stream), client)) => entrance.enter(stream, client, &mut connections),
                Err(error) => {
                    if let Some(unsaid) = NOT_ACCEPTED.turn() {
                        tracing::warn!(listener = self.name, %error, unsaid, "nobody can be let in at the moment");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                    continue;
                }
            }
            pause = PAUSE;
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }
}

enum WorldStream {
    Tcp(tokio::net::TcpStream),
    Unix(UnixStream),
}

/// What takeovers call a listener.
fn key_of(name: &str) -> String {
    format!("listeners.{name}")
}

impl Socket {
    /// The socket that the running gateway has for a listener, if it has the same address there.
    fn take(name: &str, address: &str, claim: &mut Takeover) -> io::Result<Option<Socket>> {
        let key = key_of(name);
        if claim.is_unix(&key, address) {
            return Ok(claim.unix(&key, address)?.map(|listener| Socket::Unix(listener.into())));
        }
        Ok(claim.tokio_tcp(&key, address)?.map(|listener| Socket::Tcp(listener.into())))
    }

    async fn accept(&self) -> io::Result<(WorldStream, Client)> {
        match self {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Without it, an answer waits for the client's acknowledgement of the one before.
                _ = stream.set_nodelay(true);
                Ok((WorldStream::Tcp(stream), Client::of_network(address)))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let (address, owner) = match stream.peer_cred() {
                    Ok(peer) => {
                        let (pid, uid) = (peer.pid().unwrap_or_default(), peer.uid());
                        (format!("unix:pid={pid},uid={uid}"), Some(Owner::User(uid)))
                    }
                    Err(_) => ("unix:".to_owned(), None),
                };
                Ok((WorldStream::Unix(stream), Client::at(&address, Class::Unix).of_owner(owner)))
            }
        }
    }
}

/// What each newcomer passes.
#[derive(Clone)]
struct Entrance {
    listener: Arc<str>,
    frontend: Arc<Frontend>,
    places: Arc<Places>,
    certificates: Option<Arc<Certificates>>,
    stopping: watch::Receiver<bool>,
}

impl Entrance {
    fn enter<S>(&self, mut stream: S, client: Client, connections: &mut JoinSet<()>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = client.at_listener(&self.listener);
        let edge = self.frontend.policies.of_listener(&self.listener);
        let is_proxied = match edge.as_ref().and_then(|edge| edge.balancers()) {
            None => false,
            Some(balancers) if client.ip().is_some_and(|ip| balancers.contain(ip)) => true,
            Some(_) => {
                let words = "the connection does not come from listeners.*.proxy_protocol, and closed";
                return self.frontend.metrics.refused(Refusal::Proxy, &client, "", words);
            }
        };
        // Where the client is behind a balancer, it is not known yet whose connection it is.
        let client = if is_proxied { client.of_owner(None) } else { self.with_owner(client) };
        let mut admitted = match self.places.admit(client.address_owner()) {
            Ok(admitted) => admitted,
            Err(why) => return self.refuse(stream, why, &client, connections),
        };
        let entrance = self.clone();
        let begun_by =
            Instant::now() + Duration::from_millis(self.frontend.config.load().limits.handshake_ms);
        connections.spawn(async move {
            let Entrance { frontend, mut stopping, listener, certificates, .. } = entrance.clone();
            let mut client = client;
            if is_proxied {
                let header = tokio::time::timeout_at(begun_by, read_header(&mut stream));
                let header = tokio::select! {
                    header = header => header,
                    // Nobody has called yet.
                    _ = stopping.wait_for(|stop| *stop) => return,
                };
                match header.unwrap_or_else(|_| Err("a PROXY header did not come in time".into())) {
                    // The balancer itself looks whether somebody is here.
                    Ok(None) => {}
                    Ok(Some(address)) => client = Client::of_network(address).at_listener(&listener),
                    Err(words) => return frontend.metrics.refused(Refusal::Proxy, &client, "", &words),
                }
                client = entrance.with_owner(client);
                if let Err(why) = admitted.count(client.address_owner()) {
                    drop(admitted);
                    return entrance.send_away(stream, why, &client).await;
                }
            }
            let _admitted = admitted;
            let Some(config) = certificates.map(|certificates| certificates.current()) else {
                return connection::serve(frontend, stream, client, (&listener, false), begun_by, stopping)
                    .await;
            };
            let handshake = tokio::time::timeout_at(begun_by, TlsAcceptor::from(config).accept(stream));
            let handshake = tokio::select! {
                handshake = handshake => handshake,
                // Nobody has called yet.
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            let stream = match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    let words = format!("a TLS handshake came to nothing: {error}");
                    return frontend.metrics.refused(Refusal::Handshake, &client, "", &words);
                }
                Err(_) => {
                    let words = "a TLS handshake was not over in time";
                    return frontend.metrics.refused(Refusal::Handshake, &client, "", words);
                }
            };
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let client = match shown {
                Some(certificate) => client.with_certificate(certificate),
                None => client,
            };
            connection::serve(frontend, stream, client, (&listener, true), begun_by, stopping).await;
        });
    }

    /// Where many clients come by one address, none shares with another.
    fn with_owner(&self, client: Client) -> Client {
        let listener = self.frontend.config.load().listeners.get(&*self.listener).cloned();
        match listener.is_some_and(|listener| listener.shared_addresses) {
            true => client.of_owner(None),
            false => client,
        }
    }

    /// Refuses a connection. It is closed after a pause, which its client waits for: clients that connect again at once come once in that time.
    fn refuse<S>(&self, stream: S, why: Refusal, client: &Client, connections: &mut JoinSet<()>)
    where
        S: AsyncWrite + Unpin + Send + 'static,
    {
        if self.places.turned_away.available_permits() == 0 {
            // There are many already that wait: this one is closed at once.
            return self.frontend.metrics.refused(why, client, "", &too_many(why));
        }
        let (entrance, client) = (self.clone(), client.clone());
        connections.spawn(async move { entrance.send_away(stream, why, &client).await });
    }

    async fn send_away<S: AsyncWrite + Unpin>(mut self, mut stream: S, why: Refusal, client: &Client) {
        self.frontend.metrics.refused(why, client, "", &too_many(why));
        let Ok(_turn) = self.places.turned_away.clone().try_acquire_owned() else { return };
        tokio::select! {
            () = tokio::time::sleep(AWAY_PAUSE) => {}
            _ = self.stopping.wait_for(|stop| *stop) => {}
        }
        if self.certificates.is_none() {
            say_why(&mut stream, why);
        }
    }
}

fn too_many(why: Refusal) -> String {
    format!("too many connections: limits.{} are open already", why.name())
}

/// Says by HTTP/2 why a connection is closed: GOAWAY with ENHANCE_YOUR_CALM and words. There are no SETTINGS before it: a client that has
/// them takes the connection for one that was there, and connects again without a pause. Best effort, and never waited for: what doesn't fit
/// into the socket is not said.
fn say_why<S: AsyncWrite + Unpin>(stream: &mut S, why: Refusal) {
    let words = too_many(why);
    // The words are some 80 bytes: their length fits into one byte.
    let mut bytes = vec![0, 0, (words.len() + 8).min(255) as u8, 7, 0, 0, 0, 0, 0];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 11]);
    bytes.extend(words.as_bytes());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    _ = std::pin::Pin::new(&mut *stream).poll_write(&mut cx, &bytes);
    _ = std::pin::Pin::new(stream).poll_shutdown(&mut cx);
}
