//! The encodings in which messages may be compressed, and who has said what of them.

use std::io::{Read, Write as _};

use bytes::buf::Writer;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{HeaderName, HeaderValue};
use tollfree_layout::description::encodings;
use tonic::codec::{EnabledCompressionEncodings, SingleMessageCompressionOverride};

/// How a body's messages are compressed.
pub(crate) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// How those of the answer may be.
pub(crate) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// By which a handler's side says that its answer is not to be compressed, whatever it does otherwise.
pub(crate) const PLAIN: HeaderName = HeaderName::from_static("tollfree-plain");

/// An encoding that both tonic and gateways know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    Gzip = encodings::GZIP,
    Deflate = encodings::DEFLATE,
}

impl Encoding {
    pub(crate) fn of(name: &str) -> Option<Encoding> {
        match name {
            "gzip" => Some(Encoding::Gzip),
            "deflate" => Some(Encoding::Deflate),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        })
    }

    /// What inflates `message`.
    pub(crate) fn inflater(self, message: Bytes) -> Box<dyn Read + Send> {
        match self {
            Encoding::Gzip => Box::new(GzDecoder::new(message.reader())),
            Encoding::Deflate => Box::new(ZlibDecoder::new(message.reader())),
        }
    }

    /// What deflates to the end of `framed`, as tonic does it.
    pub(crate) fn deflater(self, framed: BytesMut) -> Deflater {
        match self {
            Encoding::Gzip => Deflater::Gzip(GzEncoder::new(framed.writer(), Compression::new(6))),
            Encoding::Deflate => Deflater::Deflate(ZlibEncoder::new(framed.writer(), Compression::new(6))),
        }
    }
}

/// What deflates one message.
pub(crate) enum Deflater {
    Gzip(GzEncoder<Writer<BytesMut>>),
    Deflate(ZlibEncoder<Writer<BytesMut>>),
}

impl Deflater {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Deflater::Gzip(to) => to.write_all(bytes),
            Deflater::Deflate(to) => to.write_all(bytes),
        }
    }

    /// All that it has made. It is empty afterwards.
    pub(crate) fn finish(&mut self) -> std::io::Result<BytesMut> {
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

/// In which encodings a generated server takes messages, and sends them to those who accept that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encodings {
    /// A bit for each, as it is told to gateways.
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

/// Whether a handler has said that this answer is not to be compressed, as `tonic::Response::disable_compression` does.
pub(crate) fn is_plain(extensions: &http::Extensions) -> bool {
    matches!(extensions.get(), Some(SingleMessageCompressionOverride::Disable))
}
