//! Settings of a loop.

use std::time::Duration;

use tollfree_driver_loop::{LoopConfig, PeerPolicy, STREAM_WINDOW_MIN, WaitPolicy};
use tollfree_layout::errors;
use tollfree_layout::limits::WINDOW_RESERVE;

use crate::error::Failure;
use crate::pointers::{self, Bytes, Growing};
use crate::pool::Pool;

/// `wait`: spins where that costs no more than to be woken, and where nobody else wants the processor; else sleeps.
pub const TOLLFREE_WAIT_ADAPTIVE: u32 = 0;
/// `wait`: spins for as long as recent waits make worth while, whatever that costs.
pub const TOLLFREE_WAIT_LOW_LATENCY: u32 = 1;
/// `wait`: never sleeps.
pub const TOLLFREE_WAIT_POLL: u32 = 2;
/// `wait`: never spins.
pub const TOLLFREE_WAIT_PARK: u32 = 3;

/// `peers`: this process's user alone.
pub const TOLLFREE_PEERS_SAME_USER: u32 = 0;
/// `peers`: the users of the list.
pub const TOLLFREE_PEERS_USERS: u32 = 1;
/// `peers`: all who can reach the socket.
pub const TOLLFREE_PEERS_ANYONE: u32 = 2;

/// Peers take no less for a block of metadata.
const METADATA_LEN_LEAST: usize = 256;

/// Settings of a loop, for all of its sessions. A member that is 0 has the value of a loop without settings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// `sizeof(tollfree_config)`.
    size: usize,
    /// How waiting is done: `TOLLFREE_WAIT_…`.
    wait: u32,
    /// Who may be at the other end: `TOLLFREE_PEERS_…`.
    peers: u32,
    /// User ids, for `TOLLFREE_PEERS_USERS`.
    users: *const u32,
    /// How many there are.
    user_count: usize,
    /// What the program calls itself towards peers; at most 120 bytes with this library's name.
    agent: Bytes<'a>,
    /// A handshake is over within this time, in nanoseconds.
    handshake_timeout_ns: u64,
    /// The longest message that is taken, in bytes; 4 MiB. A longer one ends its call with RESOURCE_EXHAUSTED.
    message_len_max: u64,
    /// Credit in bytes that each stream towards this side starts with; 65,536.
    stream_window: u64,
    /// Calls at once that a client may make of this side; 1,024.
    stream_count: u32,
    /// Longest block of metadata that is taken, in bytes; 15,360, from 256 on and no more.
    metadata_len_max: u32,
    /// The pool whose member the loop is, or `{0}`. Long messages to and from other members go by ref.
    pool: Pool,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Config<'_> {
    const LEN_MIN: usize = size_of::<Config<'static>>();
}

impl Config<'_> {
    pub(crate) fn read(from: *const Config<'_>) -> Result<LoopConfig, Failure> {
        if from.is_null() {
            return Ok(LoopConfig::default());
        }
        // SAFETY: the header asks for a structure of its size; other sizes are refused (`pointers::tests`). ASan watches in the C tests.
        let config = unsafe { pointers::read(from) }?;
        config.settings()
    }

    fn settings(&self) -> Result<LoopConfig, Failure> {
        let wait = match self.wait {
            TOLLFREE_WAIT_ADAPTIVE => WaitPolicy::Adaptive,
            TOLLFREE_WAIT_LOW_LATENCY => WaitPolicy::LowLatency,
            TOLLFREE_WAIT_POLL => WaitPolicy::Poll,
            TOLLFREE_WAIT_PARK => WaitPolicy::Park,
            other => return Err(none_of("wait", other)),
        };
        let peers = match self.peers {
            TOLLFREE_PEERS_SAME_USER => PeerPolicy::SameUser,
            TOLLFREE_PEERS_USERS => {
                // SAFETY: the header asks for `user_count` ids there; null and impossible lengths are refused (`pointers::tests`).
                let users = unsafe { pointers::list(self.users, self.user_count) }?;
                PeerPolicy::Users(users.to_vec())
            }
            TOLLFREE_PEERS_ANYONE => PeerPolicy::Anyone,
            other => return Err(none_of("peers", other)),
        };
        let mut settings = LoopConfig { wait, peers, ..LoopConfig::default() };
        let agent = self.agent.text("the agent")?;
        settings.agent = (!agent.is_empty()).then(|| agent.to_owned());
        if self.handshake_timeout_ns != 0 {
            settings.handshake_timeout = Duration::from_nanos(self.handshake_timeout_ns);
        }
        if self.message_len_max != 0 {
            settings.message_len_max = usize::try_from(self.message_len_max).unwrap_or(usize::MAX);
        }
        let limits = &mut settings.limits;
        if self.stream_window != 0 {
            limits.stream_window = self.stream_window.max(STREAM_WINDOW_MIN);
        }
        if self.stream_count != 0 {
            limits.stream_count = self.stream_count;
        }
        // So that a stream that nobody reads can't hold up the others.
        let together = limits.stream_window.checked_mul(limits.stream_count.into());
        let session_window = together.and_then(|len| len.checked_add(WINDOW_RESERVE));
        limits.session_window = session_window
            .filter(|len| *len <= i64::MAX as u64)
            .ok_or_else(|| none_of("stream_window", self.stream_window))?;
        if self.metadata_len_max != 0 {
            let len = self.metadata_len_max as usize;
            if !(METADATA_LEN_LEAST..=limits.metadata_len_max).contains(&len) {
                return Err(none_of("metadata_len_max", len as u64));
            }
            limits.metadata_len_max = len;
        }
        if self.pool != Pool::NONE {
            settings.pool = Some(self.pool.member()?);
        }
        Ok(settings)
    }
}

fn none_of(member: &str, value: impl Into<u64>) -> Failure {
    let words = format!("{member} is {}, which the header does not list", value.into());
    Failure::new(errors::USE_VALUE, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Config<'static> = Config {
        size: size_of::<Config<'static>>(),
        wait: 0,
        peers: 0,
        users: std::ptr::null(),
        user_count: 0,
        agent: Bytes::EMPTY,
        handshake_timeout_ns: 0,
        message_len_max: 0,
        stream_window: 0,
        stream_count: 0,
        metadata_len_max: 0,
        pool: Pool::NONE,
    };

    #[test]
    fn what_is_not_said_is_as_without_settings() {
        let words = format!("{:?}", LoopConfig::default());
        assert_eq!(format!("{:?}", Config::read(std::ptr::null()).unwrap()), words);
        let none = NONE;
        assert_eq!(format!("{:?}", Config::read(&raw const none).unwrap()), words);
    }

    #[test]
    fn what_is_said_is_set_and_what_can_not_be_is_refused() {
        let users = [7, 8];
        let said = Config {
            wait: TOLLFREE_WAIT_PARK,
            peers: TOLLFREE_PEERS_USERS,
            users: users.as_ptr(),
            user_count: 2,
            agent: Bytes::for_c(b"me"),
            handshake_timeout_ns: 5,
            message_len_max: 6,
            stream_window: 100_000,
            stream_count: 9,
            metadata_len_max: 1_000,
            ..NONE
        };
        let settings = Config::read(&raw const said).unwrap();
        assert_eq!((settings.wait, settings.peers), (WaitPolicy::Park, PeerPolicy::Users(vec![7, 8])));
        assert_eq!((settings.agent.as_deref(), settings.message_len_max), (Some("me"), 6));
        assert_eq!(settings.handshake_timeout, Duration::from_nanos(5));
        let limits = settings.limits;
        assert_eq!((limits.stream_window, limits.stream_count, limits.metadata_len_max), (100_000, 9, 1_000));
        for bad in [
            Config { wait: 4, ..NONE },
            Config { peers: 3, ..NONE },
            Config { stream_window: u64::MAX, ..NONE },
            Config { metadata_len_max: 20_000, ..NONE },
            Config { metadata_len_max: 255, ..NONE },
        ] {
            assert_eq!(Config::read(&raw const bad).unwrap_err().number, errors::USE_VALUE);
        }
        let lost = Config { peers: TOLLFREE_PEERS_USERS, user_count: 1, ..NONE };
        assert_eq!(Config::read(&raw const lost).unwrap_err().number, errors::USE_NULL);
    }
}
