//! What an operator can say: listeners, groups, routes, limits.
//!
//! All values have defaults, so an empty file is a config. Times end in `_ms`, sizes in `_bytes`.

mod access;
mod changes;
mod checks;
mod device;
mod edits;
mod health_check;
mod layers;
mod listener;
mod load_balancing;
mod names;
mod places;
mod quotas;
mod registers;
mod route_rules;
#[cfg(test)]
mod schema;
mod web;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollfree::WaitPolicy;
pub use tollfree_control::{Device, Policy, Register, Word};

pub use access::{AccessAction, AccessPolicy, AccessRule, ExtAuthz, JwtIssuer};
pub use device::GroupDevice;
pub use edits::{AnswerEdits, HeaderEdits, RequestEdits};
pub use health_check::HealthCheck;
pub use layers::{ConfigError, ConfigErrors, Source};
pub use listener::{Listener, NamedCertificate, Tls, TlsVersion};
pub use load_balancing::{GroupLoadBalancing, LoadBalancing};
pub use names::{FileMode, UserGroup};
pub use quotas::{CallQuota, QuotaShare};
pub(crate) use registers::Origins;
pub use route_rules::{MirrorConfig, RouteRule};
pub use web::WebConfig;

/// Everything that can be configured.
///
/// # Example
/// ```
/// let config = tollfree_gateway::Config::from_toml("[listeners.public]\naddress = \"127.0.0.1:8443\"\n").unwrap();
/// assert_eq!(config.limits.streams, 256);
/// assert!(tollfree_gateway::Config::from_toml("[limits]\nstraems = 1\n").unwrap_err().to_string().contains("straems"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "tollfree-gateway", description = "A config of tollfree-gateway."))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// Whether the gateway takes the place of the one that runs with the same `backends.socket`, which ends then. Where none runs, it starts as
    /// any.
    pub take_over: bool,
    /// Where the world is served, by a name for logs.
    pub listeners: BTreeMap<String, Listener>,
    /// Where backends attach.
    pub backends: BackendsConfig,
    /// Groups of backends that may attach. Without any, each process of the gateway's user may attach as whatever it says.
    pub groups: BTreeMap<String, Group>,
    /// Groups by service (`acme.v1.Orders`) or method (`acme.v1.Orders/Get`). A service without a route goes to the group that has attached with it.
    pub routes: BTreeMap<String, String>,
    /// Rules for calls of the world, in order: the first that matches a call decides before `routes`.
    pub route_rules: Vec<RouteRule>,
    /// What the clients of listeners may do, by a name that listeners have.
    pub policies: BTreeMap<String, AccessPolicy>,
    /// Who signs tokens, by a name that policies have.
    pub jwt: BTreeMap<String, JwtIssuer>,
    /// How requests are spread among the backend connections of each group.
    pub load_balancing: LoadBalancing,
    /// How requests are announced to the backend connections of each group, and how these wait for them.
    #[cfg_attr(test, schemars(with = "GroupDevice"))]
    pub device: Device,
    /// What the gateway is made of.
    pub profile: Profile,
    /// How backends' calls to elsewhere are made.
    pub egress: EgressConfig,
    /// What the world may ask for, and backends of elsewhere.
    pub limits: Limits,
    /// Where figures are read.
    pub metrics: MetricsConfig,
    /// Where probes ask whether the gateway lives and is ready.
    pub probes: ProbesConfig,
    /// Who is told of calls, one by one.
    pub traces: TracesConfig,
    /// Where a line is written for each call from the world.
    pub access_log: AccessLogConfig,
    /// Where it was said.
    #[serde(skip)]
    pub(crate) origins: Origins,
    /// Where each key stands.
    #[serde(skip)]
    places: Origins,
}

/// The socket at which backends attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BackendsConfig {
    /// `shm:///path` or `shm-abstract:name`.
    pub socket: String,
    /// The group of users that the socket's file belongs to, by name or number. Without it, the gateway's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<UserGroup>,
    /// The mode of the socket's file, such as `"0660"`. Without it, what the gateway's umask leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Where backends of other hosts attach. Without it, none do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// How the gateway waits for what backends say.
    pub wait: Wait,
    /// Whether handlers that take objects get them: requests are decoded, and answers encoded, by the gateway.
    pub objects: bool,
    /// What becomes of requests that can't be objects where those are taken: too long ones, and all where there are no tables.
    pub on_unconvertible: OnUnconvertible,
    /// gRPC's service config, JSON, for calls to groups that have none of their own: timeouts, retries, ejection of backends whose calls fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_config: Option<String>,
    /// How backends of groups that say nothing else are asked for their health. Without it, they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

impl Default for BackendsConfig {
    fn default() -> BackendsConfig {
        BackendsConfig {
            socket: "shm:///run/tollfree/gateway.sock".into(),
            group: None,
            mode: None,
            stream: None,
            wait: Wait::default(),
            objects: true,
            on_unconvertible: OnUnconvertible::default(),
            service_config: None,
            health_check: None,
        }
    }
}

/// What becomes of requests that can't be handed over as objects to handlers that take those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnUnconvertible {
    /// They go as bytes, which the backend decodes.
    #[default]
    Bytes,
    /// Their calls end RESOURCE_EXHAUSTED.
    Refuse,
}

/// The TCP socket at which backends of other hosts attach, by TLS. Its files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Stream {
    /// `host:port`.
    pub address: String,
    /// The certificate that the gateway shows and those above it, a PEM file. Backends look for their address' host in it.
    pub certificate: PathBuf,
    /// Its key, a PEM file.
    pub key: PathBuf,
    /// Who signs backends' certificates, a PEM file. Which group one may attach to is said by `groups`.
    pub client_ca: PathBuf,
}

/// What a gateway is made of: it takes a restart to change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Profile {
    /// Threads that serve the world and hand calls on. 0: as many as there are processors.
    pub threads: u32,
    /// Length of the ring by which each backend connection gets its calls: a power of two from 4 KiB to 32 KiB.
    pub ring_bytes: u32,
    /// Length of the payload area that each backend connection has for large messages to it: 64 KiB to 16 MiB. It is made with the first one.
    pub area_bytes: u32,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile { threads: 0, ring_bytes: 32 << 10, area_bytes: 512 << 10 }
    }
}

/// How a gateway waits for what backends say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Wait {
    /// As a good neighbor: [`WaitPolicy::Adaptive`].
    #[default]
    Adaptive,
    /// On cores that it has for itself: [`WaitPolicy::LowLatency`].
    LowLatency,
}

impl From<Wait> for WaitPolicy {
    fn from(wait: Wait) -> WaitPolicy {
        match wait {
            Wait::Adaptive => WaitPolicy::Adaptive,
            Wait::LowLatency => WaitPolicy::LowLatency,
        }
    }
}

/// A group of backends: one tenant, or one application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Group {
    /// Users whose processes may attach to it, each by name or number. Without any, the gateway's own user.
    #[serde(deserialize_with = "names::users")]
    #[cfg_attr(test, schemars(with = "Vec<schema::WordOrNumber>"))]
    pub users: Vec<u32>,
    /// Subjects of certificates, as `CN=orders`, with which processes of other hosts may attach to it by `backends.stream`. Without any,
    /// none may. A certificate without a subject goes by its first DNS name or URI.
    pub subjects: Vec<String>,
    /// Services that it may attach with. Without any, all that no other group names.
    pub services: Vec<String>,
    /// Where its processes may call, besides itself (`group:its-name`): `https://host:port`, `http://host:port` or
    /// `group:another`.
    pub via: Vec<String>,
    /// Whether its callers (`group:its-name`) meet its process directly while it has one backend connection: without the
    /// gateway's figures, spans and word of who calls, but for process and user.
    pub direct_connections: bool,
    /// A descriptor set with the services whose handlers take objects, and all its imports. Without it, and for services that are not in
    /// it, its processes are asked for their tables. Read again when the config is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<PathBuf>,
    /// gRPC's service config, JSON, for calls to the group, in place of `backends.service_config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_config: Option<String>,
    /// How its backends are asked for their health, in place of `backends.health_check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Calls that the group may have under way or waiting at once; further ones are refused. Without it, what its backend connections take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Backend connections that the group may have at once; further ones are refused. Without it, any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_connections: Option<u32>,
    /// How its requests are spread among its backend connections, where not as `load_balancing` says.
    pub load_balancing: GroupLoadBalancing,
    /// How its requests are announced to its backend connections, where not as `device` says.
    pub device: GroupDevice,
}

/// How backends' calls to elsewhere are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EgressConfig {
    /// Whose certificates are trusted at `https://` targets, a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What is special about some targets, by `https://host:port` or `http://host:port`. Who may call there is said by groups.
    pub targets: BTreeMap<String, TargetConfig>,
}

/// A server elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TargetConfig {
    /// Where it is, each `host:port`, in place of the target's own host and port. A call goes to the address with the fewest
    /// calls under way.
    pub addresses: Vec<String>,
    /// How often names are looked up again.
    pub resolve_every_ms: u64,
    /// Whose certificates are trusted there, a PEM file, in place of `egress.ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate that is shown there, a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key, a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// gRPC's service config, JSON: retries, timeouts, health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_config: Option<String>,
}

impl Default for TargetConfig {
    fn default() -> TargetConfig {
        TargetConfig {
            addresses: Vec::new(),
            resolve_every_ms: 30_000,
            ca: None,
            certificate: None,
            key: None,
            service_config: None,
        }
    }
}

/// What the world may ask for, and backends of elsewhere. Each has a refusal in words, and a reason in `tollfree_gateway_refusals_total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once.
    pub connections: u32,
    /// Connections at once of one IP address (of one /64 of IPv6). It has no more than three quarters of all.
    pub connections_per_address: u32,
    /// Calls at once of one connection.
    pub streams: u32,
    /// A request's headers, as HTTP/2 counts them.
    pub header_bytes: u32,
    /// Calls of one connection that may be reset at once, before the connection is closed.
    pub reset_burst: u32,
    /// After how long one more may be reset.
    pub reset_every_ms: u64,
    /// One message, in either direction, as it travels.
    pub message_bytes: u64,
    /// What the calls of one group may hold of the gateway's memory.
    pub memory_bytes: u64,
    /// How long a call waits for a place at a group's backend connections while its client holds its share of them.
    pub place_wait_ms: u64,
    /// How fast a message must come that has begun to, on average over each `arrival_grace_ms`.
    pub min_bytes_per_s: u64,
    /// How long a message may come more slowly, or not at all.
    pub arrival_grace_ms: u64,
    /// How long bytes of an answer may wait for a client that does not read. 0: as long as the connection lasts.
    pub unread_ms: u64,
    /// Until when TLS and HTTP/2 must have begun.
    pub handshake_ms: u64,
    /// How long a connection may be without a call.
    pub idle_ms: u64,
    /// After how long a connection takes no further call. 0: never.
    pub age_ms: u64,
    /// How long calls may go on after that, or after the gateway was told to stop.
    pub drain_ms: u64,
    /// How long a call waits for a backend to attach that serves it.
    pub attach_wait_ms: u64,
    /// Targets elsewhere that one group may have open at once.
    pub egress_targets: u32,
    /// Connections to elsewhere that one group may have at once.
    pub egress_connections: u32,
    /// Calls at once that the processes of one group make by way of the gateway.
    pub egress_calls: u32,
    /// How long a target elsewhere may be without a call of the group.
    pub egress_idle_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            connections_per_address: 512,
            streams: 256,
            header_bytes: 16 << 10,
            reset_burst: 1000,
            reset_every_ms: 10,
            message_bytes: 4 << 20,
            memory_bytes: 256 << 20,
            place_wait_ms: 5000,
            min_bytes_per_s: 512,
            arrival_grace_ms: 20_000,
            unread_ms: 300_000,
            handshake_ms: 10_000,
            idle_ms: 300_000,
            age_ms: 0,
            drain_ms: 30_000,
            attach_wait_ms: 5000,
            egress_targets: 64,
            egress_connections: 256,
            egress_calls: 4096,
            egress_idle_ms: 300_000,
        }
    }
}

/// Where figures are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MetricsConfig {
    /// `host:port` at which `/metrics` is served by HTTP/1.1. Without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Where probes ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ProbesConfig {
    /// `host:port` at which `/healthz` and `/readyz` are served by plain HTTP/1.1. Without it, nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// Who is told of calls, one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TracesConfig {
    /// A collector that takes OTLP by gRPC, as `http://127.0.0.1:4317`. Without it, there are no spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The share of calls that are told, from 0 to 1, where the caller has not decided it.
    pub ratio: f64,
    /// The gateway's name in traces.
    pub service: String,
}

// No part of it is ever NaN: the ratio is checked.
impl Eq for TracesConfig {}

/// Where a line is written for each call from the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AccessLogConfig {
    /// The file, or `stdout`. Without it, there is no such log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The share of the calls that end OK that have a line, from 0 to 1. Calls that fail have one always.
    pub ratio: f64,
    /// A line with fields in braces, such as `{time} {method} {status}`. Without it, a line is an object of JSON with all fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

// No part of it is ever NaN: the ratio is checked.
impl Eq for AccessLogConfig {}

impl Default for AccessLogConfig {
    fn default() -> AccessLogConfig {
        AccessLogConfig { path: None, ratio: 1.0, template: None }
    }
}

impl Default for TracesConfig {
    fn default() -> TracesConfig {
        TracesConfig { endpoint: None, ratio: 1.0, service: "tollfree-gateway".into() }
    }
}

impl Config {
    /// What a file says, and nothing else.
    ///
    /// # Errors
    /// [`ConfigErrors`] name line and key.
    pub fn from_toml(text: &str) -> Result<Config, ConfigErrors> {
        layers::read(&[Source::Text { name: "gateway.toml".into(), text: text.into() }])
    }

    /// What several sources say, a later one before an earlier one.
    ///
    /// # Errors
    /// [`ConfigErrors`] name the source, the line in a file, and the key, of each that was found.
    pub fn read(sources: &[Source]) -> Result<Config, ConfigErrors> {
        layers::read(sources)
    }

    fn stands_at(&mut self, places: Origins) {
        self.places = places;
    }

    /// Where a key was said, or the longest part of it that was: ends in ": " where there is such a place.
    pub(crate) fn place_of(&self, key: &str) -> String {
        let mut part = key;
        loop {
            if let Some(place) = self.places.0.get(part) {
                return format!("{place}: ");
            }
            match part.rsplit_once('.') {
                Some((rest, _)) => part = rest,
                None => return String::new(),
            }
        }
    }

    /// The keys whose values another config has otherwise, each with both values.
    pub(crate) fn changes(&self, other: &Config) -> Vec<String> {
        changes::between(&serde_json::json!(self), &serde_json::json!(other))
    }

    /// The JSON schema of config files, for editors.
    pub fn json_schema() -> &'static str {
        include_str!("config/schema.json")
    }

    /// The config as JSON, with everything that was not said.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
