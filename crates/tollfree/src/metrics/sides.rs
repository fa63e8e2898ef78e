//! The families of figures that one side of calls has, and the labels of their methods.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use crate::metrics::latency::Latency;
use crate::status::status_name;

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

/// What a call is counted under. Clients have a target, and calls that have ended a status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    pub(super) method: Arc<str>,
    pub(super) target: Option<Arc<str>>,
    pub(super) status: Option<&'static str>,
}

impl Labels {
    pub(super) fn ended(&self, code: Code) -> Labels {
        Labels { status: Some(status_name(code)), ..self.clone() }
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("grpc_method", &*self.method).encode(encoder.encode_label())?;
        if let Some(target) = &self.target {
            ("grpc_target", &**target).encode(encoder.encode_label())?;
        }
        self.status.map_or(Ok(()), |status| ("grpc_status", status).encode(encoder.encode_label()))
    }
}

/// What is counted of the calls that a server gets, or of the attempts that a client makes.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) started: Family<Labels, Counter>,
    pub(super) duration: Family<Labels, Latency>,
    sent: Family<Labels, Histogram>,
    received: Family<Labels, Histogram>,
}

impl Side {
    /// Under the prefix of `registry`.
    pub(super) fn register(registry: &mut Registry, what: &str) -> Side {
        let sizes: fn() -> Histogram = || Histogram::new(SIZES);
        let side = Side {
            started: Family::default(),
            duration: Family::default(),
            sent: Family::new_with_constructor(sizes),
            received: Family::new_with_constructor(sizes),
        };
        registry.register("started", format!("{what} that have begun"), side.started.clone());
        let duration = side.duration.clone();
        registry.register_with_unit("duration", format!("Time of {what}"), Unit::Seconds, duration);
        let (sent, received) = ("sent_total_compressed_message_size", "rcvd_total_compressed_message_size");
        let words = |which| format!("Messages {which}, for each of the {what}");
        registry.register_with_unit(sent, words("sent"), Unit::Bytes, side.sent.clone());
        registry.register_with_unit(received, words("received"), Unit::Bytes, side.received.clone());
        side
    }

    pub(super) fn started(&self, labels: &Labels) {
        self.started.get_or_create(labels).inc();
    }

    pub(super) fn ended(&self, labels: &Labels, time: std::time::Duration, sent: u64, received: u64) {
        self.duration.get_or_create(labels).observe(time);
        self.sent.get_or_create(labels).observe(sent as f64);
        self.received.get_or_create(labels).observe(received as f64);
    }
}

/// The methods that have a label of their own.
#[derive(Debug)]
pub(super) struct Methods {
    known: RwLock<HashSet<Arc<str>>>,
    pub(super) other: Arc<str>,
}

impl Default for Methods {
    fn default() -> Methods {
        Methods { known: RwLock::default(), other: OTHER.into() }
    }
}

impl Methods {
    pub(super) fn label(&self, path: &str) -> Arc<str> {
        self.known.read().get(path).unwrap_or(&self.other).clone()
    }

    /// From here on the method has a label of its own, unless too many have.
    pub(super) fn learn(&self, path: &str) -> Arc<str> {
        let label = self.label(path);
        if !Arc::ptr_eq(&label, &self.other) {
            return label;
        }
        let mut known = self.known.write();
        if known.len() >= METHOD_COUNT_MAX {
            return label;
        }
        let label: Arc<str> = path.into();
        known.insert(label.clone());
        label
    }

    /// All labels, `other` among them, in order.
    pub(super) fn all(&self) -> Vec<Arc<str>> {
        let mut all: Vec<_> = self.known.read().iter().cloned().chain([self.other.clone()]).collect();
        all.sort_unstable();
        all
    }
}
