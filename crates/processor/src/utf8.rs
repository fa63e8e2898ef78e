//! Hot module: the UTF-8 test, alone or while a string is copied.
//!
//! Short ASCII is recognised by its high bits. The rest goes through 64 bytes at a time where the processor has
//! AVX-512 with byte permutation, 32 bytes at a time where it has AVX2, else through `simdutf8`. All follow Keiser and
//! Lemire, "Validating UTF-8 in less than one instruction per byte" (2021): three look-ups by nibble tell what may
//! follow what. The first two are here since they check a string while they copy it, and short strings without ado.
//!
//! Callers promise what can be read and written; wide forms run only where the processor was asked for them. Noticed by the
//! tests at the end, which run all forms over strings of every length, with nothing readable behind them, too.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod nibbles;

use crate::copy;

/// Whether the processor has AVX-512 with byte permutation, and so runs it at full speed.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_wide() -> bool {
    avx512::available()
}

/// Whether `len` bytes at `from` are UTF-8. `readable` bytes can be read there, at least `len`.
///
/// # Safety
/// As said; and all `readable` bytes are initialised.
#[inline(always)]
pub(crate) unsafe fn check(from: *const u8, len: usize, readable: usize) -> bool {
    // SAFETY: 32 or 64 bytes are readable where they are read; otherwise `len` are.
    unsafe {
        if len <= 32 && readable >= 32 && high_bits(from) & ((1u64 << len) - 1) == 0 {
            return true;
        }
        if len > 32 && len <= 64 && readable >= 64 && is_ascii(from, len) {
            return true;
        }
        check_long(from, len, readable)
    }
}

/// Whether the part of `bytes` that begins at `off` and is `len` long is UTF-8; false if there is no such part.
#[inline(always)]
pub(crate) fn is_text(bytes: &[u8], off: usize, len: usize) -> bool {
    match bytes.get(off..) {
        // SAFETY: the slice is what can be read, and all of it is initialised; `len` of it are there. Noticed by the forms'
        // test below.
        Some(rest) if len <= rest.len() => unsafe { check(rest.as_ptr(), len, rest.len()) },
        _ => false,
    }
}

/// Copies `len` bytes from `from` to `to`; whether they are UTF-8. What is not may be copied in part. `MEDIUM`: up to 64 bytes
/// are expected, not 32.
///
/// # Safety
/// As [`check`]; `max(len, 64)` bytes at `to` can be written and do not overlap the others.
#[inline(always)]
pub(crate) unsafe fn copy_checked<const MEDIUM: bool>(
    from: *const u8,
    to: *mut u8,
    len: usize,
    readable: usize,
) -> bool {
    // SAFETY: the caller's promises.
    unsafe {
        if len <= 32 && readable >= 32 {
            to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
            return high_bits(from) & ((1u64 << len) - 1) == 0 || check_long(from, len, readable);
        }
        if MEDIUM && len <= 64 && readable >= 64 {
            to.cast::<[u64; 8]>().write_unaligned(from.cast::<[u64; 8]>().read_unaligned());
            return is_ascii(from, len) || check_long(from, len, readable);
        }
        copy_long(from, to, len, readable)
    }
}

/// Copies a string that is long, not ASCII, or near the end of the input; false if it is to be UTF-8 and is not. (Apart
/// and out of line, so that the loop which calls it keeps its registers.)
///
/// # Safety
/// `len` and `readable` bytes are readable at `from`, `len` can be written at `to`; they do not overlap.
#[cold]
#[inline(never)]
pub(crate) unsafe fn copy_far<const UTF8: bool>(
    from: *const u8,
    to: *mut u8,
    len: usize,
    readable: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if UTF8 {
            return copy_long(from, to, len, readable);
        }
        copy::long(from, to, len);
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
/// `len` and `readable` bytes are readable at `from`.
#[inline(never)]
unsafe fn check_long(from: *const u8, len: usize, readable: usize) -> bool {
    // SAFETY: the caller's promise; the wide forms only where the processor has them.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if avx512::available() {
            return avx512::check::<false>(from, std::ptr::null_mut(), len);
        } else if avx2::available() {
            return avx2::check::<false>(from, std::ptr::null_mut(), len, readable);
        }
        let _ = readable;
        simdutf8::basic::from_utf8(std::slice::from_raw_parts(from, len)).is_ok()
    }
}

/// # Safety
/// `len` and `readable` bytes are readable at `from`, `len` can be written at `to`; they do not overlap.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize, readable: usize) -> bool {
    // SAFETY: as in `check_long`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if avx512::available() {
            return avx512::check::<true>(from, to, len);
        } else if avx2::available() {
            return avx2::check::<true>(from, to, len, readable);
        }
        copy::long(from, to, len);
        check_long(from, len, readable)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether the bytes are UTF-8, as every form here says; they must agree.
    fn verdict(bytes: &[u8]) -> bool {
        let len = bytes.len();
        let mut padded = bytes.to_vec();
        padded.resize(len + 64, 0xff);
        let mut copy = vec![0; len + 64];
        // SAFETY: `padded` and `copy` have 64 bytes more than `len`.
        unsafe {
            let verdict = check(padded.as_ptr(), len, len + 32);
            assert_eq!(check(bytes.as_ptr(), len, len), verdict);
            let within = [b"\xff", bytes, b"\xff"].concat();
            assert_eq!(is_text(&within, 1, len), verdict);
            assert!(!is_text(&within, 1, len + 2) && !is_text(&within, len + 3, 0));
            for readable in [len, len + 32, len + 64] {
                for form in [copy_checked::<false>, copy_checked::<true>] {
                    copy.fill(0);
                    assert_eq!(form(padded.as_ptr(), copy.as_mut_ptr(), len, readable), verdict);
                    assert!(!verdict || copy[..len] == *bytes);
                }
                // Where AVX-512 is there, nothing else would try this form.
                #[cfg(target_arch = "x86_64")]
                if avx2::available() {
                    for start in [0, 1, 30, 31] {
                        copy.fill(0);
                        let to = copy.as_mut_ptr().add(start);
                        assert_eq!(avx2::check::<true>(padded.as_ptr(), to, len, readable), verdict);
                        assert!(!verdict || copy[start..start + len] == *bytes);
                        assert!(copy[start + len..].iter().all(|byte| *byte == 0), "written behind the copy");
                    }
                    let nowhere = std::ptr::null_mut();
                    assert_eq!(avx2::check::<false>(padded.as_ptr(), nowhere, len, readable), verdict);
                }
            }
            verdict
        }
    }

    #[test]
    fn every_length_and_every_cut() {
        let text = "aé€😀zߘ\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}".repeat(12);
        // Miri has one form only, and takes its time: lengths around each block's end.
        let is_tried = |len: &usize| !cfg!(miri) || *len < 140 && matches!(len % 32, 0..=1 | 27..);
        for len in (0..text.len()).filter(is_tried) {
            let bytes = &text.as_bytes()[..len];
            assert_eq!(verdict(bytes), std::str::from_utf8(bytes).is_ok(), "{len}");
        }
        for len in (0..400).filter(is_tried) {
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
        // Under Miri the ends of the ranges that the standard tells apart, at one seam.
        let is_lead =
            |byte: &u8| !cfg!(miri) || matches!(byte, 0x80 | 0xc1 | 0xdf | 0xe0 | 0xed | 0xf0 | 0xf4 | 0xf5);
        let is_second =
            |byte: &u8| !cfg!(miri) || matches!(byte, 0x7f | 0x80 | 0x8f | 0x90 | 0x9f | 0xa0 | 0xbf | 0xc0);
        let seams: &[usize] = if cfg!(miri) { &[31] } else { &[0, 31, 32, 63] };
        for first in (0x80..=0xffu8).filter(is_lead) {
            // Ranges begin and end with a high nibble.
            for second in (0..=0xffu8).filter(|byte| matches!(byte & 15, 0 | 15)).filter(is_second) {
                for rest in [&b"aa"[..], b"\x80a", b"\x80\x80"] {
                    for &at in seams {
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
