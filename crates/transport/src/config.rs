//! What a session can be told to do differently.

use std::time::Duration;

use tollfree_layout::limits;
use tollfree_session::Limits;

/// How a task waits for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitPolicy {
    /// Spin for as long as recent waits make worth while, then park.
    #[default]
    Adaptive,
    /// Never park: lowest latency, one core always busy while calls wait.
    Poll,
    /// Never spin: for cores that must not, at some 60 µs a wake-up.
    Park,
}

/// Which users may be at the other end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PeerPolicy {
    /// This process's own effective user, and nobody else (root neither).
    #[default]
    SameUser,
    /// These user ids.
    Users(Vec<u32>),
    /// Everyone who can reach the socket.
    Anyone,
}

impl PeerPolicy {
    /// Whether a user may.
    pub fn allows(&self, uid: u32) -> bool {
        match self {
            PeerPolicy::SameUser => uid == rustix::process::geteuid().as_raw(),
            PeerPolicy::Users(users) => users.contains(&uid),
            PeerPolicy::Anyone => true,
        }
    }

    /// The policy for messages to people.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            PeerPolicy::SameUser => "only the same user is",
            PeerPolicy::Users(_) => "only the users listed are",
            PeerPolicy::Anyone => "everyone is",
        }
    }
}

/// Settings of one side of a session. The defaults suit most; each is measured in the bench.
#[derive(Clone, Debug)]
pub struct Config {
    /// How waiting is done.
    pub wait: WaitPolicy,
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
    /// The handshake must be over within this time.
    pub handshake_timeout: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            wait: WaitPolicy::default(),
            peers: PeerPolicy::default(),
            limits: Limits::default(),
            ring_len: limits::RING_LEN_DEFAULT,
            area_len: limits::AREA_LEN_DEFAULT,
            area_idle: Duration::from_millis(500),
            handshake_timeout: Duration::from_secs(5),
        }
    }
}
