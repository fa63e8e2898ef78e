//! How a process that has attached to a gateway waits as that asks for, read before a wait.
//!
//! # Layout
//! `asked` in the control page, `tollfree_layout::control`.
//!
//! # Who writes what
//! The gateway stores its word, the process loads it; no order is needed, for the word stands for itself. Nobody is woken for it.
//!
//! # Trust
//! Any word may come. What follows from it is how long this side looks before it sleeps, a second at most each time, and how many
//! answers it publishes together, 64 at most. A policy that is absolute ([`WaitPolicy::Park`](crate::WaitPolicy::Park),
//! [`Poll`](crate::WaitPolicy::Poll)) and a quota go before it.
//!
//! # Crash
//! The word of a dead gateway stays as it was; the session's end is learnt from the socket.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_layout::control::{ASKED_OFF, Asked, AskedMode};
use tollfree_layout::limits::ASKED_LOOK_US;
use tollfree_region::{PeerRegion, ReadMemory};

use crate::constants::{BATCH_MAX, RATE_WINDOW_NS};
use crate::publishing::PublishPlanner;
use crate::{Hint, WaitPlanner};

/// What the gateway asks for, as this side last read it.
#[derive(Debug)]
pub(crate) struct WaitHint {
    peer: Arc<PeerRegion>,
    asked: AskedAndCounted,
}

#[derive(Debug, Default)]
struct AskedAndCounted {
    word: u64,
    asked: Asked,
    /// Requests that were accepted.
    accepted_count: u64,
    /// When the count of requests was last looked at, and what it was then.
    counted: (u64, u64),
    is_busy: bool,
}

impl WaitHint {
    /// Of a gateway whose region this is.
    pub(crate) fn new(peer: Arc<PeerRegion>) -> WaitHint {
        WaitHint { peer, asked: AskedAndCounted::default() }
    }

    /// A request was accepted.
    pub(crate) fn accepted(&mut self) {
        self.asked.accepted_count += 1;
    }

    /// Reads what the gateway asks for, before a wait.
    pub(crate) fn read(&mut self, now_ns: u64, wait: &mut WaitPlanner, publishing: &mut PublishPlanner) {
        let word = self.peer.load_u64(ASKED_OFF, Ordering::Relaxed);
        if self.asked.reads(word, now_ns) {
            publishing.set_held_max(self.asked.held_max());
            wait.set_hint(self.asked.hint());
        } else if self.asked.asked.poll_load > 0 && self.asked.count(now_ns) {
            wait.set_hint(self.asked.hint());
        }
    }
}

impl AskedAndCounted {
    /// Whether the word is another one than before.
    fn reads(&mut self, word: u64, now_ns: u64) -> bool {
        if word == self.word {
            return false;
        }
        (self.word, self.asked) = (word, Asked::of_word(word));
        // Counted anew, so that another bound is not held to what came before it.
        (self.counted, self.is_busy) = ((now_ns, self.accepted_count), false);
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_asks_for_looks_as_it_says_and_for_no_more_answers_together_than_there_may_be() {
        let hint = |mode, spin_us| {
            let asked = Asked { mode, spin_us, ..Asked::default() };
            let hint = AskedAndCounted { asked, ..AskedAndCounted::default() }.hint();
            hint.map(|hint| (hint.look_ns, hint.insists))
        };
        assert_eq!(hint(AskedMode::Free, None), None);
        assert_eq!(hint(AskedMode::Free, Some(3)), Some((3_000, false)));
        assert_eq!(hint(AskedMode::Sleep, None), Some((0, false)));
        assert_eq!(hint(AskedMode::Sleep, Some(3)), Some((3_000, false)));
        assert_eq!(hint(AskedMode::Look, None), Some((LOOK_NS, true)));
        assert_eq!(hint(AskedMode::Look, Some(3)), Some((3_000, true)));
        let most = |look| {
            let asked = Asked { look, ..Asked::default() };
            AskedAndCounted { asked, ..AskedAndCounted::default() }.held_max()
        };
        assert_eq!([0, 1, 64, 65, 255].map(most), [None, Some(1), Some(64), Some(64), Some(64)]);
    }

    #[test]
    fn a_word_that_changes_is_counted_from_anew() {
        let mut hint = AskedAndCounted::default();
        assert!(!hint.reads(0, 1), "a fresh region asks for nothing");
        let word = Asked { poll_load: 10, ..Asked::default() }.word();
        hint.accepted_count = 1_000_000;
        assert!(hint.reads(word, 5) && !hint.reads(word, 6));
        assert!(
            !hint.count(5 + RATE_WINDOW_NS) && hint.hint().is_none(),
            "what came before counts for nothing"
        );
        hint.accepted_count += 1_000_000;
        assert!(hint.count(5 + 2 * RATE_WINDOW_NS) && hint.is_busy);
        assert!(hint.reads(0, 7) && !hint.is_busy && hint.hint().is_none());
    }

    #[test]
    fn a_load_beyond_the_bound_is_looked_for_and_one_below_it_is_not() {
        let asked = Asked { mode: AskedMode::Sleep, poll_load: 10_000, ..Asked::default() };
        let mut hint = AskedAndCounted { asked, ..AskedAndCounted::default() };
        let mut now_ns = 1;
        let mut come = |count: u64, during_ns: u64| {
            (hint.accepted_count, now_ns) = (hint.accepted_count + count, now_ns + during_ns);
            (hint.count(now_ns), hint.hint().map(|hint| (hint.look_ns, hint.insists)))
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
