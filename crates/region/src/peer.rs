//! A region that the peer created, checked and mapped read-only.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use rustix::fs::{FileType, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use crate::error::{PeerFault, RegionError, Seals};
use crate::mapping::Mapping;
use crate::memory::ReadMemory;
use crate::own::SEALS;

/// Unit of `st_blocks`, in bytes, whatever the file system.
const BLOCK_LEN: u64 = 512;

/// A peer's memory, readable here and writable by the peer alone.
///
/// Its seals and its reserved pages are checked before it is mapped, so that reading never faults: the peer cannot
/// truncate it or punch holes in it, and it stays mapped after the peer's death. Dropping unmaps it.
#[derive(Debug)]
pub struct PeerRegion {
    mapping: Mapping,
}

impl PeerRegion {
    /// Maps the peer's region behind `fd`, which is closed in any case.
    ///
    /// # Errors
    /// [`RegionError::Peer`] with what is wrong with the fd: not sealed shared memory, not of `expected_len` bytes,
    /// or sparse. Others as for [`Region::create`](crate::Region::create).
    pub fn map(fd: OwnedFd, expected_len: usize) -> Result<PeerRegion, RegionError> {
        check(fd.as_fd(), expected_len).map_err(|refusal| match refusal {
            Refusal::Fault(fault) => RegionError::Peer { fd: fd.as_raw_fd(), fault },
            Refusal::Errno(step, errno) => RegionError::from_errno(step, expected_len, errno),
        })?;
        match Mapping::new(fd.as_fd(), expected_len, ProtFlags::READ) {
            Ok(mapping) => Ok(PeerRegion { mapping }),
            Err(("mmap", Errno::ACCESS)) => {
                Err(RegionError::Peer { fd: fd.as_raw_fd(), fault: PeerFault::Unreadable })
            }
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

/// Seals first: size and blocks say nothing while the peer can still change them.
fn check(fd: BorrowedFd<'_>, expected_len: usize) -> Result<(), Refusal> {
    let stat = || rustix::fs::fstat(fd).map_err(|errno| Refusal::Errno("fstat", errno));
    match FileType::from_raw_mode(stat()?.st_mode) {
        FileType::RegularFile => {}
        FileType::Fifo => return Err(PeerFault::Kind("a pipe").into()),
        FileType::Socket => return Err(PeerFault::Kind("a socket").into()),
        FileType::Directory => return Err(PeerFault::Kind("a directory").into()),
        FileType::CharacterDevice | FileType::BlockDevice => return Err(PeerFault::Kind("a device").into()),
        FileType::Symlink => return Err(PeerFault::Kind("a symbolic link").into()),
        FileType::Unknown => return Err(PeerFault::Kind("an eventfd or other object without a file").into()),
    }
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|errno| match errno {
        Errno::INVAL => PeerFault::Kind("a file on a file system without seals").into(),
        Errno::BADF => PeerFault::Unreadable.into(),
        errno => Refusal::Errno("fcntl(F_GET_SEALS)", errno),
    })?;
    // A region that nobody at all can write is as good.
    let mut wanted = SEALS;
    if seals.contains(SealFlags::WRITE) {
        wanted.remove(SealFlags::FUTURE_WRITE);
    }
    if !seals.contains(wanted) {
        return Err(PeerFault::Unsealed { missing: Seals(wanted.difference(seals)) }.into());
    }
    let stat = stat()?;
    let found = u64::try_from(stat.st_size).unwrap_or(0);
    if found == 0 || u64::try_from(expected_len) != Ok(found) {
        return Err(PeerFault::Length { found, expected: expected_len }.into());
    }
    let reserved = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_LEN);
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
