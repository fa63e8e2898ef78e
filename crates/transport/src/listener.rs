//! A server's socket: accepts processes and makes sessions of them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tollfree_kill_points::{Point, here};
use tollfree_rendezvous::{Address, BindError, FileId, Rendezvous};

use crate::attachment::Attachment;
use crate::config::Config;
use crate::handshake::{self, Turn};
use crate::inherited::OfProcess;

/// Handshakes under way at once; more clients wait in the socket's backlog.
const HANDSHAKE_COUNT_MAX: usize = 64;
/// When that many are, the first that has said nothing for this long makes place. An honest client says HELLO as soon as
/// it is connected; this is the time that a busy machine may take over it.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// Pause after the system had no descriptor or memory for one more client.
const SHED: Duration = Duration::from_millis(50);

/// A bound address. Dropping it removes the socket; sessions go on.
#[derive(Debug)]
pub struct Listener {
    attached: mpsc::Receiver<Attachment>,
    task: tokio::task::JoinHandle<()>,
    address: Address,
    /// Removes the socket when the listener goes, not when its task is dropped some time later.
    rendezvous: Rendezvous,
}

impl Listener {
    /// Binds an address. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`BindError`]; a socket that a dead server left is replaced, one of a live server is not. Whether this process may
    /// share memory at all is found out here, not by its first client.
    pub fn bind(address: &Address, config: Config) -> Result<Listener, BindError> {
        handshake::check_memory(&config)
            .map_err(|source| BindError::Memory { address: address.clone(), source: source.into() })?;
        let rendezvous = Rendezvous::bind(address)?;
        let io = |source| BindError::Io { address: address.clone(), source };
        let socket = UnixListener::from_std(rendezvous.listener().try_clone().map_err(io)?).map_err(io)?;
        let (sender, attached) = mpsc::channel(1);
        let task = tokio::spawn(accept(OfProcess::new(socket), Arc::new(config), sender));
        Ok(Listener { attached, task, address: address.clone(), rendezvous })
    }

    /// Where clients meet this server.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Which file the socket is; an abstract name has none.
    pub fn file_id(&self) -> Option<FileId> {
        self.rendezvous.file_id()
    }

    /// The next client, after its handshake. Cancel safe.
    pub async fn accept(&mut self) -> Option<Attachment> {
        self.attached.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // In a child of `fork` the task is the parent's, and nobody here runs it.
        if !self.rendezvous.is_inherited() {
            self.task.abort();
        }
    }
}

async fn accept(socket: OfProcess<UnixListener>, config: Arc<Config>, sender: mpsc::Sender<Attachment>) {
    let slots = Arc::new(Semaphore::new(HANDSHAKE_COUNT_MAX));
    let mut turns = VecDeque::new();
    loop {
        let Some(slot) = free_slot(&slots, &mut turns).await else { return };
        match socket.accept().await {
            Ok((stream, _)) => {
                here(Point::Accepted);
                let turn = Arc::new(Turn::default());
                turns.push_back((Instant::now(), Arc::downgrade(&turn)));
                let stream = OfProcess::new(stream);
                tokio::spawn(shake_hands(stream, config.clone(), sender.clone(), turn, slot));
            }
            Err(error) => {
                // Out of descriptors or memory, most likely: those connected go on, newcomers wait in the backlog.
                tracing::warn!(%error, "can't accept a client now");
                tokio::time::sleep(SHED).await;
            }
        }
    }
}

/// A place for one more handshake. While all are taken, clients that have said nothing for too long lose theirs, oldest
/// first: whoever connects and keeps silent keeps nobody out.
async fn free_slot(
    slots: &Arc<Semaphore>,
    turns: &mut VecDeque<(Instant, Weak<Turn>)>,
) -> Option<OwnedSemaphorePermit> {
    loop {
        turns.retain(|(_, turn)| turn.upgrade().is_some_and(|turn| turn.is_silent()));
        let free = slots.clone().acquire_owned();
        let Some((began, oldest)) = turns.front() else { return free.await.ok() };
        tokio::select! {
            biased;
            slot = free => return slot.ok(),
            () = sleep_until(*began + SILENCE_MAX) => {
                if let Some(turn) = oldest.upgrade() {
                    turn.end();
                }
                turns.pop_front();
            }
        }
    }
}

async fn shake_hands(
    stream: OfProcess<UnixStream>,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    turn: Arc<Turn>,
    _slot: OwnedSemaphorePermit,
) {
    let attached = match handshake::accept(&stream, &config, &turn).await {
        Ok(attached) => attached,
        Err(error) => {
            tracing::warn!(%error, "a client was refused");
            return;
        }
    };
    match Attachment::start(attached, stream.into_inner(), &config) {
        // A server that has stopped listening drops the session, which tells the client.
        Ok(attachment) => drop(sender.send(attachment).await),
        Err(error) => tracing::warn!(%error, "a session could not be started"),
    }
}
