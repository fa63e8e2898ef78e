//! Memory for the model checker: loom knows every word of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::memory::{ReadMemory, WriteMemory, check_range, check_word};

/// Zeroed memory of which only the words that a model touches exist.
///
/// Real copies go by relaxed words that may race. Here they go by plain ones, for which loom reports every pair of a
/// write and another access that is not ordered by an acquire and a release: nothing that a correct peer does may
/// rely on such a pair.
#[derive(Debug)]
pub struct LoomMemory {
    len: usize,
    wide: BTreeMap<usize, AtomicU64>,
    narrow: BTreeMap<usize, AtomicU32>,
    plain: BTreeMap<usize, PlainWord>,
}

/// A word that is only ever copied.
#[derive(Debug)]
struct PlainWord(UnsafeCell<u64>);

// SAFETY: loom runs one thread at a time, and stops a model in which two accesses race.
unsafe impl Sync for PlainWord {}
// SAFETY: as above.
unsafe impl Send for PlainWord {}

impl LoomMemory {
    /// Memory of `len` bytes with atomic u64 words throughout `wide`, atomic u32 words at each of `narrow`, and
    /// words for copies throughout `plain`. Other words read as a bug: they panic.
    pub fn new(len: usize, wide: &[Range<usize>], narrow: &[usize], plain: &[Range<usize>]) -> LoomMemory {
        let words = |ranges: &[Range<usize>]| ranges.to_vec().into_iter().flat_map(|range| range.step_by(8));
        LoomMemory {
            len,
            wide: words(wide).map(|at| (at, AtomicU64::new(0))).collect(),
            narrow: narrow.iter().map(|at| (*at, AtomicU32::new(0))).collect(),
            plain: words(plain).map(|at| (at, PlainWord(UnsafeCell::new(0)))).collect(),
        }
    }

    fn wide(&self, at: usize) -> &AtomicU64 {
        check_word(at, 8, self.len);
        self.wide.get(&at).unwrap_or_else(|| panic!("the model has no u64 at {at}"))
    }

    fn narrow(&self, at: usize) -> &AtomicU32 {
        check_word(at, 4, self.len);
        self.narrow.get(&at).unwrap_or_else(|| panic!("the model has no u32 at {at}"))
    }
}

impl ReadMemory for LoomMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        self.narrow(at).load(order)
    }

    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        self.wide(at).load(order)
    }

    /// `at` is a multiple of 8.
    fn copy_out(&self, at: usize, dst: &mut [u8]) {
        check_range(at, dst.len(), self.len);
        for (at, part) in (at..).step_by(8).zip(dst.chunks_mut(8)) {
            check_word(at, 8, self.len);
            let word = self.plain.get(&at).unwrap_or_else(|| panic!("the model has no word to copy at {at}"));
            // SAFETY: loom has checked that no write races with this; see `PlainWord`.
            let word = word.0.with(|word| unsafe { *word });
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
    }

    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        let start = dst.len();
        dst.resize(start + len, 0);
        self.copy_out(at, &mut dst[start..]);
    }

    fn fence_seq_cst(&self) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl WriteMemory for LoomMemory {
    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        self.narrow(at).store(value, order);
    }

    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        self.wide(at).store(value, order);
    }

    /// `at` is a multiple of 8; a last part of a word is filled up with zeros, words that the model does not have are
    /// left out.
    fn copy_in(&self, at: usize, src: &[u8]) {
        check_range(at, src.len(), self.len);
        for (at, part) in (at..).step_by(8).zip(src.chunks(8)) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            check_word(at, 8, self.len);
            if let Some(plain) = self.plain.get(&at) {
                // SAFETY: loom has checked that no access races with this; see `PlainWord`.
                plain.0.with_mut(|plain| unsafe { *plain = u64::from_le_bytes(word) });
            }
        }
    }
}
