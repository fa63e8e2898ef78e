//! When a failed call is made again: gRPC's retry policy and throttling (gRFC A6).

use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tonic::Code;

use crate::endpoint::chance;

/// Metadata of a repeated call: how often it was made before.
pub(crate) const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
/// A server's wish in the trailers of a failed call: when to come back, in milliseconds, or (negative) not at all.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// `retryPolicy` of a method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RetryPolicy {
    /// The first attempt counts.
    pub(crate) attempts_max: u32,
    pub(crate) backoff_first: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) multiplier: f64,
    pub(crate) codes: Vec<Code>,
}

/// `retryThrottling` of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Throttling {
    /// In thousandths.
    pub(crate) tokens_max: u32,
    pub(crate) ratio: u32,
}

/// Tokens that failures take and successes give: with half of them gone, nothing is retried.
#[derive(Debug)]
pub(crate) struct Throttle {
    settings: Throttling,
    tokens: Mutex<u32>,
}

impl Throttle {
    pub(crate) fn new(settings: Throttling) -> Throttle {
        Throttle { settings, tokens: Mutex::new(settings.tokens_max) }
    }

    pub(crate) fn succeeded(&self) {
        let mut tokens = self.tokens.lock();
        *tokens = tokens.saturating_add(self.settings.ratio).min(self.settings.tokens_max);
    }

    /// Notes a failure; whether a retry is allowed.
    pub(crate) fn failed(&self) -> bool {
        let mut tokens = self.tokens.lock();
        *tokens = tokens.saturating_sub(1000);
        *tokens > self.settings.tokens_max / 2
    }
}

/// What a server says about coming back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushback {
    /// Nothing.
    None,
    /// After this time.
    After(Duration),
    /// Don't.
    Never,
}

impl Pushback {
    pub(crate) fn of(trailers: &HeaderMap) -> Pushback {
        let Some(value) = trailers.get(PUSHBACK) else { return Pushback::None };
        // What can't be read counts as negative.
        let millis = value.to_str().ok().and_then(|text| text.parse::<u32>().ok());
        millis.map_or(Pushback::Never, |millis| Pushback::After(Duration::from_millis(millis.into())))
    }
}

/// How often one call was made again.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// Attempts that failed.
    pub(crate) failed: u32,
    /// Backoffs since the server last said when to come back.
    backoffs: u32,
}

impl Retries {
    /// Notes a failure. `Some`: make the call again after this time.
    pub(crate) fn fail(
        &mut self,
        policy: Option<&RetryPolicy>,
        throttle: Option<&Throttle>,
        code: Code,
        pushback: Pushback,
    ) -> Option<Duration> {
        let policy = policy?;
        let retryable = policy.codes.contains(&code);
        if !retryable && pushback != Pushback::Never {
            return None;
        }
        let allowed = throttle.is_none_or(Throttle::failed);
        self.failed += 1;
        if !retryable || !allowed || self.failed >= policy.attempts_max {
            return None;
        }
        match pushback {
            Pushback::Never => None,
            Pushback::After(time) => {
                self.backoffs = 0;
                Some(time)
            }
            Pushback::None => {
                let exponent = i32::try_from(self.backoffs).unwrap_or(i32::MAX);
                self.backoffs += 1;
                let wanted = policy.backoff_first.as_secs_f64() * policy.multiplier.powi(exponent);
                let backoff = wanted.min(policy.backoff_max.as_secs_f64());
                Some(Duration::from_secs_f64(backoff * (0.8 + 0.4 * chance())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts_max: 4,
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_millis(150),
            multiplier: 2.0,
            codes: vec![Code::Unavailable],
        }
    }

    fn within(delay: Option<Duration>, millis: f64) {
        let share = delay.unwrap().as_secs_f64() * 1000.0 / millis;
        assert!((0.79..=1.21).contains(&share), "{delay:?} is not about {millis} ms");
    }

    #[test]
    fn backoff_grows_up_to_its_maximum_and_attempts_end() {
        let (policy, mut attempts) = (policy(), Retries::default());
        let mut fail = |pushback| attempts.fail(Some(&policy), None, Code::Unavailable, pushback);
        within(fail(Pushback::None), 100.0);
        within(fail(Pushback::None), 150.0);
        within(fail(Pushback::None), 150.0);
        assert_eq!(fail(Pushback::None), None, "that was the fourth");
    }

    #[test]
    fn the_server_decides_when_to_come_back_and_backoff_starts_anew() {
        let (policy, mut attempts) = (policy(), Retries::default());
        let mut fail = |pushback| attempts.fail(Some(&policy), None, Code::Unavailable, pushback);
        within(fail(Pushback::None), 100.0);
        let week = Duration::from_secs(7 * 86400);
        assert_eq!(fail(Pushback::After(week)), Some(week));
        within(fail(Pushback::None), 100.0);
        let mut attempts = Retries::default();
        assert_eq!(attempts.fail(Some(&policy), None, Code::Unavailable, Pushback::Never), None);
        assert_eq!(Retries::default().fail(Some(&policy), None, Code::Internal, Pushback::None), None);
        assert_eq!(Retries::default().fail(None, None, Code::Unavailable, Pushback::None), None);
    }

    #[test]
    fn pushback_is_read_as_grpc_says() {
        let of = |text: &str| {
            let mut trailers = HeaderMap::new();
            trailers.insert(PUSHBACK, text.parse().unwrap());
            Pushback::of(&trailers)
        };
        assert_eq!(Pushback::of(&HeaderMap::new()), Pushback::None);
        assert_eq!(of("0"), Pushback::After(Duration::ZERO));
        assert_eq!(of("1500"), Pushback::After(Duration::from_millis(1500)));
        for never in ["-1", "", "soon", "1.5", "99999999999"] {
            assert_eq!(of(never), Pushback::Never, "{never}");
        }
    }

    #[test]
    fn half_of_the_tokens_gone_stops_retries_until_successes_bring_them_back() {
        let throttle = Throttle::new(Throttling { tokens_max: 4000, ratio: 500 });
        assert!(throttle.failed());
        assert!(!throttle.failed(), "2 of 4 are left: not more than half");
        for _ in 0..3 {
            throttle.succeeded();
        }
        assert!(throttle.failed(), "3.5 less 1 is more than half");
        for _ in 0..100 {
            throttle.succeeded();
        }
        assert_eq!(*throttle.tokens.lock(), 4000);
    }
}
