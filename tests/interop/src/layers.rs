//! Layers around the generated stubs, on both sides: what gRPC has and tonic's API doesn't give to handlers and callers.
//!
//! A side that sends puts [`Marks`] (which messages to compress) and [`Trailing`] into a request's or response's
//! extensions; a side that receives finds [`Marks`] and [`Seen`] there.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::messages::{Marked, Marks, Observed};

const ENCODING: &str = "grpc-encoding";
const ACCEPT_ENCODING: &str = "grpc-accept-encoding";
const GZIP: &str = "gzip";
const STATUS: &str = "grpc-status";

/// Trailing metadata that a handler sends with a response that is no error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trailing(pub(crate) HeaderMap);

/// What a client received beside messages. The trailers are there once the stream has ended.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) marks: Marks,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Arc<Mutex<HeaderMap>>,
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Around a channel.
#[derive(Clone, Debug)]
pub(crate) struct ClientSide<S>(pub(crate) S);

impl<S> Service<Request<Body>> for ClientSide<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Boxed<Response<Body>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(marks) = request.extensions_mut().remove::<Marks>() {
            request.headers_mut().insert(ENCODING, HeaderValue::from_static(GZIP));
            request = request.map(|body| Body::new(Marked::new(body, marks, HeaderMap::new())));
        }
        let call = self.0.call(request);
        Box::pin(async move {
            let (mut parts, body) = call.await?.into_parts();
            let seen =
                Seen { marks: Marks::default(), headers: parts.headers.clone(), trailers: Arc::default() };
            let body = Body::new(Observed::new(body, seen.marks.clone(), seen.trailers.clone()));
            parts.extensions.insert(seen);
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// Around a generated service.
#[derive(Clone, Debug)]
pub(crate) struct ServerSide<S>(pub(crate) S);

impl<S: NamedService> NamedService for ServerSide<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for ServerSide<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Response<Body>, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let takes_gzip =
            parts.headers.get_all(ACCEPT_ENCODING).iter().any(|value| {
                value.to_str().is_ok_and(|names| names.split(',').any(|name| name.trim() == GZIP))
            });
        let marks = Marks::default();
        let body = Body::new(Observed::new(body, marks.clone(), Arc::default()));
        parts.extensions.insert(marks);
        let call = self.0.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let (mut parts, body) = call.await?.into_parts();
            let Trailing(trailers) = parts.extensions.remove().unwrap_or_default();
            let marks = parts.extensions.remove::<Marks>().filter(|_| takes_gzip);
            if parts.headers.contains_key(STATUS) {
                // A reply that is only trailers.
                parts.headers.extend(trailers);
                return Ok(Response::from_parts(parts, body));
            }
            if marks.is_some() {
                parts.headers.insert(ENCODING, HeaderValue::from_static(GZIP));
            }
            let body = Body::new(Marked::new(body, marks.unwrap_or_default(), trailers));
            Ok(Response::from_parts(parts, body))
        })
    }
}
