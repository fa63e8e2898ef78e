//! The body of an answer as gRPC-Web has it: trailers are its last bytes, and all of it may be base64.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::bodies::Answer;
use crate::web::Form;

/// The flag of the frame that holds the trailers.
const TRAILERS: u8 = 0x80;

/// What is answered at a listener that browsers may call.
#[derive(Default)]
pub(crate) enum WebAnswer {
    /// Nothing but headers.
    #[default]
    Empty,
    /// A call of gRPC's.
    Plain(Answer),
    /// A call of gRPC-Web's.
    Web { answer: Answer, form: Form },
}

impl Body for WebAnswer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (answer, form) = match self.get_mut() {
            WebAnswer::Empty => return Poll::Ready(None),
            WebAnswer::Plain(answer) => return Pin::new(answer).poll_frame(cx),
            WebAnswer::Web { answer, form } => (answer, *form),
        };
        let Some(frame) = ready!(Pin::new(answer).poll_frame(cx)) else { return Poll::Ready(None) };
        let bytes = match frame?.into_data() {
            Ok(data) => data,
            Err(frame) => frame.into_trailers().map(|trailers| in_a_frame(&trailers)).unwrap_or_default(),
        };
        let bytes = match form {
            Form::Binary => bytes,
            Form::Text => BASE64_STANDARD.encode(bytes).into(),
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            WebAnswer::Empty => true,
            WebAnswer::Plain(answer) | WebAnswer::Web { answer, .. } => answer.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            WebAnswer::Empty => SizeHint::with_exact(0),
            WebAnswer::Plain(answer) => answer.size_hint(),
            // Trailers and base64 make it longer.
            WebAnswer::Web { answer, .. } if answer.is_end_stream() => SizeHint::with_exact(0),
            WebAnswer::Web { .. } => SizeHint::default(),
        }
    }
}

/// Trailers as HTTP/1.1 writes headers, in a frame of gRPC's.
fn in_a_frame(trailers: &HeaderMap) -> Bytes {
    let mut lines = BytesMut::from(&[TRAILERS, 0, 0, 0, 0][..]);
    for (name, value) in trailers {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    let len = u32::try_from(lines.len() - 5).unwrap_or(u32::MAX);
    (&mut lines[1..5]).put_u32(len);
    lines.freeze()
}
