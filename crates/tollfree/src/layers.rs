//! tower's layers around all services of a server, as tonic's own server takes them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower_service::Service;

use crate::serving::{Handler, HandlerFuture};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// All services of a server as one, for layers to be put around ([`Server::layer`](crate::Server::layer)).
#[derive(Clone)]
pub struct AnyService {
    handler: Arc<dyn Handler>,
}

impl fmt::Debug for AnyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyService").finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for AnyService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AnyFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> AnyFuture {
        AnyFuture { response: self.handler.handle(request.map(Body::new)) }
    }
}

/// What [`AnyService`] will answer.
pub struct AnyFuture {
    response: HandlerFuture,
}

impl fmt::Debug for AnyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyFuture").finish_non_exhaustive()
    }
}

impl Future for AnyFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.response.as_mut().poll(cx).map(Ok)
    }
}

/// A layer with its types erased.
pub(crate) type AnyLayer = Arc<dyn Fn(AnyService) -> AnyService + Send + Sync>;

/// Erases a layer's types. What its service fails with becomes a gRPC status.
pub(crate) fn erase<L, B>(layer: L) -> AnyLayer
where
    L: tower_layer::Layer<AnyService> + Send + Sync + 'static,
    L::Service: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    <L::Service as Service<Request<Body>>>::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(move |inner| AnyService { handler: Arc::new(Layered(layer.layer(inner))) })
}

/// A service that a layer has made.
struct Layered<S>(S);

impl<S, B> Handler for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let mut service = self.0.clone();
        Box::pin(async move {
            let answered = match std::future::poll_fn(|cx| service.poll_ready(cx)).await {
                Ok(()) => service.call(request).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(response) => response.map(Body::new),
                Err(error) => Status::from_error(error.into()).into_http(),
            }
        })
    }
}

/// Services by their names, and whatever there is beside them.
struct Dispatch {
    services: HashMap<&'static str, Arc<dyn Handler>>,
    routes: Routes,
}

impl Handler for Dispatch {
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let path = request.uri().path();
        let service =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).map(|(service, _)| service);
        match service.and_then(|service| self.services.get(service)) {
            Some(service) => service.handle(request),
            None => self.routes.handle(request),
        }
    }
}

/// All services with layers around them; the first layer is the outermost.
pub(crate) fn stack(
    services: HashMap<&'static str, Arc<dyn Handler>>,
    routes: Routes,
    layers: &[AnyLayer],
) -> AnyService {
    let innermost = AnyService { handler: Arc::new(Dispatch { services, routes }) };
    layers.iter().rev().fold(innermost, |inner, layer| layer(inner))
}

impl AnyService {
    pub(crate) fn handler(&self) -> Arc<dyn Handler> {
        self.handler.clone()
    }

    /// The same for tonic's server.
    pub(crate) fn into_routes(self) -> Routes {
        Routes::from(Routes::default().into_axum_router().fallback_service(self))
    }
}
