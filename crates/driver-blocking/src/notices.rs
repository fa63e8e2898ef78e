//! What a thread of the program's is told that waits for nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tollfree_driver_loop::{ChannelId, ChannelState};

/// Something to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A call is over, by its number.
    Ended(u64),
    /// A channel fares otherwise.
    Channel(ChannelId, ChannelState),
}

/// What is to be told, in order.
#[derive(Debug, Default)]
pub struct Notices {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<Notice>,
    is_closed: bool,
}

impl Notices {
    pub(crate) fn push(&self, notice: Notice) {
        self.queue.lock().notices.push_back(notice);
        self.changed.notify_one();
    }

    /// The next one, within a time.
    ///
    /// # Errors
    /// No more come: the loop was closed.
    pub fn next(&self, most: Duration) -> Result<Option<Notice>, LoopClosed> {
        let mut queue = self.queue.lock();
        if queue.notices.is_empty() && !queue.is_closed {
            self.changed.wait_for(&mut queue, most);
        }
        match queue.notices.pop_front() {
            Some(notice) => Ok(Some(notice)),
            None if queue.is_closed => Err(LoopClosed),
            None => Ok(None),
        }
    }

    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// The loop that something was asked of is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop was closed")]
pub struct LoopClosed;
