//! Memory that looks as if all of it were reserved, and has not a page where it is read.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// Sealed shared memory of `len` bytes that has no page but those of `head`, with which it begins: the others lie behind its end. The
/// kernel counts them all the same.
///
/// # Panics
/// When the kernel has no such memory.
pub fn hollow(head: &[u8], len: usize) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hollow", flags).expect("there is memory");
    rustix::fs::ftruncate(&fd, len as u64).expect("it takes any length");
    if !head.is_empty() {
        assert_eq!(rustix::io::pwrite(&fd, head, 0), Ok(head.len()), "there is room");
    }
    let missing = len - head.len().next_multiple_of(rustix::param::page_size());
    let behind = rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, len as u64, missing as u64);
    behind.expect("there is room behind the end");
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).expect("it may be sealed");
    fd
}
