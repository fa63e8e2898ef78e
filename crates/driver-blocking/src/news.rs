//! What has come for a call, and for a session, where threads wait for it.

use std::collections::VecDeque;

use bytes::Bytes;
use tollfree_driver_loop::{CallId, Closed, ConnectError, Event, Message, Status};

use crate::mailbox::Mailbox;

/// Messages that wait to be read, at most, before the call is paused: as many, or as long together.
const KEPT_COUNT: usize = 64;
const KEPT_LEN: usize = 256 << 10;

/// What has come for a call.
#[derive(Debug, Default)]
pub struct CallNews {
    number: u64,
    call: Option<CallId>,
    headers: Option<Bytes>,
    messages: VecDeque<Message>,
    len: usize,
    status: Option<Status>,
    /// Messages that were said, and are not on their way.
    unsent_count: usize,
    is_paused: bool,
    /// A server's: the client says nothing more.
    is_half_closed: bool,
    /// The end is to be told.
    tells_end: bool,
}

/// What is to be done with a call for what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    Pause,
    /// It is over. `true`: that is to be told.
    Over(bool),
}

impl CallNews {
    /// Of a call that has not begun, with a number of its own.
    pub fn new(number: u64) -> CallNews {
        CallNews { number, ..CallNews::default() }
    }

    /// The number that notices and events name it by.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The call, once it has begun.
    pub fn call(&self) -> Option<CallId> {
        self.call
    }

    pub(crate) fn begins(&mut self, call: CallId) {
        self.call = Some(call);
    }

    /// Something has happened to the call.
    pub(crate) fn takes(&mut self, event: Event) -> Then {
        match event {
            Event::Headers { metadata, .. } => self.headers = Some(metadata),
            Event::Message { message, .. } => {
                self.len += message.len();
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

    /// The call is over, if it was not.
    pub(crate) fn end(&mut self, status: Status) -> Then {
        if self.status.is_some() {
            return Then::Nothing;
        }
        self.status = Some(status);
        self.unsent_count = 0;
        Then::Over(self.tells_end)
    }

    /// The block of the answer's headers, once they have come (client).
    pub fn headers(&self) -> Option<&Bytes> {
        self.headers.as_ref()
    }

    /// How the call has ended, once it has. There may be messages that came before.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Whether a message has come that was not taken.
    pub fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether no message follows those that have come.
    pub fn heard_all(&self) -> bool {
        self.is_half_closed || self.status.is_some()
    }

    /// The only message of a request, if all of it has come, and is nothing else (server).
    pub fn take_whole(&mut self) -> Option<Message> {
        let is_whole = self.is_half_closed && self.messages.len() == 1 && self.status.is_none();
        is_whole.then(|| self.next_message().map(|(message, _)| message)).flatten()
    }

    /// Messages that were said and are not on their way.
    pub fn unsent_count(&self) -> usize {
        self.unsent_count
    }

    /// A message was said.
    pub fn says(&mut self) {
        self.unsent_count += 1;
    }

    /// The next message. `true` beside it: the call is to go on, having been paused.
    pub fn next_message(&mut self) -> Option<(Message, bool)> {
        let message = self.messages.pop_front()?;
        self.len -= message.len();
        let resumes = self.is_paused && self.messages.len() <= KEPT_COUNT / 2 && self.len <= KEPT_LEN / 2;
        if resumes {
            self.is_paused = false;
        }
        Some((message, resumes))
    }

    /// The end is to be told. `false`: it has come already.
    pub fn tell_end(&mut self) -> bool {
        self.tells_end = true;
        self.status.is_none()
    }
}

/// Where the threads of a call wait.
pub type CallMailbox = Mailbox<CallNews>;

impl CallMailbox {
    /// The call can't begin, or is of no interest any more. Nobody else is told.
    pub fn fail(&self, status: Status) {
        self.tell(|news| news.end(status));
    }
}

/// How a session fares.
#[derive(Debug, Default)]
pub struct SessionNews {
    begun: Option<Result<(), ConnectError>>,
    is_draining: bool,
    closed: Option<Closed>,
}

/// Where the threads of a session wait.
pub(crate) type SessionMailbox = Mailbox<SessionNews>;

impl SessionNews {
    pub(crate) fn takes(&mut self, event: Event) {
        match event {
            Event::Connected { .. } => self.begun = Some(Ok(())),
            Event::NotConnected { error, .. } => self.begun = Some(Err(error)),
            Event::Draining { .. } => self.is_draining = true,
            Event::Closed { reason, .. } => self.closed = Some(reason),
            _ => {}
        }
    }

    /// Whether connecting has come to an end.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// What connecting came to; taken once.
    pub(crate) fn take_begun(&mut self) -> Option<Result<(), ConnectError>> {
        self.begun.take()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    pub(crate) fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }
}
