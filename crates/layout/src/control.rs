//! The control page: the first page of a region, with what its creator tells the peer outside the ring.
//!
//! # Layout
//! ```text
//! offset   0        8        16                                             64
//!   0    | (reserved: zero)                                                  |  line 0
//!  64    | consumed | (reserved)                                             |  line 1
//! 128    | waiting  | cpu   | (reserved)                                     |  line 2
//! 192    | load  | (reserved)                                             |  line 3
//! 256    | asked    | (reserved)                                             |  line 4
//! 320    | (reserved: zero) ...                                         4096 |
//! 4096   | ring_len bytes of ring                                            |
//! ```
//! `consumed` (u64, a [`RingPos`](crate::RingPos)): how far the creator has read the *peer's* ring.
//! `waiting` (u32, see [`Waiting`]): whether the creator sleeps and what it sleeps for. `cpu` (u32): the processor
//! its waiting thread last ran on, [`CPU_UNKNOWN`] when it doesn't say.
//! `load` (u32): how busy the creator is as a whole, see [`load_word`]; only where the feature LOAD is in force.
//! `asked` (u64, see [`Asked`]): how a gateway asks the process that it calls to wait.
//! Each field lies in a line of its own with whatever is read together with it.

use crate::limits::ASKED_SPIN_US_MAX;

pub use crate::constants::control::*;

/// The `load` word for so many calls under way. 0, as in a fresh region, is left for a server that doesn't say.
pub fn load_word(count: u32) -> u32 {
    count.saturating_add(1)
}

/// The calls under way that a `load` word speaks of, if it says.
pub fn load_of_word(word: u32) -> Option<u32> {
    word.checked_sub(1)
}

/// The `asked` word.
///
/// ```text
/// 63            32 31          12 11      4 3     0
/// | poll_load      | spin_us      | look   | mode |
/// ```
/// A gateway's, for the process that has attached: how that is to wait. 0, as in a fresh region, asks for nothing. Numbers that mean
/// nothing ask for nothing either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Asked {
    /// Whether to look or to sleep.
    pub mode: AskedMode,
    /// Requests to take in one look before their answers are published; 0: not said.
    pub look: u8,
    /// Microseconds to look before going to sleep, [`ASKED_SPIN_US_MAX`] at most. `None`: not said.
    pub spin_us: Option<u32>,
    /// From so many requests a second on, look rather than sleep; 0: never for that.
    pub poll_load: u32,
}

/// Whether a process is asked to look or to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AskedMode {
    /// As it thinks best.
    #[default]
    Free,
    /// Sleep when there has been nothing for `spin_us`, at once where that is not said: it is rung.
    Sleep,
    /// Look for as long as `spin_us`, and sleep only then.
    Look,
}

impl Asked {
    const LOOK_SHIFT: u32 = 4;
    const SPIN_SHIFT: u32 = 12;
    const SPIN_MASK: u64 = 0xf_ffff;
    const LOAD_SHIFT: u32 = 32;

    /// The word. `spin_us` is stored with 1 added, so that 0 says nothing.
    pub fn word(self) -> u64 {
        let spin = self.spin_us.map_or(0, |us| us.min(ASKED_SPIN_US_MAX) + 1);
        self.mode as u64
            | u64::from(self.look) << Self::LOOK_SHIFT
            | u64::from(spin) << Self::SPIN_SHIFT
            | u64::from(self.poll_load) << Self::LOAD_SHIFT
    }

    /// What a word asks for, whatever it is.
    pub fn of_word(word: u64) -> Asked {
        let mode = match word & 0xf {
            1 => AskedMode::Sleep,
            2 => AskedMode::Look,
            _ => AskedMode::Free,
        };
        let spin = (word >> Self::SPIN_SHIFT & Self::SPIN_MASK) as u32;
        Asked {
            mode,
            look: (word >> Self::LOOK_SHIFT) as u8,
            spin_us: spin.checked_sub(1).map(|us| us.min(ASKED_SPIN_US_MAX)),
            poll_load: (word >> Self::LOAD_SHIFT) as u32,
        }
    }
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
    fn asked_words_go_there_and_back_and_any_word_asks_for_something_bounded() {
        assert_eq!(Asked::of_word(0), Asked::default(), "a fresh region asks for nothing");
        for mode in [AskedMode::Free, AskedMode::Sleep, AskedMode::Look] {
            for (look, spin_us, poll_load) in
                [(0, None, 0), (64, Some(0), 1), (255, Some(1_000_000), u32::MAX)]
            {
                let asked = Asked { mode, look, spin_us, poll_load };
                assert_eq!(Asked::of_word(asked.word()), asked);
            }
        }
        let wild = Asked::of_word(u64::MAX);
        assert_eq!((wild.mode, wild.spin_us), (AskedMode::Free, Some(ASKED_SPIN_US_MAX)));
        let long = Asked { spin_us: Some(u32::MAX), ..Asked::default() };
        assert_eq!(Asked::of_word(long.word()).spin_us, Some(ASKED_SPIN_US_MAX));
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
