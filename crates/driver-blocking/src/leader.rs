//! What one thread at a time has: the loop, and for whom its events are.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollfree_driver_loop::{CallId, Event, EventLoop, SessionId, Status};

use crate::mailbox::Mailbox;
use crate::news::{CallMailbox, CallNews, SessionMailbox, Then};
use crate::notices::{Notice, Notices};
use crate::turns::{Command, Turns};

/// Who is told what no thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nobody.
    Nobody,
    /// A thread that takes [`Notices`].
    Notices,
    /// A thread that takes events. Of a server's calls it gets the beginning: what follows is for threads that wait.
    Calls,
    /// A thread that takes all events.
    Events,
}

/// See the module.
pub struct Leader {
    events: EventLoop,
    recipients: HashMap<CallId, Recipient>,
    sessions: HashMap<SessionId, Arc<SessionMailbox>>,
    told: Told,
    /// What was not taken yet.
    kept: VecDeque<Kept>,
    notices: Arc<Notices>,
    turns: Arc<Turns>,
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("calls", &self.recipients.len())
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

/// Who gets a call's events.
enum Recipient {
    /// Threads that wait.
    Mailbox { mailbox: Arc<CallMailbox>, number: u64 },
    /// The thread that takes events, by this number.
    Number(u64),
}

/// An event for the thread that takes them.
#[derive(Debug)]
pub enum Kept {
    /// A server's call has come, with its number; what follows is for its mailbox, if it has one.
    Call {
        /// [`Event::Call`].
        event: Event,
        /// The number that later events name it by.
        number: u64,
        /// Where threads wait for what follows.
        mailbox: Option<Arc<CallMailbox>>,
    },
    /// Something of a call, by its number.
    Of {
        /// Which.
        number: u64,
        /// What has happened.
        event: Event,
    },
    /// Anything else.
    Loop(Event),
}

/// The calls of this process that there have been.
static CALL_COUNT: AtomicU64 = AtomicU64::new(0);

/// A number for a call, which no other of this process has.
pub fn next_number() -> u64 {
    CALL_COUNT.fetch_add(1, Ordering::Relaxed) + 1
}

impl Leader {
    pub(crate) fn new(events: EventLoop, told: Told, notices: Arc<Notices>, turns: Arc<Turns>) -> Leader {
        let (recipients, sessions, kept) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Leader { events, recipients, sessions, told, kept, notices, turns }
    }

    /// The loop.
    pub fn events(&mut self) -> &mut EventLoop {
        &mut self.events
    }

    /// A call has a mailbox from now on, which is told of its events.
    pub fn begin(&mut self, call: CallId, mailbox: Arc<CallMailbox>) {
        let number = {
            let mut news = mailbox.lock();
            news.begins(call);
            news.number()
        };
        self.recipients.insert(call, Recipient::Mailbox { mailbox, number });
    }

    /// A call has a number from now on, by which the thread that takes events gets its own.
    pub fn number(&mut self, call: CallId) -> u64 {
        let number = next_number();
        self.recipients.insert(call, Recipient::Number(number));
        number
    }

    /// A call is of no interest any more.
    pub fn forget(&mut self, call: CallId) {
        self.recipients.remove(&call);
    }

    /// A session has a mailbox from now on.
    pub(crate) fn begin_session(&mut self, session: SessionId, mailbox: Arc<SessionMailbox>) {
        self.sessions.insert(session, mailbox);
    }

    /// Ends these sessions, and all that have mailboxes.
    pub(crate) fn close_sessions(&mut self, sessions: Vec<SessionId>) {
        for session in sessions.into_iter().chain(self.sessions.keys().copied().collect::<Vec<_>>()) {
            self.events.close(session);
        }
        self.pump();
    }

    fn takes_events(&self) -> bool {
        matches!(self.told, Told::Calls | Told::Events)
    }

    /// Puts an event where it belongs.
    pub(crate) fn sort(&mut self, event: Event) {
        let call = match &event {
            Event::Call { call, .. } => return self.comes(*call, event),
            Event::Headers { call, .. }
            | Event::Message { call, .. }
            | Event::HalfClosed { call }
            | Event::Sent { call }
            | Event::Ended { call, .. } => *call,
            Event::Connected { session }
            | Event::NotConnected { session, .. }
            | Event::Draining { session }
            | Event::Closed { session, .. } => return self.fares(*session, event),
            Event::ChannelChanged { channel, state } if self.told == Told::Notices => {
                return self.notices.push(Notice::Channel(*channel, *state));
            }
            _ => return self.keep(Kept::Loop(event)),
        };
        let is_end = matches!(event, Event::Ended { .. });
        match self.recipients.get(&call) {
            None => {}
            Some(Recipient::Number(number)) => {
                let number = *number;
                self.keep(Kept::Of { number, event });
                if is_end {
                    self.recipients.remove(&call);
                }
            }
            Some(Recipient::Mailbox { mailbox, number }) => {
                let number = *number;
                match mailbox.tell(|news| news.takes(event)) {
                    Then::Nothing => {}
                    Then::Pause => self.events.pause(call),
                    Then::Over(is_told) => {
                        self.recipients.remove(&call);
                        if is_told {
                            self.tell_end(call, number);
                        }
                    }
                }
            }
        }
    }

    /// A call is over, which is to be told: what else there is to know is in its mailbox.
    fn tell_end(&mut self, call: CallId, number: u64) {
        if self.takes_events() {
            return self.keep(Kept::Of { number, event: Event::Ended { call, status: Status::default() } });
        }
        self.turns.told();
        self.notices.push(Notice::Ended(number));
    }

    /// A client's call has come.
    fn comes(&mut self, call: CallId, event: Event) {
        let mailbox = match self.told {
            Told::Calls => Some(Arc::new(Mailbox::new(CallNews::new(next_number())))),
            _ => None,
        };
        let number = match &mailbox {
            Some(mailbox) => {
                let number = mailbox.lock().number();
                self.begin(call, mailbox.clone());
                number
            }
            None => self.number(call),
        };
        self.keep(Kept::Call { event, number, mailbox });
    }

    /// Something has happened to a session.
    fn fares(&mut self, session: SessionId, event: Event) {
        let is_last = matches!(event, Event::Closed { .. } | Event::NotConnected { .. });
        let mailbox = match is_last {
            true => self.sessions.remove(&session),
            false => self.sessions.get(&session).cloned(),
        };
        match mailbox {
            Some(mailbox) => mailbox.tell(|news| news.takes(event)),
            None => self.keep(Kept::Loop(event)),
        }
    }

    fn keep(&mut self, kept: Kept) {
        if self.takes_events() {
            self.kept.push_back(kept);
        }
    }

    /// Does all there is to do now: what was said goes out.
    pub fn pump(&mut self) {
        while let Some(event) = self.events.poll() {
            self.sort(event);
        }
    }

    /// Whether there are events to be taken.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The next events that are for no mailbox, up to a number.
    pub(crate) fn take_kept(&mut self, count: usize) -> Vec<Kept> {
        self.kept.drain(..self.kept.len().min(count)).collect()
    }

    /// Whether a thread that waits for events is to be woken for those there are.
    pub(crate) fn wakes_taker(&self) -> bool {
        self.told == Told::Calls && self.has_kept()
    }

    /// Waits for what happens next, for so long.
    pub(crate) fn wait(&mut self, most: Duration) {
        match self.events.wait((most != Duration::MAX).then_some(most)) {
            Ok(Some(event)) => {
                self.sort(event);
                self.pump();
            }
            Ok(None) => {}
            // The kernel is out of something: it is asked again.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    pub(crate) fn do_all(&mut self, commands: Vec<Command>) {
        for command in commands {
            command(self);
        }
        self.pump();
    }
}
