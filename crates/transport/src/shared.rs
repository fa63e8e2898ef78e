//! A session that tasks of any runtime share: the lock, waiting, and the driver tasks.
//!
//! # Who pumps
//! A task that waits looks at the ring itself: a few glances inside one `poll` (0.2 µs at most), then by waking itself,
//! so that its runtime's other tasks and timers have their turns, for as long as the spin budget says. Then it arms the
//! doorbell, looks once more, and sleeps; its runtime's driver task sleeps on the socket for all. Whoever pumps wakes
//! everybody for whom something came ([`crate::stations`]).
//!
//! # Crash
//! A pumping task that is dropped or panics leaves through its handle's `Drop`, which wakes another. A driver that goes
//! with its runtime takes its station along. A fork's child finds [`forked`](tollfree_region::forked) set and touches
//! nothing.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime;
use tollfree_ring::RecordReceiver;
use tollfree_session::Closed;

use crate::config::Config;
use crate::core::Core;
use crate::handshake::Attached;
use crate::socket::{PeerIdentity, now_ns};
use crate::stations::{Duty, Token};

/// Glances at an empty ring within one `poll`, with a pause after each: 0.2 µs together.
const GLANCE_COUNT: usize = 14;

/// What a child of `fork` is told.
pub(crate) const FORKED: Closed =
    Closed::Here("this process was forked from the one that holds the session; connect anew in the child");

/// The lock and what needs none.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Watched by the runtime that connected; other runtimes watch a duplicate.
    pub(crate) socket: UnixStream,
    pub(crate) identity: PeerIdentity,
    pub(crate) agent: String,
    pub(crate) clock_shift_ns: i64,
    area_idle: Duration,
    area_made: tokio::sync::Notify,
}

/// The lock held. Wakers are called when it is released.
pub(crate) struct Entered<'a> {
    core: Option<MutexGuard<'a, Core>>,
    shared: &'a Shared,
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
    fn drop(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        let area_made = std::mem::take(&mut core.area_made);
        if core.wakes.is_empty() && !area_made {
            return;
        }
        let wakes = std::mem::take(&mut core.wakes);
        drop(core);
        wakes.into_iter().for_each(std::task::Waker::wake);
        if area_made {
            self.shared.area_made.notify_one();
        }
    }
}

impl Shared {
    pub(crate) fn new(attached: Attached, socket: UnixStream, config: &Config) -> Arc<Shared> {
        Arc::new(Shared {
            socket,
            identity: attached.identity,
            agent: attached.agent.clone(),
            clock_shift_ns: attached.clock_shift_ns,
            area_idle: config.area_idle,
            area_made: tokio::sync::Notify::new(),
            core: Mutex::new(Core::new(attached, config)),
        })
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// In a child of `fork`, which must not touch the session.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Closed> {
        if tollfree_region::forked() {
            return Err(FORKED);
        }
        Ok(Entered { core: Some(self.core.lock()), shared: self })
    }

    /// Makes `attempt` until it succeeds; between attempts pumps, spins and sleeps as the module says. `attempt` must be
    /// harmless to repeat while it returns `None`.
    pub(crate) fn poll_wait<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        token: Token,
        mut attempt: impl FnMut(&mut Core, &UnixStream) -> Option<R>,
    ) -> Poll<Result<R, Closed>> {
        let mut core = match self.enter() {
            Ok(core) => core,
            Err(closed) => return Poll::Ready(Err(closed)),
        };
        let mut found = attempt(&mut core, &self.socket);
        if found.is_none() {
            // While this task looks itself, records for it need not wake it.
            if let Some(slot) = core.slot(token) {
                slot.waiting = false;
            }
            found = self.look(&mut core, &mut attempt);
        }
        let Some(found) = found else { return self.wait(core, cx, token) };
        core.done(token);
        Poll::Ready(Ok(found))
    }

    /// Pumps and tries again for as long as that helps, with a few glances at the ring when it is empty.
    fn look<R>(
        &self,
        core: &mut Core,
        attempt: &mut impl FnMut(&mut Core, &UnixStream) -> Option<R>,
    ) -> Option<R> {
        let mut glances = 0;
        loop {
            if core.pump(&self.socket) > 0 {
                let found = attempt(core, &self.socket);
                if core.session.has_pending() {
                    core.flush(&self.socket);
                }
                if found.is_some() {
                    return found;
                }
            } else if core.session.closed().is_some() {
                return attempt(core, &self.socket);
            }
            while core.receiving.is_empty() {
                if glances == GLANCE_COUNT {
                    return None;
                }
                glances += 1;
                std::hint::spin_loop();
            }
        }
    }

    /// Nothing there: spin on by waking oneself, follow another, or sleep.
    fn wait<R>(
        self: &Arc<Self>,
        mut core: Entered<'_>,
        cx: &mut Context<'_>,
        token: Token,
    ) -> Poll<Result<R, Closed>> {
        let runtime = match core.stations.pumped_by(token) {
            Some(station) => station.runtime,
            None => match self.station(&mut core) {
                Ok(runtime) => runtime,
                Err(closed) => return Poll::Ready(Err(closed)),
            },
        };
        let duty = core.with_station(runtime, token, |station, slot| station.wait(token, slot, cx.waker()));
        if duty != Duty::Pump {
            return Poll::Pending;
        }
        let now = now_ns();
        let budget = core.budget.ns();
        let station = core.stations.find(runtime).expect("found above");
        if station.wait_began_ns == 0 {
            station.wait_began_ns = now;
        }
        let spun = now - station.wait_began_ns;
        if spun < budget {
            core.waiter.unpark();
            let crowded = core.shares_cpu();
            drop(core);
            cx.waker().wake_by_ref();
            if crowded {
                // The peer can only go on when this processor is given up.
                rustix::thread::sched_yield();
            }
            return Poll::Pending;
        }
        if !core.arm() {
            // Something came between the last look and the doorbell being armed.
            drop(core);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        core.with_station(runtime, token, |station, slot| station.park(token, slot));
        Poll::Pending
    }

    /// The station of the runtime that polls, made with its driver when it is new.
    fn station(self: &Arc<Self>, core: &mut Entered<'_>) -> Result<runtime::Id, Closed> {
        let Ok(handle) = runtime::Handle::try_current() else {
            // Another executor: the session's own driver serves it too, wherever that is.
            let first = core.stations.list.first().map(|station| station.runtime);
            return first.ok_or(Closed::Here("no tokio runtime drives this session any more"));
        };
        let id = handle.id();
        if core.stations.find(id).is_none() {
            self.start_driver(core, &handle)
                .map_err(|_| Closed::Here("the session's socket can't be watched in this runtime"))?;
        }
        Ok(id)
    }

    /// Starts the driver task of a runtime.
    ///
    /// # Errors
    /// When the runtime has no IO, or descriptors are out.
    pub(crate) fn start_driver(
        self: &Arc<Self>,
        core: &mut Core,
        handle: &runtime::Handle,
    ) -> io::Result<()> {
        let duplicate = if core.stations.first_started() {
            None
        } else {
            let _in_runtime = handle.enter();
            let duplicate = rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?;
            Some(UnixStream::from_std(duplicate.into())?)
        };
        core.stations.add(handle.id());
        let driver = Driver { shared: self.clone(), runtime: handle.id(), duplicate };
        handle.spawn(driver.run());
        Ok(())
    }

    /// Ends the session from this side.
    pub(crate) fn close(&self, reason: &'static str) {
        if let Ok(mut core) = self.enter()
            && core.session.closed().is_none()
        {
            core.close(Closed::Here(reason), &self.socket);
        }
    }
}

impl Core {
    /// Borrows a station and a slot at once; they live in different parts of the core.
    fn with_station<R>(
        &mut self,
        runtime: runtime::Id,
        token: Token,
        act: impl FnOnce(&mut crate::stations::Station, &mut crate::stations::Slot) -> R,
    ) -> R {
        let mut stations = std::mem::take(&mut self.stations);
        let station = stations.find(runtime).expect("the caller has found or made it");
        let mut gone = crate::stations::Slot::default();
        let slot = self.slot(token).unwrap_or(&mut gone);
        let result = act(station, slot);
        self.stations = stations;
        result
    }

    /// A token has what it waited for.
    fn done(&mut self, token: Token) {
        if let Some(station) = self.stations.pumped_by(token) {
            let runtime = station.runtime;
            self.hand_over(runtime);
        }
    }
}

/// The task that sleeps on the socket in one runtime.
struct Driver {
    shared: Arc<Shared>,
    runtime: runtime::Id,
    duplicate: Option<UnixStream>,
}

impl Driver {
    async fn run(self) {
        let socket = self.duplicate.as_ref().unwrap_or(&self.shared.socket);
        let mut area_live = false;
        loop {
            tokio::select! {
                ready = socket.readable() => {
                    if ready.is_err() {
                        break;
                    }
                    // What comes from here on is a new event; what is there now is read below.
                    let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                    if !self.woken() {
                        break;
                    }
                }
                () = self.shared.area_made.notified() => area_live = true,
                () = tokio::time::sleep(self.shared.area_idle), if area_live => area_live = self.look_after_area(),
            }
        }
    }

    /// The doorbell rang, a descriptor came, or the peer hung up. `false`: the session is over.
    fn woken(&self) -> bool {
        let Ok(mut core) = self.shared.enter() else { return false };
        let socket = &self.shared.socket;
        core.waiter.unpark();
        if !core.hear(socket) {
            core.hang_up(socket);
        }
        if core.session.closed().is_some() {
            core.wake_ready();
            return false;
        }
        loop {
            core.pump(socket);
            core.flush(socket);
            if core.session.closed().is_some() {
                return true;
            }
            core.wake_ready();
            let pumped = core.stations.find(self.runtime).is_none_or(|station| station.is_pumped());
            let waiting = core.first_waiting(self.runtime).is_some() || core.session.has_pending();
            if pumped || !waiting || core.arm() {
                return true;
            }
        }
    }

    fn look_after_area(&self) -> bool {
        let Ok(mut core) = self.shared.enter() else { return false };
        core.drop_idle_area(&self.shared.socket);
        core.sending.area.is_live()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Ok(mut core) = self.shared.enter() else { return };
        core.stations.remove(self.runtime);
    }
}
