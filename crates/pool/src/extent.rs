//! Extents: memory that this member writes, and memory of others that it reads.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{
    BlockState, EXTENT_MAGIC, ExtentHead, ExtentShape, HOLD_COUNT_MAX, POOL_ID_LEN, PoolMessage, key_off,
    pool_kind, state_off,
};
use tollfree_layout::{ExtentIdx, Generation, MemberIdx, PageIdx};
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_region::{GivenFd, PeerRegion, ReadMemory, Region, RegionError, WriteMemory};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::FetchFault;
use crate::holds::Row;
use crate::link::Link;

/// A pool's name of random bytes.
pub(crate) type PoolId = [u8; POOL_ID_LEN];

/// An extent that this member made.
#[derive(Debug)]
pub(crate) struct OwnExtent {
    pub(crate) idx: ExtentIdx,
    pub(crate) shape: ExtentShape,
    pub(crate) region: Region,
    /// For the coordinator, again when there is a new one, and for overlays.
    pub(crate) fd: Arc<OwnedFd>,
}

impl OwnExtent {
    pub(crate) fn create(
        pool: PoolId,
        member: MemberIdx,
        idx: ExtentIdx,
        shape: ExtentShape,
    ) -> Result<OwnExtent, RegionError> {
        let mut region = Region::create("tollfree-extent", shape.file_len())?;
        let head = ExtentHead {
            magic: EXTENT_MAGIC,
            pool,
            member: member.0.into(),
            extent: idx.0.into(),
            page_count: (shape.page_count() as u32).into(),
            reserved: 0.into(),
        };
        region.copy_in(0, head.as_bytes());
        let fd = Arc::new(region.take_fd().expect("a new region has its fd"));
        Ok(OwnExtent { idx, shape, region, fd })
    }

    /// Where the `len` bytes of a block lie.
    pub(crate) fn data(&self, page: PageIdx, len: usize) -> NonNull<u8> {
        self.region.ptr(self.shape.data_off() + page.as_usize() * PAGE_LEN, len)
    }
}

/// Another member's extent, mapped here, with this member's row for it.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) owner: MemberIdx,
    pub(crate) idx: ExtentIdx,
    pub(crate) shape: ExtentShape,
    pub(crate) region: PeerRegion,
    /// For overlays: the extent as it is mapped, sealed and of the length that was checked.
    pub(crate) fd: GivenFd,
    pub(crate) row: Mutex<Row<Region>>,
    /// The row's descriptor, for the owner; it gets it once.
    row_fd: Mutex<Option<OwnedFd>>,
    link: Arc<Link>,
}

impl Import {
    /// Maps the extent behind `fd`, of `data_len` bytes of data, and makes a row for it.
    pub(crate) fn map(
        pool: PoolId,
        (owner, idx): (MemberIdx, ExtentIdx),
        fd: GivenFd,
        data_len: u64,
        link: &Arc<Link>,
    ) -> Result<Import, FetchFault> {
        let wrong = |what: &str| FetchFault::Region(format!("it is no extent of this member: {what}"));
        let shape = ExtentShape::of_data(data_len).ok_or_else(|| wrong("its length"))?;
        let kept = dup(&fd).map(GivenFd::from).map_err(|error| FetchFault::Region(error.to_string()))?;
        let region = PeerRegion::map(fd, shape.file_len())?;
        let mut head = ExtentHead::new_zeroed();
        region.copy_out(0, head.as_mut_bytes());
        let expected = ExtentHead {
            magic: EXTENT_MAGIC,
            pool,
            member: owner.0.into(),
            extent: idx.0.into(),
            page_count: (shape.page_count() as u32).into(),
            reserved: head.reserved,
        };
        if head != expected {
            return Err(wrong("its header"));
        }
        let mut row = Region::create("tollfree-row", shape.row_len())?;
        let row_fd = Mutex::new(row.take_fd());
        let row = Mutex::new(Row::new(row, HOLD_COUNT_MAX));
        Ok(Import { owner, idx, shape, region, fd: kept, row, row_fd, link: link.clone() })
    }

    /// Generation and key of a block that this member holds: they can't change meanwhile.
    pub(crate) fn entry(&self, page: PageIdx) -> (Generation, u64) {
        let state = BlockState::from_word(self.region.load_u64(state_off(page), Ordering::Acquire));
        (state.generation, self.region.load_u64(key_off(page), Ordering::Relaxed))
    }

    /// One more hold of the block that has this address in it, if this member holds it already: its first page, the
    /// address of its first byte, and its length.
    pub(crate) fn at_address(&self, address: usize) -> Option<(PageIdx, usize, usize)> {
        let base = self.data(PageIdx(0), self.shape.data_len()).as_ptr() as usize;
        let off = address.checked_sub(base).filter(|off| *off < self.shape.data_len())?;
        let mut row = self.row.lock();
        // Blocks that are held don't overlap: it is the last one that begins before, or none.
        let first = row.last_held(PageIdx((off / PAGE_LEN) as u32))?;
        let state = BlockState::from_word(self.region.load_u64(state_off(first), Ordering::Acquire));
        let len = self.shape.block_len(first, state).filter(|len| off < first.as_usize() * PAGE_LEN + len)?;
        row.hold_again(first).ok()?;
        Some((first, base + first.as_usize() * PAGE_LEN, len))
    }

    pub(crate) fn take_row_fd(&self) -> Option<OwnedFd> {
        self.row_fd.lock().take()
    }

    /// Where the `len` bytes from `page` on lie.
    pub(crate) fn data(&self, page: PageIdx, len: usize) -> NonNull<u8> {
        self.region.ptr(self.shape.data_off() + page.as_usize() * PAGE_LEN, len)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if !self.region.is_inherited() {
            self.link.send(PoolMessage::new(pool_kind::UNMAPPED).about(self.owner, self.idx), Vec::new());
        }
    }
}

/// Another descriptor of the same thing.
pub(crate) fn dup(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
