//! The packet monitor: how long calls take from stage to stage, and what went wrong last.
//!
//! One call in sixteen of a thread is timed. The others cost a counter of the thread's own; a call that is timed costs five
//! looks at the clock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};

use tollfree_control::{ErrorState, StageState};

/// Of the calls of a thread, one in so many is timed.
const TIMED_EVERY: u32 = 16;
/// What went wrong is remembered so many times, and so much is kept of words.
const ERRORS_MAX: usize = 32;
const WORDS_LEN_MAX: usize = 200;
/// The lowest upper bound of a stage's time in nanoseconds; each next one is twice as high.
const BOUND_NS: u64 = 250;
const BOUNDS: usize = 26;

/// A part of a call's way, by what it ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Its headers were looked at: it is a call that may go on.
    Checked,
    /// A backend connection was found for it, for which it may have waited.
    Placed,
    /// It was made ready for the backend connection, and handed to the session.
    Handed,
    /// The backend connection's answer began.
    Answered,
    /// All of the answer was given to HTTP/2.
    Written,
}

impl Stage {
    pub(crate) const ALL: [Stage; 5] =
        [Stage::Checked, Stage::Placed, Stage::Handed, Stage::Answered, Stage::Written];

    fn name(self) -> &'static str {
        match self {
            Stage::Checked => "checked",
            Stage::Placed => "placed",
            Stage::Handed => "handed",
            Stage::Answered => "answered",
            Stage::Written => "written",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStage {
    stage: &'static str,
}

/// Upper bounds in seconds.
pub(crate) fn bounds_s() -> Vec<f64> {
    (0..BOUNDS).map(|nth| (BOUND_NS << nth) as f64 / 1e9).collect()
}

#[derive(Debug, Default)]
struct Counts {
    counts: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// A histogram of times, which can be read again.
#[derive(Clone, Debug, Default)]
struct Times(Arc<Counts>);

impl Times {
    fn observe(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = (0..BOUNDS).position(|nth| ns <= BOUND_NS << nth).unwrap_or(BOUNDS);
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        self.0.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn counts(&self) -> Vec<u64> {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn sum_s(&self) -> f64 {
        Duration::from_nanos(self.0.sum_ns.load(Ordering::Relaxed)).as_secs_f64()
    }
}

impl TypedMetric for Times {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts();
        let buckets: Vec<(f64, u64)> =
            bounds_s().into_iter().chain([f64::INFINITY]).zip(counts.iter().copied()).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum_s(), counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Something that went wrong.
#[derive(Debug)]
struct Trouble {
    at: Instant,
    reason: &'static str,
    method: String,
    words: String,
}

/// What the monitor has seen.
#[derive(Debug)]
pub(crate) struct Monitor {
    stages: [Times; Stage::ALL.len()],
    errors: Mutex<VecDeque<Trouble>>,
}

impl Monitor {
    /// With its figures among others.
    pub(crate) fn new(registry: &mut prometheus_client::registry::Registry) -> Monitor {
        let family = Family::<OfStage, Times>::default();
        // The same counts: what is observed shows.
        let stages = Stage::ALL.map(|stage| family.get_or_create(&OfStage { stage: stage.name() }).clone());
        let help = "How long calls took up to each stage from the one before, of one call in sixteen";
        registry.register_with_unit("stage", help, prometheus_client::registry::Unit::Seconds, family);
        Monitor { stages, errors: Mutex::default() }
    }

    /// Remembers what went wrong. `method` may be empty.
    pub(crate) fn failed(&self, reason: &'static str, method: &str, words: &str) {
        let cut = |text: &str| text.chars().take(WORDS_LEN_MAX).collect();
        let trouble = Trouble { at: Instant::now(), reason, method: cut(method), words: cut(words) };
        let mut errors = self.errors.lock();
        errors.truncate(ERRORS_MAX - 1);
        errors.push_front(trouble);
    }

    /// What went wrong last, the latest first.
    pub(crate) fn errors(&self) -> Vec<ErrorState> {
        let state = |trouble: &Trouble| ErrorState {
            ago_ms: u64::try_from(trouble.at.elapsed().as_millis()).unwrap_or(u64::MAX),
            reason: trouble.reason.to_owned(),
            method: trouble.method.clone(),
            words: trouble.words.clone(),
        };
        self.errors.lock().iter().map(state).collect()
    }

    /// How long calls took, in the order of the stages.
    pub(crate) fn stages(&self) -> Vec<StageState> {
        let state = |(stage, times): (Stage, &Times)| StageState {
            stage: stage.name().to_owned(),
            counts: times.counts(),
            sum_s: times.sum_s(),
        };
        Stage::ALL.into_iter().zip(&self.stages).map(state).collect()
    }
}

thread_local! {
    static UNTIMED: Cell<u32> = const { Cell::new(0) };
}

/// When a call came to its last stage, if it is one that is timed.
#[derive(Debug)]
pub(crate) struct Timeline(Option<Instant>);

impl Timeline {
    /// Of a call that began at a time.
    pub(crate) fn of(began: Instant) -> Timeline {
        let count = UNTIMED.get();
        UNTIMED.set((count + 1) % TIMED_EVERY);
        Timeline((count == 0).then_some(began))
    }

    /// It is a call that is not timed any further.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    /// The call has come to a stage.
    #[inline]
    pub(crate) fn reached(&mut self, stage: Stage, monitor: &Monitor) {
        if let Some(last) = &mut self.0 {
            let now = Instant::now();
            monitor.stages[stage as usize].observe(now.saturating_duration_since(*last));
            *last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_sixteen_is_timed_at_the_first_bound_that_it_does_not_pass() {
        let mut registry = prometheus_client::registry::Registry::default();
        let monitor = Monitor::new(&mut registry);
        for _ in 0..2 * TIMED_EVERY {
            let mut timeline = Timeline::of(Instant::now());
            Stage::ALL.into_iter().for_each(|stage| timeline.reached(stage, &monitor));
        }
        for stage in monitor.stages() {
            assert_eq!(stage.counts.iter().sum::<u64>(), 2, "{}", stage.stage);
        }
        let times = Times::default();
        for ns in [0, 250, 251, 500, 10_000_000_000] {
            times.observe(Duration::from_nanos(ns));
        }
        assert_eq!((times.counts()[0], times.counts()[1], times.counts()[BOUNDS]), (2, 2, 1));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("stage_seconds_count{stage=\"written\"} 2"), "{text}");
    }

    #[test]
    fn the_latest_errors_are_kept_and_cut() {
        let monitor = Monitor::new(&mut prometheus_client::registry::Registry::default());
        for nth in 0..100 {
            monitor.failed("late", &format!("a.B/{nth}"), &"é".repeat(5000));
        }
        let errors = monitor.errors();
        assert_eq!(
            (errors.len(), errors[0].method.as_str(), errors[31].method.as_str()),
            (32, "a.B/99", "a.B/68")
        );
        assert_eq!(errors[0].words.chars().count(), WORDS_LEN_MAX);
    }
}
