//! Active health checks: the gateway asks each backend's own `grpc.health.v1` whether it is well.
//!
//! A backend connection whose checks fail `unhealthy_after` times in a row gets no new calls; those under way go on. After `healthy_after` good checks in a row it
//! gets calls again, few at first ([`Load::begin_slowly`](crate::load_balancing::Load::begin_slowly)). One that has no health service counts as
//! healthy, as gRPC's clients have it (gRFC A17); the log says so.
//!
//! A group without a check costs nothing but a task per backend connection that sleeps until the config changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tollfree::gateway::RateLimitedLog;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::backend_connection::BackendConnection;
use crate::backend_connections::BackendConnections;
use crate::config::HealthCheck;
use crate::metrics::Metrics;

static UNHEALTHY: RateLimitedLog = RateLimitedLog::new();
static HEALTHY: RateLimitedLog = RateLimitedLog::new();
static WITHOUT: RateLimitedLog = RateLimitedLog::new();

/// A change that a check has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthTurn {
    Unhealthy,
    Healthy,
}

/// What checks say of one backend connection.
#[derive(Debug, Default)]
pub(crate) struct Wellness {
    is_unhealthy: AtomicBool,
    /// Outcomes in a row that say the other.
    streak: Mutex<u32>,
}

impl Wellness {
    /// Whether it gets no calls, since its checks fail.
    pub(crate) fn is_unhealthy(&self) -> bool {
        self.is_unhealthy.load(Ordering::Relaxed)
    }

    /// A check is over.
    fn note(&self, is_good: bool, check: &HealthCheck) -> Option<HealthTurn> {
        let mut streak = self.streak.lock();
        let is_unhealthy = self.is_unhealthy();
        if is_good != is_unhealthy {
            *streak = 0;
            return None;
        }
        *streak += 1;
        let limit = if is_unhealthy { check.healthy_after } else { check.unhealthy_after };
        if *streak < limit {
            return None;
        }
        *streak = 0;
        self.is_unhealthy.store(!is_unhealthy, Ordering::Relaxed);
        Some(if is_unhealthy { HealthTurn::Healthy } else { HealthTurn::Unhealthy })
    }

    /// It is not checked any more.
    fn forget(&self) -> Option<HealthTurn> {
        *self.streak.lock() = 0;
        self.is_unhealthy.swap(false, Ordering::Relaxed).then_some(HealthTurn::Healthy)
    }
}

/// Checks all backend connections, until it is dropped.
pub(crate) async fn watch(backend_connections: Arc<BackendConnections>, metrics: Arc<Metrics>) {
    let mut changed = backend_connections.changed();
    let mut tasks = JoinSet::new();
    let mut known = HashMap::new();
    loop {
        let all = backend_connections.all();
        let ids: Vec<u64> = all.iter().map(|backend_connection| backend_connection.load().id()).collect();
        known.retain(|id, task: &mut tokio::task::AbortHandle| {
            let stays = ids.contains(id);
            if !stays {
                task.abort();
            }
            stays
        });
        for backend_connection in all {
            known.entry(backend_connection.load().id()).or_insert_with(|| {
                tasks.spawn(follow(backend_connection, backend_connections.clone(), metrics.clone()))
            });
        }
        while tasks.try_join_next().is_some() {}
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Checks one backend connection while the config says so.
async fn follow(
    backend_connection: Arc<BackendConnection>,
    backend_connections: Arc<BackendConnections>,
    metrics: Arc<Metrics>,
) {
    let mut changed = backend_connections.changed();
    loop {
        let check = backend_connections.health_check_of(backend_connection.group());
        let Some(check) = check else {
            let turn = backend_connection.wellness().forget();
            tell(turn, &backend_connection, &backend_connections, &metrics, "it is checked no more");
            if changed.changed().await.is_err() {
                return;
            }
            continue;
        };
        let outcome = ask(&backend_connection, &check).await;
        let reason = outcome.as_ref().err().cloned().unwrap_or_default();
        if outcome.is_err() {
            metrics.health_check_failures(backend_connection.group()).inc();
        }
        let turn = backend_connection.wellness().note(outcome.is_ok(), &check);
        tell(turn, &backend_connection, &backend_connections, &metrics, &reason);
        tokio::time::sleep(Duration::from_millis(check.interval_ms)).await;
    }
}

/// Asks a backend how it is.
///
/// # Errors
/// In words: it is not well.
async fn ask(backend_connection: &BackendConnection, check: &HealthCheck) -> Result<(), String> {
    let mut client = HealthClient::new(backend_connection.attached().channel());
    let mut request = Request::new(HealthCheckRequest { service: check.service.clone() });
    let timeout = Duration::from_millis(check.timeout_ms);
    request.set_timeout(timeout);
    let answered = tokio::time::timeout(timeout, client.check(request)).await;
    match answered {
        Ok(Ok(answer)) => match answer.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            status => Err(format!("it says {}", status.as_str_name())),
        },
        Ok(Err(status)) if status.code() == Code::Unimplemented => {
            if let Some(unsaid) = WITHOUT.turn() {
                let backend_connection = backend_connection.attached().name();
                tracing::warn!(
                    backend_connection,
                    unsaid,
                    "it has no health service, so it counts as healthy: add grpc.health.v1.Health to its services"
                );
            }
            Ok(())
        }
        Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
        Err(_) => Err(format!("no answer within {timeout:?}")),
    }
}

fn tell(
    turn: Option<HealthTurn>,
    backend_connection: &Arc<BackendConnection>,
    backend_connections: &Arc<BackendConnections>,
    metrics: &Metrics,
    reason: &str,
) {
    let Some(turn) = turn else { return };
    let (attached, dispatcher) = (backend_connection.attached(), backend_connection.dispatcher());
    match turn {
        HealthTurn::Unhealthy => {
            metrics.unhealthy(attached.group()).inc();
            if let Some(unsaid) = UNHEALTHY.turn() {
                tracing::warn!(
                    backend_connection = attached.name(),
                    reason,
                    unsaid,
                    "its health checks fail: it gets no new calls until they succeed"
                );
            }
        }
        HealthTurn::Healthy => {
            backend_connection.load().begin_slowly();
            if let Some(unsaid) = HEALTHY.turn() {
                tracing::info!(
                    backend_connection = attached.name(),
                    unsaid,
                    "its health checks succeed again"
                );
            }
        }
    }
    backend_connections.turned(dispatcher);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_so_many_outcomes_in_a_row_to_change() {
        let check = HealthCheck { unhealthy_after: 3, healthy_after: 2, ..HealthCheck::default() };
        let wellness = Wellness::default();
        let note = |is_good| wellness.note(is_good, &check);
        assert_eq!([note(false), note(false), note(true)], [None; 3]);
        assert_eq!([note(false), note(false), note(false)], [None, None, Some(HealthTurn::Unhealthy)]);
        assert!(wellness.is_unhealthy());
        assert_eq!([note(true), note(false), note(true)], [None; 3]);
        assert_eq!(note(true), Some(HealthTurn::Healthy));
        assert!(!wellness.is_unhealthy());
        assert_eq!(wellness.forget(), None);
    }
}
