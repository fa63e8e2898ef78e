//! Who pumps: of the tasks that wait on a session, one per runtime looks at the ring for all.
//!
//! # States
//! A *slot* is one thing a task can wait for: reading or writing a stream, opening one, accepting one. A *station* is a
//! runtime in which slots wait; it has a driver task that sleeps on the socket there.
//!
//! ```text
//! station   Idle ──first waiter──► Pumped(by that slot) ──its spin budget is spent──► Armed ──doorbell──► Idle
//!            ▲                         │ the pumper is done, dropped or panicked
//!            └──── nobody waits ───────┴── somebody waits: wake one, it pumps on
//! ```
//! An async runtime's I/O handle belongs to that runtime, and a runtime may be busy, stopped or gone while another shares
//! the channel: so nothing here is shared between stations but the ring under the lock.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::runtime;
use tollfree_layout::StreamId;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Read(StreamId),
    Write(StreamId),
    /// A call that could not be opened yet, by a number of its own.
    Open(u64),
    Accept,
}

/// The waker of one token.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    waker: Option<Waker>,
    /// The task wants to be woken.
    pub(crate) waiting: bool,
    /// It stands in its station's queue.
    queued: bool,
    /// It waits for room in the ring.
    pub(crate) wants_room: bool,
}

impl Slot {
    /// Puts the task to wait.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.waiting = true;
    }

    /// The waker, if the task waits; it does not any more then.
    pub(crate) fn take(&mut self) -> Option<Waker> {
        if !std::mem::take(&mut self.waiting) {
            return None;
        }
        self.wants_room = false;
        self.waker.take()
    }
}

/// One runtime in which tasks wait on the session.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) runtime: runtime::Id,
    pumper: Option<Token>,
    waiters: VecDeque<Token>,
    /// When the present wait began (monotonic ns); 0 when there is none.
    pub(crate) wait_began_ns: u64,
}

/// What a task that found nothing is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Look at the ring again and again.
    Pump,
    /// Sleep: another task of its station pumps.
    Follow,
}

/// All stations of a session.
#[derive(Debug, Default)]
pub(crate) struct Stations {
    pub(crate) list: Vec<Station>,
    started: bool,
}

impl Stations {
    /// True the first time it is asked: for the runtime that the session was made in.
    pub(crate) fn first_started(&mut self) -> bool {
        !std::mem::replace(&mut self.started, true)
    }

    pub(crate) fn find(&mut self, runtime: runtime::Id) -> Option<&mut Station> {
        self.list.iter_mut().find(|station| station.runtime == runtime)
    }

    pub(crate) fn add(&mut self, runtime: runtime::Id) {
        self.list.push(Station { runtime, pumper: None, waiters: VecDeque::new(), wait_began_ns: 0 });
    }

    pub(crate) fn remove(&mut self, runtime: runtime::Id) {
        self.list.retain(|station| station.runtime != runtime);
    }

    /// Whether some task looks at the ring again and again.
    pub(crate) fn is_pumped(&self) -> bool {
        self.list.iter().any(Station::is_pumped)
    }

    /// The station that a token pumps for.
    pub(crate) fn pumped_by(&mut self, token: Token) -> Option<&mut Station> {
        self.list.iter_mut().find(|station| station.pumper == Some(token))
    }
}

impl Station {
    /// Puts a task to wait, and says whether it pumps. A server's accepting task always does: it is the one that most
    /// records are for.
    pub(crate) fn wait(&mut self, token: Token, slot: &mut Slot, waker: &Waker) -> Duty {
        slot.wait(waker);
        match self.pumper {
            Some(pumper) if pumper != token && token != Token::Accept => {
                self.queue(token, slot);
                Duty::Follow
            }
            _ => {
                self.pumper = Some(token);
                Duty::Pump
            }
        }
    }

    /// The pumper goes to sleep like the others.
    pub(crate) fn park(&mut self, token: Token, slot: &mut Slot) {
        self.pumper = None;
        self.queue(token, slot);
    }

    pub(crate) fn is_pumped(&self) -> bool {
        self.pumper.is_some()
    }

    /// The pumper has what it waited for, or is gone; `next` pumps from now on.
    pub(crate) fn hand_over(&mut self, next: Option<Token>) {
        self.pumper = next;
        self.wait_began_ns = 0;
    }

    fn queue(&mut self, token: Token, slot: &mut Slot) {
        if !std::mem::replace(&mut slot.queued, true) {
            self.waiters.push_back(token);
        }
    }

    /// The first token in the queue; the caller says whether it still waits ([`keep`](Station::keep)) or not.
    pub(crate) fn front(&self) -> Option<Token> {
        self.waiters.front().copied()
    }

    /// Takes the first token out of the queue.
    pub(crate) fn drop_front(&mut self, slot: Option<&mut Slot>) {
        self.waiters.pop_front();
        if let Some(slot) = slot {
            slot.queued = false;
        }
    }
}
