//! Hot module: copying long strings.
//!
//! From about two thousand bytes on, C libraries copy with `rep movsb` where the processor claims to be quick at it. On
//! some it is quick only for certain distances between source and target within a page, else up to 40 times slower
//! (AMD Zen 3). Strings lie at any distance, so there plain wide loads and stores do it, in pieces that are aligned where
//! they are written. On others, Intel's among them, the library's copy is the quicker one, unless there is AVX-512. Then
//! wide pieces are quicker for what begins and ends in the nearest cache, and, with lines asked for ahead, for what does
//! not fit there. docs/internals/codec.md has the figures.

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// What [`long`] copies in pieces of 64 bytes, if there is AVX-512: it begins and ends in the nearest cache.
#[cfg(target_arch = "x86_64")]
const IN_64: std::ops::RangeInclusive<usize> = 256..=1 << 14;
/// What it copies so while asking for the lines ahead. (Between the two, source and target are just what the nearest cache
/// holds, and the library's copy, whose stores need not fetch a line first, is the quicker one.)
#[cfg(target_arch = "x86_64")]
const IN_64_AHEAD: std::ops::RangeInclusive<usize> = 23 << 10..=1 << 20;
/// What it copies in pieces of 32 bytes on AMD's processors; of longer ones the library knows better what to do with the
/// caches.
#[cfg(target_arch = "x86_64")]
const IN_32: std::ops::RangeInclusive<usize> = 1024..=1 << 20;

/// Whether this is one of AMD's processors.
#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: every x86-64 has this instruction and this leaf, where the maker's name stands. (Newer compilers call it safe.)
    #[allow(unused_unsafe)]
    let maker = unsafe { std::arch::x86_64::__cpuid(0) };
    let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat();
    matches!(&name[..], b"AuthenticAMD" | b"HygonGenuine")
}

/// Whether to copy in pieces of 64, and in pieces of 32 bytes. (Processors with byte permutation run AVX-512 at full
/// speed.)
#[cfg(target_arch = "x86_64")]
static QUICKER: LazyLock<(bool, bool)> = LazyLock::new(|| {
    let in_64 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vbmi") && !cfg!(miri);
    (in_64, is_x86_feature_detected!("avx") && is_amd())
});

/// Whether the processor has instructions that gather and spread bits (BMI), and runs them quickly: those of AMD's that
/// lack VAES take up to 250 cycles for one.
#[cfg(target_arch = "x86_64")]
pub(crate) static QUICK_BITS: LazyLock<bool> = LazyLock::new(|| {
    let has = is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt");
    has && (is_x86_feature_detected!("vaes") || !is_amd()) && !cfg!(miri)
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
        if len >= *IN_64.start() && len <= *IN_32.end() {
            let (in_64, in_32) = *QUICKER;
            if in_64 && IN_64.contains(&len) {
                return wider::<false>(from, to, len);
            }
            if in_64 && IN_64_AHEAD.contains(&len) {
                return wider::<true>(from, to, len);
            }
            if in_32 && IN_32.contains(&len) {
                return wide(from, to, len);
            }
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

/// # Safety
/// As [`long`]; at least 64 bytes; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx512f")]
unsafe fn wider<const ASK: bool>(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_store_si512, _mm512_storeu_si512};
    const BLOCK: usize = 64;
    /// Distance at which lines are asked for. Nothing is read there, so it may lie behind the end.
    const AHEAD: usize = 512;
    // SAFETY: as in `wide`, with 64 for 32.
    unsafe {
        let load = |at: usize| _mm512_loadu_si512(from.add(at).cast());
        let last = load(len - BLOCK);
        _mm512_storeu_si512(to.cast(), load(0));
        let mut at = BLOCK - to.addr() % BLOCK;
        while at + 4 * BLOCK <= len {
            if ASK {
                for idx in 0..4 {
                    let ahead = at + AHEAD + BLOCK * idx;
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead).cast());
                    _mm_prefetch::<_MM_HINT_T0>(to.wrapping_add(ahead).cast_const().cast());
                }
            }
            let blocks = [0, 1, 2, 3].map(|idx| load(at + BLOCK * idx));
            for (idx, block) in blocks.into_iter().enumerate() {
                _mm512_store_si512(to.add(at + BLOCK * idx).cast(), block);
            }
            at += 4 * BLOCK;
        }
        while at + BLOCK <= len {
            _mm512_store_si512(to.add(at).cast(), load(at));
            at += BLOCK;
        }
        _mm512_storeu_si512(to.add(len - BLOCK).cast(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_what_memcpy_copies() {
        // Miri takes its time, and has one form only.
        let (few, some, more, many) = match cfg!(miri) {
            true => (0..20, 250..252, 1020..1022, &[2000][..]),
            false => (
                0..70,
                250..600,
                1020..1400,
                &[4096, 4800, 16_384, 16_385, 23_551, 23_552, 30_001, 40_800][..],
            ),
        };
        let room = if cfg!(miri) { 2200 } else { 41_000 };
        let from: Vec<u8> = (0..room).map(|at: usize| (at * 7 + at / 251) as u8).collect();
        let (mut to, clean) = (vec![0u8; room], vec![0xeeu8; room]);
        for len in few.chain(some).chain(more).chain(many.iter().copied()) {
            for (off, start) in [(0, 0), (1, 3), (31, 32), (64, 33), (100, 63)] {
                to.fill(0xee);
                // SAFETY: the longest and 100 bytes before it are less than the room.
                unsafe { long(from.as_ptr().add(off), to.as_mut_ptr().add(start), len) };
                let check = |to: &[u8]| {
                    assert_eq!(to[start..start + len], from[off..off + len], "{len} bytes to {start}");
                    assert!(to[..start] == clean[..start] && to[start + len..] == clean[start + len..]);
                };
                check(&to);
                // A processor that prefers another form would not try these.
                #[cfg(target_arch = "x86_64")]
                if len >= 64 && !cfg!(miri) {
                    let mut try_form = |form: unsafe fn(*const u8, *mut u8, usize)| {
                        to.fill(0xee);
                        // SAFETY: as above, and the processor has what the form needs.
                        unsafe { form(from.as_ptr().add(off), to.as_mut_ptr().add(start), len) };
                        check(&to);
                    };
                    if is_x86_feature_detected!("avx") {
                        try_form(wide);
                    }
                    if is_x86_feature_detected!("avx512f") {
                        try_form(wider::<false>);
                        try_form(wider::<true>);
                    }
                }
            }
        }
    }
}
