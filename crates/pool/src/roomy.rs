//! Which extents have a free block of an order: the first one is found in a few steps, however many there are.

use crate::buddy::ORDER_COUNT;

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

/// Of each order, the places of the extents that have a free block of it.
#[derive(Debug, Default)]
pub(crate) struct Roomy {
    orders: [Numbers; ORDER_COUNT],
    /// Of each place, the orders of its free blocks, as last told.
    masks: Vec<u32>,
}

impl Roomy {
    /// The extent at this place has free blocks of these orders.
    #[inline]
    pub(crate) fn tell(&mut self, place: usize, mask: u32) {
        if place >= self.masks.len() {
            self.masks.resize(place + 1, 0);
        }
        let mut changed = std::mem::replace(&mut self.masks[place], mask) ^ mask;
        while changed != 0 {
            let order = changed.trailing_zeros();
            self.orders[order as usize].set(place, mask & 1 << order != 0);
            changed &= changed - 1;
        }
    }

    /// The first place with a block of at least this order, where one of the smallest such order is.
    #[inline]
    pub(crate) fn first(&self, order: u8) -> Option<usize> {
        self.orders.get(usize::from(order)..)?.iter().find_map(Numbers::first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_found_as_by_looking_at_all(
            told in proptest::collection::vec((0usize..9000, 0u32..16), 1..60),
            order in 0u8..6,
        ) {
            let (mut roomy, mut all) = (Roomy::default(), vec![0_u32; 9000]);
            for (place, mask) in told {
                roomy.tell(place, mask);
                all[place] = mask;
                let with = |order: u8| all.iter().position(|mask| mask & 1 << order != 0);
                prop_assert_eq!(roomy.first(order), (order..8).find_map(with));
            }
        }
    }
}
