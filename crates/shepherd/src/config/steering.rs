//! How a group's requests are spread among its workers.

use serde::{Deserialize, Serialize};
use tollfree_control::Policy;

use super::Config;
use crate::steering::FUNCTIONS_MAX;

/// How requests are spread among the workers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Steering {
    /// By what a worker is chosen.
    pub policy: Policy,
    /// Functions (methods) that are remembered for each worker, for [`Policy::Affinity`].
    pub functions: u32,
    /// By how many requests a worker may be above one and a half times the mean of its group and still be chosen for
    /// [`Policy::Affinity`].
    pub imbalance: u32,
    /// Requests that a worker may have outstanding; further ones wait in the shepherd. 0: no bound.
    pub depth: u32,
    /// Requests of a group that may wait in the shepherd.
    pub waiting: u32,
}

impl Default for Steering {
    fn default() -> Steering {
        Steering { policy: Policy::default(), functions: 4, imbalance: 4, depth: 0, waiting: 1024 }
    }
}

/// The same for one group: what is not said is as for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GroupSteering {
    /// See [`Steering::policy`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// See [`Steering::functions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// See [`Steering::imbalance`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<u32>,
    /// See [`Steering::depth`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// See [`Steering::waiting`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
}

impl Config {
    /// How a group's requests are spread.
    pub fn steering_of(&self, group: &str) -> Steering {
        let all = self.steering;
        let own = self.groups.get(group).map_or_else(GroupSteering::default, |group| group.steering);
        Steering {
            policy: own.policy.unwrap_or(all.policy),
            functions: own.functions.unwrap_or(all.functions),
            imbalance: own.imbalance.unwrap_or(all.imbalance),
            depth: own.depth.unwrap_or(all.depth),
            waiting: own.waiting.unwrap_or(all.waiting),
        }
    }
}

/// The key that is wrong, and why.
pub(super) fn check(steering: &Steering) -> Result<(), (&'static str, String)> {
    let bounds = [
        ("functions", steering.functions, 1, FUNCTIONS_MAX as u32),
        ("imbalance", steering.imbalance, 0, 1_000_000),
        ("depth", steering.depth, 0, 1_000_000),
        ("waiting", steering.waiting, 0, 1_000_000),
    ];
    for (key, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            return Err((key, format!("{value} is out of bounds: write {least} to {most}")));
        }
    }
    Ok(())
}
