//! The encodings in which messages may be compressed, and what inflates and deflates them.

use std::io::{Read, Write as _};

use bytes::buf::Writer;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderName, HeaderValue};
use tollfree_layout::description::{PLAIN_HEADER, encodings};

/// How a body's messages are compressed.
pub(super) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// How those of the answer may be.
pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// By which a handler's side says that its answer is not to be compressed, whatever it does otherwise.
pub(super) const PLAIN: HeaderName = HeaderName::from_static(PLAIN_HEADER);

/// Whether headers say how messages are compressed, or may be.
pub(crate) fn says_encoding(headers: &HeaderMap) -> bool {
    headers.contains_key(ENCODING) || headers.contains_key(ACCEPT_ENCODING)
}

/// An encoding that both tonic and gateways know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Encoding {
    Gzip = encodings::GZIP,
    Deflate = encodings::DEFLATE,
}

impl Encoding {
    pub(super) fn of(name: &str) -> Option<Encoding> {
        match name {
            "gzip" => Some(Encoding::Gzip),
            "deflate" => Some(Encoding::Deflate),
            _ => None,
        }
    }

    pub(super) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        })
    }

    /// What inflates `message`.
    pub(super) fn inflater(self, message: Bytes) -> Box<dyn Read + Send> {
        match self {
            Encoding::Gzip => Box::new(GzDecoder::new(message.reader())),
            Encoding::Deflate => Box::new(ZlibDecoder::new(message.reader())),
        }
    }

    /// What deflates to the end of `framed`, as tonic does it.
    pub(super) fn deflater(self, framed: BytesMut) -> Deflater {
        match self {
            Encoding::Gzip => Deflater::Gzip(GzEncoder::new(framed.writer(), Compression::new(6))),
            Encoding::Deflate => Deflater::Deflate(ZlibEncoder::new(framed.writer(), Compression::new(6))),
        }
    }
}

/// What deflates one message.
pub(super) enum Deflater {
    Gzip(GzEncoder<Writer<BytesMut>>),
    Deflate(ZlibEncoder<Writer<BytesMut>>),
}

impl Deflater {
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Deflater::Gzip(to) => to.write_all(bytes),
            Deflater::Deflate(to) => to.write_all(bytes),
        }
    }

    /// All that it has made. It is empty afterwards.
    pub(super) fn finish(&mut self) -> std::io::Result<BytesMut> {
        match self {
            Deflater::Gzip(to) => {
                to.try_finish()?;
                Ok(std::mem::take(to.get_mut().get_mut()))
            }
            Deflater::Deflate(to) => {
                to.try_finish()?;
                Ok(std::mem::take(to.get_mut().get_mut()))
            }
        }
    }
}

/// In which encodings a method's server takes messages, and sends them to clients that accept them, a bit for each
/// ([`encodings`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Encodings {
    pub(super) accepts: u8,
    pub(super) sends: u8,
}
