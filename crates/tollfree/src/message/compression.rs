//! The encodings in which messages may be compressed, and who has said what of them.

use http::HeaderName;
use tollfree_layout::description::{PLAIN_HEADER, encodings};
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings, SingleMessageCompressionOverride};

/// How a body's messages are compressed.
pub(crate) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// How those of the answer may be.
pub(crate) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// By which a handler's side says that its answer is not to be compressed, whatever it does otherwise.
pub(crate) const PLAIN: HeaderName = HeaderName::from_static(PLAIN_HEADER);

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
                bits |= bit(encoding);
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

/// The bit by which gateways are told of an encoding. 0: they don't know it.
fn bit(encoding: CompressionEncoding) -> u8 {
    match encoding.to_string().as_str() {
        "gzip" => encodings::GZIP,
        "deflate" => encodings::DEFLATE,
        _ => 0,
    }
}
