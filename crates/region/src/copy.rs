//! Copies between private memory and memory that another process writes meanwhile.
//!
//! Rust's own copies assume that nobody writes the bytes at the same time, which no one can promise of a peer. Short
//! copies go by relaxed atomic words, longer ones by instructions that the compiler cannot look into.
//! `docs/adr/0002-volatile-copies-from-shared-memory.md` has the argument and the figures.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD_LEN: usize = size_of::<u64>();

/// Copies `len` bytes out of shared memory.
///
/// # Safety
/// `src` is valid for reads of `len` bytes, other processes' writes aside; `dst` for writes of `len` bytes by this
/// thread alone; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn from_shared(src: *const u8, dst: *mut u8, len: usize) {
    if block::takes(len) {
        // SAFETY: the caller's.
        unsafe { block::copy(src, dst, len) }
    } else if src.cast::<u64>().is_aligned() {
        // SAFETY: the caller's; alignment was just checked.
        unsafe { words_from_shared(src, dst, len) }
    } else {
        let lead = src.align_offset(WORD_LEN).min(len);
        // SAFETY: the caller's, for two parts of `len`; the second begins at a multiple of 8, or is empty.
        unsafe {
            bytes_from_shared(src, dst, lead);
            words_from_shared(src.add(lead), dst.add(lead), len - lead);
        }
    }
}

/// Copies `len` bytes into shared memory.
///
/// # Safety
/// `src` is valid for reads of `len` bytes that nobody writes meanwhile; `dst` is shared memory valid for writes of
/// `len` bytes, which other processes may read; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn to_shared(src: *const u8, dst: *mut u8, len: usize) {
    if block::takes(len) {
        // SAFETY: the caller's.
        unsafe { block::copy(src, dst, len) }
    } else if dst.cast::<u64>().is_aligned() {
        // SAFETY: the caller's; alignment was just checked.
        unsafe { words_to_shared(src, dst, len) }
    } else {
        let lead = dst.align_offset(WORD_LEN).min(len);
        // SAFETY: the caller's, for two parts of `len`; the second begins at a multiple of 8, or is empty.
        unsafe {
            bytes_to_shared(src, dst, lead);
            words_to_shared(src.add(lead), dst.add(lead), len - lead);
        }
    }
}

/// Copies `src` to `dst`, which is as long, and where others may look on. As fast as the other two from and to any place, which the C
/// library's copies are not on every processor.
///
/// # Panics
/// Where the lengths differ.
#[inline(always)]
pub(crate) fn into_own(src: &[u8], dst: &mut [u8]) {
    if !block::takes(src.len()) {
        dst.copy_from_slice(src);
        return;
    }
    assert_eq!(src.len(), dst.len(), "a copy goes to a place of its length");
    // SAFETY: both ranges are those of slices of one length (just checked), of which `dst` is borrowed exclusively, so that they
    // do not overlap. `copies_are_exact_at_every_length_and_alignment` tries them.
    unsafe { block::copy(src.as_ptr(), dst.as_mut_ptr(), src.len()) }
}

/// As [`from_shared`]; `src` is a multiple of 8 unless `len` is 0.
#[inline(always)]
unsafe fn words_from_shared(src: *const u8, dst: *mut u8, len: usize) {
    let mut at = 0;
    while at + WORD_LEN <= len {
        // SAFETY: the word lies within `len` and is aligned; the destination may be at any address.
        unsafe {
            let word = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Ordering::Relaxed);
            dst.add(at).cast::<u64>().write_unaligned(word);
        }
        at += WORD_LEN;
    }
    // SAFETY: the rest of the caller's range.
    unsafe { bytes_from_shared(src.add(at), dst.add(at), len - at) }
}

/// As [`to_shared`]; `dst` is a multiple of 8 unless `len` is 0.
#[inline(always)]
unsafe fn words_to_shared(src: *const u8, dst: *mut u8, len: usize) {
    let mut at = 0;
    while at + WORD_LEN <= len {
        // SAFETY: the word lies within `len` and is aligned; the source may be at any address.
        unsafe {
            let word = src.add(at).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(dst.add(at).cast()).store(word, Ordering::Relaxed);
        }
        at += WORD_LEN;
    }
    // SAFETY: the rest of the caller's range.
    unsafe { bytes_to_shared(src.add(at), dst.add(at), len - at) }
}

/// As [`from_shared`].
#[inline(always)]
unsafe fn bytes_from_shared(src: *const u8, dst: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: the byte lies within `len`.
        unsafe { dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed)) };
    }
}

/// As [`to_shared`].
#[inline(always)]
unsafe fn bytes_to_shared(src: *const u8, dst: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: the byte lies within `len`.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read(), Ordering::Relaxed) };
    }
}

/// Copies in assembly: what they read or write concerns the processor, not the language's memory model.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod block {
    use std::arch::asm;

    /// Shortest copy that is faster like this than by words.
    const LEN_MIN: usize = TURN_LEN;
    /// Bytes that one turn of the loop copies.
    const TURN_LEN: usize = 64;
    /// Longest copy that the loop does faster than the string instruction, which takes some time to start.
    const LOOP_LEN_MAX: usize = 1024;
    /// Closer than this within a page, source and target make the string instruction up to 40 times slower on some
    /// processors (AMD Zen 3), whatever the distance between their pages. A chunk behind gRPC's prefix often is.
    const APART_MIN: usize = 64;

    /// Whether a copy is long enough.
    #[inline(always)]
    pub(super) fn takes(len: usize) -> bool {
        len >= LEN_MIN
    }

    /// Whether the string instruction is the faster one.
    #[inline(always)]
    fn is_far(src: *const u8, dst: *mut u8) -> bool {
        let apart = (dst as usize).wrapping_sub(src as usize) % 4096;
        apart == 0 || apart >= APART_MIN
    }

    /// Copies `len` bytes, either side of which may be shared; at least [`LEN_MIN`].
    ///
    /// # Safety
    /// `src` is mapped readable and `dst` writable for `len` bytes, at least [`LEN_MIN`]; they do not overlap.
    #[inline]
    pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        debug_assert!(len >= LEN_MIN);
        if len > LOOP_LEN_MAX && is_far(src, dst) {
            // SAFETY: the instruction touches just the two ranges. The direction flag is clear, as the ABI demands.
            unsafe {
                asm!(
                    "rep movsb",
                    inout("rcx") len => _,
                    inout("rsi") src => _,
                    inout("rdi") dst => _,
                    options(nostack, preserves_flags)
                );
            }
        } else {
            // SAFETY: the caller's.
            unsafe { turns(src, dst, len) }
        }
    }

    /// Copies 64 bytes a turn, and at last the 64 bytes that end the range, some of them perhaps again.
    #[inline(always)]
    unsafe fn turns(src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: `len` is at least a turn, so the last turn begins within the ranges; every turn that the loop takes
        // begins before the last one, so it ends before the ranges do. SSE2 is part of x86-64.
        unsafe {
            asm!(
                "2:",
                "cmp {src}, {last_src}",
                "jae 3f",
                "movups {a}, [{src}]",
                "movups {b}, [{src} + 16]",
                "movups {c}, [{src} + 32]",
                "movups {d}, [{src} + 48]",
                "movups [{dst}], {a}",
                "movups [{dst} + 16], {b}",
                "movups [{dst} + 32], {c}",
                "movups [{dst} + 48], {d}",
                "add {src}, 64",
                "add {dst}, 64",
                "jmp 2b",
                "3:",
                "movups {a}, [{last_src}]",
                "movups {b}, [{last_src} + 16]",
                "movups {c}, [{last_src} + 32]",
                "movups {d}, [{last_src} + 48]",
                "movups [{last_dst}], {a}",
                "movups [{last_dst} + 16], {b}",
                "movups [{last_dst} + 32], {c}",
                "movups [{last_dst} + 48], {d}",
                src = inout(reg) src => _,
                dst = inout(reg) dst => _,
                last_src = in(reg) src.add(len - TURN_LEN),
                last_dst = in(reg) dst.add(len - TURN_LEN),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack)
            );
        }
    }
}

/// Where there is no assembly, words do for every length.
#[cfg(any(not(target_arch = "x86_64"), miri))]
mod block {
    /// No copy is long enough.
    #[inline(always)]
    pub(super) fn takes(_len: usize) -> bool {
        false
    }

    /// Never called: see [`takes`].
    ///
    /// # Safety
    /// None is needed.
    pub(super) unsafe fn copy(_src: *const u8, _dst: *mut u8, len: usize) {
        unreachable!("no copy is {len} bytes long");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length and alignment that takes another way, with guards on both sides of the target.
    #[test]
    fn copies_are_exact_at_every_length_and_alignment() {
        let src: Vec<u8> = (0..5000u32).map(|n| ((n * 31) >> 3) as u8).collect();
        let lens = (0..=200).chain([255, 256, 257, 1000, 1023, 1024, 1025, 4096, 4097]);
        // Miri takes its time: ends of words, lines and blocks.
        let is_tried =
            |len: &usize| !cfg!(miri) || matches!(len, 0..=18 | 31..=33 | 63..=65 | 127..=129 | 257);
        for len in lens.filter(is_tried) {
            for (src_at, dst_at) in [(0, 0), (1, 0), (0, 1), (8, 24), (3, 7), (15, 63)] {
                let mut dst = vec![0xaa; len];
                into_own(&src[src_at..src_at + len], &mut dst);
                assert_eq!(dst, src[src_at..src_at + len], "{len} bytes");
                for copy in [from_shared, to_shared] {
                    let mut dst = vec![0xaa; len + 128];
                    // SAFETY: `src` has 15 + 4097 bytes, `dst` 63 + len; they are different vectors.
                    unsafe { copy(src.as_ptr().add(src_at), dst.as_mut_ptr().add(dst_at), len) };
                    assert_eq!(dst[dst_at..dst_at + len], src[src_at..src_at + len], "{len} bytes");
                    assert!(dst[..dst_at].iter().chain(&dst[dst_at + len..]).all(|byte| *byte == 0xaa));
                }
            }
        }
    }
}
