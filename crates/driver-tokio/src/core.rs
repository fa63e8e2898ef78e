//! One side of a session as tasks share it: what everybody who holds the lock can do.
//!
//! All of it runs under one lock, in tasks of any runtime; nothing here waits. Wakers are gathered and called only after
//! the lock is released ([`crate::shared`]). What is said, heard and decided is the [`Connection`]'s; here is who waits for it.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use smallvec::SmallVec;
use tokio::runtime;
use tollfree_connection::Connection;
use tollfree_kill_points::{Point, here};
use tollfree_layout::{SegmentedIdx, StreamId};
use tollfree_os::rustix;
use tollfree_session::{Closed, Role, Session, SingleFrame};

use crate::link::{Link, Seed};
use crate::load::Load;
use crate::opening::OpeningTurn;
use crate::peer_socket::PeerSocket;
use crate::room::RoomQueue;
use crate::runtime_waiters::{Slot, StreamSlots, WaitKey, Waiters, slot_of};
use crate::shared::Socket;
use crate::turns::Turns;
use tollfree_host::Attached;
use tollfree_host::Config;
use tollfree_host::Here;
use tollfree_host::SocketEvent;
use tollfree_host::counts;
use tollfree_os::clock::now_ns;

/// Times that what a peer has left is received, each up to a bound: no longer than a full ring.
const LEFT_ROUNDS: usize = 64;

/// Everything under the lock.
pub(crate) struct Core {
    pub(crate) connection: Connection<StreamSlots>,
    pub(crate) peer: PeerSocket,
    pub(crate) waiters: Waiters,
    pub(crate) turns: Turns,
    pub(crate) accept: Slot,
    /// Tasks that wait to open a call, by their numbers: in the order in which they came.
    pub(crate) opens: BTreeMap<u64, OpeningTurn>,
    /// The number of the task that queues up next, to open a call or for room.
    pub(crate) next_number: u64,
    /// How many of them were told to try, and have not yet.
    pub(crate) told_count: usize,
    /// Tasks that wait for the bytes of segmented messages, by these.
    pub(crate) segmented_waits: HashMap<SegmentedIdx, Waker>,
    /// Senders that wait for room in the ring.
    pub(crate) room: RoomQueue,
    /// To be called once the lock is released.
    pub(crate) wakes: SmallVec<[Waker; 8]>,
    /// Counts what could end somebody's wait: a task that is looking itself sees here that it has to try again.
    pub(crate) news: u64,
    /// The drivers are to look after the session once the lock is released.
    pub(crate) nudge: bool,
    /// The runtime whose driver has the connection's timer.
    timed_by: Option<runtime::Id>,
    /// A driver beats for the session, if it has a stream.
    beats_watched: bool,
}

impl Core {
    pub(crate) fn new(attached: Attached, seed: Option<Box<Seed>>, config: &Config) -> (Core, Load) {
        let (shares_load, gives_doorbells) = (attached.shares_load, attached.gives_doorbells);
        let setup = attached.setup(config, seed.is_some());
        let load = Load::new(shares_load, setup.own.clone(), setup.peer.clone());
        let link = seed.map(|seed| Box::new(Link::new(*seed, setup.own.clone(), setup.own_ring)));
        let connection = Connection::new(setup);
        let core = Core {
            connection,
            peer: PeerSocket::new(link, gives_doorbells),
            waiters: Waiters::default(),
            turns: Turns::default(),
            accept: Slot::default(),
            opens: BTreeMap::new(),
            next_number: 0,
            told_count: 0,
            segmented_waits: HashMap::new(),
            room: RoomQueue::default(),
            wakes: SmallVec::new(),
            news: 0,
            nudge: false,
            timed_by: None,
            beats_watched: false,
        };
        (core, load)
    }

    /// The calls.
    #[inline]
    pub(crate) fn session(&self) -> &Session<StreamSlots> {
        self.connection.session()
    }

    /// The calls.
    #[inline]
    pub(crate) fn session_mut(&mut self) -> &mut Session<StreamSlots> {
        self.connection.session_mut()
    }

    /// The slot of a key, while what it waits for exists.
    pub(crate) fn slot(&mut self, key: WaitKey) -> Option<&mut Slot> {
        slot_of(self.connection.session_mut(), &mut self.opens, &mut self.accept, key)
    }

    pub(crate) fn wake(&mut self, key: WaitKey) {
        self.news += 1;
        let Core { connection, opens, accept, turns, wakes, .. } = self;
        if let Some(slot) = slot_of(connection.session_mut(), opens, accept, key)
            && let Some(waker) = slot.take()
        {
            slot.woken(turns.wakes());
            wakes.push(waker);
        }
    }

    /// The task of a key runs, where others may count as waiting since longer than the next caller.
    #[inline]
    pub(crate) fn runs(&mut self, key: WaitKey) {
        if self.turns.is_owed()
            && let Some(slot) = self.slot(key)
        {
            let stamp = slot.runs();
            self.turns.runs(stamp);
        }
    }

    /// Handles what the peer has sent, up to a bound. Returns how many records that were.
    #[inline]
    pub(crate) fn poll(&mut self, socket: &Socket) -> usize {
        // What most looks find.
        if self.connection.is_quiet() && !self.may_wake() { 0 } else { self.pump(socket) }
    }

    #[inline(never)]
    fn pump(&mut self, socket: &Socket) -> usize {
        if (self.connection.holds() && !self.connection.is_gathering()) || self.session().has_pending() {
            self.flush(socket);
        }
        let count = self.connection.receive_all(&mut self.peer.on(socket));
        if count > 0 {
            // Also where nobody is woken: who is looking itself has to try again.
            self.news += 1;
            self.ended_wait();
        }
        self.wake_ready();
        count
    }

    /// Handles the next record; `false` where there is none.
    #[inline]
    fn receive(&mut self, socket: &Socket) -> bool {
        self.connection.receive(&mut self.peer.on(socket))
    }

    /// Handles the next record, if there is one, for a task that looks out for a call.
    #[inline]
    pub(crate) fn take_next(&mut self, socket: &Socket) {
        if self.receive(socket) {
            self.ended_wait();
            // A call that came is for this task, and no news to any other.
            if !self.session().has_accepted() {
                self.news += 1;
                self.wake_ready();
            }
        }
    }

    /// Handles the next record, if there is one, for a task that looks out for what comes on a call. Whether that has come.
    #[inline]
    pub(crate) fn take_next_of(&mut self, id: StreamId, socket: &Socket) -> bool {
        let came = self.receive(socket);
        let arrived = self.session().has_incoming(id);
        if came && !arrived {
            self.news += 1;
            self.wake_ready();
        }
        arrived
    }

    /// The answer to a call, if all of it has come in one frame. The call is over then.
    #[inline]
    pub(crate) fn take_answer(&mut self, id: StreamId) -> Option<SingleFrame> {
        let answer = self.session_mut().take_answer(id)?;
        if !self.opens.is_empty() {
            self.wake_ready();
        }
        Some(answer)
    }

    fn ended_wait(&mut self) {
        for runtime_waiters in &mut self.waiters.list {
            if let Some((began_ns, looked_at_ns)) = runtime_waiters.wait_ends() {
                self.connection.wait_mut().wait_ended(began_ns, looked_at_ns, now_ns);
                if looked_at_ns != 0 {
                    counts::looked(looked_at_ns.saturating_sub(began_ns));
                }
            }
        }
    }

    /// A driver heard the doorbell.
    pub(crate) fn woken(&mut self) {
        counts::woken();
        self.connection.woken(Here::thread_time);
    }

    /// Gathers the wakers of everybody for whom something has changed.
    #[inline]
    pub(crate) fn wake_ready(&mut self) {
        if self.may_wake() {
            self.wake_all_ready();
        }
    }

    /// Whether anybody waits for what may have come.
    #[inline]
    fn may_wake(&self) -> bool {
        let wanted = self.room.has_untold() || !self.opens.is_empty() || !self.segmented_waits.is_empty();
        self.session().has_ready() || self.accept.waiting || wanted
    }

    #[inline(never)]
    fn wake_all_ready(&mut self) {
        while let Some(ready) = self.session_mut().next_ready() {
            if ready.read {
                self.wake(WaitKey::Read(ready.id));
            }
            if ready.write {
                self.wake(WaitKey::Write(ready.id));
            }
        }
        while let Some(mut slots) = self.session_mut().next_abandoned() {
            self.news += 1;
            self.wakes.extend([slots.read.take(), slots.write.take()].into_iter().flatten());
        }
        if self.accept.waiting && (self.session().has_accepted() || self.is_over()) {
            self.wake(WaitKey::Accept);
        }
        if self.room.has_untold() {
            self.wake_senders();
        }
        if !self.segmented_waits.is_empty() {
            self.wake_asked();
        }
        if !self.opens.is_empty() {
            self.wake_openers();
        }
    }

    /// Wakes those whose segmented messages' bytes have come, or never will.
    fn wake_asked(&mut self) {
        if self.session().closed().is_some() {
            self.wakes.extend(self.segmented_waits.drain().map(|(_, waker)| waker));
        }
        while let Some(segmented) = self.session_mut().next_asked() {
            self.wakes.extend(self.segmented_waits.remove(&segmented));
        }
    }

    /// Whether no call begins in this session any more, as far as this side decides that or knows.
    pub(crate) fn is_over(&self) -> bool {
        self.session().closed().is_some()
            || (self.session().role() == Role::Client && self.session().is_draining())
    }

    /// Arms the doorbell, for room too where somebody waits for that, and looks once more. `false`: there is something,
    /// so this side stays awake.
    pub(crate) fn arm(&mut self) -> bool {
        let (wants_room, opener_wants_room) = (self.room.has_untold(), self.opener_wants_room());
        if !self.connection.arm(wants_room || opener_wants_room) {
            return false;
        }
        let came = (wants_room && !self.due_senders().is_empty())
            || (opener_wants_room && !self.due_openers().is_empty());
        if came {
            self.connection.unpark();
        }
        !came
    }

    /// What the socket has to say: doorbells are forgotten, descriptors kept. A peer that does there what no peer does ends the session.
    pub(crate) fn hear(&mut self, socket: &Socket) -> SocketEvent {
        let published = self.connection.published();
        self.peer.on(socket).hear(published).unwrap_or_else(|violation| {
            self.close(Closed::Violation(violation), socket);
            SocketEvent::Dead
        })
    }

    /// The stream, where the peer is on another host.
    #[inline]
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        self.peer.link()
    }

    /// The stream takes more, or may.
    pub(crate) fn unblock(&mut self, socket: &Socket) {
        let published = self.connection.published();
        if let Some(link) = self.link() {
            link.unblock();
            link.flush(socket, published);
        }
    }

    /// A part of the longest silence has passed. `false`: the peer is taken for dead.
    pub(crate) fn beat(&mut self, socket: &Socket) -> bool {
        let published = self.connection.published();
        self.link().is_none_or(|link| link.beat(socket, published))
    }

    /// The peer is gone: what it had published still counts, then the session ends.
    pub(crate) fn hang_up(&mut self, socket: &Socket) {
        here(Point::HangUpHeard);
        // A dead peer publishes nothing more; one that only closed its socket gets no longer than a full ring.
        for _ in 0..LEFT_ROUNDS {
            if self.poll(socket) == 0 {
                break;
            }
        }
        if self.connection.hung_up() {
            counts::peer_died();
        }
        self.wake_ready();
    }

    /// Ends the session from this side: tells the peer as far as there is room, and hangs up.
    pub(crate) fn close(&mut self, reason: Closed, socket: &Socket) {
        self.connection.close(reason, &mut self.peer.on(socket));
        self.wake_ready();
    }

    /// When the connection's timer is due, where a runtime's driver has it. The first that asks has it.
    pub(crate) fn timer_for(&mut self, runtime: runtime::Id, now_ns: u64) -> Option<u64> {
        if *self.timed_by.get_or_insert(runtime) != runtime {
            return None;
        }
        let due_ns = self.connection.timeout(now_ns);
        if due_ns.is_none() {
            self.timed_by = None;
        }
        due_ns
    }

    /// A driver is about to beat for the session. Whether no other does.
    pub(crate) fn takes_beat(&mut self) -> bool {
        !std::mem::replace(&mut self.beats_watched, true)
    }

    /// The driver of a runtime goes: others may have the connection's timer, and beat where it did.
    pub(crate) fn leaves_timers(&mut self, runtime: runtime::Id, has_beaten: bool) {
        self.timed_by.take_if(|timed_by| *timed_by == runtime);
        self.beats_watched &= !has_beaten;
    }

    /// Sees to what the connection wanted a timer for.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, socket: &Socket) {
        self.connection.handle_timeout(now_ns, &mut self.peer.on(socket));
    }

    /// Wakes the peer, whether or not it has said that it sleeps.
    pub(crate) fn ring(&mut self, socket: &Socket) {
        self.connection.ring(&mut self.peer.on(socket));
    }

    /// Whether the peer's waiting thread runs on this processor; also says so to the peer.
    pub(crate) fn shares_cpu(&mut self) -> bool {
        self.connection.shares_cpu(current_cpu())
    }

    /// A slot's task has gone (done, dropped, panicked): if it polled, another takes over.
    pub(crate) fn leave(&mut self, key: WaitKey) {
        if let Some(slot) = self.slot(key) {
            slot.waiting = false;
        }
        self.stops_polling(key);
    }

    /// If a task polled under this key, another takes over.
    fn stops_polling(&mut self, key: WaitKey) {
        if let Some(runtime_waiters) = self.waiters.polled_by(key) {
            let runtime = runtime_waiters.runtime;
            self.hand_over(runtime);
        }
    }

    /// The poller of a runtime has gone: the next that waits is woken, and polls from now on. Should it go too before
    /// it gets its turn, its own leaving hands over again. Where there is none, tasks of other runtimes may count on a
    /// doorbell that this one has put away, and small frames on somebody who sends them.
    pub(crate) fn hand_over(&mut self, runtime: runtime::Id) {
        let next = self.first_waiting(runtime);
        let Some(runtime_waiters) = self.waiters.find(runtime) else { return };
        runtime_waiters.hand_over(next);
        match next {
            Some(next) => {
                self.nudge |= !runtime_waiters.watched;
                self.wake(next);
            }
            None => self.handed_to_nobody(runtime),
        }
    }

    /// Nobody polls for a runtime any more: a driver looks where others count on it.
    pub(crate) fn handed_to_nobody(&mut self, runtime: runtime::Id) {
        self.nudge |= self.waits_by_itself() || self.waiters.others_sleep(runtime);
    }

    /// The first slot of a runtime that still waits.
    pub(crate) fn first_waiting(&mut self, runtime: runtime::Id) -> Option<WaitKey> {
        loop {
            let key = self.waiters.find(runtime)?.front()?;
            if self.slot(key).is_some_and(|slot| slot.waits_in(runtime)) {
                return Some(key);
            }
            // Borrowed apart: the slot may live in a stream of the session.
            let mut waiters = std::mem::take(&mut self.waiters);
            if let Some(runtime_waiters) = waiters.find(runtime) {
                runtime_waiters.drop_front(self.slot(key));
            }
            self.waiters = waiters;
        }
    }

    /// Whether anybody counts on the doorbell: tasks in a runtime that nobody polls, or frames that nobody would send.
    pub(crate) fn anyone_sleeps(&mut self) -> bool {
        let mut polled = false;
        for idx in 0..self.waiters.list.len() {
            let (runtime, is_polled) = (self.waiters.list[idx].runtime, self.waiters.list[idx].is_polled());
            polled |= is_polled;
            if !is_polled && self.first_waiting(runtime).is_some() {
                return true;
            }
        }
        self.waits_by_itself() && !polled
    }

    /// Whether something is to happen that no task looks for: room for frames, bytes of segmented messages, or segmented messages on calls that were
    /// cancelled.
    fn waits_by_itself(&self) -> bool {
        self.session().has_pending()
            || self.session().expects_strays()
            || self.session().awaits_segmented_bytes()
    }

    /// Has a driver see to what happens by itself, if nobody looks at the ring.
    pub(crate) fn leave_to_driver(&mut self) {
        self.nudge |= self.waits_by_itself() && !self.waiters.is_polled();
    }

    /// The poller of a runtime has stopped looking: it counts as asleep, if it waits at all.
    pub(crate) fn demote_poller(&mut self, runtime: runtime::Id) {
        let mut waiters = std::mem::take(&mut self.waiters);
        if let Some(runtime_waiters) = waiters.find(runtime)
            && let Some(key) = runtime_waiters.take_poller()
            && let Some(slot) = self.slot(key).filter(|slot| slot.waiting)
        {
            tracing::debug!(?key, "a task that looks for others has not looked for a while; the driver does");
            runtime_waiters.queue(key, slot);
        }
        self.waiters = waiters;
    }

    /// A runtime goes with its runtime. Its tasks, where they live on, have to wait elsewhere; and the other runtimes must
    /// not count on it.
    pub(crate) fn remove_runtime(&mut self, runtime: runtime::Id) {
        for key in self.waiters.remove(runtime) {
            self.wake(key);
        }
        // Its driver publishes nothing any more.
        self.connection.stops_gathering();
        self.nudge = true;
    }

    /// Queues keep the places of tasks that have gone until they come to the front; many of those go out together.
    fn sweep_queues(&mut self) {
        let most = 2 * self.session().stream_count() + self.opens.len() + 64;
        if self.waiters.list.iter().all(|runtime_waiters| runtime_waiters.queue_len() <= most) {
            return;
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        for runtime_waiters in &mut waiters.list {
            let runtime = runtime_waiters.runtime;
            runtime_waiters.sweep(|key| match self.slot(*key) {
                Some(slot) if slot.waits_in(runtime) => true,
                Some(slot) => {
                    slot.left_queue(runtime);
                    false
                }
                None => false,
            });
        }
        self.waiters = waiters;
    }

    /// A stream is let go of; tells the peer if it had not ended. Whoever waits on it is woken: another task may be in the middle
    /// of sending on it, read it, or watch for its end.
    pub(crate) fn forget(&mut self, id: StreamId, code: u16, socket: &Socket) {
        if !self.room.is_empty() {
            self.leave_room_queue(id);
        }
        self.session_mut().forget(id, code);
        here(Point::StreamForgotten);
        // Also for a task that looks at this moment, and does not wait.
        self.news += 1;
        let keys = [WaitKey::Read(id), WaitKey::Write(id)];
        // Its slots have gone with it.
        keys.into_iter().for_each(|key| self.stops_polling(key));
        self.sweep_queues();
        self.wake_ready();
        if self.session().has_pending() {
            self.flush(socket);
        }
        self.leave_to_driver();
    }
}

/// The processor that this thread runs on.
pub(crate) fn current_cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}
