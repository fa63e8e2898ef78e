//! What payloads hold, and how it is written and read: each page of them has a byte of its own, so that a page that is
//! missing, stale or in the wrong place shows in the sum.

use bytes::BufMut;

const PAGE_LEN: usize = 4096;
const LINE_LEN: usize = 64;
const WORD_LEN: usize = 8;
/// A word all of whose bytes are 1.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Appends `len` bytes of the pattern that a seed stands for. Writes each byte once.
pub(crate) fn write(to: &mut impl BufMut, len: usize, seed: u64) {
    let mut left = len;
    for page_idx in 0.. {
        let count = left.min(PAGE_LEN);
        if count == 0 {
            break;
        }
        to.put_bytes(byte(seed, page_idx), count);
        left -= count;
    }
}

/// The sum that [`sum`] gives of the pattern, without writing it.
pub(crate) fn sum_of(len: usize, seed: u64) -> u64 {
    fold(len, |page_idx, count| {
        let byte = u64::from(byte(seed, page_idx));
        let (words, rest) = (count / WORD_LEN, count % WORD_LEN);
        (byte * EACH_BYTE).wrapping_mul(words as u64).wrapping_add(byte * rest as u64)
    })
}

/// Reads every byte. Pages that change places change the sum.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(PAGE_LEN).fold(0, |all, page| next(all, sum_of_page(page)))
}

/// The sum that [`sum_lines`] gives of the pattern.
pub(crate) fn sum_lines_of(len: usize, seed: u64) -> u64 {
    fold(len, |page_idx, count| u64::from(byte(seed, page_idx)) * count.div_ceil(LINE_LEN) as u64)
}

/// Reads a byte of every cache line: all of the memory's work, and none of the adding.
pub(crate) fn sum_lines(bytes: &[u8]) -> u64 {
    let of_page = |page: &[u8]| page.iter().step_by(LINE_LEN).map(|byte| u64::from(*byte)).sum();
    bytes.chunks(PAGE_LEN).fold(0, |all, page| next(all, of_page(page)))
}

/// Reads the first and the last byte: enough to see whose bytes these are.
pub(crate) fn is_at_the_ends(bytes: &[u8], len: usize, seed: u64) -> bool {
    let last_idx = len.div_ceil(PAGE_LEN).saturating_sub(1);
    bytes.len() == len
        && bytes.first().is_none_or(|first| *first == byte(seed, 0))
        && bytes.last().is_none_or(|last| *last == byte(seed, last_idx))
}

fn next(all: u64, page: u64) -> u64 {
    all.wrapping_mul(1_000_003).wrapping_add(page)
}

/// Goes over the pages of `len` bytes; the last may be shorter.
fn fold(len: usize, sum_of_page: impl Fn(usize, usize) -> u64) -> u64 {
    let page_count = len.div_ceil(PAGE_LEN);
    (0..page_count)
        .fold(0, |all, page_idx| next(all, sum_of_page(page_idx, (len - page_idx * PAGE_LEN).min(PAGE_LEN))))
}

/// Word by word, which compilers make fast.
fn sum_of_page(page: &[u8]) -> u64 {
    let words = page.chunks_exact(WORD_LEN);
    let rest: u64 = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    words.map(word).fold(rest, u64::wrapping_add)
}

fn byte(seed: u64, page_idx: usize) -> u8 {
    (seed.wrapping_mul(151) ^ (page_idx as u64).wrapping_mul(59)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_expected() {
        for len in [0, 1, 7, 8, 4095, 4096, 4097, 65_536, 100_003] {
            for seed in [0, 1, 255, 1 << 40] {
                let mut bytes = Vec::new();
                write(&mut bytes, len, seed);
                assert_eq!((bytes.len(), sum(&bytes)), (len, sum_of(len, seed)), "{len} bytes, seed {seed}");
                assert_eq!(sum_lines(&bytes), sum_lines_of(len, seed), "{len} bytes, seed {seed}");
                assert!(is_at_the_ends(&bytes, len, seed));
                assert!(len == 0 || !is_at_the_ends(&bytes, len, seed + 1));
            }
        }
    }

    #[test]
    fn a_changed_byte_a_missing_page_and_exchanged_pages_show() {
        let mut bytes = Vec::new();
        write(&mut bytes, 3 * PAGE_LEN, 9);
        let right = sum(&bytes);
        bytes[5000] ^= 1;
        assert_ne!(sum(&bytes), right);
        bytes[5000] ^= 1;
        bytes[..2 * PAGE_LEN].rotate_left(PAGE_LEN);
        assert_ne!(sum(&bytes), right);
        assert_ne!(sum(&bytes[..2 * PAGE_LEN]), right);
    }
}
