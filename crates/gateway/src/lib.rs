//! The gateway: a process that speaks gRPC to the world, and hands backends nothing but requests.
//!
//! Clients come by HTTP/2, plain or with TLS; backends attach at a socket
//! ([`tollfree::Server::attach`]) and are called through rings. A call goes to the attached backend connection with the fewest calls under
//! way, or by another [`Policy`]. Both bodies pass frame by frame: a side that reads slowly slows the other side down, and messages, compressed ones too,
//! stay as they are. What the world may ask for is limited ([`Limits`]); what is refused is said in words, and counted.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollfree_gateway::{Config, Gateway, Source};
//! let config = Config::read(&[Source::File("gateway.toml".into()), Source::Environment])?;
//! let gateway = Gateway::bind(config).await?;
//! println!("{:?}", gateway.addresses());
//! gateway.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod access_line;
mod access_log;
mod account;
mod arrival;
mod backend_connection;
mod backend_connections;
mod backends;
mod bodies;
mod client;
mod config;
mod connection;
mod connections;
mod conversion;
mod deadline;
mod descriptors;
mod egress;
mod files;
mod frontend;
mod hang;
mod health;
mod inside;
mod listeners;
pub mod load_balancing;
mod memory;
mod metrics;
mod mirror;
mod monitor;
mod notices;
mod outliers;
mod page;
mod passed;
mod peer;
mod policies;
mod policy;
mod process_metrics;
mod proxied;
mod reflection;
mod refusal;
mod reload;
mod routing;
mod server_names;
mod shares;
mod space;
mod tables;
mod target;
mod tls;
mod traces;
mod unread;
mod watchdog;
mod web;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollfree::gateway::{BindError, aside};

use crate::access_log::AccessLog;
use crate::backend_connections::BackendConnections;
use crate::backends::{Backends, Tenants};
use crate::egress::{Egress, EgressFiles};
use crate::frontend::Frontend;
use crate::health::Health;
use crate::listeners::{Bound, Places};
use crate::metrics::Metrics;
use crate::page::{Control, Page};
use crate::passed::Passed;
use crate::policy::ListenerPolicies;
use crate::reload::Current;
use crate::traces::Traces;

pub use backends::BackendsError;
pub use config::{
    AccessAction, AccessLogConfig, AccessPolicy, AccessRule, AnswerEdits, BackendsConfig, CallQuota, Config,
    ConfigError, ConfigErrors, Device, EgressConfig, FileMode, Group, GroupDevice, GroupLoadBalancing,
    HeaderEdits, JwtIssuer, Limits, Listener, LoadBalancing, MetricsConfig, MirrorConfig, NamedCertificate,
    OnUnconvertible, Policy, Profile, QuotaShare, Register, RequestEdits, RouteRule, Source, Stream, Tls,
    TlsVersion, TracesConfig, UserGroup, Wait, WebConfig, Word,
};
pub use descriptors::raise_descriptor_limit;
pub use files::Finding;
pub use listeners::ListenError;
pub use policy::PolicyError;
pub use reload::{ReloadError, Reloader};
pub use tables::DescriptorsError;
pub use tls::TlsError;
pub use tollfree::gateway::{RateLimitedLog, read_file};

/// Why a gateway can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket of backends.
    #[error(transparent)]
    Backends(#[from] BackendsError),
    /// A group's descriptor set.
    #[error(transparent)]
    Descriptors(#[from] DescriptorsError),
    /// There is no thread to read files on.
    #[error("the files that the config names can't be read: {0}")]
    Files(std::io::Error),
    /// The page of figures.
    #[error("metrics.address: {address} can't be bound: {source}")]
    Metrics {
        /// As configured.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A policy of listeners.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The socket at which its state is read.
    #[error("the control socket, next to backends.socket: {0}")]
    Control(BindError),
    /// The access log.
    #[error("access_log.path: {path} can't be opened: {source}")]
    AccessLog {
        /// As configured.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The collector of traces.
    #[error("traces.endpoint: {endpoint} can't be used: {source}")]
    Traces {
        /// As configured.
        endpoint: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Calls to elsewhere.
    #[error("{key}: {problem}")]
    Egress {
        /// Of the config.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A gateway whose sockets are bound.
pub struct Gateway {
    listeners: Vec<Bound>,
    backends: Backends,
    page: Option<TcpListener>,
    control: Option<Control>,
    frontend: Arc<Frontend>,
    stop: watch::Sender<bool>,
    reloader: Reloader,
}

/// A gateway's tasks.
struct Serving {
    frontend: Arc<Frontend>,
    /// Nobody new is let in.
    stop: watch::Sender<bool>,
    /// Backends may go.
    let_go: watch::Sender<bool>,
    /// Connections from the world.
    entrances: JoinSet<()>,
    /// Backends.
    inside: JoinSet<()>,
    /// The control socket.
    asked: JoinSet<()>,
    /// What ends with this.
    _others: JoinSet<()>,
}

impl Serving {
    async fn end(mut self) {
        watchdog::stopping();
        // The next gateway may take its place before this one's last call is over.
        self.asked.shutdown().await;
        self.stop.send_replace(true);
        let drained = async { while self.entrances.join_next().await.is_some() {} };
        // Connections end by themselves at their drain; this is for those that have only just begun.
        let drain = Duration::from_millis(self.frontend.config.load().limits.drain_ms);
        let end = tokio::time::Instant::now() + drain + Duration::from_secs(1);
        _ = tokio::time::timeout_at(end, drained).await;
        self.let_go.send_replace(true);
        let let_go = async { while self.inside.join_next().await.is_some() {} };
        _ = tokio::time::timeout_at(end + Duration::from_secs(1), let_go).await;
        if let Some(access_log) = self.frontend.access_log.clone() {
            _ = tokio::task::spawn_blocking(move || access_log.end()).await;
        }
        if self.frontend.traces.is_some() {
            // It waits for the collector.
            let frontend = self.frontend.clone();
            let told = tokio::task::spawn_blocking(move || frontend.traces.as_ref().map(Traces::end));
            _ = told.await;
        }
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Binds all sockets of a config. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`StartError`] names the key of the config.
    pub async fn bind(config: Config) -> Result<Gateway, StartError> {
        let config = Arc::new(config);
        descriptors::warn_if_short(&config);
        let metrics = Arc::new(Metrics::new());
        let current: Current = Arc::new(ArcSwap::new(config.clone()));
        let backend_connections = Arc::new(BackendConnections::new(current.clone(), metrics.clone()));
        let named = config.clone();
        let files = aside(move || (tables::read(&named), EgressFiles::read(&named.egress))).await;
        let (tables, egress_files) = files.map_err(StartError::Files)?;
        backend_connections.use_tables(tables?);
        let tenants = Arc::new(Tenants::new(current.clone()));
        let egress_files = egress_files.map_err(|(key, problem)| StartError::Egress { key, problem })?;
        let egress = Egress::new(
            tenants.clone(),
            backend_connections.clone(),
            metrics.clone(),
            config.egress.clone(),
            egress_files,
        );
        let policies = Arc::new(ListenerPolicies::new(metrics.clone()));
        let (own, named) = (policies.clone(), config.clone());
        let prepared = aside(move || own.prepare(&named)).await.map_err(StartError::Files)?;
        policies.use_these(prepared?);
        let mut passed = Passed::to_this_process();
        let mut listeners = Vec::new();
        for (name, listener) in &config.listeners {
            listeners.push(Bound::bind(name, listener, &mut passed).await?);
        }
        let page = match &config.metrics.address {
            None => None,
            Some(address) => Some(
                TcpListener::bind(address)
                    .await
                    .map_err(|source| StartError::Metrics { address: address.clone(), source })?,
            ),
        };
        let access_log = AccessLog::open(&config.access_log, metrics.access_lines_left_out.clone());
        let access_log = access_log.map_err(|source| StartError::AccessLog {
            path: config.access_log.path.clone().unwrap_or_default(),
            source,
        })?;
        let socket = &config.backends.socket;
        let reloader = Reloader {
            access_log: access_log.clone(),
            current: current.clone(),
            policies: policies.clone(),
            tenants: tenants.clone(),
            backend_connections: backend_connections.clone(),
            metrics: metrics.clone(),
            certificates: listeners
                .iter()
                .filter_map(|bound: &Bound| Some((bound.name().to_owned(), bound.certificates()?.clone())))
                .collect(),
            turn: Arc::default(),
            reloading: Arc::default(),
        };
        let backends =
            Backends::bind(&config, tenants, backend_connections.clone(), metrics.clone(), Arc::new(egress))
                .await?;
        let control = match tollfree_control::control_path(socket) {
            // An abstract address has no directory to put it into.
            None => None,
            Some(path) => Some(Control::bind(path).await.map_err(StartError::Control)?),
        };
        let traces = config.traces.endpoint.as_ref().map(|endpoint| {
            Traces::new(endpoint, &config.traces)
                .map_err(|source| StartError::Traces { endpoint: endpoint.clone(), source: source.into() })
        });
        let traces = traces.transpose()?;
        let stop = watch::Sender::new(false);
        let health = Health::new(backend_connections.clone(), stop.subscribe());
        let frontend = Arc::new(Frontend {
            config: current,
            policies,
            backend_connections,
            connections: Arc::default(),
            metrics,
            traces,
            access_log,
            health,
        });
        Ok(Gateway { listeners, backends, page, control, frontend, stop, reloader })
    }

    /// What gives it another config while it runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Where it can be reached: each listener by its name, `backends`, `backends.stream` if processes of other hosts may attach, `control` unless that is abstract, and `metrics` if there is
    /// such a page.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let mut addresses: BTreeMap<String, String> = self
            .listeners
            .iter()
            .map(|bound| (format!("listeners.{}", bound.name()), bound.address()))
            .collect();
        addresses.insert("backends".into(), self.backends.address().into());
        if let Some(stream) = self.backends.stream_address() {
            addresses.insert("backends.stream".into(), stream);
        }
        if let Some(control) = &self.control {
            addresses.insert("control".into(), format!("unix:{}", control.path().display()));
        }
        if let Some(address) = self.page.as_ref().and_then(|page| page.local_addr().ok()) {
            addresses.insert("metrics".into(), format!("http://{address}/metrics"));
        }
        addresses
    }

    /// Serves until `stop` resolves. Then nobody new is let in, calls under way are answered for as long as `limits.drain_ms`
    /// allows, and backends are let go.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        // What is generic is compiled once more for each program that calls it: that is to be nothing but the waiting.
        let serving = self.serve();
        stop.await;
        serving.end().await;
    }

    fn serve(self) -> Serving {
        let Gateway { listeners, backends, page, control, frontend, stop, reloader } = self;
        let let_go = watch::Sender::new(false);
        let mut entrances = JoinSet::new();
        let places = Arc::new(Places::new(frontend.config.clone(), frontend.metrics.clone()));
        for bound in listeners {
            entrances.spawn(bound.serve(frontend.clone(), places.clone(), stop.subscribe()));
        }
        let mut others = JoinSet::new();
        if let Some(page) = page {
            others.spawn(page::serve(Page::Metrics(page, frontend.clone())));
        }
        let mut asked = JoinSet::new();
        if let Some(control) = control {
            asked.spawn(page::serve(Page::Control(control, frontend.clone(), reloader)));
        }
        others.spawn(hang::watch(frontend.backend_connections.clone(), frontend.metrics.clone()));
        others.spawn(watchdog::feed());
        let mut inside = JoinSet::new();
        inside.spawn(backends.serve(stop.subscribe(), let_go.subscribe()));
        watchdog::ready();
        Serving { frontend, stop, let_go, entrances, inside, asked, _others: others }
    }
}
