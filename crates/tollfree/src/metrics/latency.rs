//! How long calls took: counts by upper bound, which can be read again.
//!
//! A call costs two additions and no lock. The library's histogram can't be read, and locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in seconds, as A66 has them. What took longer is counted behind the last.
pub const BOUNDS: [f64; 24] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_3, 0.000_6, 0.000_8, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
    0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.05, 0.1, 1.0, 5.0, 100.0,
];
/// One for each bound, and one for what is beyond.
pub(crate) const COUNTS: usize = BOUNDS.len() + 1;

#[derive(Debug, Default)]
struct Inner {
    counts: [AtomicU64; COUNTS],
    sum_ns: AtomicU64,
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency(Arc<Inner>);

impl Latency {
    pub(crate) fn observe(&self, time: Duration) {
        let at = BOUNDS.partition_point(|bound| *bound < time.as_secs_f64());
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> [u64; COUNTS] {
        std::array::from_fn(|at| self.0.counts[at].load(Ordering::Relaxed))
    }
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts();
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = Duration::from_nanos(self.0.sum_ns.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_at_the_first_bound_that_it_does_not_pass() {
        let latency = Latency::default();
        for time in [10, 10_000, 10_001, 2_000_000, 200_000_000_000] {
            latency.observe(Duration::from_nanos(time));
        }
        let counts = latency.counts();
        assert_eq!((counts[0], counts[1], counts[7], counts[COUNTS - 1]), (2, 1, 1, 1));
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register("took", "Time", latency);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("took_bucket{le=\"100.0\"} 4\n"), "{text}");
        assert!(text.contains("took_bucket{le=\"+Inf\"} 5\n") && text.contains("took_count 5\n"), "{text}");
    }
}
