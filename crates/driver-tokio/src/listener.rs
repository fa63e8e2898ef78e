//! A server's socket: accepts processes and makes sessions of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tollfree_kill_points::{Point, here};
use tollfree_os::tokio_net::{UnixListener, UnixStream};
use tollfree_region::{CLOSING_COUNT_MAX, closing_count};
use tollfree_rendezvous::{Address, BindError, FileId, PeerIdentity, RateLimitedLog, Rendezvous};

use crate::attachment::Attachment;
use crate::inherited::OfProcess;
use crate::pending_handshakes::PendingHandshakes;
use crate::shaking;
use crate::turn::Turn;
use tollfree_host::Config;
use tollfree_host::HandshakeError;
use tollfree_host::QuotaUsage;

/// Pause after the system had no descriptor or memory for one more client.
const SHED: Duration = Duration::from_millis(50);

/// Newcomers wait for others' descriptors to be closed.
static UNCLOSED: RateLimitedLog = RateLimitedLog::new();
/// No descriptor, or no memory, for one more.
static NOT_ACCEPTED: RateLimitedLog = RateLimitedLog::new();
static REFUSED: RateLimitedLog = RateLimitedLog::new();
static NOT_STARTED: RateLimitedLog = RateLimitedLog::new();

/// A bound address. Dropping it [closes](Listener::close) it; sessions go on.
#[derive(Debug)]
pub struct Listener {
    attached: mpsc::Receiver<Attachment>,
    /// Tells the task that accepts.
    closing: Arc<Notify>,
    address: Address,
    /// Removes the socket when the listener closes, not when its task is dropped some time later.
    rendezvous: Option<Rendezvous>,
}

impl Listener {
    /// Binds an address. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`BindError`]; a socket that a dead server left is replaced, one of a live server is not. Whether this process may
    /// share memory at all is found out here, not by its first client.
    pub fn bind(address: &Address, config: Config) -> Result<Listener, BindError> {
        tollfree_host::check_memory(&config)
            .map_err(|source| BindError::Memory { address: address.to_string(), source: source.into() })?;
        Listener::start(address.clone(), Rendezvous::bind(address)?, OfProcess::new, config)
    }

    /// As [`bind`](Listener::bind), under a name beside the address, until [`publish`](Listener::publish).
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind); an abstract address has no such name.
    pub fn bind_beside(address: &Address, config: Config) -> Result<Listener, BindError> {
        tollfree_host::check_memory(&config)
            .map_err(|source| BindError::Memory { address: address.to_string(), source: source.into() })?;
        Listener::start(address.clone(), Rendezvous::bind_beside(address)?, OfProcess::new, config)
    }

    /// Has clients find a listener at its address that was [bound beside it](Listener::bind_beside), in the place of a server that may still
    /// listen there. Waits for no thread of the runtime's.
    ///
    /// # Errors
    /// [`BindError`]; nobody finds the listener then, and what stands there stays.
    pub async fn publish(&mut self) -> Result<(), BindError> {
        let Some(rendezvous) = self.rendezvous.take() else { return Ok(()) };
        let address = self.address.clone();
        let published = tokio::task::spawn_blocking(move || rendezvous.publish(&address)).await;
        let io = |failed| BindError::Io {
            address: self.address.to_string(),
            source: std::io::Error::other::<tokio::task::JoinError>(failed),
        };
        self.rendezvous = Some(published.map_err(io)??);
        Ok(())
    }

    /// Where the socket's file is at the moment; an abstract name has none, nor has a listener that is closed.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.rendezvous.as_ref()?.path()
    }

    /// Takes over a socket that listens already. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`BindError`], as for [`bind`](Listener::bind), or since the socket is none that clients could meet a server at.
    pub fn adopt(
        listener: tollfree_os::unix::net::UnixListener,
        config: Config,
    ) -> Result<Listener, BindError> {
        let (address, rendezvous) = Rendezvous::adopt(listener)?;
        tollfree_host::check_memory(&config)
            .map_err(|source| BindError::Memory { address: address.to_string(), source: source.into() })?;
        Listener::start(address, rendezvous, OfProcess::shared, config)
    }

    fn start(
        address: Address,
        rendezvous: Rendezvous,
        hold: fn(UnixListener) -> OfProcess<UnixListener>,
        config: Config,
    ) -> Result<Listener, BindError> {
        let io = |source| BindError::Io { address: address.to_string(), source };
        let socket = UnixListener::from_std(rendezvous.listener().try_clone().map_err(io)?).map_err(io)?;
        let (sender, attached) = mpsc::channel(1);
        let closing = Arc::<Notify>::default();
        tokio::spawn(accept(hold(socket), Arc::new(config), sender, closing.clone()));
        Ok(Listener { attached, closing, address, rendezvous: Some(rendezvous) })
    }

    /// Where clients meet this server.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Which file the socket is; an abstract name has none, nor has a listener that is closed.
    pub fn file_id(&self) -> Option<FileId> {
        self.rendezvous.as_ref()?.file_id()
    }

    /// The next client, after its handshake; `None` after those that had begun one when the listener was closed. Cancel safe.
    pub async fn accept(&mut self) -> Option<Attachment> {
        self.attached.recv().await
    }

    /// Removes the socket and lets nobody in any more. A client that has said HELLO still gets a session, for that may have been
    /// answered already, with calls on their way: [`accept`](Listener::accept) gives those before it gives `None`, within
    /// [`Config::handshake_timeout`] at the latest.
    pub fn close(&mut self) {
        // In a child of `fork` the task is the parent's, and nobody here runs it.
        if self.rendezvous.take().is_some_and(|rendezvous| !rendezvous.is_inherited()) {
            self.closing.notify_one();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Accepts until the listener is closed.
async fn accept(
    socket: OfProcess<UnixListener>,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    closing: Arc<Notify>,
) {
    let mut silent = PendingHandshakes::default();
    tokio::select! {
        () = accept_all(&socket, &config, &sender, &mut silent) => {}
        () = closing.notified() => {}
    }
    silent.end();
}

async fn accept_all(
    socket: &UnixListener,
    config: &Arc<Config>,
    sender: &mpsc::Sender<Attachment>,
    silent: &mut PendingHandshakes,
) {
    let quota_usage = QuotaUsage::new(&config.quotas);
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                here(Point::Accepted);
                while closing_count() >= CLOSING_COUNT_MAX {
                    // Newcomers may bring more of what nobody can close: they wait, this one and those behind it.
                    if let Some(unsaid) = UNCLOSED.turn() {
                        tracing::warn!(
                            unsaid,
                            "too many descriptors that clients passed can't be closed: newcomers wait"
                        );
                    }
                    tokio::time::sleep(SHED).await;
                }
                let turn = Arc::new(Turn::default());
                silent.add(PeerIdentity::of(&stream).map_or(0, |identity| identity.pid), &turn);
                let stream = OfProcess::new(stream);
                tokio::spawn(shake_hands(stream, config.clone(), sender.clone(), turn, quota_usage.clone()));
            }
            Err(error) => {
                // Out of descriptors or memory, most likely: those connected go on, newcomers wait in the backlog.
                if let Some(unsaid) = NOT_ACCEPTED.turn() {
                    tracing::warn!(%error, unsaid, "can't accept a client now");
                }
                tokio::time::sleep(SHED).await;
            }
        }
    }
}

async fn shake_hands(
    stream: OfProcess<UnixStream>,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    turn: Arc<Turn>,
    quota_usage: Arc<QuotaUsage>,
) {
    let attached = match shaking::accept(&stream, &config, &turn, &quota_usage).await {
        Ok(attached) => attached,
        Err(error) => {
            match error {
                // One that looks whether somebody listens, or has thought better of it: nothing is wrong with either.
                HandshakeError::Dead | HandshakeError::HungUp => {
                    tracing::debug!("somebody connected, and went without a handshake");
                }
                error => {
                    if let Some(unsaid) = REFUSED.turn() {
                        tracing::warn!(%error, unsaid, "a client was refused");
                    }
                }
            }
            return;
        }
    };
    match Attachment::new(attached, stream.into_inner(), &config) {
        // Where the listener was dropped the session goes with it, which tells the client.
        Ok(attachment) => drop(sender.send(attachment).await),
        Err(error) => {
            if let Some(unsaid) = NOT_STARTED.turn() {
                tracing::warn!(%error, unsaid, "a session could not be started");
            }
        }
    }
}
