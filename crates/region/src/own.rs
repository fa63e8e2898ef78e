//! A region that this process creates and alone may write.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use tollfree_os::rustix::io::{Errno, retry_on_intr};
use tollfree_os::rustix::mm::ProtFlags;
use tollfree_os::rustix::process::{Resource, getrlimit};

use crate::error::RegionError;
use crate::fork::Origin;
use crate::mapping::{Mapping, StepError};
use crate::memory::{ReadMemory, WriteMemory};

/// The seals that a region carries before anybody else gets it: its size is fixed, nobody can make a new writable
/// mapping or write to the file, and no seal can be added.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Reserved at one go. A signal undoes the reservation that it interrupts, so it must be short.
const RESERVE_LEN: u64 = 256 * 1024;

/// Memory that this process created, mapped writable here and, once its fd is passed on, read-only elsewhere.
///
/// The memory is zeroed, all of it is reserved, and it is counted against the process that creates it. Dropping unmaps it;
/// it is given back when the peer has unmapped it too.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    fd: Option<OwnedFd>,
}

impl Region {
    /// Creates, reserves, maps and seals `len` bytes. `name` is seen in `/proc/*/maps` and `/proc/*/fd` only.
    ///
    /// # Errors
    /// [`RegionError::Exhausted`] without memory or descriptors, or where a limit forbids the length;
    /// [`RegionError::Forbidden`] where policy does; [`RegionError::System`] for a length of 0 or a name with a NUL or
    /// of more than 249 bytes. Nothing is left behind. All of `len` is reserved at once, so it is for the caller to
    /// bound it.
    pub fn create(name: &str, len: usize) -> Result<Region, RegionError> {
        Self::try_create(name, len).map_err(|(step, errno)| RegionError::from_errno(step, len, errno))
    }

    fn try_create(name: &str, len: usize) -> Result<Region, StepError> {
        let fd = make_memfd(name)?;
        let file_len = u64::try_from(len).map_err(|_| ("ftruncate", Errno::FBIG))?;
        // The kernel would answer a length over this limit with a signal that kills.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| file_len > limit) {
            return Err(("ftruncate", Errno::FBIG));
        }
        rustix::fs::ftruncate(&fd, file_len).map_err(|errno| match errno {
            Errno::INVAL => ("ftruncate", Errno::FBIG), // Beyond what a file offset can be.
            errno => ("ftruncate", errno),
        })?;
        // Mapped before it is reserved: addresses are the scarcer good for lengths that are out of all proportion.
        let mapping = Mapping::new(fd.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        reserve(fd.as_fd(), file_len)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(|errno| ("fcntl(F_ADD_SEALS)", errno))?;
        Ok(Region { mapping, fd: Some(fd) })
    }

    /// The descriptor to pass to the peer.
    ///
    /// # Panics
    /// After [`take_fd`](Self::take_fd).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("the region's fd was taken before").as_fd()
    }

    /// Hands over the descriptor, for instance to close it once the peer has its own. The mapping stays.
    pub fn take_fd(&mut self) -> Option<OwnedFd> {
        self.fd.take()
    }

    /// The address of the `len` bytes from `at` on, for views of memory whose writer the caller trusts (members of a
    /// pool). It is good while this object lives, in the process that made it. No reference is to be made of it while
    /// [`fill`](Self::fill) writes there.
    ///
    /// # Panics
    /// Where the range is outside of the region.
    #[inline]
    pub fn ptr(&self, at: usize, len: usize) -> NonNull<u8> {
        self.mapping.ptr(at, len)
    }

    /// Has `fill` write the `len` bytes from `at` on where they lie, instead of copying them in. They hold what was written
    /// there before. Others may read them meanwhile, as any mixture of old and new.
    ///
    /// # Panics
    /// Where the range is outside of the region.
    #[inline]
    pub fn fill(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        let place = self.mapping.ptr(at, len);
        // SAFETY: the bytes are in range (just checked), mapped writable while `self` lives (`create`), and initialised, zeroed
        // as they are made. Nobody else writes them: other processes can't (the seal), nor other mappings of this one (a
        // `PeerRegion` is read-only). No other reference to them is made through this object meanwhile, which is borrowed
        // exclusively; a caller that uses an address that `ptr` gave answers for that, and none is asked for of a payload area. Other
        // mappings are read without references. `fill_writes_where_the_peer_reads` in `tests/suite/regions.rs` writes and reads.
        fill(unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len) });
    }

    /// Whether this was made before a fork that led to this process: then it is not mapped here and must not be
    /// used, only dropped.
    pub fn is_inherited(&self) -> bool {
        self.mapping.is_inherited()
    }

    /// Which process made it, for what is to live no further than this does.
    pub fn origin(&self) -> Origin {
        self.mapping.origin()
    }
}

fn make_memfd(name: &str) -> Result<OwnedFd, StepError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; some newer ones are set to refuse memfds without it.
    rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|errno| match errno {
            Errno::INVAL => rustix::fs::memfd_create(name, flags),
            errno => Err(errno),
        })
        .map_err(|errno| ("memfd_create", errno))
}

fn reserve(fd: BorrowedFd<'_>, len: u64) -> Result<(), StepError> {
    let mut at = 0;
    while at < len {
        let piece = RESERVE_LEN.min(len - at);
        retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), at, piece))
            .map_err(|errno| ("fallocate", errno))?;
        at += piece;
    }
    Ok(())
}

impl ReadMemory for Region {
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
}

impl WriteMemory for Region {
    #[inline]
    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        // SAFETY: `create` maps writable, before it seals; `tests/suite/regions.rs` writes.
        unsafe { self.mapping.store_u32(at, value, order) }
    }
    #[inline]
    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        // SAFETY: as above.
        unsafe { self.mapping.store_u64(at, value, order) }
    }
    #[inline]
    fn copy_in(&self, at: usize, src: &[u8]) {
        // SAFETY: as above.
        unsafe { self.mapping.copy_in(at, src) }
    }
    #[inline]
    fn prefetch_to_write(&self, at: usize) {
        self.mapping.prefetch_to_write(at);
    }
    #[inline]
    fn demote(&self, at: usize) {
        self.mapping.demote(at);
    }
}
