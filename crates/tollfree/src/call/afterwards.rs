//! What a channel does when a call of its has ended.

use std::sync::Arc;

use tonic::Code;

use crate::call::retry::Throttle;
use crate::call::routing::Routing;
use crate::call::service_config::MethodConfig;
use crate::endpoint::CallGuard;

/// What a channel does when a call has ended.
#[derive(Debug)]
pub(crate) struct Afterwards {
    guard: Option<CallGuard>,
    /// Told how it ended.
    throttle: Option<Arc<Throttle>>,
    /// Statuses that count as failures.
    codes: Vec<u16>,
}

impl Afterwards {
    /// `ended`: the call has, with this status and nothing else.
    pub(crate) fn new(
        channel: &Routing,
        method: &MethodConfig,
        mut guard: Option<CallGuard>,
        ended: Option<Code>,
    ) -> Afterwards {
        if let (Some(guard), Some(code)) = (&mut guard, ended) {
            guard.tell(code);
        }
        let throttle = channel.throttle.clone();
        if let (Some(throttle), Some(Code::Ok)) = (&throttle, ended) {
            throttle.succeeded();
        }
        let codes = method.retry.as_ref().map(|retry| retry.codes.clone()).unwrap_or_default();
        Afterwards { guard, throttle: throttle.filter(|_| ended.is_none()), codes }
    }

    pub(crate) fn end(mut self, code: Code) {
        if let Some(guard) = &mut self.guard {
            guard.tell(code);
        }
        match self.throttle {
            Some(throttle) if code == Code::Ok => throttle.succeeded(),
            Some(throttle) if self.codes.contains(&(code as u16)) => drop(throttle.failed()),
            _ => {}
        }
    }
}
