//! The driver: the task that sleeps on the socket in one runtime, for all that wait there.
//!
//! It hears doorbells, the peer's hang-up and the end of its process; it watches the poller of its runtime, and steps in when that has stopped
//! looking at the ring; it has the connection's timer.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Sleep, sleep_until};
use tollfree_kill_points::{Point, here};
use tollfree_os::rustix;
use tollfree_rendezvous::{Doorbell, RateLimitedLog};
use tollfree_session::{Closed, Violation};

use crate::liveness::DeathWatch;
use crate::shared::{Entered, OwnDoorbell, Shared, Socket};
use tollfree_host::SocketEvent;

static SILENT: RateLimitedLog = RateLimitedLog::new();

/// A poller that has not looked at the ring for this long is not counted on any more.
const TICK: Duration = Duration::from_millis(2);
/// Beats within [`Config::silence`](crate::Config::silence), for a session over a stream.
pub(crate) const BEATS_OF_SILENCE: u32 = 4;
/// Times that the driver looks at the ring before other tasks have their turn.
const ROUND_COUNT: usize = 4;

/// What a session is woken by, as another runtime than its first one watches it.
pub(crate) struct Duplicates {
    pub(crate) socket: Arc<Socket>,
    pub(crate) doorbell: Option<Arc<OwnDoorbell>>,
    pub(crate) death: Option<Arc<DeathWatch>>,
}

/// The driver of a runtime.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtime: runtime::Id,
    /// Watched instead of the session's own, which belong to another runtime.
    pub(crate) duplicates: Option<Duplicates>,
    /// While the runtime is polled: when to look at the poller next, and how often it had looked the last time.
    pub(crate) watch: Option<(Instant, u64)>,
    /// Where the connection wants a timer, and no other driver has it: when.
    pub(crate) due: Option<Instant>,
    /// Where the session has a stream, and no other driver beats: when to.
    pub(crate) beat: Option<Instant>,
    /// It is to look again, now that others had their turn.
    pub(crate) owes_look: bool,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Sleep.
    Sleep,
    /// Look again, after others had their turn.
    Again,
    /// The same, after those too that the runtime has yet to hear of: something waits for more, for a bounded time.
    Later,
    /// The session is over.
    Over,
}

impl Driver {
    /// `ear` is where others call.
    pub(crate) async fn run(mut self, ear: Arc<Notify>) {
        let mut call = pin!(ear.notified());
        let mut alarm = None;
        poll_fn(|cx| self.poll(cx, &ear, &mut call, &mut alarm)).await;
    }

    /// Sees to one thing after the other, until there is none left. Written out, because it runs at each doorbell: a `select!`
    /// makes and drops all its futures each time.
    fn poll<'e>(
        &mut self,
        cx: &mut Context<'_>,
        ear: &'e Notify,
        call: &mut Pin<&mut Notified<'e>>,
        alarm: &mut Option<Pin<Box<Sleep>>>,
    ) -> Poll<()> {
        let mut next = match std::mem::take(&mut self.owes_look) {
            true => self.shared.enter().map_or(Next::Over, |core| self.serve(core)),
            false => Next::Sleep,
        };
        while next == Next::Sleep {
            next = if let Some(doorbell) = self.doorbell()
                && let Poll::Ready(ready) = doorbell.poll_write_ready(cx)
            {
                // The next ring is a new event. One that is there already may be none, but what never passes any more.
                let _ = doorbell.try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                let is_spoilt = doorbell.poll_write_ready(cx).is_ready() && Doorbell::is_spoilt(doorbell);
                ready.map_or(Next::Over, |()| self.rung(is_spoilt))
            } else if let Poll::Ready(ready) = self.socket().poll_read_ready(cx) {
                // What comes from here on is a new event; what is there now is read below.
                let _ = self.socket().try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
                ready.map_or(Next::Over, |()| self.heard())
            } else if let Some(death) = self.death()
                && let Poll::Ready(ended) = death.poll_ended(cx)
            {
                ended.map_or(Next::Over, |()| self.hung_up())
            } else if call.as_mut().poll(cx).is_ready() {
                call.set(ear.notified());
                self.called()
            } else if self.poll_alarm(cx, alarm).is_ready() {
                self.alarmed()
            } else {
                return Poll::Pending;
            };
        }
        if next == Next::Over {
            return Poll::Ready(());
        }
        // When others have had their turn.
        self.owes_look = true;
        match next {
            Next::Later => _ = pin!(tokio::task::yield_now()).poll(cx),
            _ => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    fn socket(&self) -> &Socket {
        self.duplicates.as_ref().map_or(&self.shared.socket, |watched| &watched.socket)
    }

    fn doorbell(&self) -> Option<&OwnDoorbell> {
        self.duplicates.as_ref().map_or(&self.shared.doorbell, |watched| &watched.doorbell).as_deref()
    }

    fn death(&self) -> Option<&DeathWatch> {
        self.duplicates.as_ref().map_or(&self.shared.death, |watched| &watched.death).as_deref()
    }

    /// Ready when something is due.
    fn poll_alarm(&self, cx: &mut Context<'_>, alarm: &mut Option<Pin<Box<Sleep>>>) -> Poll<()> {
        let watch_at = self.watch.map(|(at, _)| at);
        let Some(at) = [watch_at, self.due, self.beat].into_iter().flatten().min() else {
            return Poll::Pending;
        };
        let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if alarm.deadline() != at {
            alarm.as_mut().reset(at);
        }
        alarm.as_mut().poll(cx)
    }

    /// Something is due.
    fn alarmed(&mut self) -> Next {
        let now = Instant::now();
        if self.watch.is_some_and(|(at, _)| at <= now) {
            self.look_at_poller()
        } else if self.due.is_some_and(|at| at <= now) {
            self.timed_out()
        } else if self.beat.is_some_and(|at| at <= now) {
            self.beat()
        } else {
            Next::Sleep
        }
    }

    /// The doorbell rang, or is not one any more.
    fn rung(&mut self, is_spoilt: bool) -> Next {
        here(Point::DoorbellHeard);
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        core.woken();
        if core.link().is_some() {
            drop(core);
            return self.takes_more(is_spoilt);
        }
        if is_spoilt && core.session().closed().is_none() {
            let spoilt = Violation::Socket("a doorbell of this side's that can't be listened to any more");
            core.close(Closed::Violation(spoilt), &self.shared.socket);
        }
        self.go_on(core)
    }

    /// The stream takes more; or it has ended (`is_over`), which is then heard behind what came before.
    fn takes_more(&mut self, is_over: bool) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        if core.takes_beat() {
            self.beat = Some(Instant::now() + self.shared.silence / BEATS_OF_SILENCE);
        }
        core.unblock(&self.shared.socket);
        if is_over && core.hear(&self.shared.socket) == SocketEvent::Dead {
            core.hang_up(&self.shared.socket);
        }
        self.go_on(core)
    }

    /// A part of the longest silence has passed.
    fn beat(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        if core.session().closed().is_some() {
            return Next::Over;
        }
        if !core.beat(&self.shared.socket) {
            if let Some(unsaid) = SILENT.turn() {
                let silence = self.shared.silence;
                tracing::warn!(
                    ?silence,
                    unsaid,
                    "nothing comes from a peer of another host: it is taken for dead"
                );
            }
            drop(core);
            return self.hung_up();
        }
        self.beat = Some(Instant::now() + self.shared.silence / BEATS_OF_SILENCE);
        self.serve(core)
    }

    /// Something is on the socket: a ring where that is the doorbell, a descriptor, or the peer has hung up.
    fn heard(&mut self) -> Next {
        here(Point::DoorbellHeard);
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        core.woken();
        let socket = &self.shared.socket;
        // A hang-up behind a doorbell is an event of its own. Doorbells are not left where they are until there are more: a peer
        // that rings too often would find the socket full, and not be heard when it has to be.
        if core.hear(socket) == SocketEvent::Dead {
            core.hang_up(socket);
        }
        self.go_on(core)
    }

    /// Serves the session, unless it is over.
    fn go_on(&self, mut core: Entered<'_>) -> Next {
        if core.session().closed().is_some() {
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

    /// Somebody began to poll, made an area, or left something behind.
    fn called(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        self.due = self.shared.timer_for(&mut core, self.runtime);
        if core.link().is_some() && core.takes_beat() {
            self.beat = Some(Instant::now() + self.shared.silence / BEATS_OF_SILENCE);
        }
        let is_gathering = core.connection.is_gathering();
        let Some(runtime_waiters) = core.waiters.find(self.runtime) else { return Next::Over };
        if runtime_waiters.is_polled() && self.watch.is_none() {
            runtime_waiters.watched = true;
            self.watch = Some((Instant::now() + TICK, runtime_waiters.look_count));
        } else if self.watch.is_none() {
            runtime_waiters.watched = false;
        }
        // What is held is published when the tasks that are ready now have had their turn.
        if is_gathering { Next::Again } else { self.serve(core) }
    }

    /// Handles what came, and arms the doorbell where somebody counts on it.
    fn serve(&self, mut core: Entered<'_>) -> Next {
        let socket = &self.shared.socket;
        core.connection.unpark();
        let holds = core.round_ended(socket);
        for _ in 0..ROUND_COUNT {
            if core.link().is_some_and(|link| link.owes()) && core.hear(socket) == SocketEvent::Dead {
                core.hang_up(socket);
            }
            core.poll(socket);
            if !holds {
                core.flush(socket);
            }
            core.wake_ready();
            if core.session().closed().is_some() {
                // The hang-up that follows ends the driver.
                return Next::Sleep;
            }
            if holds {
                return Next::Later;
            }
            let owes = core.link().is_some_and(|link| link.owes());
            if !owes && (!core.anyone_sleeps() || core.arm()) {
                return Next::Sleep;
            }
        }
        Next::Again
    }

    fn look_at_poller(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        let Some(runtime_waiters) = core.waiters.find(self.runtime) else { return Next::Over };
        let look_count = runtime_waiters.look_count;
        if self.watch.is_some_and(|(_, seen)| seen != look_count) {
            self.watch = Some((Instant::now() + TICK, look_count));
            return Next::Sleep;
        }
        self.watch = None;
        runtime_waiters.watched = false;
        core.demote_poller(self.runtime);
        self.serve(core)
    }

    /// What the connection wanted a timer for is due.
    fn timed_out(&mut self) -> Next {
        let Ok(mut core) = self.shared.enter() else { return Next::Over };
        let now_ns = self.shared.timer_ns();
        let socket = &self.shared.socket;
        if core.connection.is_look_due(now_ns) {
            core.poll(socket);
        }
        core.handle_timeout(now_ns, socket);
        self.due = self.shared.timer_for(&mut core, self.runtime);
        self.serve(core)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Ok(mut core) = self.shared.enter() else {
            std::mem::forget(self.duplicates.take());
            return;
        };
        core.leaves_timers(self.runtime, self.beat.is_some());
        core.remove_runtime(self.runtime);
        // Of those that wait for more, this one may have been who sees to it.
        core.hold_nothing(&self.shared.socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Attachment, Config, Listener};

    #[tokio::test]
    async fn a_doorbell_that_is_in_a_state_of_error_ends_the_session_and_not_the_drivers_sleep() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        let mut listener = Listener::bind(&address, Config::default()).unwrap();
        let client = Attachment::connect(&address, &Config::default()).await.unwrap();
        let server = listener.accept().await.unwrap();
        // A pipe that nobody reads stays in such a state, as an eventfd that the kernel has counted to its end.
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let spoilt = OwnDoorbell::from_owned_fd_unchecked(writer.into()).unwrap();
        let driver = Driver {
            shared: server.shared.clone(),
            runtime: runtime::Handle::current().id(),
            duplicates: Some(Duplicates {
                socket: server.shared.socket.clone(),
                doorbell: Some(Arc::new(spoilt)),
                death: None,
            }),
            watch: None,
            due: None,
            beat: None,
            owes_look: false,
        };
        let driven = tokio::time::timeout(Duration::from_secs(20), driver.run(Arc::default()));
        driven.await.expect("it ends");
        assert!(
            matches!(server.closed(), Some(Closed::Violation(Violation::Socket(_)))),
            "{:?}",
            server.closed()
        );
        drop(client);
    }
}
