//! The socket at which clients and server meet: bound by exactly one server, and never in the way of the next.

use std::io;
use std::path::{Path, PathBuf};

use tollfree_layout::errors;
use tollfree_os::linux::net::SocketAddrExt;
use tollfree_os::rustix;
use tollfree_os::rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollfree_os::rustix::net::SocketType;
use tollfree_os::unix::net::{SocketAddr, UnixListener as StdListener};

use crate::address::Address;
use crate::offered_socket::FileId;
use crate::portable;
use crate::socket_file::{Listening, SocketFile, SocketMode, listen_at};

/// Clients that may wait to be accepted, where the kernel allows as many; as the standard library asks for.
pub(crate) const BACKLOG: i32 = -1;

/// Why an address could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A live server has it.
    #[error("{0} is in use by a running server")]
    InUse(String),
    /// Something that is no socket lies there.
    #[error(
        "{address} can't be bound: {path} exists and is no socket, so it is left alone; remove it or choose another path"
    )]
    NotASocket {
        /// The address asked for.
        address: String,
        /// The path.
        path: PathBuf,
    },
    /// The directory can't be used.
    #[error("the directory of {address} can't be used: {source}")]
    Directory {
        /// The address asked for.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket that was passed, and can't be served.
    #[error("the socket that was passed can't be served: {0}")]
    Passed(&'static str),
    /// This process can't have, or may not share, memory.
    #[error("{address} can't be served: {source}")]
    Memory {
        /// The address asked for.
        address: String,
        /// What is in the way.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Anything else.
    #[error("{address} can't be bound: {source}")]
    Io {
        /// The address asked for.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl BindError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            BindError::InUse(_) => errors::BIND_IN_USE,
            BindError::NotASocket { .. } => errors::BIND_NOT_A_SOCKET,
            BindError::Directory { .. } => errors::BIND_DIRECTORY,
            BindError::Passed(_) => errors::BIND_PASSED_SOCKET,
            BindError::Memory { .. } => errors::BIND_NO_MEMORY,
            BindError::Io { .. } => errors::BIND_FAILED,
        }
    }
}

/// A bound socket that removes its file when it goes.
#[derive(Debug)]
pub struct Rendezvous {
    listener: StdListener,
    file: Option<SocketFile>,
    /// Whose it is: a child of `fork` has it too.
    pid: u32,
}

impl Rendezvous {
    /// Binds and listens, taking the place of a server that died there.
    ///
    /// # Errors
    /// [`BindError::InUse`] where a live server has it; others where the directory or the kernel objects.
    pub fn bind(address: &Address) -> Result<Rendezvous, BindError> {
        let io = |source| BindError::Io { address: address.to_string(), source };
        let name = match address {
            Address::Abstract(name) => SocketAddr::from_abstract_name(name.as_bytes()).map_err(io)?,
            Address::Path(path) => {
                let name = address.to_string();
                return listen_at(&name, path, SocketMode::Umask, Listening::ByItsStarter)
                    .map(Rendezvous::with_file);
            }
        };
        let listener = StdListener::bind_addr(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(address.to_string()),
            _ => io(error),
        })?;
        listener.set_nonblocking(true).map_err(io)?;
        Ok(Rendezvous { listener, file: None, pid: std::process::id() })
    }

    /// Binds and listens under a name beside the address, at which no client looks, until [`publish`](Rendezvous::publish) gives the
    /// socket its own name. A server that takes the place of a running one does so: it is ready before clients find it.
    ///
    /// # Errors
    /// As [`bind`](Rendezvous::bind); an abstract address has no name beside it.
    pub fn bind_beside(address: &Address) -> Result<Rendezvous, BindError> {
        let Address::Path(path) = address else {
            let source = io::Error::new(
                io::ErrorKind::InvalidInput,
                "an abstract address can't be taken over: use a path",
            );
            return Err(BindError::Io { address: address.to_string(), source });
        };
        listen_at(&address.to_string(), &beside(path), SocketMode::Umask, Listening::ByItsStarter)
            .map(Rendezvous::with_file)
    }

    /// Gives a socket that was bound beside an address the address's name. A socket that stands there is replaced in one step, whether a
    /// server listens there or not: at each moment a client finds one of the two. Waits up to 2 s for another server that starts or ends.
    ///
    /// # Errors
    /// [`BindError`]; the socket is gone then, and what stands at the address stays.
    pub fn publish(self, address: &Address) -> Result<Rendezvous, BindError> {
        let io = |source| BindError::Io { address: address.to_string(), source };
        let (Some(file), Address::Path(path)) = (&self.file, address) else {
            return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "the socket has no file")));
        };
        let published = file.rename(&address.to_string(), path)?;
        Ok(Rendezvous { file: Some(published), ..self })
    }

    /// The same at a path for what is no session: HTTP/2, a control socket. Errors name it as `unix:PATH`.
    ///
    /// # Errors
    /// As [`bind`](Rendezvous::bind).
    pub fn bind_unix(path: &Path, mode: SocketMode) -> Result<Rendezvous, BindError> {
        let name = format!("unix:{}", path.display());
        match tollfree_os::shared_memory() {
            Ok(()) => listen_at(&name, path, mode, Listening::ByAnybody),
            Err(_) => portable::listen_at(&name, path, mode),
        }
        .map(Rendezvous::with_file)
    }

    fn with_file((listener, file): (StdListener, SocketFile)) -> Rendezvous {
        Rendezvous { listener, file: Some(file), pid: std::process::id() }
    }

    /// The listener, which never blocks, and its file, which is removed when that is dropped.
    pub fn into_parts(self) -> (StdListener, Option<SocketFile>) {
        (self.listener, self.file)
    }

    /// A socket that another process may have bound and that listens already. Its file is not removed here.
    ///
    /// # Errors
    /// [`BindError::Passed`] for one that can't be met; [`BindError::Io`] where the kernel objects.
    pub fn adopt(listener: StdListener) -> Result<(Address, Rendezvous), BindError> {
        tollfree_os::shared_memory().map_err(|why| BindError::Memory {
            address: "the socket that was passed".into(),
            source: why.into(),
        })?;
        let named = listener.local_addr().map_err(|_| BindError::Passed("it is no Unix socket"))?;
        let address = match (named.as_pathname(), named.as_abstract_name()) {
            (Some(path), _) => Address::Path(path.into()),
            (_, Some(name)) => Address::Abstract(String::from_utf8_lossy(name).into()),
            _ => return Err(BindError::Passed("it has no name that clients could connect to")),
        };
        let io = |source: io::Error| BindError::Io { address: address.to_string(), source };
        let kind = rustix::net::sockopt::socket_type(&listener).map_err(|error| io(error.into()))?;
        let listens = rustix::net::sockopt::socket_acceptconn(&listener).map_err(|error| io(error.into()))?;
        if kind != SocketType::STREAM || !listens {
            return Err(BindError::Passed(
                "it does not listen for streams: bind it as a stream socket and listen",
            ));
        }
        if is_shut_down(&listener) {
            return Err(BindError::Passed("another process has shut it down: have it bound anew"));
        }
        // The kernel shows clients the process that said so last: from here on they see this one, and watch its life.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| io(error.into()))?;
        listener.set_nonblocking(true).map_err(io)?;
        Ok((address, Rendezvous { listener, file: None, pid: std::process::id() }))
    }

    /// Whether this process was forked from the one that bound it.
    pub fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Which file the socket is; an abstract name has none.
    pub fn file_id(&self) -> Option<FileId> {
        self.file.as_ref().map(SocketFile::id)
    }

    /// Where its file is; an abstract name has none.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// The listening socket; accepting never blocks.
    pub fn listener(&self) -> &StdListener {
        &self.listener
    }
}

/// The name at which a socket waits to be published.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.next"))
}

/// Whether nobody can connect to a socket that listens any more. Accepting would never end, and find nobody.
fn is_shut_down(listener: &StdListener) -> bool {
    let gone = PollFlags::HUP | PollFlags::RDHUP;
    let mut looked = [PollFd::new(listener, gone)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked, Some(&now)).is_ok_and(|_| looked[0].revents().intersects(gone))
}

#[cfg(test)]
mod tests {
    use tollfree_os::fd::OwnedFd;

    use tollfree_os::rustix::fs::{FlockOperation, Mode, OFlags};

    use super::*;

    fn address(directory: &tempfile::TempDir) -> Address {
        Address::Path(directory.path().join("s.sock"))
    }

    #[test]
    fn a_live_server_is_left_alone_and_a_dead_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let address = address(&directory);
        let first = Rendezvous::bind(&address).unwrap();
        assert!(matches!(Rendezvous::bind(&address), Err(BindError::InUse(_))));
        let path = directory.path().join("s.sock");
        drop(first);
        assert!(!path.exists(), "a server that ends takes its socket away");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists(), "the stale socket of a killed server");
        Rendezvous::bind(&address).unwrap();
    }

    /// Any reader of a directory may hold a lock on it.
    #[test]
    fn a_lock_on_the_directory_holds_up_nobody_and_no_lock_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let held = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let bound = Rendezvous::bind(&address(&directory)).unwrap();
        let names = || std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 1, "the socket, and nothing else");
        drop(bound);
        assert_eq!(names(), 0);
        // What a server that was killed has left is in nobody's way; what others can open is not trusted.
        let left = directory.path().join(".s.sock.lock");
        drop(rustix::fs::open(&left, OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap());
        drop(Rendezvous::bind(&address(&directory)).unwrap());
        drop(rustix::fs::open(&left, OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap());
        rustix::fs::chmod(&left, Mode::RUSR | Mode::WUSR | Mode::ROTH).unwrap();
        let error = Rendezvous::bind(&address(&directory)).unwrap_err().to_string();
        assert!(error.contains(".s.sock.lock") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn a_successor_keeps_its_socket_when_the_old_server_ends() {
        let directory = tempfile::tempdir().unwrap();
        let address = address(&directory);
        let old = Rendezvous::bind(&address).unwrap();
        std::fs::remove_file(directory.path().join("s.sock")).unwrap();
        let new = Rendezvous::bind(&address).unwrap();
        drop(old);
        assert!(directory.path().join("s.sock").exists());
        drop(new);
    }

    #[test]
    fn a_socket_that_is_published_replaces_a_running_server_s_in_one_step() {
        let directory = tempfile::tempdir().unwrap();
        let address = address(&directory);
        let path = directory.path().join("s.sock");
        let old = Rendezvous::bind(&address).unwrap();
        let new = Rendezvous::bind_beside(&address).unwrap();
        assert!(matches!(Rendezvous::bind_beside(&address), Err(BindError::InUse(_))), "one at a time");
        let reaches = |server: &Rendezvous| {
            let _client = tollfree_os::unix::net::UnixStream::connect(&path).unwrap();
            server.listener().accept().is_ok()
        };
        assert!(reaches(&old), "until it is published nobody finds it");
        let new = new.publish(&address).unwrap();
        assert!(reaches(&new) && old.listener().accept().is_err());
        drop(old);
        assert!(reaches(&new), "the old one leaves the file alone");
        // One that ends before it is published leaves what is there.
        drop(Rendezvous::bind_beside(&address).unwrap());
        assert!(reaches(&new));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no other name is left");
        drop(new);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(&path, "precious").unwrap();
        let refused = Rendezvous::bind_beside(&address).unwrap().publish(&address);
        assert!(matches!(refused, Err(BindError::NotASocket { .. })), "{refused:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(Rendezvous::bind_beside(&Address::Abstract("x".into())).is_err());
    }

    #[test]
    fn of_servers_that_start_at_once_exactly_one_wins() {
        let directory = tempfile::tempdir().unwrap();
        let address = address(&directory);
        drop(StdListener::bind(directory.path().join("s.sock")).unwrap());
        for _ in 0..20 {
            let barrier = std::sync::Barrier::new(4);
            let won: Vec<_> = std::thread::scope(|scope| {
                let start = || {
                    barrier.wait();
                    Rendezvous::bind(&address)
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(won.iter().filter(|result| result.is_ok()).count(), 1);
        }
    }

    #[test]
    fn a_socket_that_listens_is_taken_over_and_its_file_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let passed = StdListener::bind(&path).unwrap();
        let (address, adopted) = Rendezvous::adopt(passed.try_clone().unwrap()).unwrap();
        assert_eq!(address, Address::Path(path.clone()));
        assert!(matches!(Rendezvous::bind(&address), Err(BindError::InUse(_))));
        drop((adopted, passed));
        assert!(path.exists(), "it is left to the process that bound it");
        let name = format!("tollfree-adopt-{}", std::process::id());
        let passed = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(Rendezvous::adopt(passed).unwrap().0, Address::Abstract(name));
    }

    #[test]
    fn what_can_t_be_met_is_not_taken_over() {
        let reason = |socket: OwnedFd| match Rendezvous::adopt(socket.into()) {
            Err(BindError::Passed(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let (connected, _other) = tollfree_os::unix::net::UnixStream::pair().unwrap();
        assert!(reason(connected.into()).contains("no name"));
        let directory = tempfile::tempdir().unwrap();
        let datagrams = tollfree_os::unix::net::UnixDatagram::bind(directory.path().join("d.sock")).unwrap();
        assert!(reason(datagrams.into()).contains("stream"));
        let ended = StdListener::bind(directory.path().join("e.sock")).unwrap();
        rustix::net::shutdown(&ended, rustix::net::Shutdown::Both).unwrap();
        assert!(reason(ended.into()).contains("shut it down"));
        let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(reason(tcp.into()).contains("no Unix socket"));
    }

    #[test]
    fn what_is_no_socket_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("s.sock"), "precious").unwrap();
        assert!(matches!(Rendezvous::bind(&address(&directory)), Err(BindError::NotASocket { .. })));
        assert_eq!(std::fs::read(directory.path().join("s.sock")).unwrap(), b"precious");
        let nowhere = Address::Path(directory.path().join("no/such/s.sock"));
        assert!(matches!(Rendezvous::bind(&nowhere), Err(BindError::Directory { .. })));
    }
}
