//! When a failed call is made again, by the rules of `tollfree_balancer`: what of them is HTTP's.

use http::header::{HeaderMap, HeaderName};
pub(crate) use tollfree_balancer::{Pushback, Retries, Throttle};

/// Metadata of a repeated call: how often it was made before.
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName =
    HeaderName::from_static(tollfree_balancer::PREVIOUS_ATTEMPTS);

/// What a server's trailers say about coming back.
pub(crate) fn pushback(trailers: &HeaderMap) -> Pushback {
    // What is no text can't be read either.
    let value = trailers.get(tollfree_balancer::PUSHBACK).map(|value| value.to_str().unwrap_or_default());
    Pushback::of(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushback_is_read_of_trailers() {
        let mut trailers = HeaderMap::new();
        assert_eq!(pushback(&trailers), Pushback::None);
        trailers.insert(tollfree_balancer::PUSHBACK, "1500".parse().unwrap());
        assert_eq!(pushback(&trailers), Pushback::After(std::time::Duration::from_millis(1500)));
        trailers.insert(tollfree_balancer::PUSHBACK, http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(pushback(&trailers), Pushback::Never);
    }
}
