//! Which extents have a free run of a class: the first one is found in a few steps, however many there are.

use crate::runs::CLASS_COUNT;

/// A set of small numbers, of which the smallest is found by looking at one word for each 4096 that there could be.
#[derive(Debug, Default)]
struct Numbers {
    words: Vec<u64>,
    /// Bit n of word m: `words[64 * m + n]` isn't empty.
    summary: Vec<u64>,
}

impl Numbers {
    fn set(&mut self, number: usize, is_in: bool) {
        let word_idx = number / 64;
        if word_idx >= self.words.len() {
            self.words.resize(word_idx + 1, 0);
            self.summary.resize(word_idx / 64 + 1, 0);
        }
        let word = &mut self.words[word_idx];
        *word = *word & !(1 << (number % 64)) | u64::from(is_in) << (number % 64);
        let (is_empty, above) = (*word == 0, &mut self.summary[word_idx / 64]);
        *above = *above & !(1 << (word_idx % 64)) | u64::from(!is_empty) << (word_idx % 64);
    }

    fn first(&self) -> Option<usize> {
        let above_idx = self.summary.iter().position(|word| *word != 0)?;
        let word_idx = above_idx * 64 + self.summary[above_idx].trailing_zeros() as usize;
        Some(word_idx * 64 + self.words[word_idx].trailing_zeros() as usize)
    }
}

/// Of each class, the places of the extents that have a free run of it.
#[derive(Debug)]
pub(crate) struct Roomy {
    classes: [Numbers; CLASS_COUNT],
    /// How many places there are of each class.
    counts: [u32; CLASS_COUNT],
    /// Bit n: there is a place of class n.
    mask: u64,
    /// Of each place, the classes of its free runs, as last told.
    masks: Vec<u64>,
}

impl Roomy {
    pub(crate) fn new() -> Roomy {
        Roomy {
            classes: std::array::from_fn(|_| Numbers::default()),
            counts: [0; CLASS_COUNT],
            mask: 0,
            masks: Vec::new(),
        }
    }

    /// The extent at this place has free runs of these classes.
    #[inline]
    pub(crate) fn tell(&mut self, place: usize, mask: u64) {
        if place >= self.masks.len() {
            self.masks.resize(place + 1, 0);
        }
        let mut changed = std::mem::replace(&mut self.masks[place], mask) ^ mask;
        while changed != 0 {
            let class = changed.trailing_zeros() as usize;
            let is_in = mask & 1 << class != 0;
            self.classes[class].set(place, is_in);
            let count = &mut self.counts[class];
            *count = if is_in { *count + 1 } else { *count - 1 };
            self.mask = self.mask & !(1 << class) | u64::from(*count > 0) << class;
            changed &= changed - 1;
        }
    }

    /// The least class from this one on of which there is a run, and the first place with one.
    #[inline]
    pub(crate) fn first(&self, class: usize) -> Option<(usize, usize)> {
        let above = self.mask.checked_shr(class as u32)?;
        let class = class + above.trailing_zeros() as usize;
        Some((self.classes.get(class)?.first()?, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_found_as_by_looking_at_all(
            told in proptest::collection::vec((0usize..9000, 0u64..16), 1..60),
            class in 0usize..6,
        ) {
            let (mut roomy, mut all) = (Roomy::new(), vec![0_u64; 9000]);
            for (place, mask) in told {
                roomy.tell(place, mask);
                all[place] = mask;
                let with = |class: usize| Some((all.iter().position(|mask| mask & 1 << class != 0)?, class));
                prop_assert_eq!(roomy.first(class), (class..8).find_map(with));
            }
        }
    }
}
