//! What types don't say of a config.

use std::collections::BTreeMap;

use tollfree::gateway::{CallRules, check_service_config};

use super::{Config, HealthCheck, WebConfig, access, device, health_check, load_balancing, route_rules};
use crate::access_line::Template;
use crate::passed::SCHEME;
use crate::target::Name;

/// The most threads that a gateway has.
const THREADS_MAX: u32 = 1024;

/// What is wrong, and where.
pub(super) struct Complaint {
    pub(super) path: Vec<String>,
    pub(super) problem: String,
}

fn complaint(path: &[&str], problem: impl Into<String>) -> Complaint {
    Complaint { path: path.iter().map(|part| (*part).to_owned()).collect(), problem: problem.into() }
}

/// What makes no sense, of all parts.
pub(super) fn check(config: &Config) -> Vec<Complaint> {
    let mut complaints = Complaints(Vec::new());
    sockets(config, &mut complaints);
    complaints
        .hear(service_config(config.backends.service_config.as_deref(), &["backends", "service_config"]));
    complaints.hear(health(config.backends.health_check.as_ref(), &["backends", "health_check"]));
    groups(config, &mut complaints);
    targets(config, &mut complaints);
    routes(config, &mut complaints);
    access::check(config, &mut complaints);
    route_rules::check(config, &mut complaints);
    traces(config, &mut complaints);
    complaints.hear(
        load_balancing::check(&config.load_balancing)
            .map_err(|(key, problem)| complaint(&["load_balancing", key], problem)),
    );
    complaints
        .hear(device::check(&config.device).map_err(|(key, problem)| complaint(&["device", key], problem)));
    profile(config, &mut complaints);
    limits(config, &mut complaints);
    complaints.0
}

/// What was found so far.
pub(super) struct Complaints(Vec<Complaint>);

impl Complaints {
    fn hear(&mut self, checked: Result<(), Complaint>) {
        self.0.extend(checked.err());
    }

    pub(super) fn add(&mut self, path: &[&str], problem: impl Into<String>) {
        self.0.push(complaint(path, problem));
    }
}

/// Addresses, each of which can be bound once.
fn sockets(config: &Config, complaints: &mut Complaints) {
    let mut all: Vec<(Vec<&str>, &str)> = Vec::new();
    for (name, listener) in &config.listeners {
        let path = ["listeners", name, "address"];
        complaints.hear(address(&listener.address, &path));
        if let Some((key, problem)) = listener.web.as_ref().and_then(WebConfig::check) {
            complaints.add(&["listeners", name, "web", key], problem);
        }
        all.push((path.to_vec(), &listener.address));
    }
    for (name, listener) in &config.listeners {
        if listener.tls.as_ref().is_some_and(|tls| !tls.crls.is_empty() && tls.client_ca.is_none()) {
            let problem = "is for clients' certificates: name who signs them by client_ca";
            complaints.add(&["listeners", name, "tls", "crls"], problem);
        }
    }
    let socket = &config.backends.socket;
    if !socket.starts_with("shm:///") && !socket.starts_with("shm-abstract:") {
        complaints.add(
            &["backends", "socket"],
            format!("\"{socket}\" is no address of a session: write shm:///path or shm-abstract:name"),
        );
    }
    if config.take_over && !socket.starts_with("shm:///") {
        complaints.add(&["take_over"], "needs a control socket: write backends.socket as shm:///path");
    }
    if !socket.starts_with("shm:///") {
        for (key, is_said) in
            [("group", config.backends.group.is_some()), ("mode", config.backends.mode.is_some())]
        {
            if is_said {
                complaints.add(
                    &["backends", key],
                    "is for a socket with a file: write backends.socket as shm:///path",
                );
            }
        }
    }
    if let Some(stream) = &config.backends.stream {
        let path = ["backends", "stream", "address"];
        complaints.hear(host_and_port(&stream.address, &path));
        all.push((path.to_vec(), &stream.address));
    }
    for (section, address) in [("metrics", &config.metrics.address), ("probes", &config.probes.address)] {
        let Some(address) = address else { continue };
        let path = [section, "address"];
        complaints.hear(host_and_port(address, &path));
        all.push((path.to_vec(), address));
    }
    let mut owners: BTreeMap<&str, String> = BTreeMap::new();
    // Of port 0, the system chooses another each time.
    for (path, address) in all.into_iter().filter(|(_, address)| !address.ends_with(":0")) {
        if let Some(owner) = owners.insert(address, path.join(".")) {
            complaints.add(&path, format!("\"{address}\" is the address of {owner} already: write another"));
        }
    }
}

fn routes(config: &Config, complaints: &mut Complaints) {
    for (route, group) in &config.routes {
        if !is_route(route) {
            let problem = "is neither a service, as acme.v1.Orders, nor a method, as acme.v1.Orders/Get";
            complaints.add(&["routes", route], problem);
        } else if !config.groups.contains_key(group) {
            complaints
                .add(&["routes", route], format!("there is no group \"{group}\": name it under [groups]"));
        }
    }
}

fn traces(config: &Config, complaints: &mut Complaints) {
    let (endpoint, ratio) = (config.traces.endpoint.as_deref(), config.traces.ratio);
    if let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.starts_with("http://")) {
        let problem = format!("\"{endpoint}\" is no collector that can be told: write http://host:port");
        complaints.add(&["traces", "endpoint"], problem);
    }
    for (section, ratio) in [("traces", ratio), ("access_log", config.access_log.ratio)] {
        if !(0.0..=1.0).contains(&ratio) {
            complaints.add(&[section, "ratio"], format!("{ratio} is no share: write 0 to 1"));
        }
    }
    if let Some(Err(problem)) = config.access_log.template.as_deref().map(Template::parse) {
        complaints.add(&["access_log", "template"], problem);
    }
}

fn profile(config: &Config, complaints: &mut Complaints) {
    let profile = &config.profile;
    let mut wrong = |key, value: u32, instead: &str| {
        complaints.add(&["profile", key], format!("{value} is out of bounds: write {instead}"));
    };
    if profile.threads > THREADS_MAX {
        wrong("threads", profile.threads, "0 to 1024");
    }
    if !profile.ring_bytes.is_power_of_two() || !(4 << 10..=32 << 10).contains(&profile.ring_bytes) {
        wrong("ring_bytes", profile.ring_bytes, "4096, 8192, 16384 or 32768");
    }
    if !(64 << 10..=16 << 20).contains(&profile.area_bytes) {
        wrong("area_bytes", profile.area_bytes, "65536 to 16777216");
    }
}

fn address(address: &str, path: &[&str]) -> Result<(), Complaint> {
    if address.contains("://") {
        return Err(complaint(
            path,
            format!("write \"{address}\" without its scheme, as host:port or unix:/path"),
        ));
    }
    if let Some(name) = address.strip_prefix(SCHEME) {
        return match name.is_empty() || name.contains(':') {
            true => Err(complaint(path, format!("\"{address}\" names no socket: write systemd:name"))),
            false => Ok(()),
        };
    }
    match address.strip_prefix("unix:") {
        Some(file) if file.starts_with('/') => Ok(()),
        Some(_) => Err(complaint(path, format!("\"{address}\" is no absolute path: write unix:/path"))),
        None => host_and_port(address, path),
    }
}

fn host_and_port(address: &str, path: &[&str]) -> Result<(), Complaint> {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
        _ => Err(complaint(path, format!("\"{address}\" is no address: write host:port"))),
    }
}

fn groups(config: &Config, complaints: &mut Complaints) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, group) in &config.groups {
        for service in &group.services {
            if let Some(other) = owners.insert(service, name) {
                complaints.add(
                    &["groups", name, "services"],
                    format!("the service {service} belongs to the group \"{other}\" already"),
                );
            }
        }
        // What the group has of all groups is checked with theirs.
        let own = load_balancing::check(&config.load_balancing_of(name));
        if let Err((key, problem)) = own
            && load_balancing::check(&config.load_balancing).is_ok()
        {
            complaints.add(&["groups", name, "load_balancing", key], problem);
        }
        if let Err((key, problem)) = device::check(&config.device_of(name))
            && device::check(&config.device).is_ok()
        {
            complaints.add(&["groups", name, "device", key], problem);
        }
        complaints.hear(service_config(group.service_config.as_deref(), &["groups", name, "service_config"]));
        complaints.hear(health(group.health_check.as_ref(), &["groups", name, "health_check"]));
        for (key, value) in [("calls", group.calls), ("backend_connections", group.backend_connections)] {
            if value == Some(0) {
                let problem = "0 is too little: write at least 1, or leave the key out";
                complaints.add(&["groups", name, key], problem);
            }
        }
        for target in &group.via {
            complaints
                .hear(via(config, target).map_err(|problem| complaint(&["groups", name, "via"], problem)));
        }
    }
}

fn health(check: Option<&HealthCheck>, path: &[&str]) -> Result<(), Complaint> {
    let checked = check.map_or(Ok(()), health_check::check);
    checked.map_err(|(key, problem)| complaint(&[path, &[key]].concat(), problem))
}

fn service_config(json: Option<&str>, path: &[&str]) -> Result<(), Complaint> {
    let parsed = json.map(CallRules::parse).transpose();
    parsed.map(drop).map_err(|error| complaint(path, error.to_string()))
}

/// Whether a target can be called at all.
fn via(config: &Config, target: &str) -> Result<(), String> {
    if let Some(group) = target.strip_prefix("group:") {
        let is_there = config.groups.contains_key(group);
        return is_there
            .then_some(())
            .ok_or_else(|| format!("\"{target}\": there is no such group under [groups]"));
    }
    let Some(name) = Name::of(target) else {
        return Err(format!(
            "\"{target}\" is no target: write https://host:port, http://host:port or group:name"
        ));
    };
    let own = config.egress.targets.get(target).and_then(|target| target.ca.as_ref());
    if name.is_tls && own.or(config.egress.ca.as_ref()).is_none() {
        return Err(format!("\"{target}\" needs to know whose certificates to trust: say it by egress.ca"));
    }
    Ok(())
}

fn targets(config: &Config, complaints: &mut Complaints) {
    for (name, target) in &config.egress.targets {
        let at = |key| ["egress", "targets", name, key];
        if name.starts_with("group:") || via(config, name).is_err() {
            let problem = format!(
                "\"{name}\" is no target: write https://host:port, with egress.ca, or http://host:port"
            );
            complaints.add(&["egress", "targets", name], problem);
        }
        for address in &target.addresses {
            complaints.hear(host_and_port(address, &at("addresses")));
        }
        if target.resolve_every_ms < 1000 {
            complaints.add(&at("resolve_every_ms"), "must be at least 1000");
        }
        if target.certificate.is_some() != target.key.is_some() {
            complaints.add(&at("certificate"), "a certificate and its key go together");
        }
        let checked = target.service_config.as_deref().map(check_service_config).transpose();
        complaints
            .hear(checked.map(drop).map_err(|error| complaint(&at("service_config"), error.to_string())));
    }
}

pub(super) fn is_route(route: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
    };
    match route.split_once('/') {
        Some((service, method)) => is_name(service) && is_name(method),
        None => is_name(route),
    }
}

fn limits(config: &Config, complaints: &mut Complaints) {
    let limits = &config.limits;
    let least = [
        ("connections", u64::from(limits.connections), 1),
        ("connections_per_address", limits.connections_per_address.into(), 1),
        ("streams", limits.streams.into(), 1),
        ("header_bytes", limits.header_bytes.into(), 1024),
        ("reset_burst", limits.reset_burst.into(), 1),
        ("reset_every_ms", limits.reset_every_ms, 1),
        ("message_bytes", limits.message_bytes, 1),
        ("memory_bytes", limits.memory_bytes, 64 << 10),
        ("arrival_grace_ms", limits.arrival_grace_ms, 1),
        ("handshake_ms", limits.handshake_ms, 1),
        ("idle_ms", limits.idle_ms, 1),
        ("egress_targets", limits.egress_targets.into(), 1),
        ("egress_connections", limits.egress_connections.into(), 1),
        ("egress_calls", limits.egress_calls.into(), 1),
        ("egress_idle_ms", limits.egress_idle_ms, 1),
    ];
    for (key, value, least) in least {
        if value < least {
            complaints.add(&["limits", key], format!("{value} is too little: write at least {least}"));
        }
    }
}
