//! What a loop can be told to do differently.

use std::time::Duration;

use tollfree_connection::WaitPolicy;
use tollfree_host::{Config, Quotas};
use tollfree_pool::Pool;
use tollfree_rendezvous::PeerPolicy;
use tollfree_session::Limits;

/// Settings of a loop, for all of its sessions.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// How waiting is done.
    pub wait: WaitPolicy,
    /// Who may be at the other end.
    pub peers: PeerPolicy,
    /// Credit, calls at once, length of metadata.
    pub limits: Limits,
    /// What the application calls itself; peers are told this before this library's name, up to what a handshake carries.
    pub agent: Option<String>,
    /// A handshake, with the time until a server accepts, is over within this time.
    pub handshake_timeout: Duration,
    /// What clients of one process, and of one user, may have of a listener.
    pub quotas: Quotas,
    /// The longest message that is taken, in bytes; a longer one ends its call with RESOURCE_EXHAUSTED.
    pub message_len_max: usize,
    /// The pool that this process is a member of. Long messages to and from other members of it go by ref; what it has no room for goes inline.
    pub pool: Option<Pool>,
}

impl Default for LoopConfig {
    fn default() -> LoopConfig {
        let Config { wait, peers, limits, agent, handshake_timeout, quotas, .. } = Config::default();
        LoopConfig {
            wait,
            peers,
            limits,
            agent,
            handshake_timeout,
            quotas,
            message_len_max: 4 << 20,
            pool: None,
        }
    }
}

impl LoopConfig {
    /// Settings of a session of a loop that is a member of the pool of this name. What a loop does not have, such as load, is not announced.
    pub(crate) fn session(&self, pool: Option<[u8; 16]>) -> Config {
        let LoopConfig { wait, peers, limits, agent, handshake_timeout, quotas, .. } = self.clone();
        Config { wait, peers, limits, agent, handshake_timeout, quotas, pool, ..Config::default() }
    }
}
