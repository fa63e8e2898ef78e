//! What is used of tokio's Unix sockets.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::fd::{OwnedFd, without_values};
use super::unix::net;
use super::unsupported;
use crate::elsewhere::Never;

#[derive(Debug)]
pub struct UnixListener(pub(crate) Never);

#[derive(Debug)]
pub struct UnixStream(pub(crate) Never);

without_values!(UnixListener, UnixStream);

impl UnixListener {
    pub fn from_std(listener: net::UnixListener) -> io::Result<UnixListener> {
        match listener.0 {}
    }

    pub async fn accept(&self) -> io::Result<(UnixStream, unix::SocketAddr)> {
        match self.0 {}
    }

    pub fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<(UnixStream, unix::SocketAddr)>> {
        match self.0 {}
    }
}

impl UnixStream {
    pub async fn connect(_: impl AsRef<Path>) -> io::Result<UnixStream> {
        unsupported()
    }

    pub fn into_std(self) -> io::Result<net::UnixStream> {
        match self.0 {}
    }

    pub fn peer_cred(&self) -> io::Result<unix::UCred> {
        match self.0 {}
    }

    pub fn peer_addr(&self) -> io::Result<unix::SocketAddr> {
        match self.0 {}
    }

    pub async fn readable(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub fn try_io<R>(&self, _: Interest, _: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.0 {}
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

pub mod unix {
    use super::Never;

    #[derive(Clone, Debug)]
    pub struct SocketAddr(pub(crate) Never);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UCred(pub(crate) Never);

    pub mod pipe {
        use std::io;
        use std::task::{Context, Poll};

        use super::super::{Never, OwnedFd, without_values};

        #[derive(Debug)]
        pub struct Receiver(pub(crate) Never);

        #[derive(Debug)]
        pub struct Sender(pub(crate) Never);

        without_values!(Receiver, Sender);

        impl Receiver {
            pub fn from_owned_fd_unchecked(fd: OwnedFd) -> io::Result<Receiver> {
                match fd.0 {}
            }

            pub fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.0 {}
            }

            pub async fn readable(&self) -> io::Result<()> {
                match self.0 {}
            }

            pub fn try_io<R>(&self, _: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                match self.0 {}
            }
        }

        impl Sender {
            pub fn from_owned_fd_unchecked(fd: OwnedFd) -> io::Result<Sender> {
                match fd.0 {}
            }

            pub fn try_io<R>(&self, _: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                match self.0 {}
            }

            pub fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.0 {}
            }
        }
    }
}
