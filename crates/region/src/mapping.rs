//! An address range that a memfd is mapped to, and the loads, stores and copies that it allows.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use bytes::BytesMut;
use tollfree_os::fd::BorrowedFd;
use tollfree_os::rustix;
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::copy;
use crate::fork::Origin;
use crate::memory::{check_range, check_word};

/// The operation that failed, with what the kernel said.
pub(crate) type StepError = (&'static str, Errno);

/// A shared mapping of the whole of a memfd.
///
/// The bytes may change at any time and no Rust reference to them is ever made, but for those to atomic words that
/// `from_ptr` makes for the length of one load or store.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    origin: Origin,
}

// SAFETY: the mapping belongs to no thread: it stays where it is until drop, which takes the object by value. Tests
// that move regions into threads (`crates/ring/tests/suite/two_threads.rs`) would notice.
unsafe impl Send for Mapping {}
// SAFETY: through `&self` there are only atomic accesses and raw copies made for memory that changes meanwhile
// (`copy`), so it makes no difference which threads run them at once.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, invisible to children.
    ///
    /// The caller makes sure that the file has `len` bytes and keeps them while the mapping lives (seals).
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, prot: ProtFlags) -> Result<Mapping, StepError> {
        let origin = Origin::here().map_err(|errno| ("setting up fork detection", errno))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }
            .map_err(|errno| ("mmap", errno))?;
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(("mmap", Errno::NOMEM));
        };
        let mapping = Mapping { base, len, origin };
        // SAFETY: the range is the mapping just made. The advice concerns later children only.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }
            .map_err(|errno| ("madvise", errno))?;
        Ok(mapping)
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping was made before a fork that led to this process, and so is not there.
    pub(crate) fn is_inherited(&self) -> bool {
        self.origin.is_elsewhere()
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// The address of byte `at`, which the caller has checked.
    #[inline(always)]
    fn at(&self, at: usize) -> *mut u8 {
        // SAFETY: callers check `at <= len` (`check_range`), so the result is within or just past the mapping. The
        // range tests of `tests/suite/regions.rs` would notice a missing check.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// The address of the bytes from `at` on, after the range was checked.
    #[inline(always)]
    pub(crate) fn ptr(&self, at: usize, len: usize) -> NonNull<u8> {
        check_range(at, len, self.len);
        // SAFETY: within the mapping or just past it (just checked), whose base is not null. `tests/suite/regions.rs`.
        unsafe { self.base.add(at) }
    }

    // Loads are relaxed and followed by a fence where an acquire is asked for, as a peer's mapping is read-only and
    // the standard library promises nothing but relaxed loads for such memory. On x86-64 both come to a plain load.
    #[inline(always)]
    fn acquire_if(order: Ordering) {
        match order {
            Ordering::Relaxed => {}
            Ordering::Acquire => fence(Ordering::Acquire),
            other => panic!("a load cannot be {other:?} here"),
        }
    }

    #[inline(always)]
    pub(crate) fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        check_word(at, 4, self.len);
        // SAFETY: in range and aligned (just checked; the base is page-aligned), mapped readable while `self` lives,
        // and a u32 has no invalid value whatever a peer stores. `tests/suite/regions.rs`.
        let value = unsafe { AtomicU32::from_ptr(self.at(at).cast()) }.load(Ordering::Relaxed);
        Self::acquire_if(order);
        value
    }

    #[inline(always)]
    pub(crate) fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        check_word(at, 8, self.len);
        // SAFETY: as in `load_u32`.
        let value = unsafe { AtomicU64::from_ptr(self.at(at).cast()) }.load(Ordering::Relaxed);
        Self::acquire_if(order);
        value
    }

    /// # Safety
    /// The mapping is writable.
    #[inline(always)]
    pub(crate) unsafe fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        check_word(at, 4, self.len);
        // SAFETY: in range and aligned (just checked), writable says the caller.
        unsafe { AtomicU32::from_ptr(self.at(at).cast()) }.store(value, order);
    }

    /// # Safety
    /// The mapping is writable.
    #[inline(always)]
    pub(crate) unsafe fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        check_word(at, 8, self.len);
        // SAFETY: as in `store_u32`.
        unsafe { AtomicU64::from_ptr(self.at(at).cast()) }.store(value, order);
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        check_range(at, 0, self.len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint to the processor; it neither loads nor faults, whatever the address. SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.at(at).cast());
        }
    }

    #[inline(always)]
    pub(crate) fn prefetch_to_write(&self, at: usize) {
        check_range(at, 0, self.len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint to the processor; it changes nothing and does not fault, whatever the address, as
        // `hints_change_nothing` in `tests/suite/regions.rs` would notice. Processors that don't know it take it for nothing. (The
        // intrinsic asks for a copy to read, unless the build is for newer processors.)
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) self.at(at), options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    pub(crate) fn demote(&self, at: usize) {
        check_range(at, 0, self.len);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint to the processor; it changes nothing and does not fault, whatever the address, as
        // `hints_change_nothing` in `tests/suite/regions.rs` would notice. Processors that don't know it take it for nothing. (There
        // is no intrinsic for it.)
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) self.at(at), options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    pub(crate) fn copy_out(&self, at: usize, dst: &mut [u8]) {
        check_range(at, dst.len(), self.len);
        // SAFETY: the source is in range (just checked) and mapped; `dst` is a slice of this process, which cannot
        // overlap a mapping that no reference points into.
        unsafe { copy::from_shared(self.at(at), dst.as_mut_ptr(), dst.len()) }
    }

    #[inline(always)]
    pub(crate) fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        check_range(at, len, self.len);
        dst.reserve(len);
        let filled = dst.len();
        // SAFETY: the source is as in `copy_out`; `reserve` made room for `len` bytes after `filled`, which nothing
        // else refers to, and the copy initialises all of them before the length says so.
        unsafe {
            copy::from_shared(self.at(at), dst.as_mut_ptr().add(filled), len);
            dst.set_len(filled + len);
        }
    }

    /// # Safety
    /// The mapping is writable.
    #[inline(always)]
    pub(crate) unsafe fn copy_in(&self, at: usize, src: &[u8]) {
        check_range(at, src.len(), self.len);
        // SAFETY: the destination is in range (just checked) and writable (the caller); `src` is a slice of this
        // process, which cannot overlap the mapping.
        unsafe { copy::to_shared(src.as_ptr(), self.at(at), src.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_inherited() {
            return; // In this process something else may have that address.
        }
        // SAFETY: the range was mapped by `new` in this process, and nothing refers to it: all accesses borrow
        // `self`. The leak test counts mappings.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()), "the range is a mapping of ours");
    }
}
