//! What policies do to headers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::access::AccessPolicy;
use super::checks::Complaints;
use crate::policy::{editable, settable};

/// What is done to headers of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HeaderEdits {
    /// Headers of requests, before a backend gets them.
    pub request: RequestEdits,
    /// Headers of answers, before the client gets them.
    pub answer: AnswerEdits,
}

/// What is done to headers of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RequestEdits {
    /// Headers that are removed.
    pub remove: BTreeSet<String>,
    /// Headers that are set, in place of what the client has sent.
    pub set: BTreeMap<String, String>,
    /// Headers that are set to a claim of the token, in place of what the client has sent.
    pub claims: BTreeMap<String, String>,
}

/// What is done to headers of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AnswerEdits {
    /// Headers, and trailers, that are removed.
    pub remove: BTreeSet<String>,
    /// Headers that are set, in place of what the backend has sent.
    pub set: BTreeMap<String, String>,
}

pub(super) fn check(policy: &AccessPolicy, path: &[&str], complaints: &mut Complaints) {
    let HeaderEdits { request, answer } = &policy.headers;
    for (side, remove, set) in
        [("request", &request.remove, &request.set), ("answer", &answer.remove, &answer.set)]
    {
        for problem in remove.iter().filter_map(|name| editable(name).err()) {
            complaints.add(&[path, &[side, "remove"]].concat(), problem);
        }
        for (name, value) in set {
            let value = http::HeaderValue::from_str(value);
            let checked = settable(name).map(drop).and_then(|()| {
                value.map(drop).map_err(|_| "is no value of a header: write visible ASCII".to_owned())
            });
            if let Err(problem) = checked {
                complaints.add(&[path, &[side, "set", name]].concat(), problem);
            }
        }
    }
    for name in request.claims.keys() {
        let at = [path, &["request", "claims", name]].concat();
        if let Err(problem) = settable(name) {
            complaints.add(&at, problem);
        } else if policy.jwt.is_empty() {
            complaints.add(&at, "needs tokens that are checked: name their issuer in the policy's jwt");
        }
    }
}
