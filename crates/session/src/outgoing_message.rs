//! Messages on their way out: one, or a batch of several.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use tollfree_layout::frame::{FrameHead, events, flags};

use crate::GRPC_PREFIX_LEN;
use crate::batch::{self, Walk};
use crate::deferred::{Data, DeferredEncoding};
use crate::encoded::Encoded;
use crate::segmented::Keep;

/// A message on its way out, or several.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// Its bytes, without any prefix; those of a batch with.
    pub(crate) data: Data,
    /// Compressed as the `grpc-encoding` header says.
    pub compressed: bool,
    /// For a segmented message: what its parts are kept by. The bytes are those of [`tollfree_layout::segmented`] then.
    pub(crate) keep: Option<Keep>,
    pub(crate) is_segmented: bool,
    pub(crate) is_object: bool,
    /// Whole messages, of which those behind `sent` are still to go.
    is_batch: bool,
    pub(crate) sent: usize,
    begun: bool,
    /// What was behind a message that was taken out of a batch.
    rest: Option<Box<Bytes>>,
}

impl OutgoingMessage {
    /// A message of which nothing is sent yet.
    pub fn new(data: Bytes, compressed: bool) -> OutgoingMessage {
        OutgoingMessage::of(data.into(), compressed)
    }

    /// One that is not compressed.
    #[inline]
    pub fn plain(data: Encoded) -> OutgoingMessage {
        OutgoingMessage::of(data, false)
    }

    #[inline]
    fn of(data: Encoded, compressed: bool) -> OutgoingMessage {
        OutgoingMessage::made_of(Data::Encoded(data), compressed)
    }

    /// Takes a batch off the front of these bytes, which are messages behind gRPC's prefixes: at least two, of at most `longest` bytes
    /// each, and at most `count_max`. They go in as few frames as they fit in.
    pub fn batch_off(messages: &mut Bytes, longest: usize, count_max: usize) -> Option<OutgoingMessage> {
        let (mut len, mut count) = (0, 0);
        let short = Walk::new(messages, false).take_while(|len| *len <= longest + GRPC_PREFIX_LEN);
        for message in short.take(count_max) {
            (len, count) = (len + message, count + 1);
        }
        (count > 1).then(|| OutgoingMessage {
            is_batch: true,
            ..OutgoingMessage::new(messages.split_to(len), false)
        })
    }

    /// One flat message or a batch of several, of one type, each behind gRPC's prefix with the flag
    /// [`OBJECT_PREFIX`](crate::OBJECT_PREFIX). `None`: these bytes are no such objects, or none at all.
    pub fn objects(mut objects: Bytes) -> Option<OutgoingMessage> {
        let (len, count) = batch::fitting(&objects, objects.len(), true);
        if len != objects.len() || count == 0 {
            return None;
        }
        if count == 1 {
            objects.advance(GRPC_PREFIX_LEN);
        }
        Some(OutgoingMessage { is_batch: count > 1, is_object: true, ..OutgoingMessage::new(objects, false) })
    }

    /// A message of `len` bytes that is encoded while it is sent, for the most part where it is to lie.
    pub fn deferred(message: Arc<dyn DeferredEncoding>, len: usize) -> OutgoingMessage {
        OutgoingMessage::made_of(Data::deferred(message, len), false)
    }

    #[inline]
    fn made_of(data: Data, compressed: bool) -> OutgoingMessage {
        OutgoingMessage {
            data,
            compressed,
            keep: None,
            is_segmented: false,
            is_object: false,
            is_batch: false,
            sent: 0,
            begun: false,
            rest: None,
        }
    }

    /// A flat message: for a server that [takes](crate::Session::takes_objects) it, or in answer to one.
    #[inline]
    pub fn object(data: Encoded) -> OutgoingMessage {
        OutgoingMessage { is_object: true, ..OutgoingMessage::plain(data) }
    }

    /// A message of which parts lie in the pool that both sides are members of: `data` says how
    /// ([`tollfree_layout::segmented`]), and `keep` lives until the peer has taken hold of them.
    pub fn segmented(data: Bytes, compressed: bool, keep: Keep) -> OutgoingMessage {
        OutgoingMessage { keep: Some(keep), is_segmented: true, ..OutgoingMessage::new(data, compressed) }
    }

    /// A flat message of which parts lie in the pool, as of a [`segmented`](Self::segmented).
    pub fn object_segmented(data: Bytes, keep: Keep) -> OutgoingMessage {
        OutgoingMessage { is_object: true, ..OutgoingMessage::segmented(data, false, keep) }
    }

    /// Length of its bytes, sent or not; of a batch with the prefixes.
    #[expect(clippy::len_without_is_empty, reason = "an empty one is like any other")]
    #[inline]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// The lengths of the messages that are still to go, without their prefixes.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        let behind = |bytes| Walk::new(bytes, self.is_object).map(|len| len - GRPC_PREFIX_LEN);
        let (batch, own) = match &self.data {
            Data::Encoded(bytes) if self.is_batch => (Some(behind(&bytes[self.sent..])), None),
            _ => (None, Some(self.len())),
        };
        let rest = self.rest.as_deref().map(|rest| behind(rest));
        own.into_iter().chain(batch.into_iter().flatten()).chain(rest.into_iter().flatten())
    }

    /// Its bytes, without any prefix; a copy of short ones. One that is not encoded is encoded for that, as often as this is called.
    pub fn to_bytes(&self) -> Bytes {
        self.data.clone().into_bytes()
    }

    /// Whether parts of it lie in a pool.
    pub fn is_segmented(&self) -> bool {
        self.is_segmented
    }

    /// Whether it is a flat message, or several.
    pub fn is_object(&self) -> bool {
        self.is_object
    }

    /// Whether something of it was sent.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether it is several messages.
    #[inline]
    pub fn is_batch(&self) -> bool {
        self.is_batch
    }

    /// Whether it is one message, and nothing behind it.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        !self.is_batch && self.rest.is_none()
    }

    /// Of a batch, the front that a frame can hold with a chunk of at most `max` bytes: its length, and how many messages that are.
    pub(crate) fn fitting(&self, max: usize) -> (usize, u32) {
        match &self.data {
            Data::Encoded(bytes) if self.is_batch => batch::fitting(&bytes[self.sent..], max, self.is_object),
            _ => (0, 0),
        }
    }

    /// Makes the first message of a batch one that goes alone, with the others behind it.
    #[inline]
    pub(crate) fn single_out(&mut self) {
        if self.is_batch {
            self.single_out_of_batch();
        }
    }

    fn single_out_of_batch(&mut self) {
        let mut rest = self.to_bytes();
        rest.advance(self.sent);
        // A batch that was not sent to its end has a message.
        let len = Walk::new(&rest, self.is_object).next().unwrap_or(rest.len());
        let mut first = rest.split_to(len);
        let compressed = first.first() == Some(&1);
        first.advance(GRPC_PREFIX_LEN.min(len));
        *self = OutgoingMessage { is_object: self.is_object, ..OutgoingMessage::new(first, compressed) };
        self.rest = (!rest.is_empty()).then(|| Box::new(rest));
    }

    /// What is behind a message that has gone, or behind the part of a batch that has.
    #[inline]
    pub(crate) fn next(mut self) -> Option<OutgoingMessage> {
        match self.rest.take() {
            Some(rest) => {
                let is_object = self.is_object;
                Some(OutgoingMessage { is_batch: true, is_object, ..OutgoingMessage::new(*rest, false) })
            }
            None => (self.is_batch && self.sent < self.len()).then_some(self),
        }
    }

    /// What of it is still to be sent, once something of it was.
    #[inline]
    pub(crate) fn left(&self) -> Option<u32> {
        (self.begun && !self.is_batch).then(|| (self.len() - self.sent) as u32)
    }

    /// Says in a frame's head that the next `len` bytes come with it, `count` messages of a batch. Returns whether nothing is behind them.
    #[inline]
    pub(crate) fn describe(&self, len: usize, count: u32, head: &mut FrameHead) -> bool {
        head.events |= events::MESSAGE;
        head.chunk_len = (len as u32).into();
        let last = self.sent + len == self.len();
        if self.is_batch {
            head.flags |= flags::FIRST | flags::LAST | flags::BATCH;
            head.flags |= if self.is_object { flags::OBJECT } else { 0 };
            head.message_len = count.into();
            return last;
        }
        if !self.begun {
            head.flags |= flags::FIRST;
            head.message_len = (self.len() as u32).into();
            head.flags |= if self.compressed { flags::COMPRESSED } else { 0 };
            head.flags |= if self.is_segmented { flags::SEGMENTED } else { 0 };
            head.flags |= if self.is_object { flags::OBJECT } else { 0 };
        }
        head.flags |= if last { flags::LAST } else { 0 };
        last && self.rest.is_none()
    }

    /// Notes that `len` bytes more are sent; `None` when no message is cut now.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) -> Option<u32> {
        self.begun = true;
        self.sent += len;
        self.left().filter(|left| *left > 0)
    }
}
