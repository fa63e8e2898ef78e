//! What a session can be told to do differently.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tollfree_connection::WaitPolicy;
use tollfree_layout::limits;
use tollfree_layout::pool::POOL_ID_LEN;
use tollfree_rendezvous::{PeerIdentity, PeerPolicy};
use tollfree_session::Limits;

use crate::admission::{Quotas, Refusals};
use crate::error::HandshakeError;
use crate::registration::{Purpose, Registration};
use crate::tokens::Tokens;

/// Settings of one side of a session. The defaults suit most; each is measured in the bench.
#[derive(Clone, Debug)]
pub struct Config {
    /// How waiting is done.
    pub wait: WaitPolicy,
    /// The threads that wait have nothing else to do: a blocking client's, a pinned server thread's. One `poll` may then spin
    /// for up to 20 µs instead of 0.2, which spares the runtime's turns but keeps its other tasks waiting.
    pub dedicated: bool,
    /// Who may be at the other end.
    pub peers: PeerPolicy,
    /// Credit, calls at once, metadata length.
    pub limits: Limits,
    /// Length of the ring this side sends on, in bytes: a power of two from 4 KiB to 32 KiB.
    pub ring_len: usize,
    /// Length of the payload area this side makes when it has a large message to send, in bytes.
    pub area_len: usize,
    /// A payload area that nothing was sent through for this long is given up.
    pub area_idle: Duration,
    /// What the application calls itself; the peer is told this before this library's name, up to what a handshake carries.
    pub agent: Option<String>,
    /// The handshake must be over within this time.
    pub handshake_timeout: Duration,
    /// A peer of another host that has sent nothing for so long is taken for dead; each side sends something four times as often.
    pub silence: Duration,
    /// A server: what clients of one process, and of one user, may have of it.
    pub quotas: Quotas,
    /// A server: counts the clients that it refuses.
    pub refusals: Refusals,
    /// A server: the tokens that it gives out over TCP, where it does. Clients may present them in their handshakes.
    pub tokens: Option<Arc<Tokens>>,
    /// A server: says how busy it is to clients that want to know
    /// (`Attachment::report_load` of the tokio driver). A client: wants to know.
    pub load: bool,
    /// A server: who comes.
    pub accepts: Accepts,
    /// A gateway: which backends may attach. Without it, all may whose user may come.
    pub admits: Option<Admits>,
    /// A client: the target that it calls by way of the gateway that it connects to.
    pub via: Option<Arc<str>>,
    /// The name of the pool that this process is a member of, where messages may be segmented messages of it
    /// (`OutgoingMessage::segmented` of a session). They may only if the peer names the same one.
    pub pool: Option<[u8; POOL_ID_LEN]>,
    /// A gateway, and a server that attaches to one: messages to the server may be segmented messages of a pool that it joins later on, when the
    /// gateway has named it.
    pub lending: bool,
}

/// Who asks to attach to a gateway.
#[derive(Clone, Copy, Debug)]
pub enum Attacher<'a> {
    /// A process of this host, as the kernel says.
    Local(PeerIdentity),
    /// A process of another host: the subject of its certificate, and where it connects from.
    Remote(&'a Arc<str>, SocketAddr),
}

type Decision = dyn Fn(Attacher<'_>, &Registration) -> Result<(), String> + Send + Sync;

/// Decides which backends may attach, before they have a session. The words for one that may not are told to it: its attempts to attach end with
/// them.
#[derive(Clone)]
pub struct Admits(Arc<Decision>);

impl Admits {
    /// By a function that is called in each handshake. It must not block.
    pub fn new(
        decide: impl Fn(Attacher<'_>, &Registration) -> Result<(), String> + Send + Sync + 'static,
    ) -> Admits {
        Admits(Arc::new(decide))
    }
}

impl std::fmt::Debug for Admits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admits").finish_non_exhaustive()
    }
}

impl Config {
    /// Whether a process may have the session that it asks for.
    ///
    /// # Errors
    /// [`HandshakeError::NotAdmitted`], for a backend.
    pub fn check_admitted(&self, who: Attacher<'_>, purpose: &Purpose) -> Result<(), HandshakeError> {
        match (&self.admits, purpose) {
            (Some(Admits(decide)), Purpose::Attach(registration)) => {
                decide(who, registration).map_err(HandshakeError::NotAdmitted)
            }
            _ => Ok(()),
        }
    }
}

/// Who comes to a server's socket. Others are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accepts {
    /// Callers.
    #[default]
    Callers,
    /// Backends: they attach to a gateway, or call by way of it.
    Backends,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            wait: WaitPolicy::default(),
            dedicated: false,
            peers: PeerPolicy::default(),
            limits: Limits::default(),
            ring_len: limits::RING_LEN_DEFAULT,
            area_len: limits::AREA_LEN_DEFAULT,
            area_idle: Duration::from_millis(500),
            agent: None,
            handshake_timeout: Duration::from_secs(5),
            silence: Duration::from_secs(20),
            quotas: Quotas::default(),
            refusals: Refusals::default(),
            tokens: None,
            load: false,
            accepts: Accepts::Callers,
            admits: None,
            via: None,
            pool: None,
            lending: false,
        }
    }
}

impl Config {
    /// What a client with this configuration wants.
    pub fn purpose(&self) -> Purpose {
        self.via.clone().map_or(Purpose::Call, Purpose::Via)
    }
}

impl Config {
    /// The same for sessions over a stream: nobody looks for what only the driver can hear, and there is no memory to share.
    pub fn over_stream(&self) -> Config {
        Config {
            wait: WaitPolicy::Park,
            dedicated: false,
            pool: None,
            tokens: None,
            via: None,
            ..self.clone()
        }
    }
}
