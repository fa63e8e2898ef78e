//! Socket files: how every Unix listener of Tollfree comes to be, and how its file goes.
//!
//! # Crash
//! A server that was killed leaves its socket file. The next one holds a lock beside it (`listener_lock.rs`), connects to
//! the socket to see whether a living process listens, and only then replaces it. Of two servers that start at once, one gets the
//! path and the other a clear error.
//!
//! Other systems than Linux lack what the lock needs: there a file is bound as `portable.rs` describes, and removed without a lock.
//!
//! # What is never removed
//! What is no socket, symbolic links among them, stays and is an error: connecting to a file that is no socket is refused just
//! as connecting to a dead server's socket is, so the kind of file decides first. At its end a listener removes the file only if
//! it is still the one that it made.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollfree_kill_points::{Point, here};
use tollfree_os::fd::{AsFd, AsRawFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::fs::{Mode, OFlags};
use tollfree_os::rustix::io::Errno;
use tollfree_os::rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tollfree_os::unix::fs::{FileTypeExt, MetadataExt};
use tollfree_os::unix::net::UnixListener as StdListener;

use crate::bind::{BACKLOG, BindError};
use crate::listener_lock::Lock;
use crate::liveness::Liveness;
use crate::offered_socket::FileId;
use crate::socket::PeerIdentity;

/// Longest that a start waits for another at the same path.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
/// Longest that a shutdown does; the file it leaves then is in nobody's way.
const UNBIND_PATIENCE: Duration = Duration::from_millis(50);

/// The permission bits of a socket file: who may connect to it, as far as its directory lets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketMode {
    /// All that the process's umask leaves.
    Umask,
    /// These bits (`0o600`: the owner alone), whatever the umask. At no time does the file have others.
    Exact(u32),
}

/// Whose word it is that somebody listens.
#[derive(Clone, Copy)]
pub(crate) enum Listening {
    /// The process that called `listen`: whom clients of sessions watch. If it has ended, nobody would ever accept, even if a process
    /// that it forked keeps the socket open.
    ByItsStarter,
    /// Any process that has the socket.
    ByAnybody,
}

/// The file of a listener, which is removed when this is dropped, if it is still that file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: FileId,
    /// Whose it is: a child of `fork` that drops this must leave the file.
    pid: u32,
}

impl SocketFile {
    /// Of the file at a path, made by this process.
    pub(crate) fn new(path: &Path, id: FileId) -> SocketFile {
        SocketFile { path: path.into(), id, pid: std::process::id() }
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Of a socket that another process has bound at a path and passed to this one, which removes it from here on. `None`: no socket is there.
    pub fn adopt(path: &Path) -> Option<SocketFile> {
        let found = std::fs::symlink_metadata(path).ok().filter(|found| found.file_type().is_socket())?;
        Some(SocketFile::new(path, FileId { device: found.dev(), inode: found.ino() }))
    }

    /// Leaves the file where it is: another process has the socket, and removes it.
    pub fn leave(mut self) {
        self.pid = 0;
    }

    /// Gives the socket another name, in the place of a socket that stands there. `address` is how people know that name.
    ///
    /// # Errors
    /// [`BindError`]; what stands there stays.
    pub(crate) fn rename(&self, address: &str, path: &Path) -> Result<SocketFile, BindError> {
        let io = |source| BindError::Io { address: address.to_owned(), source };
        let _lock = Lock::take(path, BIND_PATIENCE)
            .map_err(|source| BindError::Directory { address: address.to_owned(), source })?;
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(BindError::NotASocket { address: address.to_owned(), path: path.into() });
        }
        std::fs::rename(&self.path, path).map_err(io)?;
        Ok(SocketFile::new(path, self.id))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let lock = Lock::take(&self.path, UNBIND_PATIENCE);
        if lock.is_err() && tollfree_os::shared_memory().is_ok() {
            return;
        }
        if is_socket_with(&self.path, self.id) {
            here(Point::SocketUnbinding);
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a path names this socket, itself and not by a link.
fn is_socket_with(path: &Path, id: FileId) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        found.file_type().is_socket() && (FileId { device: found.dev(), inode: found.ino() }) == id
    })
}

/// Binds a path and listens there, in the place of a server that died. `address` is how people know it. Waits up to 2 s for
/// another server that starts or ends there. The listener doesn't block.
pub(crate) fn listen_at(
    address: &str,
    path: &Path,
    mode: SocketMode,
    listening: Listening,
) -> Result<(StdListener, SocketFile), BindError> {
    let io = |source| BindError::Io { address: address.to_owned(), source };
    if path.file_name().is_none() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")));
    }
    let _lock = Lock::take(path, BIND_PATIENCE)
        .map_err(|source| BindError::Directory { address: address.to_owned(), source })?;
    here(Point::DirectoryLocked);
    clear_stale(address, path, listening)?;
    let (socket, id) = bind(path, mode).map_err(io)?;
    let file = SocketFile::new(path, id);
    // Last: until now nobody could connect, so nobody did while the file had other permissions.
    rustix::net::listen(&socket, BACKLOG).map_err(|errno| io(errno.into()))?;
    here(Point::SocketBound);
    Ok((StdListener::from(socket), file))
}

/// A socket that has its file, with all permissions set, and does not listen yet.
fn bind(path: &Path, mode: SocketMode) -> io::Result<(OwnedFd, FileId)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if let SocketMode::Exact(bits) = mode {
        // The kernel makes the file with the bits that the socket has, less the umask's: never more than are wanted.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(bits))?;
    }
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The file itself, and no link that somebody may have put in its place.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let made = rustix::fs::fstat(&file)?;
    if let SocketMode::Exact(bits) = mode
        && made.st_mode & 0o7777 != bits
    {
        set_mode(&file, bits)?;
    }
    Ok((socket, FileId { device: made.st_dev, inode: made.st_ino }))
}

/// Sets the permissions of what a descriptor of a path refers to.
fn set_mode(file: &OwnedFd, bits: u32) -> io::Result<()> {
    // By /proc, as the C library does it: `fchmodat2`, which needs no /proc, came with Linux 6.6.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(bits))?)
}

/// What connecting to a socket shows.
enum Knock {
    /// Somebody listens, as far as can be told.
    Alive,
    /// Nobody does, or nobody who would ever accept.
    Dead,
}

/// Whether somebody listens. Never waits: a stopped server's backlog may be full.
fn knock(path: &Path, listening: Listening) -> Result<Knock, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match (rustix::net::connect(&socket, &SocketAddrUnix::new(path)?), listening) {
        (Err(Errno::CONNREFUSED), _) => Ok(Knock::Dead),
        (Err(error), _) => Err(error),
        (Ok(()), Listening::ByAnybody) => Ok(Knock::Alive),
        (Ok(()), Listening::ByItsStarter) => Ok(match Liveness::of(&socket, listening_pid(&socket)) {
            Liveness::Dead => Knock::Dead,
            _ => Knock::Alive,
        }),
    }
}

/// The process that listens at the other end of a socket, or 0 where that can't be told.
fn listening_pid(socket: &OwnedFd) -> i32 {
    PeerIdentity::of(socket).map_or(0, |listening| listening.pid)
}

/// Removes a socket file that nobody listens on; anything else stays and is an error.
fn clear_stale(address: &str, path: &Path, listening: Listening) -> Result<(), BindError> {
    let io = |source| BindError::Io { address: address.to_owned(), source };
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { address: address.to_owned(), path: path.into() });
    }
    match knock(path, listening) {
        Ok(Knock::Dead) => {
            tracing::info!(address, "replacing the socket that a dead server left behind");
            std::fs::remove_file(path).map_err(io)
        }
        // Connected, no permission, a full backlog, another kind of socket: somebody is there.
        Ok(Knock::Alive) | Err(_) => Err(BindError::InUse(address.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use tollfree_os::unix::fs::PermissionsExt;

    use super::*;
    use crate::Rendezvous;

    fn bind_unix(path: &Path) -> Result<Rendezvous, BindError> {
        Rendezvous::bind_unix(path, SocketMode::Umask)
    }

    /// Regular file, directory, FIFO, link to a file, link to a stale socket, link to nothing.
    #[test]
    fn what_is_no_socket_is_left_alone_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "precious").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, Mode::RWXU, 0).unwrap();
        drop(StdListener::bind(at("stale")).unwrap());
        for (name, target) in [("to-file", "file"), ("to-stale", "stale"), ("to-nothing", "nothing")] {
            tollfree_os::unix::fs::symlink(at(target), at(name)).unwrap();
        }
        for name in ["file", "directory", "fifo", "to-file", "to-stale", "to-nothing"] {
            let before = std::fs::symlink_metadata(at(name)).unwrap();
            let error = bind_unix(&at(name)).unwrap_err();
            assert!(matches!(error, BindError::NotASocket { .. }), "{name}: {error}");
            assert!(error.to_string().contains(at(name).to_str().unwrap()), "{error}");
            let after = std::fs::symlink_metadata(at(name)).unwrap();
            assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()), "{name}");
        }
        for path in ["", "/", ".."] {
            let error = bind_unix(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains("names no file"), "{path:?}: {error}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
        assert!(at("stale").exists() && !at("nothing").exists());
    }

    #[test]
    fn a_live_listener_keeps_its_path_and_a_dead_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("u.sock");
        drop(StdListener::bind(&path).unwrap());
        let first = bind_unix(&path).unwrap();
        let error = bind_unix(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("unix:{}", path.display())) && error.contains("in use"), "{error}");
        drop(first);
        assert!(!path.exists(), "a server that ends removes its socket");
    }

    /// A file, a link or another's socket that came to stand at the path stays when the listener ends.
    #[test]
    fn an_ending_listener_removes_its_own_socket_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("u.sock");
        let moved = directory.path().join("moved.sock");
        for another in [
            (|path| std::fs::write(path, "precious").unwrap()) as fn(&Path),
            |path| drop(StdListener::bind(path).unwrap()),
            |path| tollfree_os::unix::fs::symlink(path.with_file_name("moved.sock"), path).unwrap(),
        ] {
            let bound = bind_unix(&path).unwrap();
            std::fs::rename(&path, &moved).unwrap();
            another(&path);
            drop(bound);
            assert!(std::fs::symlink_metadata(&path).is_ok(), "what is another's stays");
            assert!(moved.exists());
            std::fs::remove_file(&path).unwrap();
            std::fs::remove_file(&moved).unwrap();
        }
    }

    #[test]
    fn the_permissions_are_what_was_asked_for_from_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("u.sock");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        // Before it listens, and with more than any umask leaves.
        for bits in [0o600, 0o660, 0o666, 0o777] {
            let (socket, _) = bind(&path, SocketMode::Exact(bits)).unwrap();
            assert_eq!(mode(), bits);
            let refused = tollfree_os::unix::net::UnixStream::connect(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "not before it listens");
            drop(socket);
            let bound = Rendezvous::bind_unix(&path, SocketMode::Exact(bits)).unwrap();
            assert_eq!(mode(), bits);
            tollfree_os::unix::net::UnixStream::connect(&path).unwrap();
            drop(bound);
        }
    }
}
