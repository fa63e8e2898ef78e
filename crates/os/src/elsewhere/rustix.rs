//! What is used of `rustix`. Clocks, yielding and the number of this process work everywhere. Functions that ask the kernel for anything
//! else return [`io::Errno::NOSYS`].

// Sets of flags, in which nothing is.
macro_rules! flags {
    ($($name:ident: $($flag:ident)*;)+) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;
        impl $name {
            $(pub const $flag: $name = $name;)*

            pub const fn empty() -> $name {
                $name
            }

            pub const fn is_empty(self) -> bool {
                true
            }

            pub const fn contains(self, _: $name) -> bool {
                false
            }

            pub const fn intersects(self, _: $name) -> bool {
                false
            }

            #[must_use]
            pub const fn union(self, _: $name) -> $name {
                $name
            }

            #[must_use]
            pub const fn difference(self, _: $name) -> $name {
                $name
            }

            pub fn remove(&mut self, _: $name) {}

            pub fn iter_names(&self) -> std::iter::Empty<(&'static str, $name)> {
                std::iter::empty()
            }

            pub const fn from_raw_mode(_: u32) -> $name {
                $name
            }

            pub const fn bits(self) -> u32 {
                0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, _: $name) -> $name {
                $name
            }
        }
    )+ };
}

// Functions that return an error whatever they are given.
macro_rules! refused {
    ($($name:ident($($given:ty),*) -> $made:ty;)+) => { $(
        pub fn $name($(_: $given),*) -> $crate::elsewhere::rustix::io::Result<$made> {
            Err($crate::elsewhere::rustix::io::Errno::NOSYS)
        }
    )+ };
}

pub mod event {
    use std::marker::PhantomData;

    pub use crate::elsewhere::rustix::time::Timespec;
    use crate::fd::{AsFd, BorrowedFd, OwnedFd};

    flags! {
        EventfdFlags: CLOEXEC NONBLOCK SEMAPHORE;
        PollFlags: IN OUT HUP RDHUP ERR;
    }

    #[derive(Debug)]
    pub struct PollFd<'fd>(PhantomData<&'fd OwnedFd>);

    impl<'fd> PollFd<'fd> {
        pub fn new(_: &'fd impl AsFd, _: PollFlags) -> PollFd<'fd> {
            PollFd(PhantomData)
        }

        pub fn from_borrowed_fd(_: BorrowedFd<'fd>, _: PollFlags) -> PollFd<'fd> {
            PollFd(PhantomData)
        }

        pub fn revents(&self) -> PollFlags {
            PollFlags
        }
    }

    refused! {
        eventfd(u32, EventfdFlags) -> OwnedFd;
        poll(&mut [PollFd<'_>], Option<&Timespec>) -> usize;
    }
}

pub mod fs {
    use std::path::Path;

    use crate::fd::{AsFd, OwnedFd};

    pub type FsWord = i64;

    flags! {
        AtFlags: EMPTY_PATH STATX_DONT_SYNC;
        FallocateFlags: ;
        MemfdFlags: ALLOW_SEALING CLOEXEC NOEXEC_SEAL;
        Mode: ROTH RUSR RWXU WUSR;
        OFlags: CLOEXEC CREATE DIRECTORY NOCTTY NOFOLLOW NONBLOCK PATH RDONLY RDWR;
        ResolveFlags: BENEATH NO_MAGICLINKS NO_SYMLINKS;
        SealFlags: FUTURE_WRITE GROW SEAL SHRINK WRITE;
        StatxFlags: BLOCKS SIZE;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FileType {
        Socket,
        Other,
    }

    impl FileType {
        pub const fn from_raw_mode(_: u32) -> FileType {
            FileType::Other
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub enum FlockOperation {
        NonBlockingLockExclusive,
        Unlock,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Stat {
        pub st_dev: u64,
        pub st_ino: u64,
        pub st_mode: u32,
        pub st_uid: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Statx {
        pub stx_size: u64,
        pub stx_blocks: u64,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct StatFs {
        pub f_type: FsWord,
    }

    refused! {
        chmod(impl AsRef<Path>, Mode) -> ();
        fchmod(impl AsFd, Mode) -> ();
        fallocate(impl AsFd, FallocateFlags, u64, u64) -> ();
        fcntl_add_seals(impl AsFd, SealFlags) -> ();
        fcntl_get_seals(impl AsFd) -> SealFlags;
        flock(impl AsFd, FlockOperation) -> ();
        fstat(impl AsFd) -> Stat;
        fstatfs(impl AsFd) -> StatFs;
        ftruncate(impl AsFd, u64) -> ();
        memfd_create(&str, MemfdFlags) -> OwnedFd;
        open(impl AsRef<Path>, OFlags, Mode) -> OwnedFd;
        openat2(impl AsFd, impl AsRef<Path>, OFlags, Mode, ResolveFlags) -> OwnedFd;
        statx(impl AsFd, &str, AtFlags, StatxFlags) -> Statx;
    }
}

pub mod io {
    use std::fmt;
    use std::io::IoSliceMut;

    use crate::fd::{AsFd, OwnedFd};

    pub type Result<T> = std::result::Result<T, Errno>;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Errno(i32);
    impl Errno {
        pub const PERM: Errno = Errno(1);
        pub const SRCH: Errno = Errno(3);
        pub const INTR: Errno = Errno(4);
        pub const BADF: Errno = Errno(9);
        pub const AGAIN: Errno = Errno(11);
        pub const WOULDBLOCK: Errno = Errno(11);
        pub const NOMEM: Errno = Errno(12);
        pub const ACCESS: Errno = Errno(13);
        pub const XDEV: Errno = Errno(18);
        pub const INVAL: Errno = Errno(22);
        pub const EINVAL: Errno = Errno(22);
        pub const NFILE: Errno = Errno(23);
        pub const MFILE: Errno = Errno(24);
        pub const FBIG: Errno = Errno(27);
        pub const NOSPC: Errno = Errno(28);
        pub const PIPE: Errno = Errno(32);
        pub const NOSYS: Errno = Errno(38);
        pub const LOOP: Errno = Errno(40);
        pub const OVERFLOW: Errno = Errno(75);
        pub const MSGSIZE: Errno = Errno(90);
        pub const ENOPROTOOPT: Errno = Errno(92);
        pub const CONNRESET: Errno = Errno(104);
        pub const NOBUFS: Errno = Errno(105);
        pub const NOTCONN: Errno = Errno(107);
        pub const TOOMANYREFS: Errno = Errno(109);
        pub const CONNREFUSED: Errno = Errno(111);

        pub const fn raw_os_error(self) -> i32 {
            self.0
        }
    }

    impl fmt::Display for Errno {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            crate::NeedsLinux.fmt(f)
        }
    }

    impl std::error::Error for Errno {}

    impl From<Errno> for std::io::Error {
        fn from(_: Errno) -> std::io::Error {
            std::io::Error::new(std::io::ErrorKind::Unsupported, crate::NeedsLinux)
        }
    }

    flags! {
        ReadWriteFlags: NOWAIT;
    }

    pub fn retry_on_intr<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
        call()
    }

    refused! {
        fcntl_dupfd_cloexec(impl AsFd, i32) -> OwnedFd;
        preadv2(impl AsFd, &mut [IoSliceMut<'_>], u64, ReadWriteFlags) -> usize;
        read(impl AsFd, &mut [u8]) -> usize;
        write(impl AsFd, &[u8]) -> usize;
    }
}

// Any call is sound: nothing is mapped. Callers' blocks need the signatures that the real functions have.
#[allow(clippy::missing_safety_doc)]
pub mod mm {
    use std::ffi::c_void;

    use super::io::{Errno, Result};
    use crate::fd::AsFd;

    flags! {
        MapFlags: FIXED PRIVATE SHARED;
        ProtFlags: READ WRITE;
    }

    #[derive(Clone, Copy, Debug)]
    pub enum Advice {
        LinuxDontFork,
        LinuxWipeOnFork,
    }

    pub unsafe fn mmap(
        _: *mut c_void,
        _: usize,
        _: ProtFlags,
        _: MapFlags,
        _: impl AsFd,
        _: u64,
    ) -> Result<*mut c_void> {
        Err(Errno::NOSYS)
    }

    pub unsafe fn mmap_anonymous(_: *mut c_void, _: usize, _: ProtFlags, _: MapFlags) -> Result<*mut c_void> {
        Err(Errno::NOSYS)
    }

    pub unsafe fn madvise(_: *mut c_void, _: usize, _: Advice) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub unsafe fn munmap(_: *mut c_void, _: usize) -> Result<()> {
        Err(Errno::NOSYS)
    }
}

pub mod net {
    use std::io::{IoSlice, IoSliceMut};
    use std::marker::PhantomData;
    use std::mem::MaybeUninit;
    use std::path::Path;

    use super::io::{Errno, Result};
    use crate::elsewhere::Never;
    use crate::fd::{AsFd, BorrowedFd, OwnedFd};

    flags! {
        RecvFlags: CMSG_CLOEXEC DONTWAIT;
        ReturnFlags: CTRUNC;
        SendFlags: DONTWAIT NOSIGNAL;
        SocketFlags: CLOEXEC NONBLOCK;
        SocketType: STREAM;
        AddressFamily: UNIX;
    }

    #[derive(Clone, Copy, Debug)]
    pub enum Shutdown {
        Both,
    }

    #[derive(Debug)]
    pub struct SocketAddrUnix(Never);

    impl SocketAddrUnix {
        pub fn new(_: impl AsRef<Path>) -> Result<SocketAddrUnix> {
            Err(Errno::NOSYS)
        }

        pub fn new_abstract_name(_: &[u8]) -> Result<SocketAddrUnix> {
            Err(Errno::NOSYS)
        }
    }

    #[derive(Debug)]
    pub enum SendAncillaryMessage<'slice, 'fd> {
        ScmRights(&'slice [BorrowedFd<'fd>]),
    }

    #[derive(Debug)]
    #[non_exhaustive]
    pub enum RecvAncillaryMessage {
        ScmRights(std::vec::IntoIter<OwnedFd>),
    }

    #[derive(Debug, Default)]
    pub struct SendAncillaryBuffer<'buf, 'slice, 'fd>(PhantomData<(&'buf u8, &'slice u8, &'fd u8)>);

    impl<'buf, 'slice, 'fd> SendAncillaryBuffer<'buf, 'slice, 'fd> {
        pub fn new(_: &'buf mut [MaybeUninit<u8>]) -> Self {
            SendAncillaryBuffer(PhantomData)
        }

        pub fn push(&mut self, _: SendAncillaryMessage<'slice, 'fd>) -> bool {
            false
        }
    }

    #[derive(Debug)]
    pub struct RecvAncillaryBuffer<'buf>(PhantomData<&'buf u8>);

    impl<'buf> RecvAncillaryBuffer<'buf> {
        pub fn new(_: &'buf mut [MaybeUninit<u8>]) -> RecvAncillaryBuffer<'buf> {
            RecvAncillaryBuffer(PhantomData)
        }

        pub fn drain(&mut self) -> std::vec::IntoIter<RecvAncillaryMessage> {
            Vec::new().into_iter()
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub struct RecvMsg {
        pub bytes: usize,
        pub flags: ReturnFlags,
    }

    refused! {
        bind(impl AsFd, &SocketAddrUnix) -> ();
        connect(impl AsFd, &SocketAddrUnix) -> ();
        listen(impl AsFd, i32) -> ();
        recvmsg(impl AsFd, &mut [IoSliceMut<'_>], &mut RecvAncillaryBuffer<'_>, RecvFlags) -> RecvMsg;
        recv(impl AsFd, &mut [u8], RecvFlags) -> (usize, usize);
        send(impl AsFd, &[u8], SendFlags) -> usize;
        sendmsg(impl AsFd, &[IoSlice<'_>], &mut SendAncillaryBuffer<'_, '_, '_>, SendFlags) -> usize;
        shutdown(impl AsFd, Shutdown) -> ();
        socket_with(AddressFamily, SocketType, SocketFlags, Option<()>) -> OwnedFd;
    }

    pub mod sockopt {
        use super::SocketType;
        use crate::fd::AsFd;

        refused! {
            socket_acceptconn(impl AsFd) -> bool;
            socket_type(impl AsFd) -> SocketType;
        }
    }
}

#[macro_export]
macro_rules! cmsg_space {
    ($kind:ident($count:expr)) => {
        $count
    };
}
pub use cmsg_space;

pub mod param {
    pub fn page_size() -> usize {
        4096
    }
}

pub mod pipe {
    use crate::fd::AsFd;

    refused! {
        fcntl_getpipe_size(impl AsFd) -> usize;
    }
}

pub mod process {
    use crate::fd::OwnedFd;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pid(i32);

    impl Pid {
        pub const fn from_raw(pid: i32) -> Option<Pid> {
            if pid > 0 { Some(Pid(pid)) } else { None }
        }
    }

    pub fn getpid() -> Pid {
        Pid(std::process::id() as i32)
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Id;

    impl Id {
        pub const fn as_raw(self) -> u32 {
            u32::MAX
        }
    }

    pub fn geteuid() -> Id {
        Id
    }

    pub fn getuid() -> Id {
        Id
    }

    pub fn getegid() -> Id {
        Id
    }

    pub fn getgid() -> Id {
        Id
    }

    #[derive(Clone, Copy, Debug)]
    pub enum Resource {
        Fsize,
        Nofile,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Rlimit {
        pub current: Option<u64>,
        pub maximum: Option<u64>,
    }

    pub fn getrlimit(_: Resource) -> Rlimit {
        Rlimit { current: None, maximum: None }
    }

    flags! {
        PidfdFlags: ;
    }

    refused! {
        pidfd_open(Pid, PidfdFlags) -> OwnedFd;
    }
}

pub mod rand {
    flags! {
        GetRandomFlags: ;
    }

    refused! {
        getrandom(&mut [u8], GetRandomFlags) -> usize;
    }
}

pub mod thread {
    pub fn sched_yield() {
        std::thread::yield_now();
    }

    pub fn sched_getcpu() -> usize {
        0
    }
}

pub mod time {
    use std::sync::OnceLock;
    use std::time::Instant;

    #[derive(Clone, Copy, Debug)]
    pub enum ClockId {
        Monotonic,
        MonotonicCoarse,
        ThreadCPUTime,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Timespec {
        pub tv_sec: i64,
        pub tv_nsec: i64,
    }

    impl TryFrom<std::time::Duration> for Timespec {
        type Error = std::num::TryFromIntError;

        fn try_from(time: std::time::Duration) -> Result<Timespec, std::num::TryFromIntError> {
            Ok(Timespec { tv_sec: time.as_secs().try_into()?, tv_nsec: time.subsec_nanos().into() })
        }
    }

    static BEGAN: OnceLock<Instant> = OnceLock::new();

    pub fn clock_gettime(_: ClockId) -> Timespec {
        let since = BEGAN.get_or_init(Instant::now).elapsed();
        Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
    }
}
