//! What is used of `std::os::unix`. There are no sockets, and files have no number.

pub mod ffi {
    pub trait OsStrExt {
        fn as_bytes(&self) -> &[u8];
    }

    impl OsStrExt for std::ffi::OsStr {
        fn as_bytes(&self) -> &[u8] {
            self.as_encoded_bytes()
        }
    }
}

pub mod fs {
    use std::fs::{File, FileType, Metadata, OpenOptions};
    use std::io;

    pub trait FileTypeExt {
        fn is_socket(&self) -> bool {
            false
        }

        fn is_fifo(&self) -> bool {
            false
        }

        fn is_char_device(&self) -> bool {
            false
        }

        fn is_block_device(&self) -> bool {
            false
        }
    }

    impl FileTypeExt for FileType {}

    pub trait MetadataExt {
        fn dev(&self) -> u64 {
            0
        }

        fn ino(&self) -> u64 {
            0
        }
    }

    impl MetadataExt for Metadata {}

    pub trait OpenOptionsExt {
        fn custom_flags(&mut self, flags: i32) -> &mut Self;
    }

    impl OpenOptionsExt for OpenOptions {
        fn custom_flags(&mut self, _: i32) -> &mut OpenOptions {
            self
        }
    }

    pub trait FileExt {
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    }

    impl FileExt for File {
        fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            crate::without_unix::unsupported()
        }
    }
}

pub mod net {
    use std::io;
    use std::path::Path;

    use crate::elsewhere::Never;
    use crate::without_unix::fd::{OwnedFd, without_values};
    use crate::without_unix::unsupported;

    #[derive(Clone, Debug)]
    pub struct SocketAddr(pub(crate) Never);

    impl SocketAddr {
        pub fn as_pathname(&self) -> Option<&Path> {
            match self.0 {}
        }
    }

    #[derive(Debug)]
    pub struct UnixListener(pub(crate) Never);

    #[derive(Debug)]
    pub struct UnixStream(pub(crate) Never);

    without_values!(UnixListener, UnixStream);

    impl UnixListener {
        pub fn bind(_: impl AsRef<Path>) -> io::Result<UnixListener> {
            unsupported()
        }

        pub fn bind_addr(_: &SocketAddr) -> io::Result<UnixListener> {
            unsupported()
        }

        pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
            match self.0 {}
        }

        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            match self.0 {}
        }

        pub fn try_clone(&self) -> io::Result<UnixListener> {
            match self.0 {}
        }

        pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
            match self.0 {}
        }
    }

    impl UnixStream {
        pub fn connect(_: impl AsRef<Path>) -> io::Result<UnixStream> {
            unsupported()
        }
    }

    impl From<OwnedFd> for UnixListener {
        fn from(fd: OwnedFd) -> UnixListener {
            match fd.0 {}
        }
    }

    impl From<OwnedFd> for UnixStream {
        fn from(fd: OwnedFd) -> UnixStream {
            match fd.0 {}
        }
    }

    impl From<UnixStream> for OwnedFd {
        fn from(socket: UnixStream) -> OwnedFd {
            match socket.0 {}
        }
    }
}
