//! The loop, as the application has it.

mod channels;
mod health;
mod meetings;
mod turns;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollfree_host::{Config, HandshakeError, Purpose, Registration};
use tollfree_os::clock::now_ns;
use tollfree_os::fd::{AsFd, BorrowedFd};
use tollfree_region::Origin;
use tollfree_rendezvous::{Address, BindError, PeerIdentity};
use tollfree_session::{Closed, Ending};

use crate::call::{Call, Opening};
use crate::channel::{Channels, is_of_channel};
use crate::config::LoopConfig;
use crate::listeners::Listeners;
use crate::meeting::Meeting;
use crate::poller::{Poller, Waker};
use crate::session::Session;
use crate::sharing::Sharing;
use crate::slots::Slots;
use crate::timers::Timers;
use crate::{CallError, CallId, Event, ListenerId, Message, PayloadCounts, SessionId};

/// How a call begins.
#[derive(Clone, Debug)]
pub struct CallStart<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// A block of metadata.
    pub metadata: Bytes,
    /// On this host's monotonic clock, in nanoseconds. The call ends with DEADLINE_EXCEEDED then.
    pub deadline_ns: Option<u64>,
    /// The first message.
    pub message: Option<Message>,
    /// No other message follows.
    pub is_last: bool,
}

impl<'a> CallStart<'a> {
    /// Without metadata, deadline and message.
    pub fn new(path: &'a str) -> CallStart<'a> {
        CallStart { path, metadata: Bytes::new(), deadline_ns: None, message: None, is_last: false }
    }
}

/// See the [crate]. Belongs to one thread at a time.
#[derive(Debug)]
pub struct EventLoop {
    config: Arc<Config>,
    message_len_max: usize,
    sharing: Arc<Sharing>,
    poller: Poller,
    slots: Slots,
    listeners: Listeners,
    /// What has happened in the last turn, and was not taken yet. There is no other turn before.
    events: VecDeque<Event>,
    timers: Timers,
    channels: Channels,
    origin: Origin,
}

impl EventLoop {
    /// Without sessions.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: LoopConfig) -> io::Result<EventLoop> {
        let sharing = Sharing::new(config.pool.clone());
        Ok(EventLoop {
            config: Arc::new(config.session(sharing.pool_id())),
            message_len_max: config.message_len_max,
            sharing: Arc::new(sharing),
            poller: Poller::new()?,
            slots: Slots::default(),
            listeners: Listeners::default(),
            events: VecDeque::new(),
            timers: Timers::default(),
            channels: Channels::default(),
            origin: Origin::current()?,
        })
    }

    /// Readable when there is something to do, once the loop is [armed](EventLoop::arm).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    /// For other threads.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Begins to connect: [`Event::Connected`] or [`Event::NotConnected`] follows, within the handshake's time.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn connect(&mut self, address: &Address) -> io::Result<SessionId> {
        self.connect_for(address, Purpose::Call)
    }

    /// Begins to connect to a gateway, whose clients' calls come in this session: this end is its server. [`Event::Connected`] or
    /// [`Event::NotConnected`] follows, within the handshake's time. A call is told to the gateway's clients as
    /// unavailable while no session is there: reconnecting is the application's.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn attach(&mut self, address: &Address, registration: Registration) -> io::Result<SessionId> {
        self.connect_for(address, Purpose::Attach(registration))
    }

    fn connect_for(&mut self, address: &Address, purpose: Purpose) -> io::Result<SessionId> {
        self.check_process()?;
        let meeting = Meeting::dial(address, purpose, self.handshake_end_ns())?;
        Ok(self.meet(meeting))
    }

    /// Listens at an address: [`Event::Accepted`] follows for each client.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn listen(&mut self, address: &Address) -> Result<ListenerId, BindError> {
        self.check_process().map_err(|source| BindError::Io { address: address.to_string(), source })?;
        tollfree_host::check_memory(&self.config)
            .map_err(|source| BindError::Memory { address: address.to_string(), source: source.into() })?;
        self.listeners.add(address, &self.config.quotas, &self.poller)
    }

    /// Takes no new clients, and removes the socket. Sessions go on. Whether there was such a listener.
    pub fn unlisten(&mut self, listener: ListenerId) -> bool {
        let Some(silent) = self.listeners.remove(listener, &self.poller) else { return false };
        for id in silent {
            if self.slots.meeting(id).is_some_and(Meeting::is_silent) {
                self.meeting_fails(id, HandshakeError::Closing.into());
            }
        }
        true
    }

    /// Who is at the other end of a session, as the kernel says.
    pub fn peer(&self, session: SessionId) -> Option<PeerIdentity> {
        Some(self.session(session)?.descriptors().identity())
    }

    /// Whether the process at the other end of a session is a member of the loop's pool, so that long messages go by ref.
    pub fn shares_pool(&self, session: SessionId) -> bool {
        self.session(session).is_some_and(Session::shares_pool)
    }

    /// What became of the long messages of this loop, in all sessions.
    pub fn payloads(&self) -> PayloadCounts {
        self.sharing.counts()
    }

    /// Calls under way in a session.
    pub fn call_count(&self, session: SessionId) -> usize {
        self.session(session).map_or(0, Session::call_count)
    }

    /// Whether a call is to be answered by this end.
    pub fn serves(&self, call: CallId) -> bool {
        self.session(call.session).is_some_and(|session| session.check_serves().is_ok())
    }

    /// Takes no more calls in a session (server): the client is told which it may make elsewhere.
    pub fn drain(&mut self, session: SessionId) {
        if let Some(session) = self.session_mut(session) {
            session.drain();
        }
    }

    /// Ends a session, with all of its calls: [`Event::Ended`] follows for each, then [`Event::Closed`]. What a server has said before is sent first, as
    /// far as the ring has room.
    pub fn close(&mut self, session: SessionId) {
        let mut events = std::mem::take(&mut self.events);
        if let Some(session) = self.session_mut(session) {
            session.says_last(&mut events);
            session.close(Closed::Here("the application has closed the session"));
        }
        self.events = events;
    }

    /// Begins a call. Where it can't be opened now, it waits for its turn.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(&mut self, session: SessionId, start: CallStart<'_>) -> Result<CallId, CallError> {
        let opening = Opening { path: start.path.to_owned(), deadline_ns: start.deadline_ns.unwrap_or(0) };
        let found = self.session_mut(session).ok_or(CallError::Over)?;
        let number = found.begin(opening, start.metadata)?;
        if let Some(message) = start.message {
            found.say_message(number, message)?;
        }
        if start.is_last {
            found.say(number, |call| call.end(Ending::HalfClose))?;
        }
        Ok(CallId::new(session, number))
    }

    /// Says a message. It is kept until there is room and credit for it: [`Event::Sent`] tells when. A server's first message says empty headers
    /// where no others were said.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn send(&mut self, call: CallId, message: Message) -> Result<(), CallError> {
        match is_of_channel(call.number) {
            true => self.channel_say(call.number, Some(message)),
            false => {
                self.session_mut(call.session).ok_or(CallError::Ended)?.say_message(call.number, message)
            }
        }
    }

    /// Says that no message follows (client).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn finish(&mut self, call: CallId) -> Result<(), CallError> {
        match self.serves(call) {
            true => Err(CallError::NotAClient),
            false if is_of_channel(call.number) => self.channel_say(call.number, None),
            false => self.say(call, |said| said.end(Ending::HalfClose)),
        }
    }

    /// Says the headers of an answer, once, before its messages (server).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn answer_headers(&mut self, call: CallId, metadata: Bytes) -> Result<(), CallError> {
        self.check_serves(call)?;
        self.say(call, |said| said.say_headers(metadata))
    }

    /// Ends a call with a gRPC status and trailing metadata, behind what was said before (server).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn answer_end(&mut self, call: CallId, code: u16, metadata: Bytes) -> Result<(), CallError> {
        self.check_serves(call)?;
        self.say(call, |said| said.end(Ending::Trailers { code, block: metadata }))
    }

    /// Takes no more messages of a call for now: a few that have come may still be told. The peer sends as far as its credit goes, then waits. The call's
    /// end is told all the same, with what came before it.
    pub fn pause(&mut self, call: CallId) {
        match self.session_mut(call.session) {
            Some(session) => session.pause(call.number),
            None => self.channel_pause(call.number, true),
        }
    }

    /// Takes the messages of a call again.
    pub fn resume(&mut self, call: CallId) {
        match self.session_mut(call.session) {
            Some(session) => session.resume(call.number),
            None => self.channel_pause(call.number, false),
        }
    }

    /// Ends a call at once, in both directions; the peer sees the gRPC status `code`. No event follows.
    pub fn cancel(&mut self, call: CallId, code: u16) {
        match self.session_mut(call.session) {
            Some(session) => drop(session.cancel(call.number, code)),
            None => self.channel_cancel(call.number, code),
        }
    }

    fn say(
        &mut self,
        call: CallId,
        what: impl FnOnce(&mut Call) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        self.session_mut(call.session).ok_or(CallError::Ended)?.say(call.number, what)
    }

    fn check_serves(&self, call: CallId) -> Result<(), CallError> {
        self.session(call.session).ok_or(CallError::Ended)?.check_serves()
    }

    /// What has happened next, if anything has. Never waits. A busy session may have an event each time: a host that has other things to do takes a
    /// number of them at once.
    pub fn poll(&mut self) -> Option<Event> {
        if self.origin.is_elsewhere() {
            return None;
        }
        self.poller.is_awake();
        loop {
            if self.events.is_empty() {
                self.turn();
            }
            if self.events.is_empty() {
                return None;
            }
            while let Some(event) = self.events.pop_front() {
                if let Some(event) = self.pass(event) {
                    return Some(event);
                }
            }
            // What was seen to here may have left a session something to say, which must not sleep before.
        }
    }

    /// Waits for what happens next, for so long at most: looks at the rings while that is worth it, and sleeps. `None` also when another thread
    /// has called since the last wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<Option<Event>> {
        self.check_process()?;
        let until_ns = most.map(|most| now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64));
        loop {
            // Before events: there may be no end of them.
            if self.poller.take_call() {
                return Ok(None);
            }
            if let Some(event) = self.poll() {
                return Ok(Some(event));
            }
            let now = now_ns();
            if self.poller.is_called() {
                continue;
            }
            if until_ns.is_some_and(|until_ns| until_ns <= now) {
                return Ok(None);
            }
            if self.looks(now) {
                continue;
            }
            let due_ns = self.timers.first_ns().into_iter().chain(until_ns).min();
            if self.poller.may_sleep() {
                self.ask_kernel(due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now))))?;
            }
            self.poller.is_awake();
        }
    }

    /// The next message of a call, if it has come, nothing has happened before it, and it `fits`. Takes no turn: for hosts that take the messages of a stream together.
    pub fn next_message(&mut self, call: CallId, fits: impl FnOnce(&Message) -> bool) -> Option<Message> {
        match self.events.front() {
            Some(Event::Message { call: of, message }) if *of == call && fits(message) => {}
            _ => return None,
        }
        let event = self.events.pop_front()?;
        match self.pass(event) {
            Some(Event::Message { message, .. }) => Some(message),
            _ => None,
        }
    }

    /// What happens within so long, by looking at the rings: ends sooner where that is not worth it, and never sleeps. For hosts that hold a lock which
    /// is dear to give up for a short time.
    pub fn look(&mut self, most: Duration) -> Option<Event> {
        let until_ns = now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64);
        loop {
            if let Some(event) = self.poll() {
                return Some(event);
            }
            let now = now_ns();
            if until_ns <= now || self.poller.is_called() || self.origin.is_elsewhere() || !self.looks(now) {
                return None;
            }
        }
    }

    /// Before the host sleeps on [`fd`](EventLoop::fd), for [`timeout`](EventLoop::timeout) at most: all sessions are put to sleep. `false`: there is
    /// something, or another thread has called, so [`poll`](EventLoop::poll) is to be called instead.
    pub fn arm(&mut self) -> bool {
        if self.origin.is_elsewhere() {
            return true;
        }
        if self.events.is_empty() {
            self.turn();
        }
        if !self.events.is_empty() || self.poller.take_call() {
            return false;
        }
        let mut all_sleep = true;
        self.slots
            .listed_sessions(|session| all_sleep = all_sleep && (!session.is_awake() || session.sleeps()));
        all_sleep && self.poller.may_sleep()
    }

    /// How long the host may sleep; `None`: until the descriptor has something.
    pub fn timeout(&self) -> Option<Duration> {
        self.timers.first_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns())))
    }

    /// Whether this process was forked from the loop's, and has no part in it.
    pub fn is_inherited(&self) -> bool {
        self.origin.is_elsewhere()
    }

    /// A child of `fork` has no part in its parent's loop.
    fn check_process(&self) -> io::Result<()> {
        match self.origin.is_elsewhere() {
            false => Ok(()),
            true => Err(io::Error::other(
                "this process was forked, and the loop is its parent's: make another in the child",
            )),
        }
    }

    fn handshake_end_ns(&self) -> u64 {
        let most = self.config.handshake_timeout.as_nanos().min(u64::MAX.into()) as u64;
        now_ns().saturating_add(most)
    }

    fn session(&self, id: SessionId) -> Option<&Session> {
        self.slots.session(id).filter(|_| !self.origin.is_elsewhere())
    }

    /// A session that something is done with: it is looked at in the next turn.
    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.session(id)?;
        self.slots.list(id);
        self.slots.session_mut(id)
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        if self.origin.is_elsewhere() {
            // Sessions and sockets are the parent's: nothing is said on them, and no file is removed.
            std::mem::forget((std::mem::take(&mut self.slots), std::mem::take(&mut self.listeners)));
        }
    }
}

impl AsFd for EventLoop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
