//! A gateway's socket for backends of other hosts.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tollfree_rendezvous::RateLimitedLog;

use crate::attachment::Attachment;
use crate::link::meet;
use crate::link::places::Places;
use crate::pending_handshakes::PendingHandshakes;
use crate::turn::Turn;
use tollfree_host::Config;
use tollfree_host::HandshakeError;
use tollfree_host::QuotaUsage;

/// Pause after the system had no descriptor or memory for one more connection.
const SHED: Duration = Duration::from_millis(50);

static NOT_ACCEPTED: RateLimitedLog = RateLimitedLog::new();
static REFUSED: RateLimitedLog = RateLimitedLog::new();
static NOT_STARTED: RateLimitedLog = RateLimitedLog::new();

/// The name of a certificate's owner; `None` for one that names nobody.
pub type SubjectOf = dyn Fn(&CertificateDer<'_>) -> Option<Arc<str>> + Send + Sync;

/// Who is let in at a [`StreamListener`].
#[derive(Clone)]
pub struct StreamPolicy {
    /// For the next TLS handshake. It has to demand a certificate, and to offer [`PROTOCOL`](tollfree_layout::device::PROTOCOL).
    pub tls: Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>,
    /// Of a certificate that was checked. Sessions are counted by it.
    pub subject: Arc<SubjectOf>,
}

impl fmt::Debug for StreamPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPolicy").finish_non_exhaustive()
    }
}

/// A bound TCP address. Dropping it [closes](StreamListener::close) it; sessions go on.
#[derive(Debug)]
pub struct StreamListener {
    attached: mpsc::Receiver<Attachment>,
    closing: Arc<Notify>,
    address: SocketAddr,
    /// Lives as long as the task that accepts.
    socket: Weak<TcpListener>,
}

impl StreamListener {
    /// Binds `host:port`. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// What the system says.
    pub async fn bind(address: &str, policy: StreamPolicy, config: Config) -> io::Result<StreamListener> {
        StreamListener::start(TcpListener::bind(address).await?, policy, config)
    }

    /// Takes over a socket that listens already. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// What the system says.
    pub fn adopt(
        socket: std::net::TcpListener,
        policy: StreamPolicy,
        config: Config,
    ) -> io::Result<StreamListener> {
        socket.set_nonblocking(true)?;
        StreamListener::start(TcpListener::from_std(socket)?, policy, config)
    }

    fn start(socket: TcpListener, policy: StreamPolicy, config: Config) -> io::Result<StreamListener> {
        let address = socket.local_addr()?;
        let (sender, attached) = mpsc::channel(1);
        let closing = Arc::<Notify>::default();
        let config = Arc::new(config.over_stream());
        let socket = Arc::new(socket);
        let shared = Arc::downgrade(&socket);
        tokio::spawn(accept(socket, policy, config, sender, closing.clone()));
        Ok(StreamListener { attached, closing, address, socket: shared })
    }

    /// The listening socket, for as long as it is accepted from.
    pub fn socket(&self) -> Weak<TcpListener> {
        self.socket.clone()
    }

    /// Where backends meet this gateway.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next process, after its handshake; `None` after those that had begun one when the listener was closed. Cancel safe.
    pub async fn accept(&mut self) -> Option<Attachment> {
        self.attached.recv().await
    }

    /// Lets nobody in any more.
    pub fn close(&mut self) {
        self.closing.notify_one();
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// What connections are counted by that have said nothing: the address, or the /64 of an IPv6 address.
fn counted_by(address: SocketAddr) -> i32 {
    let network = match address.ip().to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) >> 64,
    };
    (network ^ network >> 32) as i32
}

async fn accept(
    socket: Arc<TcpListener>,
    policy: StreamPolicy,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    closing: Arc<Notify>,
) {
    let mut silent = PendingHandshakes::default();
    tokio::select! {
        () = accept_all(&socket, &policy, &config, &sender, &mut silent) => {}
        () = closing.notified() => {}
    }
    silent.end();
}

async fn accept_all(
    socket: &TcpListener,
    policy: &StreamPolicy,
    config: &Arc<Config>,
    sender: &mpsc::Sender<Attachment>,
    silent: &mut PendingHandshakes,
) {
    let places = Places::new(QuotaUsage::sessions_per_user(&config.quotas));
    loop {
        match socket.accept().await {
            Ok((stream, address)) => {
                let turn = Arc::new(Turn::default());
                silent.add(counted_by(address), &turn);
                let (policy, config) = (policy.clone(), config.clone());
                let (sender, places) = (sender.clone(), places.clone());
                tokio::spawn(async move {
                    shake_hands(stream, address, &policy, &config, sender, &turn, &places).await;
                });
            }
            Err(error) => {
                if let Some(unsaid) = NOT_ACCEPTED.turn() {
                    tracing::warn!(%error, unsaid, "can't accept a connection now");
                }
                tokio::time::sleep(SHED).await;
            }
        }
    }
}

async fn shake_hands(
    stream: TcpStream,
    address: SocketAddr,
    policy: &StreamPolicy,
    config: &Config,
    sender: mpsc::Sender<Attachment>,
    turn: &Turn,
    places: &Arc<Places>,
) {
    let met = meet::accept(stream, address, policy, config, turn, places).await;
    let (attached, seed, socket) = match met {
        Ok(met) => met,
        Err(HandshakeError::HungUp) => {
            tracing::debug!(%address, "somebody connected, and went without a handshake");
            return;
        }
        Err(error) => {
            if let Some(unsaid) = REFUSED.turn() {
                tracing::warn!(%address, %error, unsaid, "a connection was refused");
            }
            return;
        }
    };
    match Attachment::over_stream(attached, seed, socket, config) {
        // Where the listener was dropped the session goes with it, which tells the peer.
        Ok(attachment) => drop(sender.send(attachment).await),
        Err(error) => {
            if let Some(unsaid) = NOT_STARTED.turn() {
                tracing::warn!(%error, unsaid, "a session could not be started");
            }
        }
    }
}
