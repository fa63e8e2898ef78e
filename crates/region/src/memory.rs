//! What a ring or a payload area needs of memory, whichever kind it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;

/// Memory that can be read while somebody else writes it.
///
/// Offsets are in bytes from the start. An offset that is out of range, or not naturally aligned for a word, is a bug
/// of the caller and panics: a caller checks a number that a peer supplied before it passes it on. All methods may
/// be called from any thread. What is read may change from one call to the next, so a value that a decision rests on
/// is loaded once.
pub trait ReadMemory {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there is no memory at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads the word at `at`, a multiple of 4. `order` is `Relaxed` or `Acquire`.
    fn load_u32(&self, at: usize, order: Ordering) -> u32;

    /// Loads the word at `at`, a multiple of 8. `order` is `Relaxed` or `Acquire`.
    fn load_u64(&self, at: usize, order: Ordering) -> u64;

    /// Copies `dst.len()` bytes from `at` on. The bytes are ordered by nothing but earlier `Acquire` loads; bytes
    /// that are being written meanwhile come out as any mixture of old and new.
    fn copy_out(&self, at: usize, dst: &mut [u8]);

    /// Appends `len` bytes from `at` on to `dst`, as [`copy_out`](Self::copy_out) does, without zeroing first.
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut);

    /// Asks the processor to bring the line of the byte at `at` near, where it can be asked. Changes nothing, reads
    /// nothing, takes no order.
    #[inline]
    fn prefetch(&self, _at: usize) {}

    /// Orders all loads and stores before it, of this memory and any other, before all after it.
    ///
    /// Belongs to the memory so that a model checker's memory can bring its own.
    #[inline]
    fn fence_seq_cst(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Memory that this side may write. One writer a word: two threads never store to the same word at once.
pub trait WriteMemory: ReadMemory {
    /// Stores to the word at `at`, a multiple of 4. `order` is `Relaxed` or `Release`.
    fn store_u32(&self, at: usize, value: u32, order: Ordering);

    /// Stores to the word at `at`, a multiple of 8. `order` is `Relaxed` or `Release`.
    fn store_u64(&self, at: usize, value: u64, order: Ordering);

    /// Copies `src` to `at`. A reader may see the bytes in any order until it acquires a later `Release` store.
    fn copy_in(&self, at: usize, src: &[u8]);

    /// Asks the processor to bring the line of the byte at `at` near, to be written, where it can be asked. Changes nothing,
    /// reads nothing, takes no order, and nobody waits for it.
    #[inline]
    fn prefetch_to_write(&self, _at: usize) {}

    /// Says to the processor that the line of the byte at `at` is written, and that another processor will read it, where it can
    /// be told. Changes nothing, reads nothing, takes no order, and nobody waits for it.
    #[inline]
    fn demote(&self, _at: usize) {}
}

/// Checks that the `len` bytes at `at` lie within `total`.
#[inline(always)]
pub(crate) fn check_range(at: usize, len: usize, total: usize) {
    if at > total || len > total - at {
        outside(at, len, total);
    }
}

// Apart, with numbers and no references: else all three would be stored for the message wherever memory is touched.
#[cold]
#[inline(never)]
fn outside(at: usize, len: usize, total: usize) -> ! {
    panic!("{len} bytes at {at} are outside of a memory of {total}");
}

#[cold]
#[inline(never)]
fn unaligned(at: usize, len: usize) -> ! {
    panic!("a word of {len} bytes at {at} is not aligned");
}

/// Checks that the word of `len` bytes at `at` is aligned and within `total`.
#[inline(always)]
pub(crate) fn check_word(at: usize, len: usize, total: usize) {
    if !at.is_multiple_of(len) {
        unaligned(at, len);
    }
    check_range(at, len, total);
}

macro_rules! forward {
    ($pointer:ty) => {
        impl<M: ReadMemory + ?Sized> ReadMemory for $pointer {
            #[inline]
            fn len(&self) -> usize {
                (**self).len()
            }
            #[inline]
            fn load_u32(&self, at: usize, order: Ordering) -> u32 {
                (**self).load_u32(at, order)
            }
            #[inline]
            fn load_u64(&self, at: usize, order: Ordering) -> u64 {
                (**self).load_u64(at, order)
            }
            #[inline]
            fn copy_out(&self, at: usize, dst: &mut [u8]) {
                (**self).copy_out(at, dst);
            }
            #[inline]
            fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
                (**self).append_to(at, len, dst);
            }
            #[inline]
            fn prefetch(&self, at: usize) {
                (**self).prefetch(at);
            }
            #[inline]
            fn fence_seq_cst(&self) {
                (**self).fence_seq_cst();
            }
        }

        impl<M: WriteMemory + ?Sized> WriteMemory for $pointer {
            #[inline]
            fn store_u32(&self, at: usize, value: u32, order: Ordering) {
                (**self).store_u32(at, value, order);
            }
            #[inline]
            fn store_u64(&self, at: usize, value: u64, order: Ordering) {
                (**self).store_u64(at, value, order);
            }
            #[inline]
            fn copy_in(&self, at: usize, src: &[u8]) {
                (**self).copy_in(at, src);
            }
            #[inline]
            fn prefetch_to_write(&self, at: usize) {
                (**self).prefetch_to_write(at);
            }
            #[inline]
            fn demote(&self, at: usize) {
                (**self).demote(at);
            }
        }
    };
}

forward!(&M);
forward!(Arc<M>);
