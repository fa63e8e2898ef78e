//! Rules that route calls of the world by more than their method.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Config;
use super::access::{header_patterns, methods};
use super::checks::Complaints;

/// A rule of routes. It holds for calls of the world to which everything applies that it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RouteRule {
    /// Services and methods, as `acme.v1.Orders` and `acme.v1.Orders/Get`.
    pub methods: BTreeSet<String>,
    /// Headers that the request has, each with a pattern for its value; `*` stands for any text.
    pub headers: BTreeMap<String, String>,
    /// Groups that get the calls, each with its weight. Without any, `routes` decide.
    pub groups: BTreeMap<String, u32>,
    /// A group that gets a copy of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorConfig>,
}

/// A group that gets copies of calls, whose answers nobody sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MirrorConfig {
    /// The group.
    pub group: String,
    /// How many of a hundred calls are copied.
    #[serde(default = "percent")]
    pub percent: u32,
    /// Copies that may be under way at once; further calls are not copied.
    #[serde(default = "concurrent")]
    pub concurrent: u32,
}

fn percent() -> u32 {
    100
}

fn concurrent() -> u32 {
    100
}

pub(super) fn check(config: &Config, complaints: &mut Complaints) {
    for (nth, rule) in config.route_rules.iter().enumerate() {
        let nth = nth.to_string();
        let at = |key| ["route_rules", &nth, key];
        methods(&rule.methods, &at("methods"), complaints);
        header_patterns(&rule.headers, &at("headers"), complaints);
        let unknown = |group: &String| format!("there is no group \"{group}\": name it under [groups]");
        for group in rule.groups.keys().filter(|group| !config.groups.contains_key(*group)) {
            complaints.add(&at("groups"), unknown(group));
        }
        let sum: u64 = rule.groups.values().map(|weight| u64::from(*weight)).sum();
        if !rule.groups.is_empty() && !(1..=1_000_000).contains(&sum) {
            complaints.add(&at("groups"), format!("the weights are {sum} together: write 1 to 1000000"));
        }
        if rule.groups.is_empty() && rule.mirror.is_none() {
            complaints.add(&["route_rules", &nth], "routes nothing: write groups, mirror or both");
        }
        let Some(mirror) = &rule.mirror else { continue };
        let at = |key| ["route_rules", &nth, "mirror", key];
        if !config.groups.contains_key(&mirror.group) {
            complaints.add(&at("group"), unknown(&mirror.group));
        }
        if !(1..=100).contains(&mirror.percent) {
            complaints.add(&at("percent"), format!("{} is no share: write 1 to 100", mirror.percent));
        }
        if !(1..=10_000).contains(&mirror.concurrent) {
            complaints
                .add(&at("concurrent"), format!("{} is out of bounds: write 1 to 10000", mirror.concurrent));
        }
    }
}
