//! The events.

use tollfree_layout::frame::events;

use crate::look::{FrameKinds, StreamLook};
use crate::text::Text;

/// What one end of a session did, or was told. Lengths are in bytes, positions in lines of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SessionEvent {
    /// Two processes have become a session.
    Began {
        /// This end opens streams.
        client: bool,
        /// Process of the peer; 0 where this process can't see it.
        pid: i32,
        /// User of the peer.
        uid: u32,
        /// What the peer calls itself.
        agent: Text,
    },
    /// What one of the two ends takes, as it said in the handshake.
    Limits {
        /// Whose limits.
        of: Side,
        /// Credit that each stream towards this end starts with.
        stream_window: u64,
        /// Credit that the session towards this end starts with.
        session_window: u64,
        /// Calls at once.
        calls: u32,
        /// Longest block of metadata.
        metadata: u64,
        /// Length of this end's ring.
        ring: u64,
    },
    /// A call began.
    Call {
        /// Its stream.
        stream: u64,
        /// Its method.
        path: Text,
    },
    /// The state of a stream changed. Each stream begins at `head/head`.
    Stream {
        /// Which.
        stream: u64,
        /// Why.
        cause: StreamCause,
        /// The state before.
        from: StreamLook,
        /// The state after.
        to: StreamLook,
    },
    /// A frame was written. The peer sees it from the next [`Published`](SessionEvent::Published) on.
    Sent {
        /// Its stream, or what else its kind has there.
        stream: u64,
        /// What it says.
        kinds: FrameKinds,
        /// Method, status or control code.
        code: u16,
        /// Length of its chunk, or what else its kind has there.
        len: u32,
        /// Where the chunk lies.
        place: Place,
    },
    /// A frame came, and its head makes sense.
    Received {
        /// Its stream, or what else its kind has there.
        stream: u64,
        /// What it says.
        kinds: FrameKinds,
        /// Method, status or control code.
        code: u16,
        /// Length of its chunk, or what else its kind has there.
        len: u32,
        /// Where the chunk lies.
        place: Place,
    },
    /// Credit was granted.
    Credit {
        /// By whom; the other end may send so much more.
        by: Side,
        /// For which stream; 0 for the session.
        stream: u64,
        /// How much.
        amount: u64,
    },
    /// A sender can't go on.
    Blocked {
        /// Which stream; 0 for a call that has none yet.
        stream: u64,
        /// For want of what.
        lack: Lack,
    },
    /// Records that were written are visible to the peer.
    Published {
        /// End of what the peer can see.
        pos: u64,
        /// What the peer has not given back of the ring.
        unread: u64,
    },
    /// Room of the peer's ring that was read is given back.
    Released {
        /// Lines that were given back.
        lines: u64,
    },
    /// Whether the peer was rung.
    Doorbell {
        /// What was done.
        done: Doorbell,
    },
    /// Nothing has come, and this end waits.
    Waits {
        /// How.
        decision: Decision,
        /// How long it has looked in this wait, in nanoseconds.
        looked_ns: u64,
        /// How long it looks at most, in nanoseconds.
        budget_ns: u64,
    },
    /// The doorbell was armed, and the ring looked at once more.
    Armed {
        /// Something had come meanwhile, so that this end stays awake.
        found: bool,
    },
    /// The doorbell rang, or something else came on the socket.
    Woken,
    /// What this end wanted a timer for is due.
    TimedOut,
    /// The server takes no new calls.
    Draining {
        /// Whose word it is.
        by: Side,
        /// The last stream that the server goes on with.
        last: u64,
    },
    /// The peer did what no correct peer does. The session's end follows.
    Violation {
        /// Its number in `spec/errors.md`.
        number: u16,
        /// In words.
        words: Text,
    },
    /// The session is over. Its streams end behind this.
    Ended {
        /// The number of the reason in `spec/errors.md`.
        number: u16,
        /// Who began it.
        by: Side,
        /// In words.
        words: Text,
    },
}

impl SessionEvent {
    /// The stream that it is about. `None`: it is about the session.
    pub fn stream(&self) -> Option<u64> {
        let stream = match self {
            SessionEvent::Call { stream, .. }
            | SessionEvent::Stream { stream, .. }
            | SessionEvent::Credit { stream, .. }
            | SessionEvent::Blocked { stream, .. } => *stream,
            SessionEvent::Sent { stream, kinds, .. } | SessionEvent::Received { stream, kinds, .. } => {
                let is_of_session = kinds.has(events::DRAIN | events::CONTROL);
                if is_of_session { 0 } else { *stream }
            }
            _ => 0,
        };
        Some(stream).filter(|stream| *stream != 0)
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum Side {
    /// The end that recorded the event.
    Here,
    /// The other.
    Peer,
}

/// Why a stream's state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum StreamCause {
    /// This end sent its headers.
    HeadersSent,
    /// This end sent part of a message.
    ChunkSent,
    /// This end sent its last event.
    EndingSent,
    /// The peer's headers came; at a server they open the stream.
    HeadersReceived,
    /// Part of a message came.
    ChunkReceived,
    /// The client sends no more.
    HalfCloseReceived,
    /// The call is over, for whatever reason: the frame before says it, or the end of the session.
    Over,
}

/// Where the bytes of a chunk lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum Place {
    /// In the record itself.
    Ring,
    /// In a payload area.
    Area,
    /// In the pool; the chunk has refs.
    Pool,
}

/// What a sender lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum Lack {
    /// Credit: the peer's application has not read enough.
    Credit,
    /// Room in the ring: the peer has not read enough.
    Ring,
    /// A place among the calls at once.
    Calls,
}

/// What became of the doorbell when something was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum Doorbell {
    /// The peer was rung.
    Rung,
    /// The peer is awake: no ring is needed.
    NotNeeded,
    /// The peer sleeps; one ring is to be for several publications.
    Later,
}

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(rename_all = "snake_case"))]
pub enum Decision {
    /// It looks on.
    Spin,
    /// It looks on with the doorbell armed.
    Probe,
    /// It sleeps until it is rung.
    Park,
}
