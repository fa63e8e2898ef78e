//! What the sessions of this process do, recorded in a file that `tollfree events` shows.
//!
//! A process records if [`VARIABLE`] names a directory. Its file is new, is readable by its user alone, and is a ring of lines
//! ([`tollfree_events`]): it keeps the newest events, and never grows beyond [`LEN_MAX`]. No thread is started, and sessions share no lock: each
//! keeps a few events, and writes them when there are [`KEPT_COUNT`], when it goes to sleep, and when it ends. What a process that is killed had
//! written is in the file.
//!
//! A child of `fork` records nothing, and a program that has more rights than its starter never does.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tollfree_connection::Setup;
use tollfree_events::{
    Decision, FileHead, LINE_LEN, Line, SessionEvent, Side, Text, VERSION, put_head, put_line,
};
use tollfree_os::clock::now_ns;
use tollfree_os::rustix::process::{Resource, getrlimit};
use tollfree_region::Origin;
use tollfree_rendezvous::PeerIdentity;
use tollfree_session::{Limits, Recorder, Recording, Role};

/// Names the directory, with an absolute path.
pub(crate) const VARIABLE: &str = "TOLLFREE_EVENTS";
/// The most bytes of a file.
const LEN_MAX: u64 = 64 << 20;
/// Fewer lines are of no use to anybody.
const LINE_COUNT_MIN: u64 = 16;
/// Events that a session keeps before it writes them.
const KEPT_COUNT: usize = 64;
/// Files of one program and process number: each earlier process that had the number has left one.
const FILE_COUNT_MAX: u32 = 100;
const PROGRAM_LEN_MAX: usize = 32;

/// The recorder of a session that begins now.
pub(crate) fn begin(setup: &Setup, peer: PeerIdentity, agent: &str) -> Recording {
    static FILE: OnceLock<Option<Arc<EventFile>>> = OnceLock::new();
    match FILE.get_or_init(EventFile::wanted) {
        Some(file) if !file.origin.is_elsewhere() => file.record(setup, peer, agent),
        _ => Recording::off(),
    }
}

/// The file of a process.
#[derive(Debug)]
struct EventFile {
    file: File,
    path: PathBuf,
    origin: Origin,
    line_count: u64,
    /// The number of the next event.
    next: AtomicU64,
    session_count: AtomicU64,
    /// A write has failed: nothing more is recorded.
    is_broken: AtomicBool,
}

impl EventFile {
    /// The file that the environment asks for, if it does.
    fn wanted() -> Option<Arc<EventFile>> {
        let directory = PathBuf::from(std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?);
        if tollfree_os::has_more_rights() {
            tracing::warn!("{VARIABLE} is ignored: this program has more rights than its starter");
            return None;
        }
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
        match EventFile::create(&directory, &program.to_string_lossy(), LEN_MAX) {
            Ok(file) => {
                tracing::info!(path = %file.path.display(), "recording what sessions do");
                Some(Arc::new(file))
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    directory = %directory.display(),
                    "{VARIABLE} is to name a directory in which this process may make a file: nothing is recorded"
                );
                None
            }
        }
    }

    /// Makes a file of at most `len_max` bytes, and as many as this process may write.
    fn create(directory: &Path, program: &str, len_max: u64) -> io::Result<EventFile> {
        if !directory.is_absolute() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute"));
        }
        // A longer file would be this process's end, by a signal.
        let len_max = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX).min(len_max);
        let line_count = (len_max / LINE_LEN as u64).saturating_sub(1);
        if line_count < LINE_COUNT_MIN {
            return Err(io::Error::other("this process may write no file that long (RLIMIT_FSIZE)"));
        }
        let origin = Origin::current()?;
        let (file, path) = create_new(directory, program)?;
        // The kernel's stamp: nobody on a call's way asks for the time of day.
        let made = file.metadata()?;
        let wall_ns = made.mtime() as u64 * 1_000_000_000 + made.mtime_nsec() as u64;
        let head = FileHead {
            version: VERSION,
            pid: std::process::id(),
            program: Text::from(program),
            line_count,
            at_ns: now_ns(),
            wall_ns,
        };
        let mut bytes = Vec::with_capacity(LINE_LEN);
        put_head(&mut bytes, &head);
        file.write_all_at(&bytes, 0)?;
        let (next, session_count, is_broken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Ok(EventFile { file, path, origin, line_count, next, session_count, is_broken })
    }

    /// Records one more session.
    fn record(self: &Arc<Self>, setup: &Setup, peer: PeerIdentity, agent: &str) -> Recording {
        let recorder = self.recorder();
        let client = setup.role == Role::Client;
        recorder.record(SessionEvent::Began { client, pid: peer.pid, uid: peer.uid, agent: agent.into() });
        recorder.record(limits(Side::Here, &setup.limits, setup.own_ring.line_count()));
        recorder.record(limits(Side::Peer, &setup.peer_limits, setup.peer_ring.line_count()));
        Recording::to(Box::new(recorder))
    }

    fn recorder(self: &Arc<Self>) -> SessionRecorder {
        let session = 1 + self.session_count.fetch_add(1, Ordering::Relaxed);
        SessionRecorder { file: self.clone(), session, kept: RefCell::default() }
    }

    /// Writes lines, of which the first is event `n`.
    fn write(&self, n: u64, lines: &[u8]) {
        let mut n = n;
        let mut rest = lines;
        while !rest.is_empty() {
            let place = n % self.line_count;
            let count = (self.line_count - place).min((rest.len() / LINE_LEN) as u64);
            let (these, others) = rest.split_at(count as usize * LINE_LEN);
            if let Err(error) = self.file.write_all_at(these, (1 + place) * LINE_LEN as u64) {
                if !self.is_broken.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, path = %self.path.display(), "recording what sessions do ends here");
                }
                return;
            }
            (n, rest) = (n + count, others);
        }
    }
}

fn limits(of: Side, limits: &Limits, ring_lines: u64) -> SessionEvent {
    SessionEvent::Limits {
        of,
        stream_window: limits.stream_window,
        session_window: limits.session_window,
        calls: limits.stream_count,
        metadata: limits.metadata_len_max as u64,
        ring: ring_lines * tollfree_layout::limits::LINE_LEN as u64,
    }
}

/// A file that nobody had before, for this user alone.
fn create_new(directory: &Path, program: &str) -> io::Result<(File, PathBuf)> {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let program: String = program.chars().filter(plain).take(PROGRAM_LEN_MAX).collect();
    let name = format!("{program}-{}", std::process::id());
    let mut taken = None;
    for nth in 1..=FILE_COUNT_MAX {
        let nth = if nth == 1 { String::new() } else { format!("-{nth}") };
        let path = directory.join(format!("{name}{nth}.jsonl"));
        // A link in its place is there already, wherever it leads.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// Records one session.
#[derive(Debug)]
struct SessionRecorder {
    file: Arc<EventFile>,
    session: u64,
    kept: RefCell<Kept>,
}

/// What is not written yet, with its times.
#[derive(Debug, Default)]
struct Kept {
    events: Vec<(u64, SessionEvent)>,
    /// Lines that are being written.
    lines: Vec<u8>,
}

impl Recorder for SessionRecorder {
    fn record(&self, event: SessionEvent) {
        if self.file.is_broken.load(Ordering::Relaxed) || self.file.origin.is_elsewhere() {
            return;
        }
        let pauses = match &event {
            SessionEvent::Waits { decision, .. } => *decision == Decision::Park,
            SessionEvent::Armed { found } => !found,
            SessionEvent::Ended { .. } => true,
            _ => false,
        };
        let mut kept = self.kept.borrow_mut();
        kept.events.push((now_ns(), event));
        if pauses || kept.events.len() >= KEPT_COUNT {
            self.write(&mut kept);
        }
    }
}

impl SessionRecorder {
    fn write(&self, kept: &mut Kept) {
        let Kept { events, lines } = kept;
        let first = self.file.next.fetch_add(events.len() as u64, Ordering::Relaxed);
        lines.clear();
        for (n, (at_ns, event)) in (first..).zip(events.drain(..)) {
            put_line(lines, &Line { n, at_ns, session: self.session, event });
        }
        self.file.write(first, lines);
    }
}

impl Drop for SessionRecorder {
    fn drop(&mut self) {
        if !self.file.origin.is_elsewhere() {
            let mut kept = std::mem::take(&mut *self.kept.borrow_mut());
            self.write(&mut kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tollfree_events::{Doorbell, Recorded};

    use super::*;

    const LINES: u64 = 100;

    fn create(directory: &Path) -> io::Result<Arc<EventFile>> {
        EventFile::create(directory, "a program", (LINES + 1) * LINE_LEN as u64).map(Arc::new)
    }

    fn read(path: &Path) -> Recorded {
        Recorded::read(&std::fs::read(path).unwrap()).unwrap()
    }

    fn rung() -> SessionEvent {
        SessionEvent::Doorbell { done: Doorbell::Rung }
    }

    #[test]
    fn a_file_is_new_and_its_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        let name = |nth: &str| directory.path().join(format!("aprogram-{}{nth}.jsonl", std::process::id()));
        // What others have put there: a file, and a link to one.
        let other = directory.path().join("other");
        std::fs::write(&other, "precious").unwrap();
        std::fs::write(name(""), "precious").unwrap();
        symlink(&other, name("-2")).unwrap();
        symlink(directory.path().join("nowhere"), name("-3")).unwrap();
        let file = create(directory.path()).unwrap();
        assert_eq!(file.path, name("-4"));
        assert_eq!(std::fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        for kept in [other, name("")] {
            assert_eq!(std::fs::read_to_string(kept).unwrap(), "precious");
        }
        assert!(!directory.path().join("nowhere").exists());
        let head = read(&file.path).head;
        assert_eq!((head.pid, head.program.as_str()), (std::process::id(), "a program"));
        assert!(head.wall_ns > 1_700_000_000_000_000_000, "{head:?}");
    }

    #[test]
    fn a_directory_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        for wrong in [directory.path().join("nowhere"), directory.path().join("file"), "relative".into()] {
            assert!(create(&wrong).is_err(), "{}", wrong.display());
        }
        assert!(EventFile::create(directory.path(), "p", 10 * LINE_LEN as u64).is_err(), "too short");
    }

    #[test]
    fn events_are_written_when_there_are_many_when_a_session_sleeps_and_when_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let file = create(directory.path()).unwrap();
        let count = || read(&file.path).lines.len();
        let (one, two) = (file.recorder(), file.recorder());
        for _ in 1..KEPT_COUNT {
            one.record(rung());
        }
        two.record(rung());
        assert_eq!(count(), 0);
        one.record(rung());
        assert_eq!(count(), KEPT_COUNT);
        two.record(SessionEvent::Armed { found: false });
        assert_eq!(count(), KEPT_COUNT + 2);
        one.record(rung());
        drop(one);
        let lines = read(&file.path).lines;
        let sessions: Vec<u64> = lines.iter().skip(KEPT_COUNT).map(|line| line.session).collect();
        assert_eq!(sessions, [2, 2, 1]);
        assert!(lines.iter().enumerate().all(|(n, line)| line.n == n as u64 && line.at_ns > 0));
    }

    #[test]
    fn a_file_keeps_the_newest_events_and_does_not_grow() {
        let directory = tempfile::tempdir().unwrap();
        let file = create(directory.path()).unwrap();
        let recorder = file.recorder();
        for pos in 0..1000 {
            recorder.record(SessionEvent::Published { pos, unread: 0 });
            assert!(recorder.kept.borrow().events.len() < KEPT_COUNT);
        }
        drop(recorder);
        let len = std::fs::metadata(&file.path).unwrap().len();
        assert_eq!(len, (LINES + 1) * LINE_LEN as u64);
        let recorded = read(&file.path);
        let numbers: Vec<u64> = recorded.lines.iter().map(|line| line.n).collect();
        assert_eq!(numbers, (900..1000).collect::<Vec<_>>());
        assert!(
            recorded
                .lines
                .iter()
                .all(|line| line.event == SessionEvent::Published { pos: line.n, unread: 0 })
        );
    }

    #[test]
    fn what_is_recorded_from_many_threads_is_all_there() {
        let directory = tempfile::tempdir().unwrap();
        let file = EventFile::create(directory.path(), "p", 1 << 20).map(Arc::new).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let recorder = file.recorder();
                scope.spawn(move || (0..500).for_each(|_| recorder.record(rung())));
            }
        });
        let lines = read(&file.path).lines;
        assert_eq!(lines.iter().map(|line| line.n).collect::<Vec<_>>(), (0..2000).collect::<Vec<_>>());
        for session in 1..=4 {
            let times: Vec<u64> =
                lines.iter().filter(|line| line.session == session).map(|line| line.at_ns).collect();
            assert!(times.len() == 500 && times.is_sorted(), "session {session}");
        }
    }

    #[test]
    fn a_write_that_fails_ends_recording_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let file = create(directory.path()).unwrap();
        // As on a full disk.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let Some(file) = Arc::into_inner(file) else { panic!("nobody else has it") };
        let file = Arc::new(EventFile { file: full, ..file });
        let recorder = file.recorder();
        for _ in 0..1000 {
            recorder.record(rung());
        }
        assert!(file.is_broken.load(Ordering::Relaxed));
        assert!(recorder.kept.borrow().events.is_empty());
    }
}
