//! What the calls of each group hold of the shepherd's memory, and the limit of it.
//!
//! Counted are headers, the message of a request that is on its way in, what is kept of a request until its answer begins, the part
//! of an answer that is on its way out, and messages that are inflated, or to be deflated, here. What sessions and connections may buffer beside it is bounded by calls and credit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// One group's.
#[derive(Debug)]
pub(crate) struct Memory {
    held: AtomicU64,
    gauge: Gauge,
}

impl Memory {
    pub(crate) fn new(gauge: Gauge) -> Memory {
        Memory { held: AtomicU64::new(0), gauge }
    }
}

/// One part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn none(memory: &Arc<Memory>) -> Charge {
        Charge { memory: memory.clone(), bytes: 0 }
    }

    /// Makes it `bytes` in all. False, and nothing has changed, where the group would hold more than `limit`.
    pub(crate) fn set(&mut self, bytes: u64, limit: u64) -> bool {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let within = |held: u64| held.checked_add(more).filter(|held| *held <= limit);
            if self.memory.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
                return false;
            }
        } else {
            self.memory.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.memory.gauge.inc_by(bytes as i64 - self.bytes as i64);
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Less is always within the limit.
        self.set(0, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_given_back_and_never_go_beyond_the_limit() {
        let memory = Arc::new(Memory::new(Gauge::default()));
        let (mut one, mut other) = (Charge::none(&memory), Charge::none(&memory));
        assert!(one.set(60, 100) && other.set(40, 100) && !other.set(41, 100) && !one.set(u64::MAX, 100));
        assert!(one.set(10, 100) && other.set(90, 100));
        // A limit that has become lower takes nothing away.
        assert!(!one.set(11, 50) && one.set(9, 50));
        assert_eq!(memory.gauge.get(), 99);
        drop(one);
        drop(other);
        assert_eq!((memory.held.load(Ordering::Relaxed), memory.gauge.get()), (0, 0));
    }
}
