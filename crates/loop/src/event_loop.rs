//! The loop: sessions by their ids, timers, and when to look or to sleep.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollfree_host::{Accepting, Config, HandshakeError, Ledger, Silent};
use tollfree_os::clock::now_ns;
use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_region::Origin;
use tollfree_rendezvous::{Address, BindError, PeerIdentity, Rendezvous};
use tollfree_session::{Closed, Ending};

use crate::call::Opening;
use crate::meeting::{Meeting, Met, Side, Wants};
use crate::poller::{Poller, Source};
use crate::session::{Looks, Session};
use crate::{CallError, CallId, ConnectErrorKind, Event, ListenerId, Message, SessionId};

/// While sessions are looked at, the kernel is asked this often, in nanoseconds, for what else has come.
const KERNEL_EVERY_NS: u64 = 50_000;
/// Clients that are accepted in one go.
const ACCEPT_COUNT: usize = 16;
/// After a failure to accept, which is out of descriptors or memory most likely, so long in nanoseconds.
const SHED_NS: u64 = 10_000_000;

/// What a loop can be told to do differently.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Settings of all sessions. Those for shepherds, pools, tokens and load have no meaning in a loop.
    pub session: Config,
    /// The longest message that is taken, in bytes; a longer one ends its call with RESOURCE_EXHAUSTED.
    pub message_len_max: usize,
}

impl Default for LoopConfig {
    fn default() -> LoopConfig {
        LoopConfig { session: Config::default(), message_len_max: 4 << 20 }
    }
}

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

/// Wakes a loop that sleeps, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Has [`EventLoop::wait`], or the host's poll, return soon.
    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug)]
enum Place {
    Meeting(Box<Meeting>),
    Session(Box<Session>),
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    place: Option<Place>,
    /// It stands in the list of those to be looked at.
    is_listed: bool,
    /// When its session wants a timer.
    due_ns: Option<u64>,
}

#[derive(Debug)]
struct Listening {
    rendezvous: Rendezvous,
    ledger: Arc<Ledger>,
    silent: Silent<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A handshake's end, or its next attempt.
    Meeting(SessionId),
    /// What a connection wants.
    Session(SessionId),
    /// A listener may accept again.
    Listener(u32),
}

/// See the [crate]. Belongs to one thread at a time.
#[derive(Debug)]
pub struct EventLoop {
    config: Arc<LoopConfig>,
    poller: Poller,
    slots: Vec<Slot>,
    /// Sessions that are to be looked at.
    listed: Vec<u32>,
    listeners: Vec<Option<Listening>>,
    events: VecDeque<Event>,
    timers: BTreeSet<(u64, Timer)>,
    /// When the kernel was asked last.
    asked_ns: u64,
    origin: Origin,
}

impl EventLoop {
    /// Without sessions.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: LoopConfig) -> io::Result<EventLoop> {
        Ok(EventLoop {
            config: Arc::new(config),
            poller: Poller::new()?,
            slots: Vec::new(),
            listed: Vec::new(),
            listeners: Vec::new(),
            events: VecDeque::new(),
            timers: BTreeSet::new(),
            asked_ns: 0,
            origin: Origin::current()?,
        })
    }

    /// Readable when there is something to do, once the loop is [armed](EventLoop::arm).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    /// For other threads.
    pub fn waker(&self) -> Waker {
        Waker(self.poller.waker())
    }

    /// Begins to connect: [`Event::Connected`] or [`Event::NotConnected`] follows.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn connect(&mut self, address: &Address) -> io::Result<SessionId> {
        self.check_process()?;
        let meeting = Meeting::dial(address, now_ns().saturating_add(self.handshake_ns()))?;
        self.meet(meeting)
    }

    /// Listens at an address: [`Event::Accepted`] follows for each client.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn listen(&mut self, address: &Address) -> Result<ListenerId, BindError> {
        let io = |source| BindError::Io { address: address.to_string(), source };
        self.check_process().map_err(io)?;
        tollfree_host::check_memory(&self.config.session)
            .map_err(|source| BindError::Memory { address: address.to_string(), source: source.into() })?;
        let rendezvous = Rendezvous::bind(address)?;
        rendezvous.listener().set_nonblocking(true).map_err(io)?;
        let idx = self.listeners.len() as u32;
        self.poller.watch_reads(rendezvous.listener(), Source::Listener(idx)).map_err(io)?;
        let ledger = Ledger::new(&self.config.session.quotas);
        self.listeners.push(Some(Listening { rendezvous, ledger, silent: Silent::default() }));
        Ok(ListenerId(idx))
    }

    /// Takes no new clients, and removes the socket. Sessions go on.
    pub fn unlisten(&mut self, listener: ListenerId) {
        if let Some(listening) = self.listeners.get_mut(listener.0 as usize).and_then(Option::take) {
            self.poller.forget(listening.rendezvous.listener());
        }
        let silent: Vec<_> = self.ids().filter(|id| self.is_silent_at(*id, listener)).collect();
        for id in silent {
            self.meeting_fails(id, HandshakeError::Closing.into());
        }
    }

    /// Who is at the other end of a session, by the kernel's word.
    pub fn peer(&self, session: SessionId) -> Option<PeerIdentity> {
        Some(self.session(session)?.identity())
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

    /// Ends a session, with all of its calls.
    pub fn close(&mut self, session: SessionId) {
        if let Some(session) = self.session_mut(session) {
            session.close(Closed::Here("the application has closed the session"));
        }
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
            found.say(number, |call| call.say(message))?;
        }
        if start.is_last {
            found.say(number, |call| call.end(Ending::HalfClose))?;
        }
        Ok(CallId::new(session, number))
    }

    /// Says a message. It is kept until there is room and credit for it: [`Event::Sent`] tells when.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn send(&mut self, call: CallId, message: Message) -> Result<(), CallError> {
        self.say(call, |said| said.say(message))
    }

    /// Says that no message follows (client).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn finish(&mut self, call: CallId) -> Result<(), CallError> {
        match self.serves(call) {
            true => Err(CallError::NotAClient),
            false => self.say(call, |said| said.end(Ending::HalfClose)),
        }
    }

    /// Says the headers of an answer, before its messages (server).
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

    /// Ends a call at once, in both directions; the peer sees the gRPC status `code`. No event follows.
    pub fn cancel(&mut self, call: CallId, code: u16) {
        if let Some(session) = self.session_mut(call.session) {
            session.cancel(call.number, code);
        }
    }

    fn say(
        &mut self,
        call: CallId,
        what: impl FnOnce(&mut crate::call::Call) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        self.session_mut(call.session).ok_or(CallError::Ended)?.say(call.number, what)
    }

    fn check_serves(&self, call: CallId) -> Result<(), CallError> {
        self.session(call.session).ok_or(CallError::Ended)?.check_serves()
    }

    /// What has happened next, if anything has. Never waits.
    pub fn poll(&mut self) -> Option<Event> {
        if self.origin.is_elsewhere() {
            return None;
        }
        if self.events.is_empty() {
            self.turn();
        }
        self.events.pop_front()
    }

    /// Waits for what happens next, for so long at most: looks at the rings while that is worth it, and sleeps. `None` also when another thread
    /// has called.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<Option<Event>> {
        self.check_process()?;
        let until_ns = most.map(|most| now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64));
        loop {
            if let Some(event) = self.poll() {
                return Ok(Some(event));
            }
            let now = now_ns();
            if until_ns.is_some_and(|until_ns| until_ns <= now) {
                return Ok(None);
            }
            if self.looks(now) {
                continue;
            }
            let due_ns = self.due_ns().into_iter().chain(until_ns).min();
            let most = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now)));
            if self.ask_kernel(most)? {
                return Ok(self.poll());
            }
        }
    }

    /// Before the host sleeps on [`fd`](EventLoop::fd), for [`timeout`](EventLoop::timeout) at most: all sessions are put to sleep. `false`: there is
    /// something, so [`poll`](EventLoop::poll) is to be called instead.
    pub fn arm(&mut self) -> bool {
        if self.origin.is_elsewhere() {
            return true;
        }
        self.turn();
        self.events.is_empty()
            && self.listed.iter().all(|idx| match &mut self.slots[*idx as usize].place {
                Some(Place::Session(session)) => !session.is_awake() || session.sleeps(),
                _ => true,
            })
    }

    /// A child of `fork` has no part in its parent's loop.
    fn check_process(&self) -> io::Result<()> {
        match self.origin.is_elsewhere() {
            false => Ok(()),
            true => Err(io::Error::other(
                "this process was forked from the one that made the loop; make another in the child",
            )),
        }
    }

    /// A session is to be looked at in the next turn.
    fn list(&mut self, idx: u32) {
        if !std::mem::replace(&mut self.slots[idx as usize].is_listed, true) {
            self.listed.push(idx);
        }
    }

    /// How long the host may sleep; `None`: until the descriptor has something.
    pub fn timeout(&self) -> Option<Duration> {
        self.due_ns().map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns())))
    }

    fn due_ns(&self) -> Option<u64> {
        self.timers.first().map(|(due_ns, _)| *due_ns)
    }

    fn handshake_ns(&self) -> u64 {
        self.config.session.handshake_timeout.as_nanos().min(u64::MAX.into()) as u64
    }

    fn ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.place.is_some());
        used.map(|(idx, slot)| SessionId { idx: idx as u32, generation: slot.generation })
    }

    fn place_mut(&mut self, id: SessionId) -> Option<&mut Place> {
        if self.origin.is_elsewhere() {
            return None;
        }
        let slot = self.slots.get_mut(id.idx as usize)?;
        if slot.generation == id.generation { slot.place.as_mut() } else { None }
    }

    fn session(&self, id: SessionId) -> Option<&Session> {
        if self.origin.is_elsewhere() {
            return None;
        }
        let slot = self.slots.get(id.idx as usize).filter(|slot| slot.generation == id.generation)?;
        match &slot.place {
            Some(Place::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// A session that something is done with: it is looked at in the next turn.
    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.session(id)?;
        self.list(id.idx);
        match self.place_mut(id) {
            Some(Place::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// Gives a socket a slot, and takes its first step.
    fn meet(&mut self, meeting: Meeting) -> io::Result<SessionId> {
        let idx = self.slots.iter().position(|slot| slot.place.is_none()).unwrap_or(self.slots.len());
        if idx == self.slots.len() {
            self.slots.push(Slot::default());
        }
        self.poller.watch_reads(&meeting.socket, Source::Socket(idx as u32))?;
        let slot = &mut self.slots[idx];
        slot.generation = slot.generation.wrapping_add(1);
        let id = SessionId { idx: idx as u32, generation: slot.generation };
        self.timers.insert((meeting.until_ns, Timer::Meeting(id)));
        slot.place = Some(Place::Meeting(Box::new(Meeting { wants: Wants::Read, ..meeting })));
        // What the first step says comes as an event, as any.
        self.timers.insert((0, Timer::Meeting(id)));
        Ok(id)
    }

    fn is_silent_at(&self, id: SessionId, listener: ListenerId) -> bool {
        match self.slots.get(id.idx as usize).map(|slot| (slot.generation, &slot.place)) {
            Some((generation, Some(Place::Meeting(meeting)))) if generation == id.generation => {
                meeting.is_silent()
                    && matches!(&meeting.side, Side::Accepts { listener: at, .. } if *at == listener)
            }
            _ => false,
        }
    }

    /// A socket that is to become a session goes on.
    fn meeting_steps(&mut self, id: SessionId) {
        let config = self.config.clone();
        loop {
            let Some(Place::Meeting(meeting)) = self.place_mut(id) else { return };
            let until_ns = meeting.until_ns;
            match meeting.step(&config.session) {
                Err(error) => return self.meeting_fails(id, error),
                Ok(Met::Session(attached)) => return self.begin(id, *attached),
                Ok(Met::Waits(Wants::After(pause))) if pause.is_zero() => {}
                Ok(Met::Waits(Wants::After(pause))) => {
                    let at_ns = now_ns() + pause.as_nanos() as u64;
                    self.timers.insert((at_ns.min(until_ns), Timer::Meeting(id)));
                    return;
                }
                Ok(Met::Waits(wants)) => {
                    if meeting.wants != wants {
                        meeting.wants = wants;
                        let socket = meeting.socket.try_clone();
                        let watched = socket.and_then(|socket| {
                            self.poller.wait_for(&socket, Source::Socket(id.idx), wants == Wants::Write)
                        });
                        if let Err(error) = watched {
                            self.meeting_fails(id, HandshakeError::Io(error).into());
                        }
                    }
                    return;
                }
            }
        }
    }

    fn take(&mut self, id: SessionId) -> Option<Place> {
        let slot = self.slots.get_mut(id.idx as usize).filter(|slot| slot.generation == id.generation)?;
        slot.place.take()
    }

    fn meeting_fails(&mut self, id: SessionId, kind: ConnectErrorKind) {
        let Some(Place::Meeting(meeting)) = self.take(id) else { return };
        self.timers.retain(|(_, timer)| *timer != Timer::Meeting(id));
        self.poller.forget(&meeting.socket);
        match (&meeting.side, kind) {
            (Side::Accepts { listener, .. }, ConnectErrorKind::Handshake(error)) => {
                meeting.refuse(&self.config.session, &error);
                let listener = *listener;
                // One that looks whether somebody listens, or has thought better of it: nothing is wrong with either.
                if !matches!(error, HandshakeError::Dead | HandshakeError::HungUp) {
                    self.events.push_back(Event::Refused { listener, error });
                }
            }
            (_, kind) => {
                self.events.push_back(Event::NotConnected { session: id, error: meeting.error(kind) })
            }
        }
        tollfree_rendezvous::socket::leave(&meeting.socket);
    }

    /// A session begins.
    fn begin(&mut self, id: SessionId, attached: tollfree_host::Attached) {
        let Some(Place::Meeting(meeting)) = self.take(id) else { return };
        self.timers.retain(|(_, timer)| *timer != Timer::Meeting(id));
        let message_len_max = self.config.message_len_max;
        let Meeting { socket, side, .. } = *meeting;
        let session = Session::new(id, attached, socket, &self.config.session, message_len_max);
        match self.watch(id, &session) {
            Ok(()) => {
                self.events.push_back(match side {
                    Side::Connects { .. } => Event::Connected { session: id },
                    Side::Accepts { listener, .. } => Event::Accepted { session: id, listener },
                });
                self.slots[id.idx as usize].place = Some(Place::Session(Box::new(session)));
                self.list(id.idx);
                // A doorbell, or a hang-up, may have come before anybody listened.
                if let Some(session) = self.session_mut(id) {
                    session.hears();
                }
            }
            Err(error) => {
                let error = HandshakeError::Io(error);
                self.events.push_back(match side {
                    Side::Connects { address, .. } => Event::NotConnected {
                        session: id,
                        error: crate::ConnectError { address: address.to_string(), kind: error.into() },
                    },
                    Side::Accepts { listener, .. } => Event::Refused { listener, error },
                });
            }
        }
    }

    fn watch(&self, id: SessionId, session: &Session) -> io::Result<()> {
        self.poller.wait_for(session.socket(), Source::Socket(id.idx), false)?;
        if let Some(doorbell) = session.doorbell() {
            self.poller.watch_rings(doorbell, Source::Doorbell(id.idx))?;
        }
        if let Some(death) = session.death() {
            self.poller.watch_reads(death, Source::Death(id.idx))?;
        }
        Ok(())
    }

    /// Takes clients that have come to a listener.
    fn accept(&mut self, idx: u32) {
        for _ in 0..ACCEPT_COUNT {
            let Some(Some(listening)) = self.listeners.get(idx as usize) else { return };
            let listener = ListenerId(idx);
            let socket = match listening.rendezvous.listener().accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors or memory, most likely: those connected go on, newcomers wait in the backlog.
                    self.poller.forget(listening.rendezvous.listener());
                    self.timers.insert((now_ns() + SHED_NS, Timer::Listener(idx)));
                    return;
                }
            };
            let ledger = listening.ledger.clone();
            if let Err(error) = self.take_in(listener, socket, ledger) {
                self.events.push_back(Event::Refused { listener, error });
            }
        }
    }

    fn take_in(
        &mut self,
        listener: ListenerId,
        socket: std::os::unix::net::UnixStream,
        ledger: Arc<Ledger>,
    ) -> Result<(), HandshakeError> {
        socket.set_nonblocking(true)?;
        let accepting = match Accepting::new(&socket, &self.config.session) {
            Ok(accepting) => accepting,
            Err(error) => {
                Accepting::refuse(&socket, &self.config.session, &error);
                return Err(error);
            }
        };
        let pid = accepting.identity().pid;
        let until_ns = now_ns().saturating_add(self.handshake_ns());
        let side = Side::Accepts { listener, accepting, ledger };
        let id = self.meet(Meeting { socket, side, until_ns, wants: Wants::Read })?;
        let silent: Vec<_> = self.ids().filter(|id| self.is_silent_at(*id, listener)).collect();
        let Some(Some(listening)) = self.listeners.get_mut(listener.0 as usize) else { return Ok(()) };
        if let Some(oldest) = listening.silent.add(pid, id, |id| silent.contains(id)) {
            self.meeting_fails(oldest, HandshakeError::Crowded.into());
        }
        Ok(())
    }

    /// Does all there is to do now. Whether that was anything.
    fn turn(&mut self) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.asked_ns) >= KERNEL_EVERY_NS {
            // What fails here fails for one who waits.
            let _ = self.ask_kernel(Some(Duration::ZERO));
        }
        let before = self.events.len();
        self.expire(now);
        let mut any = false;
        for idx in std::mem::take(&mut self.listed) {
            let slot = &mut self.slots[idx as usize];
            slot.is_listed = false;
            let Some(Place::Session(session)) = &mut slot.place else { continue };
            let id = SessionId { idx, generation: slot.generation };
            if !session.is_awake() {
                // It has armed its doorbell for what it waits for: a turn could leave it waiting for something else.
                continue;
            }
            any |= session.turn(&mut self.events);
            let is_awake = session.is_awake();
            self.after_turn(id, now);
            if is_awake {
                self.list(idx);
            }
        }
        any || self.events.len() > before
    }

    /// A session had its turn: its end, or its timer.
    fn after_turn(&mut self, id: SessionId, now: u64) {
        let slot = &mut self.slots[id.idx as usize];
        let Some(Place::Session(session)) = &mut slot.place else { return };
        let reason = session.closed().cloned();
        let due_ns = if reason.is_some() { None } else { session.timeout(now) };
        if due_ns != slot.due_ns {
            let before = std::mem::replace(&mut slot.due_ns, due_ns);
            if let Some(before) = before {
                self.timers.remove(&(before, Timer::Session(id)));
            }
            if let Some(due_ns) = due_ns {
                self.timers.insert((due_ns, Timer::Session(id)));
            }
        }
        if let Some(reason) = reason {
            slot.place = None;
            self.events.push_back(Event::Closed { session: id, reason });
        }
    }

    /// Sees to what is due.
    fn expire(&mut self, now: u64) {
        while let Some((due_ns, timer)) = self.timers.first().copied()
            && due_ns <= now
        {
            self.timers.remove(&(due_ns, timer));
            match timer {
                Timer::Meeting(id) => match self.place_mut(id) {
                    Some(Place::Meeting(meeting)) if meeting.until_ns <= now => {
                        let error = HandshakeError::Timeout(self.config.session.handshake_timeout);
                        self.meeting_fails(id, error.into());
                    }
                    _ => self.meeting_steps(id),
                },
                Timer::Session(id) => {
                    self.slots[id.idx as usize].due_ns = None;
                    // What follows is said in its turn.
                    if let Some(session) = self.session_mut(id) {
                        session.handle_timeout(now);
                    }
                }
                Timer::Listener(idx) => {
                    if let Some(Some(listening)) = self.listeners.get(idx as usize) {
                        let _ =
                            self.poller.watch_reads(listening.rendezvous.listener(), Source::Listener(idx));
                    }
                }
            }
        }
    }

    /// Nothing came: whether any session is to be looked at again. The others sleep.
    fn looks(&mut self, now: u64) -> bool {
        let mut looks = false;
        let mut offering = Vec::new();
        for idx in self.listed.iter().map(|idx| *idx as usize) {
            let Some(Place::Session(session)) = &mut self.slots[idx].place else { continue };
            if !session.is_awake() {
                continue;
            }
            match session.waits(now) {
                Looks::Again { offers } => {
                    looks = true;
                    if offers {
                        offering.push(idx);
                    }
                }
                Looks::NoMore => {}
            }
        }
        if !offering.is_empty() {
            rustix::thread::sched_yield();
            let away_ns = now_ns().saturating_sub(now);
            for idx in offering {
                if let Some(Place::Session(session)) = &mut self.slots[idx].place {
                    session.offered(now, away_ns);
                }
            }
        }
        looks
    }

    /// What has something, by its index; it is looked at in the next turn.
    fn heard_of(&mut self, idx: u32) -> Option<(SessionId, &mut Place)> {
        self.slots.get(idx as usize)?.place.as_ref()?;
        self.list(idx);
        let slot = &mut self.slots[idx as usize];
        Some((SessionId { idx, generation: slot.generation }, slot.place.as_mut()?))
    }

    /// Takes what the kernel has, within a time. Whether another thread has called.
    fn ask_kernel(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let mut sources = Vec::new();
        self.poller.wait(most, &mut sources)?;
        self.asked_ns = now_ns();
        for source in &sources {
            match *source {
                Source::Waker => {}
                Source::Listener(idx) => self.accept(idx),
                Source::Socket(idx) => match self.heard_of(idx) {
                    Some((_, Place::Session(session))) => session.hears(),
                    Some((id, Place::Meeting(_))) => self.meeting_steps(id),
                    None => {}
                },
                Source::Doorbell(idx) => {
                    if let Some((_, Place::Session(session))) = self.heard_of(idx) {
                        session.rung();
                    }
                }
                Source::Death(idx) => {
                    if let Some((_, Place::Session(session))) = self.heard_of(idx) {
                        session.died();
                    }
                }
            }
        }
        Ok(sources.contains(&Source::Waker))
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
