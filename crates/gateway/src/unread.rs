//! Answers that a client of the world does not read: they hold their call's place and memory for a time, and no longer.
//!
//! hyper asks a body for more when HTTP/2 has a window for what came last. While it has none, nobody asks, and the answer can't end by
//! itself. So the task that hyper makes for a call is looked at from outside: one that waits with bytes in hand is ended at the call's
//! deadline, or when it has waited for `limits.unread_ms`. What hyper and the answer hold goes with it, and the client is sent RST_STREAM. Calls
//! whose answers go out at once have no timer, and no task of their own for this.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::bodies::Passage;
use crate::config::Limits;
use crate::refusal::Refusal;

/// The most of an answer that HTTP/2 is given at once, in bytes: a DATA frame. What it has been given stays there until the client reads or
/// resets, or its connection ends, whatever becomes of the call.
pub(crate) const PIECE_LEN: usize = 16 << 10;

thread_local! {
    /// What the answer that is polled on this thread has said last.
    static SAID: Cell<Option<Said>> = const { Cell::new(None) };
}

enum Said {
    /// It was asked for more, and has none yet, or is over.
    Asked,
    /// It gave some of its bytes.
    Gave(UnreadAnswer),
}

/// An answer whose bytes wait for the client.
pub(crate) struct UnreadAnswer {
    passage: Arc<Passage>,
    deadline: Option<Instant>,
    /// How long they may wait at most.
    limit: Option<Duration>,
}

impl UnreadAnswer {
    /// `deadline` is the call's.
    pub(crate) fn new(passage: &Arc<Passage>, deadline: Option<Instant>, limits: &Limits) -> UnreadAnswer {
        let limit = (limits.unread_ms > 0).then(|| Duration::from_millis(limits.unread_ms));
        UnreadAnswer { passage: passage.clone(), deadline, limit }
    }

    /// When it ends, if nobody reads it from now on.
    fn end_at(&self) -> Option<Instant> {
        let limit = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        limit.into_iter().chain(self.deadline).min()
    }

    /// Says why it ends.
    fn end(&self) {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.passage.end(if is_late { Refusal::Late } else { Refusal::Unread });
    }
}

/// An answer was asked for more, and gave bytes that it stands with from now on, or none.
pub(crate) fn asked(gave: Option<UnreadAnswer>) {
    SAID.set(Some(gave.map_or(Said::Asked, Said::Gave)));
}

/// Runs the calls of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        tokio::spawn(Watched::new(call));
    }
}

pin_project! {
    /// hyper's task of a call, until that is over or its answer has stood for too long.
    pub(crate) struct Watched<F> {
        #[pin]
        call: F,
        standing: Option<UnreadAnswer>,
        alarm: Option<Pin<Box<Sleep>>>,
    }
}

impl<F> Watched<F> {
    pub(crate) fn new(call: F) -> Watched<F> {
        Watched { call, standing: None, alarm: None }
    }

    pub(crate) fn inner(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().call
    }
}

/// `None`: its answer has stood for too long.
impl<F: Future> Future for Watched<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        SAID.set(None);
        let polled = this.call.poll(cx);
        let said = SAID.take();
        if polled.is_ready() {
            return polled.map(Some);
        }
        match said {
            None => {}
            Some(Said::Asked) => *this.standing = None,
            Some(Said::Gave(standing)) => {
                match (standing.end_at(), &mut *this.alarm) {
                    (None, alarm) => *alarm = None,
                    (Some(at), Some(alarm)) => alarm.as_mut().reset(at.into()),
                    (Some(at), alarm) => *alarm = Some(Box::pin(tokio::time::sleep_until(at.into()))),
                }
                *this.standing = Some(standing);
            }
        }
        let (Some(standing), Some(alarm)) = (this.standing, this.alarm) else { return Poll::Pending };
        ready!(alarm.as_mut().poll(cx));
        standing.end();
        Poll::Ready(None)
    }
}
