//! Copies between private memory and memory that another process writes meanwhile.
//!
//! Rust's own copies assume that nobody writes the bytes at the same time, which no one can promise of a peer. Short
//! and aligned copies go by relaxed atomic words; others by instructions that the compiler cannot look into.
//! `docs/adr/0002-copies-from-shared-memory.md` has the argument and the figures.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Longest copy that goes word by word; from here on the block copy is faster.
const WORDS_LEN_MAX: usize = 256;
const WORD_LEN: usize = size_of::<u64>();

/// Copies `len` bytes out of shared memory.
///
/// # Safety
/// `src` is valid for reads of `len` bytes, other processes' writes aside; `dst` for writes of `len` bytes by this
/// thread alone; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn from_shared(src: *const u8, dst: *mut u8, len: usize) {
    if len <= WORDS_LEN_MAX && src.cast::<u64>().is_aligned() {
        // SAFETY: the caller's; alignment was just checked.
        unsafe { words_from_shared(src, dst, len) }
    } else {
        // SAFETY: the caller's.
        unsafe { block::copy(src, dst, len) }
    }
}

/// Copies `len` bytes into shared memory.
///
/// # Safety
/// `src` is valid for reads of `len` bytes that nobody writes meanwhile; `dst` is shared memory valid for writes of
/// `len` bytes, which other processes may read; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn to_shared(src: *const u8, dst: *mut u8, len: usize) {
    if len <= WORDS_LEN_MAX && dst.cast::<u64>().is_aligned() {
        // SAFETY: the caller's; alignment was just checked.
        unsafe { words_to_shared(src, dst, len) }
    } else {
        // SAFETY: the caller's.
        unsafe { block::copy(src, dst, len) }
    }
}

/// As [`from_shared`]; `src` is a multiple of 8.
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
    while at < len {
        // SAFETY: the byte lies within `len`.
        unsafe { dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed)) };
        at += 1;
    }
}

/// As [`to_shared`]; `dst` is a multiple of 8.
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
    while at < len {
        // SAFETY: the byte lies within `len`.
        unsafe { AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read(), Ordering::Relaxed) };
        at += 1;
    }
}

#[cfg(target_arch = "x86_64")]
mod block {
    use std::arch::asm;

    /// Copies `len` bytes, either side of which may be shared.
    ///
    /// # Safety
    /// `src` is mapped readable and `dst` writable for `len` bytes; they do not overlap.
    #[inline(always)]
    pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
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
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod block {
    use super::{AtomicU8, Ordering, WORD_LEN, words_from_shared, words_to_shared};

    /// Copies `len` bytes, either side of which may be shared.
    ///
    /// # Safety
    /// `src` is mapped readable and `dst` writable for `len` bytes; they do not overlap.
    #[inline]
    pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
        // Which side is shared isn't known here; a word is accessed as an atomic on both.
        let lead = src.align_offset(WORD_LEN).min(len);
        // SAFETY: all within `len`, says the caller.
        unsafe {
            for at in 0..lead {
                let byte = AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(dst.add(at)).store(byte, Ordering::Relaxed);
            }
            let (src, dst, len) = (src.add(lead), dst.add(lead), len - lead);
            let _ = (src, dst, len);
        }
        let _ = (words_from_shared, words_to_shared);
    }
}
