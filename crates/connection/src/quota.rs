//! What a process has learnt of its quota of processor time.
//!
//! Under a quota of a core or less, time that is spun away is time in which the process is kept from running later: all its threads stop
//! until the period ends. So nobody spins then, and neither for a while after it was kept from running, whatever its quota is.

use crate::constants::{THROTTLED_READINGS, TIGHT_MILLI};

/// What was read so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuotaHistory {
    throttled_count: Option<u64>,
    left: u32,
}

impl QuotaHistory {
    /// Nothing was read.
    pub const NONE: QuotaHistory = QuotaHistory { throttled_count: None, left: 0 };

    /// A reading: the quota in thousandths of a core, if there is one, and how often the process was kept from running so far.
    /// Whether nobody is to spin until the next one.
    pub fn read(&mut self, quota_milli: Option<u64>, throttled_count: u64) -> bool {
        let before = self.throttled_count.replace(throttled_count);
        self.left = match before.is_some_and(|before| throttled_count > before) {
            true => THROTTLED_READINGS,
            false => self.left.saturating_sub(1),
        };
        quota_milli.is_some_and(|milli| milli <= TIGHT_MILLI) || self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_quota_is_tight_and_so_is_any_for_a_while_after_it_was_met() {
        let mut history = QuotaHistory::NONE;
        assert!(!history.read(None, 7), "what it met before nobody looked says nothing");
        assert!(history.read(Some(TIGHT_MILLI), 7) && !history.read(Some(TIGHT_MILLI + 1), 7));
        assert!(history.read(Some(4_000), 8));
        let tight = (0..100).filter(|_| history.read(Some(4_000), 8)).count();
        assert_eq!(tight, THROTTLED_READINGS as usize - 1);
    }
}
