//! Policies of listeners: who calls, by certificate or token, and what they may do.
//!
//! A config's policies are made ready aside, and put in place with it. A call looks its listener's policy up once.

mod access;
mod caller;
mod issuer;
mod key_source;
mod pattern;
mod signatures;
mod token;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;

pub(crate) use access::ListenerPolicy;
pub(crate) use key_source::KeySource;
pub(crate) use pattern::{AddressRange, IdentityPattern, TextPattern};

use crate::config::Config;
use crate::metrics::Metrics;
use issuer::{Followed, Issuer};

/// A policy that can't be had: the key, and why.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PolicyError {
    pub(crate) key: String,
    pub(crate) problem: String,
}

/// What was read for policies of a config, to be put in place.
pub(crate) struct PreparedPolicies {
    by_listener: HashMap<String, Arc<ListenerPolicy>>,
    issuers: BTreeMap<String, Arc<Issuer>>,
}

/// The policies that hold, by listener.
struct HeldPolicies {
    by_listener: HashMap<String, Arc<ListenerPolicy>>,
    issuers: BTreeMap<String, Arc<Followed>>,
}

/// All policies of a gateway.
pub(crate) struct ListenerPolicies {
    held: ArcSwap<HeldPolicies>,
    metrics: Arc<Metrics>,
}

impl ListenerPolicies {
    pub(crate) fn new(metrics: Arc<Metrics>) -> ListenerPolicies {
        let held = HeldPolicies { by_listener: HashMap::new(), issuers: BTreeMap::new() };
        ListenerPolicies { held: ArcSwap::from_pointee(held), metrics }
    }

    /// Makes the policies of a config ready. What is the same as before keeps its keys. Blocks the thread.
    ///
    /// # Errors
    /// A file is of no use.
    pub(crate) fn prepare(&self, config: &Config) -> Result<PreparedPolicies, PolicyError> {
        let held = self.held.load();
        let known = |name: &String| held.issuers.get(name).map(|followed| followed.issuer().clone());
        prepare(config, known)
    }

    /// Has policies hold from here on. Must be called in a runtime.
    pub(crate) fn use_these(&self, prepared: PreparedPolicies) {
        let before = self.held.load();
        let follow = |(name, issuer): (String, Arc<Issuer>)| {
            let known = before.issuers.get(&name).filter(|known| Arc::ptr_eq(known.issuer(), &issuer));
            let followed =
                known.cloned().unwrap_or_else(|| Arc::new(Followed::new(issuer, self.metrics.clone())));
            (name, followed)
        };
        let issuers = prepared.issuers.into_iter().map(follow).collect();
        self.held.store(Arc::new(HeldPolicies { by_listener: prepared.by_listener, issuers }));
    }

    /// The policy of a listener, if it has one.
    pub(crate) fn of_listener(&self, listener: &str) -> Option<Arc<ListenerPolicy>> {
        self.held.load().by_listener.get(listener).cloned()
    }
}

/// Whether all that policies need can be had. Blocks the thread.
///
/// # Errors
/// A file is of no use.
pub(crate) fn check(config: &Config) -> Result<(), PolicyError> {
    prepare(config, |_| None).map(drop)
}

fn prepare(
    config: &Config,
    known: impl Fn(&String) -> Option<Arc<Issuer>>,
) -> Result<PreparedPolicies, PolicyError> {
    let mut issuers = BTreeMap::new();
    for (name, own) in &config.jwt {
        let same = known(name).filter(|known| known.config() == own);
        let issuer = match same {
            Some(known) => known,
            None => Arc::new(
                Issuer::prepare(name, own)
                    .map_err(|(key, problem)| PolicyError { key: format!("jwt.{name}.{key}"), problem })?,
            ),
        };
        issuers.insert(name.clone(), issuer);
    }
    let mut by_listener = HashMap::new();
    for (name, listener) in &config.listeners {
        let Some(policy) = config.policy_of(name) else { continue };
        let own = policy.jwt.iter().filter_map(|issuer| issuers.get(issuer).cloned()).collect();
        let ready = ListenerPolicy::new(policy, own).map_err(|problem| PolicyError {
            key: format!("policies.{}", listener.policy.as_deref().unwrap_or_default()),
            problem,
        })?;
        by_listener.insert(name.clone(), Arc::new(ready));
    }
    Ok(PreparedPolicies { by_listener, issuers })
}
