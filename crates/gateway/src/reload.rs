//! Another config for a gateway that runs.
//!
//! Limits, groups, routes and certificates change at once; what sockets are bound to does not. A config that can't be used changes
//! nothing at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollfree::gateway::{RateLimitedLog, aside};

use crate::access_log::AccessLog;
use crate::backend_connections::BackendConnections;
use crate::backends::{NOT_ANY_MORE, Tenants};
use crate::config::{BackendsConfig, Config, ConfigError, ConfigErrors, Listener, Register, Source};
use crate::descriptors;
use crate::listeners::ListenError;
use crate::metrics::Metrics;
use crate::policy::{ListenerPolicies, PolicyError, PreparedPolicies};
use crate::tables::{self, DescriptorsError, GroupTables};
use crate::tls::{Certificates, Prepared};

/// The config that holds now.
pub(crate) type Current = Arc<ArcSwap<Config>>;

static LET_GO: RateLimitedLog = RateLimitedLog::new();

/// Why a gateway keeps its config.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The new one makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// There is no thread to read files on.
    #[error("the config can't be read: {0}")]
    Files(std::io::Error),
    /// The certificates that it names can't be used.
    #[error(transparent)]
    Certificates(#[from] ListenError),
    /// A policy that it has can't be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A descriptor set that it names can't be used.
    #[error(transparent)]
    Descriptors(#[from] DescriptorsError),
}

/// Gives a running gateway another config.
#[derive(Clone)]
pub struct Reloader {
    pub(crate) current: Current,
    pub(crate) policies: Arc<ListenerPolicies>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) backend_connections: Arc<BackendConnections>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// By listener.
    pub(crate) certificates: BTreeMap<String, Arc<Certificates>>,
    /// One change at a time.
    pub(crate) turn: Arc<Mutex<()>>,
    /// One reload at a time: it waits for files.
    pub(crate) reloading: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Reloader {
    /// Reads the config again and has the gateway use it. Returns the keys that have changed and need a restart: they stay as they were. The
    /// outcome is logged, and a failure counted.
    ///
    /// Files are read aside: it takes as long as they do, 5 s each at most, and no thread of the runtime waits for them. Dropped before that, it has
    /// changed nothing. Must be called in a tokio runtime.
    ///
    /// New limits of a connection hold for the next connections. Processes that may not be attached any more are let go.
    ///
    /// # Errors
    /// The new config, or a certificate or descriptor set that it names, is of no use: all stays as it was.
    pub async fn reload(&self, sources: &[Source]) -> Result<Vec<String>, ReloadError> {
        let _one = self.reloading.lock().await;
        let (own, sources) = (self.clone(), sources.to_vec());
        let read = aside(move || own.read(&sources)).await.map_err(ReloadError::Files);
        let before = self.current.load_full();
        let result = read.and_then(|next| next).map(|next| self.apply(next));
        if result.is_ok() {
            self.access_log.iter().for_each(|access_log| access_log.reopen());
        }
        let changed = before.changes(&self.current.load()).join("; ");
        match &result {
            Ok(kept) if kept.is_empty() => tracing::info!(changed, "the config was read again"),
            Ok(kept) => {
                let keys = kept.join(", ");
                tracing::warn!(
                    changed,
                    keys,
                    "the config was read again; these keys change with a restart only"
                );
            }
            Err(error) => {
                self.metrics.config_failures.inc();
                tracing::error!(%error, "the new config is of no use; the old one stays");
            }
        }
        result
    }

    /// Gives one of [`Config::registers`] another value, until it is changed again or the config is read again. No call is lost, and
    /// none waits for it.
    ///
    /// # Errors
    /// The value makes no sense, or there is no such register: all stays as it was.
    pub fn set(&self, name: &str, value: &str) -> Result<Register, ConfigError> {
        self.set_for(name, value, "this process")
    }

    /// The same for somebody whom the log names.
    pub(crate) fn set_for(&self, name: &str, value: &str, who: &str) -> Result<Register, ConfigError> {
        let _turn = self.turn.lock();
        let config = Arc::new(self.current.load().with(name, value)?);
        self.hold(&config);
        tracing::info!(name, value, who, "a register was changed");
        let unknown = || ConfigError { place: String::new(), key: name.into(), problem: "is unknown".into() };
        config.registers().into_iter().find(|register| register.name == name).ok_or_else(unknown)
    }

    /// From here on a config holds.
    fn hold(&self, config: &Arc<Config>) {
        descriptors::warn_if_short(config);
        self.current.store(config.clone());
        self.backend_connections.configure(config);
        self.tenants.changed();
    }

    /// Reads all that another config needs. Blocks the thread.
    fn read(&self, sources: &[Source]) -> Result<Next, ReloadError> {
        let mut config = Config::read(sources)?;
        let kept = keep(&self.current.load_full(), &mut config, self.tenants.may_come());
        let mut certificates = Vec::new();
        for (name, listener) in &config.listeners {
            if let (Some(known), Some(files)) = (self.certificates.get(name), &listener.tls) {
                let of_files = known.prepare(files);
                let of_files =
                    of_files.map_err(|source| ListenError::Tls { listener: name.clone(), source })?;
                certificates.push((known.clone(), of_files));
            }
        }
        let tables = tables::read(&config)?;
        let policies = self.policies.prepare(&config)?;
        Ok(Next { config, kept, certificates, tables, policies })
    }

    /// Which keys need a restart.
    fn apply(&self, next: Next) -> Vec<String> {
        let _turn = self.turn.lock();
        for (certificates, of_files) in next.certificates {
            certificates.use_these(of_files);
        }
        self.policies.use_these(next.policies);
        self.hold(&Arc::new(next.config));
        self.backend_connections.use_tables(next.tables);
        for backend_connection in self.backend_connections.all() {
            let attached = backend_connection.attached();
            if let Err(reason) = self.tenants.check_attached(attached) {
                if let Some(unsaid) = LET_GO.turn() {
                    tracing::warn!(process = ?attached.process(), group = attached.group(), reason, unsaid, "let go");
                }
                attached.close(NOT_ANY_MORE);
            }
        }
        next.kept
    }
}

/// Another config with what its files hold, of which nothing can fail any more.
struct Next {
    config: Config,
    /// Keys that need a restart.
    kept: Vec<String>,
    certificates: Vec<(Arc<Certificates>, Prepared)>,
    tables: GroupTables,
    policies: PreparedPolicies,
}

/// Puts back what can't change in a running gateway, and names what was to.
fn keep(old: &Config, new: &mut Config, may_come: impl Fn(u32) -> bool) -> Vec<String> {
    let mut kept = Vec::new();
    let socket_of =
        |listener: &Listener| (listener.address.clone(), listener.tls.is_some(), listener.web.is_some());
    for (name, listener) in &old.listeners {
        match new.listeners.get_mut(name) {
            Some(other) if socket_of(listener) == socket_of(other) => {}
            Some(other) if other.address != listener.address => {
                kept.push(format!("listeners.{name}.address"));
                *other = listener.clone();
            }
            Some(other) if other.web.is_some() != listener.web.is_some() => {
                kept.push(format!("listeners.{name}.web"));
                *other = listener.clone();
            }
            Some(other) => {
                kept.push(format!("listeners.{name}.tls"));
                *other = listener.clone();
            }
            None => {
                kept.push(format!("listeners.{name}"));
                new.listeners.insert(name.clone(), listener.clone());
            }
        }
    }
    new.listeners.retain(|name, _| {
        let is_old = old.listeners.contains_key(name);
        if !is_old {
            kept.push(format!("listeners.{name}"));
        }
        is_old
    });
    if new.backends.socket != old.backends.socket {
        kept.push("backends.socket".into());
    }
    if new.backends.group != old.backends.group {
        kept.push("backends.group".into());
    }
    if new.backends.mode != old.backends.mode {
        kept.push("backends.mode".into());
    }
    if new.backends.stream != old.backends.stream {
        kept.push("backends.stream".into());
    }
    if new.backends.wait != old.backends.wait {
        kept.push("backends.wait".into());
    }
    if new.backends.objects != old.backends.objects {
        kept.push("backends.objects".into());
    }
    if new.backends.on_unconvertible != old.backends.on_unconvertible {
        kept.push("backends.on_unconvertible".into());
    }
    new.backends = BackendsConfig {
        service_config: new.backends.service_config.take(),
        health_check: new.backends.health_check.take(),
        ..old.backends.clone()
    };
    if new.profile != old.profile {
        kept.push("profile".into());
        new.profile = old.profile.clone();
    }
    if new.metrics != old.metrics {
        kept.push("metrics.address".into());
        new.metrics = old.metrics.clone();
    }
    if new.probes != old.probes {
        kept.push("probes.address".into());
        new.probes = old.probes.clone();
    }
    if new.traces != old.traces {
        kept.push("traces".into());
        new.traces = old.traces.clone();
    }
    if new.access_log != old.access_log {
        kept.push("access_log".into());
        new.access_log = old.access_log.clone();
    }
    if new.egress != old.egress {
        kept.push("egress".into());
        new.egress = old.egress.clone();
    }
    // The socket lets in the users that it was bound for.
    for (name, group) in &new.groups {
        if !group.users.iter().all(|user| may_come(*user)) {
            kept.push(format!("groups.{name}.users"));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bound_stays_and_is_named() {
        let of = |text: &str| Config::from_toml(text).unwrap();
        let old = of("listeners.a.address = \"127.0.0.1:1\"\nlisteners.gone.address = \"127.0.0.1:2\"\n");
        let mut new = of("listeners.a.address = \"127.0.0.1:3\"\nlisteners.b.address = \"127.0.0.1:4\"\n\
             backends.socket = \"shm:///x\"\nbackends.wait = \"low-latency\"\nbackends.objects = false\nbackends.on_unconvertible = \"refuse\"\nprofile.ring_bytes = 4096\nmetrics.address = \"127.0.0.1:5\"\nprobes.address = \"127.0.0.1:6\"\ntraces.ratio = 0.5\nlimits.streams = 7\n\
             [groups.g]\nusers = [5]\n[groups.h]\nusers = [6]\n");
        let kept = keep(&old, &mut new, |user| user == 5);
        let keys = [
            "listeners.a.address",
            "listeners.gone",
            "listeners.b",
            "backends.socket",
            "backends.wait",
            "backends.objects",
            "backends.on_unconvertible",
            "profile",
            "metrics.address",
            "probes.address",
            "traces",
            "groups.h.users",
        ];
        assert_eq!(kept, keys);
        assert_eq!(
            (&new.listeners, &new.backends, &new.metrics),
            (&old.listeners, &old.backends, &old.metrics)
        );
        assert_eq!(new.limits.streams, 7);
        assert!(keep(&old, &mut old.clone(), |_| true).is_empty());
    }
}
