//! A session of a loop: its connection, its descriptors, and the calls that the application knows by numbers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tollfree_connection::{Connection, Wait};
use tollfree_host::{Attached, Config, Here, PeerPool, SocketEvent, counts};
use tollfree_layout::StreamId;
use tollfree_os::clock::now_ns;
use tollfree_os::rustix;
use tollfree_session::{
    self as session, Closed, End, Ending, Incoming, OutgoingMessage, Part, Progress, Role, SendError,
    Violation, Watched,
};

use crate::call::{Call, Opening, Refused};
use crate::calls::Calls;
use crate::channel::{is_of_channel, name_of};
use crate::descriptors::Descriptors;
use crate::refs::{Behind, Failure, Refs, Step};
use crate::sharing::{Recipient, Sharing};
use crate::{CallError, CallId, DEADLINE_EXCEEDED, Event, Message, SessionId, Status};

/// Reads of the socket for one event at most: a peer may ring without end.
const HEAR_COUNT: usize = 64;
/// Times that what a peer has left is received, each up to a bound: no longer than a full ring. It may not be dead, and go on writing.
const LEFT_ROUNDS: usize = 64;
/// What the peer of a call that is over is told, should it still say something.
const CANCELLED: u16 = 1;

/// What a stream keeps for this driver: the number of its call.
#[derive(Debug, Default)]
pub(crate) struct Number(u64);

impl Watched for Number {
    fn waits_to_read(&self) -> bool {
        true
    }

    fn waits_to_write(&self) -> bool {
        true
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    key: SessionId,
    connection: Connection<Number>,
    descriptors: Descriptors,
    calls: Calls,
    sharing: Arc<Sharing>,
    shares_pool: bool,
    refs: Refs,
    clock_shift_ns: i64,
    /// Something was said since the last flush.
    has_said: bool,
    lacks_room: bool,
    /// There is more to say, for which there may be room.
    has_more: bool,
    waiting: Waiting,
    was_told_of_drain: bool,
}

/// How a session waits for its peer.
#[derive(Debug)]
struct Waiting {
    is_awake: bool,
    began_ns: Option<u64>,
    /// It waits for what an offer of the processor comes to.
    is_offering: bool,
}

impl Session {
    pub(crate) fn new(
        key: SessionId,
        attached: Attached,
        descriptors: Descriptors,
        config: &Config,
        message_len_max: usize,
        sharing: Arc<Sharing>,
    ) -> Session {
        let clock_shift_ns = attached.clock_shift_ns;
        let shares_pool = attached.peer_pool == PeerPool::Same;
        Session {
            key,
            connection: Connection::new(attached.setup(config, false)),
            descriptors,
            calls: Calls::new(message_len_max),
            sharing,
            shares_pool,
            refs: Refs::default(),
            clock_shift_ns,
            has_said: false,
            lacks_room: false,
            has_more: false,
            waiting: Waiting { is_awake: true, began_ns: None, is_offering: false },
            was_told_of_drain: false,
        }
    }

    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Whether the peer is a member of the loop's pool.
    pub(crate) fn shares_pool(&self) -> bool {
        self.shares_pool
    }

    pub(crate) fn closed(&self) -> Option<&Closed> {
        self.connection.session().closed()
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.waiting.is_awake
    }

    /// Calls under way, and calls that wait to be opened.
    pub(crate) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// The descriptors' events, then everything that follows from them in the next [`turn`](Session::turn).
    pub(crate) fn wakes(&mut self) {
        if !self.waiting.is_awake {
            counts::woken();
            self.connection.woken(Here::thread_time);
        }
        self.waiting.is_awake = true;
        self.connection.unpark();
    }

    /// Its own doorbell rang, or is none any more.
    pub(crate) fn rung(&mut self) {
        self.wakes();
        if self.descriptors.is_doorbell_spoilt() {
            self.close(Closed::Violation(Violation::Socket(
                "a doorbell of this side's that can't be listened to any more",
            )));
        }
    }

    /// Something is on the socket.
    pub(crate) fn hears(&mut self) {
        self.wakes();
        for _ in 0..HEAR_COUNT {
            match self.descriptors.io().hear() {
                Ok(SocketEvent::Silent) => return,
                Ok(SocketEvent::Rang) => {}
                Ok(SocketEvent::Dead) => return self.died(),
                Err(violation) => return self.close(Closed::Violation(violation)),
            }
        }
    }

    /// The peer is gone: what it had published still counts.
    pub(crate) fn died(&mut self) {
        self.wakes();
        for _ in 0..LEFT_ROUNDS {
            if self.connection.receive_all(&mut self.descriptors.io()) == 0 {
                break;
            }
        }
        if self.connection.hung_up() {
            counts::peer_died();
        }
        self.descriptors.hang_up();
    }

    /// Ends the session from this side.
    pub(crate) fn close(&mut self, reason: Closed) {
        self.waiting.is_awake = true;
        if self.closed().is_none() {
            self.connection.close(reason, &mut self.descriptors.io());
        }
    }

    /// Sends what was said before this side ends the session (server), as far as there is room: an answer is not lost because no turn came.
    pub(crate) fn says_last(&mut self, events: &mut VecDeque<Event>) {
        if self.closed().is_some() || self.check_serves().is_err() {
            return;
        }
        for _ in 0..LEFT_ROUNDS {
            self.write(events);
            if !self.has_more {
                break;
            }
        }
        self.flush();
    }

    /// Takes no more calls (server).
    pub(crate) fn drain(&mut self) {
        self.waiting.is_awake = true;
        self.connection.session_mut().drain();
        self.flush();
        // An idle client may not have parked; this is worth one wake-up.
        self.connection.ring(&mut self.descriptors.io());
    }

    /// Begins a call (client). It waits for its turn where it can't be opened now.
    pub(crate) fn begin(&mut self, opening: Opening, metadata: Bytes) -> Result<u64, CallError> {
        self.check_begins()?;
        Ok(self.calls.begin(opening, metadata))
    }

    fn check_begins(&mut self) -> Result<(), CallError> {
        let session = self.connection.session();
        if session.role() != Role::Client {
            return Err(CallError::NotAClient);
        }
        if session.closed().is_some() || session.is_draining() {
            return Err(CallError::Over);
        }
        self.waiting.is_awake = true;
        Ok(())
    }

    /// Begins a call of a channel, by the number that it has there.
    pub(crate) fn begin_as(
        &mut self,
        number: u64,
        opening: Opening,
        metadata: Bytes,
    ) -> Result<(), CallError> {
        self.check_begins()?;
        self.calls.begin_as(number, opening, metadata);
        Ok(())
    }

    /// Has an application say something on a call.
    pub(crate) fn say(
        &mut self,
        number: u64,
        what: impl FnOnce(&mut Call) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        self.calls.say(number, what)?;
        self.waiting.is_awake = true;
        Ok(())
    }

    /// Has an application say a message on a call: by ref, if it is long and the peer a member of the pool.
    pub(crate) fn say_message(&mut self, number: u64, message: Message) -> Result<(), CallError> {
        self.calls.get_mut(number).ok_or(CallError::Ended)?;
        let message = self.outgoing(message);
        self.say(number, |call| call.say(message))
    }

    fn outgoing(&mut self, message: Message) -> OutgoingMessage {
        let sharing = self.sharing.clone();
        let in_flight = self.connection.session().segmented_messages_in_flight();
        let process = u32::try_from(self.descriptors.identity().pid).unwrap_or(0);
        let (is_member, session) = (self.shares_pool, RefCell::new(self));
        let look_for_taken = || session.borrow_mut().looks_for_taken();
        sharing.outgoing(message, Recipient { process, is_member, in_flight, look_for_taken })
    }

    /// Whether the peer has taken messages with refs, which it wakes nobody to say.
    fn looks_for_taken(&mut self) -> bool {
        let count = |session: &Session| session.connection.session().segmented_messages_in_flight();
        let before = count(self);
        let has_taken =
            before > 0 && self.connection.receive_all(&mut self.descriptors.io()) > 0 && count(self) < before;
        drop(self.connection.session_mut().take_spent());
        has_taken
    }

    /// Takes no messages of a call for now.
    pub(crate) fn pause(&mut self, number: u64) {
        self.calls.pause(number);
    }

    /// Takes messages of a call again.
    pub(crate) fn resume(&mut self, number: u64) {
        self.waiting.is_awake |= self.calls.resume(number);
    }

    /// A server's headers, message or end: not to be said by a client.
    pub(crate) fn check_serves(&self) -> Result<(), CallError> {
        match self.connection.session().role() {
            Role::Server => Ok(()),
            Role::Client => Err(CallError::NotAServer),
        }
    }

    /// Ends a call in both directions; the peer sees the gRPC status `code`. Whether there was one.
    pub(crate) fn cancel(&mut self, number: u64, code: u16) -> bool {
        let Some(call) = self.remove(number) else { return false };
        if let Some(id) = call.id() {
            self.connection.session_mut().forget(id, code);
        }
        (self.has_said, self.waiting.is_awake) = (true, true);
        true
    }

    /// A call is over. What its peer keeps for messages with refs that have not come is of no use any more.
    fn remove(&mut self, number: u64) -> Option<Call> {
        let mut call = self.calls.remove(number)?;
        let waited = self.refs.remove(number).map(|(segmented, _)| segmented);
        for segmented in call.take_partial().into_iter().chain(waited) {
            self.connection.session_mut().take_segmented(segmented);
            self.has_said = true;
        }
        Some(call)
    }

    /// Receives and says all there is, up to a bound.
    pub(crate) fn turn(&mut self, events: &mut VecDeque<Event>) {
        let came = self.connection.receive_all(&mut self.descriptors.io()) > 0;
        if came && let Some(began) = self.waiting.began_ns.take() {
            self.connection.wait_mut().wait_ended(began, now_ns(), now_ns);
        }
        self.accept(events);
        self.read_ready(events);
        self.look_for_refs(events);
        self.expire(events);
        self.open(events);
        self.write(events);
        self.flush();
        drop(self.connection.session_mut().take_spent());
        self.tell_of_end(events);
    }

    fn event_of(&self, number: u64) -> CallId {
        match is_of_channel(number) {
            true => name_of(number),
            false => CallId::new(self.key, number),
        }
    }

    /// Takes the calls that have come (server).
    fn accept(&mut self, events: &mut VecDeque<Event>) {
        while let Some(accepted) = self.connection.session_mut().accept() {
            self.connection.accepted();
            let path = self.connection.session().path_of(&accepted);
            let number = self.calls.came(accepted.id);
            if let Some(slot) = self.connection.session_mut().user_mut(accepted.id) {
                slot.0 = number;
            }
            let deadline_ns = match accepted.deadline_ns {
                0 => None,
                ns => Some(ns.saturating_add_signed(self.clock_shift_ns)),
            };
            let first = self.connection.session_mut().take(accepted.id);
            let metadata = match &first {
                // A request that came as a whole has its headers within.
                Some(Incoming::Request(whole)) => Bytes::copy_from_slice(whole.headers()),
                _ => accepted.headers,
            };
            events.push_back(Event::Call { call: self.event_of(number), path, metadata, deadline_ns });
            if let Some(first) = first
                && self.read_one(number, accepted.id, first, events)
            {
                self.read(number, accepted.id, events);
            }
        }
        self.connection.no_call();
    }

    fn read_ready(&mut self, events: &mut VecDeque<Event>) {
        while let Some(ready) = self.connection.session_mut().next_ready() {
            let Some(number) = self.connection.session_mut().user_mut(ready.id).map(|slot| slot.0) else {
                continue;
            };
            if ready.write {
                self.calls.wants_to_say(number);
            }
            if ready.read {
                self.read(number, ready.id, events);
            }
        }
        while self.connection.session_mut().next_abandoned().is_some() {}
        while let Some(number) = self.calls.next_resumed() {
            if let Some(id) = self.calls.get_mut(number).and_then(|call| call.id()) {
                self.read(number, id, events);
            }
        }
    }

    /// Takes what has come on a call. What came before its end is no more than its credit: that is taken while it is paused, too.
    fn read(&mut self, number: u64, id: StreamId, events: &mut VecDeque<Event>) {
        while !self.refs.waits(number)
            && let Some(call) = self.calls.get_mut(number)
            && (!call.leaves_unread() || self.connection.session().has_end(id))
            && let Some(incoming) = self.connection.session_mut().take(id)
            && self.read_one(number, id, incoming, events)
        {}
    }

    /// Takes one thing that has come on a call. `false`: nothing follows it.
    fn read_one(
        &mut self,
        number: u64,
        id: StreamId,
        incoming: Incoming,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let name = self.event_of(number);
        let Part { headers, chunk, end, forgotten } = incoming.into_part();
        // A credit for what was read is to be sent.
        self.has_said = true;
        if let Some(metadata) = headers {
            events.push_back(Event::Headers { call: name, metadata });
        }
        if let Some(chunk) = chunk {
            let segmented = chunk.segmented;
            let Some(call) = self.calls.get_mut(number) else {
                segmented
                    .into_iter()
                    .for_each(|segmented| self.connection.session_mut().take_segmented(segmented));
                return false;
            };
            match call.take(chunk, |message| events.push_back(Event::Message { call: name, message })) {
                Ok(None) => {}
                Ok(Some(gathered)) => {
                    let (segmented, len_max) = (gathered.segmented, self.calls.message_len_max());
                    match self.refs.take(number, gathered, len_max, &self.sharing, now_ns()) {
                        Some(came) => {
                            self.connection.session_mut().take_segmented(segmented);
                            if !self.comes(number, came, events) {
                                return false;
                            }
                        }
                        None => {
                            self.refs.put_behind(number, end.map(|end| (end, forgotten)));
                            return true;
                        }
                    }
                }
                Err(Refused(code)) => {
                    if let Some(segmented) = segmented {
                        self.connection.session_mut().take_segmented(segmented);
                    }
                    let words = "a message that came is too long, or none".into();
                    return self.comes(number, Err(Failure { code, words }), events);
                }
            }
        }
        self.read_end(number, id, end.map(|end| (end, forgotten)), events)
    }

    /// A message has come with hold taken of its refs, or never will. `false`: the call has ended with that.
    fn comes(
        &mut self,
        number: u64,
        message: Result<Message, Failure>,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let call = self.event_of(number);
        match message {
            Ok(message) => {
                events.push_back(Event::Message { call, message });
                true
            }
            Err(Failure { code, words }) => {
                self.cancel(number, code);
                events.push_back(Event::Ended { call, status: Status::here(code, &words) });
                false
            }
        }
    }

    /// Looks for messages whose refs were not here when they came.
    fn look_for_refs(&mut self, events: &mut VecDeque<Event>) {
        if self.refs.is_empty() {
            return;
        }
        let now = now_ns();
        let closed = self.closed().cloned();
        for number in self.refs.numbers() {
            let session = self.connection.session_mut();
            let asked = |segmented| session.asked_segmented(segmented);
            match self.refs.step(number, &self.sharing, now, closed.as_ref(), asked) {
                Step::Waits => {}
                Step::Ask(len) => {
                    if let Some(segmented) = self.refs.segmented(number) {
                        self.connection.session_mut().want_segmented(segmented, len);
                    }
                }
                Step::Done(came) => {
                    let Some((segmented, behind)) = self.refs.remove(number) else { continue };
                    self.connection.session_mut().take_segmented(segmented);
                    self.has_said = true;
                    if self.comes(number, came, events)
                        && let Some(id) = self.calls.get_mut(number).and_then(|call| call.id())
                        && self.read_end(number, id, behind, events)
                    {
                        self.read(number, id, events);
                    }
                }
            }
        }
        while self.connection.session_mut().next_asked().is_some() {}
    }

    /// What stands behind what has come on a call. `false`: nothing follows it.
    fn read_end(&mut self, number: u64, id: StreamId, behind: Behind, events: &mut VecDeque<Event>) -> bool {
        let name = self.event_of(number);
        let (end, forgotten) = behind.map_or((None, false), |(end, forgotten)| (Some(end), forgotten));
        let status = match end {
            None => return true,
            Some(End::HalfClosed) => {
                if let Some(call) = self.calls.get_mut(number)
                    && call.heard_all()
                {
                    events.push_back(Event::HalfClosed { call: name });
                }
                return false;
            }
            Some(End::Trailers { code, block }) => Status { code, metadata: block, ..Status::default() },
            Some(End::Cancelled { code, refused }) => {
                Status { code, unprocessed: refused, ..Status::default() }
            }
            // All calls are told when what came is read.
            Some(End::SessionClosed) => return false,
        };
        self.remove(number);
        if !forgotten {
            self.connection.session_mut().forget(id, CANCELLED);
        }
        events.push_back(Event::Ended { call: name, status });
        false
    }

    /// Ends calls whose deadlines have passed. An answer that has come before goes first.
    fn expire(&mut self, events: &mut VecDeque<Event>) {
        if self.calls.first_deadline_ns().is_none() {
            return;
        }
        let now = now_ns();
        while let Some(number) = self.calls.late(now) {
            self.cancel(number, DEADLINE_EXCEEDED);
            let status = Status::here(DEADLINE_EXCEEDED, "the deadline has passed");
            events.push_back(Event::Ended { call: self.event_of(number), status });
        }
    }

    /// Opens calls that wait, as far as possible.
    fn open(&mut self, events: &mut VecDeque<Event>) {
        while let Some((number, call)) = self.calls.first_to_open()
            && let Some((opening, outgoing)) = call.beginning()
        {
            let Opening { path, deadline_ns } = opening;
            let opening = session::Opening { path, deadline_ns: *deadline_ns };
            match self.connection.open(opening, outgoing) {
                Ok(Ok(id)) => {
                    self.calls.opened(number, id);
                    if let Some(slot) = self.connection.session_mut().user_mut(id) {
                        slot.0 = number;
                    }
                    self.has_said = true;
                }
                Ok(Err(progress)) => {
                    self.lacks_room = progress != Progress::NeedStream;
                    return;
                }
                Err(error) => self.fail(number, &error, events),
            }
        }
    }

    /// Says what there is to say, as far as there is room. The first that waits for it has it.
    fn write(&mut self, events: &mut VecDeque<Event>) {
        self.lacks_room &= self.calls.has_to_open();
        self.has_more = false;
        for _ in 0..self.calls.turn_count() {
            let Some(number) = self.calls.next_turn() else { return };
            match self.write_one(number, events) {
                Progress::NeedRoom => {
                    self.calls.turn_is_kept(number);
                    self.lacks_room = true;
                    return;
                }
                Progress::RanOut => {
                    self.calls.wants_to_say(number);
                    self.lacks_room = true;
                    return;
                }
                // One part at a time: others have their turn between.
                Progress::Partly => self.calls.wants_to_say(number),
                Progress::Done | Progress::NeedCredit | Progress::NeedStream => {}
            }
        }
        self.has_more = self.calls.turn_count() > 0;
    }

    fn write_one(&mut self, number: u64, events: &mut VecDeque<Event>) -> Progress {
        loop {
            let Some(call) = self.calls.get_mut(number) else { return Progress::Done };
            let Some(id) = call.id() else { return Progress::Done };
            let outgoing = call.next_outgoing();
            if outgoing.is_empty() {
                if call.has_said_all() {
                    events.push_back(Event::Sent { call: self.event_of(number) });
                }
                return Progress::Done;
            }
            let ends = matches!(outgoing.ending, Some(Ending::Trailers { .. }));
            self.has_said = true;
            match self.connection.send(id, outgoing) {
                Ok(Progress::Done) if ends => {
                    // What a client may still say is for nobody.
                    self.connection.session_mut().settle(id);
                    self.connection.session_mut().forget(id, CANCELLED);
                    self.remove(number);
                    return Progress::Done;
                }
                Ok(Progress::Done) => {}
                Ok(progress) => return progress,
                // How it has ended comes to be read.
                Err(SendError::Ended) => return Progress::Done,
                Err(error) => {
                    self.fail(number, &error, events);
                    return Progress::Done;
                }
            }
        }
    }

    /// What a call was to say can't be said.
    fn fail(&mut self, number: u64, error: &SendError, events: &mut VecDeque<Event>) {
        let is_open = self.calls.get_mut(number).is_some_and(|call| call.id().is_some());
        self.cancel(number, crate::INTERNAL);
        let is_over = matches!(error, SendError::Closed(_) | SendError::Draining);
        let code = if is_over { crate::UNAVAILABLE } else { crate::INTERNAL };
        // Of a call that was opened, the server may have seen something.
        let unprocessed = is_over && !is_open;
        let status = Status { unprocessed, ..Status::here(code, &error.to_string()) };
        events.push_back(Event::Ended { call: self.event_of(number), status });
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.has_said) || self.connection.session().has_pending() {
            let flushed = self.connection.flush(&mut self.descriptors.io(), false);
            self.lacks_room |= flushed.lacks_room;
        }
    }

    /// Tells the application once that no call begins any more, and of all calls that the session's end takes along.
    fn tell_of_end(&mut self, events: &mut VecDeque<Event>) {
        let session = self.connection.session();
        if session.role() == Role::Client && session.is_draining() && !self.was_told_of_drain {
            self.was_told_of_drain = true;
            events.push_back(Event::Draining { session: self.key });
        }
        let Some(closed) = self.connection.session().closed() else { return };
        let words = closed.to_string();
        for (number, call) in self.calls.take_all() {
            let unprocessed = call.id().is_none();
            let status = Status { unprocessed, ..Status::here(crate::UNAVAILABLE, &words) };
            events.push_back(Event::Ended { call: self.event_of(number), status });
        }
    }

    /// When the connection wants a timer.
    pub(crate) fn timeout(&mut self, now_ns: u64) -> Option<u64> {
        if self.connection.wants_timer() {
            self.connection.timer_told();
        }
        let connection = self.connection.timeout(now_ns);
        let refs = self.refs.due_ns(now_ns);
        self.calls.first_deadline_ns().into_iter().chain(connection).chain(refs).min()
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        // The ring is looked at in the next turn, and deadlines too.
        self.waiting.is_awake = true;
        self.connection.handle_timeout(now_ns, &mut self.descriptors.io());
    }

    /// Nothing came: whether to look again, and whether others are offered the processor before.
    pub(crate) fn waits(&mut self, now_ns: u64) -> Looks {
        if self.has_more {
            return Looks::Again;
        }
        let began = *self.waiting.began_ns.get_or_insert(now_ns);
        if began == now_ns {
            self.connection.wait_mut().wait_begins(now_ns);
        }
        self.connection.take_hint(now_ns);
        match self.connection.decide(now_ns - began, now_ns, &Here) {
            Wait::Spin { offers } => {
                self.connection.unpark();
                self.looks_again(offers)
            }
            Wait::Probe { offers } => {
                self.arms();
                self.waiting.is_awake = true;
                self.looks_again(offers)
            }
            Wait::Park => {
                self.connection.wait_mut().parks(Here::thread_time);
                match self.sleeps() {
                    true => {
                        counts::parked();
                        counts::looked(now_ns - began);
                        Looks::NoMore
                    }
                    false => Looks::Again,
                }
            }
        }
    }

    /// Arms the doorbell; `false`: there is something.
    fn arms(&mut self) -> bool {
        let armed = self.connection.arm(self.lacks_room);
        if armed && self.lacks_room && self.connection.has_room() {
            self.connection.unpark();
            return false;
        }
        armed
    }

    fn looks_again(&mut self, offers: bool) -> Looks {
        self.waiting.is_offering = offers;
        if offers { Looks::AgainWithOffer } else { Looks::Again }
    }

    /// Goes to sleep; `false`: there is something to do first.
    pub(crate) fn sleeps(&mut self) -> bool {
        self.waiting.is_awake = self.has_more || !self.arms();
        !self.waiting.is_awake
    }

    /// Lets other processes have this processor, once in a number of times, if this end is a good neighbor.
    pub(crate) fn offer_now_and_then(&mut self) {
        if self.connection.wait().is_thrifty() && Here::is_offer_due() {
            // Where the peer has this processor too, it did what is waited for, however long that took.
            let shared = self.connection.shares_cpu(rustix::thread::sched_getcpu() as u32);
            Here::offer(if shared { u64::MAX } else { self.connection.wait().taken_ns() });
        }
    }

    /// The processor was offered to others at `now_ns`, and came back after `away_ns`.
    pub(crate) fn offered(&mut self, now_ns: u64, away_ns: u64) {
        if !std::mem::take(&mut self.waiting.is_offering) {
            return;
        }
        let shared = self.connection.shares_cpu(rustix::thread::sched_getcpu() as u32);
        self.connection.wait_mut().saw_peer(shared);
        if !shared {
            let wait = self.connection.wait();
            Here::offered(now_ns, away_ns, wait.taken_ns(), wait.is_thrifty());
        }
    }
}

/// What a session that waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    Again,
    /// The processor is offered to others before.
    AgainWithOffer,
    NoMore,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.says_last(&mut VecDeque::new());
        self.close(Closed::Here("nobody here needs the session any more"));
    }
}
