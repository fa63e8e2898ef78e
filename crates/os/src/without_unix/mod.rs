//! Stand-ins for descriptors and Unix sockets.

use std::io;

pub mod fd;
#[cfg(feature = "tokio")]
pub mod tokio_net;
#[cfg(feature = "tonic")]
pub mod tonic_uds;
pub mod unix;

/// What each function returns that would make a handle.
fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, crate::NeedsUnix))
}

pub fn tcp_fd(_: std::net::TcpStream) -> io::Result<fd::OwnedFd> {
    Err(io::Error::new(io::ErrorKind::Unsupported, crate::NeedsLinux))
}
