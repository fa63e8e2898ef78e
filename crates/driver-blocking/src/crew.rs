//! Which of a server's threads takes the next call.
//!
//! One thread has the seat: it leads the loop, takes a call, and runs its handler itself, so that a short one costs no switch of threads. The others
//! sleep. One of them, the standby, looks now and then while a handler runs, and takes the seat from a handler that takes long. Methods whose
//! handlers usually take long give the seat away before they run.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tollfree_os::clock::now_ns;

/// A handler of the thread with the seat may take so long before another takes the seat.
const LONG: Duration = Duration::from_millis(1);
/// Handlers that are expected to take this long run without the seat: giving it away costs a tenth of that.
const EXPECTED_LONG_NS: u64 = 50_000;
/// The standby looks for so long after the last call before it sleeps until the next: twice where calls are seldom.
const LOOKS_NS: u64 = 2 * LONG.as_nanos() as u64;
/// Methods whose handlers' times are known.
const METHODS_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Crew {
    board: Mutex<Board>,
    /// For threads that wait for the seat.
    changed: Condvar,
    threads_max: usize,
}

/// The seat, as a thread has it that sat down. Void once another has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

#[derive(Debug, Default)]
struct Board {
    /// The thread that sat down last.
    ticket: u64,
    is_taken: bool,
    /// Since when the thread with the seat runs a handler.
    handles_since_ns: Option<u64>,
    /// When a handler began last.
    began_ns: u64,
    /// The standby sleeps until it is told.
    is_standby_asleep: bool,
    has_standby: bool,
    thread_count: usize,
    waiting_count: usize,
    /// How long handlers of a method take, on average.
    expected_ns: HashMap<Bytes, u64>,
    is_over: bool,
}

/// What the thread that takes a call is to do before it runs the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    /// Nobody waits for the seat: another thread is to be started.
    AnotherThread,
}

impl Board {
    /// A handler of a method took so long.
    fn learn(&mut self, method: &Bytes, took_ns: u64) {
        if let Some(ns) = self.expected_ns.get_mut(method) {
            *ns = ns.saturating_mul(7).saturating_add(took_ns) / 8;
        } else if self.expected_ns.len() < METHODS_MAX {
            self.expected_ns.insert(method.clone(), took_ns);
        }
    }
}

impl Crew {
    /// Of one thread, and of so many at most.
    pub(crate) fn new(threads_max: usize) -> Crew {
        Crew { board: Mutex::new(Board::default()), changed: Condvar::new(), threads_max }
    }

    /// One more thread is to be started. `false`: there are enough.
    pub(crate) fn starts_thread(&self) -> bool {
        let mut board = self.board.lock();
        // One more than handlers run at once: it leads while they do.
        let may_start = board.thread_count <= self.threads_max && !board.is_over;
        board.thread_count += usize::from(may_start);
        may_start
    }

    /// A thread that was to start has not, or has ended.
    pub(crate) fn thread_ends(&self) {
        self.board.lock().thread_count -= 1;
    }

    /// Waits for the seat. `None`: the server is over.
    pub(crate) fn sit(&self) -> Option<Ticket> {
        let mut board = self.board.lock();
        board.waiting_count += 1;
        let ticket = loop {
            if board.is_over {
                break None;
            }
            let now = now_ns();
            let is_long = |since: u64| now.saturating_sub(since) >= LONG.as_nanos() as u64;
            if !board.is_taken || board.handles_since_ns.is_some_and(is_long) {
                board.ticket += 1;
                (board.is_taken, board.handles_since_ns) = (true, None);
                break Some(Ticket(board.ticket));
            }
            if board.has_standby {
                self.changed.wait(&mut board);
                continue;
            }
            board.has_standby = true;
            if now.saturating_sub(board.began_ns) < LOOKS_NS {
                self.changed.wait_for(&mut board, LONG);
            } else {
                board.is_standby_asleep = true;
                self.changed.wait(&mut board);
                board.is_standby_asleep = false;
            }
            board.has_standby = false;
        };
        board.waiting_count -= 1;
        if board.waiting_count > 0 {
            // Another is to be the standby.
            self.changed.notify_one();
        }
        ticket
    }

    /// The thread with the seat is about to run a handler of this method.
    pub(crate) fn begins(&self, ticket: Ticket, method: &Bytes) -> Before {
        let mut board = self.board.lock();
        let now = now_ns();
        board.began_ns = now;
        if board.ticket == ticket.0 {
            let is_long = board.expected_ns.get(method).is_some_and(|ns| *ns >= EXPECTED_LONG_NS);
            board.handles_since_ns = Some(now);
            board.is_taken = !is_long;
            if is_long || board.is_standby_asleep {
                self.changed.notify_one();
            }
        }
        if board.waiting_count == 0 { Before::AnotherThread } else { Before::Nothing }
    }

    /// The handler of the thread with the seat is about to wait: another takes the seat.
    pub(crate) fn waits(&self, ticket: Ticket) {
        let mut board = self.board.lock();
        if board.ticket == ticket.0 && board.is_taken {
            board.is_taken = false;
            self.changed.notify_one();
        }
    }

    /// A handler has returned, after so many nanoseconds, which are not known of one that has waited. `true`: the thread has the seat again,
    /// or still.
    pub(crate) fn ends(&self, ticket: Ticket, method: &Bytes, took_ns: Option<u64>) -> bool {
        let mut board = self.board.lock();
        if let Some(took_ns) = took_ns {
            board.learn(method, took_ns);
        }
        if board.ticket != ticket.0 {
            return false;
        }
        (board.is_taken, board.handles_since_ns) = (true, None);
        true
    }

    /// The server is over: threads that wait for the seat return.
    pub(crate) fn close(&self) {
        self.board.lock().is_over = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.board.lock().is_over
    }
}
