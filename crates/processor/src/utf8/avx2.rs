//! Hot module: the UTF-8 test 32 bytes at a time, with AVX2.
//!
//! The bytes before each byte are loaded again from one, two and three places further down: loads are cheaper here
//! than moving bytes between registers. So every block but the first must have three bytes of the text before it.

use super::nibbles::{FIRST_HIGH, FIRST_LOW, SECOND_HIGH};
use std::arch::x86_64::*;

const BLOCK: usize = 32;

/// Whether the processor has what [`check`] needs. (An atomic load after the first time.)
#[inline(always)]
pub(super) fn available() -> bool {
    !cfg!(miri) && is_x86_feature_detected!("avx2")
}

/// Ones, then zeroes: from `BLOCK - len` on, a mask for the first `len` bytes of a block.
static WINDOW: [u8; 2 * BLOCK] = {
    let mut t = [0; 2 * BLOCK];
    let mut at = 0;
    while at < BLOCK {
        t[at] = 0xff;
        at += 1;
    }
    t
};

#[derive(Clone, Copy)]
struct Tables {
    first_high: __m256i,
    first_low: __m256i,
    second_high: __m256i,
}

impl Tables {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Tables {
        let spread = |table: &[u8; 16]| {
            // SAFETY: 16 bytes are there.
            _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
        };
        Tables {
            first_high: spread(&FIRST_HIGH),
            first_low: spread(&FIRST_LOW),
            second_high: spread(&SECOND_HIGH),
        }
    }

    /// Not zero where a byte of `block` is wrong behind the one, two and three bytes before it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn wrong(self, block: __m256i, back: [__m256i; 3]) -> __m256i {
        let nibble = _mm256_set1_epi8(0x0f);
        let high = |bytes| _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
        let wrong = _mm256_and_si256(
            _mm256_and_si256(
                _mm256_shuffle_epi8(self.first_high, high(back[0])),
                _mm256_shuffle_epi8(self.first_low, _mm256_and_si256(back[0], nibble)),
            ),
            _mm256_shuffle_epi8(self.second_high, high(block)),
        );
        // The high bit stays where a three- or four-byte character asks for a continuation here.
        let third = _mm256_subs_epu8(back[1], _mm256_set1_epi8(0xe0u8.wrapping_sub(0x80) as i8));
        let fourth = _mm256_subs_epu8(back[2], _mm256_set1_epi8(0xf0u8.wrapping_sub(0x80) as i8));
        let due = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(0x80u8 as i8));
        _mm256_xor_si256(due, wrong)
    }

    /// [`Tables::wrong`] of a text's first block.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn wrong_first(self, block: __m256i) -> __m256i {
        let low = _mm256_permute2x128_si256::<0x08>(block, block);
        let back = [
            _mm256_alignr_epi8::<15>(block, low),
            _mm256_alignr_epi8::<14>(block, low),
            _mm256_alignr_epi8::<13>(block, low),
        ];
        self.wrong(block, back)
    }

    /// [`Tables::wrong`] of the block at `at`.
    ///
    /// # Safety
    /// Three bytes before `at` and 32 from it are readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn wrong_at(self, at: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { self.wrong(block(at), [block(at.sub(1)), block(at.sub(2)), block(at.sub(3))]) }
    }
}

/// # Safety
/// 32 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn block(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Whether a character is not complete before `end`.
///
/// # Safety
/// Three bytes are readable before `end`.
#[inline(always)]
unsafe fn is_open(end: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { *end.sub(1) >= 0xc0 || *end.sub(2) >= 0xe0 || *end.sub(3) >= 0xf0 }
}

/// Whether `len` bytes at `from` are UTF-8; `COPY`: writes them to `to`, too. `readable` bytes can be read at `from`.
///
/// # Safety
/// `len` and `readable` bytes are readable at `from`; `COPY`: `len` can be written at `to`, apart from the others. The
/// processor is [`available`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn check<const COPY: bool>(
    from: *const u8,
    to: *mut u8,
    len: usize,
    readable: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if COPY && len < BLOCK + 3 {
            to.copy_from_nonoverlapping(from, len);
        }
        if len < BLOCK && readable >= BLOCK {
            check_short(from, len)
        } else if len != BLOCK && len < BLOCK + 3 {
            // Beyond a block, the last one would have less than three bytes before it.
            check_padded(from, len)
        } else {
            check_blocks::<COPY>(from, to, len)
        }
    }
}

/// Less than a block of text, in a block that can be read. What lies behind the text is cleared, so that a character
/// which is not complete shows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn check_short(from: *const u8, len: usize) -> bool {
    // SAFETY: 32 bytes are readable, and `len < 32`.
    unsafe {
        let text = _mm256_and_si256(block(from), block(WINDOW.as_ptr().add(BLOCK - len)));
        let wrong = Tables::new().wrong_first(text);
        _mm256_testz_si256(wrong, wrong) != 0
    }
}

/// A short text from where no whole blocks can be read: a copy with zeroes behind it.
#[cold]
#[target_feature(enable = "avx2")]
unsafe fn check_padded(from: *const u8, len: usize) -> bool {
    let tables = Tables::new();
    let mut copy = [0u8; 2 * BLOCK];
    // SAFETY: `len < 61` bytes are readable.
    unsafe {
        copy.as_mut_ptr().copy_from_nonoverlapping(from, len);
        let first = tables.wrong_first(block(copy.as_ptr()));
        let wrong = _mm256_or_si256(first, tables.wrong_at(copy.as_ptr().add(BLOCK)));
        _mm256_testz_si256(wrong, wrong) != 0
    }
}

/// A block, or more than two bytes above one.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn check_blocks<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> bool {
    let tables = Tables::new();
    // SAFETY: every block lies below `len`, all but the first have three bytes before them. Noticed by
    // `every_length_and_every_cut` and the tests beside it.
    unsafe {
        let mut error = tables.wrong_first(block(from));
        macro_rules! step {
            ($at:expr) => {
                error = _mm256_or_si256(error, tables.wrong_at(from.add($at)))
            };
        }
        macro_rules! copy {
            ($at:expr) => {
                if COPY {
                    _mm256_storeu_si256(to.add($at).cast(), block(from.add($at)));
                }
            };
        }
        copy!(0);
        let mut at = BLOCK;
        if COPY && len >= 8 * BLOCK {
            // Whole blocks from an aligned address of the copy on; blocks may overlap.
            at = BLOCK - to.addr() % BLOCK;
            if at < 3 {
                copy!(4);
                step!(4);
                at += BLOCK;
            }
        }
        while at + 4 * BLOCK <= len {
            let blocks = [0, 1, 2, 3].map(|idx| block(from.add(at + BLOCK * idx)));
            if COPY {
                for (idx, block) in blocks.into_iter().enumerate() {
                    _mm256_storeu_si256(to.add(at + BLOCK * idx).cast(), block);
                }
            }
            let any =
                _mm256_or_si256(_mm256_or_si256(blocks[0], blocks[1]), _mm256_or_si256(blocks[2], blocks[3]));
            if _mm256_movemask_epi8(any) != 0 {
                step!(at);
                step!(at + BLOCK);
                step!(at + 2 * BLOCK);
                step!(at + 3 * BLOCK);
            } else if is_open(from.add(at)) {
                return false;
            }
            at += 4 * BLOCK;
        }
        while at < len {
            at = at.min(len - BLOCK);
            copy!(at);
            step!(at);
            at += BLOCK;
        }
        _mm256_testz_si256(error, error) != 0 && !is_open(from.add(len))
    }
}
