//! Clients that have connected and not said HELLO yet: they hold no place that anybody else wants.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tollfree_rendezvous::descriptor_limit;

use crate::turn::{Ended, Turn};

/// At most so many of all descriptors are silent clients'; at least, and at most, so many.
const SHARE: u64 = 8;
const COUNT_MIN: usize = 16;
const COUNT_MAX: usize = 256;
/// Of these, one process's.
const PROCESS_SHARE: usize = 4;

/// Clients that may still be silent, in the order of their coming.
#[derive(Debug)]
pub(crate) struct Silent {
    turns: VecDeque<(i32, Weak<Turn>)>,
    count_max: usize,
}

impl Silent {
    pub(crate) fn new() -> Silent {
        let count_max = usize::try_from(descriptor_limit() / SHARE).unwrap_or(COUNT_MAX);
        Silent { turns: VecDeque::new(), count_max: count_max.clamp(COUNT_MIN, COUNT_MAX) }
    }

    /// A client has come. Where there are too many that say nothing, the oldest makes place: that of its own process, if that
    /// has more than its share.
    pub(crate) fn add(&mut self, pid: i32, turn: &Arc<Turn>) {
        self.turns.retain(|(_, turn)| turn.upgrade().is_some_and(|turn| turn.is_silent()));
        let of_process = self.turns.iter().filter(|(other, _)| *other == pid).count();
        let oldest = if of_process >= self.count_max / PROCESS_SHARE {
            self.turns.iter().position(|(other, _)| *other == pid)
        } else {
            (self.turns.len() >= self.count_max).then_some(0)
        };
        if let Some((_, oldest)) = oldest.and_then(|idx| self.turns.remove(idx))
            && let Some(oldest) = oldest.upgrade()
        {
            oldest.end(Ended::Crowded);
        }
        self.turns.push_back((pid, Arc::downgrade(turn)));
    }

    /// The listener closes: a client that has said nothing is told so.
    pub(crate) fn end(&self) {
        for turn in self.turns.iter().filter_map(|(_, turn)| turn.upgrade()) {
            turn.end(Ended::Closing);
        }
    }
}
