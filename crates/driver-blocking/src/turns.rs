//! Who has the loop: one thread leads, and does what others want; it hands on to one that waits.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::leader::Leader;
use crate::mailbox::Place;

/// Something that a thread wants done with the loop.
pub(crate) type Command = Box<dyn FnOnce(&mut Leader) + Send>;

/// Where one thread leads for long, the thread beside looks this many times less often whether it still does.
const UNLED_FACTOR: u32 = 8;

/// See the module.
#[derive(Debug, Default)]
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
    waiting: VecDeque<Place>,
    /// The thread that takes events wants to lead: it goes before all others.
    wanted: Option<Place>,
    /// The thread beside leads: it gives way to any other.
    is_watched: bool,
    /// Calls whose end is to be told. The thread beside leads while there are some and nobody else does.
    told_count: usize,
    is_closed: bool,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("is_led", &self.is_led)
            .field("commands", &self.commands.len())
            .field("waiting", &self.waiting.len())
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
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

impl Board {
    /// A thread wants to lead. `false`: another does.
    fn takes_lead(&mut self) -> bool {
        if std::mem::replace(&mut self.is_led, true) {
            return false;
        }
        self.lead_count += 1;
        true
    }
}

impl Turns {
    /// This thread leads from now on. `false`: another does.
    pub(crate) fn lead(&self) -> bool {
        self.board.lock().takes_lead()
    }

    /// The thread that takes events leads from now on. `false`: another does, and gives way soon.
    pub(crate) fn want(&self, place: Place) -> bool {
        let mut board = self.board.lock();
        if board.takes_lead() {
            return true;
        }
        board.wanted = Some(place);
        false
    }

    /// The thread that takes events does not wait any more.
    pub(crate) fn want_no_more(&self) {
        self.board.lock().wanted = None;
    }

    /// Has the leader do something; without one, this thread leads from now on, and does it itself: it is given back.
    pub(crate) fn leave<F: FnOnce(&mut Leader) + Send + 'static>(&self, command: F) -> Option<F> {
        let mut board = self.board.lock();
        if board.takes_lead() {
            return Some(command);
        }
        board.commands.push(Box::new(command));
        None
    }

    /// Waits in line to lead, behind others.
    pub(crate) fn stand_in_line(&self, place: Place) -> Line {
        let mut board = self.board.lock();
        if board.takes_lead() {
            return Line::Leads;
        }
        board.waiting.push_back(place);
        Line::Waits { wakes: board.is_watched }
    }

    /// Leaves the line. Another thread that waits at the same place stays in it.
    pub(crate) fn leave_line(&self, place: &Place) {
        let mut board = self.board.lock();
        if let Some(at) = board.waiting.iter().position(|waiting| waiting.is_same(place)) {
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

    /// A call's end is to be told.
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
        let mut pause = unled;
        loop {
            if board.is_closed {
                return false;
            }
            let seen = board.lead_count;
            if board.is_led || board.told_count == 0 {
                self.unled.wait_for(&mut board, pause);
            }
            let is_still = board.lead_count == seen || board.told_count > 0;
            if is_still && !board.is_led && !board.is_closed {
                (board.is_led, board.is_watched) = (true, true);
                return true;
            }
            // The same thread leads all the time: it most likely sleeps.
            pause = if is_still { (pause * 2).min(unled * UNLED_FACTOR) } else { unled };
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
