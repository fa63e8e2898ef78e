//! What each group holds of the shepherd's memory, and the limit of it.
//!
//! Counted of its calls are headers, the message of a request that is on its way in, what is kept of a request until its answer begins, the part
//! of an answer that is on its way out, and messages that are inflated, or to be deflated, here. What sessions and connections may buffer beside it is bounded by calls and credit.
//! Counted of its workers are the tables of the types that they take as objects, and the names of their methods: they may be a quarter of
//! the limit, so that calls have the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tollfree::shepherd::Holdings;

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::reload::Current;

/// What workers may have of the limit: one part in so many.
const KEPT_PART: u64 = 4;

/// One group's.
#[derive(Debug)]
pub(crate) struct Memory {
    held: AtomicU64,
    /// What is kept of it for workers.
    kept: AtomicU64,
    gauge: Gauge,
}

impl Memory {
    pub(crate) fn new(gauge: Gauge) -> Memory {
        Memory { held: AtomicU64::new(0), kept: AtomicU64::new(0), gauge }
    }
}

/// Adds `more`, and tells whether it did: there may be no more than `limit`.
fn add_within(count: &AtomicU64, more: u64, limit: u64) -> bool {
    let within = |held: u64| held.checked_add(more).filter(|held| *held <= limit);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}

/// What is kept for the workers of a group.
pub(crate) struct Kept {
    group: String,
    memory: Arc<Memory>,
    config: Current,
    metrics: Arc<Metrics>,
}

impl Kept {
    pub(crate) fn new(group: &str, memory: &Arc<Memory>, config: &Current, metrics: &Arc<Metrics>) -> Kept {
        let (memory, config, metrics) = (memory.clone(), config.clone(), metrics.clone());
        Kept { group: group.to_owned(), memory, config, metrics }
    }
}

impl Holdings for Kept {
    fn add(&self, bytes: usize) -> Result<(), String> {
        let (memory, more) = (&self.memory, bytes as u64);
        let limit = self.config.load().limits.memory_bytes;
        let part = limit / KEPT_PART;
        let is_kept = add_within(&memory.kept, more, part);
        if is_kept && add_within(&memory.held, more, limit) {
            memory.gauge.inc_by(bytes as i64);
            return Ok(());
        }
        if is_kept {
            memory.kept.fetch_sub(more, Ordering::Relaxed);
        }
        self.metrics.refused(Refusal::Memory);
        Err(format!(
            "the tables of the group {} would hold more than the {part} bytes that they may have of limits.memory_bytes, or there is no more \
             memory beside its calls: raise it in the shepherd's config, or have its processes take fewer types as objects",
            self.group
        ))
    }

    fn remove(&self, bytes: usize) {
        self.memory.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.memory.held.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.memory.gauge.dec_by(bytes as i64);
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
            if !add_within(&self.memory.held, bytes - self.bytes, limit) {
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
    use arc_swap::ArcSwap;

    use super::*;
    use crate::config::Config;

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

    #[test]
    fn workers_have_a_quarter_of_the_limit_and_calls_the_rest() {
        let memory = Arc::new(Memory::new(Gauge::default()));
        let config =
            Config::from_toml("limits.message_bytes = 100000\nlimits.memory_bytes = 400000\n").unwrap();
        let config: Current = Arc::new(ArcSwap::from_pointee(config));
        let kept = Kept::new("shop", &memory, &config, &Arc::new(Metrics::new()));
        let mut charge = Charge::none(&memory);
        kept.add(100_000).unwrap();
        let refused = kept.add(1).unwrap_err();
        assert!(refused.contains("group shop") && refused.contains("100000 bytes"), "{refused}");
        assert!(charge.set(300_000, 400_000) && !charge.set(300_001, 400_000));
        kept.remove(60_000);
        assert!(charge.set(360_000, 400_000));
        kept.add(1).unwrap_err();
        assert_eq!(memory.gauge.get(), 400_000);
        assert!(charge.set(0, 400_000));
        kept.add(60_000).unwrap();
        kept.remove(100_000);
        assert_eq!((memory.kept.load(Ordering::Relaxed), memory.held.load(Ordering::Relaxed)), (0, 0));
        assert_eq!(memory.gauge.get(), 0);
    }
}
