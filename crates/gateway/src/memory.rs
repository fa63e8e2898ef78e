//! What each group holds of the gateway's memory, and the limit of it.
//!
//! Counted of its calls are the message of a request that is on its way in, what is kept of a request until its answer begins, the part
//! of an answer that is on its way out, objects of answers that are put together or wait to be verified, and messages that are inflated,
//! or to be deflated, here. What sessions and connections may buffer beside it is bounded by calls and credit.
//! Counted of its backend connections are the tables of the types that they take as objects, and the names of their methods: they may be a quarter of
//! the limit, so that calls have the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tollfree::gateway::Holdings;

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::shares::{Shares, Stake};

/// What backend connections may have of the limit: one part in so many.
const KEPT_PART: u64 = 4;

/// One group's.
#[derive(Debug)]
pub(crate) struct Memory {
    held: AtomicU64,
    /// What is kept of it for backend connections.
    kept: AtomicU64,
    gauge: Gauge,
}

impl Memory {
    pub(crate) fn new(gauge: Gauge) -> Memory {
        Memory { held: AtomicU64::new(0), kept: AtomicU64::new(0), gauge }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.held() == 0
    }

    /// `more` bytes, unless they would be more than `limit` in all.
    pub(crate) fn take(&self, more: u64, limit: u64) -> bool {
        let is_there = add_within(&self.held, more, limit);
        if is_there {
            self.gauge.inc_by(more as i64);
        }
        is_there
    }

    pub(crate) fn give(&self, less: u64) {
        self.held.fetch_sub(less, Ordering::Relaxed);
        self.gauge.dec_by(less as i64);
    }
}

/// Adds `more`, and tells whether it did: there may be no more than `limit`.
fn add_within(count: &AtomicU64, more: u64, limit: u64) -> bool {
    let within = |held: u64| held.checked_add(more).filter(|held| *held <= limit);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}

/// What is kept for the backend connections of a group.
pub(crate) struct GroupHoldings {
    group: String,
    shares: Arc<Shares>,
    config: Current,
    metrics: Arc<Metrics>,
}

impl GroupHoldings {
    pub(crate) fn new(
        group: &str,
        shares: &Arc<Shares>,
        config: &Current,
        metrics: &Arc<Metrics>,
    ) -> GroupHoldings {
        let (shares, config, metrics) = (shares.clone(), config.clone(), metrics.clone());
        GroupHoldings { group: group.to_owned(), shares, config, metrics }
    }
}

impl Holdings for GroupHoldings {
    fn add(&self, bytes: usize) -> Result<(), String> {
        let (memory, more) = (&self.shares.memory, bytes as u64);
        let limit = self.config.load().limits.memory_bytes;
        let part = limit / KEPT_PART;
        let is_kept = add_within(&memory.kept, more, part);
        if is_kept && memory.take(more, limit) {
            return Ok(());
        }
        if is_kept {
            memory.kept.fetch_sub(more, Ordering::Relaxed);
        }
        let words = format!(
            "the tables of the group {} would hold more than the {part} bytes that they may have of limits.memory_bytes, or there is no more \
             memory beside its calls: raise it in the gateway's config, or have its processes take fewer types as objects",
            self.group
        );
        self.metrics.refused_inside(Refusal::Memory, &self.group, &words);
        Err(words)
    }

    fn remove(&self, bytes: usize) {
        self.shares.memory.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.shares.memory.give(bytes as u64);
    }
}

/// One part of it, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    stake: Arc<Stake>,
    bytes: u64,
}

impl Charge {
    /// Of what a connection holds of a group.
    pub(crate) fn none(stake: &Arc<Stake>) -> Charge {
        Charge { stake: stake.clone(), bytes: 0 }
    }

    /// What it is a part of.
    pub(crate) fn stake(&self) -> &Arc<Stake> {
        &self.stake
    }

    /// Makes it `bytes` in all; nothing has changed where that fails. Less never fails.
    ///
    /// # Errors
    /// The group would hold more than `limit`, or the client more than its share of it.
    pub(crate) fn set(&mut self, bytes: u64, limit: u64) -> Result<(), Refusal> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => self.stake.take_bytes(more, limit)?,
            None => self.stake.give_bytes(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.stake.give_bytes(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::*;
    use crate::config::Config;
    use crate::shares::Claimant;

    #[test]
    fn backend_connections_have_a_quarter_of_the_limit_and_calls_the_rest() {
        let shares = Arc::new(Shares::new(Memory::new(Gauge::default())));
        let memory = &shares.memory;
        let config =
            Config::from_toml("limits.message_bytes = 100000\nlimits.memory_bytes = 400000\n").unwrap();
        let config: Current = Arc::new(ArcSwap::from_pointee(config));
        let kept = GroupHoldings::new("shop", &shares, &config, &Arc::new(Metrics::new()));
        // Two clients, since none has a share of all.
        let mut charges = [(); 2].map(|()| Charge::none(&Claimant::default().stake(&shares, None)));
        kept.add(100_000).unwrap();
        let refused = kept.add(1).unwrap_err();
        assert!(refused.contains("group shop") && refused.contains("100000 bytes"), "{refused}");
        charges[0].set(200_000, 400_000).unwrap();
        charges[1].set(70_000, 400_000).unwrap();
        assert_eq!(charges[1].set(200_001, 400_000), Err(Refusal::Memory));
        kept.remove(60_000);
        charges[1].set(120_000, 400_000).unwrap();
        kept.add(40_001).unwrap_err();
        assert_eq!(memory.gauge.get(), 360_000);
        drop(charges);
        kept.add(60_000).unwrap();
        kept.remove(100_000);
        assert_eq!((memory.kept.load(Ordering::Relaxed), memory.held()), (0, 0));
        assert_eq!(memory.gauge.get(), 0);
    }
}
