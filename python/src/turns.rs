//! Who has the loop: one thread leads, and does what others want; it hands on to one that waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::mailbox::Mailbox;
use crate::sharing::Core;

/// Something that a thread wants done with the loop.
pub(crate) type Command = Box<dyn FnOnce(&mut Core) + Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct Turns {
    board: Mutex<Board>,
    /// For the thread beside.
    unled: Condvar,
}

#[derive(Default)]
struct Board {
    is_led: bool,
    /// How often a thread has begun to lead.
    lead_count: u64,
    commands: Vec<Command>,
    /// Threads that wait, and may lead.
    waiting: VecDeque<Arc<Mailbox>>,
    /// The thread that takes events wants to lead: it goes before all others.
    wanted: Option<Arc<Mailbox>>,
    /// The thread beside leads: it gives way to any other.
    is_watched: bool,
    /// Calls whose end Python is to be told of. The thread beside leads while there are some and nobody else does.
    told_count: usize,
    is_closed: bool,
}

/// What becomes of a thread that wants to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nobody leads now, so that this thread does.
    Leads,
    /// It stands in line.
    Waits {
        /// The thread beside is to be woken, and gives way.
        wakes: bool,
    },
}

/// What a thread that gives up leading finds.
pub(crate) enum Resigned {
    /// There is something to be done before.
    Not(Vec<Command>),
    /// Another leads, or nobody.
    Done,
}

impl Turns {
    /// This thread leads from now on. `false`: another does.
    pub(crate) fn lead(&self) -> bool {
        let mut board = self.board.lock();
        if std::mem::replace(&mut board.is_led, true) {
            return false;
        }
        board.lead_count += 1;
        true
    }

    /// The thread that takes events leads from now on. `false`: another does, and gives way soon.
    pub(crate) fn want(&self, seat: &Arc<Mailbox>) -> bool {
        let mut board = self.board.lock();
        if std::mem::replace(&mut board.is_led, true) {
            board.wanted = Some(seat.clone());
            return false;
        }
        board.lead_count += 1;
        true
    }

    /// The thread that takes events does not wait any more.
    pub(crate) fn want_no_more(&self) {
        self.board.lock().wanted = None;
    }

    /// Has the leader do something; without one, this thread leads from now on, and does it itself: it is given back.
    pub(crate) fn leave(&self, command: Command) -> Option<Command> {
        let mut board = self.board.lock();
        if std::mem::replace(&mut board.is_led, true) {
            board.commands.push(command);
            return None;
        }
        board.lead_count += 1;
        Some(command)
    }

    /// Waits in line to lead, behind others.
    pub(crate) fn stand_in_line(&self, mailbox: &Arc<Mailbox>) -> Line {
        let mut board = self.board.lock();
        if !std::mem::replace(&mut board.is_led, true) {
            board.lead_count += 1;
            return Line::Leads;
        }
        board.waiting.push_back(mailbox.clone());
        Line::Waits { wakes: board.is_watched }
    }

    /// Leaves the line. Another thread that waits for the same call stays in it.
    pub(crate) fn leave_line(&self, mailbox: &Arc<Mailbox>) {
        let mut board = self.board.lock();
        if let Some(at) = board.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, mailbox)) {
            board.waiting.remove(at);
        }
    }

    /// Whether a leader is to give way: `to_any` other that waits, or to the thread that takes events.
    pub(crate) fn gives_way(&self, to_any: bool) -> bool {
        let board = self.board.lock();
        board.is_closed || board.wanted.is_some() || (to_any && !board.waiting.is_empty())
    }

    /// What is to be done now.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.board.lock().commands)
    }

    /// The leader has left the loop by `leaves`, unless there is something to be done. The next in line leads.
    pub(crate) fn resign(&self, leaves: impl FnOnce()) -> Resigned {
        let mut board = self.board.lock();
        if !board.commands.is_empty() {
            return Resigned::Not(std::mem::take(&mut board.commands));
        }
        leaves();
        board.is_watched = false;
        match board.wanted.take().or_else(|| board.waiting.pop_front()) {
            Some(next) => {
                board.lead_count += 1;
                next.promote();
            }
            None => {
                board.is_led = false;
                if board.told_count > 0 {
                    self.unled.notify_one();
                }
            }
        }
        Resigned::Done
    }

    /// A call's end is to be told to Python.
    pub(crate) fn tells(&self) {
        let mut board = self.board.lock();
        board.told_count += 1;
        if !board.is_led {
            self.unled.notify_one();
        }
    }

    /// It was told.
    pub(crate) fn told(&self) {
        let mut board = self.board.lock();
        board.told_count = board.told_count.saturating_sub(1);
    }

    /// For the thread beside: waits until nobody has led for so long, or nobody leads and there are calls whose end is to be told. It leads then.
    /// `false`: nobody needs the loop any more.
    pub(crate) fn watch(&self, unled: Duration) -> bool {
        let mut board = self.board.lock();
        loop {
            if board.is_closed {
                return false;
            }
            let seen = board.lead_count;
            if board.is_led || board.told_count == 0 {
                self.unled.wait_for(&mut board, unled);
            }
            let is_still = board.lead_count == seen || board.told_count > 0;
            if is_still && !board.is_led && !board.is_closed {
                (board.is_led, board.is_watched) = (true, true);
                return true;
            }
        }
    }

    /// Nobody needs the loop any more.
    pub(crate) fn close(&self) {
        self.board.lock().is_closed = true;
        self.unled.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.board.lock().is_closed
    }
}
