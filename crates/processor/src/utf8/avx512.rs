//! Hot module: the UTF-8 test 64 bytes at a time, with AVX-512.

use super::nibbles::{FIRST_HIGH, FIRST_LOW, SECOND_HIGH};
use std::arch::x86_64::*;

/// Whether the processor has what [`check`] needs. (An atomic load after the first time.)
#[inline(always)]
pub(super) fn available() -> bool {
    !cfg!(miri) && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

/// Places of the bytes of `before` (0 to 63) and of the current 64 (64 to 127), moved by `back` bytes.
const fn moved(back: u8) -> [u8; 64] {
    let mut t = [0; 64];
    let mut at = 0;
    while at < 64 {
        t[at] = 64 + at as u8 - back;
        at += 1;
    }
    t
}
static MOVED: [[u8; 64]; 3] = [moved(1), moved(2), moved(3)];

/// The last bytes that a block may end with when the text ends there.
static LAST: [u8; 64] = {
    let mut t = [0xff; 64];
    (t[61], t[62], t[63]) = (0xef, 0xdf, 0xbf);
    t
};

struct State {
    before: __m512i,
    error: __m512i,
    moved: [__m512i; 3],
    first_high: __m512i,
    first_low: __m512i,
    second_high: __m512i,
}

impl State {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new() -> State {
        let spread = |table: &[u8; 16]| {
            _mm512_broadcast_i32x4(_mm_set_epi64x(
                i64::from_le_bytes(table[8..].try_into().expect("eight bytes")),
                i64::from_le_bytes(table[..8].try_into().expect("eight bytes")),
            ))
        };
        State {
            before: _mm512_setzero_si512(),
            error: _mm512_setzero_si512(),
            moved: [whole(&MOVED[0]), whole(&MOVED[1]), whole(&MOVED[2])],
            first_high: spread(&FIRST_HIGH),
            first_low: spread(&FIRST_LOW),
            second_high: spread(&SECOND_HIGH),
        }
    }

    /// Looks at the next 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn next(&mut self, block: __m512i) {
        let nibble = _mm512_set1_epi8(0x0f);
        let back = |by: usize| _mm512_permutex2var_epi8(self.before, self.moved[by - 1], block);
        let first = back(1);
        let high = |bytes| _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble);
        let wrong = _mm512_and_si512(
            _mm512_and_si512(
                _mm512_shuffle_epi8(self.first_high, high(first)),
                _mm512_shuffle_epi8(self.first_low, _mm512_and_si512(first, nibble)),
            ),
            _mm512_shuffle_epi8(self.second_high, high(block)),
        );
        // The high bit stays where a three- or four-byte character asks for a continuation here.
        let third = _mm512_subs_epu8(back(2), _mm512_set1_epi8(0xe0u8.wrapping_sub(0x80) as i8));
        let fourth = _mm512_subs_epu8(back(3), _mm512_set1_epi8(0xf0u8.wrapping_sub(0x80) as i8));
        let due = _mm512_and_si512(_mm512_or_si512(third, fourth), _mm512_set1_epi8(0x80u8 as i8));
        self.error = _mm512_or_si512(self.error, _mm512_xor_si512(due, wrong));
        self.before = block;
    }

    /// Whether a character is not complete at the end of the last block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn is_open(&self) -> bool {
        _mm512_cmpgt_epu8_mask(self.before, whole(&LAST)) != 0
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn whole(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are there.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Whether `len` bytes at `from` are UTF-8; `COPY`: writes them to `to`, too.
///
/// # Safety
/// `len` bytes are readable at `from`; `COPY`: and can be written at `to`, apart from the others. The
/// processor is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn check<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> bool {
    let mut state = State::new();
    let mut at = 0;
    // SAFETY: blocks lie below `len`, the last one is masked to what is left. Noticed by
    // `agrees_with_the_standard_library`.
    unsafe {
        // Four blocks a turn while all is ASCII.
        while at + 256 <= len {
            let blocks = [0, 64, 128, 192].map(|off| _mm512_loadu_si512(from.add(at + off).cast()));
            if COPY {
                for (idx, block) in blocks.iter().enumerate() {
                    _mm512_storeu_si512(to.add(at + 64 * idx).cast(), *block);
                }
            }
            let any =
                _mm512_or_si512(_mm512_or_si512(blocks[0], blocks[1]), _mm512_or_si512(blocks[2], blocks[3]));
            if _mm512_movepi8_mask(any) != 0 {
                blocks.into_iter().for_each(|block| state.next(block));
            } else if state.is_open() {
                return false;
            } else {
                state.before = blocks[3];
            }
            at += 256;
        }
        while at + 64 <= len {
            let block = _mm512_loadu_si512(from.add(at).cast());
            if COPY {
                _mm512_storeu_si512(to.add(at).cast(), block);
            }
            if _mm512_movepi8_mask(block) != 0 {
                state.next(block);
            } else {
                if state.is_open() {
                    return false;
                }
                state.before = block;
            }
            at += 64;
        }
        if at < len {
            let mask = !0u64 >> (64 - (len - at));
            let block = _mm512_maskz_loadu_epi8(mask, from.add(at).cast());
            if COPY {
                _mm512_mask_storeu_epi8(to.add(at).cast(), mask, block);
            }
            state.next(block);
        }
    }
    _mm512_test_epi8_mask(state.error, state.error) == 0 && !state.is_open()
}
