//! Messages of a call as they come, for who reads them one after the other.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::message::codec::FormDecoder;
use crate::message::compression::ENCODING;
use crate::message::encoding::RECEIVED_LEN_MAX;
use crate::message::form::Form;
use crate::message::framing::{Deframer, PREFIX_LEN};
use crate::metadata::status_code;

/// Messages that stream: a client's to a server's handler, or a server's to its caller.
///
/// Has the methods of [`tonic::Streaming`], and reads messages where they lie in what the session gives, many at a time. Generated stubs have it
/// where they were told so (`own_streaming` of `tollfree_build`), blocking clients always.
///
/// Ends as the call does: a stream that was cut is an error. After an end, and after an error, there is nothing more.
pub struct Streaming<M> {
    source: Source<M>,
}

enum Source<M> {
    /// What is not compressed.
    Body(Box<Messages<M>>),
    /// Anything else.
    Tonic(Box<tonic::Streaming<M>>),
}

/// Whether messages behind a head with these headers can be read here: tonic inflates those that are compressed.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(ENCODING).is_none_or(|encoding| encoding == "identity")
}

/// Any body as tonic has bodies.
pub(crate) fn tonic_body<B>(body: B) -> Body
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Body::new(body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))))
}

/// The messages in a body.
struct Messages<M> {
    body: Mutex<Body>,
    /// What has been read of it, and not been taken yet.
    deframer: Deframer,
    decoder: Mutex<Box<dyn Decode<M>>>,
    len_max: usize,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

/// Decodes messages that lie in a row.
pub(crate) trait Decode<M>: Send {
    /// Takes a message of `len` bytes off the front, of which there are as many at least.
    ///
    /// # Errors
    /// The status for a message that can't be had.
    fn take(&mut self, len: usize, from: &mut Bytes) -> Result<M, Status>;
}

impl<M> Streaming<M> {
    /// The messages in a body that says how its call ended: by trailers, or an error.
    pub(crate) fn of_body<F: Form<M>>(body: Body, decoder: FormDecoder<F, M>, len_max: Option<usize>) -> Self
    where
        M: Send + Sync + 'static,
    {
        let messages = Messages {
            body: Mutex::new(body),
            deframer: Deframer::default(),
            decoder: Mutex::new(Box::new(decoder)),
            len_max: len_max.unwrap_or(RECEIVED_LEN_MAX),
            trailers: None,
            is_over: false,
        };
        Streaming { source: Source::Body(Box::new(messages)) }
    }

    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// The call's status, where it is not OK; of a request, why it was cut. OUT_OF_RANGE for a message longer than the limit, INTERNAL where
    /// a message can't be decoded.
    pub async fn message(&mut self) -> Result<Option<M>, Status> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.transpose()
    }

    /// The metadata that came after the last message. Messages that are left are passed over.
    ///
    /// # Errors
    /// As of [`message`](Streaming::message).
    pub async fn trailers(&mut self) -> Result<Option<MetadataMap>, Status> {
        if let Source::Tonic(inner) = &mut self.source {
            return inner.trailers().await;
        }
        while self.message().await?.is_some() {}
        let Source::Body(messages) = &mut self.source else { return Ok(None) };
        Ok(messages.trailers.take().map(MetadataMap::from_headers))
    }

    /// Whether the next message is here already.
    pub(crate) fn has_message(&mut self) -> bool {
        match &mut self.source {
            Source::Body(messages) => messages.deframer.has_whole(),
            Source::Tonic(_) => false,
        }
    }
}

impl<M> From<tonic::Streaming<M>> for Streaming<M> {
    fn from(inner: tonic::Streaming<M>) -> Streaming<M> {
        Streaming { source: Source::Tonic(Box::new(inner)) }
    }
}

impl<M> Unpin for Streaming<M> {}

impl<M> Stream for Streaming<M> {
    type Item = Result<M, Status>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<M, Status>>> {
        match &mut self.source {
            Source::Body(messages) => messages.poll_next(cx),
            Source::Tonic(inner) => Pin::new(inner).poll_next(cx),
        }
    }
}

impl<M> fmt::Debug for Streaming<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").finish_non_exhaustive()
    }
}

impl<M> Messages<M> {
    #[inline]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<M, Status>>> {
        loop {
            // Before all of a message is here: a long one is not waited for that is refused.
            let len = match self.deframer.prefix().map(|prefix| self.check(prefix)).transpose() {
                Ok(len) => len,
                Err(refused) => return self.fail(refused),
            };
            if let (Some(from), Some(len)) = (self.deframer.whole(), len) {
                from.advance(PREFIX_LEN);
                return match self.decoder.get_mut().take(len, from) {
                    Ok(message) => Poll::Ready(Some(Ok(message))),
                    Err(status) => self.fail(status),
                };
            }
            if let Some(end) = ready!(self.poll_chunk(cx)) {
                return Poll::Ready(end.map(Err));
            }
        }
    }

    /// The length that a prefix says.
    #[inline]
    fn check(&self, prefix: &[u8; PREFIX_LEN]) -> Result<usize, Status> {
        let [flag, len @ ..] = *prefix;
        let len = u32::from_be_bytes(len) as usize;
        if flag == 0 && len <= self.len_max { Ok(len) } else { Err(refused(flag, len, self.len_max)) }
    }

    /// Ends with an error.
    #[cold]
    fn fail(&mut self, status: Status) -> Poll<Option<Result<M, Status>>> {
        self.let_go();
        Poll::Ready(Some(Err(status)))
    }

    fn let_go(&mut self) {
        self.is_over = true;
        self.deframer = Deframer::default();
    }

    /// Reads the next chunk of the body. `Some`: there is none, and so the stream ends.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Option<Status>>> {
        if self.is_over {
            return Poll::Ready(Some(None));
        }
        let frame = match ready!(Pin::new(self.body.get_mut()).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(status)) => {
                self.let_go();
                return Poll::Ready(Some(Some(status)));
            }
            None => {
                let is_cut = self.deframer.is_partial();
                self.let_go();
                return Poll::Ready(Some(is_cut.then(cut)));
            }
        };
        match frame.into_data() {
            Ok(data) => {
                self.deframer.push(data);
                Poll::Ready(None)
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let is_cut =
                    self.deframer.is_partial() && status_code(&trailers).is_none_or(|code| code == 0);
                self.let_go();
                let status = Status::from_header_map(&trailers).filter(|status| status.code() != Code::Ok);
                if status.is_none() {
                    self.trailers = Some(trailers);
                }
                Poll::Ready(Some(status.or_else(|| is_cut.then(cut))))
            }
        }
    }
}

#[cold]
fn cut() -> Status {
    Status::internal("Unexpected EOF decoding stream.")
}

/// Why a message is not taken, in tonic's words.
#[cold]
fn refused(flag: u8, len: usize, len_max: usize) -> Status {
    match flag {
        0 => Status::out_of_range(format!(
            "Error, decoded message length too large: found {len} bytes, the limit is: {len_max} bytes"
        )),
        1 => Status::internal(
            "protocol error: received message with compressed-flag but no grpc-encoding was specified",
        ),
        _ => Status::internal(format!(
            "protocol error: received message with invalid compression flag: {flag} (valid flags are 0 and 1)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body::Frame;

    use super::*;
    use crate::message::codec::Prost;
    use crate::metadata::GRPC_STATUS;

    fn framed(messages: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            let encoded = prost::Message::encode_to_vec(&(*message).to_owned());
            bytes.push(0);
            bytes.extend_from_slice(&(encoded.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&encoded);
        }
        bytes
    }

    fn data(bytes: &[u8]) -> Result<Frame<Bytes>, Status> {
        Ok(Frame::data(Bytes::copy_from_slice(bytes)))
    }

    fn ended(code: &'static str) -> Result<Frame<Bytes>, Status> {
        let status = http::HeaderValue::from_static(code);
        Ok(Frame::trailers(HeaderMap::from_iter([(GRPC_STATUS, status)])))
    }

    fn streaming(
        frames: impl IntoIterator<Item = Result<Frame<Bytes>, Status>>,
        len_max: usize,
    ) -> Streaming<String> {
        let frames: Vec<_> = frames.into_iter().collect();
        let body = Body::new(http_body_util::StreamBody::new(futures_util::stream::iter(frames)));
        Streaming::of_body(body, FormDecoder::<Prost, String>::default(), Some(len_max))
    }

    /// All that comes, and the code that it ends with.
    fn read(mut messages: Streaming<String>) -> (Vec<String>, Option<Code>) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut came = Vec::new();
        let end = loop {
            match Pin::new(&mut messages).poll_next(&mut cx) {
                Poll::Ready(Some(Ok(message))) => came.push(message),
                Poll::Ready(Some(Err(status))) => break Some(status.code()),
                Poll::Ready(None) => break None,
                Poll::Pending => panic!("all is there"),
            }
        };
        assert!(matches!(Pin::new(&mut messages).poll_next(&mut cx), Poll::Ready(None)), "an end is the end");
        (came, end)
    }

    #[test]
    fn messages_come_out_whole_however_the_body_is_cut() {
        let long = "x".repeat(3000);
        let messages = ["one", "", "three and more", &long, "", "6"];
        let bytes = framed(&messages);
        for size in (1..40).chain([bytes.len() - 1, bytes.len()]) {
            let frames: Vec<_> = bytes.chunks(size).map(data).chain([ended("0")]).collect();
            let (came, end) = read(streaming(frames, 4096));
            assert_eq!((came, end), (messages.map(str::to_owned).to_vec(), None), "cut every {size} bytes");
        }
    }

    #[test]
    fn a_body_that_ends_in_a_message_is_an_error_unless_its_status_says_why() {
        let bytes = framed(&["one", "two"]);
        for cut in 1..bytes.len() {
            let whole = if cut >= 10 { 1 } else { 0 };
            let is_between = cut == 10;
            let cut_by = |end: Option<&'static str>| {
                let (came, end) =
                    read(streaming([data(&bytes[..cut])].into_iter().chain(end.map(ended)), 4096));
                assert_eq!(came.len(), whole, "{cut}");
                end
            };
            let internal = (!is_between).then_some(Code::Internal);
            assert_eq!(cut_by(None), internal, "{cut}");
            assert_eq!(cut_by(Some("0")), internal, "{cut}");
            assert_eq!(cut_by(Some("14")), Some(Code::Unavailable), "{cut}");
        }
    }

    #[test]
    fn what_is_no_message_for_the_reader_ends_the_stream_behind_those_before_it() {
        let mut bytes = framed(&["one", "two", "three"]);
        let second = framed(&["one"]).len();
        for (flag, code) in [(1, Code::Internal), (2, Code::Internal), (0xff, Code::Internal)] {
            bytes[second] = flag;
            for size in [1, 3, bytes.len()] {
                let (came, end) = read(streaming(bytes.chunks(size).map(data).chain([ended("0")]), 4096));
                assert_eq!((came.len(), end), (1, Some(code)), "flag {flag}, cut every {size} bytes");
            }
        }
        bytes[second] = 0;
        for size in [1, 3, bytes.len()] {
            // A string of five letters takes seven bytes.
            let (came, end) = read(streaming(bytes.chunks(size).map(data).chain([ended("0")]), 6));
            assert_eq!((came.len(), end), (2, Some(Code::OutOfRange)), "cut every {size} bytes");
        }
        // Nothing is reserved for what is longer than may be.
        let (came, end) = read(streaming([data(&[0, 0xff, 0xff, 0xff, 0xff])], 4096));
        assert_eq!((came.len(), end), (0, Some(Code::OutOfRange)));
        let (came, end) = read(streaming([data(&[0, 0, 0, 0, 1, 0xff]), ended("0")], 4096));
        assert_eq!((came.len(), end), (0, Some(Code::Internal)), "not protobuf");
    }

    #[test]
    fn an_error_of_the_body_comes_behind_the_messages_before_it() {
        let frames = [data(&framed(&["one"])), Err(Status::aborted("cut"))];
        assert_eq!(read(streaming(frames, 4096)), (vec!["one".to_owned()], Some(Code::Aborted)));
    }

    #[test]
    fn trailers_are_there_behind_the_last_message() {
        let mut messages = streaming([data(&framed(&["one", "two"])), ended("0")], 4096);
        let mut trailers = std::pin::pin!(messages.trailers());
        let polled = trailers.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(Some(trailers))) = polled else { panic!("{polled:?}") };
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
    }
}
