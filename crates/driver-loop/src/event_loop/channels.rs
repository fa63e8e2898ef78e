//! Channels in the loop: connecting, placing calls, and what of sessions' events concerns the application.

use tollfree_balancer::{Failure, Pushback};
use tollfree_host::{ConnectErrorKind, HandshakeError};
use tollfree_layout::metadata;
use tollfree_os::clock::now_ns;
use tollfree_rendezvous::AddressError;
use tollfree_session::Ending;

use crate::call::Opening;
use crate::channel::{
    Channel, ChannelCall, Choice, Due, Health, NO_SESSION, Next, NextWatch, Remains, Unplaced, is_of_channel,
    name_of,
};
use crate::timers::Timer;
use crate::{
    CallError, CallId, CallStart, CallTerms, ChannelConfig, ChannelId, ChannelState, DEADLINE_EXCEEDED,
    Event, EventLoop, Message, SessionId, Status, UNAVAILABLE,
};

/// gRPC's CANCELLED.
pub(super) const CANCELLED: u16 = 1;

impl EventLoop {
    /// A channel to one or more servers. It connects when a call needs it; see also [`connect_channel`](EventLoop::connect_channel).
    /// [`Event::ChannelChanged`] tells how it fares.
    ///
    /// # Errors
    /// An address is none.
    pub fn open_channel(&mut self, config: ChannelConfig) -> Result<ChannelId, AddressError> {
        self.channels.open(config, now_ns())
    }

    /// Ends a channel with all of its calls: [`Event::Ended`] with CANCELLED follows for each.
    pub fn close_channel(&mut self, channel: ChannelId) {
        let Some(Remains { calls, sessions }) = self.channels.close(channel) else { return };
        for (number, session) in calls {
            if let Some(session) = session.and_then(|session| self.session_mut(session)) {
                session.cancel(number, CANCELLED);
            }
            let status = Status::here(CANCELLED, "the channel was closed");
            self.events.push_back(Event::Ended { call: name_of(number), status });
        }
        for session in sessions {
            self.end_watch(session);
            self.leave(session);
        }
    }

    /// Connects a channel that is idle, and keeps it connected.
    pub fn connect_channel(&mut self, channel: ChannelId) {
        let Some(found) = self.channels.channel_mut(channel) else { return };
        found.stays_connected();
        let (_, idle) = found.choose(0, None, now_ns());
        self.connect_all(channel, idle);
    }

    /// How a channel fares. `None`: there is no such channel.
    pub fn channel_state(&self, channel: ChannelId) -> Option<ChannelState> {
        Some(self.channels.channel(channel)?.state())
    }

    /// Begins a call in a channel. It waits where nothing is connected; where connecting fails, it ends with UNAVAILABLE unless its terms say
    /// otherwise.
    ///
    /// # Errors
    /// [`CallError::Over`]: there is no such channel.
    pub fn channel_call(
        &mut self,
        channel: ChannelId,
        start: CallStart<'_>,
        terms: CallTerms,
    ) -> Result<CallId, CallError> {
        if self.origin.is_elsewhere() || self.channels.channel(channel).is_none() {
            return Err(CallError::Over);
        }
        let deadline_ns = start.deadline_ns.unwrap_or(0);
        let call = ChannelCall::new(channel, start.path, start.metadata, deadline_ns, now_ns(), terms);
        let number = self.channels.begin(call);
        if let Some(call) = self.channels.call_mut(number) {
            if let Some(message) = &start.message {
                call.say(message);
            }
            if start.is_last {
                call.finish();
            }
        }
        self.place(number);
        Ok(name_of(number))
    }

    /// The session that a call is in now. `None`: it has none yet, or is over.
    pub fn session_of(&self, call: CallId) -> Option<SessionId> {
        match call.session == NO_SESSION {
            true => self.channels.session_of(call.number),
            false => self.session(call.session).map(|_| call.session),
        }
    }

    /// Says something on a channel's call.
    pub(super) fn channel_say(&mut self, number: u64, what: Option<Message>) -> Result<(), CallError> {
        let call = self.channels.call_mut(number).ok_or(CallError::Ended)?;
        if call.is_finished() {
            return Err(CallError::Ended);
        }
        match &what {
            Some(message) => call.say(message),
            None => call.finish(),
        }
        let Some((session, _)) = call.placed() else { return Ok(()) };
        // How it has ended comes to be read.
        let Some(session) = self.session_mut(session) else { return Ok(()) };
        let said = match what {
            Some(message) => session.say_message(number, message),
            None => session.say(number, |call| call.end(Ending::HalfClose)),
        };
        match said {
            Err(CallError::Ended) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn channel_pause(&mut self, number: u64, is_paused: bool) {
        let Some(call) = self.channels.call_mut(number) else { return };
        call.pause(is_paused);
        if let Some((session, _)) = call.placed()
            && let Some(session) = self.session_mut(session)
        {
            match is_paused {
                true => session.pause(number),
                false => session.resume(number),
            }
        }
    }

    pub(super) fn channel_cancel(&mut self, number: u64, code: u16) {
        let session = self.channels.session_of(number);
        if self.channels.end(number, None).is_some()
            && let Some(id) = session
        {
            if let Some(session) = self.session_mut(id) {
                session.cancel(number, code);
            }
            self.leave_if_retired(id);
        }
    }

    /// Places a call at an endpoint, or lets it wait for one.
    fn place(&mut self, number: u64) {
        let now = now_ns();
        let Some(call) = self.channels.call(number) else { return };
        let (id, came_ns, avoid) = (call.channel(), call.came_ns(), call.avoid());
        let Some(channel) = self.channels.channel_mut(id) else { return };
        channel.sweep(now);
        let (choice, idle) = channel.choose(came_ns, avoid, now);
        match choice {
            Choice::At { session, endpoint } => {
                if self.place_at(number, session, endpoint) {
                    self.channels.placed(number);
                    self.timers.set(Timer::Channels, self.channels.first_due_ns());
                    self.connect_all(id, idle);
                    return;
                }
                // It takes no calls any more: its event is on the way.
                self.endpoint_lost(session);
                let words = "the server closed each connection before a call was made";
                let status = Status { unprocessed: true, ..Status::here(UNAVAILABLE, words) };
                self.attempt_fails(number, status);
            }
            Choice::Wait => {
                self.call_waits(number);
                self.connect_all(id, idle);
            }
            Choice::Failing(words) => {
                self.connect_all(id, idle);
                match self.channels.call(number).is_some_and(ChannelCall::waits_for_ready) {
                    true => self.call_waits(number),
                    false => self.attempt_fails(number, Status::here(UNAVAILABLE, &words)),
                }
            }
        }
    }

    /// A call waits for a connection, until its deadline at most.
    fn call_waits(&mut self, number: u64) {
        let Some(call) = self.channels.call(number) else { return };
        let (channel, deadline_ns) = (call.channel(), call.deadline_ns());
        if let Some(channel) = self.channels.channel_mut(channel) {
            channel.waits(number);
        }
        if deadline_ns != 0 {
            self.due_at(deadline_ns, Due::Call(number));
        }
    }

    /// Says a call in a session. `false`: that takes none any more.
    fn place_at(&mut self, number: u64, id: SessionId, endpoint: usize) -> bool {
        let Some(call) = self.channels.call(number) else { return true };
        let opening = Opening { path: call.path().to_owned(), deadline_ns: call.deadline_ns() };
        let (channel, metadata) = (call.channel(), call.metadata());
        let Some(session) = self.session_mut(id) else { return false };
        if session.begin_as(number, opening, metadata).is_err() {
            return false;
        }
        let Some(call) = self.channels.call_mut(number) else { return true };
        let (messages, is_finished, is_paused) = call.place(id, endpoint);
        if let Some(channel) = self.channels.channel_mut(channel) {
            channel.endpoint_mut(endpoint).call_begins();
        }
        if let Some(session) = self.session_mut(id) {
            for message in messages {
                let _ = session.say_message(number, message);
            }
            if is_finished {
                let _ = session.say(number, |call| call.end(Ending::HalfClose));
            }
            if is_paused {
                session.pause(number);
            }
        }
        true
    }

    /// Has endpoints connected that are not.
    fn connect_all(&mut self, channel: ChannelId, idle: Vec<usize>) {
        let mut has_failed = false;
        for idx in idle {
            let Some(found) = self.channels.channel(channel) else { return };
            let now = now_ns();
            if !found.endpoint(idx).may_connect(now) {
                continue;
            }
            let address = found.endpoint(idx).address().clone();
            match self.connect(&address) {
                Ok(session) => {
                    self.channels.session_begins(session, channel, idx);
                    if let Some(found) = self.channels.channel_mut(channel) {
                        found.endpoint_mut(idx).connecting(session, now);
                    }
                }
                Err(error) => {
                    let words = format!("cannot connect to {address}: {error}");
                    self.endpoint_fails(channel, idx, Failure::Absent, words);
                    has_failed = true;
                }
            }
        }
        match has_failed {
            // No event follows of an attempt that could not begin. The endpoint pauses, so that this ends.
            true => self.place_waiting(channel),
            false => self.tell_of(channel),
        }
    }

    fn endpoint_fails(&mut self, id: ChannelId, idx: usize, failure: Failure, words: String) {
        let Some(channel) = self.channels.channel_mut(id) else { return };
        let until_ns = channel.endpoint_mut(idx).not_connected(failure, words, now_ns());
        self.due_at(until_ns, Due::Endpoint(id, idx));
    }

    /// Calls that wait are placed, or fail.
    pub(super) fn place_waiting(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.channel_mut(id) else { return };
        for number in channel.take_waiting() {
            if self.channels.call(number).is_some_and(ChannelCall::is_waiting) {
                self.place(number);
            }
        }
        self.tell_of(id);
    }

    fn tell_of(&mut self, id: ChannelId) {
        if let Some(state) = self.channels.channel_mut(id).and_then(Channel::news) {
            self.events.push_back(Event::ChannelChanged { channel: id, state });
        }
    }

    /// A session of an endpoint takes no calls any more.
    fn endpoint_lost(&mut self, session: SessionId) {
        let Some((id, idx)) = self.channels.endpoint_of(session) else { return };
        let Some(channel) = self.channels.channel_mut(id) else { return };
        if channel.endpoint(idx).session() != Some(session) {
            return;
        }
        let lost = channel.endpoint_mut(idx).lost(now_ns());
        self.end_watch(session);
        let Some(channel) = self.channels.channel_mut(id) else { return };
        match lost {
            Some(until_ns) => self.due_at(until_ns, Due::Endpoint(id, idx)),
            None if channel.stays() || channel.has_waiting() => self.connect_all(id, vec![idx]),
            None => {}
        }
        self.tell_of(id);
    }

    /// A session that takes no calls any more ends when the last of them has.
    fn leave_if_retired(&mut self, id: SessionId) {
        let is_present = |(channel, idx): (ChannelId, usize)| {
            let channel = self.channels.channel(channel);
            channel.is_some_and(|channel| channel.endpoint(idx).session() == Some(id))
        };
        if self.channels.endpoint_of(id).is_some_and(|of| !is_present(of)) && self.call_count(id) == 0 {
            self.leave(id);
        }
    }

    /// Ends a session, or a meeting.
    fn leave(&mut self, id: SessionId) {
        self.close(id);
        self.meeting_fails(id, HandshakeError::Closing.into());
    }

    pub(super) fn due_at(&mut self, at_ns: u64, due: Due) {
        self.channels.due_at(at_ns, due);
        self.timers.set(Timer::Channels, self.channels.first_due_ns());
    }

    /// Sees to what is due in channels.
    pub(super) fn channels_expire(&mut self, now: u64) {
        while let Some(due) = self.channels.take_due(now) {
            match due {
                Due::Endpoint(id, idx) => self.endpoint_is_due(id, idx, now),
                Due::Call(number) => self.call_is_due(number, now),
                Due::Watch(next) => self.watch(next),
            }
        }
        self.timers.set(Timer::Channels, self.channels.first_due_ns());
    }

    fn endpoint_is_due(&mut self, id: ChannelId, idx: usize, now: u64) {
        let Some(channel) = self.channels.channel_mut(id) else { return };
        let (is_needed, stays) = (channel.has_waiting(), channel.stays());
        match channel.endpoint_mut(idx).due(now, is_needed, stays) {
            Next::Connect => self.connect_all(id, vec![idx]),
            Next::At(at_ns) => self.due_at(at_ns, Due::Endpoint(id, idx)),
            Next::Nothing => self.tell_of(id),
        }
    }

    fn call_is_due(&mut self, number: u64, now: u64) {
        let Some(call) = self.channels.call_mut(number) else { return };
        if call.is_late(now) {
            let reason = self.failing_words(number);
            self.tell_of_end(
                number,
                Status::here(DEADLINE_EXCEEDED, &format!("the deadline has passed{reason}")),
            );
        } else if call.rested(now) {
            self.place(number);
        }
    }

    /// Why a call that waits has no connection, if that is known.
    fn failing_words(&self, number: u64) -> String {
        let channel = self.channels.call(number).and_then(|call| self.channels.channel(call.channel()));
        let words = channel.and_then(Channel::failing_words);
        words.map_or_else(
            || " while it waited for a connection".into(),
            |words| format!(" while it waited for a connection: {words}"),
        )
    }

    /// An attempt of a call has failed, with this status or before anything was known of it: it is made again, or over.
    fn attempt_fails(&mut self, number: u64, status: Status) {
        let now = now_ns();
        let Some(id) = self.channels.call(number).map(ChannelCall::channel) else { return };
        let endpoint_count = self.channels.channel(id).map_or(0, Channel::endpoint_count);
        self.channels.left(number, (!status.unprocessed).then_some(status.code));
        let next = match status.unprocessed {
            true => self.channels.call_mut(number).map(|call| call.moves(endpoint_count, now)),
            false => self.channels.call_fails(number, status.code, pushback(&status), now),
        };
        match next {
            Some(Unplaced::Again) => self.place(number),
            Some(Unplaced::At(at_ns)) => self.due_at(at_ns, Due::Call(number)),
            Some(Unplaced::Over) => {
                self.tell_of_end(number, status);
            }
            None => {}
        }
    }

    /// A call is over without its session's word: that is known once the application was told.
    fn tell_of_end(&mut self, number: u64, status: Status) {
        if let Some(call) = self.channels.call_mut(number) {
            call.ends();
            self.events.push_back(Event::Ended { call: name_of(number), status });
        }
    }

    /// What of an event the application is to know: what concerns channels' sessions is seen to here.
    pub(super) fn pass(&mut self, event: Event) -> Option<Event> {
        if self.channels.is_empty() {
            return Some(event);
        }
        let event = self.pass_watch(event)?;
        match event {
            Event::Connected { session } => {
                let Some((id, idx)) = self.channels.endpoint_of(session) else { return Some(event) };
                if let Some(channel) = self.channels.channel_mut(id) {
                    let health =
                        if channel.health_service().is_some() { Health::Unknown } else { Health::Serving };
                    channel.endpoint_mut(idx).connected(health, now_ns());
                }
                self.watch(NextWatch { channel: id, endpoint: idx, session, failures: 0 });
                self.place_waiting(id);
                None
            }
            Event::NotConnected { session, ref error } => {
                let Some((id, idx)) = self.channels.session_ended(session) else { return Some(event) };
                let failure = match &error.kind {
                    ConnectErrorKind::Handshake(_) => Failure::Refused,
                    _ => Failure::Absent,
                };
                self.endpoint_fails(id, idx, failure, error.to_string());
                self.place_waiting(id);
                None
            }
            Event::Draining { session } => {
                if self.channels.endpoint_of(session).is_none() {
                    return Some(event);
                }
                self.endpoint_lost(session);
                self.leave_if_retired(session);
                None
            }
            Event::Closed { session, .. } => {
                if self.channels.endpoint_of(session).is_none() {
                    return Some(event);
                }
                self.endpoint_lost(session);
                self.channels.session_ended(session);
                None
            }
            Event::Headers { call, .. } | Event::Message { call, .. } if is_of_channel(call.number) => {
                let known = self.channels.call_mut(call.number)?;
                known.answered();
                Some(event)
            }
            Event::Ended { call, status } if is_of_channel(call.number) => {
                // What was cancelled meanwhile is of no interest.
                self.channels.call(call.number)?;
                let Some(placed) = self.channels.session_of(call.number) else {
                    self.channels.end(call.number, None);
                    return Some(Event::Ended { call, status });
                };
                if status.code == 0 {
                    self.channels.succeeded(call.number);
                    self.leave_if_retired(placed);
                    return Some(Event::Ended { call, status });
                }
                self.attempt_fails(call.number, status);
                self.leave_if_retired(placed);
                None
            }
            event => Some(event),
        }
    }
}

/// What a server says in its trailers about coming back.
fn pushback(status: &Status) -> Pushback {
    let value = metadata::pairs(&status.metadata)
        .flatten()
        .find(|(name, _)| name.as_bytes() == tollfree_balancer::PUSHBACK.as_bytes())
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    Pushback::of(value.as_deref())
}
