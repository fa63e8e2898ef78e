//! A loop that threads share: whoever waits leads.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tollfree_driver_loop::{EventLoop, LoopConfig, Status, Waker};
use tollfree_os::clock::now_ns;
use tollfree_os::fd::{AsFd as _, AsRawFd as _, RawFd};

use crate::host::{Host, Threads};
use crate::leader::{Kept, Leader, Told};
use crate::mailbox::Mailbox;
use crate::news::{CallMailbox, Then};
use crate::notices::{LoopClosed, Notice, Notices};
use crate::turns::{Line, Resigned, Turns};

/// The thread beside takes the loop when nobody had it for so long.
const UNLED: Duration = Duration::from_millis(10);

/// See the module. At any time one thread leads: it has the loop, does what others leave for it, and sorts what comes into mailboxes. It hands on
/// to a thread that waits as soon as it has what itself waits for.
pub struct SharedLoop {
    leader: Mutex<Leader>,
    turns: Arc<Turns>,
    waker: Waker,
    notices: Arc<Notices>,
    /// Where the thread that takes events waits to lead.
    seat: Arc<Mailbox<()>>,
    /// A thread that waits for events is to look again, though there are none.
    is_called: AtomicBool,
}

impl fmt::Debug for SharedLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLoop").field("turns", &self.turns).finish_non_exhaustive()
    }
}

/// When a wait of so long from now on is over, on the clock of deadlines.
fn until_ns(most: Duration) -> u64 {
    now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64)
}

/// What is left until then.
fn left(until_ns: u64) -> Duration {
    match until_ns {
        u64::MAX => Duration::MAX,
        _ => Duration::from_nanos(until_ns.saturating_sub(now_ns())),
    }
}

impl SharedLoop {
    /// A loop without sessions.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: LoopConfig, told: Told) -> io::Result<Arc<SharedLoop>> {
        let events = EventLoop::new(config)?;
        let waker = events.waker();
        let (notices, turns) = (Arc::<Notices>::default(), Arc::<Turns>::default());
        let leader = Leader::new(events, told, notices.clone(), turns.clone());
        Ok(Arc::new(SharedLoop {
            leader: Mutex::new(leader),
            turns,
            waker,
            notices,
            seat: Arc::new(Mailbox::new(())),
            is_called: AtomicBool::new(false),
        }))
    }

    /// The loop's descriptor, which lives as long as this.
    pub fn raw_fd(&self) -> RawFd {
        self.leader.lock().events().as_fd().as_raw_fd()
    }

    /// What is to be told.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Ends a call here, whatever comes. `false`: it was over.
    pub fn end(&self, mailbox: &CallMailbox, status: Status) -> bool {
        match mailbox.tell(|news| news.end(status)) {
            Then::Over(is_told) => {
                if is_told {
                    self.turns.told();
                    self.notices.push(Notice::Ended(mailbox.lock().number()));
                }
                true
            }
            Then::Nothing | Then::Pause => false,
        }
    }

    /// Has something done with the loop, now or by the thread that has it. A thread that waits for events is woken if there are some, where it
    /// gets a server's calls; one that takes all events does these things itself, and takes events before it sleeps.
    pub fn run(&self, command: impl FnOnce(&mut Leader) + Send + 'static) {
        match self.turns.leave(command) {
            None => self.waker.wake(),
            Some(command) => {
                let mut leader = self.leader.lock();
                command(&mut leader);
                leader.pump();
                if leader.wakes_taker() {
                    self.waker.wake();
                }
                self.resign(leader);
            }
        }
    }

    /// Has something done with the loop, and gives what came of it. Waits for a thread that has the loop.
    ///
    /// # Errors
    /// The loop has ended.
    pub fn ask<H: Host, R: Send + 'static>(
        &self,
        host: &H,
        command: impl FnOnce(&mut Leader) -> R + Send + 'static,
    ) -> Result<R, LoopClosed> {
        let (give, take) = std::sync::mpsc::sync_channel(1);
        self.run(move |leader| drop(give.send(command(leader))));
        match take.try_recv() {
            Ok(answer) => Ok(answer),
            // The thread that leads does it soon.
            Err(_) => host.away(move || take.recv()).map_err(|_| LoopClosed),
        }
    }

    fn resign<'a>(&'a self, mut leader: MutexGuard<'a, Leader>) {
        loop {
            let mut held = Some(leader);
            match self.turns.resign(|| drop(held.take())) {
                Resigned::Done => return,
                Resigned::Not(commands) => {
                    let Some(again) = held else { return };
                    leader = again;
                    leader.do_all(commands);
                }
            }
        }
    }

    /// Has something done, and waits until `is_done` of a mailbox, or for so long. `false`: the time is over,
    /// or the loop was closed.
    ///
    /// # Errors
    /// What the host is interrupted for.
    pub fn wait_for<H: Host, T: Send + 'static>(
        &self,
        host: &H,
        first: Option<impl FnOnce(&mut Leader) + Send + 'static>,
        mailbox: &Arc<Mailbox<T>>,
        is_done: impl Fn(&T) -> bool + Sync,
        most: Option<Duration>,
    ) -> Result<bool, H::Interrupt> {
        let until_ns = most.map_or(u64::MAX, until_ns);
        let is_over = || is_done(&mailbox.lock());
        let mut first = first;
        loop {
            if first.is_none() && is_over() {
                return Ok(true);
            }
            let leads = match first.take() {
                None => self.turns.lead(),
                Some(command) => {
                    first = self.turns.leave(command);
                    if first.is_none() {
                        self.waker.wake();
                    }
                    first.is_some()
                }
            };
            if leads && self.lead_briefly(host.hold(), first.take(), &is_over) {
                return Ok(true);
            }
            let most = left(until_ns).min(host.check_every());
            host.away(|| match leads {
                true => self.lead(&is_over, most),
                false => self.follow(mailbox, &is_done, most),
            });
            host.check()?;
            if until_ns <= now_ns() || self.turns.is_closed() {
                return Ok(is_over());
            }
        }
    }

    /// Leads for a short time. `true`: it is done, and another may lead. Else this thread still leads.
    fn lead_briefly(
        &self,
        most: Duration,
        first: Option<impl FnOnce(&mut Leader)>,
        is_done: &impl Fn() -> bool,
    ) -> bool {
        let mut leader = self.leader.lock();
        if let Some(command) = first {
            command(&mut leader);
        }
        leader.do_all(self.turns.take_commands());
        let until_ns = until_ns(most);
        loop {
            if is_done() {
                self.resign(leader);
                return true;
            }
            let Some(event) = leader.events().look(left(until_ns)) else { return false };
            leader.sort(event);
        }
    }

    /// A thread that leads goes on until it is done, or for so long.
    fn lead(&self, is_done: &impl Fn() -> bool, most: Duration) {
        let mut leader = self.leader.lock();
        let until_ns = until_ns(most);
        loop {
            leader.do_all(self.turns.take_commands());
            let left = left(until_ns);
            if is_done() || left.is_zero() || self.turns.gives_way(false) {
                return self.resign(leader);
            }
            leader.wait(left);
        }
    }

    /// Waits while another thread leads.
    fn follow<T: Send + 'static>(
        &self,
        mailbox: &Arc<Mailbox<T>>,
        is_done: &impl Fn(&T) -> bool,
        most: Duration,
    ) {
        let place = mailbox.place();
        let leads = match self.turns.stand_in_line(place.clone()) {
            Line::Leads => true,
            Line::Waits { wakes } => {
                if wakes {
                    self.waker.wake();
                }
                let leads = mailbox.wait(is_done, most);
                self.turns.leave_line(&place);
                // It may have come to lead meanwhile.
                leads || mailbox.takes_lead()
            }
        };
        if leads {
            self.lead(&|| is_done(&mailbox.lock()), most);
        }
    }

    /// Waits until `is_done` of a mailbox, without a host.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        mailbox: &Arc<Mailbox<T>>,
        is_done: impl Fn(&T) -> bool + Sync,
        most: Option<Duration>,
    ) -> bool {
        if is_done(&mailbox.lock()) {
            return true;
        }
        let Ok(is_done) = self.wait_for(&Threads, None::<fn(&mut Leader)>, mailbox, is_done, most);
        is_done
    }

    /// Has the thread that leads look whether it has what it waits for.
    pub(crate) fn look_again(&self) {
        self.waker.wake();
    }

    /// Waits for events that are for no mailbox, for so long, and takes a number of them at most. By one thread at a time, which leads before all others.
    pub fn take<H: Host>(&self, host: &H, hold: Duration, most: Duration, count: usize) -> Vec<Kept> {
        if !self.turns.want(self.seat.place()) {
            return host.away(|| {
                self.waker.wake();
                let leads = self.seat.wait(|()| false, most);
                self.turns.want_no_more();
                // It may have come to lead meanwhile.
                if leads || self.seat.takes_lead() { self.take_leading(most, count) } else { Vec::new() }
            });
        }
        let mut leader = self.leader.lock();
        leader.do_all(self.turns.take_commands());
        if !leader.has_kept() {
            if let Some(event) = leader.events().look(hold) {
                leader.sort(event);
                leader.pump();
            } else if !most.is_zero() {
                drop(leader);
                return host.away(|| self.take_leading(most, count));
            }
        }
        let events = leader.take_kept(count);
        self.resign(leader);
        events
    }

    /// A thread that leads goes on until there are events, or for so long.
    fn take_leading(&self, most: Duration, count: usize) -> Vec<Kept> {
        let mut leader = self.leader.lock();
        let until_ns = until_ns(most);
        loop {
            leader.do_all(self.turns.take_commands());
            let left = left(until_ns);
            let is_called = self.is_called.swap(false, Ordering::Relaxed);
            if is_called || leader.has_kept() || left.is_zero() || self.turns.is_closed() {
                let events = leader.take_kept(count);
                self.resign(leader);
                return events;
            }
            leader.wait(left);
        }
    }

    /// For a host with a loop of its own: puts everything to sleep. `None`: there is something. Otherwise for how long the host may sleep.
    pub fn arm(&self) -> Option<Option<Duration>> {
        if !self.turns.lead() {
            return None;
        }
        let mut leader = self.leader.lock();
        leader.do_all(self.turns.take_commands());
        let armed = !leader.has_kept() && leader.events().arm();
        let timeout = leader.events().timeout();
        self.resign(leader);
        armed.then_some(timeout)
    }

    /// The end of a call is to be told: the thread beside leads for it, where nobody else does.
    pub fn tells(&self) {
        self.turns.tells();
    }

    /// Has a thread that waits for events return without one.
    pub fn wake(&self) {
        self.is_called.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Starts a thread of this loop's own that leads when nobody does for a while, so that deadlines, ends and drains are seen to.
    ///
    /// # Errors
    /// The process may have no more threads.
    pub fn watch(self: &Arc<SharedLoop>) -> io::Result<()> {
        let shared = self.clone();
        std::thread::Builder::new().name("tollfree".to_owned()).spawn(move || {
            while shared.turns.watch(UNLED) {
                shared.lead_beside();
            }
        })?;
        Ok(())
    }

    /// Leads until another thread wants to.
    fn lead_beside(&self) {
        let mut leader = self.leader.lock();
        loop {
            leader.do_all(self.turns.take_commands());
            if self.turns.gives_way(true) {
                return self.resign(leader);
            }
            leader.wait(Duration::MAX);
        }
    }

    /// Ends all: threads that take events return, and the thread beside ends.
    pub fn close(&self) {
        self.turns.close();
        self.notices.close();
        self.waker.wake();
    }

    /// Whether it was [closed](SharedLoop::close).
    pub fn is_closed(&self) -> bool {
        self.turns.is_closed()
    }
}
