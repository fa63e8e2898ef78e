//! Memory on this process's heap behind the same traits, for tests and models.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;

use crate::memory::{ReadMemory, WriteMemory, check_range, check_word};

/// Zeroed heap memory that several threads read and write, word by word.
///
/// Safe code throughout: a test that uses it runs under any checker. Slow for bulk copies.
#[derive(Debug)]
pub struct HeapMemory {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl HeapMemory {
    /// `len` bytes of zeros.
    pub fn new(len: usize) -> HeapMemory {
        HeapMemory { words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), len }
    }

    /// Replaces the bits of `mask` in the word that holds byte `at`, leaving its other bits to other writers.
    fn replace(&self, at: usize, mask: u64, bits: u64, order: Ordering) {
        let merge = |word| Some(word & !mask | bits & mask);
        let merged = self.words[at / 8].fetch_update(order, Ordering::Relaxed, merge);
        debug_assert!(merged.is_ok(), "the closure never declines");
    }
}

/// Shift of byte `at` within its word, in bits. Memory is little endian as the protocol is.
fn shift(at: usize) -> u32 {
    (at % 8) as u32 * 8
}

impl ReadMemory for HeapMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        check_word(at, 4, self.len);
        (self.words[at / 8].load(order) >> shift(at)) as u32
    }

    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        check_word(at, 8, self.len);
        self.words[at / 8].load(order)
    }

    fn copy_out(&self, at: usize, dst: &mut [u8]) {
        check_range(at, dst.len(), self.len);
        for (at, byte) in (at..).zip(dst) {
            *byte = (self.words[at / 8].load(Ordering::Relaxed) >> shift(at)) as u8;
        }
    }

    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        check_range(at, len, self.len);
        let start = dst.len();
        dst.resize(start + len, 0);
        self.copy_out(at, &mut dst[start..]);
    }
}

impl WriteMemory for HeapMemory {
    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        check_word(at, 4, self.len);
        self.replace(at, u64::from(u32::MAX) << shift(at), u64::from(value) << shift(at), order);
    }

    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        check_word(at, 8, self.len);
        self.words[at / 8].store(value, order);
    }

    fn copy_in(&self, at: usize, src: &[u8]) {
        check_range(at, src.len(), self.len);
        for (at, byte) in (at..).zip(src) {
            self.replace(at, 0xff << shift(at), u64::from(*byte) << shift(at), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_agree() {
        let memory = HeapMemory::new(32);
        memory.store_u32(4, 0x0403_0201, Ordering::Relaxed);
        memory.copy_in(8, &[5, 6, 7]);
        let mut bytes = [0; 8];
        memory.copy_out(4, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(memory.load_u64(0, Ordering::Relaxed), 0x0403_0201_0000_0000);
        assert_eq!(memory.load_u32(8, Ordering::Relaxed), 0x0007_0605);
        let mut appended = BytesMut::from(&b"x"[..]);
        memory.append_to(7, 2, &mut appended);
        assert_eq!(&appended[..], [b'x', 4, 5]);
    }

    #[test]
    #[should_panic(expected = "outside of a memory of 32")]
    fn a_range_past_the_end_panics() {
        HeapMemory::new(32).copy_in(30, &[0; 3]);
    }

    #[test]
    #[should_panic(expected = "is not aligned")]
    fn a_crooked_word_panics() {
        HeapMemory::new(32).load_u64(4, Ordering::Relaxed);
    }
}
