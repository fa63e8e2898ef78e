//! A region that the peer created, checked and mapped read-only.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use crate::error::{PeerFault, RegionError, Seals};
use crate::given::{GivenFd, GivenKind, memory_stat, reserved};
use crate::mapping::Mapping;
use crate::memory::ReadMemory;
use crate::own::SEALS;

/// A peer's memory, readable here and writable by the peer alone.
///
/// Its seals and its reserved pages are checked before it is mapped, so that reading never faults: the peer cannot
/// truncate it or punch holes in it, and it stays mapped after the peer's death. Dropping unmaps it.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Mapping,
}

impl PeerRegion {
    /// Maps the peer's region behind `fd`, which is closed in any case. Waits for nobody, whatever `fd` is.
    ///
    /// # Errors
    /// [`RegionError::Peer`] with what is wrong with the fd: not sealed shared memory, not of `expected_len` bytes,
    /// or sparse. Others as for [`Region::create`](crate::Region::create).
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
    let stat = memory_stat(fd.as_fd()).map_err(|errno| Refusal::Errno("statx", errno))?;
    let found = stat.stx_size;
    if found == 0 || u64::try_from(expected_len) != Ok(found) {
        return Err(PeerFault::Length { found, expected: expected_len }.into());
    }
    let reserved = reserved(&stat);
    if reserved < found {
        return Err(PeerFault::Sparse { reserved, len: expected_len }.into());
    }
    Ok(())
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
