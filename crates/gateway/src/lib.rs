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
#[cfg(test)]
mod dashboards;
mod deadline;
mod descriptors;
mod egress;
mod files;
mod frontend;
mod hang;
mod health;
mod health_check;
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
mod takeover;
mod target;
mod tls;
mod traces;
mod unread;
mod watchdog;
mod web;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollfree::gateway::{BindError, SocketFile, aside};

use crate::access_log::AccessLog;
use crate::backend_connections::BackendConnections;
use crate::backends::{Backends, Going, Tenants};
use crate::egress::{Egress, EgressFiles};
use crate::frontend::Frontend;
use crate::health::Health;
use crate::listeners::{Bound, Places};
use crate::metrics::Metrics;
use crate::page::{Control, Page};
use crate::passed::Passed;
use crate::policy::ListenerPolicies;
use crate::reload::Current;
use crate::takeover::{HandOver, Sockets, Takeover};
use crate::traces::Traces;

pub use backends::BackendsError;
pub use config::{
    AccessAction, AccessLogConfig, AccessPolicy, AccessRule, AnswerEdits, BackendsConfig, CallQuota, Config,
    ConfigError, ConfigErrors, Device, EgressConfig, ExtAuthz, FileMode, Group, GroupDevice,
    GroupLoadBalancing, HeaderEdits, HealthCheck, JwtIssuer, Limits, Listener, LoadBalancing, MetricsConfig,
    MirrorConfig, NamedCertificate, OnUnconvertible, Policy, Profile, QuotaShare, Register, RequestEdits,
    RouteRule, Source, Stream, Tls, TlsVersion, TracesConfig, UserGroup, Wait, WebConfig, Word,
};
pub use descriptors::raise_descriptor_limit;
pub use files::Finding;
pub use listeners::ListenError;
pub use policy::PolicyError;
pub use reload::{ReloadError, Reloader};
pub use tables::DescriptorsError;
pub use takeover::OpenError;
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
    /// The page of figures, or the one for probes.
    #[error("{key}: {address} can't be bound: {source}")]
    Page {
        /// The key.
        key: &'static str,
        /// As configured.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A policy of listeners.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// What the config names, found before the place of a running gateway is taken.
    #[error("the config is of no use, and the running gateway goes on: {}", findings(.0))]
    Findings(Vec<Finding>),
    /// The place of a running gateway.
    #[error("take_over: {0}")]
    TakeOver(#[from] OpenError),
    /// A socket file that should have come with the place of a running gateway.
    #[error("take_over: {0} is gone, so nobody finds the socket that was taken over: start again")]
    FileGone(String),
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

fn findings(all: &[Finding]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A gateway that serves.
pub struct Gateway {
    addresses: BTreeMap<String, String>,
    reloader: Reloader,
    serving: Serving,
}

/// A gateway's tasks.
struct Serving {
    frontend: Arc<Frontend>,
    /// Nobody new is let in.
    stop: watch::Sender<bool>,
    /// Channels that call elsewhere may go.
    via_go: watch::Sender<bool>,
    /// Backends may go.
    let_go: watch::Sender<bool>,
    /// Connections from the world.
    entrances: JoinSet<()>,
    /// Backends.
    inside: JoinSet<()>,
    /// The control socket.
    asked: JoinSet<()>,
    /// The pages of figures and for probes.
    pages: JoinSet<()>,
    /// What ends with this.
    others: JoinSet<()>,
    /// Another gateway may take this one's place.
    hand_over: Option<Arc<HandOver>>,
    /// Of the sockets, unless they are still the gateway's whose place this one is about to take.
    files: Vec<SocketFile>,
}

impl Serving {
    async fn end(mut self) {
        watchdog::stopping();
        let is_taken = self.hand_over.as_ref().is_some_and(|hand_over| hand_over.is_taken());
        if let Some(hand_over) = &self.hand_over {
            hand_over.end().await;
        }
        // The next gateway may take its place before this one's last call is over.
        self.asked.shutdown().await;
        if is_taken {
            self.pages.shutdown().await;
            // Channels find the other gateway already.
            self.via_go.send_replace(true);
            self.files.into_iter().for_each(SocketFile::leave);
        } else {
            drop(self.files);
        }
        self.stop.send_replace(true);
        let drained = async { while self.entrances.join_next().await.is_some() {} };
        // Connections end by themselves at their drain; this is for those that have only just begun.
        let drain = Duration::from_millis(self.frontend.config.load().limits.drain_ms);
        let end = tokio::time::Instant::now() + drain + Duration::from_secs(1);
        _ = tokio::time::timeout_at(end, drained).await;
        self.via_go.send_replace(true);
        self.let_go.send_replace(true);
        let let_go = async { while self.inside.join_next().await.is_some() {} };
        _ = tokio::time::timeout_at(end + Duration::from_secs(1), let_go).await;
        drop(self.others);
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
    /// Binds all sockets of a config and serves. With `take_over`, takes the place of the gateway that runs with the same
    /// `backends.socket`, if there is such a gateway: that one ends then, and no call is lost. Must be called in a tokio runtime with IO and time.
    ///
    /// Dropped before it has resolved, it has changed nothing, and a gateway whose place was to be taken goes on.
    ///
    /// # Errors
    /// [`StartError`] names the key of the config. A running gateway goes on then.
    pub async fn bind(config: Config) -> Result<Gateway, StartError> {
        let config = Arc::new(config);
        descriptors::warn_if_short(&config);
        let control_path = tollfree_control::control_path(&config.backends.socket);
        let claim = match &control_path {
            Some(path) if config.take_over => {
                let checked = config.clone();
                let found = aside(move || checked.check_surroundings()).await.map_err(StartError::Files)?;
                let errors: Vec<Finding> = found.into_iter().filter(|finding| finding.is_error).collect();
                if !errors.is_empty() {
                    return Err(StartError::Findings(errors));
                }
                let claim = Takeover::begin(path).await?;
                if claim.is_none() {
                    tracing::info!(path = %path.display(), "no gateway runs there: no place is to be taken");
                }
                claim
            }
            _ => None,
        };
        Gateway::open(config, control_path, claim).await
    }

    async fn open(
        config: Arc<Config>,
        control_path: Option<PathBuf>,
        mut claim: Option<Takeover>,
    ) -> Result<Gateway, StartError> {
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
        let (mut listeners, mut files, mut sockets) = (Vec::new(), Vec::new(), Sockets::default());
        for (name, listener) in &config.listeners {
            let (bound, file) = Bound::bind(name, listener, &mut passed, claim.as_mut()).await?;
            bound.offer(&listener.address, &mut sockets);
            listeners.push(bound);
            files.extend(file);
        }
        let mut pages = Vec::new();
        let kinds =
            [(page::METRICS_KEY, &config.metrics.address), (page::PROBES_KEY, &config.probes.address)];
        for (key, address) in kinds.into_iter().filter_map(|(key, address)| Some((key, address.as_ref()?))) {
            let page = page::bind(key, address, claim.as_mut()).await;
            let page = page.map_err(|source| StartError::Page { key, address: address.clone(), source })?;
            sockets.add_tcp(key.into(), address, Arc::downgrade(&page));
            pages.push((key, page));
        }
        let access_log = AccessLog::open(&config.access_log, metrics.access_lines_left_out.clone());
        let access_log = access_log.map_err(|source| StartError::AccessLog {
            path: config.access_log.path.clone().unwrap_or_default(),
            source,
        })?;
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
        let mut backends = Backends::bind(
            &config,
            tenants,
            backend_connections.clone(),
            metrics.clone(),
            Arc::new(egress),
            claim.as_mut(),
        )
        .await?;
        backends.offer(&mut sockets);
        let control = match control_path {
            // An abstract address has no directory to put it into.
            None => None,
            Some(path) => {
                let (control, file) =
                    Control::bind(path, claim.as_mut()).await.map_err(StartError::Control)?;
                control.offer(&mut sockets);
                files.extend(file);
                Some(control)
            }
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
        let addresses = addresses(&listeners, &backends, control.as_ref(), &pages);
        let mut serving = Serving::new(frontend, stop, files);
        let orders = if let Some(claim) = &mut claim {
            // Nothing can fail here any more but the other gateway.
            claim.ready().await?;
            backends.publish().await?;
            let orders = serving.let_backends_in(backends);
            claim.entered().await?;
            orders
        } else {
            serving.let_backends_in(backends)
        };
        serving.serve(listeners, pages, control, sockets, (&reloader, orders));
        if let Some(claim) = claim {
            claim.serving().await?;
            for path in own_paths(&config) {
                let file = SocketFile::adopt(&path);
                let file = file.ok_or_else(|| StartError::FileGone(path.display().to_string()))?;
                serving.files.push(file);
            }
        }
        watchdog::ready();
        Ok(Gateway { addresses, reloader, serving })
    }

    /// What gives it another config while it runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Where it can be reached: each listener by its name, `backends`, `backends.stream` if processes of other hosts may attach, `control` unless that is abstract, `metrics` and `probes` if there are
    /// such pages.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.addresses.clone()
    }

    /// Serves until `stop` resolves, or another gateway has taken its place. Then nobody new is let in, calls under way are answered for as long
    /// as `limits.drain_ms` allows, and backends are let go.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        // What is generic is compiled once more for each program that calls it: that is to be nothing but the waiting.
        let taken = self.serving.taken();
        tokio::select! {
            () = stop => {}
            () = taken => {}
        }
        self.serving.end().await;
    }
}

fn addresses(
    listeners: &[Bound],
    backends: &Backends,
    control: Option<&Control>,
    pages: &[(&str, Arc<TcpListener>)],
) -> BTreeMap<String, String> {
    let mut addresses: BTreeMap<String, String> =
        listeners.iter().map(|bound| (format!("listeners.{}", bound.name()), bound.address())).collect();
    addresses.insert("backends".into(), backends.address().into());
    if let Some(stream) = backends.stream_address() {
        addresses.insert("backends.stream".into(), stream);
    }
    if let Some(control) = control {
        addresses.insert("control".into(), format!("unix:{}", control.path().display()));
    }
    for (key, page) in pages {
        let Ok(address) = page.local_addr() else { continue };
        match *key {
            page::METRICS_KEY => addresses.insert("metrics".into(), format!("http://{address}/metrics")),
            _ => addresses.insert("probes".into(), format!("http://{address}")),
        };
    }
    addresses
}

/// The socket files of a gateway, but the one of backends.
fn own_paths(config: &Config) -> Vec<PathBuf> {
    let world = config.listeners.values().filter_map(|listener| listener.address.strip_prefix("unix:"));
    let control = tollfree_control::control_path(&config.backends.socket);
    world.map(PathBuf::from).chain(control).collect()
}

impl Serving {
    fn new(frontend: Arc<Frontend>, stop: watch::Sender<bool>, files: Vec<SocketFile>) -> Serving {
        Serving {
            frontend,
            stop,
            via_go: watch::Sender::new(false),
            let_go: watch::Sender::new(false),
            entrances: JoinSet::new(),
            inside: JoinSet::new(),
            asked: JoinSet::new(),
            pages: JoinSet::new(),
            others: JoinSet::new(),
            hand_over: None,
            files,
        }
    }

    /// Resolves when another gateway has taken the place.
    fn taken(&self) -> impl Future<Output = ()> + use<> {
        let taken = self.hand_over.as_ref().map(|hand_over| hand_over.taken());
        async move {
            match taken {
                Some(taken) => taken.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Lets backends in. Gives the way to those who do.
    fn let_backends_in(&mut self, backends: Backends) -> mpsc::Sender<backends::SocketOrder> {
        let (orders, received) = mpsc::channel(1);
        let going = Going {
            closed: self.stop.subscribe(),
            via: self.via_go.subscribe(),
            all: self.let_go.subscribe(),
        };
        self.inside.spawn(backends.serve(going, received));
        orders
    }

    /// Lets the world in.
    fn serve(
        &mut self,
        listeners: Vec<Bound>,
        pages: Vec<(&'static str, Arc<TcpListener>)>,
        control: Option<Control>,
        sockets: Sockets,
        (reloader, orders): (&Reloader, mpsc::Sender<backends::SocketOrder>),
    ) {
        let frontend = &self.frontend;
        let places = Arc::new(Places::new(frontend.config.clone(), frontend.metrics.clone()));
        for bound in listeners {
            self.entrances.spawn(bound.serve(frontend.clone(), places.clone(), self.stop.subscribe()));
        }
        for (key, page) in pages {
            self.pages.spawn(page::serve(match key {
                page::METRICS_KEY => Page::Metrics(page, frontend.clone()),
                _ => Page::Probes(page, frontend.clone()),
            }));
        }
        if let Some(control) = control {
            let hand_over = Arc::new(HandOver::new(sockets, frontend.backend_connections.clone(), orders));
            self.hand_over = Some(hand_over.clone());
            let page = Page::Control(control, frontend.clone(), reloader.clone(), hand_over);
            self.asked.spawn(page::serve(page));
        }
        self.others.spawn(hang::watch(frontend.backend_connections.clone(), frontend.metrics.clone()));
        self.others
            .spawn(health_check::watch(frontend.backend_connections.clone(), frontend.metrics.clone()));
        self.others.spawn(watchdog::feed());
    }
}
