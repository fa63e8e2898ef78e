//! Clients that have connected and not said HELLO yet, by their turns.

use std::sync::{Arc, Weak};

use crate::turn::{Ended, Turn};

/// Clients that may still be silent, in the order of their coming.
#[derive(Debug, Default)]
pub(crate) struct PendingHandshakes(tollfree_host::PendingHandshakes<Weak<Turn>>);

impl PendingHandshakes {
    /// A client has come; one may have to make place.
    pub(crate) fn add(&mut self, pid: i32, turn: &Arc<Turn>) {
        let is_silent = |turn: &Weak<Turn>| turn.upgrade().is_some_and(|turn| turn.is_silent());
        if let Some(oldest) = self.0.add(pid, Arc::downgrade(turn), is_silent)
            && let Some(oldest) = oldest.upgrade()
        {
            oldest.end(Ended::Crowded);
        }
    }

    /// The listener closes: a client that has said nothing is told so.
    pub(crate) fn end(&self) {
        for turn in self.0.clients().filter_map(Weak::upgrade) {
            turn.end(Ended::Closing);
        }
    }
}
