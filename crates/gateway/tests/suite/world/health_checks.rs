//! Backends that say of themselves that they are not well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::HealthReporter;

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::probe::Probe;
use super::reload::reload;

const CHECK: &str = "[backends.health_check]\ninterval_ms = 10\nunhealthy_after = 2\nhealthy_after = 2\n";
const UNHEALTHY: &str = "tollfree_gateway_unhealthy_total{group=\"default\"}";
const FAILURES: &str = "tollfree_gateway_health_check_failures_total{group=\"default\"}";
const SERVING: i32 = ServingStatus::Serving as i32;
const NOT_SERVING: i32 = ServingStatus::NotServing as i32;

/// A backend with a health service.
struct Patient {
    probe: Probe,
    reporter: HealthReporter,
    stop: tokio::sync::oneshot::Sender<()>,
    task: JoinHandle<Result<(), tollfree::ServeError>>,
}

impl Patient {
    async fn attach(lab: &Lab) -> Patient {
        let before = lab.figure(&backend_connections_of("default")).await;
        let (reporter, health) = tonic_health::server::health_reporter();
        let probe = Probe::default();
        let server =
            tollfree::Server::builder().add_service(health).add_service(ProbeServer::new(probe.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let attaching = server.attach(lab.backends()).until(async { drop(stopped.await) });
        let task = tokio::spawn(attaching.into_future());
        lab.until_figure(&backend_connections_of("default"), |count| count > before).await;
        Patient { probe, reporter, stop, task }
    }

    async fn is(&self, status: tonic_health::ServingStatus) {
        self.reporter.set_service_status("", status).await;
    }

    fn calls(&self) -> usize {
        self.probe.begun.load(Ordering::SeqCst)
    }

    async fn end(self) {
        drop(self.stop);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").unwrap().unwrap();
    }
}

async fn until_health(lab: &Lab, wanted: i32) {
    let began = tokio::time::Instant::now();
    while lab.health("").await != Ok(wanted) {
        assert!(began.elapsed() < PATIENCE, "the gateway is not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_unhealthy_backend_gets_no_calls_until_it_is_well_again() {
    let lab = Lab::start(CHECK).await;
    let (sick, well) = (Patient::attach(&lab).await, Patient::attach(&lab).await);
    let mut client = lab.client().await;
    sick.is(tonic_health::ServingStatus::NotServing).await;
    lab.until_figure(UNHEALTHY, |count| count == 1.0).await;
    let before = (sick.calls(), well.calls());
    for _ in 0..20 {
        client.unary(Ask::default()).await.unwrap();
    }
    assert_eq!((sick.calls() - before.0, well.calls() - before.1), (0, 20));
    assert_eq!(lab.health(PROBE).await, Ok(SERVING), "the service still has a backend");
    sick.is(tonic_health::ServingStatus::Serving).await;
    let began = tokio::time::Instant::now();
    while sick.calls() == before.0 {
        assert!(began.elapsed() < PATIENCE, "it never gets calls again");
        client.unary(Ask::default()).await.unwrap();
    }
    sick.end().await;
    well.end().await;
}

/// Where all are unhealthy, calls wait for as long as for a backend that is not there, and the gateway's own health says it, to watchers too.
#[tokio::test]
async fn where_nobody_is_well_calls_end_in_words_and_health_tells_it() {
    let lab = Lab::start(&format!("limits.attach_wait_ms = 100\n{CHECK}")).await;
    let only = Patient::attach(&lab).await;
    let mut client = lab.client().await;
    client.unary(Ask::default()).await.unwrap();
    let mut watch = tonic_health::pb::health_client::HealthClient::new(lab.channel().await);
    let mut watched = watch.watch(HealthCheckRequest { service: PROBE.into() }).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, SERVING);
    only.is(tonic_health::ServingStatus::NotServing).await;
    assert_eq!(watched.message().await.unwrap().unwrap().status, NOT_SERVING);
    until_health(&lab, NOT_SERVING).await;
    let refused = client.unary(Ask::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("nobody who serves tollfree.probe.v1.Probe is healthy"), "{refused}");
    // Without the check, it is none's business.
    reload(&lab, "").await.unwrap();
    until_health(&lab, SERVING).await;
    client.unary(Ask::default()).await.unwrap();
    drop(watched);
    only.end().await;
}

/// A health service that never answers, as one in a process that is stuck.
struct Stuck;

#[tonic::async_trait]
impl Health for Stuck {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        std::future::pending().await
    }

    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("it is not watched"))
    }
}

#[tokio::test]
async fn a_check_that_is_not_answered_has_failed_and_a_backend_without_the_service_is_well() {
    let lab = Lab::start(&format!("{CHECK}timeout_ms = 500\n")).await;
    let without = lab.attach("default").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tollfree::Server::builder()
        .add_service(HealthServer::new(Stuck))
        .add_service(ProbeServer::new(Probe::default()));
    let attaching = server.attach(lab.backends()).until(async { drop(stopped.await) });
    let task = tokio::spawn(attaching.into_future());
    lab.until_figure(UNHEALTHY, |count| count >= 1.0).await;
    lab.until_figure(FAILURES, |count| count >= 2.0).await;
    let before = without.probe.begun.load(Ordering::SeqCst);
    let mut client = lab.client().await;
    for _ in 0..10 {
        client.unary(Ask::default()).await.unwrap();
    }
    assert_eq!(without.probe.begun.load(Ordering::SeqCst) - before, 10);
    drop(stop);
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").unwrap().unwrap();
    without.stop().await;
}
