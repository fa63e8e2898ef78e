//! What a peer passes in place of its region is refused, with the reason in words, and closed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use tollfree_region::{PeerFault, PeerRegion, Region, RegionError};

const LEN: usize = 8192;

/// Maps and returns the fault; the fd must be closed whatever the outcome.
fn fault_of(fd: OwnedFd, len: usize) -> PeerFault {
    let inode = (rustix::fs::fstat(&fd).unwrap().st_dev, rustix::fs::fstat(&fd).unwrap().st_ino);
    let raw: RawFd = fd.as_raw_fd();
    let error = PeerRegion::map(fd, len).unwrap_err();
    let began = Instant::now();
    loop {
        // Another test's thread may have taken the number meanwhile, but not the object.
        // SAFETY: only asked about, and for a moment; a number that is no descriptor any more is an error here.
        let again = rustix::fs::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) });
        if again.is_err() || again.is_ok_and(|stat| (stat.st_dev, stat.st_ino) != inode) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{raw} still open");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(error.is_peer_fault() && !error.is_exhausted());
    assert!(error.to_string().starts_with("the peer's region (fd "), "{error}");
    match error {
        RegionError::Peer { fd, fault } => {
            assert_eq!(fd, raw);
            fault
        }
        other => panic!("{other}"),
    }
}

fn memfd(len: usize, reserve: bool, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    if reserve {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64).unwrap();
    }
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

const ALL: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

#[test]
fn every_missing_seal_is_named() {
    for (seal, name) in [
        (SealFlags::SHRINK, "F_SEAL_SHRINK"),
        (SealFlags::GROW, "F_SEAL_GROW"),
        (SealFlags::FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"),
        (SealFlags::SEAL, "F_SEAL_SEAL"),
    ] {
        let fault = fault_of(memfd(LEN, true, ALL.difference(seal)), LEN);
        assert!(matches!(fault, PeerFault::Unsealed { .. }) && fault.to_string().contains(name), "{fault}");
    }
    let none = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&none, LEN as u64).unwrap();
    assert!(fault_of(none, LEN).to_string().contains("F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE;"));
}

#[test]
fn a_region_that_nobody_can_write_is_as_good() {
    let frozen = ALL.difference(SealFlags::FUTURE_WRITE).union(SealFlags::WRITE);
    PeerRegion::map(memfd(LEN, true, frozen), LEN).unwrap();
    PeerRegion::map(memfd(LEN, true, ALL), LEN).unwrap();
}

#[test]
fn the_length_must_be_the_one_announced() {
    for (real, said) in
        [(LEN, LEN - 1), (LEN, LEN + 1), (LEN, 0), (LEN, usize::MAX), (4096, LEN), (0, LEN), (0, 0)]
    {
        let fault = fault_of(memfd(real.max(1) * usize::from(real > 0), real > 0, ALL), said);
        assert_eq!(fault, PeerFault::Length { found: real as u64, expected: said });
    }
}

#[test]
fn a_sparse_region_is_refused() {
    assert_eq!(fault_of(memfd(LEN, false, ALL), LEN), PeerFault::Sparse { reserved: 0, len: LEN });
    let holey = memfd(LEN, false, SealFlags::empty());
    rustix::fs::fallocate(&holey, FallocateFlags::empty(), 4096, 4096).unwrap();
    rustix::fs::fcntl_add_seals(&holey, ALL).unwrap();
    assert_eq!(fault_of(holey, LEN), PeerFault::Sparse { reserved: 4096, len: LEN });
}

/// Memory of `len` bytes that are not reserved, with as much reserved behind its end.
fn beyond(len: usize, within: usize) -> OwnedFd {
    let fd = memfd(len, false, SealFlags::empty());
    if within > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, within as u64).unwrap();
    }
    let behind = (len - within) as u64;
    rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, len as u64 + (64 << 20), behind).unwrap();
    rustix::fs::fcntl_add_seals(&fd, ALL).unwrap();
    fd
}

#[test]
fn memory_behind_the_end_does_not_pass_for_pages_within() {
    assert_eq!(fault_of(beyond(LEN, 0), LEN), PeerFault::Sparse { reserved: 0, len: LEN });
    let fault = fault_of(beyond(LEN, 4096), LEN);
    assert_eq!(fault, PeerFault::Sparse { reserved: 4096, len: LEN });
    // What is good otherwise is good without it, and nothing is kept behind the end.
    let more = memfd(LEN, true, SealFlags::empty());
    rustix::fs::fallocate(&more, FallocateFlags::KEEP_SIZE, LEN as u64, 1 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&more, ALL).unwrap();
    let kept = more.try_clone().unwrap();
    PeerRegion::map(more, LEN).unwrap();
    assert_eq!(rustix::fs::fstat(&kept).unwrap().st_blocks * 512, LEN as i64);
}

#[test]
fn so_much_behind_the_end_that_freeing_it_takes_time_is_refused() {
    let more = memfd(LEN, true, SealFlags::empty());
    rustix::fs::fallocate(&more, FallocateFlags::KEEP_SIZE, LEN as u64, 4 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&more, ALL).unwrap();
    let reserved = (4 << 20) + LEN as u64;
    assert_eq!(fault_of(more, LEN), PeerFault::Excess { reserved, len: LEN });
}

#[test]
fn memory_of_huge_pages_is_refused() {
    let huge = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(fd) = rustix::fs::memfd_create("hostile", huge) else {
        println!("skipped: this kernel has no huge pages");
        return;
    };
    rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&fd, ALL).unwrap();
    assert_eq!(fault_of(fd, 2 << 20), PeerFault::Kind("memory of huge pages"));
}

#[test]
fn other_kinds_of_fd_are_refused() {
    let kind = |fd: OwnedFd, word: &str| match fault_of(fd, LEN) {
        PeerFault::Kind(what) => assert!(what.contains(word), "{what} for {word}"),
        fault => panic!("{fault} for {word}"),
    };
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    kind(reader, "pipe");
    kind(writer, "pipe");
    let (family, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
    kind(rustix::net::socket(family, stream, None).unwrap(), "socket");
    kind(rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap(), "eventfd");
    kind(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(), "another kind");
    kind(File::open("/dev/zero").unwrap().into(), "device");
    kind(File::open("/").unwrap().into(), "directory");
    kind(File::open("/proc/self/maps").unwrap().into(), "without seals");
}

/// Regular files of several file systems; one in memory knows seals, but carries none that help.
#[test]
fn regular_files_are_refused() {
    for dir in [std::env::temp_dir().to_str().unwrap(), env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        let Ok(fd) = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) else {
            println!("skipped {dir}: no O_TMPFILE there");
            continue;
        };
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, LEN as u64).unwrap();
        let fault = fault_of(fd, LEN);
        assert!(matches!(fault, PeerFault::Kind(_) | PeerFault::Unsealed { .. }), "{dir}: {fault}");
    }
    let own_code = File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(fault_of(own_code.into(), LEN), PeerFault::Kind(_) | PeerFault::Unsealed { .. }));
}

#[test]
fn a_good_region_without_the_right_to_read_and_to_write_is_refused() {
    let region = Region::create("hostile", LEN).unwrap();
    let reopen = |flags| {
        let path = format!("/proc/self/fd/{}", region.fd().as_fd().as_raw_fd());
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
    };
    assert_eq!(fault_of(reopen(OFlags::WRONLY), LEN), PeerFault::Unreadable);
    assert_eq!(fault_of(reopen(OFlags::PATH), LEN), PeerFault::Unreadable);
    assert_eq!(fault_of(reopen(OFlags::RDONLY), LEN), PeerFault::Unwritable);
    PeerRegion::map(reopen(OFlags::RDWR), LEN).unwrap();
}
