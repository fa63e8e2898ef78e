//! The RPC state machine of one session: what the two ends may say to each other, and what it means.
//!
//! Sans-IO: a [`Session`] is fed received frames through [`Inbound`] and writes frames through [`Outbound`]. It has no
//! clock, no sockets, no tasks and no unsafe code, so two of them and a seeded scheduler are a deterministic
//! simulation (`tests/suite/simulation`). The transport owns time, memory and waking.
//!
//! # States
//! Those of a stream are in `stream_state.rs`, with the table that a test drives through a session. An ended stream is remembered until the
//! application [forgets](Session::forget) it.
//!
//! # Who writes what
//! Every frame belongs to one stream, or to the session (stream 0). The client opens streams with consecutive ids.
//! Either side grants credit for what it reads and spends what it was granted; a chunk costs its length and
//! [`CHUNK_CHARGE`](tollfree_layout::limits::CHUNK_CHARGE).
//!
//! # Trust
//! A frame is copied out of the peer's memory once and checked before it changes anything. What a peer may not do is a
//! [`Violation`]; it is latched, ends the session, and harms no other. A frame for a stream that has ended is not a
//! violation (the two sides learn of ends at different times): its bytes are dropped and its credit given back.
#![forbid(unsafe_code)]

mod area;
mod batch;
mod buffer;
mod credit;
mod deferred;
mod encoded;
mod ending;
mod error;
mod frame;
mod frame_builder;
mod incoming;
mod methods;
mod objects;
mod outgoing_message;
mod pending;
mod receive;
mod recording;
mod segmented;
mod segmented_bytes;
mod send;
mod session;
mod single_frame;
mod stream;
mod stream_state;
mod streams;

#[cfg(test)]
mod tests;

pub use buffer::join;
pub use credit::Credit;
pub use deferred::{DeferredEncoding, Misencoded, Written};
pub use encoded::Encoded;
pub use error::{AreaFault, Closed, Full, SendError, Violation};
pub use incoming::{Chunk, End, Incoming, IncomingPiece, Part};
pub use outgoing_message::OutgoingMessage;
pub use receive::{AreaEvent, Received};
pub use recording::{Recorder, Recording};
pub use segmented::{Keep, Parts};
pub use segmented_bytes::Asked;
pub use send::{Ending, Opening, Outgoing, Progress};
pub use session::{Accepted, Limits, Ready, Role, STREAM_WINDOW_MIN, Session};
pub use single_frame::SingleFrame;
pub use stream::Watched;

use bytes::BytesMut;
use tollfree_layout::{AreaIdx, ByteOff};

/// The prefix of a message in gRPC's framing: compressed flag and length. It stands before the first chunk of every
/// received message, so that a decoder of that framing can be fed without another copy.
pub const GRPC_PREFIX_LEN: usize = 5;

/// What stands in the place of the compressed flag before a message that is a flat message. No decoder of gRPC's framing takes it
/// for a message of its own.
pub const OBJECT_PREFIX: u8 = 2;

/// One received record, and the payload areas its frame may point into. Nothing is read twice.
pub trait Inbound {
    /// Length of the record in bytes, fixed when it was fetched.
    fn record_len(&self) -> usize;
    /// Copies `dst.len()` bytes from offset `at`; the session has compared both with the length.
    fn read(&self, at: usize, dst: &mut [u8]);
    /// Appends `len` bytes from offset `at`.
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut);
    /// Appends `len` bytes of a payload area of the peer. The record has to be released soon after.
    ///
    /// # Errors
    /// When there is no such area or the range does not lie within it.
    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault>;
    /// The record refers to a payload area, and nobody reads what lies there. It has to be released all the same: its
    /// sender may wait for the room.
    fn pass_over_area(&self);
}

/// Where frames go.
pub trait Outbound {
    /// The longest record that can be staged, in bytes.
    fn record_len_max(&self) -> usize;
    /// Writes one record made of `parts`; the peer may see it later, in order.
    ///
    /// # Errors
    /// [`Full`] when there is no room now; nothing was written then.
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full>;
    /// The same for a record that the peer need not be woken for: it will do when it is awake anyway.
    ///
    /// # Errors
    /// As [`stage`](Outbound::stage).
    fn stage_quietly(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        self.stage(parts)
    }
    /// The longest chunk that [`put_in_area`](Outbound::put_in_area) or [`fill_in_area`](Outbound::fill_in_area) would take now; 0 without an area.
    fn area_chunk_max(&mut self, wanted: usize) -> usize;
    /// Has `fill` write a chunk of `len` bytes into the payload area, all of them, and says where it lies. `None`: no area, or no room
    /// in it now; nothing was asked to be filled then.
    fn fill_in_area(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)>;
    /// The same of bytes that are copied there.
    fn put_in_area(&mut self, chunk: &[u8]) -> Option<(AreaIdx, ByteOff)> {
        self.fill_in_area(chunk.len(), |place| place.copy_from_slice(chunk))
    }
    /// Takes back what the last of these placed, because its record could not be staged.
    fn take_back(&mut self);
}
