//! The server's end: what a generated server gives to the session, and how its methods run.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use tollfree_driver_tokio::{Ending, Outgoing, PeerPool};
use tollfree_layout::description::PLAIN_HEADER;
use tollfree_processor::Trust;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};
use tower_service::Service;

use crate::message::compression::{Encodings, is_plain};
use crate::message::deferred::{self, Deferred};
use crate::message::encoding::{Received, decode, pack};
use crate::message::form::{Form, Types};
use crate::message::payloads::{Outlet, Sharing};
use crate::server::caller::ClientRole;

/// A request as the session has it.
pub struct Raw {
    pub(crate) message: Received,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
}

/// How payloads are passed in a session.
#[derive(Clone)]
pub struct Passing {
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) peer: PeerPool,
    pub(crate) client: ClientRole,
    /// The client is a gateway whose objects need not be verified.
    pub(crate) trust: Option<Trust>,
}

/// Runs one method's handler, one call after the other, in the same memory.
pub trait Run: Send {
    /// Begins a call. What is left of one before it goes.
    ///
    /// # Errors
    /// The status for a message that can't be decoded.
    fn begin(&mut self, request: Raw) -> Result<(), Status>;
    /// Goes on with it, until it is ready once. All that is to be said is put into `outgoing`, which is to go to `outlet`.
    ///
    /// # Errors
    /// The status that the call ends with instead.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        outlet: &dyn Outlet,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<(), Status>>;
    /// Lets go of what is left of a call that is over.
    fn clear(&mut self);
    /// How payloads are passed, from now on.
    fn set_passing(&mut self, passing: Passing);
    /// How payloads are passed.
    fn passing(&self) -> Option<&Passing>;
}

/// A generated server, as the session calls it.
pub trait Direct: Send + Sync + 'static {
    /// How to run a method. `None`: only over HTTP.
    fn method(&self, name: &str) -> Option<Box<dyn Run>>;
    /// A method's types, where its messages may travel as objects.
    fn types(&self, _name: &str) -> Option<Types> {
        None
    }
    /// How messages may be compressed.
    fn encodings(&self) -> Encodings {
        Encodings::default()
    }
    /// Limit for requests in bytes, where one is set.
    fn max_decoding_message_size(&self) -> Option<usize>;
    /// The type of the interceptor around this server, if it was made with one.
    fn wrapper(&self) -> Option<TypeId>;
}

/// Runs a unary handler of messages in form `C`.
pub fn unary<C, M1, M2, F, Fut>(_: C, handler: F, encoding_len_max: Option<usize>) -> Box<dyn Run>
where
    C: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    F: Fn(Request<M1>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<M2>, Status>> + Send + 'static,
{
    Box::new(Unary {
        handler,
        future: Box::pin(None),
        encoding_len_max,
        passing: None,
        spent: MetadataMap::new(),
        is_object: false,
        deferred: None,
        messages: PhantomData::<fn(C, M1) -> M2>,
    })
}

struct Unary<C, F, Fut, M1, M2> {
    handler: F,
    /// Its place is kept between calls, so that a call need not allocate one.
    future: Pin<Box<Option<Fut>>>,
    encoding_len_max: Option<usize>,
    passing: Option<Passing>,
    /// The last response's metadata, which have been packed: dropped when the client has them.
    spent: MetadataMap,
    /// The request came as an object, so its client takes one.
    is_object: bool,
    /// The response's message, while the session may encode it: let go of when it is sent, and not by the session.
    deferred: Option<Arc<Deferred<C, M2>>>,
    messages: PhantomData<fn(C, M1) -> M2>,
}

impl<C, M1, M2, F, Fut> Run for Unary<C, F, Fut, M1, M2>
where
    C: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
    F: Fn(Request<M1>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<M2>, Status>> + Send + 'static,
{
    fn begin(&mut self, request: Raw) -> Result<(), Status> {
        self.deferred = None;
        self.is_object = <C as Form<M1>>::OBJECTS && request.message.is_object();
        if self.is_object
            && let Some(passing) = &self.passing
        {
            passing.sharing.payloads.received_object();
        }
        let trust = self.passing.as_ref().and_then(|passing| passing.trust);
        let message: M1 = decode::<C, M1>(request.message, trust)?;
        let metadata = MetadataMap::from_headers(request.headers);
        let future = (self.handler)(Request::from_parts(metadata, request.extensions, message));
        self.future.set(Some(future));
        Ok(())
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        outlet: &dyn Outlet,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<(), Status>> {
        let Some(future) = self.future.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Status::internal("no call was begun")));
        };
        let answered = ready!(future.poll(cx));
        Poll::Ready(answered.and_then(|mut response| {
            let Some(Passing { sharing, peer, client, .. }) = &self.passing else {
                return Err(Status::internal("the session has not said how payloads are passed"));
            };
            let len_max = self.encoding_len_max;
            let object = match if self.is_object { C::object(response.get_mut()) } else { None } {
                Some(object) => sharing.object(object, len_max, *peer, outlet)?,
                None => None,
            };
            let message = match object {
                Some(object) => object,
                None => {
                    deferred::send(response.get_mut(), &mut self.deferred, sharing, len_max, *peer, outlet)?
                }
            };
            if client.compresses() && is_plain(response.extensions()) {
                // It deflates in this process's place.
                response.metadata_mut().insert(PLAIN_HEADER, MetadataValue::from_static("1"));
            }
            let block = pack(&client.answer_headers(response.metadata().as_ref()))
                .map_err(|error| Status::resource_exhausted(format!("response metadata: {error}")))?;
            if !block.is_empty() {
                self.spent = std::mem::take(response.metadata_mut());
            }
            outgoing.headers = Some(block);
            outgoing.message = Some(message);
            outgoing.ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
            Ok(())
        }))
    }

    fn clear(&mut self) {
        self.future.set(None);
        self.deferred = None;
        if !self.spent.is_empty() {
            self.spent = MetadataMap::new();
        }
    }

    fn set_passing(&mut self, passing: Passing) {
        self.passing = Some(passing);
    }

    fn passing(&self) -> Option<&Passing> {
        self.passing.as_ref()
    }
}

/// A generated server that was found in a service.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) direct: Arc<dyn Direct>,
    /// Interceptors are to see requests first.
    pub(crate) intercepted: bool,
}

struct Registered {
    server: TypeId,
    direct: Arc<dyn Direct>,
}

thread_local! {
    /// Somebody asks the services that are polled here who they are.
    static ASKED: Cell<bool> = const { Cell::new(false) };
    static INTRODUCED: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

/// While it lives, generated servers that are polled on this thread say who they are.
struct Discovery;

impl Discovery {
    fn begin() -> Discovery {
        ASKED.set(true);
        Discovery
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        ASKED.set(false);
    }
}

/// For generated servers, whenever they are asked whether they are ready: if it is a session's server that asks, they
/// tell it that they can be called directly.
#[inline]
pub fn register<S: Direct + Clone>(server: &S) {
    if ASKED.get() {
        let registered = Registered { server: TypeId::of::<S>(), direct: Arc::new(server.clone()) };
        INTRODUCED.set(Some(registered));
    }
}

/// The identity of a type, lifetimes left aside, so that generated code need not ask for types without any.
pub fn type_id<T>() -> TypeId {
    typeid::of::<T>()
}

/// Finds the generated server in a service: the service itself, or one that interceptors are around, and nothing else
/// (what other layers do to requests and responses would not be done).
pub(crate) fn find<S, R>(service: &S) -> Option<Found>
where
    S: Service<R> + Clone + 'static,
{
    let asking = Discovery::begin();
    let mut service = service.clone();
    let mut cx = Context::from_waker(Waker::noop());
    // Whatever is around a service passes this question on. One that can't be asked here is just not found.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(service.poll_ready(&mut cx))));
    drop(asking);
    let Registered { server, direct } = INTRODUCED.take()?;
    let asked = TypeId::of::<S>();
    let intercepted = direct.wrapper() == Some(asked);
    (intercepted || server == asked).then_some(Found { direct, intercepted })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use tonic::body::Body;
    use tonic::service::interceptor::InterceptedService;

    type Interceptor = fn(Request<()>) -> Result<Request<()>, Status>;
    type Intercepted = InterceptedService<Generated, Interceptor>;

    /// As generated servers are, without methods.
    #[derive(Clone)]
    struct Generated(Option<TypeId>);

    impl Direct for Generated {
        fn method(&self, _: &str) -> Option<Box<dyn Run>> {
            None
        }

        fn max_decoding_message_size(&self) -> Option<usize> {
            Some(7)
        }

        fn wrapper(&self) -> Option<TypeId> {
            self.0
        }
    }

    impl Service<http::Request<Body>> for Generated {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            register(self);
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            std::future::ready(Ok(http::Response::default()))
        }
    }

    fn found<S: Service<http::Request<Body>> + Clone + 'static>(service: &S) -> Option<bool> {
        let found = find::<S, http::Request<Body>>(service)?;
        assert_eq!(found.direct.max_decoding_message_size(), Some(7));
        Some(found.intercepted)
    }

    #[test]
    fn a_generated_server_is_found_bare_or_behind_its_own_interceptor_and_nowhere_else() {
        assert_eq!(found(&Generated(None)), Some(false));
        let wrapped = Generated(Some(type_id::<Intercepted>()));
        let intercepted: Intercepted = InterceptedService::new(wrapped.clone(), Ok);
        assert_eq!(found(&intercepted), Some(true));
        assert_eq!(found(&wrapped), Some(false), "taken out again");
        let by_hand: Intercepted = InterceptedService::new(Generated(None), Ok);
        assert_eq!(found(&by_hand), None);
        let twice: InterceptedService<Intercepted, Interceptor> =
            InterceptedService::new(intercepted.clone(), Ok);
        assert_eq!(found(&twice), None);
        assert_eq!(found(&tower::limit::ConcurrencyLimit::new(intercepted, 1)), None);
        assert_eq!(
            found(&tower::service_fn(async |_| Ok::<_, Infallible>(http::Response::new(Body::default())))),
            None
        );
        assert!(INTRODUCED.take().is_none() && !ASKED.get(), "nothing is left behind");
    }
}
