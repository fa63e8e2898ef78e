//! Quotas of calls: how many a caller makes in a time, and has under way at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::caller::CallerIdentity;
use super::pattern::{IdentityPattern, has_method};
use crate::config::{CallQuota, QuotaShare};
use crate::refusal::{Refusal, Refused};

/// Callers of a quota that are counted apart. Further ones are counted as one.
const KEY_COUNT_MAX: usize = 65_536;
/// Callers that hold nothing are looked for so often at most.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// When a call may be tried again that was too many at once: nobody knows when another ends.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What a key has used.
#[derive(Debug)]
struct Usage {
    /// Calls that it may begin now; a part of one is on its way.
    tokens: f64,
    filled: Instant,
    under_way: u32,
}

/// All that is counted.
struct QuotaUses {
    by_key: HashMap<String, Usage>,
    swept: Instant,
}

/// A quota.
pub(crate) struct Quota {
    config: CallQuota,
    identities: Vec<IdentityPattern>,
    counted: Mutex<QuotaUses>,
}

/// A call's place in a quota, until it is dropped.
pub(crate) struct QuotaHold {
    quota: Arc<Quota>,
    key: String,
}

impl Drop for QuotaHold {
    fn drop(&mut self) {
        if let Some(usage) = self.quota.counted.lock().by_key.get_mut(&self.key) {
            usage.under_way = usage.under_way.saturating_sub(1);
        }
    }
}

impl Usage {
    fn fill(&mut self, config: &CallQuota, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * config.per_s()).min(config.burst());
        self.filled = now;
    }

    fn is_unused(&self, config: &CallQuota, now: Instant) -> bool {
        let filled = self.tokens + now.saturating_duration_since(self.filled).as_secs_f64() * config.per_s();
        self.under_way == 0 && (config.calls.is_none() || filled >= config.burst())
    }
}

impl Quota {
    /// # Errors
    /// A pattern is of no use.
    pub(super) fn new(config: &CallQuota) -> Result<Quota, String> {
        let identities = config.identities.iter().map(|text| IdentityPattern::parse(text));
        Ok(Quota {
            config: config.clone(),
            identities: identities.collect::<Result<_, _>>()?,
            counted: Mutex::new(QuotaUses { by_key: HashMap::new(), swept: Instant::now() }),
        })
    }

    fn is_for(&self, caller: &CallerIdentity<'_>, path: &str, group: Option<&str>) -> bool {
        let config = &self.config;
        (self.identities.is_empty() || self.identities.iter().any(|identity| identity.matches(caller)))
            && has_method(&config.methods, path)
            && (config.groups.is_empty() || group.is_some_and(|group| config.groups.contains(group)))
    }

    /// What a call is counted by.
    fn key(&self, caller: &CallerIdentity<'_>, path: &str, group: Option<&str>) -> String {
        let mut key = String::new();
        for share in &self.config.by {
            match share {
                QuotaShare::Identity => {
                    key += &caller.name().unwrap_or_else(|| caller.client().network());
                    // Issuers may have the same subjects.
                    caller
                        .token()
                        .iter()
                        .flat_map(|token| token.claim("iss"))
                        .for_each(|issuer| key += &issuer);
                }
                QuotaShare::Address => key += &caller.client().network(),
                QuotaShare::Method => key += path,
                QuotaShare::Group => key += group.unwrap_or_default(),
            }
            // No header, path or certificate has it.
            key.push('\0');
        }
        key
    }

    /// Counts a call in, if it is one of those that the quota is for.
    ///
    /// # Errors
    /// It is one too many.
    pub(super) fn take(
        self: &Arc<Quota>,
        caller: &CallerIdentity<'_>,
        path: &str,
        group: Option<&str>,
    ) -> Result<Option<QuotaHold>, Refused> {
        if !self.is_for(caller, path, group) {
            return Ok(None);
        }
        self.take_at(self.key(caller, path, group), Instant::now())
    }

    fn take_at(self: &Arc<Quota>, key: String, now: Instant) -> Result<Option<QuotaHold>, Refused> {
        let config = &self.config;
        let mut counted = self.counted.lock();
        let key = counted.room_for(key, config, now);
        let usage = counted.by_key.entry(key.clone()).or_insert_with(|| Usage {
            tokens: config.burst(),
            filled: now,
            under_way: 0,
        });
        if let Some(most) = config.concurrent.filter(|most| usage.under_way >= *most) {
            let words =
                format!("{most} calls are under way already, which is all that a quota allows at once");
            return Err(refused(Refusal::Quota, words, TRY_AGAIN));
        }
        if config.calls.is_some() {
            usage.fill(config, now);
            if usage.tokens < 1.0 {
                let pause = Duration::from_secs_f64((1.0 - usage.tokens) / config.per_s());
                let words = "there are more calls than a quota allows; slow down".to_owned();
                return Err(refused(Refusal::Rate, words, pause));
            }
            usage.tokens -= 1.0;
        }
        if config.concurrent.is_none() {
            return Ok(None);
        }
        usage.under_way += 1;
        Ok(Some(QuotaHold { quota: self.clone(), key }))
    }
}

impl QuotaUses {
    /// The key, or what all are counted by for which there is no room.
    fn room_for(&mut self, key: String, config: &CallQuota, now: Instant) -> String {
        if self.by_key.len() < KEY_COUNT_MAX || self.by_key.contains_key(&key) {
            return key;
        }
        if now.saturating_duration_since(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            self.by_key.retain(|_, usage| !usage.is_unused(config, now));
        }
        match self.by_key.len() < KEY_COUNT_MAX {
            true => key,
            false => String::new(),
        }
    }
}

fn refused(why: Refusal, words: String, pause: Duration) -> Refused {
    let details = ErrorDetails::with_retry_info(Some(pause));
    Refused { why, status: Status::with_error_details(Code::ResourceExhausted, words, details) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(config: CallQuota) -> Arc<Quota> {
        Arc::new(Quota::new(&config).unwrap())
    }

    #[test]
    fn calls_are_limited_by_burst_and_by_rate() {
        let quota = quota(CallQuota { calls: Some(10), burst: Some(2), ..CallQuota::default() });
        let begin = Instant::now();
        let at = |ms| quota.take_at("a".into(), begin + Duration::from_millis(ms)).is_ok();
        assert_eq!(
            [0, 0, 0, 99, 100, 101, 5000, 5000, 5000].map(at),
            [true, true, false, false, true, false, true, true, false]
        );
        assert!(quota.take_at("b".into(), begin).is_ok(), "another key has its own");
    }

    #[test]
    fn keys_are_bounded_and_those_behind_share_one() {
        let quota = quota(CallQuota { calls: Some(1), every_ms: 60_000, ..CallQuota::default() });
        let begin = Instant::now();
        let take = |nth: usize, at| quota.take_at(format!("k{nth}"), at).is_ok();
        assert!((0..KEY_COUNT_MAX).all(|nth| take(nth, begin)));
        assert!(take(KEY_COUNT_MAX, begin) && !take(KEY_COUNT_MAX + 1, begin), "two share one call");
        assert!(quota.counted.lock().by_key.len() <= KEY_COUNT_MAX + 1);
        // Those that hold nothing go.
        assert!(take(KEY_COUNT_MAX + 1, begin + Duration::from_secs(61)));
        assert_eq!(quota.counted.lock().by_key.len(), 1);
    }

    #[test]
    fn a_call_that_ends_makes_room() {
        let quota = quota(CallQuota { concurrent: Some(1), ..CallQuota::default() });
        let take = || quota.take_at("a".into(), Instant::now());
        let held = take().ok().flatten();
        assert!(held.is_some() && take().is_err());
        drop(held);
        assert!(take().is_ok());
    }
}
