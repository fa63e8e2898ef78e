//! Lines of a file of events: each as long as every other, so that its place follows from its number.

use serde::{Deserialize, Serialize};

use crate::event::SessionEvent;
use crate::text::Text;

/// Length of a line with its line feed, in bytes.
pub const LINE_LEN: usize = 256;
/// The version of the format that is written and read here.
pub const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// [`VERSION`].
    #[serde(rename = "tollfree_events")]
    pub version: u32,
    /// The process that writes it.
    pub pid: u32,
    /// The program's name.
    pub program: Text,
    /// The most lines that the file has behind this one.
    pub line_count: u64,
    /// When recording began, on the host's monotonic clock in nanoseconds.
    pub at_ns: u64,
    /// The same in nanoseconds since 1970, within a few milliseconds.
    pub wall_ns: u64,
}

/// Every other line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The number of the event, from 0 on.
    pub n: u64,
    /// When it was, on the host's monotonic clock in nanoseconds: the same for all processes of the host.
    pub at_ns: u64,
    /// Sessions of the process are numbered from 1 on.
    pub session: u64,
    /// What has happened.
    #[serde(flatten)]
    pub event: SessionEvent,
}

impl Line {
    /// Reads a line. `None`: it is none, or not written to its end.
    pub fn read(bytes: &[u8]) -> Option<Line> {
        serde_json::from_slice(bytes).ok()
    }
}

impl FileHead {
    /// Where the line of an event begins in the file, in bytes.
    pub fn place_of(&self, n: u64) -> u64 {
        (1 + n % self.line_count.max(1)).saturating_mul(LINE_LEN as u64)
    }
}

/// What a file of events says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Who writes it.
    pub head: FileHead,
    /// Its events, by their numbers.
    pub lines: Vec<Line>,
    /// The file ends in the middle of a line.
    pub is_cut: bool,
    /// Lines that can't be read: not written to their end yet, or of a newer version.
    pub unread_count: u64,
}

/// Why a file is none of events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its first line is not there, or not whole.
    #[error("it has no whole first line: nothing was recorded in it yet, or it was cut off")]
    Cut,
    /// Its first line is not that of such a file.
    #[error("it is no file of events: its first line has no `tollfree_events`")]
    Other,
    /// Another version has written it.
    #[error(
        "version {found} of the format has written it, and this program reads version {VERSION}: use the `tollfree` of the program that wrote it"
    )]
    Version {
        /// Which.
        found: u64,
    },
}

/// Appends the first line.
pub fn put_head(buffer: &mut Vec<u8>, head: &FileHead) {
    put(buffer, head);
}

/// Appends the line of an event.
pub fn put_line(buffer: &mut Vec<u8>, line: &Line) {
    put(buffer, line);
}

fn put(buffer: &mut Vec<u8>, value: &impl Serialize) {
    let end = buffer.len() + LINE_LEN;
    // Nothing of ours is as long as a line, which a test holds; an empty line is passed over by readers.
    let begin = buffer.len();
    if serde_json::to_writer(&mut *buffer, value).is_err() || buffer.len() >= end {
        buffer.truncate(begin);
    }
    buffer.resize(end - 1, b' ');
    buffer.push(b'\n');
}

impl Recorded {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError`], where it is no file of events.
    pub fn read(bytes: &[u8]) -> Result<Recorded, ReadError> {
        let (head, rest) = bytes.split_at_checked(LINE_LEN).ok_or_else(|| {
            let begins = bytes.starts_with(b"{\"tollfree_events\"") || bytes.is_empty();
            if begins { ReadError::Cut } else { ReadError::Other }
        })?;
        let value: serde_json::Value = serde_json::from_slice(head).map_err(|_| ReadError::Other)?;
        match value.get("tollfree_events").and_then(serde_json::Value::as_u64) {
            None => return Err(ReadError::Other),
            Some(found) if found != u64::from(VERSION) => return Err(ReadError::Version { found }),
            Some(_) => {}
        }
        let head = serde_json::from_value(value).map_err(|_| ReadError::Other)?;
        let mut recorded =
            Recorded { head, lines: Vec::new(), is_cut: rest.len() % LINE_LEN != 0, unread_count: 0 };
        for line in rest.chunks_exact(LINE_LEN) {
            match Line::read(line) {
                Some(line) => recorded.lines.push(line),
                // A place that another writer has reserved and not filled is all zeros.
                None if line.iter().all(|byte| matches!(byte, 0 | b' ' | b'\n')) => {}
                None => recorded.unread_count += 1,
            }
        }
        recorded.lines.sort_by_key(|line| line.n);
        Ok(recorded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Decision, Doorbell, Lack, Place, Side, StreamCause};
    use crate::look::{FrameKinds, RecvHalf, SendHalf, StreamLook};

    fn head() -> FileHead {
        FileHead {
            version: VERSION,
            pid: u32::MAX,
            program: Text::from("p".repeat(1000)),
            line_count: u64::MAX,
            at_ns: u64::MAX,
            wall_ns: u64::MAX,
        }
    }

    /// Each event with the longest that it can say.
    fn longest() -> Vec<SessionEvent> {
        let text = || Text::new(&[b'"'; 1000]);
        let look = StreamLook {
            send: SendHalf::Closed,
            recv: RecvHalf::Ended,
            unsent: Some(u32::MAX),
            unreceived: Some(u32::MAX),
            live: false,
        };
        let (stream, kinds, code, len, amount) = (u64::MAX, FrameKinds(0xff), u16::MAX, u32::MAX, u64::MAX);
        let cause = StreamCause::HalfCloseReceived;
        vec![
            SessionEvent::Began { client: false, pid: i32::MIN, uid: u32::MAX, agent: text() },
            SessionEvent::Limits {
                of: Side::Here,
                stream_window: u64::MAX,
                session_window: u64::MAX,
                calls: u32::MAX,
                metadata: u64::from(u32::MAX),
                ring: u64::from(u32::MAX),
            },
            SessionEvent::Call { stream, path: text() },
            SessionEvent::Stream { stream, cause, from: look, to: look },
            SessionEvent::Sent { stream, kinds, code, len, place: Place::Area },
            SessionEvent::Received { stream, kinds, code, len, place: Place::Pool },
            SessionEvent::Credit { by: Side::Peer, stream, amount },
            SessionEvent::Blocked { stream, lack: Lack::Credit },
            SessionEvent::Published { pos: u64::MAX, unread: u64::MAX },
            SessionEvent::Released { lines: u64::MAX },
            SessionEvent::Doorbell { done: Doorbell::NotNeeded },
            SessionEvent::Waits { decision: Decision::Probe, looked_ns: u64::MAX, budget_ns: u64::MAX },
            SessionEvent::Armed { found: false },
            SessionEvent::Woken,
            SessionEvent::TimedOut,
            SessionEvent::Draining { by: Side::Peer, last: u64::MAX },
            SessionEvent::Violation { number: u16::MAX, words: text() },
            SessionEvent::Ended { number: u16::MAX, by: Side::Here, words: text() },
        ]
    }

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(&mut bytes, &head());
        for (n, event) in longest().into_iter().enumerate() {
            // A number of a session, of which a process has fewer than 2^32.
            let (n, session) = (u64::MAX - n as u64, u64::from(u32::MAX));
            put_line(&mut bytes, &Line { n, at_ns: u64::MAX, session, event });
        }
        bytes
    }

    #[test]
    fn every_event_fits_into_a_line_and_is_read_as_it_was_written() {
        let bytes = file();
        assert_eq!(bytes.len(), (1 + longest().len()) * LINE_LEN);
        assert!(bytes.chunks(LINE_LEN).all(|line| line.ends_with(b"\n") && line.starts_with(b"{")));
        let recorded = Recorded::read(&bytes).unwrap();
        assert_eq!((recorded.head, recorded.is_cut, recorded.unread_count), (head(), false, 0));
        let events: Vec<SessionEvent> = recorded.lines.into_iter().map(|line| line.event).collect();
        assert_eq!(events, longest().into_iter().rev().collect::<Vec<_>>(), "by their numbers");
    }

    #[test]
    fn a_file_that_is_cut_or_of_another_version_says_so() {
        let bytes = file();
        for len in [0, 20, LINE_LEN - 1] {
            assert_eq!(Recorded::read(&bytes[..len]), Err(ReadError::Cut), "{len}");
        }
        let cut = Recorded::read(&bytes[..3 * LINE_LEN + 1]).unwrap();
        assert!(cut.is_cut && cut.lines.len() == 2);
        assert!(!Recorded::read(&bytes[..3 * LINE_LEN]).unwrap().is_cut);
        let mut newer = Vec::new();
        put_head(&mut newer, &FileHead { version: 7, ..head() });
        assert_eq!(Recorded::read(&newer), Err(ReadError::Version { found: 7 }));
        for other in [&b"hello"[..], &[b'x'; 1000], &[0; 1000], &[b' '; LINE_LEN]] {
            assert_eq!(Recorded::read(other), Err(ReadError::Other));
        }
    }

    #[test]
    fn lines_that_cant_be_read_are_counted_and_places_that_are_empty_are_not() {
        let mut bytes = file();
        let count = longest().len();
        bytes[LINE_LEN..2 * LINE_LEN].fill(0);
        bytes[2 * LINE_LEN..2 * LINE_LEN + 5].fill(b'x');
        let recorded = Recorded::read(&bytes).unwrap();
        assert_eq!((recorded.lines.len(), recorded.unread_count), (count - 2, 1));
    }

    proptest! {
        /// Whatever a file holds, it is read to its end or refused.
        #[test]
        fn any_bytes_are_read_or_refused(at in 0..1000_usize, with in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut bytes = file();
            let end = (at + with.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&with[..end - at]);
            if let Ok(recorded) = Recorded::read(&bytes) {
                let printable = |c: char| c.is_ascii_graphic() || c == ' ';
                for line in &recorded.lines {
                    prop_assert!(line.event.to_string().chars().all(printable));
                }
            }
            let _ = Recorded::read(&with);
        }
    }
}
