//! What payloads hold, and how it is written and read: each page of them has a byte of its own, so that a page that is
//! missing, stale or in the wrong place shows in the sum.

use bytes::BufMut;

const PAGE_LEN: usize = 4096;

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
    let page_count = len.div_ceil(PAGE_LEN);
    (0..page_count).fold(0, |all, page_idx| {
        let count = (len - page_idx * PAGE_LEN).min(PAGE_LEN);
        next(all, u64::from(byte(seed, page_idx)) * count as u64)
    })
}

/// Reads every byte. Pages that change places change the sum.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(PAGE_LEN).fold(0, |all, page| next(all, sum_of_page(page)))
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

fn sum_of_page(page: &[u8]) -> u64 {
    // Bytes of eight words are added in lanes of 16 bits, which 256 additions can't fill.
    let mut total = 0;
    for run in page.chunks(8 * 128) {
        let mut lanes = 0_u64;
        let words = run.chunks_exact(8);
        let rest: u64 = words.remainder().iter().map(|byte| u64::from(*byte)).sum();
        for word in words {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            lanes += (word & LOW_BYTES) + (word >> 8 & LOW_BYTES);
        }
        total += (0..4).map(|lane| lanes >> (16 * lane) & 0xffff).sum::<u64>() + rest;
    }
    total
}

const LOW_BYTES: u64 = 0x00ff_00ff_00ff_00ff;

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
                assert!(is_at_the_ends(&bytes, len, seed));
                assert!(len == 0 || !is_at_the_ends(&bytes, len, seed + 1));
            }
        }
    }

    #[test]
    fn lanes_hold_the_largest_bytes() {
        assert_eq!(sum(&[255; 4096]), 255 * 4096);
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
