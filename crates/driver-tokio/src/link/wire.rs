//! A TCP socket without waiting.

use std::io::{self, IoSlice, Read, Write};

use tollfree_os::fd::BorrowedFd;
use tollfree_os::rustix::io::retry_on_intr;
use tollfree_os::rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

/// Reads what there is, and writes what there is room for.
pub(crate) struct Wire<'a>(pub(crate) BorrowedFd<'a>);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (len, _) = retry_on_intr(|| recv(self.0, &mut *buffer, RecvFlags::DONTWAIT))?;
        Ok(len)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| send(self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [piece] = pieces {
            return self.write(piece);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(retry_on_intr(|| sendmsg(self.0, pieces, &mut SendAncillaryBuffer::default(), flags))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
