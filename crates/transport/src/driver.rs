//! The driver: the task that sleeps on the socket in one runtime, for all that wait there.
//!
//! It hears doorbells, the peer's hang-up and the end of its process; it watches the pumper of its station, and steps in when that has stopped
//! looking at the ring; it gives up a payload area that nobody uses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::liveness::DeathWatch;
use crate::shared::{Entered, Shared};

/// A pumper that has not looked at the ring for this long is not counted on any more.
const TICK: Duration = Duration::from_millis(2);
/// Times that the driver looks at the ring before other tasks have their turn.
const ROUND_COUNT: usize = 4;

/// The driver of a station.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtime: runtime::Id,
    /// Watched instead of the session's own socket and death watch, which belong to another runtime.
    pub(crate) duplicate: Option<(Arc<UnixStream>, Option<Arc<DeathWatch>>)>,
    /// Where others call.
    pub(crate) ear: Arc<Notify>,
    /// While the station is pumped: when to look at the pumper next, and how often it had looked the last time.
    pub(crate) watch: Option<(Instant, u64)>,
    /// While there is a payload area to look after: when.
    pub(crate) area: Option<Instant>,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Sleep.
    Sleep,
    /// Look again, after others had their turn.
    Again,
    /// The session is over.
    Over,
}

impl Driver {
    pub(crate) async fn run(mut self) {
        let (socket, death) =
            self.duplicate.clone().unwrap_or_else(|| (self.shared.socket.clone(), self.shared.death.clone()));
        let never = Instant::now();
        loop {
            let (watch_at, area_at) = (self.watch.map(|(at, _)| at), self.area);
            let mut next = tokio::select! {
                ready = socket.readable() => {
                    if ready.is_err() {
                        return;
                    }
                    // What comes from here on is a new event; what is there now is read below.
                    let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                    self.rung()
                }
                ended = died(death.as_deref()), if death.is_some() => {
                    if ended.is_err() {
                        return;
                    }
                    self.hung_up()
                }
                () = self.ear.notified() => self.called(),
                () = sleep_until(watch_at.unwrap_or(never)), if watch_at.is_some() => self.look_at_pumper(),
                () = sleep_until(area_at.unwrap_or(never)), if area_at.is_some() => self.look_at_area(),
            };
            while next == Next::Again {
                tokio::task::yield_now().await;
                next = self.shared.enter().map_or(Next::Over, |core| self.serve(core));
            }
            if next == Next::Over {
                return;
            }
        }
    }

    /// The doorbell rang, a descriptor came, or the peer hung up.
    fn rung(&mut self) -> Next {
        tollfree_kill_points::here(tollfree_kill_points::Point::DoorbellHeard);
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        let socket = &self.shared.socket;
        if !core.hear(socket) {
            core.hang_up(socket);
        }
        if core.session.closed().is_some() {
            core.wake_ready();
            return Next::Over;
        }
        self.serve(core)
    }

    /// The peer's process has ended. Where its socket has not hung up, a process that it forked holds a copy.
    fn hung_up(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        core.hang_up(&self.shared.socket);
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
        Next::Over
    }

    /// Somebody began to pump, made an area, or left something behind.
    fn called(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        if std::mem::take(&mut core.area_made) {
            self.area = Some(Instant::now() + self.shared.area_idle);
        }
        let Some(station) = core.stations.find(self.runtime) else { return Next::Over };
        if station.is_pumped() && self.watch.is_none() {
            station.watched = true;
            self.watch = Some((Instant::now() + TICK, station.look_count));
        } else if self.watch.is_none() {
            station.watched = false;
        }
        self.serve(core)
    }

    /// Handles what came, and arms the doorbell where somebody counts on it.
    fn serve(&self, mut core: Entered<'_>) -> Next {
        let socket = &self.shared.socket;
        core.waiter.unpark();
        for _ in 0..ROUND_COUNT {
            core.pump(socket);
            core.flush(socket);
            core.wake_ready();
            if core.session.closed().is_some() {
                // The hang-up that follows ends the driver.
                return Next::Sleep;
            }
            if !core.anyone_sleeps() || core.arm() {
                return Next::Sleep;
            }
        }
        Next::Again
    }

    fn look_at_pumper(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        let Some(station) = core.stations.find(self.runtime) else { return Next::Over };
        let look_count = station.look_count;
        if self.watch.is_some_and(|(_, seen)| seen != look_count) {
            self.watch = Some((Instant::now() + TICK, look_count));
            return Next::Sleep;
        }
        self.watch = None;
        station.watched = false;
        core.demote_pumper(self.runtime);
        self.serve(core)
    }

    fn look_at_area(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        core.drop_idle_area(&self.shared.socket);
        let exists = core.sending.area.exists();
        self.area = exists.then(|| Instant::now() + self.shared.area_idle);
        Next::Sleep
    }
}

/// Waits for the end of the peer's process.
async fn died(death: Option<&DeathWatch>) -> io::Result<()> {
    match death {
        Some(death) => death.wait().await,
        None => std::future::pending().await,
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Ok(mut core) = self.shared.enter() else {
            std::mem::forget(self.duplicate.take());
            return;
        };
        core.area_made |= self.area.is_some();
        core.remove_station(self.runtime);
    }
}
