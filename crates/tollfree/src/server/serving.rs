//! One call on the server, from the first look at its handler to its final status: one state machine for all handlers.
//!
//! ```text
//! begin ──► the handler has its turn ──► final status ──► over
//!              │ waits: is anybody there still? is there time left?
//!                                            │ wait: has the client time left?
//! ```
//! How a handler is called, and what it reads and says meanwhile, is its [`Handle`]'s matter.

use std::borrow::Borrow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tollfree_driver_tokio::Stream;
use tonic::{Code, Status};

use crate::call::deadline::{Deadline, Deadlines};
use crate::metrics::ServedCall;
use crate::server::caller::ClientRole;
use crate::server::response_writer::ResponseWriter;
use crate::status;

/// How a handler is called: with an `http::Request`, or with a typed message.
pub(crate) trait Handle: Unpin {
    /// The call's stream, and who holds it.
    type Held: Borrow<Stream> + Unpin;

    /// Has the handler go on until it waits, and sends what it says before its end. It may panic, as the handler may.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        response_writer: &mut ResponseWriter<Self::Held>,
        deadline: &Deadline,
    ) -> Poll<HandlerStep>;

    /// Who has called.
    fn client(&self) -> ClientRole;

    /// The handler is not asked again. `is_whole`: it has come to its own end.
    fn end(&mut self, is_whole: bool);
}

/// What came of a handler's turn.
pub(crate) enum HandlerStep {
    /// All that is to be said is there to be sent.
    Said,
    /// The call ends with this status, after what is at hand was sent.
    Last(Status),
    /// Its time is over.
    Late,
    /// Nobody listens any more.
    Over,
}

/// Gives a handler its turn. One that panics must not take the session's other calls with it.
pub(crate) fn turn<H: Handle>(
    handle: &mut H,
    turn: impl FnOnce(&mut H) -> Poll<HandlerStep>,
) -> Poll<HandlerStep> {
    std::panic::catch_unwind(AssertUnwindSafe(|| turn(handle))).unwrap_or_else(|_| {
        handle.end(false);
        Poll::Ready(HandlerStep::Last(Status::internal("the handler panicked")))
    })
}

/// A call that is being served. Resolves when everything is said or nobody listens any more.
///
/// One of typed messages has a place of its own for long, which one call after the other takes: a call's state is written there once,
/// and not moved from hand to hand.
pub(crate) struct Serving<H: Handle> {
    pub(crate) handle: H,
    call: Option<Ongoing<H::Held>>,
}

/// A call that is not over.
struct Ongoing<S> {
    response_writer: ResponseWriter<S>,
    /// The handler's, and the client's while final status wait.
    deadline: Deadline,
    client_ns: Option<u64>,
    /// Its final status are being sent.
    is_ending: bool,
}

impl<H: Handle> Serving<H> {
    /// No call yet.
    pub(crate) fn idle(handle: H) -> Serving<H> {
        Serving { handle, call: None }
    }

    /// Begins a call; `record` counts it.
    pub(crate) fn begin(&mut self, stream: H::Held, deadlines: Deadlines, record: Option<ServedCall>) {
        let deadline = Deadline::new(deadlines.handler_ns());
        let response_writer = ResponseWriter::new(stream, record, self.handle.client());
        self.call =
            Some(Ongoing { response_writer, deadline, client_ns: deadlines.client_ns(), is_ending: false });
    }

    /// What is to be sent on the call.
    pub(crate) fn response_writer(&mut self) -> Option<&mut ResponseWriter<H::Held>> {
        self.call.as_mut().map(|call| &mut call.response_writer)
    }

    /// Takes up what came of a handler's turn. Whether the call is over.
    pub(crate) fn take_up(&mut self, step: HandlerStep) -> bool {
        let Some(call) = &mut self.call else { return true };
        let is_whole = matches!(step, HandlerStep::Said | HandlerStep::Last(_));
        match step {
            HandlerStep::Said => {}
            HandlerStep::Last(last) => call.response_writer.end_with(last),
            HandlerStep::Late => call.response_writer.abort_with(status::deadline()),
            HandlerStep::Over => return true,
        }
        self.handle.end(is_whole);
        call.is_ending = true;
        false
    }

    /// Lets go of a call that is over. Whether another may be begun: not after one that was left in the middle.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.call.take().is_none_or(|call| call.is_ending)
    }
}

impl<H: Handle> Future for Serving<H> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let Serving { handle, call: Some(call) } = &mut *this else { return Poll::Ready(()) };
            if call.is_ending {
                let Poll::Ready(is_over) = call.response_writer.poll_send(cx) else {
                    // The server's own limit is the handler's. A client that is slow has until its deadline.
                    call.deadline.move_to(call.client_ns);
                    ready!(call.deadline.poll(cx));
                    // Its turn may have been over, and nothing else in the way.
                    if call.response_writer.poll_send(cx).is_pending() || !call.response_writer.is_said() {
                        call.response_writer.give_up(Code::DeadlineExceeded);
                    }
                    return Poll::Ready(());
                };
                if is_over || call.response_writer.is_said() {
                    return Poll::Ready(());
                }
                continue;
            }
            let step = match turn(handle, |handle| handle.poll(cx, &mut call.response_writer, &call.deadline))
            {
                Poll::Ready(step) => step,
                Poll::Pending
                    if call.response_writer.is_said() && call.response_writer.poll_ended(cx).is_ready() =>
                {
                    HandlerStep::Over
                }
                Poll::Pending => {
                    ready!(call.deadline.poll(cx));
                    HandlerStep::Late
                }
            };
            if this.take_up(step) {
                return Poll::Ready(());
            }
        }
    }
}
