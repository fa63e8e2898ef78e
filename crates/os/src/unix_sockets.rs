//! Descriptors and Unix sockets, of the standard library, of tokio, and as tonic serves them.

pub use std::os::{fd, unix};

/// Unix sockets in tokio's poller.
#[cfg(feature = "tokio")]
pub mod tokio_net {
    pub use tokio::net::{UnixListener, UnixStream, unix};
}

/// Unix sockets as tonic serves them.
#[cfg(feature = "tonic")]
pub mod tonic_uds {
    pub use tokio_stream::wrappers::UnixListenerStream;
    pub use tonic::transport::server::UdsConnectInfo;
}

/// The descriptor of a TCP connection.
///
/// # Errors
/// None on Unix.
pub fn tcp_fd(socket: std::net::TcpStream) -> std::io::Result<fd::OwnedFd> {
    Ok(socket.into())
}
