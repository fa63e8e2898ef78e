//! Hot module: copying long strings.
//!
//! From about two thousand bytes on, C libraries copy with `rep movsb` where the processor claims to be quick at it. On
//! some it is quick only for certain distances between source and target within a page, else up to 40 times slower
//! (AMD Zen 3; docs/adr/0014-copies-and-checks-of-strings.md has figures). Strings lie at any distance, so there plain
//! wide loads and stores do it, in pieces that are aligned where they are written. On others, Intel's among them, the
//! library's copy is the quicker one (docs/adr/0024-the-rows-that-were-missed.md).

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// From here on [`long`] copies by itself, where that is quicker.
#[cfg(target_arch = "x86_64")]
const FROM: usize = 1024;
/// Beyond, the library's copy knows better what to do with the caches.
#[cfg(target_arch = "x86_64")]
const TO: usize = 1 << 20;

/// Whether this is one of AMD's processors, with AVX.
#[cfg(target_arch = "x86_64")]
static WIDE_IS_QUICKER: LazyLock<bool> = LazyLock::new(|| {
    if cfg!(miri) || !is_x86_feature_detected!("avx") {
        return false;
    }
    // SAFETY: every x86-64 has this instruction and this leaf, where the maker's name stands. (Newer compilers call it safe.)
    #[allow(unused_unsafe)]
    let maker = unsafe { std::arch::x86_64::__cpuid(0) };
    let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat();
    matches!(&name[..], b"AuthenticAMD" | b"HygonGenuine")
});

/// Copies `len` bytes, any number.
///
/// # Safety
/// `len` bytes are readable at `from` and can be written at `to`; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the wide form only where the processor has it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if (FROM..=TO).contains(&len) && *WIDE_IS_QUICKER {
            return wide(from, to, len);
        }
        to.copy_from_nonoverlapping(from, len);
    }
}

/// # Safety
/// As [`long`]; at least 32 bytes; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx")]
unsafe fn wide(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256};
    const BLOCK: usize = 32;
    // SAFETY: every piece lies within `len`; pieces overlap at both ends, where the target is not aligned; between,
    // `to + at` is a multiple of 32. Noticed by `copies_what_memcpy_copies`.
    unsafe {
        let load = |at: usize| _mm256_loadu_si256(from.add(at).cast());
        _mm256_storeu_si256(to.cast(), load(0));
        let mut at = BLOCK - to.addr() % BLOCK;
        while at + 4 * BLOCK <= len {
            let blocks = [0, 1, 2, 3].map(|idx| load(at + BLOCK * idx));
            for (idx, block) in blocks.into_iter().enumerate() {
                _mm256_store_si256(to.add(at + BLOCK * idx).cast(), block);
            }
            at += 4 * BLOCK;
        }
        while at + BLOCK <= len {
            _mm256_store_si256(to.add(at).cast(), load(at));
            at += BLOCK;
        }
        _mm256_storeu_si256(to.add(len - BLOCK).cast(), load(len - BLOCK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_what_memcpy_copies() {
        let from: Vec<u8> = (0..5000usize).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut to = vec![0u8; 5000];
        for len in (0..70).chain(1020..1400).chain([4096, 4800]) {
            for (off, start) in [(0, 0), (1, 3), (31, 32), (64, 33), (100, 63)] {
                to.fill(0xee);
                // SAFETY: 4800 bytes and 100 before them are less than 5000.
                unsafe { long(from.as_ptr().add(off), to.as_mut_ptr().add(start), len) };
                let check = |to: &[u8]| {
                    assert_eq!(to[start..start + len], from[off..off + len], "{len} bytes to {start}");
                    assert!(to[..start].iter().chain(&to[start + len..]).all(|byte| *byte == 0xee));
                };
                check(&to);
                // On a processor that prefers the library's copy, nothing else would try this form.
                #[cfg(target_arch = "x86_64")]
                if len >= FROM && !cfg!(miri) && is_x86_feature_detected!("avx") {
                    to.fill(0xee);
                    // SAFETY: as above, and there is AVX.
                    unsafe { wide(from.as_ptr().add(off), to.as_mut_ptr().add(start), len) };
                    check(&to);
                }
            }
        }
    }
}
