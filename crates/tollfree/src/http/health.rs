//! Watching whether a server says that it serves: grpc.health.v1, by the connection that calls use.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::Notify;
use tollfree_driver_tokio::RateLimitedLog;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower_service::Service;

use crate::endpoint::balance::{Picked, Watching};
use crate::endpoint::{Connection, Health, Subchannel};
use crate::http::call::attempt;
use crate::http::response_body::ResponseBody;

/// Before a watch that ended is begun anew; doubled each time up to the maximum.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// One connection, for a generated client.
#[derive(Clone)]
struct Fixed(Picked);

impl Service<Request<Body>> for Fixed {
    type Response = Response<ResponseBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let picked = self.0.clone();
        Box::pin(async move { attempt(&picked, None, request).await.map_err(|failed| failed.status) })
    }
}

/// Keeps an endpoint marked as its health service says, for as long as it is polled. A server without a health service
/// counts as healthy, as gRPC says; one whose watch breaks off does not until it answers again.
pub(crate) fn watch<'a>(
    endpoint: &'a Arc<Subchannel>,
    connection: &'a Connection,
    service: &'a str,
    changed: &'a Notify,
) -> Watching<'a> {
    Box::pin(async move {
        let picked = Picked { endpoint: endpoint.clone(), connection: connection.clone() };
        let mut client = HealthClient::new(Fixed(picked));
        let mut pause = PAUSE_FIRST;
        let mut last = None;
        // A server may change its mind as often as it likes.
        let lines = RateLimitedLog::new();
        let mut say = |healthy: bool, why: &str| {
            endpoint.set_health(if healthy { Health::Good } else { Health::Bad });
            if last.replace(healthy) != Some(healthy) {
                if let Some(unsaid) = lines.turn() {
                    tracing::info!(address = %endpoint.name, service, healthy, why, unsaid, "health");
                }
                changed.notify_waiters();
            }
        };
        loop {
            let status = match client.watch(HealthCheckRequest { service: service.into() }).await {
                Ok(response) => {
                    let mut answers = response.into_inner();
                    loop {
                        match answers.message().await {
                            Ok(Some(answer)) => {
                                pause = PAUSE_FIRST;
                                let serving = answer.status() == ServingStatus::Serving;
                                say(serving, answer.status().as_str_name());
                            }
                            Ok(None) => break Status::unavailable("the watch has ended"),
                            Err(status) => break status,
                        }
                    }
                }
                Err(status) => status,
            };
            if status.code() == Code::Unimplemented {
                say(true, "the server has no health service");
                return std::future::pending().await;
            }
            say(false, status.message());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    })
}
