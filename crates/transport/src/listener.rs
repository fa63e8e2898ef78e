//! A server's socket: accepts processes and makes sessions of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::address::Address;
use crate::attachment::Attachment;
use crate::config::Config;
use crate::handshake;
use crate::rendezvous::{BindError, Rendezvous};

/// Handshakes under way at once; more clients wait in the socket's backlog.
const HANDSHAKE_COUNT_MAX: usize = 64;
/// Pause after the system had no descriptor or memory for one more client.
const SHED: Duration = Duration::from_millis(50);

/// A bound address. Dropping it removes the socket; sessions go on.
#[derive(Debug)]
pub struct Listener {
    attached: mpsc::Receiver<Attachment>,
    task: tokio::task::JoinHandle<()>,
    address: Address,
}

impl Listener {
    /// Binds an address. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`BindError`]; a socket that a dead server left is replaced, one of a live server is not.
    pub fn bind(address: &Address, config: Config) -> Result<Listener, BindError> {
        let rendezvous = Rendezvous::bind(address)?;
        let io = |source| BindError::Io { address: address.clone(), source };
        let socket = UnixListener::from_std(rendezvous.listener.try_clone().map_err(io)?).map_err(io)?;
        let (sender, attached) = mpsc::channel(1);
        let task = tokio::spawn(accept(rendezvous, socket, Arc::new(config), sender));
        Ok(Listener { attached, task, address: address.clone() })
    }

    /// Where clients meet this server.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next client, after its handshake. Cancel safe.
    pub async fn accept(&mut self) -> Option<Attachment> {
        self.attached.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    _rendezvous: Rendezvous,
    socket: UnixListener,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
) {
    let slots = Arc::new(Semaphore::new(HANDSHAKE_COUNT_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match socket.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(shake_hands(stream, config.clone(), sender.clone(), slot));
            }
            Err(error) => {
                // Out of descriptors or memory, most likely: those connected go on, newcomers wait in the backlog.
                tracing::warn!(%error, "can't accept a client now");
                tokio::time::sleep(SHED).await;
            }
        }
    }
}

async fn shake_hands(
    stream: UnixStream,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    _slot: OwnedSemaphorePermit,
) {
    let attached = match handshake::accept(&stream, &config).await {
        Ok(attached) => attached,
        Err(error) => {
            tracing::warn!(%error, "a client was refused");
            return;
        }
    };
    match Attachment::start(attached, stream, &config) {
        // A server that has stopped listening drops the session, which tells the client.
        Ok(attachment) => drop(sender.send(attachment).await),
        Err(error) => tracing::warn!(%error, "a session could not be started"),
    }
}
