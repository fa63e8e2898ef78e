//! Policies of listeners: who calls, by certificate or token, and what they may do.
//!
//! A config's policies are made ready aside, and put in place with it. A call looks its listener's policy up once.

mod access;
mod admission;
mod authorizer;
mod authz_messages;
mod caller;
mod edits;
mod issuer;
mod key_source;
mod pattern;
mod quota;
mod route;
mod signatures;
mod token;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;

pub(crate) use access::ListenerPolicy;
pub(crate) use admission::Admission;
pub(crate) use edits::{editable, settable};
pub(crate) use key_source::KeySource;
pub(crate) use pattern::{AddressRange, IdentityPattern, TextPattern};
pub(crate) use route::{MirrorPlace, Route};

use http::HeaderMap;

use crate::client::Client;
use crate::config::{Config, Listener};
use crate::metrics::Metrics;
use crate::proxied::{TrustedSources, forwarded_for};
use crate::refusal::Refused;
use authorizer::Authorizer;
use issuer::{Followed, Issuer};
use route::RouteRules;

/// A policy that can't be had: the key, and why.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PolicyError {
    pub(crate) key: String,
    pub(crate) problem: String,
}

/// What was read for policies of a config, to be put in place.
pub(crate) struct PreparedPolicies {
    by_listener: HashMap<String, Arc<ListenerEdge>>,
    policies: BTreeMap<String, Arc<ListenerPolicy>>,
    issuers: BTreeMap<String, Arc<Issuer>>,
    route_rules: Arc<RouteRules>,
}

/// What holds for the clients of a listener.
pub(crate) struct ListenerEdge {
    policy: Option<Arc<ListenerPolicy>>,
    /// With any, connections come from them.
    balancers: Option<TrustedSources>,
    proxies: Option<TrustedSources>,
}

impl ListenerEdge {
    pub(crate) fn policy(&self) -> Option<&Arc<ListenerPolicy>> {
        self.policy.as_ref()
    }

    /// Who begins connections by saying where they come from.
    pub(crate) fn balancers(&self) -> Option<&TrustedSources> {
        self.balancers.as_ref()
    }

    /// Who is the client of a call that has come by a connection of `client`.
    ///
    /// # Errors
    /// A proxy says something that is no address.
    pub(crate) fn client_of(
        &self,
        client: &Arc<Client>,
        headers: &mut HeaderMap,
    ) -> Result<Arc<Client>, Refused> {
        let (Some(proxies), Some(ip)) = (&self.proxies, client.ip()) else { return Ok(client.clone()) };
        let found = forwarded_for(headers, proxies, ip)?;
        Ok(found.map_or_else(|| client.clone(), |address| Arc::new(client.forwarded(address))))
    }
}

/// The policies that hold, by listener.
struct HeldPolicies {
    by_listener: HashMap<String, Arc<ListenerEdge>>,
    /// By name. Listeners with the same have one between them.
    policies: BTreeMap<String, Arc<ListenerPolicy>>,
    issuers: BTreeMap<String, Arc<Followed>>,
    route_rules: Arc<RouteRules>,
}

impl HeldPolicies {
    fn none() -> HeldPolicies {
        HeldPolicies {
            by_listener: HashMap::new(),
            policies: BTreeMap::new(),
            issuers: BTreeMap::new(),
            route_rules: Arc::default(),
        }
    }
}

/// All policies of a gateway.
pub(crate) struct ListenerPolicies {
    held: ArcSwap<HeldPolicies>,
    metrics: Arc<Metrics>,
}

impl ListenerPolicies {
    pub(crate) fn new(metrics: Arc<Metrics>) -> ListenerPolicies {
        ListenerPolicies { held: ArcSwap::from_pointee(HeldPolicies::none()), metrics }
    }

    /// Makes the policies of a config ready. What is the same as before keeps its keys. Blocks the thread.
    ///
    /// # Errors
    /// A file is of no use.
    pub(crate) fn prepare(&self, config: &Config) -> Result<PreparedPolicies, PolicyError> {
        prepare(config, &self.held.load(), Some(&self.metrics))
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
        self.held.store(Arc::new(HeldPolicies {
            by_listener: prepared.by_listener,
            policies: prepared.policies,
            issuers,
            route_rules: prepared.route_rules,
        }));
    }

    /// Where a call of the world goes, as far as rules say.
    pub(crate) fn route(&self, path: &str, headers: &HeaderMap) -> Route {
        self.held.load().route_rules.route(path, headers)
    }

    /// What holds for a listener. None for calls that come by none.
    pub(crate) fn of_listener(&self, listener: &str) -> Option<Arc<ListenerEdge>> {
        self.held.load().by_listener.get(listener).cloned()
    }
}

/// Whether all that policies need can be had. Blocks the thread.
///
/// # Errors
/// A file is of no use.
pub(crate) fn check(config: &Config) -> Result<(), PolicyError> {
    prepare(config, &HeldPolicies::none(), None).map(drop)
}

/// What is the same as before stays as it is, with what it has counted.
fn prepare(
    config: &Config,
    before: &HeldPolicies,
    metrics: Option<&Arc<Metrics>>,
) -> Result<PreparedPolicies, PolicyError> {
    let mut issuers = BTreeMap::new();
    for (name, own) in &config.jwt {
        let known = before.issuers.get(name).map(|followed| followed.issuer().clone());
        let issuer = match known.filter(|known| known.config() == own) {
            Some(known) => known,
            None => Arc::new(
                Issuer::prepare(name, own)
                    .map_err(|(key, problem)| PolicyError { key: format!("jwt.{name}.{key}"), problem })?,
            ),
        };
        issuers.insert(name.clone(), issuer);
    }
    let mut policies = BTreeMap::new();
    for (name, policy) in &config.policies {
        let own: Vec<_> = policy.jwt.iter().filter_map(|issuer| issuers.get(issuer).cloned()).collect();
        let known = before.policies.get(name).filter(|known| known.is_of(policy, &own));
        let ready = match known {
            Some(known) => known.clone(),
            None => {
                let wrong = |(key, problem)| PolicyError { key: format!("policies.{name}{key}"), problem };
                let authorizer = policy.ext_authz.as_ref().map(Authorizer::prepare).transpose();
                let authorizer =
                    authorizer.map_err(|(key, problem)| wrong((format!(".ext_authz.{key}"), problem)))?;
                let authorizer = authorizer.map(|authorizer| authorizer.counted_by(metrics));
                let ready = ListenerPolicy::new(policy, own, authorizer);
                Arc::new(ready.map_err(|problem| wrong((String::new(), problem)))?)
            }
        };
        policies.insert(name.clone(), ready);
    }
    let of_listener = |(name, listener): (&String, &Listener)| {
        let sources = |key: &str, ranges: &[String]| {
            let parsed = TrustedSources::parse(ranges);
            parsed.map_err(|problem| PolicyError { key: format!("listeners.{name}.{key}"), problem })
        };
        let policy = listener.policy.as_ref().and_then(|policy| policies.get(policy).cloned());
        let edge = ListenerEdge {
            policy,
            balancers: sources("proxy_protocol", &listener.proxy_protocol)?,
            proxies: sources("forwarded_for", &listener.forwarded_for)?,
        };
        Ok((name.clone(), Arc::new(edge)))
    };
    let by_listener = config.listeners.iter().map(of_listener).collect::<Result<_, PolicyError>>()?;
    let route_rules = match before.route_rules.are_of(&config.route_rules) {
        true => before.route_rules.clone(),
        false => Arc::new(
            RouteRules::new(&config.route_rules)
                .map_err(|problem| PolicyError { key: "route_rules".into(), problem })?,
        ),
    };
    Ok(PreparedPolicies { by_listener, policies, issuers, route_rules })
}
