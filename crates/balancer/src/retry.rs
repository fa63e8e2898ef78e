//! When a failed call is made again: gRPC's retry policy and throttling (gRFC A6).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Metadata of a repeated call: how often it was made before.
pub const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";
/// A server's wish in the trailers of a failed call: when to come back, in milliseconds, or (negative) not at all.
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// `retryPolicy` of a method.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The first attempt counts.
    pub attempts_max: u32,
    /// The pause before the second attempt.
    pub backoff_first: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// By this a pause is longer than the one before.
    pub multiplier: f64,
    /// gRPC's status codes after which the call is made again.
    pub codes: Vec<u16>,
}

/// `retryThrottling` of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttling {
    /// In thousandths of a token.
    pub tokens_max: u32,
    /// What a success gives back, in thousandths of a token.
    pub ratio: u32,
}

/// Tokens that failures take and successes give: with half of them gone, nothing is retried. Threads may share it.
#[derive(Debug)]
pub struct Throttle {
    settings: Throttling,
    tokens: AtomicU32,
}

impl Throttle {
    /// With all tokens.
    pub fn new(settings: Throttling) -> Throttle {
        Throttle { settings, tokens: AtomicU32::new(settings.tokens_max) }
    }

    /// A call has succeeded.
    pub fn succeeded(&self) {
        let Throttling { tokens_max, ratio } = self.settings;
        self.change(|tokens| tokens.saturating_add(ratio).min(tokens_max));
    }

    /// A call has failed; whether a retry is allowed.
    pub fn failed(&self) -> bool {
        self.change(|tokens| tokens.saturating_sub(1000)) > self.settings.tokens_max / 2
    }

    fn change(&self, change: impl Fn(u32) -> u32) -> u32 {
        // Nothing else is published by this word.
        let changed = self
            .tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| Some(change(tokens)))
            .map(&change);
        changed.unwrap_or_default()
    }
}

/// What a server says about coming back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// Nothing.
    None,
    /// After this time.
    After(Duration),
    /// Don't.
    Never,
}

impl Pushback {
    /// Of the value of [`PUSHBACK`] in the trailers, if it is there. What can't be read counts as negative.
    pub fn of(value: Option<&str>) -> Pushback {
        let Some(value) = value else { return Pushback::None };
        let millis = value.parse::<u32>().ok();
        millis.map_or(Pushback::Never, |millis| Pushback::After(Duration::from_millis(millis.into())))
    }
}

/// How often one call was made again.
#[derive(Debug, Default)]
pub struct Retries {
    failed: u32,
    /// Backoffs since the server last said when to come back.
    backoffs: u32,
}

impl Retries {
    /// Attempts that failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// An attempt has failed with a gRPC status code. `Some`: make the call again after this time. `chance` is a random number from 0 to 1.
    pub fn fail(
        &mut self,
        policy: Option<&RetryPolicy>,
        throttle: Option<&Throttle>,
        code: u16,
        pushback: Pushback,
        chance: f64,
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
                Some(Duration::from_secs_f64(backoff * (0.8 + 0.4 * chance)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts_max: 4,
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_millis(150),
            multiplier: 2.0,
            codes: vec![UNAVAILABLE],
        }
    }

    #[test]
    fn backoff_grows_up_to_its_maximum_and_attempts_end() {
        let (policy, mut attempts) = (policy(), Retries::default());
        let mut fail = |chance| attempts.fail(Some(&policy), None, UNAVAILABLE, Pushback::None, chance);
        assert_eq!(fail(0.0), Some(Duration::from_millis(80)));
        assert_eq!(fail(0.5), Some(Duration::from_millis(150)));
        assert_eq!(fail(1.0), Some(Duration::from_millis(180)));
        assert_eq!(fail(0.5), None, "that was the fourth");
    }

    #[test]
    fn the_server_decides_when_to_come_back_and_backoff_starts_anew() {
        let (policy, mut attempts) = (policy(), Retries::default());
        let mut fail = |pushback| attempts.fail(Some(&policy), None, UNAVAILABLE, pushback, 0.5);
        let first = Some(Duration::from_millis(100));
        assert_eq!(fail(Pushback::None), first);
        let week = Duration::from_secs(7 * 86400);
        assert_eq!(fail(Pushback::After(week)), Some(week));
        assert_eq!(fail(Pushback::None), first);
        let one = |policy, code, pushback| Retries::default().fail(policy, None, code, pushback, 0.5);
        assert_eq!(one(Some(&policy), UNAVAILABLE, Pushback::Never), None);
        assert_eq!(one(Some(&policy), INTERNAL, Pushback::None), None);
        assert_eq!(one(None, UNAVAILABLE, Pushback::None), None);
    }

    #[test]
    fn pushback_is_read_as_grpc_says() {
        assert_eq!(Pushback::of(None), Pushback::None);
        assert_eq!(Pushback::of(Some("0")), Pushback::After(Duration::ZERO));
        assert_eq!(Pushback::of(Some("1500")), Pushback::After(Duration::from_millis(1500)));
        for never in ["-1", "", "soon", "1.5", "99999999999"] {
            assert_eq!(Pushback::of(Some(never)), Pushback::Never, "{never}");
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
        assert_eq!(throttle.tokens.load(Ordering::Relaxed), 4000);
    }
}
