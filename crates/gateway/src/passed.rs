//! Listening sockets that the service manager keeps and passes (`LISTEN_FDS`): clients that connect while no
//! gateway runs wait in the kernel for the next one.

use std::io;

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

/// What the address of such a listener begins with; the socket's name follows.
pub(crate) const SCHEME: &str = "systemd:";

/// The sockets that this process was given, until they are taken.
pub(crate) struct Passed {
    sockets: ListenFd,
    names: Vec<String>,
}

/// One of them.
pub(crate) enum PassedSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Passed {
    pub(crate) fn to_this_process() -> Passed {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        Passed { sockets: ListenFd::from_env(), names: names.split(':').map(str::to_owned).collect() }
    }

    /// Takes the socket of a name.
    ///
    /// # Errors
    /// There is none, or it is no listening socket of a kind that can be served.
    pub(crate) fn take(&mut self, name: &str) -> io::Result<PassedSocket> {
        let idx = self.names.iter().position(|known| known == name);
        let idx = idx.filter(|idx| *idx < self.sockets.len()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the service manager has passed no socket of this name: say FileDescriptorName= in its .socket unit",
            )
        })?;
        let is_taken =
            || io::Error::new(io::ErrorKind::AddrInUse, "another listener has this socket already");
        if let Ok(listener) = self.sockets.take_tcp_listener(idx) {
            let listener = listener.ok_or_else(is_taken)?;
            listener.set_nonblocking(true)?;
            return TcpListener::from_std(listener).map(PassedSocket::Tcp);
        }
        let listener = self.sockets.take_unix_listener(idx)?.ok_or_else(is_taken)?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(PassedSocket::Unix)
    }
}
