//! Latencies of calls, kept with three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that is told apart, in nanoseconds: a minute. Longer ones count as this.
const LONGEST_NS: u64 = 60_000_000_000;

/// A histogram of call latencies in nanoseconds. Travels between processes and into files as value and count pairs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Pairs", into = "Pairs")]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The buckets that are not empty: highest value in nanoseconds, count.
#[derive(Serialize, Deserialize)]
struct Pairs(Vec<(u64, u64)>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self { histogram }
    }
}

impl Latencies {
    /// Counts one call.
    pub fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos().try_into().unwrap_or(LONGEST_NS));
    }

    /// Adds another histogram's calls to this one's.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// Calls counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency in nanoseconds that a share of the calls, `0.0` to `1.0`, did not exceed.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }

    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// The buckets that are not empty: highest value in nanoseconds, count.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
    }
}

impl From<Pairs> for Latencies {
    fn from(Pairs(pairs): Pairs) -> Self {
        let mut all = Self::default();
        for (value, count) in pairs {
            all.histogram.saturating_record_n(value, count);
        }
        all
    }
}

impl From<Latencies> for Pairs {
    fn from(all: Latencies) -> Self {
        Self(all.pairs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_way_to_another_process() {
        let mut sent = Latencies::default();
        for nanos in [0, 1, 290, 290, 74_321, 1_410_000, u64::MAX] {
            sent.record(Duration::from_nanos(nanos));
        }
        let text = serde_json::to_string(&sent).unwrap();
        let received: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(received.count(), 7);
        assert_eq!(received.pairs(), sent.pairs());
        for share in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(received.quantile_ns(share), sent.quantile_ns(share));
        }
    }

    #[test]
    fn three_digits_hold() {
        let mut all = Latencies::default();
        all.record(Duration::from_nanos(74_321));
        let off = all.quantile_ns(0.5).abs_diff(74_321);
        assert!(off * 1000 <= 74_321, "off by {off} ns");
    }
}
