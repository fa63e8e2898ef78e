//! A call that its listener's policy has let in.

use std::sync::Arc;

use http::HeaderMap;

use super::access::ListenerPolicy;
use super::authorizer::AuthorizedEdits;
use super::quota::QuotaHold;
use super::token::Token;
use crate::refusal::Refused;

/// What is known of a call by its policy, until it ends.
#[derive(Default)]
pub(crate) struct Admission {
    policy: Option<Arc<ListenerPolicy>>,
    token: Option<Arc<Token>>,
    identity: String,
    /// What it has of quotas.
    holds: Vec<QuotaHold>,
    authorized: Option<AuthorizedEdits>,
}

impl Admission {
    pub(super) fn new(
        policy: Arc<ListenerPolicy>,
        token: Option<Arc<Token>>,
        identity: String,
        holds: Vec<QuotaHold>,
    ) -> Admission {
        Admission { policy: Some(policy), token, identity, holds, authorized: None }
    }

    /// Of a call that a policy refuses, or is about to look at: its answer has the policy's headers.
    pub(crate) fn of_policy(policy: &Arc<ListenerPolicy>) -> Admission {
        Admission { policy: Some(policy.clone()), ..Admission::default() }
    }

    /// With what an authorization service edits.
    pub(super) fn authorized(self, authorized: Option<AuthorizedEdits>) -> Admission {
        Admission { authorized, ..self }
    }

    /// The name that its caller goes by; empty without one.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Holds a call that has a place to the groups of its policy: it may have waited until somebody came. The group, where it may have
    /// no other from here on.
    ///
    /// # Errors
    /// The group is not served by its listener.
    pub(crate) fn bind(&self, path: &str, group: &str) -> Result<Option<String>, Refused> {
        let Some(policy) = self.policy.as_ref().filter(|policy| policy.has_groups()) else { return Ok(None) };
        policy.check_served(path, Some(group)).map(|()| Some(group.to_owned()))
    }

    /// Puts a request's headers in order for a backend.
    pub(crate) fn edit_request(&self, headers: &mut HeaderMap) {
        if let Some(policy) = &self.policy {
            policy.edits().edit_request(headers, self.token.as_ref());
        }
        if let Some(authorized) = &self.authorized {
            authorized.edit_request(headers);
        }
    }

    /// Puts an answer's headers in order for the client.
    pub(crate) fn edit_answer(&self, headers: &mut HeaderMap) {
        if let Some(policy) = &self.policy {
            policy.edits().edit_answer(headers);
        }
        if let Some(authorized) = &self.authorized {
            authorized.edit_answer(headers);
        }
    }

    /// Puts an answer's trailers in order for the client.
    pub(crate) fn edit_trailers(&self, trailers: &mut HeaderMap) {
        if let Some(policy) = &self.policy {
            policy.edits().edit_trailers(trailers);
        }
    }

    /// The call has ended.
    pub(crate) fn end(&mut self) {
        self.holds.clear();
    }
}
