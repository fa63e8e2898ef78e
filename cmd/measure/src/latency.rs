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

/// Latencies and rate of a row, as reports show them. All null where nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median latency in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99 of 100 calls took no longer, in nanoseconds.
    pub p99_ns: Option<u64>,
    /// 999 of 1000 calls took no longer, in nanoseconds.
    pub p999_ns: Option<u64>,
    /// Mean latency in nanoseconds.
    pub mean_ns: Option<f64>,
    /// Calls that were answered in a second of wall clock.
    pub rate_per_s: Option<f64>,
    /// Calls measured.
    pub calls: u64,
}

impl Quantiles {
    /// Of calls that were measured for so long.
    #[must_use]
    pub fn of(all: &Latencies, elapsed: Duration) -> Self {
        Self {
            p50_ns: Some(all.quantile_ns(0.5)),
            p99_ns: Some(all.quantile_ns(0.99)),
            p999_ns: Some(all.quantile_ns(0.999)),
            mean_ns: Some(all.mean_ns()),
            rate_per_s: Some(all.count() as f64 / elapsed.as_secs_f64()),
            calls: all.count(),
        }
    }

    /// How far the tail reaches: the latency that 999 of 1000 calls did not exceed, in medians.
    #[must_use]
    pub fn tail(&self) -> Option<f64> {
        Some(self.p999_ns? as f64 / self.p50_ns.filter(|median| *median > 0)? as f64)
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
    fn quantiles_are_those_of_all_calls_and_null_without_any() {
        let mut all = Latencies::default();
        (0..998).for_each(|_| all.record(Duration::from_nanos(100)));
        (0..2).for_each(|_| all.record(Duration::from_nanos(900)));
        let found = Quantiles::of(&all, Duration::from_millis(10));
        assert_eq!((found.p50_ns, found.p99_ns, found.p999_ns), (Some(100), Some(100), Some(900)));
        assert_eq!((found.calls, found.rate_per_s, found.tail()), (1000, Some(100_000.0), Some(9.0)));
        let none = serde_json::to_value(Quantiles::default()).unwrap();
        assert!(none["p999_ns"].is_null() && none["mean_ns"].is_null(), "{none}");
        assert_eq!(Quantiles::default().tail(), None);
    }

    #[test]
    fn three_digits_hold() {
        let mut all = Latencies::default();
        all.record(Duration::from_nanos(74_321));
        let off = all.quantile_ns(0.5).abs_diff(74_321);
        assert!(off * 1000 <= 74_321, "off by {off} ns");
    }
}
