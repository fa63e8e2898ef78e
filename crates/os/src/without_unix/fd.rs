//! Descriptors, of which there are none.

use std::marker::PhantomData;

use crate::elsewhere::Never;

pub type RawFd = i32;

#[derive(Debug)]
pub struct OwnedFd(pub(crate) Never);

#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'fd>(PhantomData<&'fd OwnedFd>);

pub trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

pub trait AsRawFd {
    fn as_raw_fd(&self) -> RawFd;
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl<T: AsFd + ?Sized> AsFd for std::sync::Arc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl BorrowedFd<'_> {
    pub fn try_clone_to_owned(&self) -> std::io::Result<OwnedFd> {
        super::unsupported()
    }
}

// A socket of TCP has a handle, and no number.
#[cfg(feature = "tokio")]
impl AsFd for tokio::net::TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(PhantomData)
    }
}

impl AsRawFd for BorrowedFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

// Gives types without values what has a descriptor.
macro_rules! without_values {
    ($($handle:ty),+) => { $(
        impl $crate::fd::AsFd for $handle {
            fn as_fd(&self) -> $crate::fd::BorrowedFd<'_> {
                match self.0 {}
            }
        }

        impl $crate::fd::AsRawFd for $handle {
            fn as_raw_fd(&self) -> $crate::fd::RawFd {
                match self.0 {}
            }
        }
    )+ };
}
pub(crate) use without_values;

without_values!(OwnedFd);

impl Drop for OwnedFd {
    fn drop(&mut self) {}
}
