//! Figures: gRPC's names for calls (A66), and the shepherd's own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use crate::latency::{BOUNDS, COUNTS, Latency};
use crate::refusal::Refusal;
use crate::state::{MethodState, State};

/// Methods that have a label of their own; further ones, and those that nobody serves, are `other`.
const METHOD_COUNT_MAX: usize = 1000;
/// The label of those.
const OTHER: &str = "other";
/// Bounds of the sizes' histogram, as A66 has them.
const SIZES: [f64; 10] = [
    1024.0,
    2048.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    grpc_method: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    grpc_method: Arc<str>,
    grpc_status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: Refusal,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroup {
    group: String,
}

/// All figures of a shepherd.
pub(crate) struct Metrics {
    registry: Registry,
    methods: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
    started: Family<Method, Counter>,
    duration: Family<Ended, Latency>,
    sent: Family<Ended, Histogram>,
    received: Family<Ended, Histogram>,
    refusals: Family<Reason, Counter>,
    workers: Family<OfGroup, Gauge>,
    outstanding: Family<OfGroup, Gauge>,
    memory: Family<OfGroup, Gauge>,
    pub(crate) connections: Gauge,
    /// Calls that went on from a worker that was leaving to another.
    pub(crate) handed_on: Counter<u64, AtomicU64>,
    pub(crate) reload_failures: Counter<u64, AtomicU64>,
    pub(crate) config_failures: Counter<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::default();
        let sizes: fn() -> Histogram = || Histogram::new(SIZES);
        let metrics = Metrics {
            methods: RwLock::default(),
            other: OTHER.into(),
            started: Family::default(),
            duration: Family::default(),
            sent: Family::new_with_constructor(sizes),
            received: Family::new_with_constructor(sizes),
            refusals: Family::default(),
            workers: Family::default(),
            outstanding: Family::default(),
            memory: Family::default(),
            connections: Gauge::default(),
            handed_on: Counter::default(),
            reload_failures: Counter::default(),
            config_failures: Counter::default(),
            registry: Registry::default(),
        };
        let calls = registry.sub_registry_with_prefix("grpc_server_call");
        calls.register("started", "Calls that have begun", metrics.started.clone());
        calls.register_with_unit("duration", "Time of calls", Unit::Seconds, metrics.duration.clone());
        let (sent, received) = ("sent_total_compressed_message_size", "rcvd_total_compressed_message_size");
        calls.register_with_unit(
            sent,
            "Answers of a call, as they travelled",
            Unit::Bytes,
            metrics.sent.clone(),
        );
        calls.register_with_unit(received, "Requests of a call", Unit::Bytes, metrics.received.clone());
        let own = registry.sub_registry_with_prefix("tollfree_shepherd");
        own.register("refusals", "What was refused or ended, by reason", metrics.refusals.clone());
        own.register("workers", "Workers attached", metrics.workers.clone());
        own.register("outstanding", "Calls under way at business processes", metrics.outstanding.clone());
        let held = "What the calls of a group hold of the shepherd's memory";
        own.register_with_unit("memory", held, Unit::Bytes, metrics.memory.clone());
        own.register("connections", "Connections from the world", metrics.connections.clone());
        let handed_on = metrics.handed_on.clone();
        own.register("handed_on", "Calls that went from a leaving worker to another, unseen", handed_on);
        let failures = metrics.reload_failures.clone();
        own.register("certificate_reload_failures", "Certificates that could not be read again", failures);
        let failures = metrics.config_failures.clone();
        own.register("config_reload_failures", "Configs that could not be used when read again", failures);
        for reason in Refusal::ALL {
            drop(metrics.refusals.get_or_create(&Reason { reason }));
        }
        Metrics { registry, ..metrics }
    }

    /// All of them, in OpenMetrics' text form.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a text can't fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// All but who is attached.
    pub(crate) fn state(&self) -> State {
        let mut methods: Vec<_> = self.methods.read().iter().cloned().chain([self.other.clone()]).collect();
        methods.sort_unstable();
        let refusals = Refusal::ALL.into_iter().map(|reason| {
            let count = self.refusals.get(&Reason { reason }).map_or(0, |counter| counter.get());
            (reason.name().to_owned(), count)
        });
        State {
            connections: self.connections.get(),
            latency_bounds_s: BOUNDS.to_vec(),
            methods: methods.iter().filter_map(|method| self.method(method)).collect(),
            refusals: refusals.collect(),
            ..State::default()
        }
    }

    fn method(&self, method: &Arc<str>) -> Option<MethodState> {
        let started = self.started.get(&Method { grpc_method: method.clone() })?.get();
        let mut state = MethodState { method: method.to_string(), started, ..MethodState::default() };
        state.latency_counts = vec![0; COUNTS];
        for code in (0..17).map(Code::from_i32) {
            let ended = Ended { grpc_method: method.clone(), grpc_status: name_of(code) };
            let Some(counts) = self.duration.get(&ended).map(|latency| latency.counts()) else { continue };
            state.ended.insert(ended.grpc_status.to_owned(), counts.iter().sum());
            state.latency_counts.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
        Some(state)
    }

    pub(crate) fn refused(&self, reason: Refusal) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn workers(&self, group: &str) -> Gauge {
        self.workers.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn outstanding(&self, group: &str) -> Gauge {
        self.outstanding.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    pub(crate) fn memory(&self, group: &str) -> Gauge {
        self.memory.get_or_create_owned(&OfGroup { group: group.to_owned() })
    }

    /// The label of a method: its name once one call of it was served, since the world may make up any number of names.
    pub(crate) fn label(&self, path: &str) -> Arc<str> {
        self.methods.read().get(path).cloned().unwrap_or_else(|| self.other.clone())
    }

    pub(crate) fn started(&self, label: &Arc<str>) {
        self.started.get_or_create(&Method { grpc_method: label.clone() }).inc();
    }

    pub(crate) fn ended(&self, path: &str, label: Arc<str>, call: &Tally) {
        let is_new = *label == *self.other && call.is_served && call.code != Code::Unimplemented;
        if is_new && self.methods.read().len() < METHOD_COUNT_MAX {
            self.methods.write().insert(path.into());
        }
        let ended = Ended { grpc_method: label, grpc_status: name_of(call.code) };
        self.duration.get_or_create(&ended).observe(call.duration);
        self.sent.get_or_create(&ended).observe(call.sent_bytes as f64);
        self.received.get_or_create(&ended).observe(call.received_bytes as f64);
    }
}

/// What a call came to.
pub(crate) struct Tally {
    pub(crate) code: Code,
    pub(crate) is_served: bool,
    pub(crate) duration: Duration,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
