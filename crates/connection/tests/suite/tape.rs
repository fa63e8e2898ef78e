//! What the events of an end say it did, counted, to be held against what it did.

use std::sync::{Arc, Mutex};

use tollfree_events::{Doorbell, SessionEvent};
use tollfree_session::{Recorder, Recording};

/// What was told. Positions are in lines of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) rung: u64,
    pub(crate) woken: u64,
    pub(crate) timed_out: u64,
    pub(crate) published: u64,
    pub(crate) released: u64,
    /// Of how it waits, and of everything else.
    pub(crate) waits: u64,
    pub(crate) others: u64,
}

/// A recorder that counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape(Arc<Mutex<Counts>>);

impl Tape {
    pub(crate) fn recording(&self) -> Recording {
        Recording::to(Box::new(self.clone()))
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.0.lock().unwrap()
    }
}

impl Recorder for Tape {
    fn record(&self, event: SessionEvent) {
        let mut counts = self.0.lock().unwrap();
        match event {
            SessionEvent::Waits { .. } | SessionEvent::Armed { .. } => {
                counts.waits += 1;
                return;
            }
            SessionEvent::Doorbell { done: Doorbell::Rung } => counts.rung += 1,
            SessionEvent::Woken => counts.woken += 1,
            SessionEvent::TimedOut => counts.timed_out += 1,
            SessionEvent::Published { pos, .. } => {
                assert!(
                    pos > counts.published,
                    "published up to {pos}, and before up to {}",
                    counts.published
                );
                counts.published = pos;
            }
            SessionEvent::Released { lines } => counts.released += lines,
            _ => {}
        }
        counts.others += 1;
    }
}
