//! What a frame holds that says everything: a request, or an answer with status OK.

use bytes::{Buf, BufMut, Bytes};

use crate::encoded::Encoded;
use crate::error::Violation;
use crate::frame::Frame;
use crate::receive::check_block;
use crate::{GRPC_PREFIX_LEN, Inbound, OBJECT_PREFIX};

/// All that a side says on a call, as it came in one frame: blocks of metadata, and a message that is neither a segmented message nor compressed.
/// It may be an object.
/// They lie in one buffer, and are no larger than a pointer: they go from hand to hand.
#[derive(Debug)]
pub struct SingleFrame {
    /// The message with gRPC's prefix before it, and the blocks before that.
    data: Encoded,
}

impl SingleFrame {
    /// A private copy of all that a frame holds.
    ///
    /// # Errors
    /// [`Violation`] for blocks that are too long, or none.
    #[inline]
    pub(crate) fn copy(
        frame: &Frame,
        record: &impl Inbound,
        block_len_max: usize,
    ) -> Result<SingleFrame, Violation> {
        let (headers_len, trailers_len) = (frame.headers_len, frame.trailers_len);
        let (blocks_len, len) = (headers_len + trailers_len, frame.chunk_len as usize);
        let data = Encoded::write(blocks_len + GRPC_PREFIX_LEN + len, |data| {
            if blocks_len > 0 {
                // One behind the other.
                record.append_to(frame.headers_at(), blocks_len, data);
            }
            let [a, b, c, d] = frame.chunk_len.to_be_bytes();
            data.put_slice(&[frame.prefix(), a, b, c, d]);
            record.append_to(frame.chunk_at(), len, data);
        });
        // Lengths come out of 16 bits each.
        let whole = SingleFrame { data: data.after([headers_len as u16, trailers_len as u16]) };
        if blocks_len > 0 {
            check_block(whole.headers(), block_len_max)?;
            check_block(whole.trailers(), block_len_max)?;
        }
        Ok(whole)
    }

    /// A request of which headers and message were taken apart; the message has gRPC's prefix before it. `None`: the block is
    /// longer than one can be.
    pub fn request(headers: &[u8], message: Bytes) -> Option<SingleFrame> {
        let headers_len = u16::try_from(headers.len()).ok()?;
        let data = match headers {
            [] => message.into(),
            _ => Encoded::write(headers.len() + message.len(), |data| {
                data.put_slice(headers);
                data.put_slice(&message);
            }),
        };
        Some(SingleFrame { data: data.after([headers_len, 0]) })
    }

    #[inline]
    fn blocks_len(&self) -> usize {
        let [headers_len, trailers_len] = self.data.before();
        headers_len + trailers_len
    }

    /// Packed metadata.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        &self.data[..self.data.before()[0]]
    }

    /// Packed metadata; those of a request are empty.
    #[inline]
    pub fn trailers(&self) -> &[u8] {
        &self.data[self.data.before()[0]..self.blocks_len()]
    }

    /// The message, without any prefix.
    #[inline]
    pub fn message(&self) -> &[u8] {
        &self.data[self.blocks_len() + GRPC_PREFIX_LEN..]
    }

    /// Whether the message is a flat message.
    #[inline]
    pub fn is_object(&self) -> bool {
        self.data[self.blocks_len()] == OBJECT_PREFIX
    }

    /// The message, if it can be shared as it is.
    #[inline]
    pub fn shared_message(&self) -> Option<Bytes> {
        let data = self.data.as_shared()?;
        Some(data.slice(self.blocks_len() + GRPC_PREFIX_LEN..))
    }

    /// The message with gRPC's prefix before it; a copy of a short one.
    pub fn into_prefixed(self) -> Bytes {
        let blocks_len = self.blocks_len();
        match self.data.as_shared() {
            Some(_) => {
                let mut data = self.data.into_bytes();
                data.advance(blocks_len);
                data
            }
            None => Bytes::copy_from_slice(&self.data[blocks_len..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with gRPC's prefix before it.
    fn prefixed(flag: u8, message: &[u8]) -> Bytes {
        [&[flag], &(message.len() as u32).to_be_bytes()[..], message].concat().into()
    }

    #[test]
    fn a_request_gives_back_what_it_was_put_together_of() {
        // Short ones lie in buffers that are used again, long ones in memory that others may share.
        for (headers, message) in [
            (&b""[..], &b"hello"[..]),
            (b"block", b"hello"),
            (b"block", b""),
            (b"block", &[7; 5000]),
            (&[1; 5000], b"hello"),
            (&[1; 0xffff], b""),
        ] {
            for (flag, is_object) in [(0, false), (OBJECT_PREFIX, true)] {
                let message_of = prefixed(flag, message);
                let request = SingleFrame::request(headers, message_of.clone()).unwrap();
                assert_eq!((request.headers(), request.trailers()), (headers, &b""[..]));
                assert_eq!((request.message(), request.is_object()), (message, is_object));
                let is_shared = headers.is_empty() || headers.len() + message_of.len() > 1024;
                assert_eq!(request.shared_message().as_deref(), is_shared.then_some(message));
                assert_eq!(request.into_prefixed(), message_of);
            }
        }
        let alone = prefixed(0, b"hello");
        let shared = SingleFrame::request(&[], alone.clone()).unwrap().into_prefixed();
        assert_eq!(shared.as_ptr(), alone.as_ptr(), "without headers nothing is copied");
        assert!(SingleFrame::request(&[1; 0x1_0000], alone).is_none(), "a block longer than blocks are");
    }
}
