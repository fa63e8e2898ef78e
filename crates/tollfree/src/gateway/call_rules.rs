//! What gRPC's service config says of calls that a gateway hands to backends.

use std::sync::Arc;
use std::time::Duration;

use tollfree_balancer::OutlierDetection;
use tonic::Code;

use crate::call::retry::{Pushback, Retries, Throttle};
use crate::endpoint::chance;
use tollfree_balancer::ServiceConfig;
use tollfree_balancer::ServiceConfigError;

/// Timeouts, retries and throttling of calls by service and method, and when backends are ejected: gRPC's service config for calls that a gateway hands to
/// backends ([`Dispatch::rules`](crate::gateway::Dispatch::rules)).
///
/// Retries of all calls that go by one value count in one throttle.
#[derive(Debug)]
pub struct CallRules {
    config: ServiceConfig,
    throttle: Option<Arc<Throttle>>,
}

impl CallRules {
    /// Reads a service config, JSON. A gateway has policies of its own for choosing, calls always wait for backends, and health is what is
    /// attached: fields that say so otherwise are refused.
    ///
    /// # Errors
    /// [`ServiceConfigError`], which names the field.
    pub fn parse(json: &str) -> Result<CallRules, ServiceConfigError> {
        let config = ServiceConfig::parse(json)?;
        let refused = |field, problem: &str| ServiceConfigError::Field { field, problem: problem.to_owned() };
        if config.balance.is_some() && config.outlier_detection.is_none() {
            return Err(refused(
                "loadBalancingConfig",
                "has no outlier_detection_experimental: a gateway chooses by its load_balancing",
            ));
        }
        if config.health_service.is_some() {
            return Err(refused(
                "healthCheckConfig",
                "is not for backends, which a gateway does not ask for their health",
            ));
        }
        if config.says_waits() {
            return Err(refused(
                "waitForReady",
                "is not for a gateway, in which calls always wait for backends",
            ));
        }
        let throttle = config.throttling.map(|throttling| Arc::new(Throttle::new(throttling)));
        Ok(CallRules { config, throttle })
    }

    /// How long a call of a method (`/acme.v1.Orders/Get`) may take that asks for no shorter time.
    pub fn timeout(&self, path: &str) -> Option<Duration> {
        self.config.method(path).timeout
    }

    /// When backends are ejected, if they are to be at all.
    pub fn outlier_detection(&self) -> Option<&OutlierDetection> {
        self.config.outlier_detection.as_ref()
    }

    pub(crate) fn throttle(&self) -> Option<&Arc<Throttle>> {
        self.throttle.as_ref()
    }

    /// Statuses after which a method's calls are made again, where they may be at all.
    pub(crate) fn codes(&self, path: &str) -> &[u16] {
        self.config.method(path).retry.as_ref().map_or(&[], |retry| &retry.codes)
    }

    /// Notes that a call has succeeded.
    pub(crate) fn succeeded(&self) {
        self.throttle.iter().for_each(|throttle| throttle.succeeded());
    }

    /// Notes that an attempt of a call has failed. `Some`: it is to be made again after this time.
    pub(crate) fn failed(
        &self,
        path: &str,
        retries: &mut Retries,
        code: Code,
        pushback: Pushback,
    ) -> Option<Duration> {
        retries.fail(
            self.config.method(path).retry.as_deref(),
            self.throttle.as_deref(),
            code as u16,
            pushback,
            chance(),
        )
    }
}

/// Whether a channel could go by a service config.
///
/// # Errors
/// [`ServiceConfigError`], which names the field.
pub fn check_service_config(json: &str) -> Result<(), ServiceConfigError> {
    ServiceConfig::parse(json).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_does_not_go_by_is_refused() {
        for (json, hint) in [
            (r#"{"loadBalancingConfig": [{"round_robin": {}}]}"#, "load_balancing"),
            (r#"{"healthCheckConfig": {"serviceName": "db"}}"#, "healthCheckConfig"),
            (r#"{"methodConfig": [{"name": [{}], "waitForReady": true}]}"#, "waitForReady"),
            (r#"{"methodConfig": [{"name": [{"service": "a.B"}], "waitForReady": false}]}"#, "waitForReady"),
            (r#"{"methodConfig": [{"name": [{}], "timeout": "1h"}]}"#, "timeout"),
        ] {
            let error = CallRules::parse(json).unwrap_err().to_string();
            assert!(error.contains(hint), "{json}: {error}");
        }
        let json = r#"{"methodConfig": [{"name": [{"service": "a.B"}], "timeout": "2s"}],
            "loadBalancingConfig": [{"outlier_detection_experimental": {"consecutiveFailureEjection": {}, "childPolicy": [{"round_robin": {}}]}}]}"#;
        let rules = CallRules::parse(json).unwrap();
        assert_eq!((rules.timeout("/a.B/C"), rules.timeout("/a.D/C")), (Some(Duration::from_secs(2)), None));
        assert!(rules.outlier_detection().is_some_and(OutlierDetection::is_on));
    }
}
