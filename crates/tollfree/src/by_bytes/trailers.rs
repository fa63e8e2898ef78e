//! Trailing metadata of calls that end well, for which tonic's handlers have no place.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;

/// Trailing metadata of an answer. A handler puts a clone into the extensions of its response, and [sets](Trailers::set) them before the last
/// message has been taken from its stream, or as this ends.
///
/// # Example
/// ```
/// use futures_util::stream;
/// use tollfree::by_bytes::Trailers;
/// use tonic::Response;
///
/// let trailers = Trailers::default();
/// let mut response = Response::new(stream::iter([Ok::<_, tonic::Status>(bytes::Bytes::from_static(b"answer"))]));
/// response.extensions_mut().insert(trailers.clone());
/// let mut metadata = tonic::metadata::MetadataMap::new();
/// metadata.insert("took-ms", 3.into());
/// trailers.set(metadata);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trailers(Arc<Mutex<MetadataMap>>);

impl Trailers {
    /// These go with the status, instead of what was set before.
    pub fn set(&self, metadata: MetadataMap) {
        *self.0.lock() = metadata;
    }
}

/// A response whose trailers are those of its handler too.
pub(crate) fn added(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Trailers>() {
        Some(trailers) => response.map(|inner| Body::new(Added { inner, trailers })),
        None => response,
    }
}

struct Added {
    inner: Body,
    trailers: Trailers,
}

impl HttpBody for Added {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(last) = frame.trailers_mut()
        {
            let own = std::mem::take(&mut *self.trailers.0.lock());
            let mut all = own.into_headers();
            // What the status says, it says itself.
            all.extend(std::mem::take(last));
            *last = all;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
