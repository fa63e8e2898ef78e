//! A turn of the loop: what came, what is due, what there is to say; and whether to look again or to sleep.

use std::io;
use std::time::Duration;

use tollfree_host::HandshakeError;
use tollfree_os::clock::now_ns;
use tollfree_os::rustix;

use crate::poller::Source;
use crate::session::Looks;
use crate::timers::Timer;
use crate::{Event, EventLoop, SessionId};

/// While sessions are looked at, the kernel is asked this often, in nanoseconds, for what else has come.
const KERNEL_EVERY_NS: u64 = 50_000;

impl EventLoop {
    /// Does all there is to do now. Each session takes as much from its ring as one look gives, so that no peer has more than its turn.
    pub(super) fn turn(&mut self) {
        let now = now_ns();
        if self.poller.is_due(now, KERNEL_EVERY_NS) {
            // What fails here fails for one who waits.
            let _ = self.ask_kernel(Some(Duration::ZERO));
        }
        self.expire(now);
        let listed = self.slots.take_listed();
        for idx in &listed {
            let Some(id) = self.slots.id_at(*idx) else { continue };
            let Some(session) = self.slots.session_mut(id) else { continue };
            if !session.is_awake() {
                // It has armed its doorbell for what it waits for: a turn could leave it waiting for something else.
                continue;
            }
            session.turn(&mut self.events);
            session.offer_now_and_then();
            let is_awake = session.is_awake();
            self.after_turn(id, now);
            if is_awake {
                self.slots.list(id);
            }
        }
        self.slots.give_back(listed);
    }

    /// A session had its turn: its end, or its timer.
    fn after_turn(&mut self, id: SessionId, now: u64) {
        let Some(session) = self.slots.session_mut(id) else { return };
        let Some(reason) = session.closed().cloned() else {
            let due_ns = session.timeout(now);
            if self.slots.timer_changes(id, due_ns) {
                self.timers.set(Timer::Session(id), due_ns);
            }
            return;
        };
        session.descriptors().forget(&self.poller);
        self.timers.set(Timer::Session(id), None);
        self.slots.free(id);
        self.events.push_back(Event::Closed { session: id, reason });
    }

    /// Sees to what is due.
    fn expire(&mut self, now: u64) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Meeting(id) if self.slots.meeting(id).is_some_and(|meeting| meeting.is_late(now)) => {
                    self.meeting_fails(id, HandshakeError::Timeout(self.config.handshake_timeout).into());
                }
                Timer::Meeting(id) => self.meeting_steps(id),
                // What follows is said in its turn.
                Timer::Session(id) => {
                    self.slots.timer_changes(id, None);
                    if let Some(session) = self.session_mut(id) {
                        session.handle_timeout(now);
                    }
                }
                Timer::Channels => self.channels_expire(now),
                Timer::Listener(idx) => self.listeners.resume(idx, &self.poller),
            }
        }
    }

    /// Nothing came: whether any session is to be looked at again. The others sleep.
    pub(super) fn looks(&mut self, now: u64) -> bool {
        let (mut looks, mut offers) = (false, false);
        self.slots.listed_sessions(|session| {
            if session.is_awake() {
                let waits = session.waits(now);
                looks |= waits != Looks::NoMore;
                offers |= waits == Looks::AgainWithOffer;
            }
        });
        if offers {
            rustix::thread::sched_yield();
            let away_ns = now_ns().saturating_sub(now);
            self.slots.listed_sessions(|session| session.offered(now, away_ns));
        }
        looks
    }

    /// Takes what the kernel has, within a time.
    pub(super) fn ask_kernel(&mut self, most: Option<Duration>) -> io::Result<()> {
        let heard = self.poller.ask(most)?;
        for source in &heard {
            match *source {
                Source::Waker => {}
                Source::Listener(idx) => self.accept(idx),
                Source::Socket(idx) | Source::Doorbell(idx) | Source::Death(idx) => {
                    let Some(id) = self.slots.id_at(idx) else { continue };
                    match (self.session_mut(id), source) {
                        (Some(session), Source::Socket(_)) => session.hears(),
                        (Some(session), Source::Doorbell(_)) => session.rung(),
                        (Some(session), _) => session.died(),
                        (None, _) => self.meeting_steps(id),
                    }
                }
            }
        }
        self.poller.give_back(heard);
        Ok(())
    }
}
