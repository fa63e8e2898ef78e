//! What has come for one call of a client, where threads wait for it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tollfree_driver_loop::{CallId, Event, Message, Status};

use bytes::Bytes;

/// Messages that wait to be read, at most, before the call is paused: as many, or as long together.
const KEPT_COUNT: usize = 64;
const KEPT_LEN: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox {
    came: Mutex<Came>,
    changed: Condvar,
    /// Told in the client's notices when the call is over.
    number: u64,
}

/// What has come for a call.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// The call, once it has begun.
    pub(crate) call: Option<CallId>,
    headers: Option<Bytes>,
    messages: VecDeque<Message>,
    len: usize,
    status: Option<Status>,
    /// Messages that were said, and are not on their way.
    unsent_count: usize,
    is_paused: bool,
    /// A server's: the client says nothing more.
    is_half_closed: bool,
    /// The waiting thread is to lead.
    is_promoted: bool,
    /// Python is to be told when the call is over.
    tells_end: bool,
}

/// What is to be done with a call for what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    Pause,
    /// It is over. `true`: Python is to be told.
    Over(bool),
}

impl Mailbox {
    pub(crate) fn new(number: u64) -> Mailbox {
        Mailbox { came: Mutex::default(), changed: Condvar::new(), number }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Came> {
        self.came.lock()
    }

    /// Something has happened to the call.
    pub(crate) fn takes(&self, event: Event) -> Then {
        let mut came = self.came.lock();
        let then = came.takes(event);
        self.changed.notify_all();
        then
    }

    /// The call can't begin, or its loop is gone.
    pub(crate) fn fails(&self, status: Status) -> Then {
        let mut came = self.came.lock();
        let then = came.end(status);
        self.changed.notify_all();
        then
    }

    /// The thread that waits here leads from now on.
    pub(crate) fn promote(&self) {
        self.came.lock().is_promoted = true;
        self.changed.notify_all();
    }

    /// Waits until `is_done`, or until this thread is to lead, or for so long. `true`: it is to lead.
    pub(crate) fn wait(&self, is_done: impl Fn(&Came) -> bool, most: Duration) -> bool {
        let mut came = self.came.lock();
        if !is_done(&came) && !came.is_promoted {
            self.changed.wait_while_for(&mut came, |came| !is_done(came) && !came.is_promoted, most);
        }
        came.take_lead()
    }

    /// Whether the thread that waited here leads.
    pub(crate) fn leads(&self) -> bool {
        self.came.lock().take_lead()
    }
}

impl Came {
    fn take_lead(&mut self) -> bool {
        std::mem::take(&mut self.is_promoted)
    }

    fn takes(&mut self, event: Event) -> Then {
        match event {
            Event::Headers { metadata, .. } => self.headers = Some(metadata),
            Event::Message { message, .. } => {
                self.len += message.bytes.len();
                self.messages.push_back(message);
                if self.messages.len() >= KEPT_COUNT || self.len >= KEPT_LEN {
                    return match std::mem::replace(&mut self.is_paused, true) {
                        true => Then::Nothing,
                        false => Then::Pause,
                    };
                }
            }
            Event::Sent { .. } => self.unsent_count = 0,
            Event::HalfClosed { .. } => self.is_half_closed = true,
            Event::Ended { status, .. } => return self.end(status),
            _ => {}
        }
        Then::Nothing
    }

    fn end(&mut self, status: Status) -> Then {
        if self.status.is_some() {
            return Then::Nothing;
        }
        self.status = Some(status);
        self.unsent_count = 0;
        Then::Over(self.tells_end)
    }

    pub(crate) fn headers(&self) -> Option<&Bytes> {
        self.headers.as_ref()
    }

    pub(crate) fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    pub(crate) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether no message follows those that have come.
    pub(crate) fn heard_all(&self) -> bool {
        self.is_half_closed || self.status.is_some()
    }

    /// The only message of a request, if all of it has come, and is nothing else.
    pub(crate) fn take_whole(&mut self) -> Option<Message> {
        let is_whole = self.is_half_closed && self.messages.len() == 1 && self.status.is_none();
        is_whole.then(|| self.next_message().map(|(message, _)| message)).flatten()
    }

    /// Messages that were said and are not on their way.
    pub(crate) fn unsent_count(&self) -> usize {
        self.unsent_count
    }

    /// A message was said.
    pub(crate) fn says(&mut self) {
        self.unsent_count += 1;
    }

    /// The next message. `true` beside it: the call is to go on, having been paused.
    pub(crate) fn next_message(&mut self) -> Option<(Message, bool)> {
        let message = self.messages.pop_front()?;
        self.len -= message.bytes.len();
        let resumes = self.is_paused && self.messages.len() <= KEPT_COUNT / 2 && self.len <= KEPT_LEN / 2;
        if resumes {
            self.is_paused = false;
        }
        Some((message, resumes))
    }

    /// Python is to be told of the end. `false`: it has come already.
    pub(crate) fn tell_end(&mut self) -> bool {
        self.tells_end = true;
        self.status.is_none()
    }
}
