//! Nothing is left behind, whether creating and mapping work or not. The test is alone: it counts what the process has.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use tollfree_region::{PeerRegion, ReadMemory, Region};

use crate::alone;

fn fd_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapping_count() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("memfd:")).count()
}

#[test]
fn nothing_is_left_behind() {
    alone!();
    const LEN: usize = 16384;
    drop(Region::create("leak", LEN).unwrap());
    let before = (fd_count(), mapping_count());
    for _ in 0..50 {
        let mut own = Region::create("leak", LEN).unwrap();
        let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), LEN).unwrap();
        assert_eq!(
            (fd_count(), mapping_count()),
            (before.0 + 1, before.1 + 2),
            "the peer's fd is closed at once"
        );
        let fd: OwnedFd = own.take_fd().unwrap();
        assert!(own.take_fd().is_none());
        drop(fd);
        assert_eq!(fd_count(), before.0);
        drop(own);
        assert_eq!(
            peer.load_u64(0, std::sync::atomic::Ordering::Relaxed),
            0,
            "mapped until its reader drops it"
        );
    }
    for len in [0, 1 << 62, isize::MAX as usize, usize::MAX] {
        Region::create("leak", len).unwrap_err();
    }
    Region::create("a name with \0 in it", LEN).unwrap_err();
    Region::create(&"n".repeat(300), LEN).unwrap_err();
    for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::SHRINK] {
        let fd = rustix::fs::memfd_create("leak", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, LEN as u64).unwrap();
        rustix::fs::fcntl_add_seals(fd.as_fd(), seals).unwrap();
        PeerRegion::map(fd, LEN).unwrap_err();
    }
    assert_eq!((fd_count(), mapping_count()), before);
}
