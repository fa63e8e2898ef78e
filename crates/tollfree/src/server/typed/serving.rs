//! One call on the server that goes from the session to a typed handler and back.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Extensions, HeaderMap};
use tollfree_transport::{Arrival, Call, Emission, End, Part, Stream};
use tonic::Status;

use crate::call::deadline::Deadline;
use crate::channel::slot::Slot;
use crate::message::encoding::{Gather, Gathered, Received};
use crate::message::payloads::Outlet;
use crate::message::received::Fetching;
use crate::metadata::status_code;
use crate::metrics::ServedCall;
use crate::server::serving::HandlerFuture;
use crate::server::speech::Speech;
use crate::server::typed::run::{Raw, Run};
use crate::status;

/// How far a call has come.
pub(crate) enum State {
    /// Interceptors look at the request, and leave it in the slot if they let it through.
    Intercept(HandlerFuture, Slot),
    /// The message has not come yet.
    Read(HeaderMap, Extensions),
    /// Parts of it lie in extents that are on their way here.
    Fetch(HeaderMap, Extensions, Fetching),
    /// The handler has not answered yet.
    Handler,
    /// What it said is being sent.
    Ending,
}

/// What a client is told whose call made the handler panic.
const PANICKED: &str = "the handler panicked";

/// What came of a handler that was asked once.
pub(crate) enum Answered {
    /// All that is to be said is there to be sent.
    Now,
    /// The call ends with this status.
    With(Status),
    /// It waits for something.
    Later,
}

/// What is left to do on a call that was not answered at once.
pub(crate) enum Left {
    /// The handler has not answered yet.
    Handler,
    /// The call is to end with this status.
    Status(Status),
    /// This is yet to be sent.
    Emission(Emission),
}

/// A call that is being served. Resolves when everything is said or nobody listens any more.
///
/// It has a place of its own for long, which one call after the other takes: a call's state is written there once, and not
/// moved from hand to hand.
pub(crate) struct DirectServing {
    call: Option<Ongoing>,
    /// Gone after a panic, and where a handler was given up.
    run: Option<Box<dyn Run>>,
}

/// A call that is not over.
struct Ongoing {
    speech: Speech<Stream>,
    deadline: Deadline,
    /// What came with the call, until it is read.
    arrival: Option<Part>,
    gather: Gather,
    state: State,
}

impl DirectServing {
    /// No call yet; `run` runs the method.
    pub(crate) fn idle(run: Box<dyn Run>) -> DirectServing {
        DirectServing { call: None, run: Some(run) }
    }

    /// The fingerprint of the method's types, where messages may travel as objects.
    pub(crate) fn types(&self) -> Option<u64> {
        self.run.as_ref().and_then(|run| run.types())
    }

    /// Begins a call with a message of up to `len_max` bytes; `arrival` came with it.
    pub(crate) fn begin(
        &mut self,
        call: Call,
        arrival: Option<Part>,
        len_max: Option<usize>,
        state: State,
        record: Option<ServedCall>,
    ) {
        self.call = Some(Ongoing {
            speech: Speech::new(call.stream, record),
            deadline: Deadline::new(call.deadline_ns),
            arrival,
            gather: Gather::new(len_max, self.types().is_some()),
            state,
        });
    }

    /// Has the handler answer a request that came as a whole, with nothing kept of it here. What it says is put into
    /// `emission`, to go to `outlet`.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        request: Raw,
        outlet: &dyn Outlet,
        emission: &mut Emission,
    ) -> Answered {
        let Some(run) = &mut self.run else { return Answered::With(Status::internal(PANICKED)) };
        if let Some(passing) = run.passing() {
            passing.sharing.received_inline(request.message.len(), 0);
        }
        // A handler that panics must not take the session's other calls with it.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| match run.begin(request) {
            Ok(()) => run.poll(cx, outlet, emission),
            Err(refused) => Poll::Ready(Err(refused)),
        }));
        match polled {
            Ok(Poll::Ready(Ok(()))) => Answered::Now,
            Ok(Poll::Ready(Err(last))) => Answered::With(last),
            Ok(Poll::Pending) => Answered::Later,
            Err(_) => {
                self.run = None;
                Answered::With(Status::internal(PANICKED))
            }
        }
    }

    /// Goes on with a call that was not answered at once.
    pub(crate) fn go_on(&mut self, call: Call, left: Left) {
        // Calls that are counted are not answered at once.
        self.begin(call, None, None, State::Handler, None);
        let Some(call) = &mut self.call else { return };
        match left {
            Left::Handler => {}
            Left::Status(last) => call.end_with(last),
            Left::Emission(emission) => {
                call.speech.emission = emission;
                call.state = State::Ending;
            }
        }
    }

    /// Lets go of what the handler has left, when its answer is on its way.
    pub(crate) fn clear(&mut self) {
        // What a handler leaves may panic, as the handler may.
        if let Some(run) = &mut self.run
            && std::panic::catch_unwind(AssertUnwindSafe(|| run.clear())).is_err()
        {
            self.run = None;
        }
    }

    /// Lets go of a call that is over. Whether another may be begun here.
    pub(crate) fn end(&mut self) -> bool {
        self.clear();
        let ended = self.call.as_ref().is_some_and(|call| matches!(call.state, State::Ending));
        self.call = None;
        ended && self.run.is_some()
    }
}

impl Ongoing {
    fn end_with(&mut self, last: Status) {
        self.speech.end_with(last);
        self.state = State::Ending;
    }

    fn panicked(&mut self, run: &mut Option<Box<dyn Run>>) {
        *run = None;
        self.end_with(Status::internal(PANICKED));
    }

    /// One step; `true` when the call is over.
    fn poll_step(&mut self, cx: &mut Context<'_>, run: &mut Option<Box<dyn Run>>) -> Poll<bool> {
        match &mut self.state {
            State::Intercept(intercepted, slot) => {
                match std::panic::catch_unwind(AssertUnwindSafe(|| intercepted.as_mut().poll(cx))) {
                    Ok(Poll::Ready(response)) => match slot.take() {
                        Some(passed) => self.state = State::Read(passed.headers, passed.extensions),
                        None => self.refuse(response.headers()),
                    },
                    Ok(Poll::Pending) => {
                        ready!(self.speech.poll_ended(cx));
                        return Poll::Ready(true);
                    }
                    Err(_) => self.panicked(run),
                }
                Poll::Ready(false)
            }
            State::Read(..) => self.poll_read(cx, run),
            State::Fetch(.., fetching) => match fetching.as_mut().poll(cx) {
                Poll::Ready(rope) => {
                    match rope {
                        Ok(rope) => self.begin(Received::Rope(rope), run),
                        Err(refused) => self.end_with(refused),
                    }
                    Poll::Ready(false)
                }
                Poll::Pending => {
                    ready!(self.speech.poll_ended(cx));
                    Poll::Ready(true)
                }
            },
            State::Handler => {
                let Some(runs) = run else { return Poll::Ready(true) };
                // A handler that panics must not take the session's other calls with it.
                let Speech { stream, emission, .. } = &mut self.speech;
                match std::panic::catch_unwind(AssertUnwindSafe(|| runs.poll(cx, stream, emission))) {
                    Ok(Poll::Ready(Ok(()))) => self.state = State::Ending,
                    Ok(Poll::Ready(Err(last))) => self.end_with(last),
                    Ok(Poll::Pending) => {
                        ready!(self.speech.poll_ended(cx));
                        return Poll::Ready(true);
                    }
                    Err(_) => self.panicked(run),
                }
                Poll::Ready(false)
            }
            State::Ending => {
                let over = ready!(self.speech.poll_emit(cx));
                Poll::Ready(over || self.speech.is_said())
            }
        }
    }

    /// An interceptor has answered itself.
    fn refuse(&mut self, headers: &HeaderMap) {
        let Some(code) = status_code(headers) else {
            self.end_with(Status::unknown("the interceptor's response has no status"));
            return;
        };
        self.speech.end_with_headers(code, headers, "response metadata");
        self.state = State::Ending;
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, run: &mut Option<Box<dyn Run>>) -> Poll<bool> {
        loop {
            let arrived = match self.arrival.take() {
                Some(arrival) => Ok(arrival),
                None => ready!(self.speech.stream.poll_arrival(cx)).map(Arrival::into_part),
            };
            // Nobody waits for an answer any more.
            let Ok(arrival) = arrived else { return Poll::Ready(true) };
            if let Some(chunk) = arrival.chunk
                && let Err(refused) = self.gather.add(chunk)
            {
                self.end_with(refused);
                return Poll::Ready(false);
            }
            match arrival.end {
                None => {}
                Some(End::HalfClosed) => break,
                Some(_) => return Poll::Ready(true),
            }
        }
        let Some(passing) = run.as_ref().and_then(|run| run.passing()) else { return Poll::Ready(true) };
        match self.gather.take(&passing.sharing) {
            Ok(Some(Gathered::Here(message))) => self.begin(message, run),
            Ok(Some(Gathered::Fetching(fetching))) => {
                if let State::Read(headers, extensions) = std::mem::replace(&mut self.state, State::Handler) {
                    self.state = State::Fetch(headers, extensions, fetching);
                }
            }
            Ok(None) => self.end_with(Status::internal("Missing request message.")),
            Err(refused) => self.end_with(refused),
        }
        Poll::Ready(false)
    }

    /// Gives the message to the handler.
    fn begin(&mut self, message: Received, run: &mut Option<Box<dyn Run>>) {
        let (State::Read(headers, extensions) | State::Fetch(headers, extensions, _), Some(runs)) =
            (std::mem::replace(&mut self.state, State::Handler), run.as_mut())
        else {
            return;
        };
        if let Some(record) = &self.speech.record {
            record.received(message.len());
        }
        let request = Raw { message, headers, extensions };
        match std::panic::catch_unwind(AssertUnwindSafe(|| runs.begin(request))) {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => self.end_with(refused),
            Err(_) => self.panicked(run),
        }
    }
}

impl Future for DirectServing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let DirectServing { call: Some(call), run } = &mut *self else { return Poll::Ready(()) };
        loop {
            match call.poll_step(cx, run) {
                Poll::Ready(true) => return Poll::Ready(()),
                Poll::Ready(false) => {}
                Poll::Pending if matches!(call.state, State::Ending) => return Poll::Pending,
                Poll::Pending => {
                    ready!(call.deadline.poll(cx));
                    // The handler goes no further.
                    *run = None;
                    call.speech.abort_with(status::deadline());
                    call.state = State::Ending;
                }
            }
        }
    }
}
