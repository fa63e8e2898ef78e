//! A ring record: the envelope of one frame.
//!
//! # Layout
//! A ring is an array of 64-byte lines. A record starts on a line, takes whole lines, and runs on from the last
//! line to the first. Its first 8 bytes are the head word, one naturally aligned u64:
//!
//! ```text
//! 63                       32 31                        0
//! | len: bytes that follow    | 1 | seq: low 31 bits of   |
//! | the head word             |   | the record's RingPos  |
//! ```
//! 0 is "nothing here yet". A writer never lets a reader see record *n* before the head word of the line after it
//! reads 0 (or is the head of a record published with it), so that bytes of an earlier lap are never taken for a head.

use crate::RingPos;
use crate::limits::LINE_LEN;

pub use crate::constants::record::*;

const SEQ_MARK: u32 = 1 << 31;

/// The head word of a record of `len` bytes at `pos`.
pub const fn head_word(pos: RingPos, len: u32) -> u64 {
    ((len as u64) << 32) | seq(pos) as u64
}

/// The length that a head word claims, if its sequence is the one expected at `pos`.
pub const fn head_len(word: u64, pos: RingPos) -> Option<u32> {
    if word as u32 == seq(pos) { Some((word >> 32) as u32) } else { None }
}

/// Lines that a record of `len` bytes takes.
pub const fn line_count(len: usize) -> usize {
    (HEAD_LEN + len).div_ceil(LINE_LEN)
}

/// The longest record of a ring of `ring_len` bytes: half the ring, less one line for the empty head behind it.
pub const fn record_len_max(ring_len: usize) -> usize {
    ring_len / 2 - LINE_LEN - HEAD_LEN
}

const fn seq(pos: RingPos) -> u32 {
    SEQ_MARK | pos.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_word_is_never_empty_and_names_its_place() {
        for pos in [0, 1, 255, u32::MAX as u64, 1 << 31, 1 << 40] {
            let word = head_word(RingPos(pos), 0);
            assert_ne!(word, HEAD_EMPTY);
            assert_eq!(head_len(word, RingPos(pos)), Some(0));
            assert_eq!(head_len(word, RingPos(pos + 1)), None);
        }
    }

    #[test]
    fn a_head_word_is_the_length_and_the_mark_over_the_place() {
        assert_eq!(head_word(RingPos(5), 7), 7 << 32 | 0x8000_0005);
        assert_eq!(head_word(RingPos(1 << 32 | 1 << 31 | 5), 7), 7 << 32 | 0x8000_0005);
        assert_eq!(head_len(9 << 32 | 0x8000_0005, RingPos(5)), Some(9));
        assert_eq!((line_count(56), line_count(57), line_count(120), line_count(121)), (1, 2, 2, 3));
        assert_eq!((record_len_max(4096), record_len_max(8192)), (1976, 4024));
    }

    #[test]
    fn lines_count_the_head_word() {
        assert_eq!(line_count(0), 1);
        assert_eq!(line_count(LINE_LEN - HEAD_LEN), 1);
        assert_eq!(line_count(LINE_LEN - HEAD_LEN + 1), 2);
        let ring_len = crate::limits::RING_LEN_MIN;
        assert!(line_count(record_len_max(ring_len)) + 1 == ring_len / LINE_LEN / 2);
    }
}
