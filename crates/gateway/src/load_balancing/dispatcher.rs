//! What the gateway keeps of one group while somebody of it is attached, or a call of it is under way.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::queue::Queue;
use super::rules::Rules;
use crate::backend_connections::Spot;
use crate::config::LoadBalancing;
use crate::memory::Memory;
use crate::metrics::{EndedCalls, Metrics};
use crate::outliers::Outliers;
use crate::shares::Shares;

/// One group's.
pub(crate) struct Dispatcher {
    pub(crate) group: String,
    pub(crate) rules: Rules,
    pub(crate) queue: Arc<Queue<Spot>>,
    /// What each client holds of the group.
    pub(crate) shares: Arc<Shares>,
    pub(crate) outstanding: Gauge,
    pub(crate) outliers: Outliers,
    pub(crate) ended: EndedCalls,
    hits: Counter,
    misses: Counter,
}

impl Dispatcher {
    pub(crate) fn new(group: &str, load_balancing: &LoadBalancing, metrics: &Metrics) -> Dispatcher {
        let [hits, misses] = metrics.affinity(group);
        Dispatcher {
            hits,
            misses,
            group: group.to_owned(),
            rules: Rules::new(load_balancing),
            queue: Arc::default(),
            shares: Arc::new(Shares::new(Memory::new(metrics.memory(group)))),
            outstanding: metrics.outstanding(group),
            outliers: Outliers::default(),
            ended: metrics.ended_calls(group),
        }
    }

    /// Counts whether a request went to a backend connection that had its function, where its policy asks for that.
    pub(crate) fn count(&self, hit: Option<bool>) {
        match hit {
            Some(true) => drop(self.hits.inc()),
            Some(false) => drop(self.misses.inc()),
            None => {}
        }
    }

    /// Whether it can be forgotten: no backend connection, no call and no body of one has it.
    pub(crate) fn is_unused(self: &Arc<Dispatcher>) -> bool {
        Arc::strong_count(self) == 1 && self.shares.are_unused()
    }
}
