//! The lock that a server holds while it binds or removes a socket file: `.NAME.lock` beside `NAME`.
//!
//! The lock is an open file with `flock`, so that it goes with its holder. Only the server's user can open that file: a lock on the
//! directory could be held up by any reader of the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollfree_os::fd::OwnedFd;
use tollfree_os::rustix;
use tollfree_os::rustix::fs::{FlockOperation, Mode, OFlags};
use tollfree_os::rustix::io::Errno;
use tollfree_os::unix::fs::MetadataExt;

/// Holds off other servers of the same address while one looks and binds; milliseconds at most.
pub(crate) struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

impl Lock {
    /// Waits for another server that starts or ends, `patience` at most.
    pub(crate) fn take(socket: &Path, patience: Duration) -> io::Result<Lock> {
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let path = socket.with_file_name(format!(".{name}.lock"));
        let began = Instant::now();
        loop {
            if let Some(file) = try_lock(&path)? {
                return Ok(Lock { path, file });
            }
            if began.elapsed() > patience {
                let text = format!("another server that starts or ends holds the lock {}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: a server that opened it meanwhile finds that it has no name any more, and begins anew.
        let _ = std::fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The file, locked, if nobody else has it. It is this user's, and nobody else's to open.
fn try_lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    let opened = rustix::fs::fstat(&file)?;
    if opened.st_uid != rustix::process::geteuid().as_raw() || opened.st_mode & 0o077 != 0 {
        let text = format!("{} is not this user's alone: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // Its holder may have taken it away between.
    let is_same = |named: std::fs::Metadata| named.dev() == opened.st_dev && named.ino() == opened.st_ino;
    Ok(std::fs::symlink_metadata(path).is_ok_and(is_same).then_some(file))
}
