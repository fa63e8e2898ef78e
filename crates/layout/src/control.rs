//! The control page: the first page of a region, with what its creator tells the peer outside the ring.
//!
//! # Layout
//! ```text
//! offset   0        8        16                                             64
//!   0    | (reserved: zero)                                                  |  line 0
//!  64    | consumed | (reserved)                                             |  line 1
//! 128    | waiting  | cpu   | (reserved)                                     |  line 2
//! 192    | load  | (reserved)                                             |  line 3
//! 256    | (reserved: zero) ...                                         4096 |
//! 4096   | ring_len bytes of ring                                            |
//! ```
//! `consumed` (u64, a [`RingPos`](crate::RingPos)): how far the creator has read the *peer's* ring.
//! `waiting` (u32, see [`Waiting`]): whether the creator sleeps and what it sleeps for. `cpu` (u32): the processor
//! its waiting thread last ran on, [`CPU_UNKNOWN`] when it doesn't say.
//! `load` (u32): how busy the creator is as a whole, see [`load_word`]; only where the feature LOAD is in force.
//! Each field lies in a line of its own with whatever is read together with it.

use crate::limits::PAGE_LEN;

/// Offset of `consumed` (u64).
pub const CONSUMED_OFF: usize = 64;
/// Offset of `waiting` (u32).
pub const WAITING_OFF: usize = 128;
/// Offset of `cpu` (u32).
pub const CPU_OFF: usize = 132;
/// Offset of `load` (u32).
pub const LOAD_OFF: usize = 192;
/// Offset of the ring.
pub const RING_OFF: usize = PAGE_LEN;

/// `cpu` of a side that does not say where it runs.
pub const CPU_UNKNOWN: u32 = u32::MAX;

/// The `load` word for so many calls under way. 0, as in a fresh region, is left for a server that doesn't say.
pub fn load_word(count: u32) -> u32 {
    count.saturating_add(1)
}

/// The calls under way that a `load` word speaks of, if it says.
pub fn load_of_word(word: u32) -> Option<u32> {
    word.checked_sub(1)
}

/// The `waiting` word.
///
/// ```text
/// 31                                2       1      0
/// | epoch: counts times of parking  | space | parked |
/// ```
/// A peer that finds `parked` set after publishing sends one doorbell for that epoch. With `space` set it also
/// does so after giving room back in the creator's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waiting(pub u32);

impl Waiting {
    const PARKED: u32 = 1;
    const SPACE: u32 = 2;
    const EPOCH_SHIFT: u32 = 2;

    /// The creator sleeps, or is about to.
    pub fn is_parked(self) -> bool {
        self.0 & Self::PARKED != 0
    }

    /// The creator waits for room in its own ring.
    pub fn wants_space(self) -> bool {
        self.0 & Self::SPACE != 0
    }

    /// Which time of parking this is; wraps.
    pub fn epoch(self) -> u32 {
        self.0 >> Self::EPOCH_SHIFT
    }

    /// The word for going to sleep after this one: next epoch, parked.
    pub fn park(self, wants_space: bool) -> Waiting {
        let epoch = self.epoch().wrapping_add(1) << Self::EPOCH_SHIFT;
        Waiting(epoch | Self::PARKED | if wants_space { Self::SPACE } else { 0 })
    }

    /// The word for being awake again: same epoch.
    pub fn unpark(self) -> Waiting {
        Waiting(self.0 & !(Self::PARKED | Self::SPACE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_words_go_there_and_back() {
        assert_eq!(load_of_word(0), None, "a fresh region doesn't say");
        for count in [0, 1, u32::MAX - 1] {
            assert_eq!(load_of_word(load_word(count)), Some(count));
        }
        assert_eq!(load_of_word(load_word(u32::MAX)), Some(u32::MAX - 1));
    }

    #[test]
    fn waiting_words_go_round() {
        let awake = Waiting::default();
        let parked = awake.park(true);
        assert!(parked.is_parked() && parked.wants_space());
        assert_eq!(parked.epoch(), 1);
        assert!(!parked.unpark().is_parked() && !parked.unpark().wants_space());
        assert_eq!(parked.unpark().park(false).epoch(), 2);
        let last = Waiting(u32::MAX).park(false);
        assert_eq!(last.epoch(), 0, "the epoch wraps");
    }
}
