//! A server's socket: accepts processes and makes sessions of them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tollfree_kill_points::{Point, here};
use tollfree_region::{CLOSING_COUNT_MAX, closing_count};
use tollfree_rendezvous::{Address, BindError, FileId, Rendezvous, Seldom};

use crate::attachment::Attachment;
use crate::config::Config;
use crate::handshake::{self, Ended, Turn};
use crate::inherited::OfProcess;

/// Handshakes under way at once; more clients wait in the socket's backlog.
const HANDSHAKE_COUNT_MAX: usize = 64;
/// When that many are, the first that has said nothing for this long makes place. An honest client says HELLO as soon as
/// it is connected; this is the time that a busy machine may take over it.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// Pause after the system had no descriptor or memory for one more client.
const SHED: Duration = Duration::from_millis(50);

/// Newcomers wait for others' descriptors to be closed.
static UNCLOSED: Seldom = Seldom::new();

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
        handshake::check_memory(&config)
            .map_err(|source| BindError::Memory { address: address.clone(), source: source.into() })?;
        let rendezvous = Rendezvous::bind(address)?;
        let io = |source| BindError::Io { address: address.clone(), source };
        let socket = UnixListener::from_std(rendezvous.listener().try_clone().map_err(io)?).map_err(io)?;
        let (sender, attached) = mpsc::channel(1);
        let closing = Arc::<Notify>::default();
        tokio::spawn(accept(OfProcess::new(socket), Arc::new(config), sender, closing.clone()));
        Ok(Listener { attached, closing, address: address.clone(), rendezvous: Some(rendezvous) })
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

    /// Removes the socket and lets nobody in any more. Whoever has said HELLO still gets a session, for that may have been
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

/// Clients that have begun a handshake, and when, in the order of their coming.
type Turns = VecDeque<(Instant, Weak<Turn>)>;

/// Accepts until the listener is closed.
async fn accept(
    socket: OfProcess<UnixListener>,
    config: Arc<Config>,
    sender: mpsc::Sender<Attachment>,
    closing: Arc<Notify>,
) {
    let mut turns = Turns::new();
    tokio::select! {
        () = accept_all(&socket, &config, &sender, &mut turns) => {}
        () = closing.notified() => {}
    }
    for turn in turns.iter().filter_map(|(_, turn)| turn.upgrade()) {
        turn.end(Ended::Closing);
    }
}

async fn accept_all(
    socket: &UnixListener,
    config: &Arc<Config>,
    sender: &mpsc::Sender<Attachment>,
    turns: &mut Turns,
) {
    let slots = Arc::new(Semaphore::new(HANDSHAKE_COUNT_MAX));
    loop {
        let Some(slot) = free_slot(&slots, turns).await else { return };
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
async fn free_slot(slots: &Arc<Semaphore>, turns: &mut Turns) -> Option<OwnedSemaphorePermit> {
    loop {
        turns.retain(|(_, turn)| turn.upgrade().is_some_and(|turn| turn.is_silent()));
        let free = slots.clone().acquire_owned();
        let Some((began, oldest)) = turns.front() else { return free.await.ok() };
        tokio::select! {
            biased;
            slot = free => return slot.ok(),
            () = sleep_until(*began + SILENCE_MAX) => {
                if let Some(turn) = oldest.upgrade() {
                    turn.end(Ended::Crowded);
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
        // Where the listener was dropped the session goes with it, which tells the client.
        Ok(attachment) => drop(sender.send(attachment).await),
        Err(error) => tracing::warn!(%error, "a session could not be started"),
    }
}
