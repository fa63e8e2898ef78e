//! The access log: a line for each call from the world, written by a thread of its own.
//!
//! A call never waits for its line. It puts an entry into a queue, and where the queue is full the entry is left out and counted: by a disk that
//! is full or slow, calls do not notice. The thread formats, writes, and flushes whenever the queue is empty.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tollfree::gateway::RateLimitedLog;
use tonic::Code;

use crate::access_line::{AccessEntry, Template};
use crate::config::AccessLogConfig;

/// Entries that wait for the thread.
const QUEUE_LEN: usize = 8192;
/// How long written lines may stay in this process's memory while more come.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The name of the standard output in a config.
const STDOUT: &str = "stdout";

static NOT_WRITTEN: RateLimitedLog = RateLimitedLog::new();

/// Takes entries of calls that have ended.
pub(crate) struct AccessLog {
    queue: Mutex<Option<SyncSender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// In parts of 2^32: of calls that end OK, so many are written.
    share: u64,
    count: AtomicU64,
    left_out: Counter<u64, AtomicU64>,
}

enum Message {
    Line(Box<AccessEntry>),
    /// The file may have been moved away.
    Reopen,
}

/// Where lines go.
enum Output {
    Stdout,
    File(PathBuf, File),
}

impl Output {
    fn open(path: &str) -> std::io::Result<Output> {
        if path == STDOUT {
            return Ok(Output::Stdout);
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
        Ok(Output::File(path.into(), file))
    }

    fn reopen(&mut self) -> std::io::Result<()> {
        if let Output::File(path, file) = self {
            *file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Output::Stdout => std::io::stdout().write(bytes),
            Output::File(_, file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Output::Stdout => std::io::stdout().flush(),
            Output::File(_, file) => file.flush(),
        }
    }
}

impl AccessLog {
    /// Opens the file and starts the thread. `None`: the config names no file.
    ///
    /// # Errors
    /// The file can't be opened, or there is no thread.
    pub(crate) fn open(
        config: &AccessLogConfig,
        left_out: Counter<u64, AtomicU64>,
    ) -> std::io::Result<Option<Arc<AccessLog>>> {
        let Some(path) = &config.path else { return Ok(None) };
        let output = Output::open(path)?;
        // Checked with the config.
        let template = config.template.as_deref().and_then(|text| Template::parse(text).ok());
        let (queue, entries) = sync_channel(QUEUE_LEN);
        let lost = left_out.clone();
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_all(&entries, output, template.as_ref(), &lost))?;
        Ok(Some(Arc::new(AccessLog {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            share: (config.ratio.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u64,
            count: AtomicU64::new(0),
            left_out,
        })))
    }

    /// Whether a call that ended so has a line: each that failed, and a share of the others.
    pub(crate) fn wants(&self, code: Code) -> bool {
        if code != Code::Ok {
            return true;
        }
        let whole = u64::from(u32::MAX);
        let nth = self.count.fetch_add(1, Ordering::Relaxed) % whole;
        (nth + 1) * self.share / whole > nth * self.share / whole
    }

    pub(crate) fn write(&self, entry: AccessEntry) {
        let queue = self.queue.lock().clone();
        if queue.is_none_or(|queue| queue.try_send(Message::Line(Box::new(entry))).is_err()) {
            self.left_out.inc();
        }
    }

    /// The file may have been moved away: from now on lines go to the file that has its name.
    pub(crate) fn reopen(&self) {
        if let Some(queue) = self.queue.lock().clone() {
            // A full queue is asked again with the next reload.
            _ = queue.try_send(Message::Reopen);
        }
    }

    /// Has what was given written, and waits for that. Blocks the thread.
    pub(crate) fn end(&self) {
        self.queue.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            _ = thread.join();
        }
    }
}

fn write_all(
    entries: &Receiver<Message>,
    output: Output,
    template: Option<&Template>,
    lost: &Counter<u64, AtomicU64>,
) {
    let mut output = BufWriter::new(output);
    let (mut line, mut unflushed, mut flushed) = (String::new(), 0_u64, SystemTime::now());
    loop {
        let message = match entries.try_recv() {
            Ok(message) => Ok(message),
            Err(_) => {
                unflushed = flush(&mut output, unflushed, lost);
                entries.recv_timeout(FLUSH_EVERY)
            }
        };
        match message {
            Ok(Message::Line(entry)) => {
                line.clear();
                match template {
                    None => entry.write_json(&mut line),
                    Some(template) => template.write(&entry, &mut line),
                }
                line.push('\n');
                unflushed += 1;
                if output.write_all(line.as_bytes()).is_err() {
                    unflushed = flush(&mut output, unflushed, lost);
                }
            }
            Ok(Message::Reopen) => {
                unflushed = flush(&mut output, unflushed, lost);
                if let Err(error) = output.get_mut().reopen()
                    && let Some(unsaid) = NOT_WRITTEN.turn()
                {
                    tracing::warn!(%error, unsaid, "the access log can't be opened anew");
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if flushed.elapsed().is_ok_and(|since| since >= FLUSH_EVERY) {
            unflushed = flush(&mut output, unflushed, lost);
            flushed = SystemTime::now();
        }
    }
    flush(&mut output, unflushed, lost);
}

/// Writes what was kept. Where that fails, these lines are lost: more would come before there is room for them.
fn flush(output: &mut BufWriter<Output>, lines: u64, lost: &Counter<u64, AtomicU64>) -> u64 {
    let Err(error) = output.flush() else { return 0 };
    lost.inc_by(lines);
    if let Some(unsaid) = NOT_WRITTEN.turn() {
        tracing::warn!(%error, unsaid, "lines of the access log could not be written");
    }
    // What is kept would be tried again with each line.
    let again = match output.get_ref() {
        Output::Stdout => Ok(Output::Stdout),
        Output::File(path, file) => file.try_clone().map(|file| Output::File(path.clone(), file)),
    };
    if let Ok(again) = again {
        let (_, kept) = std::mem::replace(output, BufWriter::new(again)).into_parts();
        drop(kept);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(path: &str, ratio: f64) -> Arc<AccessLog> {
        let config =
            AccessLogConfig { path: Some(path.into()), ratio, template: Some("{method} {status}".into()) };
        AccessLog::open(&config, Counter::default()).unwrap().unwrap()
    }

    fn entry(method: &str) -> AccessEntry {
        AccessEntry { method: method.into(), ..AccessEntry::for_test() }
    }

    #[test]
    fn a_share_of_the_calls_and_each_failure_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.log").display().to_string();
        for (ratio, most) in [(0.0, 0), (0.25, 250), (1.0, 1000)] {
            let log = log(&file, ratio);
            let wanted = (0..1000).filter(|_| log.wants(Code::Ok)).count();
            assert!(wanted.abs_diff(most) <= 1, "{wanted} of {most}");
            assert!(log.wants(Code::Unavailable));
            log.end();
        }
    }

    #[test]
    fn a_file_that_was_moved_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (file, moved) = (directory.path().join("a.log"), directory.path().join("a.log.1"));
        let log = log(&file.display().to_string(), 1.0);
        log.write(entry("first"));
        let began = SystemTime::now();
        while std::fs::read_to_string(&file).unwrap().is_empty() {
            assert!(began.elapsed().unwrap() < Duration::from_secs(60), "it is not written");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::rename(&file, &moved).unwrap();
        log.reopen();
        log.write(entry("second"));
        log.end();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first OK\n");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "second OK\n");
        log.write(entry("third"));
        assert_eq!(log.left_out.get(), 1, "nobody writes any more");
    }

    /// The device takes no byte: each line is lost and counted, and nobody waits.
    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let log = log("/dev/full", 1.0);
        let began = SystemTime::now();
        for _ in 0..3 * QUEUE_LEN {
            log.write(entry("x"));
        }
        assert!(began.elapsed().unwrap() < Duration::from_secs(30));
        log.end();
        assert_eq!(log.left_out.get(), 3 * QUEUE_LEN as u64);
    }
}
