//! What a listener's clients may do: a policy of the config, made ready.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, header};
use tonic::Status;

use super::admission::Admission;
use super::authorizer::{AskedCall, Authorizer};
use super::caller::CallerIdentity;
use super::edits::ReadyEdits;
use super::issuer::{Issuer, Unaccepted};
use super::pattern::{AddressRange, HeaderPatterns, IdentityPattern, TextPattern, has_method};
use super::quota::{Quota, QuotaHold};
use super::token::{TOKEN_LEN_MAX, Token, claimed_issuer};
use crate::client::Client;
use crate::config::{AccessAction, AccessPolicy, AccessRule};
use crate::refusal::{Refusal, Refused};
use crate::routing::service_of;

/// A rule whose patterns were read.
struct ReadyRule {
    action: AccessAction,
    identities: Vec<IdentityPattern>,
    methods: std::collections::BTreeSet<String>,
    headers: HeaderPatterns,
    claims: Vec<(String, TextPattern)>,
    addresses: Vec<AddressRange>,
}

/// A policy.
pub(crate) struct ListenerPolicy {
    config: AccessPolicy,
    issuers: Vec<Arc<Issuer>>,
    rules: Vec<ReadyRule>,
    default: AccessAction,
    quotas: Vec<Arc<Quota>>,
    edits: ReadyEdits,
    authorizer: Option<Authorizer>,
}

impl ReadyRule {
    /// # Errors
    /// The key of the rule that is wrong, and why.
    fn new(rule: &AccessRule) -> Result<ReadyRule, String> {
        let patterns = |patterns: &std::collections::BTreeMap<String, String>| {
            patterns
                .iter()
                .map(|(name, pattern)| Ok((name.clone(), TextPattern::parse(pattern)?)))
                .collect::<Result<Vec<_>, String>>()
        };
        Ok(ReadyRule {
            action: rule.action,
            identities: rule
                .identities
                .iter()
                .map(|text| IdentityPattern::parse(text))
                .collect::<Result<_, _>>()?,
            methods: rule.methods.clone(),
            headers: HeaderPatterns::parse(&rule.headers)?,
            claims: patterns(&rule.claims)?,
            addresses: rule
                .addresses
                .iter()
                .map(|text| AddressRange::parse(text))
                .collect::<Result<_, _>>()?,
        })
    }

    fn matches(
        &self,
        caller: &CallerIdentity<'_>,
        path: &str,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> bool {
        let has_headers = match self.action {
            AccessAction::Allow => self.headers.match_all(headers),
            AccessAction::Deny => self.headers.match_some(headers),
        };
        let has_claim = |(name, pattern): &(String, TextPattern)| {
            caller.token().is_some_and(|token| token.has_claim(name, pattern))
        };
        (self.identities.is_empty() || self.identities.iter().any(|identity| identity.matches(caller)))
            && has_method(&self.methods, path)
            && has_headers
            && self.claims.iter().all(has_claim)
            && (self.addresses.is_empty()
                || address.is_some_and(|address| self.addresses.iter().any(|range| range.contains(address))))
    }
}

impl ListenerPolicy {
    /// `issuers` are those that it names.
    ///
    /// # Errors
    /// A pattern is of no use.
    pub(super) fn new(
        config: &AccessPolicy,
        issuers: Vec<Arc<Issuer>>,
        authorizer: Option<Authorizer>,
    ) -> Result<ListenerPolicy, String> {
        let rules: Vec<_> = config.rules.iter().map(ReadyRule::new).collect::<Result<_, _>>()?;
        let default = config.default.unwrap_or(match rules.is_empty() {
            true => AccessAction::Allow,
            false => AccessAction::Deny,
        });
        let quotas = config.quotas.iter().map(|quota| Quota::new(quota).map(Arc::new));
        let quotas = quotas.collect::<Result<_, _>>()?;
        let edits = ReadyEdits::new(&config.headers)?;
        Ok(ListenerPolicy { config: config.clone(), issuers, rules, default, quotas, edits, authorizer })
    }

    /// Whether it is what a config and issuers would make.
    pub(super) fn is_of(&self, config: &AccessPolicy, issuers: &[Arc<Issuer>]) -> bool {
        let same = self.issuers.iter().zip(issuers).all(|(own, other)| Arc::ptr_eq(own, other));
        self.config == *config && self.issuers.len() == issuers.len() && same
    }

    /// Whether only some groups are served.
    pub(super) fn has_groups(&self) -> bool {
        !self.config.groups.is_empty()
    }

    pub(super) fn edits(&self) -> &ReadyEdits {
        &self.edits
    }

    /// Holds a call of a group to the policy.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        client: &Client,
        path: &str,
        headers: &HeaderMap,
        group: Option<&str>,
    ) -> Result<Admission, Refused> {
        self.check_served(path, group)?;
        let caller = self.authenticate(client, headers).await?;
        self.authorize(&caller, path, headers)?;
        let holds = self.count(&caller, path, group)?;
        let authorized = match &self.authorizer {
            None => None,
            Some(authorizer) => {
                let asked = AskedCall { caller: &caller, path, headers, group };
                Some(Box::pin(authorizer.check(&asked)).await?)
            }
        };
        let identity = caller.name().unwrap_or_default();
        Ok(Admission::new(self.clone(), caller.token().cloned(), identity, holds).authorized(authorized))
    }

    /// Counts a call in all quotas that are for it.
    ///
    /// # Errors
    /// It is one too many.
    fn count(
        &self,
        caller: &CallerIdentity<'_>,
        path: &str,
        group: Option<&str>,
    ) -> Result<Vec<QuotaHold>, Refused> {
        let held = self.quotas.iter().map(|quota| quota.take(caller, path, group));
        held.filter_map(Result::transpose).collect()
    }

    /// # Errors
    /// There is no such method here.
    pub(super) fn check_served(&self, path: &str, group: Option<&str>) -> Result<(), Refused> {
        // Where nobody is there yet, it is looked at again when somebody is.
        let has_group = !self.has_groups() || group.is_none_or(|group| self.config.groups.contains(group));
        match has_group && has_method(&self.config.methods, path) {
            true => Ok(()),
            false => Err(Refused {
                why: Refusal::Unimplemented,
                status: Status::unimplemented(format!("there is no service {} here", service_of(path))),
            }),
        }
    }

    /// Finds out who calls.
    ///
    /// # Errors
    /// There is a token, and it is of no use.
    async fn authenticate<'c>(
        &self,
        client: &'c Client,
        headers: &HeaderMap,
    ) -> Result<CallerIdentity<'c>, Refused> {
        let token = match self.issuers.is_empty() {
            true => None,
            false => self.token(headers).await?,
        };
        Ok(CallerIdentity::new(client, token))
    }

    async fn token(&self, headers: &HeaderMap) -> Result<Option<Arc<Token>>, Refused> {
        let mut bearers =
            headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
        let Some(token) = bearers.next() else { return Ok(None) };
        if bearers.next().is_some() {
            return Err(unauthenticated("there are several tokens in authorization: send one"));
        }
        if token.len() > TOKEN_LEN_MAX {
            let problem = format!("the token has {} bytes, and {TOKEN_LEN_MAX} are looked at", token.len());
            return Err(unauthenticated(&problem));
        }
        let token = std::str::from_utf8(token).map_err(|_| unauthenticated("the token is no text"))?;
        let Some(name) = claimed_issuer(token) else {
            return Err(unauthenticated("the token can't be read, or has no issuer"));
        };
        let Some(issuer) = self.issuers.iter().find(|issuer| issuer.config().issuer == name) else {
            return Err(unauthenticated("the token is of an issuer that is not trusted here"));
        };
        // Boxed: it seldom waits, and is long.
        match Box::pin(issuer.check(token)).await {
            Ok(token) => Ok(Some(token)),
            Err(Unaccepted::Token(problem)) => {
                Err(unauthenticated(&format!("the token is not accepted: {problem}")))
            }
            Err(Unaccepted::NoKeys) => Err(Refused {
                why: Refusal::Unauthenticated,
                status: Status::unavailable(
                    "the keys to check tokens with are not known yet; try again later",
                ),
            }),
        }
    }

    /// # Errors
    /// The first rule that matches refuses the call, or no rule does and the default is to refuse.
    fn authorize(&self, caller: &CallerIdentity<'_>, path: &str, headers: &HeaderMap) -> Result<(), Refused> {
        let address = caller.client().ip();
        let rule = self.rules.iter().find(|rule| rule.matches(caller, path, headers, address));
        match rule.map_or(self.default, |rule| rule.action) {
            AccessAction::Allow => Ok(()),
            AccessAction::Deny if !caller.is_known() => Err(unauthenticated(match self.issuers.is_empty() {
                true => "this method needs a client certificate, and the call came without one",
                false => "this method needs a token (authorization: Bearer), and the call came without one",
            })),
            AccessAction::Deny => Err(Refused {
                why: Refusal::Denied,
                status: Status::permission_denied("the caller may not call this method here"),
            }),
        }
    }
}

/// The token of an `authorization`, if it is of that scheme.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn unauthenticated(problem: &str) -> Refused {
    Refused { why: Refusal::Unauthenticated, status: Status::unauthenticated(problem) }
}
