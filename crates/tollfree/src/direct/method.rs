//! A method of a session's server that is called without an `http::Request`, and the calls begun in it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, Request};
use tollfree_transport::Call;
use tonic::body::Body;

use super::message::says_encoding;
use super::run::{Found, Passing};
use super::{DirectServing, Slot};
use crate::serving::{Handler, Serving};

/// A method that is called directly where a call allows it.
pub(crate) struct DirectMethod {
    found: Found,
    name: String,
    passing: Passing,
    /// Where the last call was served that came to its end in the session's own task.
    idle: Option<Box<DirectServing>>,
}

impl DirectMethod {
    /// The method of that name, if it can be called directly.
    pub(crate) fn new(found: Found, name: &str, passing: Passing) -> Option<DirectMethod> {
        let mut method = DirectMethod { found, name: name.to_owned(), passing, idle: None };
        method.idle = Some(method.make()?);
        Some(method)
    }

    fn make(&self) -> Option<Box<DirectServing>> {
        let mut run = self.found.direct.method(&self.name)?;
        run.set_passing(self.passing.clone());
        Some(Box::new(DirectServing::idle(run)))
    }

    /// Where the next call is served, if that can be a direct one: how messages are compressed is left to tonic.
    pub(crate) fn place(&mut self, call: &Call) -> Option<Box<DirectServing>> {
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
    pub(crate) fn begin(
        &self,
        place: &mut DirectServing,
        call: Call,
        headers: HeaderMap,
        extensions: Extensions,
    ) {
        let len_max = self.found.direct.max_decoding_message_size();
        place.begin(call.stream, call.deadline_ns, len_max, headers, extensions);
    }

    /// Begins a call whose request interceptors see first, without its message.
    pub(crate) fn begin_intercepted(
        &self,
        place: &mut DirectServing,
        call: Call,
        handler: &dyn Handler,
        mut request: Request<Body>,
    ) {
        let slot = Slot::default();
        request.extensions_mut().insert(slot.clone());
        let len_max = self.found.direct.max_decoding_message_size();
        let intercepted = handler.handle(request);
        place.begin_intercepted(call.stream, call.deadline_ns, len_max, intercepted, slot);
    }

    /// A call has come to its end in the session's own task.
    pub(crate) fn ended(&mut self, mut place: Box<DirectServing>) {
        if place.end() {
            self.idle = Some(place);
        }
    }
}

/// A call that was begun, on one way or the other.
pub(crate) enum Begun {
    Http(Serving),
    Direct(Box<DirectServing>),
}

impl Future for Begun {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Begun::Http(serving) => Pin::new(serving).poll(cx),
            Begun::Direct(serving) => Pin::new(serving).poll(cx),
        }
    }
}
