//! Headers that a policy removes, sets, and copies of claims.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::token::Token;
use crate::client::percent_encoded;
use crate::config::{AnswerEdits, HeaderEdits, RequestEdits};

/// Names that HTTP/2, gRPC or the gateway give a meaning.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "traceparent",
    "tracestate",
];

/// A header that may be edited.
///
/// # Errors
/// It may not, and why.
pub(crate) fn editable(name: &str) -> Result<HeaderName, String> {
    let is_reserved =
        RESERVED.contains(&name) || ["grpc-", "tollfree-"].iter().any(|prefix| name.starts_with(prefix));
    if is_reserved {
        return Err(format!("\"{name}\" has a meaning for HTTP/2, gRPC or the gateway: leave it alone"));
    }
    HeaderName::from_lowercase(name.as_bytes())
        .map_err(|_| format!("\"{name}\" is no name of a header: write it in small letters"))
}

/// A header that may be set to a text.
///
/// # Errors
/// It may not, and why.
pub(crate) fn settable(name: &str) -> Result<HeaderName, String> {
    match name.ends_with("-bin") {
        true => Err(format!("\"{name}\" would be read as base64, since it ends in -bin: use another name")),
        false => editable(name),
    }
}

/// Removals and settings.
#[derive(Default)]
struct Edits {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
}

impl Edits {
    fn new<'s>(
        remove: impl IntoIterator<Item = &'s String>,
        set: impl IntoIterator<Item = (&'s String, &'s String)>,
    ) -> Result<Edits, String> {
        let value = |(name, value): (&String, &String)| {
            let text = HeaderValue::from_str(value).map_err(|_| format!("{name}: no value of a header"))?;
            Ok((settable(name)?, text))
        };
        Ok(Edits {
            remove: remove.into_iter().map(|name| editable(name)).collect::<Result<_, _>>()?,
            set: set.into_iter().map(value).collect::<Result<_, String>>()?,
        })
    }

    fn make(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// What a policy does to headers.
#[derive(Default)]
pub(super) struct ReadyEdits {
    request: Edits,
    claims: Vec<(HeaderName, String)>,
    answer: Edits,
}

impl ReadyEdits {
    /// # Errors
    /// A header can't be edited so.
    pub(super) fn new(config: &HeaderEdits) -> Result<ReadyEdits, String> {
        let HeaderEdits { request, answer } = config;
        let RequestEdits { remove, set, claims } = request;
        let AnswerEdits { remove: answer_remove, set: answer_set } = answer;
        Ok(ReadyEdits {
            request: Edits::new(remove, set)?,
            claims: claims
                .iter()
                .map(|(name, claim)| Ok((settable(name)?, claim.clone())))
                .collect::<Result<_, String>>()?,
            answer: Edits::new(answer_remove, answer_set)?,
        })
    }

    /// What clients send by the name of a claim's header never passes.
    pub(super) fn edit_request(&self, headers: &mut HeaderMap, token: Option<&Arc<Token>>) {
        self.request.make(headers);
        for (name, claim) in &self.claims {
            headers.remove(name);
            for value in token.map_or_else(Vec::new, |token| token.claim(claim)) {
                if let Ok(value) = HeaderValue::from_str(&percent_encoded(&value)) {
                    headers.append(name.clone(), value);
                }
            }
        }
    }

    pub(super) fn edit_answer(&self, headers: &mut HeaderMap) {
        self.answer.make(headers);
    }

    /// Trailers lose what answers may not have, and get nothing.
    pub(super) fn edit_trailers(&self, trailers: &mut HeaderMap) {
        for name in &self.answer.remove {
            trailers.remove(name);
        }
    }
}
