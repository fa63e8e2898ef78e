//! A session that tasks of any runtime share: the lock, waiting, and the driver tasks.
//!
//! # Who polls
//! A task that waits looks at the ring itself: a few glances inside one `poll` (0.2 µs, or 1 where nobody else seems to want the thread), then by waking itself,
//! so that its runtime's other tasks and timers have their turns, for as long as the spin budget says. Then it arms the
//! doorbell, looks once more, and sleeps; its runtime's driver task sleeps on the socket for all. Who only probes, since such waits have
//! been too long, arms it before, and is asleep for all others while it looks. A task that polls wakes
//! everybody for whom something came ([`crate::runtime_waiters`]). Nobody handles more than a bounded number of records in one
//! `poll`, however many a peer sends.
//!
//! # Crash
//! A polling task that is dropped or panics leaves through its handle's `Drop`, which wakes another; one that just stops
//! polling is noticed by the driver. A driver that goes with its runtime takes its runtime along. A fork's child finds
//! [its region's origin](tollfree_region::Origin) elsewhere and touches nothing, the parent's epoll included.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollfree_connection::Wait;
use tollfree_layout::StreamId;
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::tokio_net::unix::pipe;
use tollfree_region::Origin;
use tollfree_rendezvous::{PeerIdentity, socket};
use tollfree_session::Closed;

use crate::core::Core;
use crate::driver::{Driver, Duplicates};
use crate::link::Seed;
use crate::liveness::DeathWatch;
use crate::load::Load;
use crate::remote::RemoteIdentity;
use crate::runtime_waiters::{RuntimeWaiters, Slot, WaitKey, WaiterRole, slot_of};
use tollfree_host::Config;
use tollfree_host::Here;
use tollfree_host::Purpose;
use tollfree_host::SocketEvent;
use tollfree_host::counts;
use tollfree_host::{Attached, PeerPool};
use tollfree_os::clock::now_ns;

/// What a child of `fork` is told.
pub(crate) const FORKED: Closed =
    Closed::Here("this process was forked from the one that holds the session; connect anew in the child");

/// The rendezvous socket in a runtime's poller, and no pipe: this is tokio's way to be told only of what comes in. To be told of
/// room too would be to be woken whenever the peer has heard a doorbell.
pub(crate) type Socket = pipe::Receiver;
/// This side's own doorbell in a runtime's poller, which is told whenever it is rung; see [`tollfree_rendezvous::Doorbell`]. Of a
/// session over a stream: its socket, which "rings" when it takes more.
pub(crate) type OwnDoorbell = pipe::Sender;

/// The lock and what needs none.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// The process whose session it is.
    origin: Origin,
    /// Watched by the runtime that connected; other runtimes watch a duplicate.
    pub(crate) socket: Arc<Socket>,
    /// Where the peer rings, if not over the socket. Watched like it.
    pub(crate) doorbell: Option<Arc<OwnDoorbell>>,
    pub(crate) identity: PeerIdentity,
    /// At a listener for other hosts.
    pub(crate) remote: Option<RemoteIdentity>,
    pub(crate) agent: String,
    /// What the side that connected wants.
    pub(crate) purpose: Purpose,
    pub(crate) peer_pool: PeerPool,
    pub(crate) lends: bool,
    /// Tells of the end of the peer's process, no matter which process holds copies of its socket. Watched like the socket.
    pub(crate) death: Option<Arc<DeathWatch>>,
    pub(crate) clock_shift_ns: i64,
    /// See [`Config::silence`].
    pub(crate) silence: Duration,
    dedicated: AtomicBool,
    /// What the times of the connection's timer count from.
    epoch: Instant,
    pub(crate) load: Load,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.origin.is_elsewhere() {
            // Taking leave of epoll here would do so for the parent.
            std::mem::forget((self.socket.clone(), self.doorbell.clone(), self.death.clone()));
        } else {
            socket::leave(&*self.socket);
        }
    }
}

/// The lock held. Wakers are called when it is released.
pub(crate) struct Entered<'a> {
    core: Option<MutexGuard<'a, Core>>,
    socket: &'a Socket,
}

impl std::ops::Deref for Entered<'_> {
    type Target = Core;
    fn deref(&self) -> &Core {
        self.core.as_ref().expect("held until dropped")
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("held until dropped")
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        // Else the lock is released, and that is all: most of the time there is nothing to be said to anybody.
        if self.core.as_ref().is_some_and(|core| core.has_duties()) {
            self.see_to_duties();
        }
    }
}

impl Entered<'_> {
    /// Sends what nobody else would, and tells everybody for whom there are news, once the lock is released.
    #[inline(never)]
    fn see_to_duties(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        if core.connection.holds() && !core.holds_back() {
            core.flush(self.socket);
        }
        let mut nudge = std::mem::take(&mut core.nudge);
        if core.connection.wants_timer() {
            core.connection.timer_told();
            nudge = true;
        }
        let wakes = std::mem::take(&mut core.wakes);
        let spent = core.session_mut().take_spent();
        let mut ears: SmallVec<[Arc<Notify>; 2]> = SmallVec::new();
        if nudge {
            ears.extend(core.waiters.list.iter().map(|runtime_waiters| runtime_waiters.ear.clone()));
        }
        drop(core);
        wakes.into_iter().for_each(std::task::Waker::wake);
        // A pool takes locks of its own, and may make system calls.
        drop(spent);
        ears.iter().for_each(|ear| ear.notify_one());
    }

    /// Lets a thread that waits for the lock have it for a moment.
    pub(crate) fn let_others_in(&mut self) {
        MutexGuard::bump(self.core.as_mut().expect("held until dropped"));
    }

    /// Lets other processes have this processor, once in a number of times, if this side is a good neighbor.
    #[inline]
    pub(crate) fn offer_now_and_then(&mut self) {
        if self.connection.wait().is_thrifty() && Here::is_offer_due() {
            // Where the peer has this processor too, it did what is waited for, however long that took.
            let taken_ns = if self.shares_cpu() { u64::MAX } else { self.connection.wait().taken_ns() };
            self.without_lock(&mut || Here::offer(taken_ns));
        }
    }

    /// Does something that needs no lock, and may be anybody's code.
    pub(crate) fn without_lock(&mut self, other: &mut dyn FnMut()) {
        MutexGuard::unlocked(self.core.as_mut().expect("held until dropped"), other);
    }
}

impl Shared {
    /// Must be called in the runtime that is to watch the socket.
    pub(crate) fn new(
        mut attached: Attached,
        seed: Option<Box<Seed>>,
        socket: Socket,
        config: &Config,
    ) -> io::Result<Arc<Shared>> {
        let death = attached.take_pidfd().map(DeathWatch::new).transpose()?;
        let (origin, identity) = (attached.own.region.origin(), attached.identity);
        let doorbell = match &seed {
            // What wakes a driver, beside what comes: room for what goes.
            Some(_) => Some(duplicate(&socket)?),
            None => attached.take_doorbell().map(OwnedFd::from),
        };
        let doorbell = doorbell.map(OwnDoorbell::from_owned_fd_unchecked).transpose()?;
        let remote = seed.as_ref().and_then(|seed| seed.remote.clone());
        let (agent, purpose) = (attached.agent.clone(), attached.purpose.clone());
        let (clock_shift_ns, peer_pool, lends) =
            (attached.clock_shift_ns, attached.peer_pool, attached.lends);
        let (core, load) = Core::new(attached, seed, config);
        Ok(Arc::new(Shared {
            socket: Arc::new(socket),
            doorbell: doorbell.map(Arc::new),
            origin,
            identity,
            remote,
            agent,
            purpose,
            peer_pool,
            lends,
            death: death.map(Arc::new),
            clock_shift_ns,
            silence: config.silence,
            dedicated: config.dedicated.into(),
            epoch: Instant::now(),
            load,
            core: Mutex::new(core),
        }))
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// In a child of `fork`, which must not touch the session.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Closed> {
        if self.origin.is_elsewhere() {
            return Err(FORKED);
        }
        Ok(Entered { core: Some(self.core.lock()), socket: &self.socket })
    }

    /// Makes `attempt` until it succeeds; between attempts polls, spins and sleeps as the module says. `attempt` must be
    /// harmless to repeat while it returns `None`.
    pub(crate) fn poll_wait<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        key: WaitKey,
        speaks: bool,
        mut attempt: impl FnMut(&mut Core, &Socket) -> Option<R>,
    ) -> Poll<Result<R, Closed>> {
        let mut core = match self.enter() {
            Ok(core) => core,
            Err(closed) => return Poll::Ready(Err(closed)),
        };
        core.runs(key);
        // Before the first attempt: what comes for this task meanwhile need not wake it.
        core.offer_now_and_then();
        let mut search = None;
        loop {
            if let Some(found) = attempt(&mut core, &self.socket) {
                core.done(key);
                return Poll::Ready(Ok(found));
            }
            let search = match &mut search {
                Some(search) => search,
                None => search.insert(self.begin_search(&mut core, key, speaks)),
            };
            if !self.finds_news(&mut core, search, key) {
                let takes_over = search.takes_over;
                return self.wait(core, cx, key, takes_over);
            }
        }
    }

    /// Waits until `take` finds something that has come for a call.
    #[inline]
    pub(crate) fn poll_read<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        id: StreamId,
        speaks: bool,
        mut take: impl FnMut(&mut Core) -> Option<R>,
    ) -> Poll<Result<R, Closed>> {
        // A peer that answers within one glance must not keep this task from ever yielding to the others.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
        let polled = self.poll_wait(cx, WaitKey::Read(id), speaks, |core, socket| {
            let taken = take(core)?;
            if core.session().has_pending() {
                core.flush(socket);
            }
            Some(taken)
        });
        if polled.is_ready() {
            turn.made_progress();
        }
        polled
    }

    /// Nothing there: spin on by waking oneself, follow another, or sleep.
    fn wait<'a, R>(
        self: &'a Arc<Self>,
        mut core: Entered<'a>,
        cx: &mut Context<'_>,
        key: WaitKey,
        takes_over: bool,
    ) -> Poll<Result<R, Closed>> {
        let runtime = match core.waiters.polled_by(key) {
            Some(runtime_waiters) => runtime_waiters.runtime,
            None => match self.runtime_waiters(core) {
                Ok((runtime, entered)) => {
                    core = entered;
                    runtime
                }
                // A driver was started, without the lock: look again.
                Err(None) => return poll_again(cx),
                Err(Some(closed)) => return Poll::Ready(Err(closed)),
            },
        };
        let other = core.waiters.find(runtime).and_then(|runtime_waiters| runtime_waiters.other_poller(key));
        let replaceable = takes_over
            || other
                .is_some_and(|other| core.slot(other).is_none_or(|slot| slot.is_replaceable_by(cx.waker())));
        let duty = core.with_runtime(runtime, key, |runtime_waiters, slot| {
            runtime_waiters.wait(key, slot, cx.waker(), replaceable)
        });
        let Some(duty) = duty else {
            // The call has ended since it was looked at: the next attempt finds that.
            drop(core);
            return poll_again(cx);
        };
        core.turns.waits();
        if duty != WaiterRole::Poll {
            return Poll::Pending;
        }
        if let Some(other) = other {
            core.with_runtime(runtime, other, |runtime_waiters, slot| runtime_waiters.queue(other, slot));
        }
        let now = now_ns();
        core.connection.take_hint(now);
        let others_sleep = core.waiters.others_sleep(runtime);
        let dedicated = self.is_dedicated();
        let runtime_waiters = core.waiters.find(runtime).expect("found above");
        if runtime_waiters.begins_to_wait(now) {
            core.connection.wait_mut().wait_begins(now);
        }
        let runtime_waiters = core.waiters.find(runtime).expect("found above");
        runtime_waiters.looked_at_ns = if dedicated { 0 } else { now };
        let spun = now - runtime_waiters.wait_began_ns;
        let offers = match core.connection.decide(spun, now, &Here) {
            Wait::Park => {
                // Before the doorbell is armed, which is when the peer may ring.
                core.connection.wait_mut().parks(Here::thread_time);
                if self.park(&mut core, key, runtime) {
                    counts::parked();
                    counts::looked(spun);
                    return Poll::Pending;
                }
                drop(core);
                return poll_again(cx);
            }
            Wait::Probe { offers } => {
                // Asleep for everybody else: the peer rings, and no driver need watch. That takes a timer, which wakes this thread once
                // when it is set and once when it ends.
                self.park(&mut core, key, runtime);
                offers
            }
            Wait::Spin { offers } => {
                core.comes_again(runtime, others_sleep);
                offers
            }
        };
        let shared = core.shares_cpu();
        core.connection.wait_mut().saw_peer(shared);
        let (taken_ns, tells_all) = (core.connection.wait().taken_ns(), core.connection.wait().is_thrifty());
        drop(core);
        if offers {
            // Whatever else the runtime waits for has its turn before.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        } else {
            cx.waker().wake_by_ref();
        }
        if shared || offers {
            // The peer, or others, can only go on when this processor is given up.
            rustix::thread::sched_yield();
            if !shared {
                // Where the peer had it, it did what is waited for, however long that took.
                Here::offered(now, now_ns().saturating_sub(now), taken_ns, tells_all);
            }
        }
        Poll::Pending
    }

    /// Puts the task to sleep, unless something came meanwhile: then, `false`, it has to look again.
    fn park(&self, core: &mut Entered<'_>, key: WaitKey, runtime: runtime::Id) -> bool {
        if runtime::Handle::try_current().is_ok_and(|handle| handle.id() != runtime) {
            // It polled for a runtime where it does not live any more, and whose driver must not be what wakes it.
            core.leave(key);
            return false;
        }
        if !core.arm() {
            // Something came between the last look and the doorbell being armed. Should the task not come back to look at it,
            // the driver does.
            core.nudge |= core.waiters.find(runtime).is_some_and(|runtime_waiters| !runtime_waiters.watched);
            return false;
        }
        core.with_runtime(runtime, key, |runtime_waiters, slot| runtime_waiters.park(key, slot));
        true
    }

    /// The runtime of the runtime that polls. `Err(None)`: it is new and its driver was started; try again.
    fn runtime_waiters<'a>(
        self: &'a Arc<Self>,
        mut core: Entered<'a>,
    ) -> Result<(runtime::Id, Entered<'a>), Option<Closed>> {
        let Ok(handle) = runtime::Handle::try_current() else {
            // Another executor: the session's own driver serves it too, wherever that is.
            let first = core.waiters.list.first().map(|runtime_waiters| runtime_waiters.runtime);
            let gone = Closed::Here("no tokio runtime drives this session any more");
            return first.map(|runtime| (runtime, core)).ok_or(Some(gone));
        };
        let id = handle.id();
        if core.waiters.find(id).is_some() {
            return Ok((id, core));
        }
        drop(core);
        self.start_driver(&handle)
            .map_err(|_| Closed::Here("the session's socket can't be watched in this runtime"))?;
        // A runtime that shuts down drops what is spawned at once.
        if self.enter()?.waiters.find(id).is_none() {
            return Err(Some(Closed::Here(
                "the runtime is shutting down: nobody can wait for a session in it",
            )));
        }
        Err(None)
    }

    /// Starts the driver task of a runtime. The lock must be free: where the runtime is shutting down the task is
    /// dropped at once.
    ///
    /// # Errors
    /// When the runtime has no IO, or descriptors are out; in a child of `fork`.
    pub(crate) fn start_driver(self: &Arc<Self>, handle: &runtime::Handle) -> io::Result<()> {
        let forked = |_| io::Error::other("forked");
        let is_first = self.enter().map_err(forked)?.waiters.first_started();
        let duplicates = if is_first {
            None
        } else {
            let _in_runtime = handle.enter();
            let socket = Socket::from_owned_fd_unchecked(duplicate(&self.socket)?)?;
            let own = self.doorbell.as_ref().map(|own| OwnDoorbell::from_owned_fd_unchecked(duplicate(own)?));
            let death = self.death.as_ref().map(|death| death.duplicate());
            Some(Duplicates {
                socket: Arc::new(socket),
                doorbell: own.transpose()?.map(Arc::new),
                death: death.transpose()?.map(Arc::new),
            })
        };
        let ear = Arc::<Notify>::default();
        let mut core = self.enter().map_err(forked)?;
        if core.waiters.find(handle.id()).is_some() {
            // Another thread of the runtime was quicker.
            return Ok(());
        }
        core.waiters.add(handle, ear.clone());
        drop(core);
        let driver = Driver {
            shared: self.clone(),
            runtime: handle.id(),
            duplicates,
            watch: None,
            due: None,
            beat: None,
            owes_look: false,
        };
        handle.spawn(driver.run(ear));
        Ok(())
    }

    /// The time that the connection's timer goes by.
    pub(crate) fn timer_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// When the timer of the connection is due, where that is this runtime's driver's; it has it from now on if no other has.
    pub(crate) fn timer_for(&self, core: &mut Core, runtime: runtime::Id) -> Option<Instant> {
        core.timer_for(runtime, self.timer_ns()).map(|ns| self.epoch + Duration::from_nanos(ns))
    }

    /// See [`Attachment::offer`](crate::Attachment::offer).
    pub(crate) fn offer(&self) {
        if let Ok(mut core) = self.enter() {
            core.offer_now_and_then();
        }
    }

    /// See [`Attachment::look_for_taken`](crate::Attachment::look_for_taken).
    pub(crate) fn look_for_taken(&self) -> bool {
        let Ok(mut core) = self.enter() else { return false };
        let before = core.session().segmented_messages_in_flight();
        before > 0 && core.poll(&self.socket) > 0 && core.session().segmented_messages_in_flight() < before
    }

    /// Whether the thread serves this session and does nothing else.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.dedicated.load(Ordering::Relaxed)
    }

    /// See [`Attachment::set_dedicated`](crate::Attachment::set_dedicated).
    pub(crate) fn set_dedicated(&self, dedicated: bool) {
        self.dedicated.store(dedicated, Ordering::Relaxed);
    }

    /// See [`Attachment::attend`](crate::Attachment::attend).
    pub(crate) fn attend(&self) {
        let Ok(mut core) = self.enter() else { return };
        if core.session().closed().is_some() {
            return;
        }
        let line = match core.hear(&self.socket) {
            // A hang-up may lie behind.
            SocketEvent::Rang => core.hear(&self.socket),
            line => line,
        };
        if line == SocketEvent::Dead {
            core.hang_up(&self.socket);
        }
    }

    /// Ends the session from this side.
    pub(crate) fn close(&self, reason: &'static str) {
        if let Ok(mut core) = self.enter()
            && core.session().closed().is_none()
        {
            core.close(Closed::Here(reason), &self.socket);
        }
    }
}

impl Core {
    /// Puts a task to wait for what can't have come yet, where another of its runtime looks at the ring. `false`: it has to
    /// look itself.
    pub(crate) fn follow(&mut self, cx: &Context<'_>, key: WaitKey) -> bool {
        if !self.waiters.is_polled() {
            return false;
        }
        let Ok(handle) = runtime::Handle::try_current() else { return false };
        let runtime = handle.id();
        let other = self.waiters.find(runtime).and_then(|runtime_waiters| runtime_waiters.other_poller(key));
        let Some(other) = other else { return false };
        if self.slot(other).is_none_or(|slot| slot.is_replaceable_by(cx.waker())) {
            return false;
        }
        let wait = |runtime_waiters: &mut RuntimeWaiters, slot: &mut Slot| {
            runtime_waiters.wait(key, slot, cx.waker(), false)
        };
        self.turns.waits();
        self.with_runtime(runtime, key, wait) == Some(WaiterRole::Follow)
    }

    /// Puts a task to wait that could look for what it waits for, so that those go first who wait since longer; it looks when
    /// its turn comes. `false`: nobody knows its runtime yet, and it has to look at once.
    pub(crate) fn give_way(&mut self, cx: &Context<'_>, key: WaitKey) -> bool {
        let Ok(handle) = runtime::Handle::try_current() else { return false };
        let runtime = handle.id();
        if self.waiters.find(runtime).is_none() {
            return false;
        }
        self.turns.waits();
        let stamp = self.turns.wakes();
        let wait = |runtime_waiters: &mut RuntimeWaiters, slot: &mut Slot| {
            slot.woken(stamp);
            runtime_waiters.wait(key, slot, cx.waker(), false)
        };
        match self.with_runtime(runtime, key, wait) {
            Some(WaiterRole::Poll) => self.comes_again(runtime, self.waiters.others_sleep(runtime)),
            Some(WaiterRole::Follow) => {}
            None => return false,
        }
        cx.waker().wake_by_ref();
        true
    }

    /// The poller of a runtime looks again when it has its turn: the driver watches whether it does, and the peer need not ring.
    fn comes_again(&mut self, runtime: runtime::Id, others_sleep: bool) {
        let runtime_waiters = self.waiters.find(runtime).expect("the caller has found it");
        runtime_waiters.look_count = runtime_waiters.look_count.wrapping_add(1);
        if !runtime_waiters.watched {
            runtime_waiters.watched = true;
            runtime_waiters.ear.notify_one();
        }
        if !others_sleep {
            self.connection.unpark();
        }
    }

    /// Borrows a runtime and a slot at once; they live in different parts of the core. `None`, and nothing done, for the key of
    /// a stream that is gone: nobody can wait under it.
    fn with_runtime<R>(
        &mut self,
        runtime: runtime::Id,
        key: WaitKey,
        act: impl FnOnce(&mut RuntimeWaiters, &mut Slot) -> R,
    ) -> Option<R> {
        let Core { connection, opens, accept, waiters, .. } = self;
        let runtime_waiters = waiters.find(runtime).expect("the caller has found or made it");
        let slot = slot_of(connection.session_mut(), opens, accept, key)?;
        Some(act(runtime_waiters, slot))
    }

    /// A key has what it waited for.
    #[inline]
    fn done(&mut self, key: WaitKey) {
        let Some(runtime_waiters) = self.waiters.polled_by(key) else { return };
        let runtime = runtime_waiters.runtime;
        if runtime_waiters.queue_len() == 0 {
            runtime_waiters.hand_over(None);
            self.handed_to_nobody(runtime);
            return;
        }
        if let Some(slot) = self.slot(key) {
            // Not to be handed over to itself.
            slot.waiting = false;
        }
        self.hand_over(runtime);
    }
}

fn duplicate(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

fn poll_again<R>(cx: &mut Context<'_>) -> Poll<R> {
    cx.waker().wake_by_ref();
    Poll::Pending
}
