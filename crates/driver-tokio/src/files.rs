//! Files that settings name: certificates, keys, descriptor sets, configs. What stands at their paths may be anything.
//!
//! # Why aside
//! Opening a FIFO waits for its other end, a device may do anything, a file system over a network may answer never, and what has no end
//! fills memory. So only regular files are read, up to a length, on a thread of their own, and who wants the bytes waits a limited time. A
//! thread that the kernel never lets go is left behind: nobody waits for it, a process that ends neither.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tollfree_os::rustix::fs::OFlags;
use tollfree_os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// How long reading one file may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Readers that nobody waits for any more, and that the kernel holds: beyond it no file is read.
const LATE_COUNT_MAX: usize = 8;
/// Bytes that are read at once.
const PIECE_LEN: usize = 64 << 10;

/// How many of those there are.
static LATE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Why a file was not read. Whoever shows it says which.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system says no.
    #[error("can't be read: {0}")]
    Io(#[from] io::Error),
    /// A FIFO, device, directory or socket.
    #[error("is {0}: give the path of a regular file")]
    Kind(&'static str),
    /// It is too long, or has no end.
    #[error("is longer than the {0} bytes that are read")]
    TooLong(u64),
    /// Its file system does not answer.
    #[error("could not be read within {0:?}: its file system does not answer")]
    TooSlow(Duration),
    /// Others before it don't come to an end.
    #[error("is not read: {0} files before it are still being read, as their file systems do not answer")]
    TooMany(usize),
}

/// Reads a regular file of at most `len_max` bytes. Blocks the thread for at most 5 s, whatever stands at the path.
///
/// # Errors
/// [`FileError`], which doesn't say the path.
pub fn read_file(path: &Path, len_max: u64) -> Result<Vec<u8>, FileError> {
    read_within(path, len_max, PATIENCE, (read, &LATE_COUNT))
}

/// What reads, given the time until which anybody waits for it, and how many of its kind are late.
type Reader = (fn(&Path, u64, Instant) -> Result<Vec<u8>, FileError>, &'static AtomicUsize);

fn read_within(path: &Path, len_max: u64, patience: Duration, reader: Reader) -> Result<Vec<u8>, FileError> {
    let (read, late) = reader;
    let count = late.load(Ordering::Relaxed);
    if count >= LATE_COUNT_MAX {
        return Err(FileError::TooMany(count));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let (path, until) = (path.to_owned(), Instant::now() + patience);
    // Whichever is first, its end or its being given up.
    let is_settled = Arc::new(AtomicBool::new(false));
    let settled = is_settled.clone();
    thread::Builder::new().name("tollfree-file".to_owned()).spawn(move || {
        let _ = sender.send(read(&path, len_max, until));
        if settled.swap(true, Ordering::AcqRel) {
            late.fetch_sub(1, Ordering::Relaxed);
        }
    })?;
    match receiver.recv_timeout(patience) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            late.fetch_add(1, Ordering::Relaxed);
            if is_settled.swap(true, Ordering::AcqRel) {
                late.fetch_sub(1, Ordering::Relaxed);
            }
            Err(FileError::TooSlow(patience))
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its reader has failed").into()),
    }
}

fn read(path: &Path, len_max: u64, until: Instant) -> Result<Vec<u8>, FileError> {
    // Before it is opened, which a device may answer by doing something; and of what was opened, which may be something else by then.
    check(&std::fs::metadata(path)?, len_max)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    check(&found, len_max)?;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0));
    // Its length is only what it was: one that grows is read no further than one that is too long.
    while (&mut file).take(PIECE_LEN as u64).read_to_end(&mut bytes)? > 0 {
        if bytes.len() as u64 > len_max {
            return Err(FileError::TooLong(len_max));
        }
        if Instant::now() >= until {
            return Err(FileError::TooSlow(PATIENCE));
        }
    }
    Ok(bytes)
}

fn check(found: &Metadata, len_max: u64) -> Result<(), FileError> {
    let kind = found.file_type();
    match kind {
        _ if kind.is_file() && found.len() <= len_max => Ok(()),
        _ if kind.is_file() => Err(FileError::TooLong(len_max)),
        _ if kind.is_dir() => Err(FileError::Kind("a directory")),
        _ if kind.is_fifo() => Err(FileError::Kind("a FIFO")),
        _ if kind.is_socket() => Err(FileError::Kind("a socket")),
        _ => Err(FileError::Kind("a device")),
    }
}

/// Does work that waits for files on a thread of its own, within the calling runtime. Nobody waits for that thread but the caller: dropped, it
/// has given up, and the runtime ends without it.
///
/// # Errors
/// There is no thread to be had, or the work has panicked.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    thread::Builder::new().name("tollfree-aside".to_owned()).spawn(move || {
        let _inside = runtime.enter();
        let _ = sender.send(work());
    })?;
    receiver.await.map_err(|_| io::Error::other("work that was done aside has failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_os::rustix::fs::{CWD, FileType, Mode};

    fn reason(path: &Path) -> String {
        let began = Instant::now();
        let reason = read_file(path, 1000).unwrap_err().to_string();
        assert!(began.elapsed() < PATIENCE, "{reason}");
        reason
    }

    /// Each at the path itself and behind a link.
    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), [7; 1000]).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = tollfree_os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for (name, target) in [("to-file", "file"), ("to-fifo", "fifo")] {
            tollfree_os::unix::fs::symlink(at(target), at(name)).unwrap();
        }
        for name in ["file", "to-file"] {
            assert_eq!(read_file(&at(name), 1000).unwrap(), [7; 1000]);
        }
        for name in ["fifo", "to-fifo"] {
            assert!(reason(&at(name)).contains("is a FIFO: give the path of a regular file"));
        }
        assert!(reason(&at("socket")).contains("a socket"));
        assert!(reason(&at("directory")).contains("a directory"));
        for device in ["/dev/zero", "/dev/tty", "/dev/null"] {
            assert!(reason(Path::new(device)).contains("a device") || !Path::new(device).exists());
        }
        assert!(reason(&at("missing")).contains("No such file"));
    }

    /// One that says its length, one that says none and has more, and one that grows while it is read.
    #[test]
    fn what_is_too_long_is_read_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 1001]).unwrap();
        assert!(reason(&path).contains("longer than the 1000 bytes"));
        // A regular file, as far as can be told, of no length.
        assert!(matches!(read_file(Path::new("/proc/self/status"), 10), Err(FileError::TooLong(10))));
        assert!(!read_file(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
    }

    /// A file system that does not answer is waited for only so long, and what it holds is bounded.
    #[test]
    fn a_file_system_that_does_not_answer_is_given_up_and_so_are_many() {
        static LATE: AtomicUsize = AtomicUsize::new(0);
        let patience = Duration::from_millis(20);
        fn never(_: &Path, _: u64, _: Instant) -> Result<Vec<u8>, FileError> {
            loop {
                thread::park();
            }
        }
        let mut slow = 0;
        let last = loop {
            match read_within(Path::new("/"), 1, patience, (never, &LATE)) {
                Err(FileError::TooSlow(limit)) => slow += 1 + usize::from(limit != patience),
                last => break last,
            }
            assert!(slow <= LATE_COUNT_MAX);
        };
        assert!(matches!(last, Err(FileError::TooMany(LATE_COUNT_MAX..))), "{last:?}");
    }

    /// Those that are read at once are in nobody's way, and one that was given up counts until it ends.
    #[test]
    fn only_readers_that_were_given_up_count() {
        static LATE: AtomicUsize = AtomicUsize::new(0);
        fn slow(_: &Path, _: u64, until: Instant) -> Result<Vec<u8>, FileError> {
            thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
            Ok(Vec::new())
        }
        thread::scope(|scope| {
            let readers = [(); 4 * LATE_COUNT_MAX]
                .map(|()| scope.spawn(|| read_within(Path::new("/"), 1, PATIENCE, (slow, &LATE))));
            readers.into_iter().for_each(|reader| drop(reader.join().unwrap().unwrap()));
        });
        fn later(_: &Path, _: u64, until: Instant) -> Result<Vec<u8>, FileError> {
            thread::sleep(until.saturating_duration_since(Instant::now()) + Duration::from_millis(20));
            Ok(Vec::new())
        }
        let given_up = read_within(Path::new("/"), 1, Duration::from_millis(10), (later, &LATE));
        assert!(matches!(given_up, Err(FileError::TooSlow(_))), "{given_up:?}");
        let began = Instant::now();
        while LATE.load(Ordering::Relaxed) > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it counts for ever");
            thread::yield_now();
        }
    }

    #[test]
    fn a_runtime_ends_without_what_is_done_aside() {
        let began = Instant::now();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert_eq!(runtime.block_on(aside(|| 7)).unwrap(), 7);
        let (begun, begins) = mpsc::channel();
        let work = runtime.spawn(aside(move || {
            begun.send(()).unwrap();
            thread::sleep(Duration::from_secs(30));
        }));
        begins.recv().unwrap();
        drop((work, runtime));
        assert!(began.elapsed() < Duration::from_secs(20), "it waited for a file");
    }
}
