//! tower's layers around all services of a server, as tonic's own server takes them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower_service::Service;

use crate::server::http_handle::{ErasedService, HandlerFuture};
use crate::status::{self, ServeError};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// All services of a server as one, for layers to be put around ([`Server::layer`](crate::Server::layer)).
#[derive(Clone)]
pub struct AnyService {
    /// Known from when the server serves.
    handler: Arc<OnceLock<Arc<dyn ErasedService>>>,
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
        let response: HandlerFuture = match self.handler.get() {
            Some(handler) => handler.handle(request.map(Body::new)),
            None => Box::pin(async {
                Status::unavailable("a layer called its service before the server has begun to serve")
                    .into_http()
            }),
        };
        AnyFuture { response }
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

/// What a layer made, and where that finds the service that it is around.
#[derive(Clone)]
pub(crate) struct Around {
    handler: Arc<dyn ErasedService>,
    inner: Arc<OnceLock<Arc<dyn ErasedService>>>,
}

/// Puts a layer around a service that is yet to be known, and erases the types. What its service fails with becomes a gRPC
/// status.
pub(crate) fn put<L, B>(layer: L) -> Around
where
    L: tower_layer::Layer<AnyService>,
    L::Service: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    <L::Service as Service<Request<Body>>>::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let inner = AnyService { handler: Arc::default() };
    Around { inner: inner.handler.clone(), handler: erase(layer.layer(inner)) }
}

/// A service with its types erased. What it fails with becomes a gRPC status.
pub(crate) fn erase<S, B>(service: S) -> Arc<dyn ErasedService>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(Layered(Mutex::new(service)))
}

/// A service that a layer has made; each call takes a clone.
struct Layered<S>(Mutex<S>);

impl<S, B> ErasedService for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn handle(&self, request: Request<Body>) -> HandlerFuture {
        let mut service = self.0.lock().clone();
        Box::pin(async move {
            let answered = match std::future::poll_fn(|cx| service.poll_ready(cx)).await {
                Ok(()) => service.call(request).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(response) => response.map(Body::new),
                Err(error) => status::of_layer(error.into()).into_http(),
            }
        })
    }
}

/// Services by their names, and whatever there is beside them.
struct ServiceTable {
    services: HashMap<&'static str, Arc<dyn ErasedService>>,
    routes: Routes,
}

impl ErasedService for ServiceTable {
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

/// The layers of a server; the first is the outermost.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    around: Vec<Around>,
    /// All services with the layers around them, once made: for the server's clones too.
    stack: Arc<Mutex<Option<Arc<dyn ErasedService>>>>,
}

impl Layers {
    pub(crate) fn is_empty(&self) -> bool {
        self.around.is_empty()
    }

    pub(crate) fn push(&mut self, around: Around) {
        self.around.push(around);
        self.forget();
    }

    /// The services are not those of the server's clones any more.
    pub(crate) fn forget(&mut self) {
        self.stack = Arc::default();
    }

    /// All services with the layers around them.
    ///
    /// # Errors
    /// [`ServeError::Setting`] where a layer is around other services already: those of a clone.
    pub(crate) fn stack(
        self,
        services: HashMap<&'static str, Arc<dyn ErasedService>>,
        routes: Routes,
    ) -> Result<Arc<dyn ErasedService>, ServeError> {
        let mut stack = self.stack.lock();
        if let Some(known) = &*stack {
            return Ok(known.clone());
        }
        let mut handler: Arc<dyn ErasedService> = Arc::new(ServiceTable { services, routes });
        for layer in self.around.into_iter().rev() {
            layer.inner.set(handler).map_err(|_| ServeError::Setting {
                setting: "layer",
                reason: "it is around the services of a clone of this server, which has others; \
                         add layers after cloning, or build this server anew",
            })?;
            handler = layer.handler;
        }
        *stack = Some(handler.clone());
        Ok(handler)
    }
}

/// Services for tonic's server.
pub(crate) fn into_routes(handler: Arc<dyn ErasedService>) -> Routes {
    with_fallback(Routes::default(), handler)
}

/// Routes, and who serves all that they don't have.
pub(crate) fn with_fallback(routes: Routes, handler: Arc<dyn ErasedService>) -> Routes {
    let service = AnyService { handler: Arc::new(OnceLock::from(handler)) };
    Routes::from(routes.into_axum_router().fallback_service(service))
}
