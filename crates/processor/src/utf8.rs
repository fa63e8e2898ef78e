//! Hot module: the UTF-8 test, alone or while a string is copied.
//!
//! Short ASCII is recognised by its high bits. The rest goes through 64 bytes at a time where the processor has
//! AVX-512 with byte permutation, else through `simdutf8`. The wide form follows Keiser and Lemire, "Validating
//! UTF-8 in less than one instruction per byte" (2021): three look-ups by nibble tell what may follow what.

/// Whether `len` bytes at `from` are UTF-8. `readable` bytes can be read there, at least `len`.
///
/// # Safety
/// As said; and all `readable` bytes are initialised.
#[inline(always)]
pub(crate) unsafe fn check(from: *const u8, len: usize, readable: usize) -> bool {
    // SAFETY: 32 bytes are readable where they are read; otherwise `len` are.
    unsafe {
        if len <= 32 && readable >= 32 && high_bits(from) & ((1u64 << len) - 1) == 0 {
            return true;
        }
        check_long(from, len)
    }
}

/// Copies `len` bytes from `from` to `to`; whether they are UTF-8. What is not may be copied in part.
///
/// # Safety
/// As [`check`]; `max(len, 32)` bytes at `to` can be written and do not overlap the others.
#[inline(always)]
pub(crate) unsafe fn copy_checked(from: *const u8, to: *mut u8, len: usize, readable: usize) -> bool {
    // SAFETY: the caller's promises.
    unsafe {
        if len <= 32 && readable >= 32 {
            to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
            return high_bits(from) & ((1u64 << len) - 1) == 0 || check_long(from, len);
        }
        copy_long(from, to, len)
    }
}

/// Copies a string that is long, or near the end of the input; false if it is to be UTF-8 and is not. (Apart and
/// out of line, so that the loop which calls it keeps its registers.)
///
/// # Safety
/// `len` bytes are readable at `from` and can be written at `to`; they do not overlap.
#[cold]
#[inline(never)]
pub(crate) unsafe fn copy_far<const UTF8: bool>(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if UTF8 {
            return copy_long(from, to, len);
        }
        to.copy_from_nonoverlapping(from, len);
    }
    true
}

/// Whether `len <= 64` bytes at `from` are ASCII.
///
/// # Safety
/// 64 bytes are readable at `from`.
#[inline(always)]
pub(crate) unsafe fn is_ascii(from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let low = high_bits(from);
        if len <= 32 {
            return low & ((1 << len) - 1) == 0;
        }
        let bits = low | high_bits(from.add(32)) << 32;
        bits << (64 - len as u32) == 0
    }
}

/// # Safety
/// `len` bytes are readable at `from`.
#[inline(never)]
unsafe fn check_long(from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise; the wide form only where the processor has it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if wide::available() {
            return wide::check::<false>(from, std::ptr::null_mut(), len);
        }
        simdutf8::basic::from_utf8(std::slice::from_raw_parts(from, len)).is_ok()
    }
}

/// # Safety
/// `len` bytes are readable at `from` and can be written at `to`; they do not overlap.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: as in `check_long`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if wide::available() {
            return wide::check::<true>(from, to, len);
        }
        to.copy_from_nonoverlapping(from, len);
        check_long(from, len)
    }
}

/// The highest bit of each of 32 bytes.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn high_bits(at: *const u8) -> u64 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8};
    // SAFETY: the caller has 32 readable bytes; SSE2 belongs to every x86-64.
    unsafe {
        let low = _mm_movemask_epi8(_mm_loadu_si128(at.cast())) as u32;
        let high = _mm_movemask_epi8(_mm_loadu_si128(at.add(16).cast())) as u32;
        u64::from(low | high << 16)
    }
}

/// The highest bit of each of 32 bytes.
///
/// # Safety
/// 32 bytes are readable at `at`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn high_bits(at: *const u8) -> u64 {
    let mut bits = 0;
    for word in 0..4 {
        // SAFETY: the caller has 32 readable bytes.
        let w = unsafe { crate::varint::load64(at.add(8 * word)) } & 0x8080_8080_8080_8080;
        bits |= ((w >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * word);
    }
    bits
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// Whether the processor has what [`check`] needs. (An atomic load after the first time.)
    #[inline(always)]
    pub(super) fn available() -> bool {
        !cfg!(miri) && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
    }

    // What two bytes in a row can do wrong, one bit each. An error is a bit that all three look-ups give.
    /// A lead byte without its continuation.
    const TOO_SHORT: u8 = 1;
    /// A continuation after ASCII.
    const TOO_LONG: u8 = 1 << 1;
    /// E0 and less than A0.
    const OVERLONG_3: u8 = 1 << 2;
    /// F4 and more than 8F, or F5 and beyond.
    const TOO_LARGE: u8 = 1 << 3;
    /// ED and more than 9F.
    const SURROGATE: u8 = 1 << 4;
    /// C0 or C1.
    const OVERLONG_2: u8 = 1 << 5;
    /// F0 and less than 90; F5 and beyond with such a byte share the bit.
    const OVERLONG_4: u8 = 1 << 6;
    /// Two continuations in a row: an error unless the second or third byte before asks for it.
    const TWO_CONTS: u8 = 1 << 7;
    const ANY_LOW: u8 = TOO_SHORT | TOO_LONG | TWO_CONTS;

    /// By the high nibble of the first byte.
    const FIRST_HIGH: [u8; 16] = {
        let mut t = [TOO_LONG; 16];
        (t[8], t[9], t[10], t[11]) = (TWO_CONTS, TWO_CONTS, TWO_CONTS, TWO_CONTS);
        t[12] = TOO_SHORT | OVERLONG_2;
        t[13] = TOO_SHORT;
        t[14] = TOO_SHORT | OVERLONG_3 | SURROGATE;
        t[15] = TOO_SHORT | TOO_LARGE | OVERLONG_4;
        t
    };
    /// By the low nibble of the first byte.
    const FIRST_LOW: [u8; 16] = {
        let mut t = [ANY_LOW | TOO_LARGE | OVERLONG_4; 16];
        t[0] = ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4;
        t[1] = ANY_LOW | OVERLONG_2;
        (t[2], t[3]) = (ANY_LOW, ANY_LOW);
        t[4] = ANY_LOW | TOO_LARGE;
        t[13] |= SURROGATE;
        t
    };
    /// By the high nibble of the second byte.
    const SECOND_HIGH: [u8; 16] = {
        let mut t = [TOO_SHORT; 16];
        let cont = TOO_LONG | OVERLONG_2 | TWO_CONTS;
        t[8] = cont | OVERLONG_3 | OVERLONG_4;
        t[9] = cont | OVERLONG_3 | TOO_LARGE;
        (t[10], t[11]) = (cont | SURROGATE | TOO_LARGE, cont | SURROGATE | TOO_LARGE);
        t
    };

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
                let any = _mm512_or_si512(
                    _mm512_or_si512(blocks[0], blocks[1]),
                    _mm512_or_si512(blocks[2], blocks[3]),
                );
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether the bytes are UTF-8, as every form here says; they must agree.
    fn verdict(bytes: &[u8]) -> bool {
        let len = bytes.len();
        let mut padded = bytes.to_vec();
        padded.resize(len + 32, 0xff);
        let mut copy = vec![0; len + 32];
        // SAFETY: `padded` and `copy` have 32 bytes more than `len`.
        unsafe {
            let verdict = check(padded.as_ptr(), len, len + 32);
            assert_eq!(check(bytes.as_ptr(), len, len), verdict);
            for readable in [len, len + 32] {
                assert_eq!(copy_checked(padded.as_ptr(), copy.as_mut_ptr(), len, readable), verdict);
                assert!(!verdict || copy[..len] == *bytes);
            }
            verdict
        }
    }

    #[test]
    fn every_length_and_every_cut() {
        let text = "aé€😀zߘ\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}".repeat(12);
        for len in 0..text.len() {
            let bytes = &text.as_bytes()[..len];
            assert_eq!(verdict(bytes), std::str::from_utf8(bytes).is_ok(), "{len}");
        }
        for len in 0..200 {
            assert!(verdict(&vec![b'a'; len]));
            let mut bytes = vec![b'a'; len + 1];
            bytes[len] = 0xc3;
            assert!(!verdict(&bytes));
            bytes.extend([b'a'; 130]);
            assert!(!verdict(&bytes), "an open character before ASCII, at {len}");
        }
    }

    #[test]
    fn every_pair_and_every_lead_at_the_seam_of_two_blocks() {
        for first in 0x80..=0xffu8 {
            for second in 0..=0xffu8 {
                for rest in [&b"aa"[..], b"\x80a", b"\x80\x80"] {
                    for at in [0, 63] {
                        let bytes = [&vec![b'x'; at][..], &[first, second], rest, &[b'y'; 70]].concat();
                        assert_eq!(verdict(&bytes), std::str::from_utf8(&bytes).is_ok(), "{bytes:x?}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(text: String, at: prop::sample::Index, byte: u8, times in 1usize..20) {
            let mut bytes = text.repeat(times).into_bytes();
            prop_assert!(verdict(&bytes));
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                prop_assert_eq!(verdict(&bytes), std::str::from_utf8(&bytes).is_ok());
            }
        }
    }
}
