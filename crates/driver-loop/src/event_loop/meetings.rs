//! How sockets become sessions of the loop, or don't.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tollfree_host::{Accepting, Attached, ConnectErrorKind, HandshakeError, QuotaUsage};
use tollfree_os::clock::now_ns;

use crate::descriptors::{Beside, Descriptors};
use crate::listeners::Accepted;
use crate::meeting::{Meeting, Met, Wants};
use crate::poller::Source;
use crate::session::Session;
use crate::timers::Timer;
use crate::{Event, EventLoop, ListenerId, SessionId};

/// Clients that are accepted in one go.
const ACCEPT_COUNT: usize = 16;
/// After a failure to accept, which is out of descriptors or memory most likely, so long in nanoseconds.
const SHED_NS: u64 = 10_000_000;

impl EventLoop {
    /// Gives a socket a place. Its first step is taken in the next turn: what that says comes as an event, as any.
    pub(super) fn meet(&mut self, meeting: Meeting) -> SessionId {
        let id = self.slots.insert(meeting);
        self.timers.set(Timer::Meeting(id), Some(0));
        id
    }

    /// A socket that is to become a session goes on.
    pub(super) fn meeting_steps(&mut self, id: SessionId) {
        let config = self.config.clone();
        loop {
            let Some(meeting) = self.slots.meeting_mut(id) else { return };
            let wants = match meeting.step(&config, now_ns()) {
                Err(error) => return self.meeting_fails(id, error),
                Ok(Met::Session(attached)) => return self.begin(id, *attached),
                Ok(Met::Waits(Wants::After(pause))) if pause.is_zero() => continue,
                Ok(Met::Waits(wants)) => wants,
            };
            let until_ns = meeting.until_ns();
            let pause = match wants {
                Wants::After(pause) => Some(now_ns() + pause.as_nanos() as u64),
                _ => None,
            };
            let due_ns = pause.map_or(until_ns, |at_ns| at_ns.min(until_ns));
            let watched = match meeting.is_to_be_watched(wants) {
                true => self.poller.wait_for(meeting.socket(), Source::Socket(id.idx), wants == Wants::Write),
                false => Ok(()),
            };
            self.timers.set(Timer::Meeting(id), Some(due_ns));
            if let Err(error) = watched {
                self.meeting_fails(id, HandshakeError::Io(error).into());
            }
            return;
        }
    }

    pub(super) fn meeting_fails(&mut self, id: SessionId, kind: ConnectErrorKind) {
        if let Some(meeting) = self.slots.take_meeting(id) {
            self.slots.free(id);
            self.timers.set(Timer::Meeting(id), None);
            self.poller.forget(meeting.socket());
            self.events.extend(meeting.failed(id, kind, &self.config));
        }
    }

    /// A session begins.
    fn begin(&mut self, id: SessionId, mut attached: Attached) {
        let Some(meeting) = self.slots.meeting(id) else { return };
        let beside = match Beside::watched(&mut attached, meeting.socket(), id.idx, &self.poller) {
            Ok(beside) => beside,
            Err(error) => return self.meeting_fails(id, HandshakeError::Io(error).into()),
        };
        let Some(meeting) = self.slots.take_meeting(id) else { return };
        self.timers.set(Timer::Meeting(id), None);
        let (socket, event) = meeting.met(id);
        let descriptors = Descriptors::new(&attached, socket, beside);
        let sharing = self.sharing.clone();
        let mut session =
            Session::new(id, attached, descriptors, &self.config, self.message_len_max, sharing);
        // A doorbell, or a hang-up, may have come before anybody listened.
        session.hears();
        self.slots.becomes(id, session);
        self.slots.list(id);
        self.events.push_back(event);
    }

    /// Takes clients that have come to a listener.
    pub(super) fn accept(&mut self, idx: u32) {
        let listener = ListenerId(idx);
        for _ in 0..ACCEPT_COUNT {
            match self.listeners.accept(idx) {
                Accepted::Client(socket, quota_usage) => {
                    if let Err(error) = self.take_in(listener, socket, quota_usage) {
                        self.events.push_back(Event::Refused { listener, error });
                    }
                }
                Accepted::Nobody => return,
                Accepted::Failed(error) => {
                    // Those connected go on, newcomers wait in the backlog.
                    self.listeners.pause(idx, &self.poller);
                    self.timers.set(Timer::Listener(idx), Some(now_ns() + SHED_NS));
                    self.events.extend(error.map(|error| Event::NotAccepted { listener, error }));
                    return;
                }
            }
        }
    }

    fn take_in(
        &mut self,
        listener: ListenerId,
        socket: UnixStream,
        quota_usage: Arc<QuotaUsage>,
    ) -> Result<(), HandshakeError> {
        socket.set_nonblocking(true)?;
        let accepting = match Accepting::new(&socket, &self.config) {
            Ok(accepting) => accepting,
            Err(error) => {
                Accepting::refuse(&socket, &self.config, &error);
                return Err(error);
            }
        };
        let pid = accepting.identity().pid;
        let meeting = Meeting::accept(socket, listener, accepting, quota_usage, self.handshake_end_ns());
        let id = self.meet(meeting);
        let slots = &self.slots;
        let is_silent = |id: &SessionId| slots.meeting(*id).is_some_and(Meeting::is_silent);
        if let Some(oldest) = self.listeners.came(listener, pid, id, is_silent) {
            self.meeting_fails(oldest, HandshakeError::Crowded.into());
        }
        Ok(())
    }
}
