//! A server that binds its path by the words of `spec/wire.md`, section 2, and by nothing else of this project, beside the reference.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use tollfree_driver_tokio::{Address, BindError, Config, Listener};

/// "with a limit on the time that this may take"
const PATIENCE: Duration = Duration::from_secs(20);

/// "The lock of a path".
struct PathLock {
    path: PathBuf,
    _file: File,
}

impl PathLock {
    fn take(socket: &Path) -> io::Result<PathLock> {
        let name = socket.file_name().unwrap().to_str().unwrap();
        let path = socket.parent().unwrap().join(format!(".{name}.lock"));
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            // 1.
            let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(&path)?;
            // 2.
            let opened = file.metadata()?;
            let me = rustix::process::geteuid().as_raw();
            if opened.uid() != me || opened.mode() & 0o077 != 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            // 3.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            // 4.
            match std::fs::symlink_metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (opened.dev(), opened.ino()) => {
                    return Ok(PathLock { path, _file: file });
                }
                _ => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // "unlinks it while it still holds it, and then closes the file"
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// A server of another implementation.
struct Stranger {
    listener: UnixListener,
    path: PathBuf,
    id: (u64, u64),
}

impl Stranger {
    /// `before_unlink` is called when a socket was found to be stale, with the lock held.
    fn bind(path: &Path, before_unlink: impl FnOnce()) -> io::Result<Stranger> {
        let _lock = PathLock::take(path)?;
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    before_unlink();
                    std::fs::remove_file(path)?;
                }
                // The starters of these tests live.
                _ => return Err(io::ErrorKind::AddrInUse.into()),
            },
        }
        let listener = UnixListener::bind(path)?;
        let made = std::fs::symlink_metadata(path)?;
        Ok(Stranger { listener, path: path.into(), id: (made.dev(), made.ino()) })
    }

    fn shut_down(self) {
        let _lock = PathLock::take(&self.path).unwrap();
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            std::fs::remove_file(&self.path).unwrap();
        }
        drop(self.listener);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The reference, in a runtime of its own.
fn reference(path: &Path, runtime: &tokio::runtime::Runtime) -> Result<Listener, BindError> {
    let _inside = runtime.enter();
    Listener::bind(&Address::Path(path.into()), Config::default())
}

/// What a dead server left.
fn leave_stale(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
}

/// Which file the path is now, if it is a socket that somebody listens on.
fn live(path: &Path) -> Option<(u64, u64)> {
    UnixStream::connect(path).ok()?;
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The stranger has found the socket stale and not removed it yet. Without the same lock the reference binds in between, and the stranger
/// removes a live socket.
#[test]
fn the_reference_waits_for_a_server_that_follows_the_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    leave_stale(&path);
    let runtime = runtime();
    std::thread::scope(|scope| {
        let mut starting = None;
        let stranger = Stranger::bind(&path, || {
            let reference = scope.spawn(|| reference(&path, &runtime).map(drop));
            let began = Instant::now();
            while !reference.is_finished() && began.elapsed() < Duration::from_millis(200) {
                std::thread::yield_now();
            }
            assert!(!reference.is_finished(), "it does not wait for the lock that the text names");
            starting = Some(reference);
        });
        let stranger = stranger.unwrap();
        let refused = starting.unwrap().join().unwrap();
        assert!(matches!(refused, Err(BindError::InUse(_))), "{refused:?}");
        assert_eq!(live(&path), Some(stranger.id));
        stranger.shut_down();
    });
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "neither socket nor lock is left");
}

#[test]
fn of_both_implementations_that_start_at_once_exactly_one_wins_and_lives() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let runtimes = [runtime(), runtime()];
    for round in 0..60 {
        if round % 2 == 0 {
            leave_stale(&path);
        }
        let barrier = Barrier::new(4);
        let (strangers, references) = std::thread::scope(|scope| {
            let strangers = [(); 2].map(|()| {
                scope.spawn(|| {
                    barrier.wait();
                    // Long enough for others to get in between, where they can.
                    Stranger::bind(&path, || std::thread::sleep(Duration::from_millis(2)))
                })
            });
            let references = runtimes.each_ref().map(|runtime| {
                let (barrier, path) = (&barrier, &path);
                scope.spawn(move || {
                    barrier.wait();
                    reference(path, runtime)
                })
            });
            (strangers.map(|thread| thread.join().unwrap()), references.map(|thread| thread.join().unwrap()))
        });
        for error in strangers.iter().filter_map(|bound| bound.as_ref().err()) {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        }
        for error in references.iter().filter_map(|bound| bound.as_ref().err()) {
            assert!(matches!(error, BindError::InUse(_)), "{error}");
        }
        let strangers = strangers.into_iter().flatten();
        let references = references.into_iter().flatten();
        let (strangers, references): (Vec<_>, Vec<_>) = (strangers.collect(), references.collect());
        let ids = strangers.iter().map(|stranger| stranger.id);
        let ids = ids.chain(references.iter().map(|listener| {
            let id = listener.file_id().expect("it has a file");
            (id.device, id.inode)
        }));
        assert_eq!(ids.map(Some).collect::<Vec<_>>(), [live(&path)], "round {round}");
        drop(references);
        strangers.into_iter().for_each(Stranger::shut_down);
        assert!(!path.exists(), "round {round}");
    }
}
