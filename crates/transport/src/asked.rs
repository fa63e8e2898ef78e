//! How a process that has attached to a shepherd heeds what that asks for, when it is about to wait.
//!
//! # Layout
//! `asked` in the control page, `tollfree_layout::control`.
//!
//! # Who writes what
//! The shepherd stores its word, the process loads it; no order is needed, for the word stands for itself. Nobody is woken for it.
//!
//! # Trust
//! Any word may come. What follows from it is how long this side looks before it sleeps, a second at most each time, and how many
//! answers it publishes together, 64 at most. A policy that is absolute ([`WaitPolicy::Park`](crate::WaitPolicy::Park),
//! [`Poll`](crate::WaitPolicy::Poll)) and a quota are heeded before.
//!
//! # Crash
//! The word of a dead shepherd stays as it was; the session's end is learnt from the socket.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_connection::Hint;
use tollfree_layout::control::{ASKED_OFF, Asked, AskedMode};
use tollfree_layout::limits::ASKED_LOOK_US;
use tollfree_region::{PeerRegion, ReadMemory};

use crate::core::Core;
use crate::registers::BATCH_MAX;

/// Over how long requests are counted to know how many come in a second.
const RATE_WINDOW_NS: u64 = 5_000_000;

/// What the shepherd asks for, as this side last read it.
#[derive(Debug)]
pub(crate) struct Heeded {
    /// Where the word is; `None`: the peer is no shepherd that this process has attached to.
    peer: Option<Arc<PeerRegion>>,
    word: u64,
    asked: Asked,
    /// Requests that were accepted.
    pub(crate) accepted_count: u64,
    /// When the count of requests was last looked at, and what it was then.
    counted: (u64, u64),
    is_busy: bool,
}

impl Heeded {
    pub(crate) fn new(peer: Option<Arc<PeerRegion>>) -> Heeded {
        let asked = Asked::default();
        Heeded { peer, word: 0, asked, accepted_count: 0, counted: (0, 0), is_busy: false }
    }

    /// Counts on. Whether it has turned out that more requests come than before, or fewer.
    fn count(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.counted.0);
        if elapsed_ns < RATE_WINDOW_NS {
            return false;
        }
        let came = self.accepted_count - self.counted.1;
        self.counted = (now_ns, self.accepted_count);
        let rate = u128::from(came) * 1_000_000_000 / u128::from(elapsed_ns);
        let load = self.asked.poll_load;
        let was_busy = std::mem::replace(&mut self.is_busy, load > 0 && rate >= load.into());
        was_busy != self.is_busy
    }

    /// How to wait, where that is asked for.
    fn hint(&self) -> Option<Hint> {
        let said_ns = self.asked.spin_us.map(|us| u64::from(us) * 1000);
        let hint = |look_ns, insists| Some(Hint { look_ns, insists });
        match self.asked.mode {
            _ if self.is_busy => hint(said_ns.unwrap_or(0).max(LOOK_NS), true),
            AskedMode::Look => hint(said_ns.unwrap_or(LOOK_NS), true),
            AskedMode::Sleep => hint(said_ns.unwrap_or(0), false),
            AskedMode::Free => said_ns.and_then(|ns| hint(ns, false)),
        }
    }

    /// Answers that are published together while further requests are at hand.
    fn held_max(&self) -> Option<u32> {
        Some(self.asked.look).filter(|look| *look > 0).map(|look| look.min(BATCH_MAX).into())
    }
}

/// How long a process looks that is asked to and not for how long.
const LOOK_NS: u64 = ASKED_LOOK_US as u64 * 1000;

impl Core {
    /// Reads what the shepherd asks for, before a wait.
    #[inline]
    pub(crate) fn heed(&mut self, now_ns: u64) {
        let Some(peer) = &self.heeded.peer else { return };
        let word = peer.load_u64(ASKED_OFF, Ordering::Relaxed);
        if word != self.heeded.word {
            self.heeded.word = word;
            self.heeded.asked = Asked::of_word(word);
            // Counted anew, so that another bound is not held to what came before it.
            (self.heeded.counted, self.heeded.is_busy) = ((now_ns, self.heeded.accepted_count), false);
            self.publishing.set_held_max(self.heeded.held_max());
            self.wait.set_hint(self.heeded.hint());
        } else if self.heeded.asked.poll_load > 0 && self.heeded.count(now_ns) {
            self.wait.set_hint(self.heeded.hint());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_beyond_the_bound_is_looked_for_and_one_below_it_is_not() {
        let mut heeded = Heeded::new(None);
        heeded.asked = Asked { mode: AskedMode::Sleep, poll_load: 10_000, ..Asked::default() };
        let mut now_ns = 1;
        let mut come = |count: u64, during_ns: u64| {
            (heeded.accepted_count, now_ns) = (heeded.accepted_count + count, now_ns + during_ns);
            (heeded.count(now_ns), heeded.hint().map(|hint| (hint.look_ns, hint.insists)))
        };
        assert_eq!(come(0, RATE_WINDOW_NS), (false, Some((0, false))));
        assert_eq!(come(1000, RATE_WINDOW_NS - 1), (false, Some((0, false))), "too early to say");
        assert_eq!(come(0, 1), (true, Some((LOOK_NS, true))), "200,000 a second");
        assert_eq!(come(50, RATE_WINDOW_NS), (false, Some((LOOK_NS, true))), "10,000 a second");
        assert_eq!(come(49, RATE_WINDOW_NS), (true, Some((0, false))), "fewer");
        assert_eq!(come(49, 3_600_000_000_000), (false, Some((0, false))), "after an hour asleep");
        assert_eq!(come(u64::MAX >> 20, RATE_WINDOW_NS), (true, Some((LOOK_NS, true))));
    }
}
