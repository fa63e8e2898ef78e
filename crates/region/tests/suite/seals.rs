//! What the seals promise: nobody but the creator's mapping writes, and the size stays.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use tollfree_region::Region;

const LEN: usize = 8192;

fn sealed() -> (Region, OwnedFd) {
    let region = Region::create("tollfree-seals", LEN).unwrap();
    let fd = region.fd().try_clone_to_owned().unwrap();
    (region, fd)
}

#[test]
fn the_file_can_be_neither_written_nor_resized() {
    let (_region, fd) = sealed();
    assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    for len in [0, LEN as u64 - 1, LEN as u64 + 1] {
        assert_eq!(rustix::fs::ftruncate(&fd, len), Err(Errno::PERM));
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, punch, 0, LEN as u64), Err(Errno::PERM));
    assert_eq!(rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, LEN as u64 + 4096), Err(Errno::PERM));
}

#[test]
fn no_further_mapping_is_writable() {
    let (_region, fd) = sealed();
    let map = |prot, flags| {
        // SAFETY: a new mapping at an address of the kernel's choice.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, prot, flags, &fd, 0) }
    };
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED), Err(Errno::PERM));
    let read_only = map(ProtFlags::READ, MapFlags::SHARED).unwrap();
    // SAFETY: the range is the mapping just made; nothing refers to it.
    unsafe {
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        assert_eq!(rustix::mm::mprotect(read_only, LEN, writable), Err(Errno::ACCESS));
        assert!(rustix::mm::madvise(read_only, LEN, Advice::LinuxRemove).is_err());
        rustix::mm::munmap(read_only, LEN).unwrap();
    }
}

#[test]
fn opening_it_again_does_not_help() {
    let (_region, fd) = sealed();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // Opening may succeed; what counts is that the new fd writes no more than the old one.
    if let Ok(again) = rustix::fs::open(path, OFlags::RDWR, Mode::empty()) {
        assert_eq!(rustix::io::write(&again, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&again, 0), Err(Errno::PERM));
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, &again, 0) };
        assert_eq!(map, Err(Errno::PERM));
    }
}

#[test]
fn the_creator_cannot_punch_holes_under_its_reader() {
    let (_region, fd) = sealed();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inode = rustix::fs::fstat(&fd).unwrap().st_ino.to_string();
    let line = maps.lines().find(|line| line.split_whitespace().nth(4) == Some(&inode)).unwrap();
    assert!(line.contains("rw-s"), "the creator's own mapping is writable: {line}");
    let base = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    // SAFETY: the range is the region's own mapping, whose pages this asks to drop; no reference points there.
    let removed = unsafe { rustix::mm::madvise(base as *mut _, LEN, Advice::LinuxRemove) };
    assert_eq!(removed, Err(Errno::PERM));
}
