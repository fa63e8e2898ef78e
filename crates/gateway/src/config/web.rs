//! Which pages may call at a listener.

use serde::{Deserialize, Serialize};

/// Browsers at a listener: gRPC-Web, over HTTP/2 and HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WebConfig {
    /// The origins of pages that may call, such as `https://app.acme.example`, or `*` alone for all.
    pub origins: Vec<String>,
    /// Whether pages may send cookies and certificates. Not for all origins.
    pub credentials: bool,
    /// How long a browser need not ask again whether a page may call, in milliseconds.
    pub max_age_ms: u32,
}

impl Default for WebConfig {
    fn default() -> WebConfig {
        WebConfig { origins: Vec::new(), credentials: false, max_age_ms: 7_200_000 }
    }
}

impl WebConfig {
    /// Whether pages of an origin may call.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// What makes no sense: a key, and why.
    pub(super) fn check(&self) -> Option<(&'static str, String)> {
        let all = self.origins.iter().any(|origin| origin == "*");
        if all && self.origins.len() > 1 {
            return Some(("origins", "\"*\" is for all origins: write it alone, or leave it out".into()));
        }
        if all && self.credentials {
            let problem = "cookies of all origins would make any page act for its visitor: name the origins";
            return Some(("credentials", problem.into()));
        }
        let wrong = self.origins.iter().find(|origin| *origin != "*" && !is_origin(origin))?;
        Some(("origins", format!("\"{wrong}\" is no origin: write https://host or https://host:port")))
    }
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    })
}
