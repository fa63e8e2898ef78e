//! A file of events, as it is read while its process may write it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tollfree_events::{FileHead, LINE_LEN, Line, Recorded};

/// No process writes a longer one, in bytes.
const LEN_MAX: u64 = 64 << 20;
/// Lines that are read at once while a file is followed.
const LINES_AT_ONCE: u64 = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    file: File,
    head: FileHead,
    /// What was there when it was opened, until it is taken.
    first: Vec<Line>,
    /// The number of the event that is read next.
    next: u64,
    /// A later line is there and that one is not: its writer is slow, or was killed.
    has_gap: bool,
    is_cut: bool,
    unread_count: u64,
    sessions: BTreeSet<u64>,
}

/// What has come to a file.
#[derive(Debug, Default)]
pub(crate) struct New {
    pub(crate) lines: Vec<Line>,
    /// Events that are not there any more.
    pub(crate) lost: u64,
}

impl EventFile {
    /// Opens a file and reads what is there.
    ///
    /// # Errors
    /// In words, with the path.
    pub(crate) fn open(path: &Path) -> Result<EventFile, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if !metadata.is_file() || metadata.len() > LEN_MAX {
            return Err(failed(&"it is no file of events: those are regular files of at most 64 MiB"));
        }
        let mut file = File::open(path).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(LEN_MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        let Recorded { head, lines, is_cut, unread_count } =
            Recorded::read(&bytes).map_err(|error| failed(&error))?;
        let next = lines.last().map_or(0, |line| line.n.saturating_add(1));
        let sessions = lines.iter().map(|line| line.session).collect();
        let path = path.to_owned();
        Ok(EventFile { path, file, head, first: lines, next, has_gap: false, is_cut, unread_count, sessions })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of a session of the process.
    pub(crate) fn session_name(&self, session: u64) -> String {
        format!("{}-{}/{session}", self.head.program, self.head.pid)
    }

    /// When an event of the process was, in nanoseconds since 1970.
    pub(crate) fn wall_ns(&self, at_ns: u64) -> u64 {
        let since_head = i128::from(at_ns) - i128::from(self.head.at_ns);
        u64::try_from(i128::from(self.head.wall_ns) + since_head).unwrap_or(0)
    }

    /// Names of the sessions that have events.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = String> {
        self.sessions.iter().map(|session| self.session_name(*session))
    }

    /// What is wrong with the file, though events of it could be shown.
    pub(crate) fn fault(&self) -> Option<String> {
        let path = self.path.display();
        if self.is_cut {
            return Some(format!(
                "{path} ends in the middle of a line: it was cut off or copied while it was written; what is whole is shown"
            ));
        }
        let count = self.unread_count;
        (count > 0).then(|| format!("{path} has {count} lines that cannot be read; the others are shown"))
    }

    /// What has come since this was called last; the first time all that was there.
    pub(crate) fn take(&mut self) -> New {
        let mut new = New { lines: std::mem::take(&mut self.first), lost: 0 };
        if new.lines.is_empty() {
            while self.read_on(&mut new) {}
            self.sessions.extend(new.lines.iter().map(|line| line.session));
        }
        new
    }

    /// Reads a few lines behind the last. Whether there may be more.
    fn read_on(&mut self, new: &mut New) -> bool {
        let count = LINES_AT_ONCE.min(self.head.line_count - self.next % self.head.line_count.max(1));
        let mut bytes = vec![0; count as usize * LINE_LEN];
        let len = self.file.read_at(&mut bytes, self.head.place_of(self.next)).unwrap_or(0);
        let had_gap = std::mem::take(&mut self.has_gap);
        let before = self.next;
        for (nth, line) in bytes[..len].chunks_exact(LINE_LEN).enumerate() {
            let expected = before.saturating_add(nth as u64);
            match Line::read(line).filter(|line| line.n >= expected) {
                // It is looked at once more, and passed over then.
                Some(line) if line.n >= self.next && self.next < expected && !had_gap => {
                    self.has_gap = true;
                    return false;
                }
                Some(line) if line.n >= self.next => {
                    new.lost += line.n - self.next;
                    self.next = line.n.saturating_add(1);
                    new.lines.push(line);
                    if self.next != expected.saturating_add(1) {
                        // The process has been faster by a round.
                        return true;
                    }
                }
                _ => {}
            }
        }
        self.next > before
    }
}
