//! The rest of a request, on its way while the answer is awaited.
//!
//! It is sent by a task of its own: the application may do other things than wait for the answer. While it does wait, its own task sends what
//! has come to hand, before it looks for the answer; so a message that is to be answered need not wait for another task's turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tonic::Status;

use crate::http::request_sender::RequestSender;
use crate::http::response_body::ClientCall;

/// See the module.
#[derive(Default)]
pub(crate) struct Outflow {
    rest: Mutex<Option<Rest>>,
    /// Set while there is something to be done for it.
    due: Arc<Due>,
}

/// What is left, and how it ended.
struct Rest {
    sender: RequestSender,
    ended: Option<Result<(), Status>>,
    /// What wakes the sender's own task, no matter which task has polled it.
    waker: Waker,
}

/// Notes that the sender is to be polled, and wakes its task for that.
#[derive(Default)]
struct Due {
    is_due: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        // Its waker is called without the lock: it may be anybody's code.
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Outflow {
    /// Takes what is left of a request, for the task that calls [`poll`](Outflow::poll).
    pub(crate) fn begin(&self, sender: RequestSender) {
        self.due.is_due.store(true, Ordering::Relaxed);
        *self.rest.lock() = Some(Rest { sender, ended: None, waker: Waker::from(self.due.clone()) });
    }

    /// The sender's own task: ready with the sender when all is sent, or can't be.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        call: &ClientCall,
    ) -> Poll<Option<(RequestSender, Result<(), Status>)>> {
        {
            let mut task = self.due.task.lock();
            if !task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        let mut held = self.rest.lock();
        let Some(rest) = &mut *held else { return Poll::Ready(None) };
        if rest.ended.is_none() {
            self.due.is_due.store(false, Ordering::Relaxed);
            let polled = rest.sender.poll_send(&mut Context::from_waker(&rest.waker), call);
            let Poll::Ready(ended) = polled else { return Poll::Pending };
            rest.ended = Some(ended);
        }
        Poll::Ready(held.take().and_then(|rest| Some((rest.sender, rest.ended?))))
    }

    /// The sender's own task ends.
    pub(crate) fn give_up(&self) {
        let rest = self.rest.lock().take();
        // The application's code may run in this.
        drop(rest);
    }

    /// Who waits for the answer: sends of what has come to hand since the sender was polled last. Whether there is more, and it is to be
    /// asked again before anything is waited for.
    #[inline]
    pub(crate) fn help(&self, call: &ClientCall) -> bool {
        self.due.is_due.load(Ordering::Relaxed) && self.help_now(call)
    }

    fn help_now(&self, call: &ClientCall) -> bool {
        // Its task is at it, or the application's code that gives the messages waits for the answer itself.
        let Some(mut held) = self.rest.try_lock() else { return false };
        let Some(rest) = held.as_mut().filter(|rest| rest.ended.is_none()) else { return false };
        self.due.is_due.store(false, Ordering::Relaxed);
        match rest.sender.poll_send_some(&mut Context::from_waker(&rest.waker), call) {
            Poll::Ready(None) => {
                self.due.is_due.store(true, Ordering::Relaxed);
                return true;
            }
            Poll::Ready(Some(ended)) => {
                rest.ended = Some(ended);
                // To find that out.
                rest.waker.wake_by_ref();
            }
            Poll::Pending => {}
        }
        false
    }

    /// Who waits for the answer stops helping though there is more: that is left to the sender's own task.
    pub(crate) fn leave(&self) {
        self.due.wake_by_ref();
    }
}

impl std::fmt::Debug for Outflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outflow").finish_non_exhaustive()
    }
}
