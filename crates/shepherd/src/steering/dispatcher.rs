//! What the shepherd keeps of one group while somebody of it is attached, or a call of it is under way.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;

use super::queue::Queue;
use super::rules::Rules;
use crate::config::Steering;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::workers::Place;

/// One group's.
pub(crate) struct Dispatcher {
    pub(crate) group: String,
    pub(crate) rules: Rules,
    pub(crate) queue: Arc<Queue<Place>>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) outstanding: Gauge,
}

impl Dispatcher {
    pub(crate) fn new(group: &str, steering: &Steering, metrics: &Metrics) -> Dispatcher {
        Dispatcher {
            group: group.to_owned(),
            rules: Rules::new(steering),
            queue: Arc::default(),
            memory: Arc::new(Memory::new(metrics.memory(group))),
            outstanding: metrics.outstanding(group),
        }
    }

    /// Whether it can be forgotten: no worker, no call and no body of one has it.
    pub(crate) fn is_unused(self: &Arc<Dispatcher>) -> bool {
        Arc::strong_count(self) == 1 && Arc::strong_count(&self.memory) == 1
    }
}
