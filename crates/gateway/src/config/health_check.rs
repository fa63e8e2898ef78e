//! How backends are asked for their health.

use serde::{Deserialize, Serialize};

use super::Config;

/// The longest that a check, or the pause between two, may take: an hour.
const MS_MAX: u64 = 3_600_000;
/// The most outcomes in a row that a change may take.
const COUNT_MAX: u32 = 1000;

/// How backends are asked for their health, by `grpc.health.v1.Health/Check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HealthCheck {
    /// From the end of one check to the next, in milliseconds: 10 to 3600000.
    pub interval_ms: u64,
    /// A check that takes longer has failed: 1 to 3600000.
    pub timeout_ms: u64,
    /// Checks that fail in a row before a backend gets no new calls: 1 to 1000.
    pub unhealthy_after: u32,
    /// Checks that succeed in a row before it gets calls again: 1 to 1000.
    pub healthy_after: u32,
    /// The service that is asked for. Empty: the backend as a whole.
    pub service: String,
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            interval_ms: 1000,
            timeout_ms: 1000,
            unhealthy_after: 3,
            healthy_after: 2,
            service: String::new(),
        }
    }
}

/// What makes no sense: the key and why.
pub(super) fn check(check: &HealthCheck) -> Result<(), (&'static str, String)> {
    let within = |key, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err((key, format!("{value} is not between {least} and {most}"))),
    };
    within("interval_ms", check.interval_ms, 10, MS_MAX)?;
    within("timeout_ms", check.timeout_ms, 1, MS_MAX)?;
    within("unhealthy_after", check.unhealthy_after.into(), 1, COUNT_MAX.into())?;
    within("healthy_after", check.healthy_after.into(), 1, COUNT_MAX.into())
}

impl Config {
    /// How a group's backends are asked for their health, if they are.
    pub(crate) fn health_check_of(&self, group: &str) -> Option<&HealthCheck> {
        let own = self.groups.get(group).and_then(|group| group.health_check.as_ref());
        own.or(self.backends.health_check.as_ref())
    }
}
