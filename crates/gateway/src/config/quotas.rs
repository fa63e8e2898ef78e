//! Quotas of policies: how many calls there may be.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Config;
use super::access::methods;
use super::checks::Complaints;
use crate::policy::IdentityPattern;

/// How many calls there may be in a time, and at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CallQuota {
    /// By what calls are counted apart. Without any, they are counted together.
    pub by: BTreeSet<QuotaShare>,
    /// The callers that it is for, as in rules. Without any, all.
    pub identities: Vec<String>,
    /// Services and methods that it is for. Without any, all.
    pub methods: BTreeSet<String>,
    /// Groups that it is for. Without any, all.
    pub groups: BTreeSet<String>,
    /// Calls that may begin in each `every_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// The time for `calls`.
    pub every_ms: u64,
    /// Calls that may begin at once after a rest. Without it, as many as `calls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Calls that may be under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
}

/// By what a quota counts calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum QuotaShare {
    /// The caller's name: the subject of its token, else a name of its certificate, else its address.
    Identity,
    /// The client's address; of IPv6, its /64.
    Address,
    /// The method.
    Method,
    /// The group that gets the call.
    Group,
}

impl Default for CallQuota {
    fn default() -> CallQuota {
        CallQuota {
            by: BTreeSet::new(),
            identities: Vec::new(),
            methods: BTreeSet::new(),
            groups: BTreeSet::new(),
            calls: None,
            every_ms: 1000,
            burst: None,
            concurrent: None,
        }
    }
}

impl CallQuota {
    /// Calls that may begin in a second, in the long run.
    pub(crate) fn per_s(&self) -> f64 {
        f64::from(self.calls.unwrap_or_default()) * 1000.0 / self.every_ms.max(1) as f64
    }

    /// Calls that may begin at once.
    pub(crate) fn burst(&self) -> f64 {
        f64::from(self.burst.or(self.calls).unwrap_or_default())
    }
}

pub(super) fn check(quota: &CallQuota, config: &Config, path: &[&str], complaints: &mut Complaints) {
    let at = |key| [path, &[key]].concat();
    for identity in &quota.identities {
        if let Err(problem) = IdentityPattern::parse(identity) {
            complaints.add(&at("identities"), problem);
        }
    }
    methods(&quota.methods, &at("methods"), complaints);
    for group in quota.groups.iter().filter(|group| !config.groups.contains_key(*group)) {
        complaints.add(&at("groups"), format!("there is no group \"{group}\": name it under [groups]"));
    }
    if quota.calls.is_none() && quota.concurrent.is_none() {
        complaints.add(path, "limits nothing: write calls, concurrent or both");
    }
    for (key, value) in [("calls", quota.calls), ("burst", quota.burst), ("concurrent", quota.concurrent)] {
        if value == Some(0) {
            complaints.add(&at(key), "0 is too little: write at least 1, or leave the key out");
        }
    }
    if quota.burst.is_some() && quota.calls.is_none() {
        complaints.add(&at("burst"), "is for a quota with calls: write calls, too");
    }
    if !(1..=86_400_000).contains(&quota.every_ms) {
        complaints.add(&at("every_ms"), format!("{} is out of bounds: write 1 to 86400000", quota.every_ms));
    }
}
