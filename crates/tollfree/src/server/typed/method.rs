//! A method of a session's server that is called without an `http::Request`, and the calls begun in it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, Request};
use parking_lot::Mutex;
use tollfree_driver_tokio::{Accepted, Call, Incoming, SingleFrame};
use tonic::body::Body;

use crate::call::deadline::Deadlines;
use crate::channel::slot::Slot;
use crate::message::encoding::{Gather, Received, check_received, says_encoding};
use crate::message::payloads::Outlet;
use crate::metrics::ServedCall;
use crate::server::http_handle::{ErasedService, HttpHandle};
use crate::server::serving::Serving;
use crate::server::typed::handle::{HandleState, TypedHandle};
use crate::server::typed::run::{Found, Passing, Raw};

/// Places that a method keeps of calls that ended in tasks of their own. Each holds a handler's future.
const FREE_COUNT_MAX: usize = 4;

/// A method that is called directly where a call allows it.
pub(crate) struct DirectMethod {
    found: Found,
    name: String,
    takes_objects: bool,
    passing: Passing,
    /// Where the next call is served.
    idle: Option<Box<Serving<TypedHandle>>>,
    /// Where calls were served that ended in tasks of their own.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    free: Arc<Mutex<Vec<Box<Serving<TypedHandle>>>>>,
}

impl DirectMethod {
    /// The method of that name, if it can be called directly.
    pub(crate) fn new(found: Found, name: &str, passing: Passing) -> Option<DirectMethod> {
        let free = Arc::default();
        let takes_objects = found.direct.types(name).is_some();
        let name = name.to_owned();
        let mut method = DirectMethod { found, name, takes_objects, passing, idle: None, free };
        method.idle = Some(method.make()?);
        Some(method)
    }

    /// What puts a request together.
    fn gather(&self) -> Gather {
        Gather::new(self.found.direct.max_decoding_message_size(), self.takes_objects)
    }

    /// A place for a call: one that is free, or a new one.
    fn make(&self) -> Option<Box<Serving<TypedHandle>>> {
        if let Some(free) = self.free.lock().pop() {
            return Some(free);
        }
        let mut run = self.found.direct.method(&self.name)?;
        run.set_passing(self.passing.clone());
        Some(Box::new(Serving::idle(TypedHandle::new(run))))
    }

    /// Where the next call is served, if that can be a direct one: how messages are compressed is left to tonic.
    pub(crate) fn place(&mut self, call: &Call) -> Option<Box<Serving<TypedHandle>>> {
        if says_encoding(&call.headers) {
            return None;
        }
        self.idle.take().or_else(|| self.make())
    }

    /// Whether interceptors are to see requests first.
    pub(crate) fn is_intercepted(&self) -> bool {
        self.found.intercepted
    }

    /// Begins a call.
    #[expect(clippy::too_many_arguments, reason = "what a call brings, and what it is given")]
    pub(crate) fn begin(
        &self,
        place: &mut Serving<TypedHandle>,
        call: Call,
        incoming: Option<Incoming>,
        headers: HeaderMap,
        extensions: Extensions,
        deadlines: Deadlines,
        record: Option<ServedCall>,
    ) {
        place.begin_typed(
            call,
            incoming,
            self.gather(),
            HandleState::Read(headers, extensions),
            deadlines,
            record,
        );
    }

    /// Begins a call whose request interceptors see first, without its message.
    #[expect(clippy::too_many_arguments, reason = "what a call brings, and what it is given")]
    pub(crate) fn begin_intercepted(
        &self,
        place: &mut Serving<TypedHandle>,
        call: Call,
        incoming: Option<Incoming>,
        handler: &dyn ErasedService,
        mut request: Request<Body>,
        deadlines: Deadlines,
        record: Option<ServedCall>,
    ) {
        let slot = Slot::default();
        request.extensions_mut().insert(slot.clone());
        let intercepted = handler.handle(request);
        place.begin_typed(
            call,
            incoming,
            self.gather(),
            HandleState::Intercept(intercepted, slot),
            deadlines,
            record,
        );
    }

    /// Whether a call may be answered here and now, unless it says how messages are compressed: nobody is to see it first.
    pub(crate) fn takes_some(&mut self) -> bool {
        if self.idle.is_none() && !self.found.intercepted {
            self.idle = self.make();
        }
        !self.found.intercepted && self.idle.is_some()
    }

    /// Serves a call whose request came as a whole, and whose metadata are `headers`. `Some`: it is not over yet.
    #[expect(clippy::too_many_arguments, reason = "what a call brings, and what it is given")]
    pub(crate) fn serve_in_place(
        &mut self,
        cx: &mut Context<'_>,
        accepted: Accepted<'_>,
        whole: SingleFrame,
        headers: HeaderMap,
        extensions: Extensions,
        deadlines: Deadlines,
        outlet: &dyn Outlet,
    ) -> Option<Box<Serving<TypedHandle>>> {
        let message = match check_received(&whole, self.found.direct.max_decoding_message_size()) {
            Ok(None) => Ok(Received::Request(whole)),
            Ok(Some(object)) => Ok(object),
            Err(refused) => Err(refused),
        };
        let request = message.map(|message| Raw { message, headers, extensions });
        let serving = self.idle.as_mut()?;
        if serving.poll_in_place(cx, accepted, deadlines, request, outlet).is_pending() {
            return self.idle.take();
        }
        if !(serving.handle.clear() && serving.is_reusable()) {
            self.idle = None;
        }
        None
    }

    /// What is left of a call, for a task of its own. Its place is used again afterwards.
    pub(crate) fn rest(
        &self,
        mut place: Box<Serving<TypedHandle>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let free = self.free.clone();
        async move {
            (&mut place).await;
            if place.handle.clear() && place.is_reusable() {
                let mut free = free.lock();
                if free.len() < FREE_COUNT_MAX {
                    free.push(place);
                }
            }
        }
    }

    /// A call has come to its end in the session's own task.
    pub(crate) fn ended(&mut self, mut place: Box<Serving<TypedHandle>>) {
        if place.handle.clear() && place.is_reusable() {
            self.idle = Some(place);
        }
    }
}

/// A call that was begun, on one way or the other.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of the session's task, and shortly")]
pub(crate) enum TypedCall {
    Http(Serving<HttpHandle>),
    Direct(Box<Serving<TypedHandle>>),
}

impl Future for TypedCall {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            TypedCall::Http(serving) => Pin::new(serving).poll(cx),
            TypedCall::Direct(serving) => Pin::new(serving).poll(cx),
        }
    }
}
