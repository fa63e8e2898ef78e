//! Whose turn it is among the tasks that call by one session.
//!
//! A task that calls, looks, and finds the answer at once never waits, and so never lets another have its turn: of eight callers one
//! would be quick, and seven would wait for hundreds of its calls. So who calls looks at once only while nobody waits since longer:
//! nobody was woken who has not run yet. Else it stands behind them, as if its answer had not come. And since who was never asked
//! to wait is known to nobody, who has called a number of times without waiting gives way once.
//!
//! Runtimes run tasks in the order in which they were woken, near enough: whoever runs after having been woken says that all who were woken
//! before have had their turn, too. So nobody is counted, and a task that was woken and never came back is forgotten with the next one.

/// Calls in a row without a wait, after which a caller gives way though nobody is known to wait. That costs a caller who is alone one
/// turn of its runtime, some 200 ns, in as many calls.
const STREAK_MAX: u32 = 16;

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
    streak: u32,
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

    /// A call begins. Whether its caller may look for the answer at once.
    #[inline]
    pub(crate) fn begins(&mut self) -> bool {
        self.streak += 1;
        self.streak <= STREAK_MAX && !self.is_owed()
    }

    /// A task waits.
    #[inline]
    pub(crate) fn waits(&mut self) {
        self.streak = 0;
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
