//! Whose turn it is among candidates, and which of them has the least load.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts choices, so that equals are chosen in turn. May be used by several threads at once.
#[derive(Debug, Default)]
pub struct Turn(AtomicUsize);

/// A candidate's load beside its share: one with twice the share may have twice the calls.
#[derive(Clone, Copy)]
struct Relative {
    load: u32,
    share: u32,
}

impl Relative {
    fn is_less_than(self, other: Relative) -> bool {
        u64::from(self.load) * u64::from(other.share) < u64::from(other.load) * u64::from(self.share)
    }
}

impl Turn {
    /// A count that goes on where another is.
    pub(crate) fn following(other: &Turn) -> Turn {
        Turn(AtomicUsize::new(other.0.load(Ordering::Relaxed)))
    }

    /// The number of this choice, for who counts choices.
    pub fn tick(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The candidates whose turn it is now and later, with numbers that go on from one choice to the next.
    fn in_turn<C>(
        &self,
        candidates: impl Iterator<Item = C> + Clone,
    ) -> Option<(usize, usize, impl Iterator<Item = (usize, C)>)> {
        let count = candidates.clone().count();
        let ticket = self.0.fetch_add(1, Ordering::Relaxed);
        let start = ticket.checked_rem(count)?;
        let in_turn = candidates.clone().skip(start).chain(candidates.take(start));
        Some((ticket, count, in_turn.enumerate()))
    }

    /// The candidates before the one that was chosen have had their turn.
    fn pass_over(&self, count: usize) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The next candidate that can be used. `look` gives what it is used by.
    pub fn next<C, R>(
        &self,
        candidates: impl Iterator<Item = C> + Clone,
        mut look: impl FnMut(C) -> Option<R>,
    ) -> Option<R> {
        let (_, _, mut in_turn) = self.in_turn(candidates)?;
        let (passed, chosen) = in_turn.find_map(|(at, candidate)| Some((at, look(candidate)?)))?;
        self.pass_over(passed);
        Some(chosen)
    }

    /// The next candidate, each as often as its share says. `look` gives the share of one that can be used, and what it is used by; it is asked
    /// twice, since who can be used decides whose turn it is.
    pub fn next_by_share<C, R>(
        &self,
        candidates: impl Iterator<Item = C> + Clone,
        mut look: impl FnMut(C) -> Option<(u32, R)>,
    ) -> Option<R> {
        let shares = candidates.clone().map(|candidate| look(candidate).map_or(0, |(share, _)| share));
        let largest = u64::from(shares.max().filter(|largest| *largest > 0)?);
        let (ticket, count, in_turn) = self.in_turn(candidates.clone())?;
        for (passed, candidate) in in_turn {
            let number = ticket.wrapping_add(passed);
            let (round, at) = ((number / count) as u64, (number % count) as u64);
            let offset = at * largest / count as u64;
            if let Some((share, chosen)) = look(candidate)
                && is_due(round, share.into(), largest, offset)
            {
                self.pass_over(passed);
                return Some(chosen);
            }
        }
        // The one with the largest share is due in every round: it can't be used any more.
        candidates.into_iter().find_map(|candidate| look(candidate).map(|(_, chosen)| chosen))
    }

    /// The candidate with the least load beside its share; among equals the next. `look` gives load, share, and what it is used by.
    pub fn least<C, R>(
        &self,
        candidates: impl Iterator<Item = C> + Clone,
        mut look: impl FnMut(C) -> Option<(u32, u32, R)>,
    ) -> Option<R> {
        let (_, _, in_turn) = self.in_turn(candidates)?;
        let mut best: Option<(Relative, usize, R)> = None;
        for (at, candidate) in in_turn {
            let Some((load, share, chosen)) = look(candidate) else { continue };
            let relative = Relative { load, share };
            if best.as_ref().is_none_or(|(least, ..)| relative.is_less_than(*least)) {
                best = Some((relative, at, chosen));
            }
        }
        let (_, passed, chosen) = best?;
        self.pass_over(passed);
        Some(chosen)
    }
}

/// Whether a candidate has its turn in this round: in `share` of `largest` rounds one after the other, at even distances. `offset` says where
/// in that row it begins.
fn is_due(round: u64, share: u64, largest: u64, offset: u64) -> bool {
    let before = (round % largest) * share + offset;
    (before + share) / largest > before / largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_have_their_turns_and_those_left_out_burden_nobody() {
        let turn = Turn::default();
        let mut counts = [0; 4];
        for _ in 0..300 {
            let chosen = turn.next(0..4, |candidate| (candidate != 2).then_some(candidate)).unwrap();
            counts[chosen] += 1;
        }
        assert_eq!(counts, [100, 100, 0, 100]);
        assert_eq!(turn.next(0..4, |_| None::<()>), None);
        assert_eq!(turn.next(0..0, Some::<i32>), None);
    }

    #[test]
    fn shares_are_kept_in_every_row_and_nobody_waits_longer_than_its_share() {
        for shares in [[5, 1, 1], [3, 2, 1], [1, 1, 1], [7, 3, 2], [1000, 1, 999]] {
            let turn = Turn::default();
            let round = shares.iter().sum::<u32>();
            let mut counts = [0; 3];
            let mut last = [0; 3];
            for number in 0..10 * round {
                let chosen = turn.next_by_share(0..3, |at: usize| Some((shares[at], at))).unwrap();
                counts[chosen] += 1;
                let waited = number - last[chosen];
                last[chosen] = number;
                assert!(
                    waited <= 2 * round.div_ceil(shares[chosen]) + 3,
                    "{shares:?}: {chosen} waited {waited}"
                );
            }
            assert_eq!(counts, shares.map(|share| 10 * share), "{shares:?}");
        }
    }

    #[test]
    fn small_shares_have_their_turns_in_different_rounds() {
        let turn = Turn::default();
        let shares = [4, 1, 1];
        let row = [(); 6].map(|()| turn.next_by_share(0..3, |at: usize| Some((shares[at], at))).unwrap());
        assert_eq!(row, [0, 0, 2, 0, 1, 0]);
    }

    #[test]
    fn shares_hold_among_those_that_can_be_used() {
        let turn = Turn::default();
        let mut counts = [0; 3];
        for _ in 0..600 {
            let look = |at: usize| [None, Some((2, at)), Some((4, at))][at];
            counts[turn.next_by_share(0..3, look).unwrap()] += 1;
        }
        assert_eq!(counts, [0, 200, 400]);
        assert_eq!(turn.next_by_share(0..3, |_| None::<(u32, ())>), None);
    }

    #[test]
    fn the_least_load_beside_the_share_is_chosen_and_equals_in_turn() {
        let turn = Turn::default();
        let least = |loads: &[(u32, u32)]| {
            turn.least(0..loads.len(), |at| Some((loads[at].0, loads[at].1, at))).unwrap()
        };
        let loads = [(2, 1), (1, 1), (1, 1), (3, 1)];
        assert_eq!([least(&loads), least(&loads), least(&loads), least(&loads)], [1, 2, 1, 2]);
        assert_eq!(least(&[(3, 1), (5, 2)]), 1, "five for two is less than three for one");
        assert_eq!(least(&[(u32::MAX, u32::MAX), (1, 2)]), 1);
    }
}
