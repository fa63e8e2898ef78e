//! Messages as an application has them: bytes in one piece, or in several of which some lie in a pool.

use bytes::{Bytes, BytesMut};
use tollfree_pool::SegmentedMessage;
use tollfree_session::OutgoingMessage;

/// A message of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its bytes, without gRPC's prefix; of a message in several pieces, the first piece.
    pub bytes: Bytes,
    /// The pieces behind the first, in order. A message that comes has some only in a loop with a pool ([`LoopConfig::pool`](crate::LoopConfig::pool)): pieces that lie
    /// there are read where they are, and held until they are dropped, by any thread. Of a message that goes, pieces that lie there
    /// ([`Pool::ref_of`](crate::Pool::ref_of)) go by ref.
    pub more: Vec<Bytes>,
    /// They are compressed as the call's `grpc-encoding` says. The loop does neither.
    pub compressed: bool,
}

impl Message {
    /// A message whose bytes are these, one piece after the other.
    pub fn of_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Message {
        let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        let bytes = pieces.next().unwrap_or_default();
        Message { bytes, more: pieces.collect(), compressed: false }
    }

    /// Its pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.bytes).chain(&self.more)
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.pieces().map(Bytes::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes in one piece. Several pieces are copied for that.
    pub fn into_bytes(self) -> Bytes {
        if self.more.is_empty() {
            return self.bytes;
        }
        let mut whole = BytesMut::with_capacity(self.len());
        self.pieces().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }

    /// As it goes to a peer that has no pool in common.
    pub(crate) fn into_inline(self) -> OutgoingMessage {
        let compressed = self.compressed;
        OutgoingMessage::new(self.into_bytes(), compressed)
    }

    /// One that came with refs.
    pub(crate) fn segmented(segmented: SegmentedMessage, compressed: bool) -> Message {
        Message { compressed, ..Message::of_pieces(segmented.into_segments()) }
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message { bytes, ..Message::default() }
    }
}

impl From<&'static [u8]> for Message {
    fn from(bytes: &'static [u8]) -> Message {
        Message::from(Bytes::from_static(bytes))
    }
}
