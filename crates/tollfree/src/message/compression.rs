//! Compressed messages, inflated and deflated by a shepherd for handlers that take objects, in place of their process.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder, ZlibDecoder, ZlibEncoder};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use tollfree_transport::GRPC_PREFIX_LEN;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{EnabledCompressionEncodings, SingleMessageCompressionOverride};

use crate::message::framing::{Deframer, Lengths};

/// How a body's messages are compressed.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// How those of the answer may be.
pub(crate) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// By which a handler's side says that its answer is not to be compressed, whatever it does otherwise.
pub(crate) const PLAIN: HeaderName = HeaderName::from_static("tollfree-plain");
/// Bytes that are inflated or deflated before it is asked whether there is room for more.
const PIECE_LEN: usize = 16 * 1024;

/// An encoding that both tonic and shepherds know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Encoding {
    Gzip = 1,
    Deflate = 2,
}

impl Encoding {
    fn of(name: &str) -> Option<Encoding> {
        match name {
            "gzip" => Some(Encoding::Gzip),
            "deflate" => Some(Encoding::Deflate),
            _ => None,
        }
    }

    fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        })
    }

    /// What inflates `message`.
    fn inflater(self, message: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Encoding::Gzip => Box::new(GzDecoder::new(message)),
            Encoding::Deflate => Box::new(ZlibDecoder::new(message)),
        }
    }

    /// What deflates `message`, as tonic does it.
    fn deflater(self, message: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Encoding::Gzip => Box::new(GzEncoder::new(message, Compression::new(6))),
            Encoding::Deflate => Box::new(ZlibEncoder::new(message, Compression::new(6))),
        }
    }
}

/// In which encodings a generated server takes messages, and sends them to those who accept that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encodings {
    /// A bit for each, as it is told to shepherds.
    pub(crate) accepts: u8,
    pub(crate) sends: u8,
}

impl Encodings {
    /// As a server was told.
    pub fn new(accepts: EnabledCompressionEncodings, sends: EnabledCompressionEncodings) -> Encodings {
        let bits = |mut enabled: EnabledCompressionEncodings| {
            let mut bits = 0;
            while let Some(encoding) = enabled.pop() {
                bits |= Encoding::of(&encoding.to_string()).map_or(0, |encoding| encoding as u8);
            }
            bits
        };
        Encodings { accepts: bits(accepts), sends: bits(sends) }
    }
}

/// Whether there is room for messages that a shepherd inflates, and for those that it is to deflate.
pub trait Room: Send + Sync {
    /// A message of the request has `len` bytes by now. 0: it has gone on.
    ///
    /// # Errors
    /// What the call ends with: there is no room for so many.
    fn inflated(&self, len: usize) -> Result<(), Status>;

    /// A message of the answer will have `len` bytes before it is deflated. 0: it has gone on.
    ///
    /// # Errors
    /// As [`Room::inflated`].
    fn to_deflate(&self, len: usize) -> Result<(), Status>;
}

/// Whether a handler has said that this answer is not to be compressed, as [`tonic::Response::disable_compression`] does.
pub(crate) fn is_plain(extensions: &http::Extensions) -> bool {
    matches!(extensions.get(), Some(SingleMessageCompressionOverride::Disable))
}

/// What is to be done to the messages of one call.
#[derive(Clone)]
pub(crate) struct Repacking {
    request: Option<Encoding>,
    answer: Option<Encoding>,
    room: Arc<dyn Room>,
}

/// Whether headers say how messages are compressed, or may be.
pub(crate) fn say_encoding(headers: &HeaderMap) -> bool {
    headers.contains_key(ENCODING) || headers.contains_key(ACCEPT_ENCODING)
}

impl Repacking {
    /// For a call with these headers. `None`: how its messages are compressed is left to the handler's side.
    pub(crate) fn of(headers: &HeaderMap, encodings: Encodings, room: &Arc<dyn Room>) -> Option<Repacking> {
        let request = match headers.get(ENCODING).map(|name| name.to_str().unwrap_or_default()) {
            None | Some("identity") => None,
            // What the server does not take, its own side refuses.
            Some(name) => {
                Some(Encoding::of(name).filter(|encoding| encodings.accepts & *encoding as u8 != 0)?)
            }
        };
        let accepted = headers.get(ACCEPT_ENCODING).and_then(|names| names.to_str().ok()).unwrap_or_default();
        let mut accepted = accepted.split(',').filter_map(|name| Encoding::of(name.trim()));
        let answer = accepted.find(|encoding| encodings.sends & *encoding as u8 != 0);
        Some(Repacking { request, answer, room: room.clone() })
    }

    /// A request for the handler's side, which is to know nothing of compression.
    pub(crate) fn request(&self, headers: &mut HeaderMap, body: Body) -> Body {
        headers.remove(ENCODING);
        headers.remove(ACCEPT_ENCODING);
        match self.request {
            Some(encoding) => Body::new(Repacked::new(body, encoding, true, &self.room)),
            None => body,
        }
    }

    /// The answer for the client.
    pub(crate) fn answer(&self, answer: http::Response<Body>) -> http::Response<Body> {
        let (mut parts, body) = answer.into_parts();
        let is_plain = parts.headers.contains_key(PLAIN) || parts.headers.contains_key("grpc-status");
        // An answer that is compressed already was not made by a handler that takes objects.
        let is_done = is_plain || parts.headers.contains_key(ENCODING);
        let Some(encoding) = self.answer.filter(|_| !is_done) else {
            return http::Response::from_parts(parts, body);
        };
        parts.headers.insert(ENCODING, encoding.name());
        let body = Body::new(Repacked::new(body, encoding, false, &self.room));
        http::Response::from_parts(parts, body)
    }
}

/// A body whose messages are inflated, or deflated, one by one. Those that are so already go on as they are.
struct Repacked {
    body: Body,
    deframer: Deframer,
    lengths: Lengths,
    encoding: Encoding,
    inflates: bool,
    room: Arc<dyn Room>,
}

impl Repacked {
    fn new(body: Body, encoding: Encoding, inflates: bool, room: &Arc<dyn Room>) -> Repacked {
        let (deframer, lengths) = (Deframer::default(), Lengths::default());
        Repacked { body, deframer, lengths, encoding, inflates, room: room.clone() }
    }

    /// The next message, if all of it is here, in its new form.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(message) = self.deframer.next() else { return Ok(None) };
        let (bytes, compressed) = (message.to_bytes(), message.compressed);
        let mut framed = BytesMut::with_capacity(GRPC_PREFIX_LEN + bytes.len());
        framed.put_bytes(0, GRPC_PREFIX_LEN);
        match (self.inflates, compressed) {
            (true, true) => {
                let room = |len| self.room.inflated(len);
                pump(self.encoding.inflater(&bytes), &mut framed, room)?;
            }
            // Its room is known since it began.
            (false, false) => pump(self.encoding.deflater(&bytes), &mut framed, |_| Ok(()))?,
            _ => framed.put_slice(&bytes),
        }
        let len = u32::try_from(framed.len() - GRPC_PREFIX_LEN)
            .map_err(|_| Status::resource_exhausted("a message has more than 4 GB when it is deflated"))?;
        (&mut framed[..GRPC_PREFIX_LEN]).put_u8((!self.inflates).into());
        (&mut framed[1..GRPC_PREFIX_LEN]).put_u32(len);
        Ok(Some(framed.freeze()))
    }

    /// Looks whether there is room for the messages that begin in a part of the body.
    fn ask_for_room(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.inflates {
            // What is not inflated yet is the sender's to bound.
            return Ok(());
        }
        let mut longest = 0;
        self.lengths.pass(data, |_, len| longest = longest.max(len));
        if longest == 0 { Ok(()) } else { self.room.to_deflate(longest) }
    }
}

/// Moves all that `from` gives to the end of `to`, as long as there is room for it.
fn pump(
    mut from: impl Read,
    to: &mut BytesMut,
    room: impl Fn(usize) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut piece = [0; PIECE_LEN];
    loop {
        let len = from
            .read(&mut piece)
            .map_err(|error| Status::internal(format!("a compressed message can't be inflated: {error}")))?;
        if len == 0 {
            return Ok(());
        }
        room(to.len() - GRPC_PREFIX_LEN + len)?;
        to.put_slice(&piece[..len]);
    }
}

impl http_body::Body for Repacked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            match this.next() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            if !this.deframer.is_partial() {
                // What was given before has gone on.
                let gone = if this.inflates { this.room.inflated(0) } else { this.room.to_deflate(0) };
                if let Err(status) = gone {
                    return Poll::Ready(Some(Err(status)));
                }
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if let Err(status) = this.ask_for_room(data.chunk()) {
                            return Poll::Ready(Some(Err(status)));
                        }
                        this.deframer.push(data);
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None if this.deframer.is_partial() => {
                    let status = Status::internal("the body ends in the middle of a message");
                    return Poll::Ready(Some(Err(status)));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// Room for so many bytes.
    struct Up(usize);

    impl Room for Up {
        fn inflated(&self, len: usize) -> Result<(), Status> {
            self.to_deflate(len)
        }

        fn to_deflate(&self, len: usize) -> Result<(), Status> {
            if len > self.0 { Err(Status::resource_exhausted("no room")) } else { Ok(()) }
        }
    }

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    async fn repacked(
        bytes: Vec<u8>,
        encoding: Encoding,
        inflates: bool,
        room: usize,
    ) -> Result<Bytes, Status> {
        let room: Arc<dyn Room> = Arc::new(Up(room));
        let body = Body::new(Full::new(Bytes::from(bytes)));
        Ok(Repacked::new(body, encoding, inflates, &room).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn messages_of_a_body_come_back_whether_they_were_compressed_or_not() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let messages: [&[u8]; 3] = [&[7; 100_000], b"", b"short"];
            let plain: Vec<u8> = messages.iter().flat_map(|message| framed(0, message)).collect();
            let deflated = repacked(plain.clone(), encoding, false, 100_000).await.unwrap();
            assert!(deflated.len() < 1000 && deflated[0] == 1, "{} bytes", deflated.len());
            let mixed = [&deflated[..], &plain].concat();
            let inflated = repacked(mixed, encoding, true, 100_000).await.unwrap();
            assert!(inflated == [&plain[..], &plain].concat());
        }
    }

    #[tokio::test]
    async fn a_bomb_and_what_is_no_stream_end_the_call() {
        let bomb = repacked(framed(0, &vec![0; 8 << 20]), Encoding::Gzip, false, 8 << 20).await.unwrap();
        assert!(bomb.len() < 10_000);
        let refused = repacked(bomb.to_vec(), Encoding::Gzip, true, 1 << 20).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        for lie in [&b"no stream"[..], &bomb[5..bomb.len() - 4], b""] {
            let refused = repacked(framed(1, lie), Encoding::Gzip, true, 16 << 20).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Internal, "{refused}");
        }
        let refused = repacked(framed(0, &[7; 11]), Encoding::Gzip, false, 10).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "before it is deflated");
        assert!(repacked(framed(0, &[7; 11])[..9].to_vec(), Encoding::Gzip, true, 10).await.is_err());
    }

    #[test]
    fn a_call_is_left_alone_that_a_server_would_refuse() {
        let room: Arc<dyn Room> = Arc::new(Up(0));
        let encodings = Encodings { accepts: Encoding::Gzip as u8, sends: Encoding::Deflate as u8 };
        let of = |name: HeaderName, value: &'static str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            Repacking::of(&headers, encodings, &room).map(|repacking| (repacking.request, repacking.answer))
        };
        assert_eq!(of(ENCODING, "gzip"), Some((Some(Encoding::Gzip), None)));
        assert_eq!(of(ENCODING, "identity"), Some((None, None)));
        assert_eq!([of(ENCODING, "deflate"), of(ENCODING, "zstd")], [None, None]);
        assert_eq!(of(ACCEPT_ENCODING, "gzip"), Some((None, None)));
        assert_eq!(of(ACCEPT_ENCODING, "zstd, gzip,deflate"), Some((None, Some(Encoding::Deflate))));
    }
}
