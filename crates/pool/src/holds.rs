//! Who holds what: each reader says so in a row of its own, and the owner looks before it uses a block again.
//!
//! # Layout
//! One row for each reader of each extent, one word for each page; only the word of a block's first page is used.
//! `tollfree_layout::pool` draws it, and the directory of an extent.
//!
//! # States
//! Of a block, seen from its owner:
//!
//! ```text
//!        allocate          pass a ref on            last own ref dropped            nobody holds it
//! free ───────────► owned ───────────────► exported ─────────────────► in limbo ───────────────────► condemned
//!   ▲                 │                                                                                 │
//!   └─────────────────┘ drop                       still nobody holds it, with the generation raised    │
//!   └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A reader takes a hold in three steps: it counts itself in its row, orders that before what follows (a fence), and then
//! compares the directory's entry with the ref. If they differ it counts itself out again and has nothing.
//!
//! # Who writes what
//! | field | writer | ordering | pairs with |
//! |---|---|---|---|
//! | word of a row | the reader | `Release` store, then `SeqCst` fence | `Acquire` loads of the owner, after its own fence |
//! | `key` | the owner | `Release`, before the ref is passed on; 0 after a higher generation was stored | whatever passes the ref on; the reader's `Acquire` load |
//! | `state` | the owner | `Release` store, then `SeqCst` fence | the reader's load after its fence, and after that of the key |
//!
//! *Why a moving hold is never missed.* A ref that travels is held by its sender until the receiver has counted itself in.
//! The owner reads all words twice. Suppose that all say "nobody", both times, and that `taken` didn't change in between.
//! A reader that took the ref from the owner itself is seen to have taken it, as the owner knew before it began to look. It is
//! seen to have let go, and so (release and acquire) the second look sees the take of the reader that it gave the ref to before;
//! since `taken` didn't change, the first look has seen it as well, and "nobody" means that this one let go too. And so on
//! to the end of the chain. Nobody is left, and nobody can get it any more, but by a ref that was kept although all holds
//! were dropped. Against those the generation is raised: either such a reader sees that, or the owner's last look sees it.
//!
//! # Trust
//! Members trust each other (see `SECURITY.md`). Still, a row can only make its owner keep blocks: a forged word delays
//! their reuse, and a reader that holds without saying so reads bytes that change.
//!
//! # Crash
//! A reader that dies, at whatever step, leaves a row that its owner drops when it learns of the death; all its holds go
//! with it. An owner that dies takes nothing from its readers: what they map stays.
//!
//! # Example
//! ```
//! use tollfree_layout::PageIdx;
//! use tollfree_layout::pool::{BlockState, ExtentShape, HOLD_COUNT_MAX};
//! use tollfree_layout::Generation;
//! use tollfree_pool::holds::{Directory, Row, Survey, take};
//! use tollfree_region::HeapMemory;
//! use std::sync::Arc;
//!
//! let shape = ExtentShape::of_pages(16).expect("within the limits");
//! let extent = Arc::new(HeapMemory::new(shape.file_len()));
//! let words = Arc::new(HeapMemory::new(shape.row_len()));
//! let (page, block) = (PageIdx(4), BlockState { page_count: 4, generation: Generation(0) });
//!
//! let directory = Directory::new(extent.clone());
//! directory.publish(page, block, 99);
//! let mut row = Row::new(words.clone(), HOLD_COUNT_MAX);
//! assert_eq!(take(&mut row, &extent, page, block.generation, |key| key == 99)?, block);
//!
//! let mut survey = Survey::default();
//! assert!(!survey.nobody_holds(&[&*words], page), "the reader does");
//! row.release(page);
//! assert!(survey.nobody_holds(&[&*words], page) && directory.condemn(page, block));
//! assert!(take(&mut row, &extent, page, block.generation, |_| true).is_err(), "of an earlier generation");
//! # Ok::<(), tollfree_pool::holds::TakeError>(())
//! ```

use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tollfree_layout::pool::{BlockState, GENERATION_MAX, HOLD_LEN, HoldWord, hold_off, key_off, state_off};
use tollfree_layout::{Generation, PageIdx};
use tollfree_region::{ReadMemory, WriteMemory};

/// Why a hold was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// This reader has as many holds of the block as can be counted.
    #[error("the count of holds is at its limit")]
    Full,
    /// The block is of another generation: it was given up since.
    #[error("the block is of another generation than the ref")]
    Stale,
    /// No ref of this generation has such a key: it was made up.
    #[error("the block's key is another")]
    Forged,
}

/// A reader's row for one extent.
#[derive(Debug)]
pub struct Row<M> {
    memory: M,
    /// What the memory says. Nobody else writes it, so that it needn't be read; and the model checker, which looks at the
    /// last access to a word only, isn't misled by the writer's own loads.
    words: Box<[HoldWord]>,
    held_max: u32,
}

impl<M: WriteMemory> Row<M> {
    /// A row in zeroed memory of its own; `held_max` is the highest count of holds of one block.
    pub fn new(memory: M, held_max: u32) -> Row<M> {
        let words = vec![HoldWord::default(); memory.len() / HOLD_LEN].into();
        Row { memory, words, held_max }
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Holds of the block that begins at `page`.
    #[inline]
    pub fn held(&self, page: PageIdx) -> u32 {
        self.words[page.as_usize()].held
    }

    /// The last page up to `page` at which a block begins that is held.
    #[inline]
    pub fn last_held(&self, page: PageIdx) -> Option<PageIdx> {
        let words = self.words.get(..=page.as_usize())?;
        words.iter().rposition(|word| word.held > 0).map(|first| PageIdx(first as u32))
    }

    #[inline]
    fn store(&mut self, page: PageIdx, word: HoldWord) {
        self.words[page.as_usize()] = word;
        self.memory.store_u64(hold_off(page), word.word(), Ordering::Release);
    }

    /// Counts one more. What is loaded afterwards is loaded after the owner can see it.
    #[inline]
    fn count_in(&mut self, page: PageIdx) -> Result<(), TakeError> {
        self.hold_again(page)?;
        self.memory.fence_seq_cst();
        Ok(())
    }

    /// One more hold of a block that this reader holds: nothing needs to be looked at, for it stays what it is.
    ///
    /// # Errors
    /// [`TakeError::Full`].
    #[inline]
    pub fn hold_again(&mut self, page: PageIdx) -> Result<(), TakeError> {
        let HoldWord { taken, held } = self.words[page.as_usize()];
        if held >= self.held_max {
            return Err(TakeError::Full);
        }
        self.store(page, HoldWord { taken: taken.wrapping_add(1), held: held + 1 });
        Ok(())
    }

    /// Lets one hold go. The owner may use the block again from now on.
    ///
    /// # Panics
    /// Where there is none: a bug of this process.
    #[inline]
    pub fn release(&mut self, page: PageIdx) {
        let HoldWord { taken, held } = self.words[page.as_usize()];
        let held = held.checked_sub(1).expect("a hold that is let go was taken");
        self.store(page, HoldWord { taken, held });
    }
}

/// Takes a hold of the block at `page`, if it is still the one that the ref was made of, as its generation says and the
/// block's key proves, and says how long it is.
/// `extent` is the owner's.
///
/// # Errors
/// [`TakeError`]; then nothing is held.
#[inline]
pub fn take<W: WriteMemory, R: ReadMemory>(
    row: &mut Row<W>,
    extent: &R,
    page: PageIdx,
    generation: Generation,
    is_genuine: impl FnOnce(u64) -> bool,
) -> Result<BlockState, TakeError> {
    row.count_in(page)?;
    crate::steps::reached("counted-in");
    // The key first: one that the block got later comes with a generation that it got before.
    let key = extent.load_u64(key_off(page), Ordering::Acquire);
    let state = BlockState::from_word(extent.load_u64(state_off(page), Ordering::Acquire));
    let fault = if state.generation != generation {
        TakeError::Stale
    } else if state.page_count == 0 || key == 0 || !is_genuine(key) {
        TakeError::Forged
    } else {
        return Ok(state);
    };
    row.release(page);
    Err(fault)
}

/// The owner's directory of an extent.
#[derive(Debug)]
pub struct Directory<M> {
    memory: M,
}

impl<M: WriteMemory> Directory<M> {
    /// The directory in an extent's memory.
    pub fn new(memory: M) -> Directory<M> {
        Directory { memory }
    }

    /// Lets refs with this key take holds of the block at `page`.
    #[inline]
    pub fn publish(&self, page: PageIdx, block: BlockState, key: u64) {
        self.memory.store_u64(key_off(page), key, Ordering::Release);
        self.memory.store_u64(state_off(page), block.word(), Ordering::Release);
    }

    /// Raises the block's generation: no ref of the one before takes a hold that the owner doesn't see from now on.
    /// False at the last generation there is: such a block is never used again.
    #[inline]
    pub fn condemn(&self, page: PageIdx, block: BlockState) -> bool {
        let is_last = block.generation.0 >= GENERATION_MAX;
        let generation = Generation(block.generation.0 + u64::from(!is_last));
        self.memory.store_u64(
            state_off(page),
            BlockState { page_count: 0, generation }.word(),
            Ordering::Release,
        );
        // After the generation, so that no ref of the one before finds another key: it is stale, and not forged.
        self.memory.store_u64(key_off(page), 0, Ordering::Release);
        self.memory.fence_seq_cst();
        !is_last
    }
}

/// Holds that a row says its reader has of the block at `page`.
#[inline]
pub fn held_now<R: ReadMemory>(row: &R, page: PageIdx) -> u32 {
    HoldWord::from_word(row.load_u64(hold_off(page), Ordering::Acquire)).held
}

/// Looks through rows, with room that is used again.
#[derive(Debug, Default)]
pub struct Survey {
    seen: SmallVec<[u64; 16]>,
}

impl Survey {
    /// Whether nobody holds the block at `page`, nor gets it passed on by somebody who does. `rows` are those of all
    /// readers of the extent. Looks at each row twice at most.
    #[inline]
    pub fn nobody_holds<R: ReadMemory>(&mut self, rows: &[R], page: PageIdx) -> bool {
        self.seen.clear();
        for row in rows {
            let word = row.load_u64(hold_off(page), Ordering::Acquire);
            if HoldWord::from_word(word).held > 0 {
                return false;
            }
            self.seen.push(word);
        }
        let mut looks = rows.iter().zip(&self.seen);
        looks.all(|(row, seen)| row.load_u64(hold_off(page), Ordering::Acquire) == *seen)
    }

    /// Whether a row holds nothing at all.
    pub fn is_idle<R: ReadMemory>(row: &R) -> bool {
        let held = |at| HoldWord::from_word(row.load_u64(at, Ordering::Acquire)).held;
        (0..row.len() / HOLD_LEN).all(|word| held(word * HOLD_LEN) == 0)
    }

    /// Whether nobody holds the block now. Enough after [`Directory::condemn`], when no hold can be taken any more.
    #[inline]
    pub fn nobody_is_left<R: ReadMemory>(rows: &[R], page: PageIdx) -> bool {
        rows.iter().all(|row| held_now(row, page) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_layout::pool::ExtentShape;
    use tollfree_region::HeapMemory;

    const PAGE: PageIdx = PageIdx(3);
    const BLOCK: BlockState = BlockState { page_count: 1, generation: Generation(5) };

    fn parts(held_max: u32) -> (HeapMemory, Row<HeapMemory>) {
        let shape = ExtentShape::of_pages(16).unwrap();
        (HeapMemory::new(shape.file_len()), Row::new(HeapMemory::new(shape.row_len()), held_max))
    }

    #[test]
    fn a_count_at_its_limit_is_refused_and_does_not_wrap() {
        let (extent, mut row) = parts(2);
        Directory::new(&extent).publish(PAGE, BLOCK, 7);
        for _ in 0..2 {
            take(&mut row, &extent, PAGE, BLOCK.generation, |key| key == 7).unwrap();
        }
        assert_eq!(take(&mut row, &extent, PAGE, BLOCK.generation, |key| key == 7), Err(TakeError::Full));
        assert_eq!(row.held(PAGE), 2);
        row.release(PAGE);
        take(&mut row, &extent, PAGE, BLOCK.generation, |key| key == 7).unwrap();
    }

    #[test]
    fn refs_that_do_not_match_leave_no_hold() {
        let (extent, mut row) = parts(9);
        let nothing = take(&mut row, &extent, PAGE, Generation(0), |_| true);
        assert_eq!(nothing, Err(TakeError::Forged), "no block there");
        Directory::new(&extent).publish(PAGE, BLOCK, 7);
        for (generation, key, fault) in [
            (4, 7, TakeError::Stale),
            (6, 7, TakeError::Stale),
            (5, 8, TakeError::Forged),
            (5, 0, TakeError::Forged),
        ] {
            assert_eq!(
                take(&mut row, &extent, PAGE, Generation(generation), |known| known == key),
                Err(fault)
            );
        }
        assert_eq!(row.held(PAGE), 0);
        assert!(Survey::default().nobody_holds(&[row.memory()], PAGE));
    }

    #[test]
    fn the_last_generation_is_never_followed_by_another() {
        let (extent, mut row) = parts(9);
        let directory = Directory::new(&extent);
        let last = BlockState { generation: Generation(GENERATION_MAX), ..BLOCK };
        directory.publish(PAGE, last, 7);
        assert!(!directory.condemn(PAGE, last), "the block is worn out");
        assert!(take(&mut row, &extent, PAGE, last.generation, |_| true).is_err());
    }

    #[test]
    fn a_take_between_the_two_looks_is_noticed() {
        let (_, mut row) = parts(9);
        /// A row whose reader takes and lets go after the first look.
        struct Busy<'m>(&'m HeapMemory, std::cell::Cell<u64>);
        impl ReadMemory for Busy<'_> {
            fn len(&self) -> usize {
                self.0.len()
            }
            fn load_u32(&self, at: usize, order: Ordering) -> u32 {
                self.0.load_u32(at, order)
            }
            fn load_u64(&self, _at: usize, _order: Ordering) -> u64 {
                let word = HoldWord { taken: self.1.get() as u32, held: 0 };
                self.1.set(self.1.get() + 1);
                word.word()
            }
            fn copy_out(&self, at: usize, dst: &mut [u8]) {
                self.0.copy_out(at, dst);
            }
            fn append_to(&self, at: usize, len: usize, dst: &mut bytes::BytesMut) {
                self.0.append_to(at, len, dst);
            }
        }
        assert!(!Survey::default().nobody_holds(&[Busy(row.memory(), 0.into())], PAGE));
        row.count_in(PAGE).unwrap();
        assert!(!Survey::nobody_is_left(&[row.memory()], PAGE));
    }
}
