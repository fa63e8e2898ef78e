//! `tollfree events`: what sessions did, from the files that their processes wrote.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tollfree_events::Line;

use crate::event_file::EventFile;
use crate::failure::{Failure, print};

/// How often files are looked at for more.
const PAUSE: Duration = Duration::from_millis(200);

/// Show recorded events of sessions. A process records if TOLLFREE_EVENTS names a directory
///
/// Times are milliseconds since the first event shown. Events of all processes of a host are in one order. The name of a session is
/// its process and number, such as server-4711/1.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Files with events, or directories with such files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Show only this session, named as in the table
    #[arg(long, value_name = "NAME")]
    session: Option<String>,

    /// Show only streams with this number
    #[arg(long, value_name = "NUMBER")]
    stream: Option<u64>,

    /// Also show new events, until interrupted
    #[arg(long, short)]
    follow: bool,

    /// Print one JSON object per line instead of the table
    #[arg(long)]
    json: bool,
}

/// An event with the name of its session.
struct Shown {
    session: String,
    /// When it was, in nanoseconds since 1970.
    wall_ns: u64,
    line: Line,
}

impl EventsArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut files: Vec<EventFile> = Vec::new();
        self.find(&mut files)?;
        let mut table = Table::default();
        let mut shown = self.take(&mut files);
        if let Some(wanted) = &self.session
            && !self.follow
            && !files.iter().flat_map(EventFile::sessions).any(|name| name == *wanted)
        {
            return Err(no_session(wanted, &files));
        }
        loop {
            shown.sort_by_key(|shown| shown.line.at_ns);
            if self.json {
                print(&json(&shown)?)?
            } else {
                print(&table.rows(&shown))?
            }
            if !self.follow {
                return files
                    .iter()
                    .find_map(EventFile::fault)
                    .map_or(Ok(()), |fault| Err(Failure::Failed(fault)));
            }
            std::thread::sleep(PAUSE);
            self.find(&mut files)?;
            shown = self.take(&mut files);
        }
    }

    /// Opens the files that are not open yet.
    fn find(&self, files: &mut Vec<EventFile>) -> Result<(), Failure> {
        for path in &self.paths {
            if !path.is_dir() {
                if !files.iter().any(|file| file.path() == path) {
                    files.push(EventFile::open(path).map_err(Failure::Failed)?);
                }
                continue;
            }
            for path in entries(path).map_err(Failure::Failed)? {
                if files.iter().any(|file| file.path() == path) {
                    continue;
                }
                match EventFile::open(&path) {
                    Ok(file) => files.push(file),
                    // Said once; while following, a process may be about to write its first line.
                    Err(_) if self.follow => {}
                    Err(fault) => eprintln!("tollfree: passing over a file: {fault}"),
                }
            }
        }
        if files.is_empty() && !self.follow {
            let places: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
            return Err(Failure::Failed(format!(
                "no file of events in {}: a process makes one when its first session begins, if TOLLFREE_EVENTS names \
                 the directory and the program was built with the feature `events`",
                places.join(" or ")
            )));
        }
        Ok(())
    }

    /// What is new in the files, and asked for.
    fn take(&self, files: &mut [EventFile]) -> Vec<Shown> {
        let mut all = Vec::new();
        for file in files {
            let new = file.take();
            if new.lost > 0 {
                let path = file.path().display();
                eprintln!(
                    "tollfree: {} events of {path} were overwritten before they could be shown",
                    new.lost
                );
            }
            for line in new.lines {
                let session = file.session_name(line.session);
                let is_wanted = self.session.as_ref().is_none_or(|wanted| *wanted == session)
                    && self.stream.is_none_or(|wanted| line.event.stream() == Some(wanted));
                if is_wanted {
                    all.push(Shown { session, wall_ns: file.wall_ns(line.at_ns), line });
                }
            }
        }
        all
    }
}

/// The files of a directory that may be such.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("cannot list {}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in directory.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn no_session(wanted: &str, files: &[EventFile]) -> Failure {
    let mut names: Vec<String> = files.iter().flat_map(EventFile::sessions).collect();
    names.truncate(20);
    match names.is_empty() {
        true => Failure::Refused(format!("no session {wanted}: no session is recorded there")),
        false => Failure::Refused(format!("no session {wanted} is recorded there, but {}", names.join(", "))),
    }
}

fn json(shown: &[Shown]) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    struct Row<'a> {
        name: &'a str,
        wall_ns: u64,
        #[serde(flatten)]
        line: &'a Line,
    }
    let mut text = String::new();
    for Shown { session, wall_ns, line } in shown {
        let row = serde_json::to_string(&Row { name: session, wall_ns: *wall_ns, line });
        text += &row.map_err(|error| Failure::Failed(error.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}

/// Rows of the table, and what those before have settled.
#[derive(Default)]
struct Table {
    began_ns: Option<u64>,
    width: usize,
}

impl Table {
    fn rows(&mut self, shown: &[Shown]) -> String {
        let longest = shown.iter().map(|shown| shown.session.len()).max();
        self.width = self.width.max(longest.unwrap_or(0));
        let mut text = String::new();
        for Shown { session, wall_ns, line } in shown {
            let began_ns = *self.began_ns.get_or_insert_with(|| {
                let (seconds, micros) = (wall_ns / 1_000_000_000, wall_ns / 1000 % 1_000_000);
                text += &format!("0 ms is @{seconds}.{micros:06}, which date -d shows as a time of day\n");
                line.at_ns
            });
            // What another process wrote late may be older than the first.
            let ms = (line.at_ns as f64 - began_ns as f64) / 1e6;
            text +=
                &format!("{ms:>14.6}  {session:<width$}  {event}\n", width = self.width, event = line.event);
        }
        text
    }
}
