//! Messages between their types and the bytes that travel.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tollfree_driver_tokio::{Chunk, Claim, Encoded, OBJECT_PREFIX, SingleFrame, join};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_layout::metadata::{BlockError, pairs};
use tollfree_pool::Plan;
use tollfree_pool::SegmentedMessage;
use tollfree_processor::Trust;
use tonic::{Code, Status};

use crate::message::form::{Form, Ready, unasked};
use crate::message::payloads::Sharing;
use crate::message::received::{self, Fetching, Mapped};
use crate::metadata::{self};
use crate::status::of_content;

/// tonic's limit for received messages where none is set.
pub(crate) const RECEIVED_LEN_MAX: usize = 4 * 1024 * 1024;
/// gRPC's prefix, which the session puts before a message's first chunk.
const PREFIX_LEN: usize = tollfree_driver_tokio::GRPC_PREFIX_LEN;

/// Encodes a message of `len` bytes, its [`Ready::encoded_len`].
#[inline]
pub(crate) fn encode(message: impl Ready, len: usize) -> Encoded {
    Encoded::write(len, |buffer| message.write(buffer))
}

/// Whether a message is not longer than its sender allows.
///
/// # Errors
/// The status that tonic's encoder gives.
#[inline]
pub(crate) fn check_len(len: usize, len_max: Option<usize>) -> Result<(), Status> {
    let limit = len_max.unwrap_or(usize::MAX);
    if len > limit {
        return Err(of_content(
            Code::OutOfRange,
            format!(
                "Error, encoded message length too large: found {len} bytes, the limit is: {limit} bytes"
            ),
        ));
    }
    if len > u32::MAX as usize {
        return Err(of_content(
            Code::ResourceExhausted,
            format!("Cannot return body with more than 4GB of data but got {len} bytes"),
        ));
    }
    Ok(())
}

/// A message that was received, in as many pieces as it lies in.
pub(crate) enum Received {
    /// Together with all else that a client says.
    Request(SingleFrame),
    Whole(Bytes),
    SegmentedMessage(SegmentedMessage),
    /// A flat message, and the receiver's limit for messages.
    Object(Bytes, usize),
}

impl Received {
    pub(crate) fn len(&self) -> usize {
        match self {
            Received::Whole(bytes) | Received::Object(bytes, _) => bytes.len(),
            Received::Request(whole) => whole.message().len(),
            Received::SegmentedMessage(segmented) => segmented.remaining(),
        }
    }

    /// Whether it came as a flat message.
    pub(crate) fn is_object(&self) -> bool {
        match self {
            Received::Request(whole) => whole.is_object(),
            Received::Object(..) => true,
            Received::Whole(_) | Received::SegmentedMessage(_) => false,
        }
    }
}

/// Decodes a message. One that is an object is verified, unless its sender is trusted.
///
/// # Errors
/// INTERNAL, as tonic's decoder says it.
pub(crate) fn decode<F: Form<M>, M: Send + Sync + 'static>(
    message: Received,
    trust: Option<Trust>,
) -> Result<M, Status> {
    match message {
        Received::Request(whole) => decode_single_frame::<F, M>(&whole, trust),
        Received::Whole(bytes) => F::read(bytes),
        Received::SegmentedMessage(segmented) => F::read_segmented(segmented),
        Received::Object(object, len_max) => F::keep_object(object, len_max, trust),
    }
}

/// Decodes a message that came in one frame.
///
/// # Errors
/// As [`decode`].
#[inline]
pub(crate) fn decode_single_frame<F: Form<M>, M: Send + Sync + 'static>(
    whole: &SingleFrame,
    trust: Option<Trust>,
) -> Result<M, Status> {
    if whole.is_object() {
        return F::read_object(whole.message(), usize::MAX, trust);
    }
    match whole.shared_message() {
        None => F::read(whole.message()),
        Some(message) => F::read(message),
    }
}

/// Puts the first message of a call together from its chunks. One that comes in one chunk is not copied.
#[derive(Debug)]
pub(crate) struct Gather {
    len_max: usize,
    takes_objects: bool,
    is_object: bool,
    whole: Bytes,
    pieces: BytesMut,
    /// What they come to, as the first of them said.
    len: usize,
    complete: bool,
    /// Bytes that were copied to put it together.
    joined: usize,
    claim: Option<Claim>,
}

impl Gather {
    /// Takes messages of up to `len_max` bytes, and flat messages if it is to.
    pub(crate) fn new(len_max: Option<usize>, takes_objects: bool) -> Gather {
        let len_max = len_max.unwrap_or(RECEIVED_LEN_MAX);
        Gather {
            len_max,
            takes_objects,
            is_object: false,
            whole: Bytes::new(),
            pieces: BytesMut::new(),
            len: 0,
            complete: false,
            joined: 0,
            claim: None,
        }
    }

    /// Takes the next chunk. What follows the first message is only looked at.
    ///
    /// # Errors
    /// The status that tonic's decoder gives for a message that is too long, or compressed without a word about how.
    pub(crate) fn add(&mut self, chunk: Chunk) -> Result<(), Status> {
        let Chunk { mut bytes, first, last, batch_count, segmented } = chunk;
        if batch_count > 0 {
            return self.add_batch(bytes);
        }
        if first {
            let (is_object, len) = prefix(&mut bytes)?;
            if is_object && !self.takes_objects {
                return Err(unasked());
            }
            let limit = self.len_max;
            let what = if is_object { What::Object(limit) } else { What::Encoded };
            let len_max = match &segmented {
                Some(_) => Plan::travelling_len_max(what.len_max(limit)),
                None => what.len_max(limit),
            };
            if len > len_max {
                return Err(too_long(len, limit));
            }
            if !self.complete {
                self.is_object = is_object;
            }
            if !self.complete {
                self.claim = segmented;
            }
            if !self.complete {
                (self.pieces, self.len) = (bytes, len);
            }
        } else if !self.complete {
            // The second chunk has come: there is more to the length than a word, and it is within the limit.
            self.joined += join(&mut self.pieces, bytes, self.len);
        }
        if last && !self.complete {
            self.whole = std::mem::take(&mut self.pieces).freeze();
            self.complete = true;
        }
        Ok(())
    }

    /// Takes the next chunk, which is several messages.
    #[cold]
    fn add_batch(&mut self, mut messages: BytesMut) -> Result<(), Status> {
        while let Some([_, len @ ..]) = messages.first_chunk::<PREFIX_LEN>() {
            // The session has looked whether they are whole.
            let bytes = messages.split_to(PREFIX_LEN + u32::from_be_bytes(*len) as usize);
            self.add(Chunk { bytes, first: true, last: true, batch_count: 0, segmented: None })?;
        }
        Ok(())
    }

    /// The message, if one has come: as it is, or with hold taken of its refs, or what to wait for until then.
    ///
    /// # Errors
    /// The status for a message whose refs can't be had.
    pub(crate) fn take(&mut self, sharing: &Sharing) -> Result<Option<Gathered>, Status> {
        if !std::mem::take(&mut self.complete) {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.whole);
        let Some(claim) = self.claim.take() else {
            sharing.received_inline(bytes.len(), self.joined);
            return Ok(Some(Gathered::Here(match self.is_object {
                true => Received::Object(bytes, self.len_max),
                false => Received::Whole(bytes),
            })));
        };
        let what = if self.is_object { What::Object(self.len_max) } else { What::Encoded };
        Ok(Some(match received::map(sharing, bytes, claim, what.len_max(self.len_max))? {
            Mapped::Here(segmented) => Gathered::Here(what.of(segmented)),
            Mapped::Fetching(fetching) => Gathered::Fetching(fetching, what),
        }))
    }
}

/// Takes gRPC's prefix off a message: whether that is an object, and the length.
fn prefix(bytes: &mut impl Buf) -> Result<(bool, usize), Status> {
    let flag = bytes.get_u8();
    let len = bytes.get_u32() as usize;
    match flag {
        0 => Ok((false, len)),
        OBJECT_PREFIX => Ok((true, len)),
        _ => Err(of_content(
            Code::Internal,
            "protocol error: received message with compressed-flag but no grpc-encoding was specified",
        )),
    }
}

/// Holds the receiver's limit against a message that came in one frame, as [`Gather`] does. `Some`: it is an object, of which
/// only the encoding may be within the limit.
///
/// # Errors
/// The status that tonic's decoder gives for a message that is too long.
#[inline]
pub(crate) fn check_received(
    whole: &SingleFrame,
    len_max: Option<usize>,
) -> Result<Option<Received>, Status> {
    let (len, limit) = (whole.message().len(), len_max.unwrap_or(RECEIVED_LEN_MAX));
    if len > limit { long_received(whole, limit) } else { Ok(None) }
}

#[cold]
fn long_received(whole: &SingleFrame, limit: usize) -> Result<Option<Received>, Status> {
    match whole.is_object() {
        true => Ok(Some(Received::Object(Bytes::copy_from_slice(whole.message()), limit))),
        false => Err(too_long(whole.message().len(), limit)),
    }
}

/// What a gathered message is.
pub(crate) enum Gathered {
    Here(Received),
    /// Its extents are on their way here.
    Fetching(Fetching, What),
}

/// What the bytes of a message are.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Encoded,
    /// A flat message, and the receiver's limit for messages.
    Object(usize),
}

impl What {
    /// The longest that is taken of a receiver with this limit: whether an object's encoding is too long is known when it is
    /// verified.
    fn len_max(self, limit: usize) -> usize {
        match self {
            What::Encoded => limit,
            What::Object(limit) => limit.max(OBJECT_LEN_MAX),
        }
    }

    /// The message whose bytes lie in a pool. An object in one piece stays there.
    pub(crate) fn of(self, segmented: SegmentedMessage) -> Received {
        match self {
            What::Encoded => Received::SegmentedMessage(segmented),
            What::Object(len_max) => Received::Object(in_one(segmented), len_max),
        }
    }
}

/// The bytes of a segmented message in one piece: where they lie, or a private copy.
pub(crate) fn in_one(segmented: SegmentedMessage) -> Bytes {
    segmented.into_only().unwrap_or_else(|mut segmented| segmented.copy_to_bytes(segmented.remaining()))
}

pub(crate) fn too_long(len: usize, limit: usize) -> Status {
    of_content(
        Code::OutOfRange,
        format!("Error, decoded message length too large: found {len} bytes, the limit is: {limit} bytes"),
    )
}

const _: () = assert!(PREFIX_LEN == 5);

/// Names that gRPC keeps for itself: an application's metadata under these names don't travel, as in tonic.
const RESERVED: [&str; 3] = ["grpc-message", "grpc-message-type", "content-type"];

/// Packs an application's metadata; nothing when there are none.
///
/// # Errors
/// [`BlockError`] for a name or value longer than a pair can carry.
pub(crate) fn pack(headers: &HeaderMap) -> Result<Bytes, BlockError> {
    metadata::pack_but(headers, |name| RESERVED.contains(&name.as_str()))
}

/// The same for a block that is kept while it is sent.
///
/// # Errors
/// As [`pack`].
pub(crate) fn pack_to_keep(headers: &HeaderMap) -> Result<Bytes, BlockError> {
    metadata::pack_to_keep(headers, |name| RESERVED.contains(&name.as_str()))
}

/// Whether a block says how messages are compressed, or may be: that is left to tonic.
pub(crate) fn says_encoding(block: &[u8]) -> bool {
    pairs(block).flatten().any(|(name, _)| is_encoding(name.as_bytes()))
}

fn is_encoding(name: &[u8]) -> bool {
    matches!(name, b"grpc-encoding" | b"grpc-accept-encoding")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: &'static [u8], first: bool, last: bool) -> Chunk {
        Chunk { bytes: BytesMut::from(bytes), first, last, batch_count: 0, segmented: None }
    }

    fn take(gather: &mut Gather) -> Option<Bytes> {
        match gather.take(&Sharing::default()).unwrap()? {
            Gathered::Here(Received::Whole(bytes)) => Some(bytes),
            _ => panic!("no segmented message came"),
        }
    }

    #[test]
    fn a_message_comes_together_and_only_the_first_counts() {
        let mut gather = Gather::new(None, false);
        assert!(take(&mut gather).is_none());
        gather.add(chunk(b"\0\0\0\0\x06ab", true, false)).unwrap();
        gather.add(chunk(b"cd", false, false)).unwrap();
        gather.add(chunk(b"ef", false, true)).unwrap();
        gather.add(chunk(b"\0\0\0\0\x02xy", true, true)).unwrap();
        gather.add(chunk(b"\0\0\0\0\x04xy", true, false)).unwrap();
        gather.add(chunk(b"zw", false, true)).unwrap();
        assert_eq!(take(&mut gather).unwrap(), "abcdef");
        assert!(take(&mut gather).is_none());
    }

    #[test]
    fn a_message_in_one_chunk_is_not_copied() {
        let bytes = BytesMut::from(&b"\0\0\0\0\x02ab"[..]);
        let place = bytes[PREFIX_LEN..].as_ptr();
        let mut gather = Gather::new(Some(2), false);
        gather.add(Chunk { bytes, first: true, last: true, batch_count: 0, segmented: None }).unwrap();
        assert_eq!(take(&mut gather).unwrap().as_ptr(), place);
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_has_come() {
        let mut gather = Gather::new(Some(5), false);
        let status = gather.add(chunk(b"\0\0\0\0\x06ab", true, false)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::OutOfRange);
        assert!(status.message().contains("found 6 bytes, the limit is: 5 bytes"), "{status}");
        let status = Gather::new(None, false).add(chunk(b"\x01\0\0\0\0", true, true)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal);
    }

    #[test]
    fn a_sender_limit_holds() {
        let status = check_len(100, Some(50)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::OutOfRange);
    }
}
