//! Tokens (JWT): what is checked of one, and the keys that it is checked by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::pattern::TextPattern;
use super::signatures;
use crate::config::JwtIssuer;

/// The longest token that is looked at, in bytes.
pub(crate) const TOKEN_LEN_MAX: usize = 16 << 10;
/// Keys of an issuer beyond these are left out.
const KEY_COUNT_MAX: usize = 64;
/// Tokens of an issuer that are remembered as checked, and the longest that is.
const REMEMBERED_COUNT_MAX: usize = 1024;
const REMEMBERED_LEN_MAX: usize = 4 << 10;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// What a token says whose signature is right.
#[derive(Debug)]
pub(crate) struct Token {
    subject: String,
    claims: Map<String, Value>,
}

/// Why a token is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It names a key that its issuer does not have, as far as is known.
    UnknownKey,
    /// What is wrong with it.
    Wrong(String),
}

fn wrong(problem: impl Into<String>) -> TokenError {
    TokenError::Wrong(problem.into())
}

impl Token {
    /// Its `sub`; empty without one.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// A claim as a text: of a list the elements, of anything but a text its JSON.
    pub(crate) fn claim(&self, name: &str) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self.claims.get(name) {
            None | Some(Value::Null) => Vec::new(),
            // By RFC 8693, the words of a scope are apart.
            Some(Value::String(words)) if name == "scope" => {
                words.split_ascii_whitespace().map(str::to_owned).collect()
            }
            Some(Value::Array(all)) => all.iter().map(text).collect(),
            Some(one) => vec![text(one)],
        }
    }

    pub(crate) fn has_claim(&self, name: &str, pattern: &TextPattern) -> bool {
        self.claim(name).iter().any(|value| pattern.matches(value))
    }

    /// # Errors
    /// It holds no more, or not yet.
    fn check_time(&self, leeway_ms: u64) -> Result<(), TokenError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let leeway = leeway_ms as f64 / 1000.0;
        let time = |name| match self.claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| wrong(format!("its {name} is no number"))),
        };
        let end = time("exp")?.ok_or_else(|| wrong("it has no exp, so it would hold without an end"))?;
        if now > end + leeway {
            return Err(wrong("it has expired"));
        }
        match time("nbf")? {
            Some(begin) if now + leeway < begin => Err(wrong("it is not valid yet")),
            _ => Ok(()),
        }
    }
}

/// A public key, and what it can check.
struct PublicKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The public keys of an issuer, and the tokens that they were found to have signed.
pub(crate) struct KeySet {
    keys: Vec<PublicKey>,
    checked: Mutex<HashMap<String, Arc<Token>>>,
}

impl KeySet {
    /// Reads a JWK set. Keys that can't check tokens are left out.
    ///
    /// # Errors
    /// It is none, or has no key that can.
    pub(crate) fn parse(json: &[u8]) -> Result<KeySet, String> {
        let set: Value = serde_json::from_slice(json).map_err(|error| format!("is no JSON: {error}"))?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("is no JWK set: it needs an object with a list \"keys\"")?;
        let keys: Vec<_> = keys.iter().filter_map(public_key).take(KEY_COUNT_MAX).collect();
        match keys.is_empty() {
            true => Err("has no public key that can check tokens: RSA, P-256, P-384 or Ed25519".into()),
            false => Ok(KeySet { keys, checked: Mutex::default() }),
        }
    }

    /// # Errors
    /// The token is not this issuer's, or of no use.
    pub(crate) fn check(&self, token: &str, issuer: &JwtIssuer) -> Result<Arc<Token>, TokenError> {
        let known = self.checked.lock().get(token).cloned();
        if let Some(known) = known {
            return known.check_time(issuer.leeway_ms).map(|()| known);
        }
        let header = decode_header(token).map_err(|error| wrong(format!("it can't be read: {error}")))?;
        if header.crit.is_some() {
            return Err(wrong("it asks for extensions (crit), and none is known"));
        }
        let fits = |key: &&PublicKey| key.algorithms.contains(&header.alg);
        let key = match &header.kid {
            Some(id) => {
                let mut named = self.keys.iter().filter(|key| key.id.as_ref() == Some(id)).peekable();
                if named.peek().is_none() {
                    return Err(TokenError::UnknownKey);
                }
                named.find(fits).ok_or_else(|| wrong("its algorithm is not that of its key"))?
            }
            None => {
                let mut fitting = self.keys.iter().filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(key), None) => key,
                    (Some(_), Some(_)) => {
                        return Err(wrong("it names no key (kid), and several may be its own"));
                    }
                    (None, _) => return Err(wrong("its algorithm is that of no key of its issuer")),
                }
            }
        };
        signatures::install();
        let mut validation = Validation::new(header.alg);
        validation.leeway = issuer.leeway_ms.div_ceil(1000);
        validation.validate_nbf = true;
        validation.set_issuer(&[&issuer.issuer]);
        validation.set_audience(&issuer.audiences.iter().collect::<Vec<_>>());
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let claims = decode::<Map<String, Value>>(token, &key.key, &validation);
        let claims = claims.map_err(|error| wrong(in_words(&error)))?.claims;
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        let checked = Arc::new(Token { subject, claims });
        checked.check_time(issuer.leeway_ms)?;
        if token.len() <= REMEMBERED_LEN_MAX {
            let mut all = self.checked.lock();
            if all.len() >= REMEMBERED_COUNT_MAX {
                all.clear();
            }
            all.insert(token.to_owned(), checked.clone());
        }
        Ok(checked)
    }
}

fn in_words(error: &jsonwebtoken::errors::Error) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidSignature => "its signature is not that of its issuer".into(),
        ErrorKind::ExpiredSignature => "it has expired".into(),
        ErrorKind::ImmatureSignature => "it is not valid yet".into(),
        ErrorKind::InvalidIssuer => "it is of another issuer".into(),
        ErrorKind::InvalidAudience => "it is for another audience".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no {claim}"),
        _ => format!("it can't be read: {error}"),
    }
}

/// None for keys that sign nothing, need a secret, or are of an unknown kind.
fn public_key(json: &Value) -> Option<PublicKey> {
    let jwk: Jwk = serde_json::from_value(json.clone()).ok()?;
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA.to_vec(),
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        _ => return None,
    };
    if let Some(said) = json.get("alg").and_then(Value::as_str) {
        algorithms.retain(|algorithm| said.parse() == Ok(*algorithm));
    }
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| !algorithms.is_empty())?;
    Some(PublicKey { id: jwk.common.key_id, algorithms, key })
}

/// The `iss` that a token claims, which nobody has checked.
pub(crate) fn claimed_issuer(token: &str) -> Option<String> {
    let claims = jsonwebtoken::dangerous::insecure_decode::<Map<String, Value>>(token).ok()?.claims;
    claims.get("iss")?.as_str().map(str::to_owned)
}
