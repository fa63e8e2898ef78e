//! Figures of channels and servers for Prometheus (feature `metrics`), in a registry of
//! [`prometheus_client`].
//!
//! One [`Metrics`] serves all channels and servers of a process that are given it
//! ([`ChannelBuilder::metrics`](crate::ChannelBuilder::metrics), [`Server::metrics`](crate::Server::metrics)). Calls have gRPC's names
//! (A66), with `_` for each `.`:
//!
//! | name | labels |
//! |---|---|
//! | `grpc_client_attempt_started_total` | `grpc_method`, `grpc_target` |
//! | `grpc_client_attempt_duration_seconds` | the same and `grpc_status` |
//! | `grpc_client_attempt_sent_total_compressed_message_size_bytes`, `…_rcvd_…` | the same |
//! | `grpc_client_call_duration_seconds` | the same |
//! | `grpc_server_call_started_total` | `grpc_method` |
//! | `grpc_server_call_duration_seconds` | `grpc_method`, `grpc_status` |
//! | `grpc_server_call_sent_total_compressed_message_size_bytes`, `…_rcvd_…` | the same |
//!
//! At a server a method has a label of its own once a call of it was served; until then, and beyond 1000 methods, it is
//! `other`. Sizes are those of messages without any framing. What goes by ref through a pool counts at its sender as the refs that are
//! sent in its place, if at all.
//!
//! The rest is the whole process's: `tollfree_looked_seconds_total`, `tollfree_parked_total`, `tollfree_woken_total` and
//! `tollfree_rung_total` are [`waits`](crate::waits); `tollfree_peer_deaths_total` counts sessions whose peer has gone without a word.
//! Of what was given the metrics, `tollfree_sessions`, `tollfree_ring_used_bytes` and `tollfree_ring_bytes` tell how full rings are, and
//! `tollfree_refusals_total` whom servers have turned away, by `reason`.

mod calls;
mod latency;
mod process;
mod sides;

use std::fmt;
use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use tollfree_driver_tokio::{Attachment, Refusals};
use tonic::Code;

use crate::metrics::calls::{ClientSide, ServerSide};
use crate::metrics::process::Watched;
use crate::metrics::sides::{Labels, Methods, Side};
use crate::status::status_name;

pub use calls::ServedCall;
pub(crate) use calls::{MadeCall, Outcome};
pub use latency::BOUNDS;
pub(crate) use process::{SessionsOf, Shed};

/// Counts the calls of those channels and servers that are given it. Clones count into the same figures.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let metrics = tollfree::metrics::Metrics::new(&mut registry);
/// let channel = tollfree::Channel::builder("shm:///run/app/greeter.sock").metrics(&metrics).connect().await?;
/// // let mut client = GreeterClient::new(channel);
/// let mut page = String::new();
/// prometheus_client::encoding::text::encode(&mut page, &registry)?;
/// println!("{page}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<All>);

struct All {
    server: Arc<ServerSide>,
    client: Arc<ClientSide>,
    watched: Arc<Watched>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Calls of one method at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// As `acme.v1.Orders/Get`, or `other`.
    pub method: Arc<str>,
    /// Calls that have begun.
    pub started: u64,
    /// Calls that have ended, by the name of their status.
    pub ended: Vec<(&'static str, u64)>,
    /// How many calls took how long: up to each of [`BOUNDS`], and beyond.
    pub latency_counts: Vec<u64>,
}

impl Metrics {
    /// Figures in a registry. One of these is for a whole process: a second one in the same registry would have the same names.
    pub fn new(registry: &mut Registry) -> Metrics {
        let side = Side::register(registry.sub_registry_with_prefix("grpc_server_call"), "Calls");
        let server = Arc::new(ServerSide { side, methods: Methods::default() });
        let attempts =
            Side::register(registry.sub_registry_with_prefix("grpc_client_attempt"), "Attempts of calls");
        let client =
            Arc::new(ClientSide { attempts, duration: Family::default(), methods: Methods::default() });
        let (name, help) = ("grpc_client_call_duration", "Time of calls, all attempts together");
        registry.register_with_unit(name, help, Unit::Seconds, client.duration.clone());
        let watched = Arc::new(Watched::default());
        registry.register_collector(Box::new(watched.clone()));
        Metrics(Arc::new(All { server, client, watched }))
    }

    /// Begins a call, for infrastructure that serves calls by itself. `path` is as `acme.v1.Orders/Get`.
    pub fn serve(&self, path: &str) -> ServedCall {
        ServedCall::begin(&self.0.server, path.strip_prefix('/').unwrap_or(path))
    }

    /// The calls served, by method, in the order of their names.
    pub fn served(&self) -> Vec<MethodMetrics> {
        let all = self.0.server.methods.all();
        all.into_iter().filter_map(|method| self.served_of(method)).collect()
    }

    fn served_of(&self, method: Arc<str>) -> Option<MethodMetrics> {
        let side = &self.0.server.side;
        let labels = Labels { method, target: None, status: None };
        let started = side.started.get(&labels)?.get();
        let (mut ended, mut latency_counts) = (Vec::new(), vec![0; BOUNDS.len() + 1]);
        for code in (0..17).map(Code::from_i32) {
            let counts = side.duration.get(&labels.ended(code)).map(|latency| latency.counts());
            let Some(counts) = counts else { continue };
            ended.push((status_name(code), counts.iter().sum()));
            latency_counts.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
        Some(MethodMetrics { method: labels.method, started, ended, latency_counts })
    }

    /// Begins a call of a channel.
    pub(crate) fn make(&self, path: &str, target: &Arc<str>) -> MadeCall {
        MadeCall::begin(&self.0.client, path, target)
    }

    pub(crate) fn watch_session(&self, session: &Arc<Attachment>) {
        self.0.watched.session(session);
    }

    pub(crate) fn watch_channel(&self, sessions_of: SessionsOf) {
        self.0.watched.channel(sessions_of);
    }

    pub(crate) fn watch_clients(&self, refusals: Refusals) {
        self.0.watched.clients(refusals);
    }

    pub(crate) fn watch_calls(&self, shed: Shed) {
        self.0.watched.calls(shed);
    }
}
