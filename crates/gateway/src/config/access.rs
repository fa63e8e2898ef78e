//! Who may call what by a listener: policies, and the issuers of tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Config;
use super::checks::Complaints;
use super::edits::{self, HeaderEdits};
use super::quotas::{self, CallQuota};
use crate::policy::{AddressRange, IdentityPattern, KeySource, TextPattern};
use crate::target::Name;

/// What a listener's clients may do. Listeners name it by `listeners.NAME.policy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AccessPolicy {
    /// Groups whose calls are served. Without any, those of all groups.
    pub groups: BTreeSet<String>,
    /// Services (`acme.v1.Orders`) and methods (`acme.v1.Orders/Get`) that are served. Without any, all.
    pub methods: BTreeSet<String>,
    /// Issuers under `[jwt]` whose tokens (`authorization: Bearer`) are checked. Without any, tokens pass unread.
    pub jwt: BTreeSet<String>,
    /// Rules, in order: the first that matches a call decides.
    pub rules: Vec<AccessRule>,
    /// What becomes of calls that no rule matches. Without it, `deny` if there are rules, else `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<AccessAction>,
    /// How many calls callers make. A call must be within all quotas that are for it.
    pub quotas: Vec<CallQuota>,
    /// What is done to headers of calls.
    pub headers: HeaderEdits,
    /// A service that decides, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ext_authz: Option<ExtAuthz>,
}

/// A service that decides about calls by Envoy's protocol, `envoy.service.auth.v3.Authorization`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExtAuthz {
    /// Where it is: `http://host:port` or `https://host:port`.
    pub target: String,
    /// Whose certificates are trusted at an `https://` target, a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// How long it may take.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// What becomes of calls when it does not answer.
    #[serde(default = "on_failure")]
    pub on_failure: AccessAction,
}

fn timeout_ms() -> u64 {
    200
}

fn on_failure() -> AccessAction {
    AccessAction::Deny
}

/// A rule of a policy. It matches a call to which everything applies that it says; of a list, one is enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessRule {
    /// What becomes of the call.
    pub action: AccessAction,
    /// Identities of the caller: `spiffe://…` or another URI and `dns:NAME` of its certificate's alternative names, `subject:CN=…`, `jwt:SUBJECT` of its token; `*` within one stands for any
    /// text. `any` is each caller with an identity, `none` each without.
    #[serde(default)]
    pub identities: Vec<String>,
    /// Services and methods, as `acme.v1.Orders` and `acme.v1.Orders/Get`.
    #[serde(default)]
    pub methods: BTreeSet<String>,
    /// Headers that the request has, each with a pattern for its value; `*` stands for any text.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Claims that the token has, each with a pattern for its value or one of its values.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
    /// Addresses of clients: `192.0.2.0/24`, `2001:db8::/32`, or one address.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AccessAction {
    /// It is served.
    Allow,
    /// It is refused.
    Deny,
}

/// Who signs tokens, and what their tokens must say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct JwtIssuer {
    /// The `iss` of its tokens.
    pub issuer: String,
    /// What `aud` of a token must be, or have one of.
    pub audiences: BTreeSet<String>,
    /// Its public keys, a JWK set: a file, `https://host/path` or `http://host/path`.
    pub jwks: String,
    /// Whose certificates are trusted at an `https://` address, a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// How far the issuer's clock may be from this host's.
    #[serde(default = "leeway_ms")]
    pub leeway_ms: u64,
    /// How often the keys are read again. A token with an unknown key has them read earlier, every 10 s at most.
    #[serde(default = "refresh_ms")]
    pub refresh_ms: u64,
}

fn leeway_ms() -> u64 {
    30_000
}

fn refresh_ms() -> u64 {
    300_000
}

pub(super) fn check(config: &Config, complaints: &mut Complaints) {
    for (name, listener) in &config.listeners {
        if let Some(policy) = listener.policy.as_ref().filter(|policy| !config.policies.contains_key(*policy))
        {
            let problem = format!("there is no policy \"{policy}\": name it under [policies]");
            complaints.add(&["listeners", name, "policy"], problem);
        }
    }
    for (name, listener) in &config.listeners {
        for (key, ranges) in
            [("proxy_protocol", &listener.proxy_protocol), ("forwarded_for", &listener.forwarded_for)]
        {
            for problem in ranges.iter().filter_map(|text| AddressRange::parse(text).err()) {
                complaints.add(&["listeners", name, key], problem);
            }
            if !ranges.is_empty() && listener.address.starts_with("unix:") {
                let problem = "is for addresses of a network, and the listener has a path";
                complaints.add(&["listeners", name, key], problem);
            }
        }
    }
    for (name, policy) in &config.policies {
        let at = |key| ["policies", name, key];
        for group in policy.groups.iter().filter(|group| !config.groups.contains_key(*group)) {
            complaints.add(&at("groups"), format!("there is no group \"{group}\": name it under [groups]"));
        }
        for issuer in policy.jwt.iter().filter(|issuer| !config.jwt.contains_key(*issuer)) {
            complaints.add(&at("jwt"), format!("there is no issuer \"{issuer}\": name it under [jwt]"));
        }
        methods(&policy.methods, &at("methods"), complaints);
        for (nth, rule) in policy.rules.iter().enumerate() {
            check_rule(rule, policy, &["policies", name, "rules", &nth.to_string()], complaints);
        }
    }
    for (name, policy) in &config.policies {
        for (nth, quota) in policy.quotas.iter().enumerate() {
            quotas::check(quota, config, &["policies", name, "quotas", &nth.to_string()], complaints);
        }
    }
    for (name, policy) in &config.policies {
        check_authorizer(policy.ext_authz.as_ref(), &["policies", name, "ext_authz"], complaints);
        edits::check(policy, &["policies", name, "headers"], complaints);
    }
    for (name, issuer) in &config.jwt {
        check_issuer(name, issuer, complaints);
    }
}

pub(super) fn methods(methods: &BTreeSet<String>, path: &[&str], complaints: &mut Complaints) {
    for method in methods.iter().filter(|method| !super::checks::is_route(method)) {
        complaints.add(
            path,
            format!(
                "\"{method}\" is neither a service, as acme.v1.Orders, nor a method, as acme.v1.Orders/Get"
            ),
        );
    }
}

fn patterns(patterns: &BTreeMap<String, String>, path: &[&str], complaints: &mut Complaints) {
    for (name, pattern) in patterns {
        if let Err(problem) = TextPattern::parse(pattern) {
            complaints.add(path, format!("{name}: {problem}"));
        }
    }
}

pub(super) fn header_patterns(
    headers: &BTreeMap<String, String>,
    path: &[&str],
    complaints: &mut Complaints,
) {
    patterns(headers, path, complaints);
    for name in headers.keys().filter(|name| http::HeaderName::from_lowercase(name.as_bytes()).is_err()) {
        complaints.add(path, format!("\"{name}\" is no name of a header: write it in small letters"));
    }
}

fn check_rule(rule: &AccessRule, policy: &AccessPolicy, path: &[&str], complaints: &mut Complaints) {
    let at = |key| [path, &[key]].concat();
    for identity in &rule.identities {
        if let Err(problem) = IdentityPattern::parse(identity) {
            complaints.add(&at("identities"), problem);
        }
    }
    methods(&rule.methods, &at("methods"), complaints);
    header_patterns(&rule.headers, &at("headers"), complaints);
    patterns(&rule.claims, &at("claims"), complaints);
    if !rule.claims.is_empty() && policy.jwt.is_empty() {
        complaints.add(&at("claims"), "needs tokens that are checked: name their issuer in the policy's jwt");
    }
    for address in &rule.addresses {
        if let Err(problem) = AddressRange::parse(address) {
            complaints.add(&at("addresses"), problem);
        }
    }
}

fn check_authorizer(authorizer: Option<&ExtAuthz>, path: &[&str], complaints: &mut Complaints) {
    let Some(ExtAuthz { target, ca, timeout_ms, .. }) = authorizer else { return };
    let at = |key| [path, &[key]].concat();
    match Name::of(target) {
        None => complaints.add(
            &at("target"),
            format!("\"{target}\" is no target: write https://host:port or http://host:port"),
        ),
        Some(name) if name.is_tls && ca.is_none() => {
            complaints.add(&at("ca"), "is missing: name whose certificates to trust at target, a PEM file");
        }
        Some(name) if !name.is_tls && ca.is_some() => {
            complaints.add(&at("ca"), "is for an https:// target: leave it out");
        }
        Some(_) => {}
    }
    if !(1..=60_000).contains(timeout_ms) {
        complaints.add(&at("timeout_ms"), format!("{timeout_ms} is out of bounds: write 1 to 60000"));
    }
}

fn check_issuer(name: &str, issuer: &JwtIssuer, complaints: &mut Complaints) {
    let at = |key| ["jwt", name, key];
    if issuer.issuer.is_empty() {
        complaints.add(&at("issuer"), "is empty: write what the tokens have as iss");
    }
    if issuer.audiences.is_empty() {
        complaints.add(&at("audiences"), "is empty: write what the tokens have as aud, at least one");
    }
    match KeySource::parse(&issuer.jwks) {
        Err(problem) => complaints.add(&at("jwks"), problem),
        Ok(source) if source.is_tls() && issuer.ca.is_none() => {
            complaints.add(&at("ca"), "is missing: name whose certificates to trust at jwks, a PEM file");
        }
        Ok(source) if !source.is_tls() && issuer.ca.is_some() => {
            complaints.add(&at("ca"), "is for jwks at an https:// address: leave it out");
        }
        Ok(_) => {}
    }
    if issuer.leeway_ms > 600_000 {
        complaints.add(&at("leeway_ms"), format!("{} is too much: write 0 to 600000", issuer.leeway_ms));
    }
    if !(1000..=86_400_000).contains(&issuer.refresh_ms) {
        complaints.add(
            &at("refresh_ms"),
            format!("{} is out of bounds: write 1000 to 86400000", issuer.refresh_ms),
        );
    }
}
