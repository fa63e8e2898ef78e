//! How long to wait for others: time counts only as far as this process ran itself.

use std::time::Duration;

/// Turns that a wait is divided into.
const TURN_COUNT: u32 = 20;
/// What a turn counts of which this process slept through most: so many times less.
const LATE: u32 = 4;

/// A limit on waiting for another process, counted in short turns. A process that was stopped, as by a debugger, a frozen
/// control group or a machine with too much to do, has learnt nothing of the others meanwhile, which may have been stopped with
/// it; so a turn that took much longer than it was to take counts little.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    left: Duration,
    turn: Duration,
}

impl Patience {
    /// Waits for about `limit` in all.
    pub(crate) fn new(limit: Duration) -> Patience {
        Patience { left: limit, turn: (limit / TURN_COUNT).max(Duration::from_millis(1)) }
    }

    /// How long to wait now, before [`waited`](Self::waited) is told; `None` once it is enough.
    pub(crate) fn turn(&self) -> Option<Duration> {
        (!self.left.is_zero()).then(|| self.turn.min(self.left))
    }

    /// Nothing came in this turn, which took so long.
    pub(crate) fn waited(&mut self, took: Duration) {
        let Some(turn) = self.turn() else { return };
        let counts = if took > 2 * turn { turn / LATE } else { turn };
        self.left = self.left.saturating_sub(counts.max(Duration::from_nanos(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_used_up_turn_by_turn_and_being_stopped_counts_little() {
        let limit = Duration::from_secs(5);
        let turns = |took: Option<Duration>| {
            let mut patience = Patience::new(limit);
            let mut count = 0;
            while let Some(turn) = patience.turn() {
                assert!(turn > Duration::ZERO && turn <= limit / 20);
                patience.waited(took.unwrap_or(turn));
                count += 1;
                assert!(count < 1000, "it comes to an end");
            }
            count
        };
        assert_eq!(turns(None), 20);
        assert!((80..200).contains(&turns(Some(Duration::from_secs(60)))));
        let mut stopped = Patience::new(limit);
        for _ in 0..19 {
            stopped.waited(limit / 20);
        }
        stopped.waited(Duration::from_secs(60));
        assert!(stopped.turn().is_some(), "stopped in the last turn, it waits on for a moment");
        assert_eq!(Patience::new(Duration::ZERO).turn(), None);
    }
}
