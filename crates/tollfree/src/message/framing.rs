//! gRPC's framing of messages in an HTTP body, taken apart.
//!
//! tonic's encoder hands out chunks that hold one message, several, or (a foreign body) parts of one. Each message
//! starts with a compressed flag (1 byte) and its length (4 bytes, big endian).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Frame;
use tollfree_driver_tokio::OutgoingMessage;
use tonic::Status;
use tonic::body::Body;

use crate::metadata::status_code;

/// gRPC's prefix.
pub(crate) const PREFIX_LEN: usize = 5;

/// Chunks in, messages out.
#[derive(Clone, Debug, Default)]
pub struct Deframer {
    /// Whole chunks arrive here and are cut without a copy.
    chunk: Bytes,
    /// The beginning of a message that ends in a later chunk.
    partial: BytesMut,
}

impl Deframer {
    /// Takes the next chunk of the body. The one before must have been taken apart by [`next_message`](Deframer::next_message).
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        if self.partial.is_empty() {
            self.chunk = chunk;
        } else {
            self.partial.extend_from_slice(&chunk);
            if whole_len(&self.partial).is_some_and(|len| len <= self.partial.len()) {
                self.chunk = std::mem::take(&mut self.partial).freeze();
            }
        }
    }

    /// The next whole messages together, where several short ones are at hand: up to `longest` bytes each, and at most `count_max`.
    pub(crate) fn next_batch(&mut self, longest: usize, count_max: usize) -> Option<OutgoingMessage> {
        OutgoingMessage::batch_off(&mut self.chunk, longest, count_max)
    }

    /// The next whole message without its prefix, if it is not compressed.
    pub(crate) fn front(&mut self) -> Option<&[u8]> {
        if !self.has_whole() || self.chunk.first() != Some(&0) {
            return None;
        }
        self.chunk.get(PREFIX_LEN..whole_len(&self.chunk)?)
    }

    /// How many empty messages are at hand before another one.
    pub(crate) fn empty_count(&self) -> usize {
        let messages = self.chunk.chunks_exact(PREFIX_LEN);
        messages.take_while(|message| **message == [0; PREFIX_LEN]).count()
    }

    /// Passes over so many whole messages, if they are at hand.
    pub(crate) fn skip(&mut self, count: usize) {
        for _ in 0..count {
            match whole_len(&self.chunk) {
                Some(len) if len <= self.chunk.len() => self.chunk.advance(len),
                _ => return,
            }
        }
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Option<OutgoingMessage> {
        if !self.has_whole() {
            return None;
        }
        let len = whole_len(&self.chunk)?;
        let mut message = self.chunk.split_to(len);
        let compressed = message[0] != 0;
        message.advance(PREFIX_LEN);
        Some(OutgoingMessage::new(message, compressed))
    }

    /// The next whole message without its prefix, and whether it is compressed. `None`: the next chunk may be pushed.
    pub fn next_message(&mut self) -> Option<(Bytes, bool)> {
        self.next().map(|message| (message.to_bytes(), message.compressed))
    }

    /// Whether [`next`](Deframer::next) has one to give. If not, the next chunk may be pushed.
    pub(crate) fn has_whole(&mut self) -> bool {
        let whole = whole_len(&self.chunk).is_some_and(|len| len <= self.chunk.len());
        if !whole && !self.chunk.is_empty() {
            self.keep_partial();
        }
        whole
    }

    /// The prefix of the next message, once it is here.
    #[inline]
    pub(crate) fn prefix(&self) -> Option<&[u8; PREFIX_LEN]> {
        self.chunk.first_chunk().or_else(|| self.partial.first_chunk())
    }

    /// What begins with the next message and its prefix, once all of that is here. To be taken off the front.
    #[inline]
    pub(crate) fn whole(&mut self) -> Option<&mut Bytes> {
        self.has_whole().then_some(&mut self.chunk)
    }

    /// Sets aside the beginning of a message that later chunks will end.
    fn keep_partial(&mut self) {
        let rest = std::mem::take(&mut self.chunk);
        self.partial.reserve(whole_len(&rest).unwrap_or(PREFIX_LEN).min(1 << 20));
        self.partial.extend_from_slice(&rest);
    }

    /// Whether a message is begun and not ended.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty() || !self.chunk.is_empty()
    }
}

/// Tells how long messages are that pass by in a body, however it is cut.
#[derive(Debug, Default)]
pub struct Lengths {
    prefix: [u8; PREFIX_LEN],
    prefix_len: usize,
    /// Of the present message.
    left: usize,
    /// Messages that have begun.
    count: u64,
}

impl Lengths {
    /// Whether a message is begun and not ended.
    fn is_partial(&self) -> bool {
        self.left > 0 || self.prefix_len > 0
    }

    /// Looks at the next bytes; `tell` is given number, from 0, and length of each message that begins in them.
    pub fn pass(&mut self, mut bytes: &[u8], mut tell: impl FnMut(u64, usize)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let count = (PREFIX_LEN - self.prefix_len).min(bytes.len());
            self.prefix[self.prefix_len..self.prefix_len + count].copy_from_slice(&bytes[..count]);
            self.prefix_len += count;
            bytes = &bytes[count..];
            if self.prefix_len == PREFIX_LEN {
                let [_, len @ ..] = self.prefix;
                (self.left, self.prefix_len) = (u32::from_be_bytes(len) as usize, 0);
                tell(self.count, self.left);
                self.count += 1;
            }
        }
    }
}

/// The body as it was, which tells number, from 0, and length of each message that begins in it. Where it ends well in the middle of one, which
/// tonic passes over, it is an error.
pub fn tell_lengths(body: Body, tell: impl FnMut(u64, usize) + Send + Unpin + 'static) -> Body {
    Body::new(Told { body, lengths: Lengths::default(), tell })
}

/// Such a body.
struct Told<F> {
    body: Body,
    lengths: Lengths,
    tell: F,
}

impl<F: FnMut(u64, usize) + Send + Unpin> http_body::Body for Told<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Told { body, lengths, tell } = &mut *self;
        let frame = ready!(Pin::new(body).poll_frame(cx));
        let ends_well = match &frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(bytes) => {
                    lengths.pass(bytes, tell);
                    false
                }
                None => frame.trailers_ref().and_then(status_code).is_none_or(|code| code == 0),
            },
            Some(Err(_)) => false,
            None => true,
        };
        if ends_well && std::mem::take(lengths).is_partial() {
            return Poll::Ready(Some(Err(Status::internal("the body ends in the middle of a message"))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Length of the first message with its prefix, once the prefix is there.
fn whole_len(bytes: &[u8]) -> Option<usize> {
    let prefix: [u8; 4] = bytes.get(1..PREFIX_LEN)?.try_into().ok()?;
    Some(PREFIX_LEN + u32::from_be_bytes(prefix) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(0);
            bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    #[test]
    fn messages_come_out_whole_however_the_body_is_cut() {
        let messages: [&[u8]; 4] = [b"one", b"", b"three and more", b"4"];
        let bytes = framed(&messages);
        for size in 1..=bytes.len() {
            let mut deframer = Deframer::default();
            let mut got = Vec::new();
            for chunk in bytes.chunks(size) {
                deframer.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = deframer.next() {
                    got.push(message.to_bytes());
                }
            }
            assert_eq!(got, messages, "cut every {size} bytes");
            assert!(!deframer.is_partial());
        }
    }

    #[test]
    fn lengths_are_told_however_the_body_is_cut() {
        let messages: [&[u8]; 4] = [b"one", b"", b"three and more", b"4"];
        let bytes = framed(&messages);
        for size in 1..=bytes.len() {
            let (mut lengths, mut told) = (Lengths::default(), Vec::new());
            bytes.chunks(size).for_each(|chunk| lengths.pass(chunk, |number, len| told.push((number, len))));
            assert_eq!(told, [(0, 3), (1, 0), (2, 14), (3, 1)], "cut every {size} bytes");
        }
    }

    #[test]
    fn a_passing_body_that_ends_well_in_a_message_is_an_error() {
        use http_body::Body as _;
        use http_body_util::{BodyExt, Full};
        use std::task::Waker;
        let end_of = |bytes: &[u8], status: Option<&'static str>| {
            let trailers = status.map(|status| {
                let status = http::HeaderValue::from_static(status);
                Ok(http::HeaderMap::from_iter([(crate::metadata::GRPC_STATUS, status)]))
            });
            let body = Full::new(Bytes::copy_from_slice(bytes));
            let mut body =
                tell_lengths(Body::new(body.with_trailers(std::future::ready(trailers))), |_, _| {});
            loop {
                match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Some(Ok(frame))) if frame.is_data() => {}
                    Poll::Ready(Some(end)) => return end.map(drop).map_err(|status| status.code()),
                    Poll::Ready(None) => return Ok(()),
                    Poll::Pending => panic!("all is there"),
                }
            }
        };
        let (whole, cut) = (framed(&[b"abc"]), &framed(&[b"abc"])[..6]);
        for status in [None, Some("0"), Some("14")] {
            assert_eq!(end_of(&whole, status), Ok(()), "{status:?}");
        }
        assert_eq!(end_of(cut, None), Err(tonic::Code::Internal));
        assert_eq!(end_of(cut, Some("0")), Err(tonic::Code::Internal));
        assert_eq!(end_of(cut, Some("14")), Ok(()), "its own status says why");
        assert_eq!(end_of(&whole[..3], Some("0")), Err(tonic::Code::Internal), "in a prefix");
    }

    #[test]
    fn a_body_that_ends_in_a_message_is_noticed() {
        let mut deframer = Deframer::default();
        deframer.push(Bytes::copy_from_slice(&framed(&[b"abc"])[..6]));
        assert!(deframer.next().is_none());
        assert!(deframer.is_partial());
    }
}
