//! Bodies of calls, message by message: which of them are compressed, and compressing those that shall be.
//!
//! tonic compresses all messages of a call or none, and does not say what it received; the test cases ask for more.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;

/// A message's head in a body (gRPC over HTTP/2, "Length-Prefixed-Message"): a byte of flags, four of length.
const HEAD_LEN: usize = 5;

/// Whether each message of a body is compressed, in order: of messages that came, or of those to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(Arc<Mutex<VecDeque<bool>>>);

impl Marks {
    pub(crate) fn of(marks: impl IntoIterator<Item = bool>) -> Marks {
        Marks(Arc::new(Mutex::new(marks.into_iter().collect())))
    }

    pub(crate) fn push(&self, compressed: bool) {
        self.0.lock().push_back(compressed);
    }

    /// The next message's mark; a message that nobody marked is not compressed.
    pub(crate) fn next(&self) -> bool {
        self.0.lock().pop_front().unwrap_or(false)
    }
}

/// A body that comes in: marks its messages and keeps its trailers, and is otherwise as it was.
pub(crate) struct Observed {
    pub(crate) inner: Body,
    pub(crate) marks: Marks,
    pub(crate) trailers: Arc<Mutex<HeaderMap>>,
    /// What has come of a message's head.
    pub(crate) head: Vec<u8>,
    /// Bytes until the next head.
    pub(crate) rest_len: usize,
}

impl Observed {
    pub(crate) fn new(inner: Body, marks: Marks, trailers: Arc<Mutex<HeaderMap>>) -> Observed {
        Observed { inner, marks, trailers, head: Vec::with_capacity(HEAD_LEN), rest_len: 0 }
    }

    fn observe(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let skipped = self.rest_len.min(data.len());
            self.rest_len -= skipped;
            data.advance(skipped);
            let taken = (HEAD_LEN - self.head.len()).min(data.len());
            self.head.extend_from_slice(&data[..taken]);
            data.advance(taken);
            if let [flags, len @ ..] = &self.head[..]
                && let Ok(len) = <[u8; 4]>::try_from(len)
            {
                self.marks.push(flags & 1 == 1);
                self.rest_len = u32::from_be_bytes(len) as usize;
                self.head.clear();
            }
        }
    }
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                self.observe(data);
            } else if let Some(trailers) = frame.trailers_ref() {
                *self.trailers.lock() = trailers.clone();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

/// A body that goes out: compresses the messages that are marked, and adds trailers.
pub(crate) struct Marked {
    pub(crate) inner: Body,
    pub(crate) marks: Marks,
    pub(crate) trailers: HeaderMap,
    /// Bytes that are not a whole message yet.
    pub(crate) buffer: BytesMut,
}

impl Marked {
    pub(crate) fn new(inner: Body, marks: Marks, trailers: HeaderMap) -> Marked {
        Marked { inner, marks, trailers, buffer: BytesMut::new() }
    }

    /// The whole messages among what has come, each as its mark says.
    fn take_messages(&mut self) -> Result<Bytes, Status> {
        let mut out = BytesMut::new();
        while let Some(head) = self.buffer.first_chunk::<HEAD_LEN>() {
            let [flags, len @ ..] = *head;
            let whole_len = HEAD_LEN + u32::from_be_bytes(len) as usize;
            if self.buffer.len() < whole_len {
                break;
            }
            if flags != 0 {
                return Err(Status::internal("a message to be marked is compressed already"));
            }
            let message = self.buffer.split_to(whole_len);
            if self.marks.next() {
                let packed = gzip(&message[HEAD_LEN..])
                    .map_err(|error| Status::internal(format!("a message can't be compressed: {error}")))?;
                let len = u32::try_from(packed.len())
                    .map_err(|_| Status::internal("a compressed message is 4 GiB long or longer"))?;
                out.put_u8(1);
                out.put_u32(len);
                out.put_slice(&packed);
            } else {
                out.put_slice(&message);
            }
        }
        Ok(out.freeze())
    }
}

fn gzip(message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message)?;
    encoder.finish()
}

impl http_body::Body for Marked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None if self.buffer.is_empty() => return Poll::Ready(None),
                None => {
                    return Poll::Ready(Some(Err(Status::internal(
                        "a body ends in the middle of a message",
                    ))));
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    self.buffer.extend_from_slice(&data);
                    let messages = self.take_messages()?;
                    if !messages.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(messages))));
                    }
                }
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    trailers.extend(std::mem::take(&mut self.trailers));
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.buffer.is_empty() && self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn message(flags: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[flags], &len[..], body].concat()
    }

    /// A body whose bytes come in pieces of this many.
    fn body(bytes: &[u8], piece_len: usize) -> Body {
        struct Pieces(VecDeque<Bytes>);
        impl http_body::Body for Pieces {
            type Data = Bytes;
            type Error = Status;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
            }
        }
        Body::new(Pieces(bytes.chunks(piece_len).map(Bytes::copy_from_slice).collect()))
    }

    async fn read(
        mut body: impl http_body::Body<Data = Bytes, Error = Status> + Unpin,
    ) -> Result<Vec<u8>, Status> {
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            bytes.extend_from_slice(&frame?.into_data().unwrap_or_default());
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn marks_are_found_however_a_body_is_cut() {
        let bytes = [message(0, b"one"), message(1, b""), message(1, &[7; 300]), message(0, b"")].concat();
        for piece_len in [1, 2, 4, 5, 6, 7, 300, bytes.len()] {
            let marks = Marks::default();
            let observed = Observed::new(body(&bytes, piece_len), marks.clone(), Arc::default());
            assert_eq!(read(observed).await.unwrap(), bytes, "pieces of {piece_len}");
            assert_eq!(*marks.0.lock(), [false, true, true, false], "pieces of {piece_len}");
        }
    }

    #[tokio::test]
    async fn marked_messages_are_compressed_and_no_others() {
        let bytes = [message(0, &[1; 3000]), message(0, &[2; 3000]), message(0, b"last")].concat();
        for piece_len in [1, 4, 3005, 4000, bytes.len()] {
            let marked = Marked::new(body(&bytes, piece_len), Marks::of([true, false]), HeaderMap::new());
            let seen = Marks::default();
            let out = Observed::new(Body::new(marked), seen.clone(), Arc::default());
            let out = read(out).await.unwrap();
            assert_eq!(*seen.0.lock(), [true, false, false], "pieces of {piece_len}");
            let first_len = u32::from_be_bytes(out[1..5].try_into().unwrap()) as usize;
            let mut first = Vec::new();
            let mut decoder = flate2::write::GzDecoder::new(&mut first);
            decoder.write_all(&out[5..5 + first_len]).unwrap();
            decoder.finish().unwrap();
            assert_eq!(first, [1; 3000]);
            assert_eq!(out[5 + first_len..], bytes[3005..]);
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        let bytes = message(0, &[1; 100]);
        let marked = Marked::new(body(&bytes[..50], 10), Marks::default(), HeaderMap::new());
        assert_eq!(read(marked).await.unwrap_err().code(), tonic::Code::Internal);
    }
}
