//! Plain memory that shows parts of shared files until it is written: the kernel copies a page at the first store to it.

use std::io;
use std::ptr::{NonNull, null_mut};

use tollfree_os::fd::BorrowedFd;
use tollfree_os::rustix;
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::RegionError;
use crate::fork::Origin;
use crate::mapping::StepError;
use crate::memory::check_range;

/// The unit in which the kernel copies.
const PAGE_LEN: usize = 4096;
/// Bytes that the kernel says of each page.
const ENTRY_LEN: usize = 8;
/// Of these, as `Documentation/admin-guide/mm/pagemap.rst` has them: in memory, swapped out, and belonging to a file.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Pages of a file that a [`PrivateView`] shows.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'fd> {
    /// Where in the view they begin, in bytes.
    pub at: usize,
    /// The file. It must be one that can't get shorter, as those of regions are: otherwise reading ends the process by a
    /// signal.
    pub fd: BorrowedFd<'fd>,
    /// Where in the file they begin.
    pub off: usize,
    /// How many bytes they have.
    pub len: usize,
}

/// A run of pages of this process's own, which show parts of files, and zeros between them.
///
/// Nobody else ever sees what is stored here, and the files stay as they are. A page that was not stored to shows what its
/// file has *now*; a caller that needs that to stay the same makes sure that nobody writes the file.
///
/// Pages that are stored to are charged to this process. A forked child has none of it.
#[derive(Debug)]
pub struct PrivateView {
    base: NonNull<u8>,
    len: usize,
    origin: Origin,
}

// SAFETY: the memory belongs to no thread: it stays where it is until drop, which takes the object by value.
// `what_is_shown_is_what_the_file_has_until_it_is_written` sends one to a thread.
unsafe impl Send for PrivateView {}
// SAFETY: through `&self` nothing but the address is given out. As above.
unsafe impl Sync for PrivateView {}

impl PrivateView {
    /// Pages for `len` bytes, on which the patches are laid in turn.
    ///
    /// # Errors
    /// [`RegionError`]; nothing is left behind.
    ///
    /// # Panics
    /// Where a patch is not of whole pages, has none, or goes beyond the view.
    pub fn new(len: usize, patches: &[Patch<'_>]) -> Result<PrivateView, RegionError> {
        Self::try_new(len, patches).map_err(|(step, errno)| RegionError::from_errno(step, len, errno))
    }

    fn try_new(len: usize, patches: &[Patch<'_>]) -> Result<PrivateView, StepError> {
        let origin = Origin::here().map_err(|errno| ("setting up fork detection", errno))?;
        let len = len.checked_next_multiple_of(PAGE_LEN).ok_or(("mmap", Errno::NOMEM))?;
        for patch in patches {
            check_range(patch.at, patch.len, len);
            let is_whole = (patch.at | patch.off | patch.len).is_multiple_of(PAGE_LEN) && patch.len > 0;
            assert!(is_whole, "{} bytes at {} for {}: no whole pages", patch.len, patch.off, patch.at);
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe {
            match patches.first() {
                // One call less, in the common case.
                Some(patch) if patch.len == len => {
                    rustix::mm::mmap(null_mut(), len, prot, MapFlags::PRIVATE, patch.fd, patch.off as u64)
                }
                _ => rustix::mm::mmap_anonymous(null_mut(), len, prot, MapFlags::PRIVATE),
            }
        };
        let base = base.map_err(|errno| ("mmap", errno))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(("mmap", Errno::NOMEM))?;
        let view = PrivateView { base, len, origin };
        for patch in patches.iter().filter(|patch| patch.len < len) {
            // SAFETY: the range is within the mapping just made (checked above), into which nobody has a reference yet.
            // `what_is_shown_is_what_the_file_has_until_it_is_written` would notice.
            unsafe {
                let at = view.base.as_ptr().add(patch.at).cast();
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                rustix::mm::mmap(at, patch.len, prot, flags, patch.fd, patch.off as u64)
            }
            .map_err(|errno| ("mmap", errno))?;
        }
        // SAFETY: the range is the mapping just made. The advice concerns later children only.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }
            .map_err(|errno| ("madvise", errno))?;
        Ok(view)
    }

    /// The address of the `len` bytes from `at` on. It is good while this object lives, in the process that made it.
    ///
    /// # Panics
    /// Where the range is outside of the view.
    #[inline]
    pub fn ptr(&self, at: usize, len: usize) -> NonNull<u8> {
        check_range(at, len, self.len);
        // SAFETY: within the mapping or just past it (just checked), whose base is not null. `tests/suite/private.rs`.
        unsafe { self.base.add(at) }
    }

    /// Whether this was made before a fork that led to this process: then it is not mapped here.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.origin.is_elsewhere()
    }

    /// Of each page, whether it is this process's own by now rather than the file's that it shows: the kernel's page map
    /// tells. Pages that show no file say nothing of use.
    ///
    /// # Errors
    /// Where `/proc` isn't mounted, or this process may not look at itself there.
    pub fn stored(&self) -> io::Result<Vec<bool>> {
        // Opened each time: it tells of the process that opened it, which may have forked since.
        let map = std::fs::File::open("/proc/self/pagemap")?;
        let mut entries = vec![0; self.len / PAGE_LEN * ENTRY_LEN];
        let at = self.base.as_ptr() as usize / PAGE_LEN * ENTRY_LEN;
        tollfree_os::unix::fs::FileExt::read_exact_at(&map, &mut entries, at as u64)?;
        let is_stored = |entry: &[u8]| {
            let word = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
            word & (PRESENT | SWAPPED) != 0 && word & OF_FILE == 0
        };
        Ok(entries.chunks_exact(ENTRY_LEN).map(is_stored).collect())
    }
}

impl Drop for PrivateView {
    fn drop(&mut self) {
        if self.is_inherited() {
            return; // In this process something else may have that address.
        }
        // SAFETY: the range was mapped by `new` in this process, and nothing refers to it: all access borrows `self`.
        // The leak test counts mappings.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()), "the range is a mapping of ours");
    }
}
