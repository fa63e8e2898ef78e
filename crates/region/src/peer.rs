//! A region that the peer created, checked and mapped read-only.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tollfree_os::fd::{AsFd, AsRawFd};
use tollfree_os::rustix;
use tollfree_os::rustix::fs::SealFlags;
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::mm::ProtFlags;
use tollfree_os::rustix::param::page_size;

use crate::error::{PeerFault, RegionError, Seals};
use crate::given::{GivenFd, GivenKind, memory_stat, reserved};
use crate::mapping::Mapping;
use crate::memory::ReadMemory;
use crate::own::SEALS;

/// What the kernel calls the file system that plain memory belongs to (`linux/magic.h`); memory of huge pages has another, whose pages
/// are counted otherwise.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// Longest page that the kernel may put at the end of plain memory, in bytes.
const LARGE_PAGE_LEN: u64 = 2 << 20;

/// A peer's memory, readable here and writable by the peer alone.
///
/// Its seals and its reserved pages are checked before it is mapped, so that reading never faults and costs this process no
/// memory: the peer cannot truncate it or punch holes in it, and it stays mapped after the peer's death. Dropping unmaps it.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Mapping,
}

impl PeerRegion {
    /// Maps the peer's region behind `fd`, which is closed in any case. Waits for nobody, whatever `fd` is.
    ///
    /// # Errors
    /// [`RegionError::Peer`] with what is wrong with the fd: not sealed shared memory, not open for reading and writing, not of
    /// `expected_len` bytes, sparse, or with memory behind its end. Others as for [`Region::create`](crate::Region::create).
    pub fn map(fd: impl Into<GivenFd>, expected_len: usize) -> Result<PeerRegion, RegionError> {
        PeerRegion::map_given(&fd.into(), expected_len)
    }

    fn map_given(fd: &GivenFd, expected_len: usize) -> Result<PeerRegion, RegionError> {
        let raw = fd.as_fd().as_raw_fd();
        check(fd, expected_len).map_err(|refusal| match refusal {
            Refusal::Fault(fault) => RegionError::Peer { fd: raw, fault },
            Refusal::Errno(step, errno) => RegionError::from_errno(step, expected_len, errno),
        })?;
        match Mapping::new(fd.as_fd(), expected_len, ProtFlags::READ) {
            Ok(mapping) => Ok(PeerRegion { mapping }),
            Err(("mmap", Errno::ACCESS)) => Err(RegionError::Peer { fd: raw, fault: PeerFault::Unreadable }),
            Err((step, errno)) => Err(RegionError::from_errno(step, expected_len, errno)),
        }
    }

    /// The address of the `len` bytes from `at` on, for views of memory whose writer the caller trusts (members of a
    /// pool). It is good while this object lives, in the process that made it.
    ///
    /// # Panics
    /// Where the range is outside of the region.
    #[inline]
    pub fn ptr(&self, at: usize, len: usize) -> NonNull<u8> {
        self.mapping.ptr(at, len)
    }

    /// Whether this was mapped before a fork that led to this process: then it is not mapped here and must not be
    /// used, only dropped.
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }
}

enum Refusal {
    Fault(PeerFault),
    Errno(&'static str, Errno),
}

impl From<PeerFault> for Refusal {
    fn from(fault: PeerFault) -> Refusal {
        Refusal::Fault(fault)
    }
}

/// Seals first: only memory has any, so no file system is asked for them, and size and blocks say nothing while the peer can
/// still change them.
///
/// The kernel counts a file's blocks and doesn't tell where they lie: neither does `SEEK_HOLE`, which takes pages for holes that are
/// reserved and not written yet. Blocks behind the end would pass for those of pages within, which the first reader would make, and be
/// charged with. Setting a file's length to what it is frees what lies behind its end (`shmem_setattr` in the kernel), so all that is
/// counted then lies within.
fn check(fd: &GivenFd, expected_len: usize) -> Result<(), Refusal> {
    let seals = match fd.kind() {
        GivenKind::Memory(seals) => seals,
        GivenKind::Path => return Err(PeerFault::Unreadable.into()),
        other => return Err(PeerFault::Kind(other.words()).into()),
    };
    // A region that nobody at all can write is as good.
    let mut wanted = SEALS;
    if seals.contains(SealFlags::WRITE) {
        wanted.remove(SealFlags::FUTURE_WRITE);
    }
    if !seals.contains(wanted) {
        return Err(PeerFault::Unsealed { missing: Seals(wanted.difference(seals)) }.into());
    }
    let system = rustix::fs::fstatfs(fd.as_fd()).map_err(|errno| Refusal::Errno("fstatfs", errno))?;
    if system.f_type != TMPFS_MAGIC {
        return Err(PeerFault::Kind("memory of huge pages").into());
    }
    let stat = memory_stat(fd.as_fd()).map_err(|errno| Refusal::Errno("statx", errno))?;
    let found = stat.stx_size;
    if found == 0 || u64::try_from(expected_len) != Ok(found) {
        return Err(PeerFault::Length { found, expected: expected_len }.into());
    }
    // A large page at the end may reach beyond it; what is freed here is this much at most.
    let most = found.next_multiple_of(LARGE_PAGE_LEN);
    let before = reserved(&stat);
    if before < found {
        return Err(PeerFault::Sparse { reserved: before, len: expected_len }.into());
    }
    if before > most {
        return Err(PeerFault::Excess { reserved: before, len: expected_len }.into());
    }
    rustix::fs::ftruncate(fd.as_fd(), found).map_err(|errno| match errno {
        Errno::INVAL | Errno::BADF => PeerFault::Unwritable.into(),
        errno => Refusal::Errno("ftruncate", errno),
    })?;
    let stat = memory_stat(fd.as_fd()).map_err(|errno| Refusal::Errno("statx", errno))?;
    match reserved(&stat) {
        after if after < found => Err(PeerFault::Sparse { reserved: after, len: expected_len }.into()),
        // A large page that could not be split.
        after if after > found.next_multiple_of(page_size() as u64) => {
            Err(PeerFault::Excess { reserved: after, len: expected_len }.into())
        }
        _ => Ok(()),
    }
}

impl ReadMemory for PeerRegion {
    #[inline]
    fn len(&self) -> usize {
        self.mapping.len()
    }
    #[inline]
    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        self.mapping.load_u32(at, order)
    }
    #[inline]
    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        self.mapping.load_u64(at, order)
    }
    #[inline]
    fn copy_out(&self, at: usize, dst: &mut [u8]) {
        self.mapping.copy_out(at, dst);
    }
    #[inline]
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        self.mapping.append_to(at, len, dst);
    }
    #[inline]
    fn prefetch(&self, at: usize) {
        self.mapping.prefetch(at);
    }
}
