//! A span for each call, as tonic's servers make them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Span;
use tracing::instrument::{Instrument, Instrumented};

/// Makes a call's span of its request.
pub(crate) type MakeSpan = Arc<dyn Fn(&Request<()>) -> Span + Send + Sync>;

/// Puts each call into a span.
#[derive(Clone)]
pub(crate) struct TraceLayer(pub(crate) MakeSpan);

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced { inner, make: self.0.clone() }
    }
}

/// A service whose calls are in spans.
#[derive(Clone)]
pub(crate) struct Traced<S> {
    inner: S,
    make: MakeSpan,
}

impl<S, B> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<Instrumented<S::Future>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let bare = Request::from_parts(parts, ());
        let span = (self.make)(&bare);
        let (parts, ()) = bare.into_parts();
        let called = span.in_scope(|| self.inner.call(Request::from_parts(parts, body)));
        Box::pin(called.instrument(span))
    }
}
