//! gRPC's health service: who is attached.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use http::Response;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::body::Body;
use tonic::{Status, async_trait};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{self, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_service::Service;

use crate::backend_connections::BackendConnections;
use crate::routing::Standing;

/// Answers for all services; the empty name is the gateway's own.
#[derive(Clone)]
pub(crate) struct Health {
    inner: HealthServer<Answers>,
    answers: Answers,
}

impl Health {
    pub(crate) fn new(
        backend_connections: Arc<BackendConnections>,
        stopping: watch::Receiver<bool>,
    ) -> Health {
        let answers = Answers { backend_connections, stopping };
        Health { inner: HealthServer::new(answers.clone()), answers }
    }

    /// Whether the gateway can be sent calls: it does not stop, and some backend takes calls.
    pub(crate) fn is_serving(&self) -> bool {
        self.answers.status("") == ServingStatus::Serving
    }

    pub(crate) async fn answer<B>(&self, request: http::Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        match self.inner.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

#[derive(Clone)]
struct Answers {
    backend_connections: Arc<BackendConnections>,
    stopping: watch::Receiver<bool>,
}

impl Answers {
    fn status(&self, service: &str) -> ServingStatus {
        if *self.stopping.borrow() {
            return ServingStatus::NotServing;
        }
        match self.backend_connections.standing(service) {
            _ if service.is_empty() => match self.backend_connections.take_calls() {
                true => ServingStatus::Serving,
                false => ServingStatus::NotServing,
            },
            Standing::Served => ServingStatus::Serving,
            Standing::Absent => ServingStatus::NotServing,
            Standing::Unknown => ServingStatus::ServiceUnknown,
        }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[async_trait]
impl health_server::Health for Answers {
    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.status(&service) {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("there is no service {service} here")))
            }
            status => Ok(tonic::Response::new(response(status))),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let answers = self.clone();
        let attached = WatchStream::new(self.backend_connections.changed()).map(drop);
        let stopped = WatchStream::from_changes(self.stopping.clone()).map(drop);
        let mut last = None;
        let changes = futures_util::stream::select(attached, stopped).filter_map(move |()| {
            let status = answers.status(&service);
            let is_new = last.replace(status) != Some(status);
            std::future::ready(is_new.then(|| Ok(response(status))))
        });
        Ok(tonic::Response::new(Box::pin(changes)))
    }
}
