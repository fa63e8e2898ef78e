//! The body of a request of gRPC-Web's, as gRPC has it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;

use crate::web::Form;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// See the module.
pub(crate) struct WebRequest {
    inner: Incoming,
    /// Where it is base64.
    decoder: Option<Decoder>,
    /// HTTP/1.1 says by an error that a request was cut, and by its end that it is complete.
    is_http1: bool,
    has_ended: bool,
}

impl WebRequest {
    pub(super) fn new(inner: Incoming, form: Form, is_http1: bool) -> WebRequest {
        let decoder = (form == Form::Text).then(Decoder::default);
        WebRequest { inner, decoder, is_http1, has_ended: false }
    }
}

impl Body for WebRequest {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(frame) => frame?,
                None => {
                    this.has_ended = true;
                    let decoded = this.decoder.take().map_or(Ok(()), Decoder::end);
                    return Poll::Ready(decoded.err().map(|error| Err(error.into())));
                }
            };
            let (Some(decoder), true) = (&mut this.decoder, frame.is_data()) else {
                return Poll::Ready(Some(Ok(frame)));
            };
            let decoded = decoder.take(&frame.into_data().unwrap_or_default())?;
            if !decoded.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(decoded.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.is_http1 || self.decoder.is_some() {
            true => self.has_ended,
            false => self.inner.is_end_stream(),
        }
    }
}

/// A request that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is said to be base64, and is not")]
pub(super) struct NotBase64;

/// Base64 in pieces of any lengths. Parts that end in padding may follow one another.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// What has no four characters yet.
    rest: Vec<u8>,
}

impl Decoder {
    /// What a piece holds, together with what was left of those before.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<u8>, NotBase64> {
        self.rest.extend_from_slice(piece);
        let whole = self.rest.len() / 4 * 4;
        let mut decoded = Vec::with_capacity(whole / 4 * 3);
        let mut part = 0;
        for end in (4..=whole).step_by(4) {
            if self.rest[end - 1] == b'=' || end == whole {
                BASE64_STANDARD.decode_vec(&self.rest[part..end], &mut decoded).map_err(|_| NotBase64)?;
                part = end;
            }
        }
        self.rest.drain(..whole);
        Ok(decoded)
    }

    /// # Errors
    /// Something was left.
    fn end(self) -> Result<(), NotBase64> {
        if self.rest.is_empty() { Ok(()) } else { Err(NotBase64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pieces: &[&[u8]]) -> Result<Vec<u8>, NotBase64> {
        let mut decoder = Decoder::default();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(decoder.take(piece)?);
        }
        decoder.end().map(|()| all)
    }

    #[test]
    fn base64_is_decoded_however_it_is_cut() {
        let message: Vec<u8> = (0..=255).collect();
        let whole = BASE64_STANDARD.encode(&message);
        for len in 1..20 {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(len).collect();
            assert_eq!(decoded(&pieces).unwrap(), message, "{len}");
        }
    }

    #[test]
    fn parts_with_padding_of_their_own_follow_one_another() {
        let parts: Vec<String> = ["a", "bc", "def", "ghij"].map(|part| BASE64_STANDARD.encode(part)).to_vec();
        let whole = parts.concat();
        assert_eq!(decoded(&[whole.as_bytes()]).unwrap(), b"abcdefghij");
        let pieces: Vec<&[u8]> = whole.as_bytes().chunks(3).collect();
        assert_eq!(decoded(&pieces).unwrap(), b"abcdefghij");
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for wrong in [&b"AAA"[..], b"A", b"AA\n=", b"====", b"AAAA=", b"\xff\xff\xff\xff", b"A===", b"AA=A"] {
            assert_eq!(decoded(&[wrong]), Err(NotBase64), "{wrong:?}");
        }
    }
}
