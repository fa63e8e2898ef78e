//! One call on the server that goes from the session to a typed handler and back.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use tollfree_transport::{End, Ending, Outgoing, Stream};
use tonic::Status;

use super::Slot;
use super::message::{Gather, Gathered, Received, pack};
use super::run::{Raw, Run};
use crate::body::Deadline;
use crate::inflow::Fetching;
use crate::metadata::status_code;
use crate::serving::HandlerFuture;
use crate::speech::Speech;
use crate::status;

enum State {
    /// Interceptors look at the request.
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

/// A call that is being served. Resolves when everything is said or nobody listens any more.
pub(crate) struct DirectServing {
    speech: Speech<Stream>,
    deadline: Deadline,
    gather: Gather,
    /// Gone after a panic, and where a handler was given up.
    run: Option<Box<dyn Run>>,
    state: State,
}

impl DirectServing {
    fn with_state(
        stream: Stream,
        deadline_ns: Option<u64>,
        run: Box<dyn Run>,
        len_max: Option<usize>,
        state: State,
    ) -> DirectServing {
        DirectServing {
            speech: Speech::new(stream),
            deadline: Deadline::new(deadline_ns),
            gather: Gather::new(len_max),
            run: Some(run),
            state,
        }
    }

    /// Serves a call with `run`, which takes messages of up to `len_max` bytes.
    pub(crate) fn new(
        stream: Stream,
        deadline_ns: Option<u64>,
        run: Box<dyn Run>,
        len_max: Option<usize>,
        headers: HeaderMap,
        extensions: Extensions,
    ) -> DirectServing {
        Self::with_state(stream, deadline_ns, run, len_max, State::Read(headers, extensions))
    }

    /// The same once interceptors have let the request through: `intercepted` ends, and `slot` is filled.
    pub(crate) fn intercepted(
        stream: Stream,
        deadline_ns: Option<u64>,
        run: Box<dyn Run>,
        len_max: Option<usize>,
        intercepted: HandlerFuture,
        slot: Slot,
    ) -> DirectServing {
        Self::with_state(stream, deadline_ns, run, len_max, State::Intercept(intercepted, slot))
    }

    /// What ran the method, for the next call, if it has come to its end here.
    pub(crate) fn into_run(self) -> Option<Box<dyn Run>> {
        if matches!(self.state, State::Ending) { self.run } else { None }
    }

    fn end_with(&mut self, last: Status) {
        self.speech.end_with(last);
        self.state = State::Ending;
    }

    fn panicked(&mut self) {
        self.run = None;
        self.end_with(Status::internal("the handler panicked"));
    }

    /// One step; `true` when the call is over.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
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
                    Err(_) => self.panicked(),
                }
                Poll::Ready(false)
            }
            State::Read(..) => self.poll_read(cx),
            State::Fetch(.., fetching) => match fetching.as_mut().poll(cx) {
                Poll::Ready(rope) => {
                    let checked = rope.and_then(|rope| self.gather.check(Received::Rope(rope)));
                    match checked {
                        Ok(message) => self.begin(message),
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
                let Some(run) = &mut self.run else { return Poll::Ready(true) };
                // A handler that panics must not take the session's other calls with it.
                match std::panic::catch_unwind(AssertUnwindSafe(|| run.poll(cx, &self.speech.stream))) {
                    Ok(Poll::Ready(Ok((headers, message)))) => self.reply(headers, message),
                    Ok(Poll::Ready(Err(last))) => self.end_with(last),
                    Ok(Poll::Pending) => {
                        ready!(self.speech.poll_ended(cx));
                        return Poll::Ready(true);
                    }
                    Err(_) => self.panicked(),
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

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            let arrived = match self.speech.stream.take_arrival() {
                Some(arrival) => Ok(arrival),
                None => ready!(self.speech.stream.poll_arrival(cx)),
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
        let Some(passing) = self.run.as_ref().and_then(|run| run.passing()) else { return Poll::Ready(true) };
        match self.gather.take(&passing.sharing) {
            Ok(Some(Gathered::Here(message))) => self.begin(message),
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
    fn begin(&mut self, message: Received) {
        let (State::Read(headers, extensions) | State::Fetch(headers, extensions, _), Some(run)) =
            (std::mem::replace(&mut self.state, State::Handler), &mut self.run)
        else {
            return;
        };
        let request = Raw { message, headers, extensions };
        match std::panic::catch_unwind(AssertUnwindSafe(|| run.begin(request))) {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => self.end_with(refused),
            Err(_) => self.panicked(),
        }
    }

    fn reply(&mut self, headers: HeaderMap, message: Outgoing) {
        match pack(headers) {
            Ok(block) => {
                self.speech.emission.headers = Some(block);
                self.speech.emission.message = Some(message);
                self.speech.emission.ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
                self.state = State::Ending;
            }
            Err(error) => self.end_with(Status::resource_exhausted(format!("response metadata: {error}"))),
        }
    }
}

impl Future for DirectServing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match this.poll_step(cx) {
                Poll::Ready(true) => return Poll::Ready(()),
                Poll::Ready(false) => {}
                Poll::Pending if matches!(this.state, State::Ending) => return Poll::Pending,
                Poll::Pending => {
                    ready!(this.deadline.poll(cx));
                    // The handler goes no further.
                    this.run = None;
                    this.speech.abort_with(status::deadline());
                    this.state = State::Ending;
                }
            }
        }
    }
}
