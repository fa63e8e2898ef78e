//! Calls of business processes to elsewhere: to their own group, and to the targets that the config allows it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use parking_lot::Mutex;
use tollfree::{Channel, PeerIdentity};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Certificate, ClientTlsConfig};
use tower_service::Service;

use crate::business::Tenants;
use crate::client::{Client, remove_ours};
use crate::deadline;
use crate::gateway::{call, for_the_world};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::workers::{Place, Workers};

/// The way out, for all groups.
pub(crate) struct Outward {
    tenants: Arc<Tenants>,
    workers: Arc<Workers>,
    metrics: Arc<Metrics>,
    /// Whose certificates are trusted.
    authorities: Option<Vec<u8>>,
    /// By target; only targets that the config names get here.
    channels: Mutex<HashMap<String, Channel>>,
}

impl Outward {
    pub(crate) fn new(
        tenants: Arc<Tenants>,
        workers: Arc<Workers>,
        metrics: Arc<Metrics>,
        authorities: Option<Vec<u8>>,
    ) -> Outward {
        Outward { tenants, workers, metrics, authorities, channels: Mutex::default() }
    }

    fn channel(&self, target: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(target) {
            return Ok(channel.clone());
        }
        let mut builder = Channel::builder(target);
        if let Some(authorities) = &self.authorities {
            let authorities = Certificate::from_pem(authorities);
            builder = builder.tls_config(ClientTlsConfig::new().ca_certificate(authorities));
        }
        let channel = builder
            .connect_lazy()
            .map_err(|error| Status::unavailable(format!("{target} can't be called: {error}")))?;
        channels.insert(target.into(), channel.clone());
        Ok(channel)
    }
}

/// The calls of one session of a business process, which all have one target.
#[derive(Clone)]
pub(crate) struct Via {
    outward: Arc<Outward>,
    target: Arc<str>,
    client: Client,
    may_call: bool,
}

impl Via {
    pub(crate) fn new(outward: &Arc<Outward>, peer: PeerIdentity, target: &str) -> Via {
        let may_call = outward.tenants.may_call(peer.uid, target);
        if !may_call {
            outward.metrics.refused(Refusal::Target);
            tracing::warn!(?peer, target, "a process may not call there");
        }
        Via {
            outward: outward.clone(),
            target: target.into(),
            client: Client::at(&format!("shm:pid={},uid={}", peer.pid, peer.uid)),
            may_call,
        }
    }

    async fn call_out(self, mut request: Request<Body>) -> Result<Response<Answered>, Status> {
        let began = Instant::now();
        let target = &*self.target;
        if !self.may_call {
            return Err(Status::permission_denied(format!(
                "no group of this process may call {target}: name it under via in the shepherd's config"
            )));
        }
        if !deadline::shrink(request.headers_mut(), began) {
            return Err(Status::deadline_exceeded("the call's time was over before it could be handed on"));
        }
        let Some(group) = target.strip_prefix("group:") else {
            remove_ours(request.headers_mut());
            let response = call(self.outward.channel(target)?, request).await?;
            return Ok(response.map(|body| Answered { body, _place: None }));
        };
        let path = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        let place = self.outward.workers.place_in(group, &path).map_err(|refused| {
            self.outward.metrics.refused(refused.why);
            refused.status
        })?;
        self.client.sign(request.headers_mut());
        let response = call(place.channel(), request).await.map_err(for_the_world)?;
        Ok(response.map(|body| Answered { body, _place: Some(place) }))
    }
}

impl Service<Request<Body>> for Via {
    type Response = Response<Answered>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answered>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().call_out(request))
    }
}

/// An answer's body, with the call's place at the worker that gives it.
pub(crate) struct Answered {
    body: Body,
    _place: Option<Place>,
}

impl http_body::Body for Answered {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
