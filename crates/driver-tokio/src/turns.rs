//! Fairness among the tasks that call by one session.
//!
//! A task that calls and finds each answer at once never waits, so other tasks of its thread never run: of eight callers one would be quick,
//! and seven would wait for hundreds of its calls. So a caller looks for its answer at once only while no task of the session has been
//! woken that has not run since. Else it waits for its turn behind them, though its answer may be there. And a task that has never waited is
//! not known here, so a caller that has made a number of calls without waiting gives way once.
//!
//! Runtimes run tasks nearly in the order in which they were woken: when a woken task runs, all that were woken before it count as having run.
//! So nothing has to be counted, and a task that was woken and then dropped is forgotten when the next one runs.

use tollfree_layout::StreamId;

/// Calls in a row without a wait, after which a caller gives way though nobody is known to wait. That costs a caller who is alone one
/// turn of its runtime, some 200 ns, in as many calls.
const STREAK_MAX: u32 = 32;

/// When a task was woken, in the order of such events. 0: it was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The last task that was woken.
    woken: Stamp,
    /// All up to this one have had their turn.
    had: Stamp,
    /// Calls that began since a task waited.
    cooperative_budget: u32,
    /// The stream on which something was sent since a task looked last.
    sent_on: Option<StreamId>,
}

impl Turns {
    /// A task is woken, and runs after those that were woken before.
    pub(crate) fn wakes(&mut self) -> Stamp {
        self.woken.0 += 1;
        self.woken
    }

    /// A task that was woken with this stamp runs.
    pub(crate) fn runs(&mut self, stamp: Stamp) {
        self.had = self.had.max(stamp);
    }

    /// Whether anybody was woken who has not run yet.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.had < self.woken
    }

    /// Whether a task that was woken with this stamp has not had its turn yet.
    pub(crate) fn owes(&self, stamp: Stamp) -> bool {
        self.had < stamp
    }

    /// A call begins. Whether its caller may look for the answer at once.
    #[inline]
    pub(crate) fn begins(&mut self) -> bool {
        self.cooperative_budget += 1;
        self.cooperative_budget <= STREAK_MAX && !self.is_owed()
    }

    /// A task sends something on a stream.
    #[inline]
    pub(crate) fn sends(&mut self, id: StreamId) {
        self.sent_on = Some(id);
    }

    /// A task looks: the stream on which something was sent since one did last.
    #[inline]
    pub(crate) fn looks(&mut self) -> Option<StreamId> {
        self.sent_on.take()
    }

    /// A task waits.
    #[inline]
    pub(crate) fn waits(&mut self) {
        self.cooperative_budget = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_woken_goes_before_who_calls_next() {
        let mut turns = Turns::default();
        assert!(turns.begins());
        let (first, second) = (turns.wakes(), turns.wakes());
        assert!(!turns.begins());
        turns.runs(first);
        assert!(!turns.begins());
        turns.runs(second);
        assert!(turns.begins());
        turns.runs(first);
        assert!(turns.begins(), "who comes late takes nothing back");
    }

    #[test]
    fn who_was_woken_and_never_came_is_forgotten_with_the_next() {
        let mut turns = Turns::default();
        turns.wakes();
        let next = turns.wakes();
        turns.runs(next);
        assert!(turns.begins());
    }

    #[test]
    fn who_never_waits_gives_way_now_and_then() {
        let mut turns = Turns::default();
        for _ in 0..3 {
            for _ in 0..STREAK_MAX {
                assert!(turns.begins());
            }
            assert!(!turns.begins());
            turns.waits();
        }
    }
}
