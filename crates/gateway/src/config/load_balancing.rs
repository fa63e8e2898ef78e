//! How a group's requests are spread among its backend connections.

use serde::{Deserialize, Serialize};
use tollfree_control::Policy;

use super::Config;
use crate::load_balancing::FUNCTIONS_MAX;

/// How requests are spread among the backend connections of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LoadBalancing {
    /// By what a backend connection is chosen.
    #[cfg_attr(test, schemars(with = "super::schema::PolicyName"))]
    pub policy: Policy,
    /// Functions (methods) that are remembered for each backend connection, for [`Policy::Affinity`].
    pub functions: u32,
    /// By how many requests a backend connection may be above one and a half times the mean of its group and still be chosen for
    /// [`Policy::Affinity`].
    pub imbalance: u32,
    /// Requests that a backend connection may have outstanding; further ones wait in the gateway. 0: no bound.
    pub depth: u32,
    /// Requests of a group that may wait in the gateway.
    pub waiting: u32,
    /// How long a backend connection may leave calls lying, in milliseconds, before it counts as hanging and gets no more. 0: it never does.
    pub hang_ms: u32,
}

impl Default for LoadBalancing {
    fn default() -> LoadBalancing {
        LoadBalancing {
            policy: Policy::default(),
            functions: 4,
            imbalance: 4,
            depth: 0,
            waiting: 1024,
            hang_ms: 250,
        }
    }
}

/// The same for one group: what is not said is as for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GroupLoadBalancing {
    /// See [`LoadBalancing::policy`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<super::schema::PolicyName>"))]
    pub policy: Option<Policy>,
    /// See [`LoadBalancing::functions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// See [`LoadBalancing::imbalance`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<u32>,
    /// See [`LoadBalancing::depth`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// See [`LoadBalancing::waiting`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// See [`LoadBalancing::hang_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_ms: Option<u32>,
}

impl Config {
    /// How a group's requests are spread.
    pub fn load_balancing_of(&self, group: &str) -> LoadBalancing {
        let all = self.load_balancing;
        let own =
            self.groups.get(group).map_or_else(GroupLoadBalancing::default, |group| group.load_balancing);
        LoadBalancing {
            policy: own.policy.unwrap_or(all.policy),
            functions: own.functions.unwrap_or(all.functions),
            imbalance: own.imbalance.unwrap_or(all.imbalance),
            depth: own.depth.unwrap_or(all.depth),
            waiting: own.waiting.unwrap_or(all.waiting),
            hang_ms: own.hang_ms.unwrap_or(all.hang_ms),
        }
    }
}

/// The key that is wrong, and why.
pub(super) fn check(load_balancing: &LoadBalancing) -> Result<(), (&'static str, String)> {
    let bounds = [
        ("functions", load_balancing.functions, 1, FUNCTIONS_MAX as u32),
        ("imbalance", load_balancing.imbalance, 0, 1_000_000),
        ("depth", load_balancing.depth, 0, 1_000_000),
        ("waiting", load_balancing.waiting, 0, 1_000_000),
        ("hang_ms", load_balancing.hang_ms, 0, 600_000),
    ];
    for (key, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            return Err((key, format!("{value} is out of bounds: write {least} to {most}")));
        }
    }
    Ok(())
}
