//! gRPC's service config: what a channel does about each method, as JSON.

mod fields;
mod load_balancing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fields::{duration, wrong};
use load_balancing::LoadBalancing;
use serde::Deserialize;
use serde_json::Value;

use crate::{OutlierDetection, Policy, RetryPolicy, Throttling};

/// More attempts than this count as this many, as in gRPC.
const ATTEMPTS_MAX: u32 = 5;
/// The largest number of tokens that gRPC allows.
const TOKENS_MAX: f64 = 1000.0;

/// gRPC's status codes by their names, in the order of their numbers.
pub const STATUS_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Why a service config was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceConfigError {
    /// Not JSON, or not of the form of a service config.
    #[error("the service config can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A field has a value that it can't have.
    #[error("the service config's {field} {problem}")]
    Field {
        /// Which, by its name in JSON.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// What a method's calls are to be done with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodConfig {
    /// A call is over within this time from its beginning, if its own deadline is not sooner.
    pub timeout: Option<Duration>,
    /// Whether calls wait for a connection, where they don't say so themselves.
    pub waits: Option<bool>,
    /// When a failed call is made again.
    pub retry: Option<Arc<RetryPolicy>>,
}

/// A service config, checked.
#[derive(Clone, Debug, Default)]
pub struct ServiceConfig {
    /// How an endpoint is chosen for a call.
    pub balance: Option<Policy>,
    /// Whether endpoints whose calls fail get none for a while.
    pub outlier_detection: Option<OutlierDetection>,
    /// `retryThrottling`, for all calls together.
    pub throttling: Option<Throttling>,
    /// `healthCheckConfig`: the service whose health decides whether an endpoint is used.
    pub health_service: Option<Arc<str>>,
    methods: HashMap<String, Arc<MethodConfig>>,
    /// What holds where nothing is said.
    rest: Arc<MethodConfig>,
}

impl ServiceConfig {
    /// Reads a service config.
    ///
    /// # Errors
    /// [`ServiceConfigError`], which names the field.
    pub fn parse(json: &str) -> Result<ServiceConfig, ServiceConfigError> {
        let text: Text = serde_json::from_str(json)?;
        let LoadBalancing { balance, outlier_detection } = match text.load_balancing_config.is_empty() {
            true => LoadBalancing::of_name(text.load_balancing_policy.as_deref())?,
            false => LoadBalancing::of("loadBalancingConfig", &text.load_balancing_config)?,
        };
        let mut config = ServiceConfig {
            balance,
            outlier_detection,
            throttling: text.retry_throttling.map(ThrottlingText::check).transpose()?,
            health_service: text.health_check_config.and_then(|health| health.service_name).map(Arc::from),
            ..ServiceConfig::default()
        };
        for method in text.method_config {
            let (names, method) = method.check()?;
            let method = Arc::new(method);
            for name in names {
                if config.methods.insert(name.clone(), method.clone()).is_some() {
                    return Err(wrong("name", format!("\"{name}\" stands there twice")));
                }
            }
        }
        config.rest = config.methods.remove("").unwrap_or_default();
        Ok(config)
    }

    /// Whether anything is said of waiting for a server.
    pub fn says_waits(&self) -> bool {
        self.methods.values().chain([&self.rest]).any(|method| method.waits.is_some())
    }

    /// What holds for a path, `/package.Service/Method`: what is said of the method, else of its service, else of all.
    pub fn method(&self, path: &str) -> &Arc<MethodConfig> {
        if self.methods.is_empty() {
            return &self.rest;
        }
        let name = path.strip_prefix('/').unwrap_or(path);
        let service = name.rsplit_once('/').map_or(name, |(service, _)| service);
        self.methods.get(name).or_else(|| self.methods.get(service)).unwrap_or(&self.rest)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    load_balancing_policy: Option<String>,
    #[serde(default)]
    load_balancing_config: Vec<HashMap<String, Value>>,
    #[serde(default)]
    method_config: Vec<MethodText>,
    retry_throttling: Option<ThrottlingText>,
    health_check_config: Option<HealthText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HealthText {
    service_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThrottlingText {
    max_tokens: f64,
    token_ratio: f64,
}

impl ThrottlingText {
    fn check(self) -> Result<Throttling, ServiceConfigError> {
        if !(self.max_tokens > 0.0 && self.max_tokens <= TOKENS_MAX) {
            return Err(wrong("maxTokens", "has to be above 0 and at most 1000"));
        }
        // Three decimals count.
        let ratio = (self.token_ratio * 1000.0).floor();
        if ratio.is_nan() || ratio < 1.0 {
            return Err(wrong("tokenRatio", "has to be above 0, of which three decimals count"));
        }
        let (tokens_max, ratio) = ((self.max_tokens * 1000.0) as u32, ratio.min(TOKENS_MAX * 1000.0) as u32);
        Ok(Throttling { tokens_max, ratio })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MethodText {
    #[serde(default)]
    name: Vec<NameText>,
    wait_for_ready: Option<bool>,
    timeout: Option<String>,
    retry_policy: Option<RetryText>,
    hedging_policy: Option<Value>,
    max_request_message_bytes: Option<Value>,
    max_response_message_bytes: Option<Value>,
}

#[derive(Deserialize)]
struct NameText {
    #[serde(default)]
    service: String,
    #[serde(default)]
    method: String,
}

impl MethodText {
    fn check(self) -> Result<(Vec<String>, MethodConfig), ServiceConfigError> {
        if self.hedging_policy.is_some() {
            return Err(wrong(
                "hedgingPolicy",
                "is not supported: calls are retried (retryPolicy), never hedged",
            ));
        }
        if self.max_request_message_bytes.is_some() || self.max_response_message_bytes.is_some() {
            let problem = "is not supported: limit the length of messages where clients and servers are made";
            return Err(wrong("maxRequestMessageBytes or maxResponseMessageBytes", problem));
        }
        let mut names = Vec::new();
        for NameText { service, method } in self.name {
            names.push(match (service.is_empty(), method.is_empty()) {
                (true, true) => String::new(),
                (false, true) => service,
                (false, false) => format!("{service}/{method}"),
                (true, false) => {
                    return Err(wrong("name", format!("has method \"{method}\" without a service")));
                }
            });
        }
        let config = MethodConfig {
            timeout: self.timeout.as_deref().map(|text| duration("timeout", text)).transpose()?,
            waits: self.wait_for_ready,
            retry: self.retry_policy.map(RetryText::check).transpose()?.map(Arc::new),
        };
        Ok((names, config))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetryText {
    max_attempts: u32,
    initial_backoff: String,
    max_backoff: String,
    backoff_multiplier: f64,
    retryable_status_codes: Vec<Value>,
}

impl RetryText {
    fn check(self) -> Result<RetryPolicy, ServiceConfigError> {
        if self.max_attempts < 2 {
            return Err(wrong("maxAttempts", "has to be 2 or more: the first attempt counts"));
        }
        let positive = |field, text: &str| match duration(field, text)? {
            Duration::ZERO => Err(wrong(field, "has to be above 0")),
            time => Ok(time),
        };
        if !(self.backoff_multiplier > 0.0 && self.backoff_multiplier.is_finite()) {
            return Err(wrong("backoffMultiplier", "has to be above 0"));
        }
        if self.retryable_status_codes.is_empty() {
            return Err(wrong("retryableStatusCodes", "has to name a status at least"));
        }
        Ok(RetryPolicy {
            attempts_max: self.max_attempts.min(ATTEMPTS_MAX),
            backoff_first: positive("initialBackoff", &self.initial_backoff)?,
            backoff_max: positive("maxBackoff", &self.max_backoff)?,
            multiplier: self.backoff_multiplier,
            codes: self.retryable_status_codes.iter().map(code).collect::<Result<_, _>>()?,
        })
    }
}

/// A status by its name or number.
fn code(value: &Value) -> Result<u16, ServiceConfigError> {
    let number = match value {
        Value::String(name) => STATUS_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)),
        value => value.as_u64().map(|number| number as usize).filter(|number| *number < STATUS_NAMES.len()),
    };
    let unknown = || wrong("retryableStatusCodes", format!("has {value}, which is no status"));
    number.map(|number| number as u16).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: &str = r#"{"maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "1s",
        "backoffMultiplier": 1.5, "retryableStatusCodes": ["UNAVAILABLE", "aborted", 8]}"#;

    #[test]
    fn methods_are_found_by_name_service_and_default() {
        let json = format!(
            r#"{{"loadBalancingConfig": [{{"xds_experimental": {{}}}}, {{"round_robin": {{}}}}], "somethingNew": 1,
            "healthCheckConfig": {{"serviceName": "db"}}, "retryThrottling": {{"maxTokens": 10, "tokenRatio": 0.1239}},
            "methodConfig": [
                {{"name": [{{"service": "a.B", "method": "C"}}], "timeout": "1.5s", "retryPolicy": {RETRY}}},
                {{"name": [{{"service": "a.B"}}, {{"service": "a.D", "method": ""}}], "waitForReady": true}},
                {{"name": [{{}}], "timeout": "7s"}}]}}"#
        );
        let config = ServiceConfig::parse(&json).unwrap();
        assert_eq!(config.balance, Some(Policy::RoundRobin));
        assert_eq!(config.health_service.as_deref(), Some("db"));
        assert_eq!(config.throttling, Some(Throttling { tokens_max: 10_000, ratio: 123 }));
        let method = config.method("/a.B/C");
        assert_eq!(method.timeout, Some(Duration::from_millis(1500)));
        let retry = method.retry.as_ref().unwrap();
        assert_eq!((retry.attempts_max, retry.backoff_first), (5, Duration::from_millis(100)));
        assert_eq!(retry.codes, [14, 10, 8]);
        for path in ["/a.B/E", "/a.D/C"] {
            assert_eq!(config.method(path).waits, Some(true), "{path}");
        }
        assert_eq!(config.method("/x.Y/Z").timeout, Some(Duration::from_secs(7)));
        assert_eq!(
            *config.method("/x.Y/Z").clone(),
            MethodConfig { timeout: Some(Duration::from_secs(7)), ..MethodConfig::default() }
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let retry = |from: &str, to: &str| {
            assert!(RETRY.contains(from), "{from}");
            format!(r#"{{"methodConfig": [{{"name": [{{}}], "retryPolicy": {}}}]}}"#, RETRY.replace(from, to))
        };
        let cases = [
            ("{".to_string(), "can't be read"),
            (retry("\"maxAttempts\": 9", "\"maxAttempts\": 1"), "maxAttempts"),
            (retry("\"0.1s\"", "\"0s\""), "initialBackoff"),
            (retry("\"1s\"", "\"1m\""), "maxBackoff"),
            (retry("1.5", "-1"), "backoffMultiplier"),
            (retry("UNAVAILABLE", "UNAVAILING"), "UNAVAILING"),
            (retry("[\"UNAVAILABLE\", \"aborted\", 8]", "[]"), "retryableStatusCodes"),
            (r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {}}]}"#.into(), "hedg"),
            (r#"{"methodConfig": [{"name": [{"method": "C"}]}]}"#.into(), "without a service"),
            (r#"{"methodConfig": [{"name": [{"service": "a"}, {"service": "a"}]}]}"#.into(), "twice"),
            (r#"{"methodConfig": [{"name": [{}], "maxRequestMessageBytes": 1}]}"#.into(), "limit the length"),
            (r#"{"retryThrottling": {"maxTokens": 1001, "tokenRatio": 1}}"#.into(), "maxTokens"),
            (r#"{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.0001}}"#.into(), "tokenRatio"),
            (r#"{"loadBalancingConfig": [{"grpclb": {}}]}"#.into(), "grpclb"),
            (r#"{"loadBalancingPolicy": "ring_hash"}"#.into(), "ring_hash"),
        ];
        for (json, hint) in cases {
            let error = ServiceConfig::parse(&json).unwrap_err().to_string();
            assert!(error.contains(hint), "{json}: {error}");
        }
        assert_eq!(ServiceConfig::parse("{}").unwrap().balance, None);
    }
}
