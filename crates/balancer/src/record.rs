//! How the calls of an endpoint end, as threads count it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Counts how the calls of one endpoint end. It stays of use to calls under way when the endpoint has left the list.
#[derive(Debug)]
pub struct Record {
    successes: AtomicU64,
    failures: AtomicU64,
    /// Failures since the last success.
    consecutive: AtomicU32,
    /// So many of those are to be looked at soon; 0: none ever are.
    threshold: u32,
    /// Set when there is something to be looked at; all endpoints of a list share it.
    alarm: Arc<AtomicBool>,
}

/// Calls that have ended in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) successes: u64,
    pub(crate) failures: u64,
}

impl Volume {
    pub(crate) fn total(self) -> u64 {
        self.successes + self.failures
    }
}

impl Record {
    pub(crate) fn new(threshold: u32, alarm: &Arc<AtomicBool>) -> Record {
        Record {
            successes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            consecutive: AtomicU32::new(0),
            threshold,
            alarm: alarm.clone(),
        }
    }

    /// A call has ended with status OK.
    pub fn succeeded(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
        // The line is this record's own, and mostly nothing has to be written.
        if self.consecutive.load(Ordering::Relaxed) != 0 {
            self.consecutive.store(0, Ordering::Relaxed);
        }
    }

    /// A call has ended with another status.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let consecutive = self.consecutive.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if consecutive == self.threshold {
            self.alarm.store(true, Ordering::Release);
        }
    }

    /// What has ended since this was asked last.
    pub(crate) fn take(&self) -> Volume {
        let [successes, failures] =
            [&self.successes, &self.failures].map(|count| count.swap(0, Ordering::Relaxed));
        Volume { successes, failures }
    }

    /// Whether so many calls have failed one after the other that it is to be looked at. The count begins anew then.
    pub(crate) fn take_alarm(&self) -> bool {
        let is_due = self.threshold > 0 && self.consecutive.load(Ordering::Relaxed) >= self.threshold;
        if is_due {
            self.forgive();
        }
        is_due
    }

    /// Failures so far do not count as consecutive any more.
    pub(crate) fn forgive(&self) {
        self.consecutive.store(0, Ordering::Relaxed);
    }
}
