//! Handlers that take a typed message (levels 2 and 3): how a call is given to one, and what it says.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Extensions, HeaderMap};
use tollfree_driver_tokio::{Accepted, Call, End, Incoming, Outgoing, SendError, Stream};
use tonic::Status;

use crate::call::deadline::{Deadline, Deadlines};
use crate::channel::slot::Slot;
use crate::message::encoding::{Gather, Gathered, Received, What};
use crate::message::payloads::Outlet;
use crate::message::received::Fetching;
use crate::metadata::status_code;
use crate::metrics::ServedCall;
use crate::server::caller::ClientRole;
use crate::server::http_handle::HandlerFuture;
use crate::server::response_writer::ResponseWriter;
use crate::server::serving::{Handle, HandlerStep, Serving, turn};
use crate::server::typed::run::{Raw, Run};
use crate::status;

/// A method's handler, for one call after the other.
pub(crate) struct TypedHandle {
    /// Gone after a panic, and where a handler was given up.
    run: Option<Box<dyn Run>>,
    state: HandleState,
    /// What came with the call, until it is read.
    incoming: Option<Incoming>,
    gather: Gather,
}

/// How far a call has come.
pub(crate) enum HandleState {
    /// Interceptors look at the request, and leave it in the slot if they let it through.
    Intercept(HandlerFuture, Slot),
    /// The message has not come yet.
    Read(HeaderMap, Extensions),
    /// Parts of it lie in extents that are on their way here.
    Fetch(HeaderMap, Extensions, Fetching, What),
    /// The handler has it.
    Handler,
}

impl TypedHandle {
    /// `run` runs the method.
    pub(crate) fn new(run: Box<dyn Run>) -> TypedHandle {
        let gather = Gather::new(None, false);
        TypedHandle { run: Some(run), state: HandleState::Handler, incoming: None, gather }
    }

    /// Lets go of what the handler has left, when its answer is on its way. Whether it can be called again.
    pub(crate) fn clear(&mut self) -> bool {
        // What a handler leaves may panic, as the handler may.
        if let Some(run) = &mut self.run
            && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.clear())).is_err()
        {
            self.run = None;
        }
        self.run.is_some()
    }

    /// Gives a request to the handler, which has its turn at once. What it says is put into `outgoing`, to go to `outlet`.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        request: Option<Raw>,
        outlet: &dyn Outlet,
        outgoing: &mut Outgoing,
    ) -> Poll<HandlerStep> {
        let (Some(run), Some(request)) = (&mut self.run, request) else {
            return Poll::Ready(HandlerStep::Last(Status::internal("the handler panicked")));
        };
        if let Some(passing) = run.passing() {
            passing.sharing.received_inline(request.message.len(), 0);
        }
        match run.begin(request) {
            Ok(()) => run.poll(cx, outlet, outgoing).map(HandlerStep::of),
            Err(refused) => Poll::Ready(HandlerStep::Last(refused)),
        }
    }

    /// Reads the message, as far as it has come. `Some`: there is none for the handler.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        response_writer: &ResponseWriter<Stream>,
    ) -> Poll<Option<HandlerStep>> {
        loop {
            let arrived = match self.incoming.take() {
                Some(incoming) => Ok(incoming),
                None => ready!(response_writer.stream.poll_incoming(cx)),
            };
            // Nobody waits for an answer any more.
            let Ok(incoming) = arrived.map(Incoming::into_part) else {
                return Poll::Ready(Some(HandlerStep::Over));
            };
            if let Some(chunk) = incoming.chunk
                && let Err(refused) = self.gather.add(chunk)
            {
                return Poll::Ready(Some(HandlerStep::Last(refused)));
            }
            match incoming.end {
                None => {}
                Some(End::HalfClosed) => break,
                Some(_) => return Poll::Ready(Some(HandlerStep::Over)),
            }
        }
        let passing = self.run.as_ref().and_then(|run| run.passing());
        let Some(passing) = passing else { return Poll::Ready(Some(HandlerStep::Over)) };
        Poll::Ready(match self.gather.take(&passing.sharing) {
            Ok(Some(Gathered::Here(message))) => self.begin_handler(message, response_writer),
            Ok(Some(Gathered::Fetching(fetching, what))) => {
                if let HandleState::Read(headers, extensions) =
                    std::mem::replace(&mut self.state, HandleState::Handler)
                {
                    self.state = HandleState::Fetch(headers, extensions, fetching, what);
                }
                None
            }
            Ok(None) => Some(HandlerStep::Last(Status::internal("Missing request message."))),
            Err(refused) => Some(HandlerStep::Last(refused)),
        })
    }

    /// Gives the message to the handler. `Some`: it is none for it.
    fn begin_handler(
        &mut self,
        message: Received,
        response_writer: &ResponseWriter<Stream>,
    ) -> Option<HandlerStep> {
        let (HandleState::Read(headers, extensions) | HandleState::Fetch(headers, extensions, ..), Some(run)) =
            (std::mem::replace(&mut self.state, HandleState::Handler), self.run.as_mut())
        else {
            return Some(HandlerStep::Over);
        };
        if let Some(record) = &response_writer.record {
            record.received(message.len());
        }
        run.begin(Raw { message, headers, extensions }).err().map(HandlerStep::Last)
    }
}

impl HandlerStep {
    /// What a method's run came to.
    fn of(answered: Result<(), Status>) -> HandlerStep {
        answered.map_or_else(HandlerStep::Last, |()| HandlerStep::Said)
    }
}

/// An interceptor has answered itself.
fn refuse(headers: &HeaderMap, response_writer: &mut ResponseWriter<Stream>) -> HandlerStep {
    let Some(code) = status_code(headers) else {
        return HandlerStep::Last(Status::unknown("the interceptor's response has no status"));
    };
    response_writer.end_with_headers(code, headers, "response metadata");
    HandlerStep::Said
}

impl Handle for TypedHandle {
    type Held = Stream;

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        response_writer: &mut ResponseWriter<Stream>,
        _: &Deadline,
    ) -> Poll<HandlerStep> {
        loop {
            match &mut self.state {
                HandleState::Intercept(intercepted, slot) => {
                    let response = ready!(intercepted.as_mut().poll(cx));
                    match slot.take() {
                        Some(passed) => self.state = HandleState::Read(passed.headers, passed.extensions),
                        None => return Poll::Ready(refuse(response.headers(), response_writer)),
                    }
                }
                HandleState::Read(..) => {
                    if let Some(step) = ready!(self.poll_read(cx, response_writer)) {
                        return Poll::Ready(step);
                    }
                }
                HandleState::Fetch(.., fetching, what) => {
                    let what = *what;
                    let step = match ready!(fetching.as_mut().poll(cx)) {
                        Ok(segmented) => self.begin_handler(what.of(segmented), response_writer),
                        Err(refused) => Some(HandlerStep::Last(refused)),
                    };
                    if let Some(step) = step {
                        return Poll::Ready(step);
                    }
                }
                HandleState::Handler => {
                    let Some(run) = &mut self.run else { return Poll::Ready(HandlerStep::Over) };
                    let ResponseWriter { stream, outgoing, .. } = response_writer;
                    return run.poll(cx, stream, outgoing).map(HandlerStep::of);
                }
            }
        }
    }

    fn client(&self) -> ClientRole {
        let passing = self.run.as_ref().and_then(|run| run.passing());
        passing.map_or(ClientRole::Caller, |passing| passing.client)
    }

    fn end(&mut self, is_whole: bool) {
        // A request that was refused goes with its call: others are served here.
        (self.state, self.incoming) = (HandleState::Handler, None);
        self.gather = Gather::new(None, false);
        if !is_whole {
            self.run = None;
        }
    }
}

impl Serving<TypedHandle> {
    /// Begins a call whose message is to be `gather`ed; `incoming` came with it.
    pub(crate) fn begin_typed(
        &mut self,
        call: Call,
        incoming: Option<Incoming>,
        gather: Gather,
        state: HandleState,
        deadlines: Deadlines,
        record: Option<ServedCall>,
    ) {
        self.handle.gather = gather;
        (self.handle.incoming, self.handle.state) = (incoming, state);
        self.begin(call.stream, deadlines, record);
    }

    /// The first poll of a call that came as a whole, where it was accepted: nothing is kept of one that is over then, and its stream is
    /// made only for what is left. A `request` that is none is the status that the call ends with.
    pub(crate) fn poll_in_place(
        &mut self,
        cx: &mut Context<'_>,
        mut accepted: Accepted<'_>,
        deadlines: Deadlines,
        request: Result<Raw, Status>,
        outlet: &dyn Outlet,
    ) -> Poll<()> {
        let mut outgoing = Outgoing::default();
        let mut step = match request {
            Ok(request) => {
                // Borrowed by the turn, which would move it twice.
                let mut request = Some(request);
                turn(&mut self.handle, |handle| handle.answer(cx, request.take(), outlet, &mut outgoing))
            }
            Err(refused) => Poll::Ready(HandlerStep::Last(refused)),
        };
        if let Poll::Ready(HandlerStep::Said) = step {
            match accepted.reply(&mut outgoing) {
                // Or nobody listens any more.
                Ok(true) | Err(SendError::Ended | SendError::Closed(_)) => return Poll::Ready(()),
                Ok(false) => {}
                Err(error) => {
                    outgoing = Outgoing::default();
                    step = Poll::Ready(HandlerStep::Last(status::unsent(error, "the client")));
                }
            }
        }
        self.handle.state = HandleState::Handler;
        // Calls that are counted are not answered in place.
        self.begin(accepted.into_call(true).stream, deadlines, None);
        if let Some(response_writer) = self.response_writer() {
            response_writer.outgoing = outgoing;
        }
        // A handler that waits was asked a moment ago.
        if self.take_up(ready!(step)) {
            return Poll::Ready(());
        }
        Pin::new(self).poll(cx)
    }
}
