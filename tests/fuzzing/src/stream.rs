//! Messages of the byte-stream engine from a hostile peer.

use tollfree_driver_tokio::{Fed, Feed};
use tollfree_layout::RingPos;
use tollfree_layout::device::{HEAD_LEN, Head, kind};
use tollfree_layout::limits::{LINE_LEN, RING_LEN_MIN};
use tollfree_layout::record::head_word;
use tollfree_session::Violation;
use zerocopy::IntoBytes;

/// What a peer would say next, as far as the input lets it.
struct Peer {
    sent: u64,
    written: u64,
    completed: u64,
    bytes: Vec<u8>,
}

impl Peer {
    fn say(&mut self, of_kind: u8, lines: &[u8]) {
        let head = Head {
            kind: of_kind,
            zero: 0,
            line_count: ((lines.len() / LINE_LEN) as u16).into(),
            load: (self.bytes.len() as u32).into(),
            consumed: self.completed.into(),
            at: self.written.into(),
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(lines);
        self.written += (lines.len() / LINE_LEN) as u64;
    }

    /// Lines of one record.
    fn record(&self, line_count: usize, fill: u8) -> Vec<u8> {
        let mut lines = vec![fill; line_count * LINE_LEN];
        if let Some(word) = lines.first_chunk_mut() {
            *word = head_word(RingPos(self.written), (line_count * LINE_LEN - 8) as u32).to_le_bytes();
        }
        lines
    }

    /// Does what three bytes of the input say; those of `rest` may go out as they are.
    fn step(&mut self, of_kind: u8, arg: u8, fill: u8, rest: &[u8]) {
        match of_kind % 8 {
            0 | 1 => {
                let lines = self.record(usize::from(arg % 70), fill);
                self.say(kind::WRITE, &lines);
            }
            2 => {
                self.completed = self.sent.min(self.completed.saturating_add(arg.into()));
                self.say(kind::COMPLETE, &[]);
            }
            3 => (0..arg).for_each(|_| self.say(kind::BEAT, &[])),
            4 => {
                self.completed = self.completed.wrapping_add(u64::from(arg)).wrapping_sub(u64::from(fill));
                self.say(kind::COMPLETE, &[]);
            }
            5 => self.say(arg, &[]),
            6 => self.bytes.extend(rest.iter().take(arg.into())),
            _ => {
                let lines = self.record(usize::from(arg % 4), fill);
                let at = self.bytes.len() + usize::from(fill) % HEAD_LEN;
                self.say(kind::WRITE, &lines);
                self.bytes[at] ^= arg.max(1);
            }
        }
    }
}

/// Feeds one end of a stream with what a peer says, at once and in pieces: both come to the same, and nothing is granted or kept
/// beyond what a ring holds. The input's first three bytes are what the end has sent and passed, and how long pieces are.
pub fn stream(data: &[u8]) {
    let _ = stream_violation(data);
}

/// What a peer of that input does that no peer does, if it does.
pub fn stream_violation(data: &[u8]) -> Option<Violation> {
    let (&[sent, passed, piece], steps) = data.split_first_chunk()?;
    let (sent, passed) = (u64::from(sent) << (sent % 40), u64::from(passed) << (passed % 40));
    let mut peer = Peer { sent, written: passed, completed: 0, bytes: Vec::new() };
    for (idx, step) in steps.chunks_exact(3).enumerate() {
        peer.step(step[0], step[1], step[2], &steps[idx * 3 + 3..]);
    }
    let mut whole = Feed::new(sent, passed);
    let outcome = whole.take(&peer.bytes);
    let mut pieces = Feed::new(sent, passed);
    let mut again = Ok(());
    for piece in peer.bytes.chunks(usize::from(piece).max(1)) {
        again = pieces.take(piece);
        if again.is_err() {
            break;
        }
        let state = pieces.state();
        assert!(state.granted < Feed::LINE_COUNT && state.consumed <= sent, "{state:?}");
        assert!(state.waiting_len < HEAD_LEN + RING_LEN_MIN, "{state:?}");
    }
    assert_eq!(outcome, again, "whole, and in pieces");
    let (one, other) = (whole.state(), pieces.state());
    // What waits is of a message that is not whole; a wrong one need not have come whole to be known.
    let shown = |state: Fed| if outcome.is_err() { Fed { waiting_len: 0, ..state } } else { state };
    assert_eq!(shown(one), shown(other));
    assert!(whole.ring() == pieces.ring(), "the rings differ");
    outcome.err()
}
