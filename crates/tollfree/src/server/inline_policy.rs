//! Whether a method's calls are begun in the session's own task, by how long the last ones took.

/// A method whose first step takes longer than this is served in tasks of its own for a while, so that it holds up
/// neither the ring nor other calls. Where instructions are counted (`make bench-check`) everything takes long.
const INLINE_NS: u64 = if cfg!(tollfree_counting) { u64::MAX } else { 20_000 };
/// The longest such while, in calls; then one is tried here again.
const APART_COUNT_MAX: u32 = 1024;
/// Calls of a quick method between two that are timed. One that has become slow is noticed after as many at the latest.
const UNTIMED_COUNT_MAX: u32 = 7;
/// Replies held back to go out together wait for a step of at most this long.
const QUICK_NS: u64 = if cfg!(tollfree_counting) { u64::MAX } else { 4_000 };

/// Whether a method's calls are quick enough to be begun in the session's own task. One that was not is served apart
/// for a number of calls that doubles each time: a single hiccup of the machine costs one call at most, a method that computes
/// for long is tried once in a thousand.
#[derive(Debug, Default)]
pub(crate) struct InlinePolicy {
    /// Calls yet to be served apart.
    apart_count: u32,
    /// How many that were the last time.
    penalty: u32,
    /// The last one begun here was so quick that replies to others may wait for it.
    pub(crate) quick: bool,
    /// Calls begun here since one was timed.
    untimed_count: u32,
}

impl InlinePolicy {
    /// Whether the next call is begun here.
    pub(crate) fn is_inline(&mut self) -> bool {
        let inline = self.is_next_inline();
        self.apart_count = self.apart_count.saturating_sub(1);
        inline
    }

    /// Whether the next call is to be begun here.
    pub(crate) fn is_next_inline(&self) -> bool {
        self.apart_count == 0
    }

    /// Whether the call to be begun here is to be timed: one in a few, once a method is known to be quick.
    pub(crate) fn is_timed(&mut self) -> bool {
        let is_timed = !self.quick || self.penalty > 0 || self.untimed_count == UNTIMED_COUNT_MAX;
        self.untimed_count = if is_timed { 0 } else { self.untimed_count + 1 };
        is_timed
    }

    /// A call begun here took so long for its first step.
    pub(crate) fn learn(&mut self, step_ns: u64) {
        self.quick = step_ns <= QUICK_NS;
        if step_ns > INLINE_NS {
            self.penalty = (self.penalty * 2).clamp(1, APART_COUNT_MAX);
            self.apart_count = self.penalty;
        } else {
            self.penalty /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served_here(pace: &mut InlinePolicy, calls: u32, step_ns: u64) -> u32 {
        let mut count = 0;
        for _ in 0..calls {
            if pace.is_inline() {
                pace.learn(step_ns);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn one_hiccup_costs_one_call() {
        let mut pace = InlinePolicy::default();
        pace.learn(4_000_000);
        assert_eq!(served_here(&mut pace, 100, 1_000), 99);
    }

    #[test]
    fn a_method_that_computes_for_long_is_rarely_begun_here_and_comes_back() {
        let mut pace = InlinePolicy::default();
        assert!(served_here(&mut pace, 100_000, 1_000_000) < 120);
        let back = served_here(&mut pace, 10_000, 1_000);
        assert!(back > 8_000, "{back} of 10000 calls");
    }
}
