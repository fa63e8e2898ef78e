//! Noticing that this process is the child of a fork.
//!
//! One private page says so: the kernel gives a child zeros in its place (`MADV_WIPEONFORK`, Linux 4.14), whichever
//! way it was forked, while a counter in ordinary memory is copied. Shared mappings are left out of the child
//! (`MADV_DONTFORK`), so their addresses may belong to something else there; an object that was made before the fork
//! must not touch them, nor unmap them.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tollfree_os::rustix;
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::mm::{Advice, MapFlags, ProtFlags};

/// One page: enough for the word, and the unit of `madvise`. Larger where pages are larger.
const MARK_LEN: usize = 4096;
/// The process that first made a region; its children by fork count on from here.
const FIRST: u32 = 1;

/// The word that forks wipe: 0 in a child until it makes a region of its own.
static MARK: OnceLock<Mark> = OnceLock::new();
/// How many processes in this line of descent have set the mark.
static LAST: AtomicU32 = AtomicU32::new(FIRST);

struct Mark(NonNull<u32>);

// SAFETY: the page is never unmapped and is accessed as an atomic only. The fork tests would notice a page that goes.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl Mark {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: `set_up` mapped a page for good and nobody takes a reference of another type to it. It is private
        // memory of this process: no peer writes it. `tests/suite/fork.rs` reads it on both sides of a fork.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr()) }
    }
}

/// Which process of a line of forks made an object: [`Region::origin`](crate::Region::origin).
///
/// What belongs to a session must be left alone in a process that was forked since: memory of it isn't mapped there, and
/// it is dropped without a word to the peer. What such a process makes itself has an origin of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process; sets the mark where it is missing.
    ///
    /// # Errors
    /// No page of memory, or a kernel before 4.14.
    pub fn current() -> std::io::Result<Origin> {
        Ok(Origin::here()?)
    }

    pub(crate) fn here() -> Result<Origin, Errno> {
        let mark = match MARK.get() {
            Some(mark) => mark,
            None => {
                let fresh = set_up()?;
                // Another thread may have been first: its page stays, ours is one page that no one uses.
                MARK.get_or_init(|| fresh)
            }
        };
        let found = mark.word().load(Ordering::Relaxed);
        if found != 0 {
            return Ok(Origin(found));
        }
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match mark.word().compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(Origin(next)),
            Err(found) => Ok(Origin(found)),
        }
    }

    /// Whether the object was made before a fork that led to this process. Costs two loads.
    #[inline]
    pub fn is_elsewhere(self) -> bool {
        MARK.get().is_none_or(|mark| mark.word().load(Ordering::Relaxed) != self.0)
    }
}

fn set_up() -> Result<Mark, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            MARK_LEN,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the range is the mapping just made, which nobody else knows.
    if let Err(errno) = unsafe { rustix::mm::madvise(page, MARK_LEN, Advice::LinuxWipeOnFork) } {
        // SAFETY: as above; nothing refers to it.
        unsafe { rustix::mm::munmap(page, MARK_LEN) }.ok();
        return Err(errno);
    }
    let mark = Mark(NonNull::new(page.cast()).ok_or(Errno::NOMEM)?);
    mark.word().store(FIRST, Ordering::Relaxed);
    Ok(mark)
}
