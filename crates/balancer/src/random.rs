//! The only source of chance.

/// splitmix64: every seed is good, and equal seeds give equal runs.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Whether something happens that happens in so many of a hundred cases.
    pub(crate) fn hits(&mut self, percentage: u32) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        word % 100 < u64::from(percentage)
    }
}
