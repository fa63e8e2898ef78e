//! A hold that this process has, and the bytes under it.
//!
//! # Trust
//! `bytes` makes a plain reference into memory that another process may have mapped writable: its owner. That is sound
//! among members that keep to the protocol, and only among them (`SECURITY.md`, members of a pool): an owner never stores
//! to a block that anybody else holds, and this process holds it for as long as the reference lives.

use std::ptr::NonNull;
use std::sync::Arc;

use tollfree_layout::PageIdx;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_os::fd::{AsFd, BorrowedFd};

use crate::extent::{Import, OwnExtent};
use crate::heap::{BlockAt, Found};
use crate::inner::Inner;

/// Whose block it is.
#[derive(Debug)]
pub(crate) enum Place {
    /// This member's own.
    Own { extent: Arc<OwnExtent>, at: BlockAt },
    /// Another's.
    Other { import: Arc<Import>, page: PageIdx },
}

/// One hold of one block, given back on drop.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) inner: Arc<Inner>,
    pub(crate) place: Place,
    base: NonNull<u8>,
    /// Bytes of the block.
    len: usize,
}

// SAFETY: the bytes belong to no thread: they stay mapped and unwritten while the hold lives, whichever thread drops it.
// `two_processes.rs` and `members.rs` send refs between threads.
unsafe impl Send for Held {}
// SAFETY: through `&self` bytes are only read; writing takes `&mut self` (see `bytes_mut`). As above.
unsafe impl Sync for Held {}

impl Held {
    pub(crate) fn own(inner: Arc<Inner>, found: Found) -> Held {
        let base = found.extent.data(found.at.page, found.len);
        Held { inner, base, len: found.len, place: Place::Own { extent: found.extent, at: found.at } }
    }

    pub(crate) fn other(inner: Arc<Inner>, import: Arc<Import>, page: PageIdx, len: usize) -> Held {
        Held { inner, base: import.data(page, len), len, place: Place::Other { import, page } }
    }

    /// Bytes of the block.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Panics
    /// Outside of the block, or in a forked child, which doesn't have the memory.
    #[inline]
    pub(crate) fn bytes(&self, off: usize, len: usize) -> &[u8] {
        self.check(off, len);
        // SAFETY: within the block (just checked), which is mapped while `place` lives, which is as long as `self`. Nobody
        // writes it meanwhile: this process only through `bytes_mut`, which borrows `self` exclusively and is for blocks
        // that this is the only hold of; the owner of another's block not while this process's row says that it holds it
        // (module's head). `kills.rs` and the loom models look for reuse under a reader.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(off), len) }
    }

    /// The block's bytes to write, for a hold of which `is_sole` is true.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes), and for another's block.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, off: usize, len: usize) -> &mut [u8] {
        self.check(off, len);
        assert!(self.is_sole(), "a block that others may read is never written");
        // SAFETY: within the block (just checked); its extent is this process's own (`is_sole`), mapped writable, and no
        // other ref to the block exists, here or elsewhere, so that nobody reads it while `self` is borrowed. None can
        // come to be meanwhile: that takes a `&self`. `writing_after_sharing_leaves_readers_their_snapshot` would notice.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(off), len) }
    }

    /// The file that the block lies in, and where byte `off` of the block, at the beginning of a page, is in it.
    pub(crate) fn file_at(&self, off: usize) -> (BorrowedFd<'_>, usize) {
        let (fd, data_off, page) = match &self.place {
            Place::Own { extent, at } => (extent.fd.as_fd(), extent.shape.data_off(), at.page),
            Place::Other { import, page } => (import.fd.as_fd(), import.shape.data_off(), *page),
        };
        (fd, data_off + page.as_usize() * PAGE_LEN + off)
    }

    /// Whether this is the only hold that there is or ever was of the block, and the block this member's own.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        match &self.place {
            Place::Own { at, .. } => self.inner.heap.lock().is_sole(*at),
            Place::Other { .. } => false,
        }
    }

    /// Where it is, for people.
    #[cfg(test)]
    pub(crate) fn place_words(&self) -> String {
        match &self.place {
            Place::Own { extent, at } => format!("page {} of its own extent {}", at.page.0, extent.idx.0),
            Place::Other { import, page } => {
                format!("page {} of extent {} of {}", page.0, import.idx.0, import.owner.0)
            }
        }
    }

    #[inline]
    fn check(&self, off: usize, len: usize) {
        assert!(off <= self.len && len <= self.len - off, "{len} bytes at {off} of a block of {}", self.len);
        assert!(!self.inner.is_elsewhere(), "a forked child does not have the memory of its parent's pool");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.inner.is_elsewhere() {
            return; // The parent's hold, not this process's.
        }
        match &self.place {
            Place::Own { at, .. } => self.inner.release_own(*at),
            Place::Other { import, page } => {
                import.row.lock().release(*page);
                crate::steps::reached("released");
            }
        }
    }
}
