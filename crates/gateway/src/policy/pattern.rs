//! Patterns of rules: for texts, identities, methods and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use super::caller::CallerIdentity;
use crate::client::CertificateName;

/// A text in which `*` stands for any text.
#[derive(Clone, Debug)]
pub(crate) struct TextPattern {
    /// What stands between the stars. Without a star, there is one part.
    parts: Vec<String>,
}

impl TextPattern {
    /// # Errors
    /// It is empty.
    pub(crate) fn parse(pattern: &str) -> Result<TextPattern, String> {
        match pattern.is_empty() {
            true => Err("an empty pattern matches nothing: write a text, or * for any".into()),
            false => Ok(TextPattern { parts: pattern.split('*').map(str::to_owned).collect() }),
        }
    }

    fn matches_value(&self, value: &HeaderValue) -> bool {
        self.matches(&String::from_utf8_lossy(value.as_bytes()))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &self.parts[..] else {
            return self.parts.iter().all(|whole| whole == text);
        };
        let Some(rest) = text.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        middle.iter().all(|part| {
            let found = rest.find(part.as_str());
            found.inspect(|at| rest = &rest[at + part.len()..]).is_some()
        })
    }
}

/// Patterns for headers, each by its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderPatterns(Vec<(String, TextPattern)>);

impl HeaderPatterns {
    /// # Errors
    /// A pattern is of no use.
    pub(crate) fn parse(patterns: &BTreeMap<String, String>) -> Result<HeaderPatterns, String> {
        let parsed = patterns.iter().map(|(name, text)| Ok((name.clone(), TextPattern::parse(text)?)));
        parsed.collect::<Result<_, _>>().map(HeaderPatterns)
    }

    /// Whether each has a value that matches.
    pub(crate) fn match_some(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, pattern)| {
            headers.get_all(name.as_str()).iter().any(|value| pattern.matches_value(value))
        })
    }

    /// Whether each has a value, and all of its values match: a client may send another value behind the one that a rule looks for.
    pub(crate) fn match_all(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, pattern)| {
            headers.contains_key(name.as_str())
                && headers.get_all(name.as_str()).iter().all(|value| pattern.matches_value(value))
        })
    }
}

/// Which identities a rule means.
#[derive(Clone, Debug)]
pub(crate) enum IdentityPattern {
    /// Each caller that has an identity.
    Any,
    /// Each caller that has none.
    None,
    /// A URI of the certificate's alternative names.
    Uri(TextPattern),
    /// A DNS name of the certificate's alternative names, in small letters.
    Dns(TextPattern),
    /// The certificate's subject.
    Subject(TextPattern),
    /// The token's subject.
    Token(TextPattern),
}

impl IdentityPattern {
    /// # Errors
    /// What forms there are.
    pub(crate) fn parse(text: &str) -> Result<IdentityPattern, String> {
        Ok(match text.split_once(':') {
            None if text == "any" => IdentityPattern::Any,
            None if text == "none" => IdentityPattern::None,
            Some(("dns", name)) => IdentityPattern::Dns(TextPattern::parse(&name.to_ascii_lowercase())?),
            Some(("subject", name)) => IdentityPattern::Subject(TextPattern::parse(name)?),
            Some(("jwt", name)) => IdentityPattern::Token(TextPattern::parse(name)?),
            Some((_, rest)) if rest.starts_with("//") || text.starts_with("urn:") => {
                IdentityPattern::Uri(TextPattern::parse(text)?)
            }
            _ => {
                return Err(format!(
                    "\"{text}\" is no identity: write spiffe://…, dns:NAME, subject:CN=…, jwt:SUBJECT, any or none"
                ));
            }
        })
    }

    pub(crate) fn matches(&self, caller: &CallerIdentity<'_>) -> bool {
        let mut names = caller.client().certificate_names().iter();
        match self {
            IdentityPattern::Any => caller.is_known(),
            IdentityPattern::None => !caller.is_known(),
            IdentityPattern::Uri(pattern) => {
                names.any(|name| matches!(name, CertificateName::Uri(uri) if pattern.matches(uri)))
            }
            IdentityPattern::Dns(pattern) => {
                names.any(|name| matches!(name, CertificateName::Dns(dns) if pattern.matches(dns)))
            }
            IdentityPattern::Subject(pattern) => {
                let subject = caller.client().subject();
                !subject.is_empty() && pattern.matches(subject)
            }
            IdentityPattern::Token(pattern) => {
                caller.token().is_some_and(|token| pattern.matches(token.subject()))
            }
        }
    }
}

/// A range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange(IpNet);

impl AddressRange {
    /// # Errors
    /// What is no range.
    pub(crate) fn parse(text: &str) -> Result<AddressRange, String> {
        let range = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        range.map(|range| AddressRange(range.trunc())).ok_or_else(|| {
            format!("\"{text}\" is no range of addresses: write 192.0.2.0/24, 2001:db8::/32 or one address")
        })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Whether a set of services and methods has that of a path, or is empty.
pub(crate) fn has_method(methods: &BTreeSet<String>, path: &str) -> bool {
    methods.is_empty() || methods.contains(path) || methods.contains(crate::routing::service_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let of = |pattern: &str, text: &str| TextPattern::parse(pattern).unwrap().matches(text);
        assert!(of("a", "a") && !of("a", "ab") && !of("a", "") && of("*", "") && of("*", "any"));
        assert!(of("a*", "a") && of("a*", "abc") && !of("a*", "ba") && of("*a", "bca") && !of("*a", "ab"));
        assert!(of("a*b", "ab") && of("a*b", "a--b") && !of("ab*b", "ab") && of("a*c*e", "abcde"));
        assert!(!of("a*c*e", "abde") && of("**", "x") && !of("a*c*c", "abc"));
        TextPattern::parse("").unwrap_err();
    }

    #[test]
    fn ranges_hold_addresses_of_their_kind() {
        let of = |range: &str, address: &str| {
            AddressRange::parse(range).unwrap().contains(address.parse().unwrap())
        };
        assert!(
            of("10.0.0.0/8", "10.1.2.3") && of("10.9.9.9/8", "10.1.2.3") && !of("10.0.0.0/8", "11.0.0.1")
        );
        assert!(of("10.0.0.0/8", "::ffff:10.0.0.1") && of("::1", "::1") && !of("::/0", "10.0.0.1"));
        AddressRange::parse("10.0.0.0/33").unwrap_err();
    }
}
