//! Which pages of an extent are free: blocks of powers of two, split and joined again.
//!
//! Private to the owner; nothing of it is shared. Finding a block of any order takes one look at a bit mask; splitting and
//! joining take at most one step for each order, 18 at the most.

use tollfree_layout::PageIdx;
use tollfree_layout::pool::EXTENT_PAGE_COUNT_MAX;

/// Orders that a block can have: 1 page to the largest extent.
pub(crate) const ORDER_COUNT: usize = EXTENT_PAGE_COUNT_MAX.trailing_zeros() as usize + 1;
const NONE: u32 = u32::MAX;
/// Tag of a page at which no free block begins.
const TAKEN: u8 = u8::MAX;

/// Free blocks of one extent.
#[derive(Debug)]
pub(crate) struct Buddy {
    heads: [u32; ORDER_COUNT],
    /// Bit n: there is a free block of order n.
    mask: u32,
    links: Box<[(u32, u32)]>,
    tags: Box<[u8]>,
    free_count: u32,
}

/// The order of the smallest block of at least so many pages (at least 1).
pub(crate) fn order_of(page_count: usize) -> u8 {
    page_count.next_power_of_two().trailing_zeros() as u8
}

impl Buddy {
    /// All `page_count` pages are free; a power of two.
    pub(crate) fn new(page_count: usize) -> Buddy {
        let mut buddy = Buddy {
            heads: [NONE; ORDER_COUNT],
            mask: 0,
            links: vec![(NONE, NONE); page_count].into(),
            tags: vec![TAKEN; page_count].into(),
            free_count: page_count as u32,
        };
        buddy.push(0, order_of(page_count));
        buddy
    }

    /// Bit n: there is a free block of order n.
    #[inline]
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// Pages that are free.
    #[cfg(test)]
    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Whether all are.
    pub(crate) fn is_idle(&self) -> bool {
        self.free_count as usize == self.tags.len()
    }

    /// Takes a block of 2^`order` pages.
    #[inline]
    pub(crate) fn allocate(&mut self, order: u8) -> Option<PageIdx> {
        let fitting = self.mask.checked_shr(order.into())?;
        if fitting == 0 {
            return None;
        }
        let mut at_order = order + fitting.trailing_zeros() as u8;
        let page = self.heads[usize::from(at_order)];
        self.remove(page, at_order);
        while at_order > order {
            at_order -= 1;
            self.push(page + (1 << at_order), at_order);
        }
        self.free_count -= 1 << order;
        Some(PageIdx(page))
    }

    /// Gives a block back.
    #[inline]
    pub(crate) fn free(&mut self, page: PageIdx, order: u8) {
        self.free_count += 1 << order;
        let (mut page, mut order) = (page.0, order);
        loop {
            let other = page ^ (1 << order);
            if self.tags.get(other as usize) != Some(&order) {
                return self.push(page, order);
            }
            self.remove(other, order);
            page &= other;
            order += 1;
        }
    }

    fn push(&mut self, page: u32, order: u8) {
        let head = &mut self.heads[usize::from(order)];
        self.links[page as usize] = (NONE, *head);
        if let Some(link) = self.links.get_mut(*head as usize) {
            link.0 = page;
        }
        *head = page;
        self.tags[page as usize] = order;
        self.mask |= 1 << order;
    }

    fn remove(&mut self, page: u32, order: u8) {
        let (before, after) = self.links[page as usize];
        match self.links.get_mut(before as usize) {
            Some(link) => link.1 = after,
            None => self.heads[usize::from(order)] = after,
        }
        if let Some(link) = self.links.get_mut(after as usize) {
            link.0 = before;
        }
        if self.heads[usize::from(order)] == NONE {
            self.mask &= !(1 << order);
        }
        self.tags[page as usize] = TAKEN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_comes_back_together() {
        let mut buddy = Buddy::new(64);
        let small: Vec<_> = (0..64).map(|_| buddy.allocate(0).unwrap()).collect();
        assert_eq!((buddy.allocate(0), buddy.free_count()), (None, 0));
        for page in small {
            buddy.free(page, 0);
        }
        assert!(buddy.is_idle());
        assert_eq!(buddy.allocate(6), Some(PageIdx(0)));
        assert_eq!(buddy.allocate(31), None);
    }

    proptest! {
        /// Against a set of pages: no block overlaps another, sizes and alignment are right, nothing is lost.
        #[test]
        fn blocks_never_overlap(operations in prop::collection::vec((any::<bool>(), 0u8..7, any::<prop::sample::Index>()), 0..200)) {
            let mut buddy = Buddy::new(64);
            let mut taken = [false; 64];
            let mut blocks = Vec::new();
            for (give_back, order, which) in operations {
                if give_back && !blocks.is_empty() {
                    let (page, order): (PageIdx, u8) = blocks.swap_remove(which.index(blocks.len()));
                    buddy.free(page, order);
                    taken[page.as_usize()..][..1 << order].fill(false);
                } else if let Some(page) = buddy.allocate(order) {
                    let pages = &mut taken[page.as_usize()..][..1 << order];
                    prop_assert!(page.0.is_multiple_of(1 << order) && pages.iter().all(|page| !page));
                    pages.fill(true);
                    blocks.push((page, order));
                } else {
                    let run = (0..64).step_by(1 << order).any(|at| taken[at..at + (1 << order)].iter().all(|page| !page));
                    prop_assert!(!run, "there was a block of order {}", order);
                }
                prop_assert_eq!(buddy.free_count() as usize, taken.iter().filter(|page| !**page).count());
            }
            for (page, order) in blocks {
                buddy.free(page, order);
            }
            prop_assert!(buddy.is_idle());
            prop_assert_eq!(buddy.allocate(6), Some(PageIdx(0)));
        }
    }
}
