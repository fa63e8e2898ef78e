//! What a member counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Events of one member of a pool since it joined.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) forbidden_refs: AtomicU64,
    pub(crate) stale_refs: AtomicU64,
    pub(crate) full_holds: AtomicU64,
    pub(crate) exhausted: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn copied(&self, byte_count: usize) {
        self.copied_bytes.fetch_add(byte_count as u64, Ordering::Relaxed);
    }

    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            forbidden_refs: self.forbidden_refs.load(Ordering::Relaxed),
            stale_refs: self.stale_refs.load(Ordering::Relaxed),
            full_holds: self.full_holds.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }
}

/// What a member has counted since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that the library copied: into buffers, for writers, and for readers that asked for copies.
    pub copied_bytes: u64,
    /// Refs refused because they were forged, malformed or another pool's.
    pub forbidden_refs: u64,
    /// Refs refused because their block or extent was given up.
    pub stale_refs: u64,
    /// Holds refused because their count was at its limit.
    pub full_holds: u64,
    /// Times that memory was asked for and not had.
    pub exhausted: u64,
}

/// What a member has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of its own extents.
    pub total_bytes: u64,
    /// Of these, bytes in no block.
    pub free_bytes: u64,
    /// Own blocks that no ref here names any more, and that others held when they were last looked at.
    pub limbo_count: usize,
    /// Own extents.
    pub extent_count: usize,
    /// Rows of readers of these.
    pub row_count: usize,
    /// Extents of others that are mapped here.
    pub import_count: usize,
}
