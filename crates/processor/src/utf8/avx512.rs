//! Hot module: the UTF-8 test 64 bytes at a time, with AVX-512.
//!
//! The bytes before each byte are loaded again from one, two and three places further down, as in `avx2`. Look-ups take
//! six bits of each byte, so that no bits have to be cleared: of a byte shifted right by two the high nibble is in them.

use super::nibbles::{FIRST_HIGH, FIRST_LOW, SECOND_HIGH};
use std::arch::x86_64::*;

const BLOCK: usize = 64;
/// From here on the copy is written at aligned places.
const ALIGNED_FROM: usize = 8 * BLOCK;

/// Whether the processor has what [`check`] needs. (An atomic load after the first time.)
#[inline(always)]
pub(super) fn available() -> bool {
    !cfg!(miri) && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

/// A table by nibble, looked up by six bits of which these are the nibble: `index >> shift & 15`.
const fn by_six_bits(table: &[u8; 16], shift: u32) -> [u8; BLOCK] {
    let mut t = [0; BLOCK];
    let mut at = 0;
    while at < BLOCK {
        t[at] = table[at >> shift & 15];
        at += 1;
    }
    t
}
static TABLES: [[u8; BLOCK]; 3] =
    [by_six_bits(&FIRST_HIGH, 2), by_six_bits(&FIRST_LOW, 0), by_six_bits(&SECOND_HIGH, 2)];

#[derive(Clone, Copy)]
struct Tables {
    first_high: __m512i,
    first_low: __m512i,
    second_high: __m512i,
}

impl Tables {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new() -> Tables {
        // SAFETY: each table has 64 bytes.
        let [first_high, first_low, second_high] =
            [0, 1, 2].map(|idx: usize| unsafe { _mm512_loadu_si512(TABLES[idx].as_ptr().cast()) });
        Tables { first_high, first_low, second_high }
    }

    /// Not zero where a byte of `block` is wrong behind the one, two and three bytes before it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn wrong(self, block: __m512i, back: [__m512i; 3]) -> __m512i {
        let wrong = _mm512_and_si512(
            _mm512_and_si512(
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(back[0]), self.first_high),
                _mm512_permutexvar_epi8(back[0], self.first_low),
            ),
            _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(block), self.second_high),
        );
        // The high bit stays where a three- or four-byte character asks for a continuation here.
        let third = _mm512_subs_epu8(back[1], _mm512_set1_epi8(0xe0u8.wrapping_sub(0x80) as i8));
        let fourth = _mm512_subs_epu8(back[2], _mm512_set1_epi8(0xf0u8.wrapping_sub(0x80) as i8));
        let due = _mm512_and_si512(_mm512_or_si512(third, fourth), _mm512_set1_epi8(0x80u8 as i8));
        _mm512_xor_si512(due, wrong)
    }

    /// [`Tables::wrong`] of the `lanes` of the block at `at`; `inner` says of each byte whether there is one before it.
    ///
    /// # Safety
    /// The `lanes` are readable at `at`, and so is the byte before each that is `inner`, and before that one, and again.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn wrong_in(self, at: *const u8, lanes: u64, inner: bool) -> __m512i {
        // SAFETY: the caller's promise; lanes that are masked out are not read.
        unsafe {
            let load = |back: usize| {
                let there = if inner { lanes } else { lanes & !0 << back };
                _mm512_maskz_loadu_epi8(there, at.wrapping_sub(back).cast())
            };
            self.wrong(load(0), [load(1), load(2), load(3)])
        }
    }

    /// [`Tables::wrong`] of the block at `at`.
    ///
    /// # Safety
    /// Three bytes before `at` and 64 from it are readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn wrong_at(self, at: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { self.wrong(block(at), [block(at.sub(1)), block(at.sub(2)), block(at.sub(3))]) }
    }
}

/// # Safety
/// 64 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn block(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Whether a character is not complete at the end of the first `len` bytes.
///
/// # Safety
/// `len` bytes are readable at `from`.
#[inline(always)]
unsafe fn is_open(from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    let reaches = |back: usize, lead: u8| len >= back && unsafe { *from.add(len - back) } >= lead;
    reaches(1, 0xc0) || reaches(2, 0xe0) || reaches(3, 0xf0)
}

/// Whether `len` bytes at `from` are UTF-8; `COPY`: writes them to `to`, too.
///
/// # Safety
/// `len` bytes are readable at `from`; `COPY`: and can be written at `to`, apart from the others. The
/// processor is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn check<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> bool {
    let tables = Tables::new();
    // SAFETY: blocks lie below `len`, the first and the last masked to what is there; all but the first have three bytes
    // before them. Noticed by `every_length_and_every_cut` and the tests beside it.
    unsafe {
        let lanes = |at: usize| if len - at < BLOCK { !(!0 << (len - at)) } else { !0 };
        macro_rules! copy {
            ($at:expr, $lanes:expr) => {
                if COPY {
                    let block = _mm512_maskz_loadu_epi8($lanes, from.add($at).cast());
                    _mm512_mask_storeu_epi8(to.add($at).cast(), $lanes, block);
                }
            };
        }
        copy!(0, lanes(0));
        let mut error = tables.wrong_in(from, lanes(0), false);
        macro_rules! step {
            ($at:expr) => {
                error = _mm512_or_si512(error, tables.wrong_at(from.add($at)))
            };
        }
        let mut at = BLOCK;
        if COPY && len >= ALIGNED_FROM {
            // Whole blocks from an aligned address of the copy on; blocks may overlap.
            at = BLOCK - to.addr() % BLOCK;
            if at < 3 {
                copy!(4, !0);
                step!(4);
                at += BLOCK;
            }
        }
        // Four blocks a turn, which are only copied if all is ASCII.
        while at + 4 * BLOCK <= len {
            let blocks = [0, 1, 2, 3].map(|idx| block(from.add(at + BLOCK * idx)));
            if COPY {
                for (idx, block) in blocks.into_iter().enumerate() {
                    _mm512_storeu_si512(to.add(at + BLOCK * idx).cast(), block);
                }
            }
            let (low, high) = (_mm512_or_si512(blocks[0], blocks[1]), _mm512_or_si512(blocks[2], blocks[3]));
            if _mm512_movepi8_mask(_mm512_or_si512(low, high)) != 0 {
                step!(at);
                step!(at + BLOCK);
                step!(at + 2 * BLOCK);
                step!(at + 3 * BLOCK);
            } else if is_open(from, at) {
                return false;
            }
            at += 4 * BLOCK;
        }
        while at < len {
            copy!(at, lanes(at));
            error = _mm512_or_si512(error, tables.wrong_in(from.add(at), lanes(at), true));
            at += BLOCK;
        }
        _mm512_test_epi8_mask(error, error) == 0 && !is_open(from, len)
    }
}
