//! The shepherd: a process that speaks gRPC to the world, and hands business processes nothing but requests.
//!
//! Clients come by HTTP/2, plain or with TLS; business processes attach at a socket
//! ([`tollfree::Server::attach`]) and are called through rings. A call goes to the attached worker with the fewest calls under
//! way, or by another [`Policy`]. Both bodies pass frame by frame: a side that reads slowly slows the other side down, and messages, compressed ones too,
//! stay as they are. What the world may ask for is limited ([`Limits`]); what is refused is said in words, and counted.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tollfree_shepherd::{Config, Shepherd, Source};
//! let config = Config::read(&[Source::File("shepherd.toml".into()), Source::Environment])?;
//! let shepherd = Shepherd::bind(config).await?;
//! println!("{:?}", shepherd.addresses());
//! shepherd.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod account;
mod arrival;
mod bodies;
mod business;
mod client;
mod config;
mod connection;
mod connections;
mod deadline;
mod descriptors;
mod files;
mod gateway;
mod health;
mod inside;
mod listeners;
mod memory;
mod metrics;
mod monitor;
mod notices;
mod outward;
mod page;
mod passed;
mod peer;
mod refusal;
mod reload;
mod shares;
mod space;
pub mod steering;
mod tables;
mod target;
mod tls;
mod traces;
mod unread;
mod watchdog;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollfree::shepherd::{BindError, aside};

use crate::business::{Business, Tenants};
use crate::gateway::Gateway;
use crate::health::Health;
use crate::listeners::{Bound, Places};
use crate::metrics::Metrics;
use crate::outward::{Outward, OutwardFiles};
use crate::page::{Control, Page};
use crate::passed::Passed;
use crate::reload::Current;
use crate::traces::Traces;
use crate::workers::Workers;

pub use business::BusinessError;
pub use config::{
    Business as BusinessConfig, Config, ConfigError, Device, Group, GroupDevice, GroupSteering, Limits,
    Listener, Metrics as MetricsConfig, Outward as OutwardConfig, Policy, Profile, Register, Source,
    Steering, Stream, Tls, Traces as TracesConfig, Unfit, Wait, Word,
};
pub use descriptors::raise_descriptor_limit;
pub use listeners::ListenError;
pub use reload::{ReloadError, Reloader};
pub use tables::DescriptorsError;
pub use tls::TlsError;
pub use tollfree::shepherd::{Seldom, read_file};

/// Why a shepherd can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket of business processes.
    #[error(transparent)]
    Business(#[from] BusinessError),
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
    /// The socket at which its state is read.
    #[error("the control socket, next to business.socket: {0}")]
    Control(BindError),
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
    Outward {
        /// Of the config.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A shepherd whose sockets are bound.
pub struct Shepherd {
    listeners: Vec<Bound>,
    business: Business,
    page: Option<TcpListener>,
    control: Option<Control>,
    gateway: Arc<Gateway>,
    stop: watch::Sender<bool>,
    reloader: Reloader,
}

/// A shepherd's tasks.
struct Serving {
    gateway: Arc<Gateway>,
    /// Nobody new is let in.
    stop: watch::Sender<bool>,
    /// Business processes may go.
    let_go: watch::Sender<bool>,
    /// Connections from the world.
    entrances: JoinSet<()>,
    /// Business processes.
    inside: JoinSet<()>,
    /// The control socket.
    asked: JoinSet<()>,
    /// What ends with this.
    _others: JoinSet<()>,
}

impl Serving {
    async fn end(mut self) {
        watchdog::stopping();
        // The next shepherd may take its place before this one's last call is over.
        self.asked.shutdown().await;
        self.stop.send_replace(true);
        let drained = async { while self.entrances.join_next().await.is_some() {} };
        // Connections end by themselves at their drain; this is for those that have only just begun.
        let drain = Duration::from_millis(self.gateway.config.load().limits.drain_ms);
        let end = tokio::time::Instant::now() + drain + Duration::from_secs(1);
        _ = tokio::time::timeout_at(end, drained).await;
        self.let_go.send_replace(true);
        let let_go = async { while self.inside.join_next().await.is_some() {} };
        _ = tokio::time::timeout_at(end + Duration::from_secs(1), let_go).await;
        if self.gateway.traces.is_some() {
            // It waits for the collector.
            let gateway = self.gateway.clone();
            let told = tokio::task::spawn_blocking(move || gateway.traces.as_ref().map(Traces::end));
            _ = told.await;
        }
    }
}

impl std::fmt::Debug for Shepherd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shepherd").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Shepherd {
    /// Binds all sockets of a config. Must be called in a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`StartError`] names the key of the config.
    pub async fn bind(config: Config) -> Result<Shepherd, StartError> {
        let config = Arc::new(config);
        descriptors::warn_if_short(&config);
        let metrics = Arc::new(Metrics::new());
        let current: Current = Arc::new(ArcSwap::new(config.clone()));
        let workers = Arc::new(Workers::new(current.clone(), metrics.clone()));
        let named = config.clone();
        let files = aside(move || (tables::read(&named), OutwardFiles::read(&named.outward))).await;
        let (tables, outward_files) = files.map_err(StartError::Files)?;
        workers.use_tables(tables?);
        let tenants = Arc::new(Tenants::new(current.clone()));
        let outward_files = outward_files.map_err(|(key, problem)| StartError::Outward { key, problem })?;
        let outward = Outward::new(
            tenants.clone(),
            workers.clone(),
            metrics.clone(),
            config.outward.clone(),
            outward_files,
        );
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
        let socket = &config.business.socket;
        let reloader = Reloader {
            current: current.clone(),
            tenants: tenants.clone(),
            workers: workers.clone(),
            metrics: metrics.clone(),
            certificates: listeners
                .iter()
                .filter_map(|bound: &Bound| Some((bound.name().to_owned(), bound.certificates()?.clone())))
                .collect(),
            turn: Arc::default(),
            reloading: Arc::default(),
        };
        let business =
            Business::bind(&config, tenants, workers.clone(), metrics.clone(), Arc::new(outward)).await?;
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
        let health = Health::new(workers.clone(), stop.subscribe());
        let gateway = Arc::new(Gateway {
            config: current,
            workers,
            connections: Arc::default(),
            metrics,
            traces,
            health,
        });
        Ok(Shepherd { listeners, business, page, control, gateway, stop, reloader })
    }

    /// What gives it another config while it runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Where it can be reached: each listener by its name, `business`, `business.stream` if processes of other hosts may attach, `control` unless that is abstract, and `metrics` if there is
    /// such a page.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let mut addresses: BTreeMap<String, String> = self
            .listeners
            .iter()
            .map(|bound| (format!("listeners.{}", bound.name()), bound.address()))
            .collect();
        addresses.insert("business".into(), self.business.address().into());
        if let Some(stream) = self.business.stream_address() {
            addresses.insert("business.stream".into(), stream);
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
    /// allows, and business processes are let go.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        // What is generic is compiled once more for each program that calls it: that is to be nothing but the waiting.
        let serving = self.serve();
        stop.await;
        serving.end().await;
    }

    fn serve(self) -> Serving {
        let Shepherd { listeners, business, page, control, gateway, stop, reloader } = self;
        let let_go = watch::Sender::new(false);
        let mut entrances = JoinSet::new();
        let places = Arc::new(Places::new(gateway.config.clone(), gateway.metrics.clone()));
        for bound in listeners {
            entrances.spawn(bound.serve(gateway.clone(), places.clone(), stop.subscribe()));
        }
        let mut others = JoinSet::new();
        if let Some(page) = page {
            others.spawn(page::serve(Page::Metrics(page, gateway.clone())));
        }
        let mut asked = JoinSet::new();
        if let Some(control) = control {
            asked.spawn(page::serve(Page::Control(control, gateway.clone(), reloader)));
        }
        others.spawn(watchdog::feed());
        let mut inside = JoinSet::new();
        inside.spawn(business.serve(stop.subscribe(), let_go.subscribe()));
        watchdog::ready();
        Serving { gateway, stop, let_go, entrances, inside, asked, _others: others }
    }
}
