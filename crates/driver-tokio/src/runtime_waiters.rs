//! Who polls: of the tasks that wait on a session, one per runtime looks at the ring for all.
//!
//! # States
//! A *slot* is one thing a task can wait for: reading or writing a stream, opening one, accepting one. Slots wait in the
//! runtimes of their tasks; each has a driver task that sleeps on the socket there.
//!
//! ```text
//! runtime   Idle ──first waiter──► Polled(by that slot) ──its spin budget is spent──► Armed ──doorbell──► Idle
//!            ▲                      ▲  │ the poller is done, dropped or panicked
//!            └──── nobody waits ────│──┤
//!                                   └──┘ somebody waits: that one is made the poller, and woken
//! ```
//! One that only probes ([`tollfree_connection::Wait`]) makes the runtime Armed at once, and looks again by itself for a few microseconds.
//!
//! A task may stop polling without a word (a `select!` that drops a future but keeps the stream), or be kept from running.
//! So the driver watches a runtime while it is polled: when nobody has looked at the ring for a tick, it does so itself
//! and arms the doorbell.
//!
//! An async runtime's I/O handle belongs to that runtime, and a runtime may be busy, stopped or gone while another shares
//! the channel: so nothing here is shared between runtimes but the ring under the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use tokio::runtime::{self, RuntimeFlavor};
use tokio::sync::Notify;
use tollfree_layout::StreamId;
use tollfree_session::{Session, Watched};

use crate::opening::OpeningTurn;
use crate::turns::Stamp;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKey {
    Read(StreamId),
    Write(StreamId),
    /// A call that could not be opened yet, by a number of its own.
    Open(u64),
    Accept,
}

/// The waker of one key.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    waker: Option<Waker>,
    /// The task wants to be woken.
    pub(crate) waiting: bool,
    /// The runtime whose queue it stands in. It may stand in others where it waited before: those places don't count.
    queued_in: Option<runtime::Id>,
    /// The number under which it waits for room in the ring, or has waited; 0: none.
    pub(crate) room_number: u64,
    /// When it was woken, if its task has not run since.
    woken: Stamp,
}

impl Slot {
    /// Puts the task to wait.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.waiting = true;
    }

    /// The task was woken, or gave way to others.
    pub(crate) fn woken(&mut self, stamp: Stamp) {
        self.woken = stamp;
    }

    /// The task runs; when it was woken.
    pub(crate) fn runs(&mut self) -> Stamp {
        std::mem::take(&mut self.woken)
    }

    /// When it was woken, if its task has not run since.
    pub(crate) fn woken_at(&self) -> Stamp {
        self.woken
    }

    /// Whether the task of `waker` need not rely on the poller that has this slot: that one was woken because of news and
    /// may not look again, or is of the same task, which may wait for several things and poll only one of them.
    pub(crate) fn is_replaceable_by(&self, waker: &Waker) -> bool {
        !self.waiting || self.waker.as_ref().is_none_or(|known| known.will_wake(waker))
    }

    /// Whether a task waits here, in this runtime.
    pub(crate) fn waits_in(&self, runtime: runtime::Id) -> bool {
        self.waiting && self.queued_in == Some(runtime)
    }

    /// Its place in a runtime's queue is gone.
    pub(crate) fn left_queue(&mut self, runtime: runtime::Id) {
        if self.queued_in == Some(runtime) {
            self.queued_in = None;
        }
    }

    /// The waker, if the task waits; it does not any more then.
    pub(crate) fn take(&mut self) -> Option<Waker> {
        if !std::mem::take(&mut self.waiting) {
            return None;
        }
        self.waker.take()
    }
}

/// The transport's part of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamSlots {
    pub(crate) read: Slot,
    pub(crate) write: Slot,
}

impl Watched for StreamSlots {
    #[inline]
    fn waits_to_read(&self) -> bool {
        self.read.waiting
    }

    #[inline]
    fn waits_to_write(&self) -> bool {
        self.write.waiting
    }
}

/// The slot of a key, without what else the core holds.
#[inline]
pub(crate) fn slot_of<'a>(
    session: &'a mut Session<StreamSlots>,
    opens: &'a mut BTreeMap<u64, OpeningTurn>,
    accept: &'a mut Slot,
    key: WaitKey,
) -> Option<&'a mut Slot> {
    match key {
        WaitKey::Read(id) => session.user_mut(id).map(|slots| &mut slots.read),
        WaitKey::Write(id) => session.user_mut(id).map(|slots| &mut slots.write),
        WaitKey::Open(number) => opens.get_mut(&number).map(|turn| &mut turn.slot),
        WaitKey::Accept => Some(accept),
    }
}

/// One runtime in which tasks wait on the session.
#[derive(Debug)]
pub(crate) struct RuntimeWaiters {
    pub(crate) runtime: runtime::Id,
    poller: Option<WaitKey>,
    queued: VecDeque<WaitKey>,
    /// When the present wait began (monotonic ns); 0 when there is none.
    pub(crate) wait_began_ns: u64,
    /// When the poller last found nothing, if its looks are short: a wait that ends by the next one has lasted until then
    /// within a microsecond, and no clock need be read for it while the peer's answer waits. Else 0.
    pub(crate) looked_at_ns: u64,
    /// Counts the poller's looks at the ring, so that the driver sees whether it still looks.
    pub(crate) look_count: u64,
    /// The driver watches.
    pub(crate) watched: bool,
    /// Calls the driver.
    pub(crate) ear: Arc<Notify>,
}

/// What a task that found nothing is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterRole {
    /// Look at the ring again and again.
    Poll,
    /// Sleep: another task of its runtime polls.
    Follow,
}

/// All runtimes in which tasks wait on a session.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) list: Vec<RuntimeWaiters>,
    started: bool,
    /// A runtime is among them, or was, that has several threads.
    has_threads: bool,
}

impl Waiters {
    /// True the first time it is asked: for the runtime that the session was made in.
    pub(crate) fn first_started(&mut self) -> bool {
        !std::mem::replace(&mut self.started, true)
    }

    /// Whether tasks may wait in a runtime that has several threads.
    #[inline]
    pub(crate) fn may_have_threads(&self) -> bool {
        self.has_threads
    }

    pub(crate) fn find(&mut self, runtime: runtime::Id) -> Option<&mut RuntimeWaiters> {
        self.list.iter_mut().find(|runtime_waiters| runtime_waiters.runtime == runtime)
    }

    pub(crate) fn add(&mut self, handle: &runtime::Handle, ear: Arc<Notify>) {
        let runtime = handle.id();
        self.has_threads |= handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        // Most sessions are waited for in one runtime, and there may be thousands.
        self.list.reserve_exact(1);
        self.list.push(RuntimeWaiters {
            runtime,
            poller: None,
            queued: VecDeque::new(),
            wait_began_ns: 0,
            looked_at_ns: 0,
            look_count: 0,
            watched: false,
            ear,
        });
    }

    /// Takes a runtime away, and gives the keys that stood in it.
    pub(crate) fn remove(&mut self, runtime: runtime::Id) -> Vec<WaitKey> {
        let Some(place) = self.list.iter().position(|runtime_waiters| runtime_waiters.runtime == runtime)
        else {
            return Vec::new();
        };
        let runtime_waiters = self.list.remove(place);
        runtime_waiters.queued.into_iter().chain(runtime_waiters.poller).collect()
    }

    /// Whether tasks of another runtime may sleep, counting on the doorbell.
    pub(crate) fn others_sleep(&self, runtime: runtime::Id) -> bool {
        let sleeps = |runtime_waiters: &RuntimeWaiters| {
            runtime_waiters.runtime != runtime
                && runtime_waiters.poller.is_none()
                && !runtime_waiters.queued.is_empty()
        };
        self.list.len() > 1 && self.list.iter().any(sleeps)
    }

    /// Whether some task looks at the ring again and again.
    pub(crate) fn is_polled(&self) -> bool {
        self.list.iter().any(RuntimeWaiters::is_polled)
    }

    /// The runtime that a key polls for.
    pub(crate) fn polled_by(&mut self, key: WaitKey) -> Option<&mut RuntimeWaiters> {
        self.list.iter_mut().find(|runtime_waiters| runtime_waiters.poller == Some(key))
    }
}

impl RuntimeWaiters {
    /// Puts a task to wait, and says whether it polls: where nobody does, or where it finds the poller `replaceable`.
    pub(crate) fn wait(
        &mut self,
        key: WaitKey,
        slot: &mut Slot,
        waker: &Waker,
        replaceable: bool,
    ) -> WaiterRole {
        slot.wait(waker);
        match self.poller {
            Some(poller) if poller != key && !replaceable => {
                self.queue(key, slot);
                WaiterRole::Follow
            }
            _ => {
                self.poller = Some(key);
                WaiterRole::Poll
            }
        }
    }

    /// A task looks, or waits, for longer than a moment. Whether its wait begins with that.
    pub(crate) fn begins_to_wait(&mut self, now_ns: u64) -> bool {
        let begins = self.wait_began_ns == 0;
        if begins {
            self.wait_began_ns = now_ns;
        }
        begins
    }

    /// A wait ends, if there is one: when it began, and when the poller last found nothing, if that was a moment ago; else 0.
    #[inline]
    pub(crate) fn wait_ends(&mut self) -> Option<(u64, u64)> {
        let ended = (self.wait_began_ns, self.looked_at_ns);
        (self.wait_began_ns, self.looked_at_ns) = (0, 0);
        (ended.0 != 0).then_some(ended)
    }

    /// Another task looks in the poller's place.
    pub(crate) fn looked_for_by(&mut self, key: WaitKey) {
        self.poller = Some(key);
    }

    /// The poller goes to sleep like the others.
    pub(crate) fn park(&mut self, key: WaitKey, slot: &mut Slot) {
        self.poller = None;
        self.looked_at_ns = 0;
        self.queue(key, slot);
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.poller.is_some()
    }

    /// The key that polls, if it is another than `key`.
    pub(crate) fn other_poller(&self, key: WaitKey) -> Option<WaitKey> {
        self.poller.filter(|poller| *poller != key)
    }

    /// The poller has what it waited for, or is gone; `next` polls from now on.
    pub(crate) fn hand_over(&mut self, next: Option<WaitKey>) {
        self.poller = next;
        self.wait_began_ns = 0;
        self.looked_at_ns = 0;
    }

    /// The poller has not looked for a while: a task that waits counts as asleep.
    pub(crate) fn take_poller(&mut self) -> Option<WaitKey> {
        self.looked_at_ns = 0;
        self.poller.take()
    }

    pub(crate) fn queue(&mut self, key: WaitKey, slot: &mut Slot) {
        if slot.queued_in != Some(self.runtime) {
            slot.queued_in = Some(self.runtime);
            self.queued.push_back(key);
        }
    }

    /// The first key in the queue; the caller says whether it still waits there.
    pub(crate) fn front(&self) -> Option<WaitKey> {
        self.queued.front().copied()
    }

    /// Takes the first key out of the queue.
    pub(crate) fn drop_front(&mut self, slot: Option<&mut Slot>) {
        self.queued.pop_front();
        if let Some(slot) = slot {
            slot.left_queue(self.runtime);
        }
    }

    /// How many stand in the queue, those included that do not wait any more.
    pub(crate) fn queue_len(&self) -> usize {
        self.queued.len()
    }

    /// Takes those out of the queue of whom `stays` says no.
    pub(crate) fn sweep(&mut self, stays: impl FnMut(&WaitKey) -> bool) {
        self.queued.retain(stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_that_waits_in_one_runtime_has_memory_for_one() {
        let mut waiters = Waiters::default();
        waiters.add(&runtime::Handle::current(), Arc::default());
        assert_eq!(waiters.list.capacity(), 1);
    }
}
