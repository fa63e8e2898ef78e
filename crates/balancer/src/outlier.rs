//! Outlier detection: which endpoints are ejected for how their calls end, and when they return (gRFC A50).
//!
//! A sweep is made at the end of each interval. Two algorithms of A50 look at the calls that have ended in it; a third, of consecutive
//! failures, is looked at as soon as an endpoint's count is full.
//! An ejected endpoint returns in the first sweep after its time: the base time multiplied with the number of its ejections, which falls by
//! one in each sweep that finds it in use.

use std::sync::Arc;

use crate::random::Random;
use crate::record::{Record, Volume};

const SECOND_NS: u64 = 1_000_000_000;
/// A shorter interval counts as this.
const INTERVAL_MIN_NS: u64 = 1_000_000;
/// By how much equal rates may differ from their mean as it is computed.
const ROUNDING: f64 = 1e-9;

/// When endpoints are ejected. The names, meanings and defaults are those of gRFC A50.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierDetection {
    /// From one sweep to the next, in nanoseconds. One below a millisecond counts as a millisecond.
    pub interval_ns: u64,
    /// How long an endpoint is ejected for the first time, in nanoseconds.
    pub base_ejection_time_ns: u64,
    /// How long an endpoint is ejected at most, in nanoseconds; the base time counts if that is longer.
    pub max_ejection_time_ns: u64,
    /// No endpoint is ejected while so many percent of its priority's are. One endpoint may be, whatever this says, but for 0.
    pub max_ejection_percent: u32,
    /// Ejects endpoints whose success rate is far below that of the others.
    pub success_rate_ejection: Option<SuccessRateEjection>,
    /// Ejects endpoints of whose calls too many fail.
    pub failure_percentage_ejection: Option<FailurePercentageEjection>,
    /// Ejects endpoints whose calls fail one after the other. A50 has no such rule.
    pub consecutive_failure_ejection: Option<ConsecutiveFailureEjection>,
}

/// `success_rate_ejection` of gRFC A50.
#[derive(Clone, Debug, PartialEq)]
pub struct SuccessRateEjection {
    /// By how many thousandths of the standard deviation a rate has to be below the mean.
    pub stdev_factor: u32,
    /// In how many of a hundred cases an outlier is ejected.
    pub enforcement_percentage: u32,
    /// So many endpoints with enough calls have to be there.
    pub minimum_hosts: u32,
    /// So many calls of an endpoint have to end in an interval.
    pub request_volume: u32,
}

/// `failure_percentage_ejection` of gRFC A50.
#[derive(Clone, Debug, PartialEq)]
pub struct FailurePercentageEjection {
    /// More percent than this have to fail.
    pub threshold: u32,
    /// In how many of a hundred cases an outlier is ejected.
    pub enforcement_percentage: u32,
    /// So many endpoints with enough calls have to be there.
    pub minimum_hosts: u32,
    /// So many calls of an endpoint have to end in an interval.
    pub request_volume: u32,
}

/// Ejection for consecutive failures.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsecutiveFailureEjection {
    /// So many calls have to fail without one that succeeds between them. 0: none are ejected.
    pub threshold: u32,
    /// In how many of a hundred cases such an endpoint is ejected.
    pub enforcement_percentage: u32,
}

impl Default for OutlierDetection {
    fn default() -> OutlierDetection {
        OutlierDetection {
            interval_ns: 10 * SECOND_NS,
            base_ejection_time_ns: 30 * SECOND_NS,
            max_ejection_time_ns: 300 * SECOND_NS,
            max_ejection_percent: 10,
            success_rate_ejection: None,
            failure_percentage_ejection: None,
            consecutive_failure_ejection: None,
        }
    }
}

impl Default for SuccessRateEjection {
    fn default() -> SuccessRateEjection {
        SuccessRateEjection {
            stdev_factor: 1900,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 100,
        }
    }
}

impl Default for FailurePercentageEjection {
    fn default() -> FailurePercentageEjection {
        FailurePercentageEjection {
            threshold: 85,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 50,
        }
    }
}

impl Default for ConsecutiveFailureEjection {
    fn default() -> ConsecutiveFailureEjection {
        ConsecutiveFailureEjection { threshold: 5, enforcement_percentage: 100 }
    }
}

impl OutlierDetection {
    /// Whether any endpoint may be ejected.
    pub fn is_on(&self) -> bool {
        self.success_rate_ejection.is_some()
            || self.failure_percentage_ejection.is_some()
            || self.consecutive_threshold() > 0
    }

    pub(crate) fn consecutive_threshold(&self) -> u32 {
        self.consecutive_failure_ejection.as_ref().map_or(0, |ejection| ejection.threshold)
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns.max(INTERVAL_MIN_NS)
    }

    /// How long an endpoint is ejected after so many ejections.
    fn ejection_time_ns(&self, multiplier: u32) -> u64 {
        let longest = self.base_ejection_time_ns.max(self.max_ejection_time_ns);
        self.base_ejection_time_ns.saturating_mul(multiplier.into()).min(longest)
    }
}

/// Why an endpoint was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its success rate was far below that of the others.
    SuccessRate,
    /// Too many of its calls failed.
    FailurePercentage,
    /// Its calls failed one after the other.
    ConsecutiveFailures,
}

/// What a sweep has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An endpoint gets no calls for some time.
    Ejected {
        /// Where it is.
        address: Arc<str>,
        /// Why.
        cause: Cause,
        /// For how long, in nanoseconds; it returns in the first sweep after that.
        for_ns: u64,
    },
    /// An endpoint gets calls again.
    Returned {
        /// Where it is.
        address: Arc<str>,
    },
}

/// How an endpoint stands with the detection.
#[derive(Debug)]
pub(crate) struct Suspect {
    pub(crate) address: Arc<str>,
    pub(crate) record: Arc<Record>,
    /// Since when it is ejected.
    ejected_ns: Option<u64>,
    multiplier: u32,
}

impl Suspect {
    pub(crate) fn new(address: &Arc<str>, record: Arc<Record>) -> Suspect {
        Suspect { address: address.clone(), record, ejected_ns: None, multiplier: 0 }
    }

    pub(crate) fn is_ejected(&self) -> bool {
        self.ejected_ns.is_some()
    }
}

/// Endpoints of one priority in one sweep.
pub(crate) struct Sweep<'a> {
    pub(crate) config: &'a OutlierDetection,
    pub(crate) random: &'a mut Random,
    pub(crate) suspects: Vec<&'a mut Suspect>,
    pub(crate) events: &'a mut Vec<Event>,
}

impl Sweep<'_> {
    /// Looks at the endpoints whose calls have failed one after the other.
    pub(crate) fn look_at_alarms(&mut self, now_ns: u64) {
        let Some(rule) = &self.config.consecutive_failure_ejection else { return };
        for at in 0..self.suspects.len() {
            if self.suspects[at].record.take_alarm() && !self.is_full() {
                self.eject(at, Cause::ConsecutiveFailures, rule.enforcement_percentage, now_ns);
            }
        }
    }

    /// The sweep at the end of an interval, and those of the intervals after it, in which no call has ended: `missed` of them.
    pub(crate) fn end_interval(&mut self, at_ns: u64, missed: u64) {
        let volumes: Vec<Volume> = self.suspects.iter().map(|suspect| suspect.record.take()).collect();
        if let Some(rule) = &self.config.success_rate_ejection {
            self.by_success_rate(rule, &volumes, at_ns);
        }
        if let Some(rule) = &self.config.failure_percentage_ejection {
            self.by_failure_percentage(rule, &volumes, at_ns);
        }
        let interval_ns = self.config.interval_ns();
        for suspect in &mut self.suspects {
            let mut idle = missed + 1;
            if let Some(since_ns) = suspect.ejected_ns {
                let until_ns = since_ns.saturating_add(self.config.ejection_time_ns(suspect.multiplier));
                // The first sweep that is not earlier than its time. A50 says later; its timers are never early, and always a little late.
                let at = until_ns.saturating_sub(at_ns).div_ceil(interval_ns);
                if at > missed {
                    continue;
                }
                suspect.ejected_ns = None;
                suspect.record.forgive();
                self.events.push(Event::Returned { address: suspect.address.clone() });
                idle = missed - at;
            }
            let idle = u32::try_from(idle).unwrap_or(u32::MAX);
            suspect.multiplier = suspect.multiplier.saturating_sub(idle);
        }
    }

    fn by_success_rate(&mut self, rule: &SuccessRateEjection, volumes: &[Volume], at_ns: u64) {
        let rate = |volume: &Volume| volume.successes as f64 / volume.total() as f64;
        let considered = considered(volumes, rule.request_volume);
        if considered.is_empty() || considered.len() < rule.minimum_hosts as usize {
            return;
        }
        let count = considered.len() as f64;
        let mean = considered.iter().map(|at| rate(&volumes[*at])).sum::<f64>() / count;
        let variance = considered.iter().map(|at| (rate(&volumes[*at]) - mean).powi(2)).sum::<f64>() / count;
        let required = mean - variance.sqrt() * (f64::from(rule.stdev_factor) / 1000.0);
        for at in considered {
            if self.is_full() {
                return;
            }
            if rate(&volumes[at]) + ROUNDING < required {
                self.eject(at, Cause::SuccessRate, rule.enforcement_percentage, at_ns);
            }
        }
    }

    fn by_failure_percentage(&mut self, rule: &FailurePercentageEjection, volumes: &[Volume], at_ns: u64) {
        let considered = considered(volumes, rule.request_volume);
        if considered.len() < rule.minimum_hosts as usize {
            return;
        }
        for at in considered {
            if self.is_full() {
                return;
            }
            let volume = volumes[at];
            if 100.0 * volume.failures as f64 / volume.total() as f64 > f64::from(rule.threshold) {
                self.eject(at, Cause::FailurePercentage, rule.enforcement_percentage, at_ns);
            }
        }
    }

    /// Whether as many are ejected as may be.
    fn is_full(&self) -> bool {
        let ejected = self.suspects.iter().filter(|suspect| suspect.is_ejected()).count();
        100 * ejected as u64 >= u64::from(self.config.max_ejection_percent) * self.suspects.len() as u64
    }

    fn eject(&mut self, at: usize, cause: Cause, percentage: u32, now_ns: u64) {
        let suspect = &mut self.suspects[at];
        // One ejection for one reason: what two rules find in one sweep, or calls that were under way, makes no second.
        if suspect.is_ejected() || !self.random.hits(percentage) {
            return;
        }
        suspect.ejected_ns = Some(now_ns);
        suspect.multiplier = suspect.multiplier.saturating_add(1);
        let for_ns = self.config.ejection_time_ns(suspect.multiplier);
        self.events.push(Event::Ejected { address: suspect.address.clone(), cause, for_ns });
    }
}

/// Those with enough calls.
fn considered(volumes: &[Volume], request_volume: u32) -> Vec<usize> {
    let has_enough = |volume: &Volume| volume.total() > 0 && volume.total() >= u64::from(request_volume);
    volumes.iter().enumerate().filter(|(_, volume)| has_enough(volume)).map(|(at, _)| at).collect()
}
