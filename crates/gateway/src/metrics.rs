//! Figures: what any Tollfree server counts, and the gateway's own.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tollfree::gateway::{Announced, RateLimitedLog, status_name};
use tollfree::metrics::BOUNDS;
use tollfree_control::{BackendConnectionState, DeviceState, MethodState, ObjectState, State};

use tonic::Code;

use crate::client::Client;
use crate::config::{Device, Policy};
use crate::conversion::{Conversion, Conversions};
use crate::monitor::{self, Monitor};
use crate::process_metrics::ProcessMetrics;
use crate::refusal::Refusal;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: Refusal,
}

/// Refusals that are due to a client, by what kind of address it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Caused {
    reason: Refusal,
    client: &'static str,
}

/// Each reason is logged at a rate of its own.
static LOGGED: [RateLimitedLog; Refusal::ALL.len()] = [const { RateLimitedLog::new() }; Refusal::ALL.len()];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroup {
    group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfListener {
    listener: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroupAndStatus {
    group: String,
    status: &'static str,
}

/// How the calls from the world end that a group was given. Nothing is looked up for a call but a number.
pub(crate) struct EndedCalls {
    group: String,
    calls: Family<OfGroupAndStatus, Counter>,
    /// By code, each made with the first call that ends so.
    by_status: [OnceLock<Counter>; STATUSES],
    seconds: Histogram,
}

impl EndedCalls {
    /// One has ended.
    pub(crate) fn add(&self, code: Code, time: Duration) {
        let counter = self.by_status[code as usize % STATUSES].get_or_init(|| {
            let label = OfGroupAndStatus { group: self.group.clone(), status: status_name(code) };
            self.calls.get_or_create_owned(&label)
        });
        counter.inc();
        self.seconds.observe(time.as_secs_f64());
    }
}

/// The version, as Prometheus' users look for it.
fn build_info() -> Info<[(&'static str, &'static str); 1]> {
    Info::new([("version", env!("CARGO_PKG_VERSION"))])
}

/// Codes that a call can end with.
const STATUSES: usize = 17;

/// Copies of calls for a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCopies {
    group: String,
    became: &'static str,
}

/// One backend connection: its process and its number there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBackend {
    group: String,
    backend: String,
    connection: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Balanced {
    group: String,
    policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMessages {
    group: String,
    message: &'static str,
    became: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Told {
    group: String,
    batch: String,
    doorbell: String,
    spin_us: String,
    poll_load: u32,
}

/// How a group's requests are spread at this moment.
pub(crate) struct Spread {
    pub(crate) group: String,
    pub(crate) policy: Policy,
    /// Requests that wait for a backend connection with room.
    pub(crate) waiting: u32,
    /// The largest count of requests that a backend connection has outstanding, less the mean.
    pub(crate) imbalance: f64,
}

/// All figures of a gateway.
pub(crate) struct Metrics {
    registry: Registry,
    /// Of calls, of sessions with backends, and of the process.
    pub(crate) common: tollfree::metrics::Metrics,
    /// How long calls took from stage to stage, and what went wrong last.
    pub(crate) monitor: Monitor,
    refusals: Family<Reason, Counter>,
    client_refusals: Family<Caused, Counter>,
    backend_connections: Family<OfGroup, Gauge>,
    outstanding: Family<OfGroup, Gauge>,
    hangs: Family<OfGroup, Counter>,
    copies: Family<OfCopies, Counter>,
    unhealthy: Family<OfGroup, Counter>,
    health_check_failures: Family<OfGroup, Counter>,
    ejections: Family<OfGroup, Counter>,
    calls: Family<OfGroupAndStatus, Counter>,
    call_seconds: Family<OfGroup, Histogram>,
    /// Calls that were cut off at the end of a drain.
    pub(crate) calls_cut: Counter<u64, AtomicU64>,
    certificate_expiry: Family<OfListener, Gauge>,
    /// Lines of the access log that were left out.
    pub(crate) access_lines_left_out: Counter<u64, AtomicU64>,
    process: ProcessMetrics,
    retries: Family<OfGroup, Counter>,
    backend_takes_calls: Family<OfBackend, Gauge>,
    backend_outstanding: Family<OfBackend, Gauge>,
    backend_calls: Family<OfBackend, Counter>,
    memory: Family<OfGroup, Gauge>,
    affinity_hits: Family<Balanced, Counter>,
    affinity_misses: Family<Balanced, Counter>,
    waiting: Family<Balanced, Gauge>,
    imbalance: Family<Balanced, Gauge<f64, AtomicU64>>,
    objects: Family<OfMessages, Counter<u64, AtomicU64>>,
    /// What those are made of, by group.
    conversions: Mutex<BTreeMap<String, Conversions>>,
    device: Family<Told, Gauge>,
    publications: Family<OfGroup, Counter>,
    sends: Family<OfGroup, Counter>,
    rings: Family<OfGroup, Counter>,
    egress_targets: Family<OfGroup, Gauge>,
    egress_connections: Family<OfGroup, Gauge>,
    egress_calls: Family<OfGroup, Gauge>,
    pub(crate) connections: Gauge,
    /// Calls that went on from a backend connection that was leaving to another.
    pub(crate) failovers: Counter<u64, AtomicU64>,
    pub(crate) direct_connections: Counter<u64, AtomicU64>,
    pub(crate) reload_failures: Counter<u64, AtomicU64>,
    pub(crate) config_failures: Counter<u64, AtomicU64>,
    /// Keys of issuers that could not be read.
    pub(crate) jwks_failures: Counter<u64, AtomicU64>,
    /// Calls that an authorization service said nothing of.
    pub(crate) authorizer_failures: Counter<u64, AtomicU64>,
    log_lines_left_out: Counter<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::default();
        let common = tollfree::metrics::Metrics::new(&mut registry);
        let monitor = Monitor::new(registry.sub_registry_with_prefix("tollfree_gateway"));
        let metrics = Metrics {
            common,
            monitor,
            refusals: Family::default(),
            client_refusals: Family::default(),
            backend_connections: Family::default(),
            outstanding: Family::default(),
            hangs: Family::default(),
            copies: Family::default(),
            unhealthy: Family::default(),
            health_check_failures: Family::default(),
            ejections: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            calls_cut: Counter::default(),
            certificate_expiry: Family::default(),
            access_lines_left_out: Counter::default(),
            process: ProcessMetrics::new(&mut registry),
            retries: Family::default(),
            backend_takes_calls: Family::default(),
            backend_outstanding: Family::default(),
            backend_calls: Family::default(),
            memory: Family::default(),
            affinity_hits: Family::default(),
            affinity_misses: Family::default(),
            waiting: Family::default(),
            imbalance: Family::default(),
            objects: Family::default(),
            conversions: Mutex::default(),
            device: Family::default(),
            publications: Family::default(),
            sends: Family::default(),
            rings: Family::default(),
            egress_targets: Family::default(),
            egress_connections: Family::default(),
            egress_calls: Family::default(),
            connections: Gauge::default(),
            failovers: Counter::default(),
            direct_connections: Counter::default(),
            reload_failures: Counter::default(),
            config_failures: Counter::default(),
            jwks_failures: Counter::default(),
            authorizer_failures: Counter::default(),
            log_lines_left_out: Counter::default(),
            registry: Registry::default(),
        };
        let own = registry.sub_registry_with_prefix("tollfree_gateway");
        own.register("refusals", "What was refused or ended, by reason", metrics.refusals.clone());
        let caused = "The same for those that a client caused, by what kind of address it has";
        own.register("client_refusals", caused, metrics.client_refusals.clone());
        own.register(
            "backend_connections",
            "Backend connections attached",
            metrics.backend_connections.clone(),
        );
        own.register("outstanding", "Calls under way at backends", metrics.outstanding.clone());
        own.register(
            "hangs",
            "Times that a backend connection took no calls that were there for it",
            metrics.hangs.clone(),
        );
        own.register(
            "unhealthy",
            "Times that a backend connection got no calls any more, since its health checks failed",
            metrics.unhealthy.clone(),
        );
        own.register(
            "health_check_failures",
            "Health checks of backend connections that failed",
            metrics.health_check_failures.clone(),
        );
        let ejections = metrics.ejections.clone();
        own.register(
            "ejections",
            "Times that a backend connection was ejected, since its calls failed",
            ejections,
        );
        own.register(
            "retries",
            "Attempts of calls that were made again after a failure",
            metrics.retries.clone(),
        );
        own.register(
            "calls",
            "Calls from the world that a group was given, by status",
            metrics.calls.clone(),
        );
        let seconds = "How long these took, from their headers to the last byte of the answer";
        own.register_with_unit("call", seconds, Unit::Seconds, metrics.call_seconds.clone());
        let left_out = metrics.access_lines_left_out.clone();
        own.register(
            "access_log_lines_left_out",
            "Lines of the access log that were left out or lost",
            left_out,
        );
        let cut = "Calls that were cut off, since they were not over at the end of limits.drain_ms";
        own.register("calls_cut", cut, metrics.calls_cut.clone());
        let expiry = "When the certificate of a listener expires, since 1970";
        own.register_with_unit(
            "certificate_expiry_timestamp",
            expiry,
            Unit::Seconds,
            metrics.certificate_expiry.clone(),
        );
        own.register("build", "1, with the version of the gateway", build_info());
        let takes =
            "1 while a backend connection gets new calls, 0 while it hangs, is unhealthy, ejected or leaving";
        own.register("backend_takes_calls", takes, metrics.backend_takes_calls.clone());
        let outstanding = "Calls under way at a backend connection";
        own.register("backend_outstanding", outstanding, metrics.backend_outstanding.clone());
        own.register(
            "backend_calls",
            "Calls that a backend connection was given",
            metrics.backend_calls.clone(),
        );
        let held = "What the calls of a group, and the tables of its backend connections, hold of the gateway's memory";
        own.register_with_unit("memory", held, Unit::Bytes, metrics.memory.clone());
        let hits = metrics.affinity_hits.clone();
        own.register("affinity_hits", "Calls to a backend connection that had their method lately", hits);
        let misses = metrics.affinity_misses.clone();
        own.register("affinity_misses", "Calls to a backend connection that had not", misses);
        own.register(
            "waiting",
            "Calls that wait for a backend connection with room",
            metrics.waiting.clone(),
        );
        let above =
            "The most calls under way at a backend connection, less the mean of its group, at this moment";
        own.register("imbalance", above, metrics.imbalance.clone());
        let objects = "Messages whose handlers take objects: those that were, and why others went as bytes or were refused";
        own.register("objects", objects, metrics.objects.clone());
        own.register(
            "device",
            "How calls are announced to backend connections, as the registers have it",
            metrics.device.clone(),
        );
        let announced = [
            (
                "publications",
                "Times that calls, or parts of them, were published for backend connections",
                &metrics.publications,
            ),
            (
                "sends",
                "Calls, and parts of them, that were published for backend connections",
                &metrics.sends,
            ),
            (
                "rings",
                "Times that a backend connection was rung for what was published, since it slept",
                &metrics.rings,
            ),
        ];
        for (name, help, family) in announced {
            own.register(name, help, family.clone());
        }
        let egress = [
            ("egress_targets", "Targets elsewhere that are open", &metrics.egress_targets),
            ("egress_connections", "Connections to elsewhere", &metrics.egress_connections),
            ("egress_calls", "Calls of backends under way by way of the gateway", &metrics.egress_calls),
        ];
        for (name, help, family) in egress {
            own.register(name, help, family.clone());
        }
        own.register("connections", "Connections from the world", metrics.connections.clone());
        let failovers = metrics.failovers.clone();
        own.register(
            "failovers",
            "Calls that went from a leaving backend connection to another, unseen",
            failovers,
        );
        let direct_connections = metrics.direct_connections.clone();
        own.register(
            "direct_connections",
            "Callers that were led to a backend connection they call directly",
            direct_connections,
        );
        let failures = metrics.reload_failures.clone();
        own.register("certificate_reload_failures", "Certificates that could not be read again", failures);
        let failures = metrics.config_failures.clone();
        own.register("config_reload_failures", "Configs that could not be used when read again", failures);
        let copies = metrics.copies.clone();
        own.register("copies", "Copies of calls for a mirror, by what became of them", copies);
        let failures = metrics.authorizer_failures.clone();
        own.register(
            "authorizer_failures",
            "Calls that an authorization service did not answer for",
            failures,
        );
        let failures = metrics.jwks_failures.clone();
        own.register("jwks_failures", "Keys of token issuers that could not be read", failures);
        let left_out = "Lines that this process has not written to its log, since there were many like them";
        own.register("log_lines_left_out", left_out, metrics.log_lines_left_out.clone());
        for reason in Refusal::ALL {
            drop(metrics.refusals.get_or_create(&Reason { reason }));
        }
        Metrics { registry, ..metrics }
    }

    /// All of them, in OpenMetrics' text form.
    pub(crate) fn text(
        &self,
        spreads: Vec<Spread>,
        devices: &BTreeMap<String, DeviceState>,
        backends: &BTreeMap<String, Vec<BackendConnectionState>>,
    ) -> String {
        self.show_backends(backends);
        self.process.look();
        self.log_lines_left_out.inner().store(RateLimitedLog::left_out(), Ordering::Relaxed);
        // Nothing is left of groups that have gone, and of policies that hold no more.
        self.waiting.clear();
        self.imbalance.clear();
        for Spread { group, policy, waiting, imbalance } in spreads {
            let label = Balanced { group, policy: policy.name() };
            self.waiting.get_or_create(&label).set(waiting.into());
            self.imbalance.get_or_create(&label).set(imbalance);
        }
        for (group, conversions) in &*self.conversions.lock() {
            for conversion in Conversion::ALL {
                let label = OfMessages {
                    group: group.clone(),
                    message: conversion.message(),
                    became: conversion.name(),
                };
                self.objects
                    .get_or_create(&label)
                    .inner()
                    .store(conversions.count(conversion), Ordering::Relaxed);
            }
        }
        self.device.clear();
        for (group, DeviceState { registers, .. }) in devices {
            let Device { batch, doorbell, spin_us, poll_load, .. } = registers;
            let told = Told {
                group: group.clone(),
                batch: batch.0.to_string(),
                doorbell: doorbell.0.to_string(),
                spin_us: spin_us.0.to_string(),
                poll_load: *poll_load,
            };
            self.device.get_or_create(&told).set(1);
        }
        let mut text = String::new();
        // Writing into a text can't fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// A listener's certificate expires at a time, since 1970.
    pub(crate) fn certificate_expires(&self, listener: &str, time: Duration) {
        let label = OfListener { listener: listener.to_owned() };
        self.certificate_expiry.get_or_create(&label).set(time.as_secs() as i64);
    }

    /// Where it is counted how a group's calls end.
    pub(crate) fn ended_calls(&self, group: &str) -> EndedCalls {
        EndedCalls {
            group: group.to_owned(),
            calls: self.calls.clone(),
            by_status: Default::default(),
            seconds: self.call_seconds.get_or_create_owned(&OfGroup { group: group.to_owned() }),
        }
    }

    /// Nothing is left of backend connections that have gone.
    fn show_backends(&self, groups: &BTreeMap<String, Vec<BackendConnectionState>>) {
        self.backend_takes_calls.clear();
        self.backend_outstanding.clear();
        self.backend_calls.clear();
        for (group, states) in groups {
            for state in states {
                let number = state.backend_connection;
                let backend = match &state.remote {
                    Some(remote) => format!("{remote}/{number}"),
                    None => format!("{}/{number}", state.pid),
                };
                let label = OfBackend { group: group.clone(), backend, connection: state.id.clone() };
                self.backend_takes_calls.get_or_create(&label).set((!state.gets_no_calls).into());
                self.backend_outstanding.get_or_create(&label).set(state.outstanding.into());
                self.backend_calls.get_or_create(&label).inc_by(state.calls);
            }
        }
    }

    /// All but who is attached.
    pub(crate) fn state(&self) -> State {
        let methods = self.common.served().into_iter().map(|figures| MethodState {
            method: figures.method.to_string(),
            started: figures.started,
            ended: figures.ended.into_iter().map(|(status, count)| (status.to_owned(), count)).collect(),
            latency_counts: figures.latency_counts,
        });
        let refusals = Refusal::ALL.into_iter().map(|reason| {
            let count = self.refusals.get(&Reason { reason }).map_or(0, |counter| counter.get());
            (reason.name().to_owned(), count)
        });
        let by_group = self.conversions.lock();
        let objects = by_group.iter().map(|(group, conversions)| {
            let mut state = ObjectState::default();
            for conversion in Conversion::ALL {
                let messages = match conversion.message() {
                    "request" => &mut state.requests,
                    _ => &mut state.answers,
                };
                messages.insert(conversion.name().to_owned(), conversions.count(conversion));
            }
            (group.clone(), state)
        });
        State {
            objects: objects.collect(),
            connections: self.connections.get(),
            latency_bounds_s: BOUNDS.to_vec(),
            methods: methods.collect(),
            refusals: refusals.collect(),
            stage_bounds_s: monitor::bounds_s(),
            stages: self.monitor.stages(),
            errors: self.monitor.errors(),
            ..State::default()
        }
    }

    /// Something that ends as it is meant to.
    pub(crate) fn ended(&self, reason: Refusal) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Counts what a client is refused, or is ended of it, and logs it now and then. `path` is empty where it is no call.
    pub(crate) fn refused(&self, reason: Refusal, client: &Client, path: &str, words: &str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
        let caused = Caused { reason, client: client.class().name() };
        self.client_refusals.get_or_create(&caused).inc();
        self.monitor.failed(reason.name(), path, words);
        if let Some(unsaid) = LOGGED[reason as usize].turn() {
            let (reason, client) = (reason.name(), client.address());
            tracing::warn!(reason, client, path, words, unsaid, "a client was refused something");
        }
    }

    /// Counts what a process or a group of the config's is refused.
    pub(crate) fn refused_inside(&self, reason: Refusal, who: &dyn std::fmt::Debug, words: &str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
        self.monitor.failed(reason.name(), "", words);
        if let Some(unsaid) = LOGGED[reason as usize].turn() {
            let reason = reason.name();
            tracing::warn!(reason, ?who, words, unsaid, "a process was refused something");
        }
    }

    /// Removes all figures of a group, of which nothing is left.
    pub(crate) fn forget(&self, group: &str) {
        let label = OfGroup { group: group.to_owned() };
        for family in [
            &self.backend_connections,
            &self.outstanding,
            &self.memory,
            &self.egress_targets,
            &self.egress_connections,
            &self.egress_calls,
        ] {
            family.remove(&label);
        }
        for family in [
            &self.publications,
            &self.sends,
            &self.rings,
            &self.hangs,
            &self.unhealthy,
            &self.health_check_failures,
            &self.ejections,
            &self.retries,
        ] {
            family.remove(&label);
        }
        self.call_seconds.remove(&label);
        for code in (0..STATUSES as i32).map(Code::from_i32) {
            self.calls.remove(&OfGroupAndStatus { group: group.to_owned(), status: status_name(code) });
        }
        let steered = Balanced { group: group.to_owned(), policy: Policy::Affinity.name() };
        for family in [&self.affinity_hits, &self.affinity_misses] {
            family.remove(&steered);
        }
        self.conversions.lock().remove(group);
        for conversion in Conversion::ALL {
            let (message, became) = (conversion.message(), conversion.name());
            self.objects.remove(&OfMessages { group: group.to_owned(), message, became });
        }
    }

    pub(crate) fn backend_connections(&self, group: &str) -> Gauge {
        self.backend_connections.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn outstanding(&self, group: &str) -> Gauge {
        self.outstanding.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn hangs(&self, group: &str) -> Counter {
        self.hangs.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    /// Copies of calls for a group, by what became of them.
    pub(crate) fn copies(&self, group: &str, became: &'static str) -> Counter {
        self.copies.get_or_create_owned(&OfCopies { group: group.to_owned(), became })
    }

    pub(crate) fn unhealthy(&self, group: &str) -> Counter {
        self.unhealthy.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn health_check_failures(&self, group: &str) -> Counter {
        self.health_check_failures.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn ejections(&self, group: &str) -> Counter {
        self.ejections.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn retries(&self, group: &str) -> Counter {
        self.retries.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn memory(&self, group: &str) -> Gauge {
        self.memory.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    /// Where it is counted what becomes of a group's messages whose handlers take objects.
    pub(crate) fn conversions(&self, group: &str) -> Conversions {
        self.conversions.lock().entry(group.to_owned()).or_default().clone()
    }

    /// Hits and misses of affinity.
    pub(crate) fn affinity(&self, group: &str) -> [Counter; 2] {
        let of = |family: &Family<Balanced, Counter>| {
            let policy = Policy::Affinity.name();
            family.get_or_create_owned(&Balanced { group: group.to_owned(), policy })
        };
        [of(&self.affinity_hits), of(&self.affinity_misses)]
    }

    /// Counts what was announced to a group's backend connections since a count before, and gives all that was.
    pub(crate) fn announced(&self, group: &str, before: &Announced, now: &Announced) -> DeviceState {
        let count = |family: &Family<OfGroup, Counter>, before: u64, now: u64| {
            let counter = family.get_or_create_owned(&OfGroup { group: group.to_owned() });
            counter.inc_by(now.saturating_sub(before));
            counter.get()
        };
        DeviceState {
            publications: count(&self.publications, before.publications, now.publications),
            sends: count(&self.sends, before.sends, now.sends),
            rings: count(&self.rings, before.rings, now.rings),
            ..DeviceState::default()
        }
    }

    pub(crate) fn egress_targets(&self, group: &str) -> Gauge {
        self.egress_targets.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn egress_connections(&self, group: &str) -> Gauge {
        self.egress_connections.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn egress_calls(&self, group: &str) -> Gauge {
        self.egress_calls.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }
}
