//! What can go wrong in a session, by whose fault.

use tollfree_layout::errors;
use tollfree_layout::metadata::BlockError;

use crate::deferred::Misencoded;

/// There is no room for the record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A chunk's range is not one of a mapped payload area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaFault;

/// What a peer did that no correct peer does. Latched; ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The parts that the head announces do not add up to the record.
    #[error("frame of {record_len} bytes announces {announced}")]
    FrameLen {
        /// Length of the record.
        record_len: usize,
        /// Length that its head adds up to.
        announced: usize,
    },
    /// Events or flags that do not go together, or bits that this version does not know.
    #[error("frame with events {events:#04x} and flags {flags:#04x} makes no sense")]
    FrameKind {
        /// The events byte.
        events: u8,
        /// The flags byte.
        flags: u8,
    },
    /// The stream was never opened, or is opened out of turn.
    #[error("frame for stream {stream}, where {expected} is the next to be opened")]
    StreamId {
        /// The stream named.
        stream: u64,
        /// The next id that may be opened.
        expected: u64,
    },
    /// More calls at once than were allowed.
    #[error("more than the {max} concurrent calls that were allowed")]
    StreamCount {
        /// What the handshake allowed.
        max: u32,
    },
    /// A method index that was never named, or is named out of turn.
    #[error("method index {idx} used, {known} are named")]
    MethodIdx {
        /// The index used.
        idx: u16,
        /// Methods named so far.
        known: usize,
    },
    /// A method's path that is not one.
    #[error("method path of {len} bytes is not a path")]
    MethodPath {
        /// Its length.
        len: usize,
    },
    /// An event that the state of its stream does not allow.
    #[error("{event} on stream {stream} out of order")]
    Order {
        /// The event.
        event: &'static str,
        /// The stream.
        stream: u64,
    },
    /// A chunk that does not fit its message.
    #[error("chunk of {chunk_len} bytes on stream {stream} does not fit its message")]
    Chunk {
        /// The stream.
        stream: u64,
        /// The chunk's length.
        chunk_len: u32,
    },
    /// More bytes than credit was granted for.
    #[error("stream {stream} sent more than its credit")]
    Overdrawn {
        /// The stream; 0 where the session's credit was overdrawn.
        stream: u64,
    },
    /// Credit that overflows.
    #[error("credit for stream {stream} overflows")]
    CreditOverflow {
        /// The stream, 0 for the session.
        stream: u64,
    },
    /// A block of metadata over the agreed length.
    #[error("metadata of {len} bytes, {max} were allowed")]
    MetadataLen {
        /// Its length.
        len: usize,
        /// What the handshake allowed.
        max: usize,
    },
    /// A block of metadata that can't be parsed.
    #[error(transparent)]
    Metadata(#[from] BlockError),
    /// A chunk outside every mapped payload area.
    #[error("chunk of stream {stream} points outside the payload area")]
    AreaRange {
        /// The stream.
        stream: u64,
    },
    /// A control code that is not known, or comes out of turn.
    #[error("control code {code} out of order")]
    Control {
        /// The code.
        code: u16,
    },
    /// The ring itself was broken (sequence, length or cursor); the ring says how.
    #[error("ring: {0}")]
    Ring(&'static str),
    /// The socket beside the ring was misused (descriptors, doorbells); the transport says how.
    #[error("socket: {0}")]
    Socket(&'static str),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// The peer broke the protocol.
    #[error("closed because the peer broke the protocol: {0}")]
    Violation(Violation),
    /// The peer said that it ends the session.
    #[error("closed by the peer: {0}")]
    ByPeer(String),
    /// The peer's socket hung up: its process ended or let go of the session.
    #[error("the peer hung up")]
    HungUp,
    /// This side ended the session.
    #[error("closed here: {0}")]
    Here(&'static str),
}

/// Why an outgoing can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The session is over.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The stream has ended (cancelled by either side, or answered); what was not sent is dropped.
    #[error("the call has ended")]
    Ended,
    /// The server takes no new calls in this session.
    #[error("the session is draining")]
    Draining,
    /// As many calls as the server allows are under way.
    #[error("{max} calls are under way, as many as the server takes at once")]
    StreamCount {
        /// What the server allows.
        max: u32,
    },
    /// Metadata longer than the peer takes, or than one record of this side's ring.
    #[error("metadata of {len} bytes are longer than the {max} that can be sent")]
    MetadataLen {
        /// Packed length.
        len: usize,
        /// What the peer announced, or what is left of a record beside the rest of its frame.
        max: usize,
    },
    /// The method's path is too long or empty.
    #[error("method path of {len} bytes")]
    MethodPath {
        /// Its length.
        len: usize,
    },
    /// A message longer than 4 GiB.
    #[error("message of {len} bytes is longer than the protocol carries")]
    MessageLen {
        /// Its length.
        len: usize,
    },
    /// A message that is encoded while it is sent, and can't be. What was sent of it is of no use: the call is to be ended.
    #[error(transparent)]
    Misencoded(#[from] Misencoded),
    /// This part may not be said now: headers twice, a message before the headers or within another, a regular ending
    /// in the middle of a message, the other role's ending.
    #[error("{0} out of order")]
    OutOfOrder(&'static str),
}

impl Violation {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            Violation::FrameLen { .. } => errors::VIOLATION_FRAME_LEN,
            Violation::FrameKind { .. } => errors::VIOLATION_FRAME_KIND,
            Violation::StreamId { .. } => errors::VIOLATION_STREAM_ID,
            Violation::StreamCount { .. } => errors::VIOLATION_STREAM_COUNT,
            Violation::MethodIdx { .. } => errors::VIOLATION_METHOD_INDEX,
            Violation::MethodPath { .. } => errors::VIOLATION_METHOD_PATH,
            Violation::Order { .. } => errors::VIOLATION_ORDER,
            Violation::Chunk { .. } => errors::VIOLATION_CHUNK,
            Violation::Overdrawn { .. } => errors::VIOLATION_OVERDRAWN,
            Violation::CreditOverflow { .. } => errors::VIOLATION_CREDIT_OVERFLOW,
            Violation::MetadataLen { .. } => errors::VIOLATION_METADATA_LEN,
            Violation::Metadata(_) => errors::VIOLATION_METADATA,
            Violation::AreaRange { .. } => errors::VIOLATION_AREA_RANGE,
            Violation::Control { .. } => errors::VIOLATION_CONTROL,
            Violation::Ring(_) => errors::VIOLATION_RING,
            Violation::Socket(_) => errors::VIOLATION_SOCKET,
        }
    }
}

impl Closed {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            Closed::Violation(violation) => violation.number(),
            Closed::ByPeer(_) => errors::SESSION_CLOSED_BY_PEER,
            Closed::HungUp => errors::SESSION_HUNG_UP,
            Closed::Here(_) => errors::SESSION_CLOSED_HERE,
        }
    }
}

impl SendError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            SendError::Closed(closed) => closed.number(),
            SendError::Ended => errors::CALL_ENDED,
            SendError::Draining => errors::CALL_DRAINING,
            SendError::StreamCount { .. } => errors::CALL_STREAM_COUNT,
            SendError::MetadataLen { .. } => errors::CALL_METADATA_LEN,
            SendError::MethodPath { .. } => errors::CALL_METHOD_PATH,
            SendError::MessageLen { .. } => errors::CALL_MESSAGE_LEN,
            SendError::Misencoded(_) => errors::CALL_MISENCODED,
            SendError::OutOfOrder(_) => errors::CALL_OUT_OF_ORDER,
        }
    }
}
