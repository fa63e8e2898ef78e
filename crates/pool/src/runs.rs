//! Which pages of an extent are free: runs of pages, cut and joined again.
//!
//! Private to the owner; nothing of it is shared. Free runs are kept by *class*: lengths that are alike, four classes for
//! each power of two. Finding one takes a look at a bit mask, cutting and joining a bounded number of steps, however many
//! runs there are.

use tollfree_layout::PageIdx;

/// Classes that a run can be of.
pub(crate) const CLASS_COUNT: usize = 64;
/// Bits of the classes that each power of two is divided into.
const DIVISION_BITS: u32 = 2;
/// The last class has all runs of at least so many pages: half a GiB.
const LAST_CLASS_MIN: u32 = 1 << 17;
const NONE: u32 = u32::MAX;

/// The class of a run of so many pages (at least 1).
#[inline]
pub(crate) const fn class_of(page_count: u32) -> usize {
    if page_count < 1 << DIVISION_BITS {
        return page_count as usize - 1;
    }
    // The power of two and the bits behind its first one make a number of their own.
    let above = page_count.ilog2() - DIVISION_BITS;
    let class = ((above << DIVISION_BITS) + (page_count >> above) - 1) as usize;
    if class < CLASS_COUNT { class } else { CLASS_COUNT - 1 }
}

/// The first class of which every run has at least so many pages; `CLASS_COUNT` if there is none.
#[inline]
pub(crate) fn class_above(page_count: u32) -> usize {
    if page_count > LAST_CLASS_MIN {
        return CLASS_COUNT;
    }
    let step = 1 << page_count.ilog2().saturating_sub(DIVISION_BITS);
    class_of(page_count + step - 1)
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// The length of a free run, at its first page and at its last one; 0 at any other page.
    run: u32,
    /// At the first page of a free run, the others of its class.
    before: u32,
    after: u32,
}

/// Free runs of one extent.
#[derive(Debug)]
pub(crate) struct Runs {
    heads: [u32; CLASS_COUNT],
    /// Bit n: there is a free run of class n.
    mask: u64,
    pages: Box<[Page]>,
    free_count: u32,
}

impl Runs {
    /// All `page_count` pages are free, in one run.
    pub(crate) fn new(page_count: usize) -> Runs {
        let page = Page { run: 0, before: NONE, after: NONE };
        let mut runs =
            Runs { heads: [NONE; CLASS_COUNT], mask: 0, pages: vec![page; page_count].into(), free_count: 0 };
        runs.free(PageIdx(0), page_count as u32);
        runs
    }

    /// Bit n: there is a free run of class n.
    #[inline]
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Pages that are free.
    #[cfg(test)]
    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Whether all are.
    pub(crate) fn is_idle(&self) -> bool {
        self.free_count as usize == self.pages.len()
    }

    /// Takes pages of the run of this class that was freed last, if it is long enough.
    #[inline]
    pub(crate) fn take(&mut self, class: usize, page_count: u32) -> Option<PageIdx> {
        let first = self.heads[class];
        (self.pages.get(first as usize)?.run >= page_count).then(|| self.cut(first, class, page_count))
    }

    /// Takes pages of any run that is long enough, though all of its class have to be looked at.
    pub(crate) fn take_thoroughly(&mut self, page_count: u32) -> Option<PageIdx> {
        let above = self.mask.checked_shr(class_above(page_count) as u32).unwrap_or(0);
        if above != 0 {
            return self.take(class_above(page_count) + above.trailing_zeros() as usize, page_count);
        }
        let class = class_of(page_count);
        let mut first = self.heads[class];
        while let Some(page) = self.pages.get(first as usize) {
            if page.run >= page_count {
                return Some(self.cut(first, class, page_count));
            }
            first = page.after;
        }
        None
    }

    /// Takes the first pages of a run.
    #[inline]
    fn cut(&mut self, first: u32, class: usize, page_count: u32) -> PageIdx {
        let rest = self.remove(first, class) - page_count;
        if rest > 0 {
            self.push(first + page_count, rest);
        }
        self.free_count -= page_count;
        PageIdx(first)
    }

    /// Gives pages back.
    #[inline]
    pub(crate) fn free(&mut self, page: PageIdx, page_count: u32) {
        self.free_count += page_count;
        let (mut first, mut run) = (page.0, page_count);
        // What stands next to pages in use, and is free, is an end of a run.
        if let Some(Page { run: behind @ 1.., .. }) = self.pages.get((first + run) as usize) {
            let behind = *behind;
            self.remove(first + run, class_of(behind));
            run += behind;
        }
        if let Some(Page { run: ahead @ 1.., .. }) = self.pages.get(first.wrapping_sub(1) as usize) {
            let ahead = *ahead;
            first -= ahead;
            self.remove(first, class_of(ahead));
            run += ahead;
        }
        self.push(first, run);
    }

    #[inline]
    fn push(&mut self, first: u32, run: u32) {
        let class = class_of(run);
        let after = std::mem::replace(&mut self.heads[class], first);
        if let Some(page) = self.pages.get_mut(after as usize) {
            page.before = first;
        }
        self.pages[(first + run - 1) as usize].run = run;
        self.pages[first as usize] = Page { run, before: NONE, after };
        self.mask |= 1 << class;
    }

    /// Takes a run out of its class, and says how long it is.
    #[inline]
    fn remove(&mut self, first: u32, class: usize) -> u32 {
        let Page { run, before, after } =
            std::mem::replace(&mut self.pages[first as usize], Page { run: 0, before: NONE, after: NONE });
        self.pages[(first + run - 1) as usize].run = 0;
        match self.pages.get_mut(before as usize) {
            Some(page) => page.after = after,
            None => self.heads[class] = after,
        }
        if let Some(page) = self.pages.get_mut(after as usize) {
            page.before = before;
        }
        if self.heads[class] == NONE {
            self.mask &= !(1 << class);
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tollfree_layout::pool::EXTENT_PAGE_COUNT_MAX;

    #[test]
    fn classes_are_in_order_and_all_of_the_class_above_are_long_enough() {
        let mut last = 0;
        for page_count in 1..=EXTENT_PAGE_COUNT_MAX as u32 {
            let (class, above) = (class_of(page_count), class_above(page_count));
            assert!(class == last || class == last + 1, "{page_count}");
            assert!(above == class || above == class + 1, "{page_count}");
            assert_eq!(
                above == class,
                class != last || page_count == 1,
                "the least of its class: {page_count}"
            );
            last = class;
        }
        assert_eq!(last, CLASS_COUNT - 1);
    }

    #[test]
    fn all_comes_back_together() {
        let mut runs = Runs::new(61);
        let small: Vec<_> = (0..61).map(|_| runs.take_thoroughly(1).unwrap()).collect();
        assert_eq!((runs.take_thoroughly(1), runs.free_count()), (None, 0));
        for page in small {
            runs.free(page, 1);
        }
        assert!(runs.is_idle());
        assert_eq!(runs.take_thoroughly(62), None);
        assert_eq!(runs.take_thoroughly(61), Some(PageIdx(0)), "though it is not the least of its class");
        assert_eq!(runs.take_thoroughly(u32::MAX), None);
    }

    proptest! {
        /// Against a set of pages: no block overlaps another, lengths are exact, nothing that would fit is refused, nothing
        /// is lost.
        #[test]
        fn blocks_never_overlap(operations in prop::collection::vec((any::<bool>(), 1u32..40, any::<prop::sample::Index>()), 0..200)) {
            let mut runs = Runs::new(101);
            let mut taken = [false; 101];
            let mut blocks = Vec::new();
            for (give_back, count, which) in operations {
                if give_back && !blocks.is_empty() {
                    let (page, count): (PageIdx, u32) = blocks.swap_remove(which.index(blocks.len()));
                    runs.free(page, count);
                    taken[page.as_usize()..][..count as usize].fill(false);
                } else if let Some(page) = runs.take_thoroughly(count) {
                    let pages = &mut taken[page.as_usize()..][..count as usize];
                    prop_assert!(pages.iter().all(|page| !page));
                    pages.fill(true);
                    blocks.push((page, count));
                } else {
                    let fits = taken.windows(count as usize).any(|pages| pages.iter().all(|page| !page));
                    prop_assert!(!fits, "there was a run of {}", count);
                }
                let runs_of: Vec<_> = taken.chunk_by(|one, other| one == other).filter(|run| !run[0]).collect();
                let mask = runs_of.iter().fold(0, |mask, run| mask | 1 << class_of(run.len() as u32));
                prop_assert_eq!(runs.mask(), mask);
                prop_assert_eq!(runs.free_count() as usize, taken.iter().filter(|page| !**page).count());
            }
            for (page, count) in blocks {
                runs.free(page, count);
            }
            prop_assert!(runs.is_idle());
            prop_assert_eq!(runs.take_thoroughly(101), Some(PageIdx(0)));
        }
    }
}
