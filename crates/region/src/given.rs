//! A descriptor that somebody else gave: asked only what the kernel itself answers, and closed where nobody waits for it.
//!
//! # States
//! ```text
//! given ──kind()──► looked at ──accept()──► this process's own, closed like any other
//!   └───────────────────┴── dropped ──► closed at once, if the kernel alone stands behind it
//!                                  └──► in the queue ──► closed by a thread that may wait
//! ```
//!
//! # Trust
//! Behind a descriptor may stand a file system that the giver runs itself (FUSE), or a connection that lingers (`SO_LINGER`).
//! A question such as `fstat` waits for the one, and `close` for both, for as long as the giver likes. So a given descriptor
//! is asked for its seals, which only memory has and for which no file system is asked; for the size of its pipe; and for the
//! name that the kernel shows for it in `/proc`, which is the kernel's own for what has no file. Where there is no `/proc`,
//! an eventfd isn't known for one, and nothing is lost but that.
//!
//! The threads that close wait for the giver, four of them at most. What waits for them is counted ([`closing_count`]);
//! those above let nobody in while it is [`CLOSING_COUNT_MAX`] or more.
//!
//! # Crash
//! A process that ends closes what is left itself, and waits there for a giver that holds up its file system. Nothing in
//! user space can change that; it ends when the giver does. Threads that close don't exist in a child of `fork`; it makes its
//! own when it needs one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollfree_os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::fs::{AtFlags, SealFlags, Statx, StatxFlags};
use tollfree_os::rustix::io::Errno;

/// Threads that close at once, at most.
const THREAD_COUNT_MAX: usize = 4;
/// Descriptors that wait to be closed before nobody should be let in who may bring more.
pub const CLOSING_COUNT_MAX: usize = 64;
/// A thread that has had nothing to close for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Memory of more bytes than this is given back by a thread that may take its time over it.
const LIGHT_LEN: u64 = 64 << 20;
/// Unit of `stx_blocks`, in bytes, whatever the file system.
pub(crate) const BLOCK_LEN: u64 = 512;

/// What stands behind a descriptor, as far as the kernel itself says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GivenKind {
    /// Shared memory, with these seals or none.
    Memory(SealFlags),
    /// A pipe.
    Pipe,
    /// An eventfd.
    Event,
    /// A process.
    Process,
    /// A path to something, which is not open.
    Path,
    /// Anything else; it may be somebody's who never answers.
    Other(&'static str),
}

impl GivenKind {
    /// What it is, for people.
    pub fn words(self) -> &'static str {
        match self {
            GivenKind::Memory(_) => "shared memory",
            GivenKind::Pipe => "a pipe",
            GivenKind::Event => "an eventfd",
            GivenKind::Process => "a process",
            GivenKind::Path => "a path to something that is not open",
            GivenKind::Other(words) => words,
        }
    }
}

/// A descriptor that came from another process. Dropping it never waits.
#[derive(Debug)]
pub struct GivenFd {
    /// Gone when it was accepted.
    fd: Option<OwnedFd>,
}

impl From<OwnedFd> for GivenFd {
    fn from(fd: OwnedFd) -> GivenFd {
        GivenFd { fd: Some(fd) }
    }
}

impl AsFd for GivenFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("there until it is accepted").as_fd()
    }
}

impl GivenFd {
    /// What it is. Waits for nobody.
    pub fn kind(&self) -> GivenKind {
        kind(self.as_fd())
    }

    /// Takes it for what it was found to be: it is closed like any other descriptor of this process from now on.
    ///
    /// # Errors
    /// What it is instead; it is on its way to be closed.
    pub fn accept(mut self, kind: GivenKind) -> Result<OwnedFd, GivenKind> {
        match self.kind() {
            found if found == kind => Ok(self.fd.take().expect("there until now")),
            found => Err(found),
        }
    }
}

impl Drop for GivenFd {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let is_light = match kind(fd.as_fd()) {
            GivenKind::Memory(_) => memory_stat(fd.as_fd()).is_ok_and(|stat| reserved(&stat) <= LIGHT_LEN),
            GivenKind::Pipe | GivenKind::Event | GivenKind::Process => true,
            GivenKind::Path | GivenKind::Other(_) => false,
        };
        if !is_light {
            close_elsewhere(fd);
        }
    }
}

/// Bytes that have memory behind them.
pub(crate) fn reserved(stat: &Statx) -> u64 {
    stat.stx_blocks.saturating_mul(BLOCK_LEN)
}

/// Length and blocks of what is known to be shared memory.
pub(crate) fn memory_stat(memory: BorrowedFd<'_>) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(memory, "", flags, StatxFlags::SIZE | StatxFlags::BLOCKS)
}

fn kind(fd: BorrowedFd<'_>) -> GivenKind {
    match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => return GivenKind::Memory(seals),
        Err(Errno::BADF) => return GivenKind::Path,
        Err(_) => {}
    }
    if rustix::pipe::fcntl_getpipe_size(fd).is_ok() {
        return GivenKind::Pipe;
    }
    // A file's name begins with a slash: nobody can have one that looks like the kernel's own.
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    match name.to_str().unwrap_or_default() {
        "anon_inode:[eventfd]" => GivenKind::Event,
        "anon_inode:[pidfd]" => GivenKind::Process,
        name if name.starts_with("socket:") => GivenKind::Other("a socket"),
        name if name.starts_with('/') => GivenKind::Other("a file, directory or device without seals"),
        _ => GivenKind::Other("an object of another kind"),
    }
}

/// What waits to be closed, and the threads that do so.
struct Closing {
    queue: VecDeque<OwnedFd>,
    thread_count: usize,
    idle_count: usize,
    /// Descriptors that threads are closing now.
    under_way_count: usize,
    /// Whose threads they are.
    pid: u32,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    queue: VecDeque::new(),
    thread_count: 0,
    idle_count: 0,
    under_way_count: 0,
    pid: 0,
});
static CAME: Condvar = Condvar::new();

fn closing() -> MutexGuard<'static, Closing> {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    if closing.pid != std::process::id() {
        // Threads of a parent don't exist here. What they were closing is for it to close; its copies go with this process.
        *closing = Closing {
            queue: std::mem::take(&mut closing.queue),
            thread_count: 0,
            idle_count: 0,
            under_way_count: 0,
            pid: std::process::id(),
        };
    }
    closing
}

/// How many descriptors wait for a thread that closes, or for their givers.
pub fn closing_count() -> usize {
    let closing = closing();
    closing.queue.len() + closing.under_way_count
}

/// Hands a descriptor to a thread that may wait. Should no thread be had, the next descriptor's thread closes it.
fn close_elsewhere(fd: OwnedFd) {
    let mut closing = closing();
    closing.queue.push_back(fd);
    if closing.queue.len() <= closing.idle_count {
        drop(closing);
        CAME.notify_one();
    } else if closing.thread_count < THREAD_COUNT_MAX {
        let spawned = std::thread::Builder::new().name("tollfree-close".to_owned()).spawn(close_all);
        closing.thread_count += usize::from(spawned.is_ok());
    }
}

/// Closes one after the other, until there has been none for a while.
fn close_all() {
    let mut guard = closing();
    loop {
        while let Some(fd) = guard.queue.pop_front() {
            guard.under_way_count += 1;
            drop(guard);
            drop(fd);
            guard = closing();
            guard.under_way_count -= 1;
        }
        guard.idle_count += 1;
        let (woken, waited) = CAME.wait_timeout(guard, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
        guard = woken;
        guard.idle_count -= 1;
        if waited.timed_out() && guard.queue.is_empty() {
            guard.thread_count -= 1;
            return;
        }
    }
}
