//! A loop that threads share.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tollfree_driver_loop::{CallId, Event, EventLoop, LoopConfig, Status, Waker};
use tollfree_os::clock::now_ns;
use tollfree_os::rustix;

use crate::mailbox::{Came, Mailbox, Then};
use crate::turns::{Command, Line, Resigned, Turns};

/// For so long a thread that waits keeps the interpreter's lock: an answer of a server that is awake comes sooner than other threads would give
/// the lock back.
const HOLD: Duration = Duration::from_micros(20);
/// A thread that waits looks this often for signals of its process, which are Python's main thread's to handle.
const SIGNALS: Duration = Duration::from_millis(100);
/// The thread beside takes the loop when nobody had it for so long.
const UNLED: Duration = Duration::from_millis(10);

/// What one thread at a time has.
pub(crate) struct Core {
    pub(crate) events: EventLoop,
    recipients: HashMap<CallId, Recipient>,
    /// Where Python takes events: those that are for no mailbox.
    kept: Option<VecDeque<Kept>>,
    /// Where Python takes events: those of a server's calls are for mailboxes.
    by_threads: bool,
    notices: Arc<Notices>,
    turns: Arc<Turns>,
}

/// Who gets a call's events.
enum Recipient {
    /// Threads that wait.
    Mailbox(Arc<Mailbox>),
    /// Python, by this number.
    Number(u64),
}

/// An event that Python is to take.
pub(crate) enum Kept {
    /// A server's call has come.
    Call { event: Event, number: u64, mailbox: Option<Arc<Mailbox>> },
    /// Something of a call, by its number.
    Of { number: u64, event: Event },
    /// Anything else.
    Loop(Event),
}

/// The calls of this process that there have been.
static CALL_COUNT: AtomicU64 = AtomicU64::new(0);

/// A number for a call, which no other has.
pub(crate) fn next_number() -> u64 {
    CALL_COUNT.fetch_add(1, Ordering::Relaxed) + 1
}

/// See the module.
pub(crate) struct Sharing {
    core: Mutex<Core>,
    turns: Arc<Turns>,
    waker: Waker,
    notices: Arc<Notices>,
    /// Where the thread that takes events waits to lead.
    seat: Arc<Mailbox>,
    /// A thread that waits for events is to look again, though there are none.
    is_called: AtomicBool,
    fork_count: u32,
}

/// What Python is told by a thread of its own.
#[derive(Default)]
pub(crate) struct Notices {
    queue: Mutex<(VecDeque<Notice>, bool)>,
    changed: Condvar,
}

/// Something that Python is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// A call is over, by its number.
    Ended(u64),
    /// A channel fares otherwise, by its number.
    Channel(u64, u8),
}

impl Notices {
    fn push(&self, notice: Notice) {
        self.queue.lock().0.push_back(notice);
        self.changed.notify_one();
    }

    /// The next one, within a time. `Err`: no more come.
    pub(crate) fn next(&self, most: Duration) -> Result<Option<Notice>, ()> {
        let mut queue = self.queue.lock();
        if queue.0.is_empty() && !queue.1 {
            self.changed.wait_for(&mut queue, most);
        }
        match queue.0.pop_front() {
            Some(notice) => Ok(Some(notice)),
            None if queue.1 => Err(()),
            None => Ok(None),
        }
    }

    fn close(&self) {
        self.queue.lock().1 = true;
        self.changed.notify_all();
    }
}

impl Core {
    /// A call has a mailbox from now on.
    pub(crate) fn begin(&mut self, call: CallId, mailbox: Arc<Mailbox>) {
        self.recipients.insert(call, Recipient::Mailbox(mailbox));
    }

    /// A call has a number from now on, by which Python gets its events.
    pub(crate) fn number(&mut self, call: CallId) -> u64 {
        let number = next_number();
        self.recipients.insert(call, Recipient::Number(number));
        number
    }

    /// A call is of no interest any more.
    pub(crate) fn forget(&mut self, call: CallId) {
        self.recipients.remove(&call);
    }

    /// Puts an event where it belongs.
    fn sort(&mut self, event: Event) {
        let call = match &event {
            Event::Call { call, .. } => return self.comes(*call, event),
            Event::Headers { call, .. }
            | Event::Message { call, .. }
            | Event::HalfClosed { call }
            | Event::Sent { call }
            | Event::Ended { call, .. } => *call,
            Event::ChannelChanged { channel, state } if self.kept.is_none() => {
                return self.notices.push(Notice::Channel(channel.to_bits(), *state as u8));
            }
            _ => return self.keep(Kept::Loop(event)),
        };
        let is_end = matches!(event, Event::Ended { .. });
        match self.recipients.get(&call) {
            None => {}
            Some(Recipient::Number(number)) => {
                let number = *number;
                self.keep(Kept::Of { number, event });
                if is_end {
                    self.recipients.remove(&call);
                }
            }
            Some(Recipient::Mailbox(mailbox)) => {
                let end = is_end.then(|| event_of_end(call));
                let number = mailbox.number();
                match mailbox.takes(event) {
                    Then::Nothing => {}
                    Then::Pause => self.events.pause(call),
                    Then::Over(is_told) => {
                        self.recipients.remove(&call);
                        match (is_told, end) {
                            (true, Some(event)) if self.kept.is_some() => {
                                self.keep(Kept::Of { number, event });
                            }
                            (true, _) => self.tell(number),
                            (false, _) => {}
                        }
                    }
                }
            }
        }
    }

    /// A client's call has come.
    fn comes(&mut self, call: CallId, event: Event) {
        let mailbox = self.by_threads.then(|| Arc::new(Mailbox::new(next_number())));
        let number = match &mailbox {
            Some(mailbox) => {
                mailbox.lock().call = Some(call);
                self.begin(call, mailbox.clone());
                mailbox.number()
            }
            None => self.number(call),
        };
        self.keep(Kept::Call { event, number, mailbox });
    }

    fn keep(&mut self, kept: Kept) {
        if let Some(all) = &mut self.kept {
            all.push_back(kept);
        }
    }

    fn tell(&self, number: u64) {
        self.turns.told();
        self.notices.push(Notice::Ended(number));
    }

    /// Does all there is to do now: what was said goes out.
    pub(crate) fn pump(&mut self) {
        while let Some(event) = self.events.poll() {
            self.sort(event);
        }
    }

    /// The next events that are for no mailbox, up to a number.
    fn take_kept(&mut self, count: usize) -> Vec<Kept> {
        let Some(kept) = &mut self.kept else { return Vec::new() };
        kept.drain(..kept.len().min(count)).collect()
    }

    /// Waits for what happens next, for so long.
    fn wait(&mut self, most: Duration) {
        match self.events.wait((most != Duration::MAX).then_some(most)) {
            Ok(Some(event)) => {
                self.sort(event);
                self.pump();
            }
            Ok(None) => {}
            // The kernel is out of something: it is asked again.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    fn has_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.is_empty())
    }

    fn do_all(&mut self, commands: Vec<Command>) {
        for command in commands {
            command(self);
        }
        self.pump();
    }
}

impl Sharing {
    /// `by_threads`: Python takes events, but those of a server's calls are for threads that wait, if it is so.
    pub(crate) fn new(config: LoopConfig, by_threads: Option<bool>) -> io::Result<Arc<Sharing>> {
        let events = EventLoop::new(config)?;
        let waker = events.waker();
        let (notices, turns) = (Arc::<Notices>::default(), Arc::<Turns>::default());
        let core = Core {
            events,
            recipients: HashMap::new(),
            kept: by_threads.is_some().then(VecDeque::new),
            by_threads: by_threads.unwrap_or(false),
            notices: notices.clone(),
            turns: turns.clone(),
        };
        Ok(Arc::new(Sharing {
            core: Mutex::new(core),
            turns,
            waker,
            notices,
            seat: Arc::new(Mailbox::new(0)),
            is_called: AtomicBool::new(false),
            fork_count: crate::fork_count(),
        }))
    }

    /// The number of the loop's descriptor, which lives as long as this.
    pub(crate) fn fd(&self) -> i32 {
        crate::serving::raw(&self.core.lock().events)
    }

    /// Ends a call here, whatever comes. `false`: it was over.
    pub(crate) fn ends(&self, mailbox: &Mailbox, status: Status) -> bool {
        match mailbox.fails(status) {
            Then::Over(is_told) => {
                if is_told {
                    self.turns.told();
                    self.notices.push(Notice::Ended(mailbox.number()));
                }
                true
            }
            Then::Nothing | Then::Pause => false,
        }
    }

    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// # Errors
    /// This process was forked from the one that has the loop: its locks may be another thread's for good.
    pub(crate) fn check(&self) -> PyResult<()> {
        match self.fork_count == crate::fork_count() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this process was forked, and the channel, call or server is its parent's: make another in the child",
            )),
        }
    }

    /// Has something done with the loop, now or by the thread that has it. A thread that waits for events is woken if there are some; asyncio's
    /// is none: it does these things itself, and takes events before it sleeps.
    pub(crate) fn run(&self, command: impl FnOnce(&mut Core) + Send + 'static) {
        match self.turns.leave(Box::new(command)) {
            None => self.waker.wake(),
            Some(command) => {
                let mut core = self.core.lock();
                command(&mut core);
                core.pump();
                if core.by_threads && core.has_kept() {
                    self.waker.wake();
                }
                self.resign(core);
            }
        }
    }

    /// Has something done with the loop, and gives what came of it. Waits for a thread that has the loop.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        py: Python<'_>,
        command: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> PyResult<R> {
        let (give, take) = std::sync::mpsc::sync_channel(1);
        self.run(move |core| drop(give.send(command(core))));
        let answer = match take.try_recv() {
            Ok(answer) => Ok(answer),
            // The thread that leads does it soon.
            Err(_) => py.detach(move || take.recv()),
        };
        answer.map_err(|_| PyRuntimeError::new_err("the loop has ended"))
    }

    fn resign<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        loop {
            let mut held = Some(core);
            match self.turns.resign(|| drop(held.take())) {
                Resigned::Done => return,
                Resigned::Not(commands) => {
                    let Some(again) = held else { return };
                    core = again;
                    core.do_all(commands);
                }
            }
        }
    }

    /// Has something done, and waits until `is_done` of a call's mailbox, or for so long. Handles signals meanwhile. `false`: the time is over.
    pub(crate) fn wait_for(
        &self,
        py: Python<'_>,
        first: Option<Command>,
        mailbox: &Arc<Mailbox>,
        is_done: impl Fn(&Came) -> bool + Sync,
        most: Option<Duration>,
    ) -> PyResult<bool> {
        let until_ns = most.map(|most| now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64));
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
            if leads && self.lead(py, first.take(), &is_over) {
                return Ok(true);
            }
            let slice = if is_main_thread() { SIGNALS } else { Duration::MAX };
            let left = match until_ns {
                None => slice,
                Some(until_ns) => Duration::from_nanos(until_ns.saturating_sub(now_ns())).min(slice),
            };
            py.detach(|| match leads {
                true => self.lead_detached(&is_over, left),
                false => self.follow(mailbox, &is_done, left),
            });
            py.check_signals()?;
            if until_ns.is_some_and(|until_ns| until_ns <= now_ns()) {
                return Ok(is_over());
            }
        }
    }

    /// Leads for a short time, without giving up the interpreter's lock. `true`: it is done, and another may lead. Else this thread still leads.
    fn lead(&self, _: Python<'_>, first: Option<Command>, is_done: &impl Fn() -> bool) -> bool {
        let mut core = self.core.lock();
        if let Some(command) = first {
            command(&mut core);
        }
        core.do_all(self.turns.take_commands());
        let until = now_ns() + HOLD.as_nanos() as u64;
        loop {
            if is_done() {
                self.resign(core);
                return true;
            }
            let left = until.saturating_sub(now_ns());
            let Some(event) = core.events.look(Duration::from_nanos(left)) else { return false };
            core.sort(event);
        }
    }

    /// A thread that leads goes on until it is done, or for so long, without the interpreter's lock.
    fn lead_detached(&self, is_done: &impl Fn() -> bool, most: Duration) {
        let mut core = self.core.lock();
        let until_ns = now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64);
        loop {
            core.do_all(self.turns.take_commands());
            let left = until_ns.saturating_sub(now_ns());
            if is_done() || left == 0 || self.turns.gives_way(false) {
                return self.resign(core);
            }
            core.wait(Duration::from_nanos(left));
        }
    }

    /// Waits while another thread leads.
    fn follow(&self, mailbox: &Arc<Mailbox>, is_done: &impl Fn(&Came) -> bool, most: Duration) {
        let leads = match self.turns.stand_in_line(mailbox) {
            Line::Leads => true,
            Line::Waits { wakes } => {
                if wakes {
                    self.waker.wake();
                }
                let leads = mailbox.wait(is_done, most);
                self.turns.leave_line(mailbox);
                // It may have come to lead meanwhile.
                leads || mailbox.leads()
            }
        };
        if leads {
            self.lead_detached(&|| is_done(&mailbox.lock()), most);
        }
    }

    /// Waits for events that are for no mailbox, for so long, and takes a number of them at most. Keeps the interpreter's lock while `hold` lasts.
    pub(crate) fn serve(&self, py: Python<'_>, hold: Duration, most: Duration, count: usize) -> Vec<Kept> {
        let seat = &self.seat;
        if !self.turns.want(seat) {
            return py.detach(|| {
                self.waker.wake();
                let leads = seat.wait(|_| false, most);
                self.turns.want_no_more();
                // It may have come to lead meanwhile.
                if leads || seat.leads() { self.serve_detached(most, count) } else { Vec::new() }
            });
        }
        let mut core = self.core.lock();
        core.do_all(self.turns.take_commands());
        if !core.has_kept() {
            if let Some(event) = core.events.look(hold) {
                core.sort(event);
                core.pump();
            } else if !most.is_zero() {
                drop(core);
                return py.detach(|| self.serve_detached(most, count));
            }
        }
        let events = core.take_kept(count);
        self.resign(core);
        events
    }

    /// A thread that leads goes on until there are events, or for so long, without the interpreter's lock.
    fn serve_detached(&self, most: Duration, count: usize) -> Vec<Kept> {
        let mut core = self.core.lock();
        let until_ns = now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64);
        loop {
            core.do_all(self.turns.take_commands());
            let left = until_ns.saturating_sub(now_ns());
            let is_called = self.is_called.swap(false, Ordering::Relaxed);
            if is_called || core.has_kept() || left == 0 || self.turns.is_closed() {
                let events = core.take_kept(count);
                self.resign(core);
                return events;
            }
            core.wait(Duration::from_nanos(left));
        }
    }

    /// For a host with a loop of its own: puts everything to sleep. `None`: there is something. Otherwise for how long the host may sleep.
    pub(crate) fn arm(&self) -> Option<Option<Duration>> {
        if !self.turns.lead() {
            return None;
        }
        let mut core = self.core.lock();
        core.do_all(self.turns.take_commands());
        let armed = !core.has_kept() && core.events.arm();
        let timeout = core.events.timeout();
        self.resign(core);
        armed.then_some(timeout)
    }

    /// Python is to be told when a call is over.
    pub(crate) fn tells(&self) {
        self.turns.tells();
    }

    /// Has a thread that waits for events return without one.
    pub(crate) fn wake(&self) {
        self.is_called.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Starts a thread without Python that leads when nobody does for a while, so that deadlines, ends and drains are seen to.
    pub(crate) fn watch(self: &Arc<Sharing>) -> io::Result<()> {
        let sharing = self.clone();
        let name = "tollfree".to_owned();
        std::thread::Builder::new().name(name).spawn(move || {
            while sharing.turns.watch(UNLED) {
                sharing.lead_beside();
            }
        })?;
        Ok(())
    }

    /// Leads until another thread wants to.
    fn lead_beside(&self) {
        let mut core = self.core.lock();
        loop {
            core.do_all(self.turns.take_commands());
            if self.turns.gives_way(true) {
                return self.resign(core);
            }
            core.wait(Duration::MAX);
        }
    }

    /// Ends all: threads that wait return.
    pub(crate) fn close(&self) {
        self.turns.close();
        self.notices.close();
        self.waker.wake();
    }
}

/// That a call is over: what else there is to know is in its mailbox.
fn event_of_end(call: CallId) -> Event {
    Event::Ended { call, status: Status::default() }
}

/// Whether this is the thread that handles the process's signals.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}
