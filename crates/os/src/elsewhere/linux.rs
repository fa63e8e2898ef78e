//! What is used of `std::os::linux`.

pub mod net {
    use std::io;

    use crate::unix::net::SocketAddr;

    pub trait SocketAddrExt: Sized {
        fn from_abstract_name(name: impl AsRef<[u8]>) -> io::Result<Self>;

        fn as_abstract_name(&self) -> Option<&[u8]>;
    }

    impl SocketAddrExt for SocketAddr {
        fn from_abstract_name(_: impl AsRef<[u8]>) -> io::Result<SocketAddr> {
            Err(io::Error::new(io::ErrorKind::Unsupported, crate::NeedsLinux))
        }

        fn as_abstract_name(&self) -> Option<&[u8]> {
            None
        }
    }
}
