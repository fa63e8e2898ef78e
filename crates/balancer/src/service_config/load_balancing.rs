//! The part of gRPC's service config that says how an endpoint is chosen, and when endpoints are ejected (gRFC A24, A50).

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::fields::{duration, percent, wrong};
use crate::{
    ConsecutiveFailureEjection, FailurePercentageEjection, OutlierDetection, Policy, ServiceConfigError,
    SuccessRateEjection,
};

/// The name by which gRPC's libraries know outlier detection.
const OUTLIER_DETECTION: &str = "outlier_detection_experimental";

/// How an endpoint is chosen, and when endpoints are ejected.
#[derive(Debug, Default)]
pub(super) struct LoadBalancing {
    pub(super) balance: Option<Policy>,
    pub(super) outlier_detection: Option<OutlierDetection>,
}

impl LoadBalancing {
    /// By the old field that knows names only.
    ///
    /// # Errors
    /// [`ServiceConfigError`] for a name that is not known here.
    pub(super) fn of_name(name: Option<&str>) -> Result<LoadBalancing, ServiceConfigError> {
        let Some(name) = name else { return Ok(LoadBalancing::default()) };
        let unknown = || wrong("loadBalancingPolicy", format!("\"{name}\" is not known here"));
        let balance = known(&name.to_lowercase()).ok_or_else(unknown)?;
        Ok(LoadBalancing { balance: Some(balance), outlier_detection: None })
    }

    /// By the first policy of a list that is known here.
    ///
    /// # Errors
    /// [`ServiceConfigError`] for a list without one, and for settings that can't be meant.
    pub(super) fn of(
        field: &'static str,
        list: &[HashMap<String, Value>],
    ) -> Result<LoadBalancing, ServiceConfigError> {
        let mut names = Vec::new();
        for entry in list {
            let mut policies = entry.iter();
            let (Some((name, settings)), None) = (policies.next(), policies.next()) else {
                return Err(wrong(field, "has an entry that isn't one policy"));
            };
            if let Some(balance) = known(name) {
                return Ok(LoadBalancing { balance: Some(balance), outlier_detection: None });
            }
            if name == OUTLIER_DETECTION && field != CHILD_POLICY {
                let text = OutlierText::deserialize(settings).map_err(|error| {
                    wrong(field, format!("has {OUTLIER_DETECTION}, which can't be read: {error}"))
                })?;
                return text.check();
            }
            names.push(name.as_str());
        }
        Err(wrong(field, format!("has no policy that is known here: {}", names.join(", "))))
    }
}

fn known(name: &str) -> Option<Policy> {
    match name {
        "pick_first" => Some(Policy::PickFirst),
        "round_robin" => Some(Policy::RoundRobin),
        "least_outstanding" => Some(Policy::LeastOutstanding),
        _ => None,
    }
}

const CHILD_POLICY: &str = "childPolicy";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutlierText {
    interval: Option<String>,
    base_ejection_time: Option<String>,
    max_ejection_time: Option<String>,
    max_ejection_percent: Option<u32>,
    success_rate_ejection: Option<RateText>,
    failure_percentage_ejection: Option<PercentageText>,
    consecutive_failure_ejection: Option<ConsecutiveText>,
    #[serde(default)]
    child_policy: Vec<HashMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateText {
    stdev_factor: Option<u32>,
    enforcement_percentage: Option<u32>,
    minimum_hosts: Option<u32>,
    request_volume: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PercentageText {
    threshold: Option<u32>,
    enforcement_percentage: Option<u32>,
    minimum_hosts: Option<u32>,
    request_volume: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsecutiveText {
    threshold: Option<u32>,
    enforcement_percentage: Option<u32>,
}

impl OutlierText {
    fn check(self) -> Result<LoadBalancing, ServiceConfigError> {
        let default = OutlierDetection::default();
        let outlier_detection = OutlierDetection {
            interval_ns: time_ns("interval", self.interval, default.interval_ns)?,
            base_ejection_time_ns: time_ns(
                "baseEjectionTime",
                self.base_ejection_time,
                default.base_ejection_time_ns,
            )?,
            max_ejection_time_ns: time_ns(
                "maxEjectionTime",
                self.max_ejection_time,
                default.max_ejection_time_ns,
            )?,
            max_ejection_percent: percent(
                "maxEjectionPercent",
                self.max_ejection_percent,
                default.max_ejection_percent,
            )?,
            success_rate_ejection: self.success_rate_ejection.map(RateText::check).transpose()?,
            failure_percentage_ejection: self
                .failure_percentage_ejection
                .map(PercentageText::check)
                .transpose()?,
            consecutive_failure_ejection: self
                .consecutive_failure_ejection
                .map(ConsecutiveText::check)
                .transpose()?,
        };
        let child = LoadBalancing::of(CHILD_POLICY, &self.child_policy)?;
        Ok(LoadBalancing { outlier_detection: Some(outlier_detection), ..child })
    }
}

impl RateText {
    fn check(self) -> Result<SuccessRateEjection, ServiceConfigError> {
        let default = SuccessRateEjection::default();
        Ok(SuccessRateEjection {
            stdev_factor: self.stdev_factor.unwrap_or(default.stdev_factor),
            enforcement_percentage: percent(
                "successRateEjection.enforcementPercentage",
                self.enforcement_percentage,
                default.enforcement_percentage,
            )?,
            minimum_hosts: self.minimum_hosts.unwrap_or(default.minimum_hosts),
            request_volume: self.request_volume.unwrap_or(default.request_volume),
        })
    }
}

impl PercentageText {
    fn check(self) -> Result<FailurePercentageEjection, ServiceConfigError> {
        let default = FailurePercentageEjection::default();
        Ok(FailurePercentageEjection {
            threshold: percent("failurePercentageEjection.threshold", self.threshold, default.threshold)?,
            enforcement_percentage: percent(
                "failurePercentageEjection.enforcementPercentage",
                self.enforcement_percentage,
                default.enforcement_percentage,
            )?,
            minimum_hosts: self.minimum_hosts.unwrap_or(default.minimum_hosts),
            request_volume: self.request_volume.unwrap_or(default.request_volume),
        })
    }
}

impl ConsecutiveText {
    fn check(self) -> Result<ConsecutiveFailureEjection, ServiceConfigError> {
        let default = ConsecutiveFailureEjection::default();
        let threshold = self.threshold.unwrap_or(default.threshold);
        if threshold == 0 {
            return Err(wrong("consecutiveFailureEjection.threshold", "has to be above 0"));
        }
        Ok(ConsecutiveFailureEjection {
            threshold,
            enforcement_percentage: percent(
                "consecutiveFailureEjection.enforcementPercentage",
                self.enforcement_percentage,
                default.enforcement_percentage,
            )?,
        })
    }
}

fn time_ns(field: &'static str, text: Option<String>, default_ns: u64) -> Result<u64, ServiceConfigError> {
    let Some(text) = text else { return Ok(default_ns) };
    let time: Duration = duration(field, &text)?;
    u64::try_from(time.as_nanos())
        .map_err(|_| wrong(field, format!("is \"{text}\", and more than 500 years")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServiceConfig;

    fn parse(settings: &str) -> Result<ServiceConfig, ServiceConfigError> {
        ServiceConfig::parse(&format!(
            r#"{{"loadBalancingConfig": [{{"unknown": {{}}}}, {{"{OUTLIER_DETECTION}": {settings}}}]}}"#
        ))
    }

    #[test]
    fn outlier_detection_is_read_as_a50_names_it() {
        let config = parse(
            r#"{"interval": "2s", "baseEjectionTime": "0.5s", "maxEjectionTime": "60s", "maxEjectionPercent": 50,
            "successRateEjection": {"stdevFactor": 1000, "requestVolume": 3, "minimumHosts": 2},
            "failurePercentageEjection": {"threshold": 40, "enforcementPercentage": 7},
            "consecutiveFailureEjection": {}, "later": 1, "childPolicy": [{"other": {}}, {"round_robin": {}}]}"#,
        )
        .unwrap();
        assert_eq!(config.balance, Some(Policy::RoundRobin));
        let detection = OutlierDetection {
            interval_ns: 2_000_000_000,
            base_ejection_time_ns: 500_000_000,
            max_ejection_time_ns: 60_000_000_000,
            max_ejection_percent: 50,
            success_rate_ejection: Some(SuccessRateEjection {
                stdev_factor: 1000,
                request_volume: 3,
                minimum_hosts: 2,
                ..SuccessRateEjection::default()
            }),
            failure_percentage_ejection: Some(FailurePercentageEjection {
                threshold: 40,
                enforcement_percentage: 7,
                ..FailurePercentageEjection::default()
            }),
            consecutive_failure_ejection: Some(ConsecutiveFailureEjection::default()),
        };
        assert_eq!(config.outlier_detection, Some(detection));
        let config = parse(r#"{"childPolicy": [{"pick_first": {}}]}"#).unwrap();
        assert_eq!(config.balance, Some(Policy::PickFirst));
        assert_eq!(config.outlier_detection, Some(OutlierDetection::default()));
    }

    #[test]
    fn what_is_wrong_with_it_is_named() {
        let round_robin = r#""childPolicy": [{"round_robin": {}}]"#;
        for (settings, hint) in [
            (r#""childPolicy": []"#, "childPolicy"),
            (r#""childPolicy": [{"outlier_detection_experimental": {}}]"#, "childPolicy"),
            (r#""interval": "1m""#, "interval"),
            (r#""baseEjectionTime": "-1s""#, "baseEjectionTime"),
            (r#""maxEjectionTime": "99999999999s""#, "maxEjectionTime"),
            (r#""maxEjectionPercent": 101"#, "maxEjectionPercent"),
            (r#""maxEjectionPercent": -1"#, "can't be read"),
            (r#""successRateEjection": {"enforcementPercentage": 101}"#, "successRateEjection.enforcement"),
            (r#""failurePercentageEjection": {"threshold": 101}"#, "failurePercentageEjection.threshold"),
            (
                r#""failurePercentageEjection": {"enforcementPercentage": 101}"#,
                "failurePercentageEjection.enf",
            ),
            (r#""consecutiveFailureEjection": {"threshold": 0}"#, "consecutiveFailureEjection.threshold"),
            (
                r#""consecutiveFailureEjection": {"enforcementPercentage": 101}"#,
                "consecutiveFailureEjection.enf",
            ),
        ] {
            let settings = match settings.contains("childPolicy") {
                true => format!("{{{settings}}}"),
                false => format!("{{{settings}, {round_robin}}}"),
            };
            let error = parse(&settings).unwrap_err().to_string();
            assert!(error.contains(hint), "{settings}: {error}");
        }
    }
}
