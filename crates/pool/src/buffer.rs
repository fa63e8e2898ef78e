//! Buffers: memory of the pool before anybody reads it.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::BufMut;
use bytes::buf::UninitSlice;

use crate::error::RefError;
use crate::held::Held;
use crate::refs::Ref;

/// Memory of the pool that this process alone has, to produce into: by `put`s ([`BufMut`]), as an [`io::Write`], or
/// through [`resize`](Self::resize) and a slice. [`freeze`](Self::freeze) makes a ref of what was written.
///
/// Only what was written can be read: memory that was used before shows nothing of it.
pub struct Buffer {
    held: Held,
    filled: usize,
    len_max: usize,
}

impl Buffer {
    pub(crate) fn new(held: Held, len_max: usize) -> Buffer {
        debug_assert!(len_max <= held.len());
        Buffer { held, filled: 0, len_max }
    }

    /// Bytes that it can hold in all.
    pub fn capacity(&self) -> usize {
        self.len_max
    }

    /// Sets the length: cut off, or filled up with zeros, as far as the capacity goes.
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.len_max, "{len} bytes in a buffer of {}", self.len_max);
        if len > self.filled {
            self.held.bytes_mut(self.filled, len - self.filled).fill(0);
        }
        self.filled = len;
    }

    /// Sets the length, as [`resize`](Self::resize) does, and gives all of it to write.
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn resize_zeroed(&mut self, len: usize) -> &mut [u8] {
        self.resize(len);
        self
    }

    /// What was written, to be read by all and written by none.
    ///
    /// # Errors
    /// [`RefError::Empty`] where nothing was.
    pub fn freeze(self) -> Result<Ref, RefError> {
        if self.filled == 0 {
            return Err(RefError::Empty);
        }
        Ok(Ref::new(Arc::new(self.held), 0, self.filled))
    }

    /// Appends bytes, which counts as copying them.
    ///
    /// # Panics
    /// Beyond the capacity.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let room = self.len_max - self.filled;
        assert!(bytes.len() <= room, "{} bytes where there is room for {room}", bytes.len());
        self.held.bytes_mut(self.filled, bytes.len()).copy_from_slice(bytes);
        self.filled += bytes.len();
        self.held.inner.counters.copied(bytes.len());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.held.bytes(0, self.filled)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.held.bytes_mut(0, self.filled)
    }
}

// SAFETY: `chunk_mut` is memory that nobody else has, `remaining_mut` bytes of it, and `advance_mut` never goes beyond. It
// is never uninitialised for the language's purposes: the kernel gave it zeroed. `a_buffer_shows_what_was_written` uses it.
unsafe impl BufMut for Buffer {
    fn remaining_mut(&self) -> usize {
        self.len_max - self.filled
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        assert!(count <= self.remaining_mut(), "advanced beyond the buffer");
        self.filled += count;
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let room = self.remaining_mut();
        UninitSlice::new(self.held.bytes_mut(self.filled, room))
    }

    fn put_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl io::Write for Buffer {
    /// Takes what there is room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.remaining_mut());
        self.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for part in parts {
            count += self.write(part)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.filled).field("capacity", &self.len_max).finish()
    }
}
