//! A call as threads use it: they read, write and wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollfree_driver_loop::{CallError, CallId, EventLoop, Message, Status};

use crate::host::Threads;
use crate::leader::next_number;
use crate::mailbox::Mailbox;
use crate::news::{CallMailbox, CallNews};
use crate::shared_loop::SharedLoop;

/// Messages of which a sender may have so many under way before it waits.
const UNSENT_COUNT: usize = 16;

/// gRPC's CANCELLED, INTERNAL and UNAVAILABLE.
pub(crate) const CANCELLED: u16 = 1;
const INTERNAL: u16 = 13;
pub(crate) const UNAVAILABLE: u16 = 14;

/// The time that a thread wanted to wait at most is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing came within {0:?}")]
pub struct Late(pub Duration);

/// What both ends of a call have: a mailbox, and a loop to have things done.
#[derive(Clone, Debug)]
pub(crate) struct End {
    shared: Arc<SharedLoop>,
    mailbox: Arc<CallMailbox>,
}

impl End {
    /// Of a call that has not begun.
    pub(crate) fn new(shared: Arc<SharedLoop>) -> End {
        let mailbox = Arc::new(Mailbox::new(CallNews::new(next_number())));
        End { shared, mailbox }
    }

    pub(crate) fn of(shared: Arc<SharedLoop>, mailbox: Arc<CallMailbox>) -> End {
        End { shared, mailbox }
    }

    pub(crate) fn mailbox(&self) -> &Arc<CallMailbox> {
        &self.mailbox
    }

    pub(crate) fn shared(&self) -> &SharedLoop {
        &self.shared
    }

    /// Waits until something is so.
    fn wait(&self, is_done: impl Fn(&CallNews) -> bool + Sync, most: Option<Duration>) -> Result<(), Late> {
        match self.shared.wait(&self.mailbox, is_done, most) {
            true => Ok(()),
            false => Err(Late(most.unwrap_or(Duration::MAX))),
        }
    }

    /// Has something done with the call, once it has begun.
    pub(crate) fn run(&self, command: impl FnOnce(&mut EventLoop, CallId) + Send + 'static) {
        let mailbox = self.mailbox.clone();
        self.shared.run(move |leader| {
            let call = mailbox.lock().call();
            if let Some(call) = call {
                command(leader.events(), call);
            }
        });
    }

    /// Whether it is known already what [`receive`](End::receive) gives.
    pub(crate) fn has_news(&self) -> bool {
        let news = self.mailbox.lock();
        news.has_message() || news.heard_all()
    }

    pub(crate) fn receive(&self, most: Option<Duration>) -> Result<Option<Message>, Late> {
        self.wait(|news| news.has_message() || news.heard_all(), most)?;
        let next = self.mailbox.lock().next_message();
        let Some((message, resumes)) = next else { return Ok(None) };
        if resumes {
            self.run(EventLoop::resume);
        }
        Ok(Some(message))
    }

    /// Notes that a message is said.
    pub(crate) fn says(&self) -> Result<(), CallError> {
        let mut news = self.mailbox.lock();
        if news.status().is_some() {
            return Err(CallError::Ended);
        }
        news.says();
        Ok(())
    }

    /// Whether the next message may be said without waiting.
    pub(crate) fn has_room(&self) -> bool {
        let news = self.mailbox.lock();
        news.unsent_count() < UNSENT_COUNT || news.status().is_some()
    }

    /// Waits until the next message may be said.
    pub(crate) fn wait_for_room(&self) -> Result<(), CallError> {
        let _ = self.wait(|news| news.unsent_count() < UNSENT_COUNT || news.status().is_some(), None);
        match self.mailbox.lock().status() {
            Some(_) => Err(CallError::Ended),
            None => Ok(()),
        }
    }

    pub(crate) fn wait_ended(&self, most: Duration) -> Result<Status, Late> {
        self.wait(|news| news.status().is_some(), Some(most))?;
        self.status().ok_or(Late(most))
    }

    pub(crate) fn status(&self) -> Option<Status> {
        self.mailbox.lock().status().cloned()
    }

    /// Ends it here, unless it is over; the peer is told that code.
    pub(crate) fn cancel(&self, code: u16) {
        if !self.shared.end(&self.mailbox, Status::here(code, "this end has cancelled the call")) {
            return;
        }
        let mailbox = self.mailbox.clone();
        self.shared.run(move |leader| {
            let call = mailbox.lock().call();
            if let Some(call) = call {
                leader.events().cancel(call, code);
                leader.forget(call);
            }
        });
    }
}

/// A client's call. Any thread may use it, several at once where one reads and one writes. A call that is dropped before its end is cancelled.
#[derive(Debug)]
pub struct Call {
    end: End,
}

impl Call {
    pub(crate) fn new(end: End) -> Call {
        Call { end }
    }

    /// Says a message. Waits while earlier ones are not on their way.
    ///
    /// # Errors
    /// [`CallError::Ended`]: [`status`](Call::status) says how.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), CallError> {
        self.end.says()?;
        let message = message.into();
        // What has ended is told by its status.
        self.end.run(move |events, call| drop(events.send(call, message)));
        self.end.wait_for_room()
    }

    /// Says that no message follows.
    pub fn finish(&self) {
        self.end.run(|events, call| drop(events.finish(call)));
    }

    /// The next message; waits for it. `None`: none follows.
    pub fn receive(&self) -> Option<Message> {
        self.end.receive(None).unwrap_or_default()
    }

    /// The same, within a time.
    ///
    /// # Errors
    /// [`Late`].
    pub fn receive_within(&self, most: Duration) -> Result<Option<Message>, Late> {
        self.end.receive(Some(most))
    }

    /// The block of the answer's headers; waits for it. `None`: the call has ended without.
    pub fn headers(&self) -> Option<Bytes> {
        let _ = self.end.wait(|news| news.headers().is_some() || news.status().is_some(), None);
        self.end.mailbox.lock().headers().cloned()
    }

    /// How the call has ended; waits for that. Messages that came before can still be received.
    pub fn status(&self) -> Status {
        let _ = self.end.wait(|news| news.status().is_some(), None);
        self.end.status().unwrap_or_else(|| Status::here(UNAVAILABLE, "the loop of the call was closed"))
    }

    /// The only message of the answer; waits for the call's end.
    ///
    /// # Errors
    /// The call's status, where that is not OK; INTERNAL where there is not exactly one message.
    pub fn answer(&self) -> Result<Message, Status> {
        let status_of_end = self.status();
        if status_of_end.code != 0 {
            return Err(status_of_end);
        }
        let mut news = self.end.mailbox.lock();
        match (news.next_message(), news.has_message()) {
            (Some((message, _)), false) => Ok(message),
            (None, _) => Err(Status::here(INTERNAL, "the answer has no message, where there has to be one")),
            (Some(_), true) => {
                Err(Status::here(INTERNAL, "the answer has several messages, where there has to be one"))
            }
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.end.status().is_some()
    }

    /// Ends it, unless it is over: here and at the server with a gRPC code.
    pub fn cancel(&self, code: u16) {
        self.end.cancel(code);
    }

    /// Begins it with what a command says, and waits until `is_done`.
    pub(crate) fn begin_and_wait(
        &self,
        begin: impl FnOnce(&mut crate::leader::Leader) + Send + 'static,
        is_done: impl Fn(&CallNews) -> bool + Sync,
    ) {
        let Ok(_) = self.end.shared.wait_for(&Threads, Some(begin), &self.end.mailbox, is_done, None);
    }
}

/// Nobody wants it any more: it is cancelled, if it is not over.
impl Drop for Call {
    fn drop(&mut self) {
        self.end.cancel(CANCELLED);
    }
}
