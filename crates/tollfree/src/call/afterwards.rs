//! What a channel does when a call of its has ended.

use std::sync::Arc;

use tollfree_balancer::Record;
use tollfree_driver_tokio::now_ns;
use tonic::Code;

use crate::call::retry::Throttle;
use crate::call::routing::Routing;
use crate::endpoint::CallGuard;
use tollfree_balancer::MethodConfig;

/// What a channel does when a call has ended.
#[derive(Debug)]
pub(crate) struct Afterwards {
    guard: Option<CallGuard>,
    /// Told how it ended.
    throttle: Option<Arc<Throttle>>,
    /// Statuses that count as failures.
    codes: Vec<u16>,
    /// Where it is counted how the call ended, by a gateway.
    counted: Option<CountedAttempt>,
}

/// A call of a gateway's that is counted where its backend connection's are. As with a [`CallGuard`], one of which nobody tells the end has
/// failed if its deadline is over, and else says nothing.
#[derive(Debug)]
pub(crate) struct CountedAttempt {
    record: Option<Arc<Record>>,
    deadline_ns: Option<u64>,
}

impl CountedAttempt {
    pub(crate) fn new(record: Arc<Record>, deadline_ns: Option<u64>) -> CountedAttempt {
        CountedAttempt { record: Some(record), deadline_ns }
    }

    /// How the call has ended.
    pub(crate) fn tell(&mut self, code: Code) {
        match (self.record.take(), code) {
            (Some(record), Code::Ok) => record.succeeded(),
            (Some(record), _) => record.failed(),
            (None, _) => {}
        }
    }

    /// Nothing is said of the backend connection.
    pub(crate) fn forget(&mut self) {
        self.record = None;
    }
}

impl Drop for CountedAttempt {
    fn drop(&mut self) {
        if self.deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns) {
            self.tell(Code::DeadlineExceeded);
        }
    }
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
        let throttle = throttle.filter(|_| ended.is_none());
        Afterwards { guard, throttle, codes, counted: None }
    }

    /// Of a call that a gateway has handed on, whose answer has begun.
    pub(crate) fn of_gateway(
        throttle: Option<Arc<Throttle>>,
        codes: Vec<u16>,
        counted: Option<CountedAttempt>,
    ) -> Afterwards {
        Afterwards { guard: None, throttle, codes, counted }
    }

    pub(crate) fn end(mut self, code: Code) {
        if let Some(guard) = &mut self.guard {
            guard.tell(code);
        }
        if let Some(counted) = &mut self.counted {
            counted.tell(code);
        }
        match self.throttle {
            Some(throttle) if code == Code::Ok => throttle.succeeded(),
            Some(throttle) if self.codes.contains(&(code as u16)) => drop(throttle.failed()),
            _ => {}
        }
    }
}
