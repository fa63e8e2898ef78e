//! What happened between two states of a gateway.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use tollfree_control::{
    BackendConnectionState, Device, DeviceState, ErrorState, MethodState, ObjectState, StageState, State,
};

/// An interval, with rates by second and times in milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    pub(super) pid: u32,
    pub(super) uptime_ms: u64,
    pub(super) interval_ms: u64,
    pub(super) connections: i64,
    pub(super) connections_max: u32,
    pub(super) calls_per_s: f64,
    pub(super) groups: Vec<GroupRates>,
    pub(super) methods: Vec<MethodRates>,
    /// Those that happened in the interval.
    pub(super) refusals_per_s: BTreeMap<String, f64>,
    /// How long calls took from stage to stage, in the interval.
    pub(super) stages: Vec<StageRates>,
    /// What went wrong last, whenever that was.
    pub(super) errors: Vec<ErrorState>,
}

#[derive(Debug, Serialize)]
pub(super) struct StageRates {
    pub(super) stage: String,
    /// Calls that were timed: one in sixteen.
    pub(super) timed: u64,
    pub(super) mean_us: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct GroupRates {
    pub(super) group: String,
    pub(super) calls_per_s: f64,
    pub(super) outstanding: u32,
    pub(super) policy: &'static str,
    /// Calls that wait in the gateway for a backend connection with room.
    pub(super) waiting: u32,
    pub(super) imbalance: f64,
    /// What became of messages whose handlers take objects, since the gateway's start.
    pub(super) objects: ObjectState,
    /// How calls are announced to its backend connections.
    pub(super) device: DeviceRates,
    pub(super) backend_connections: Vec<BackendConnectionRates>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceRates {
    #[serde(flatten)]
    pub(super) registers: Device,
    pub(super) publications_per_s: f64,
    /// Calls, and parts of them, that were published together.
    pub(super) sends_per_publication: Option<f64>,
    pub(super) rings_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct BackendConnectionRates {
    pub(super) pid: i32,
    pub(super) uid: u32,
    pub(super) backend_connection: u32,
    pub(super) services: Vec<String>,
    pub(super) calls_per_s: f64,
    pub(super) outstanding: u32,
    pub(super) attached_ms: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct MethodRates {
    pub(super) method: String,
    pub(super) calls_per_s: f64,
    /// Calls that ended with a status that isn't OK.
    pub(super) errors_per_s: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p90_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

impl Rates {
    /// Of two states of one gateway. Between two gateways at one address, everything since the later one's start counts.
    pub(super) fn between(before: &State, now: &State) -> Rates {
        let started_anew = State::default();
        let is_same = before.pid == now.pid && before.uptime_ms <= now.uptime_ms;
        let before = if is_same { before } else { &started_anew };
        let interval_ms = (now.uptime_ms - before.uptime_ms).max(1);
        let by_second = |more: u64| more as f64 * 1e3 / interval_ms as f64;
        let groups = now.groups.iter().map(|(name, backend_connections)| {
            let earlier = before.groups.get(name).map_or(&[][..], Vec::as_slice);
            let backend_connections: Vec<_> = backend_connections
                .iter()
                .map(|backend_connection| of_backend_connection(earlier, backend_connection, by_second))
                .collect();
            let load_balancing = now.load_balancing.get(name).cloned().unwrap_or_default();
            GroupRates {
                policy: load_balancing.policy.name(),
                waiting: load_balancing.waiting,
                imbalance: load_balancing.imbalance,
                objects: now.objects.get(name).cloned().unwrap_or_default(),
                device: of_device(before.devices.get(name), now.devices.get(name), by_second),
                group: name.clone(),
                calls_per_s: backend_connections
                    .iter()
                    .map(|backend_connection| backend_connection.calls_per_s)
                    .sum(),
                outstanding: backend_connections
                    .iter()
                    .map(|backend_connection| backend_connection.outstanding)
                    .sum(),
                backend_connections,
            }
        });
        let methods: Vec<_> =
            now.methods.iter().map(|method| of_method(before, now, method, by_second)).collect();
        let refusals = now.refusals.iter().filter_map(|(reason, count)| {
            let more = count.saturating_sub(before.refusals.get(reason).copied().unwrap_or(0));
            (more > 0).then(|| (reason.clone(), by_second(more)))
        });
        Rates {
            pid: now.pid,
            uptime_ms: now.uptime_ms,
            interval_ms,
            connections: now.connections,
            connections_max: now.connections_max,
            stages: now.stages.iter().map(|stage| of_stage(before, now, stage)).collect(),
            errors: now.errors.clone(),
            calls_per_s: methods.iter().map(|method| method.calls_per_s).sum(),
            groups: groups.collect(),
            refusals_per_s: refusals.collect(),
            methods,
        }
    }

    /// As tables.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.headline());
        lines(&mut text, GROUPS, &self.group_rows());
        lines(&mut text, METHODS, &self.method_rows());
        lines(&mut text, STAGES, &self.stage_rows());
        _ = writeln!(text, "{}", self.refusals());
        for error in self.errors.iter().take(ERRORS_SHOWN) {
            let ErrorState { ago_ms, reason, method, words, .. } = error;
            _ = writeln!(text, "{} ago: {reason} {method} {words}", age(*ago_ms));
        }
        text
    }

    pub(super) fn headline(&self) -> String {
        format!(
            "gateway {}, up {}: {} of {} connections, {:.1} calls/s",
            self.pid,
            age(self.uptime_ms),
            self.connections,
            self.connections_max,
            self.calls_per_s
        )
    }

    pub(super) fn refusals(&self) -> String {
        if self.refusals_per_s.is_empty() {
            return "nothing was refused".to_owned();
        }
        let each = self.refusals_per_s.iter().map(|(reason, rate)| format!("{reason} {rate:.1}/s"));
        format!("refused: {}", each.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn group_rows(&self) -> Vec<[String; 9]> {
        let mut rows = Vec::new();
        for group in &self.groups {
            for backend_connection in &group.backend_connections {
                rows.push([
                    group.group.clone(),
                    backend_connection.pid.to_string(),
                    backend_connection.backend_connection.to_string(),
                    format!("{:.1}", backend_connection.calls_per_s),
                    backend_connection.outstanding.to_string(),
                    age(backend_connection.attached_ms),
                    group.policy.to_owned(),
                    group.waiting.to_string(),
                    group.device.registers.doorbell.0.to_string(),
                ]);
            }
        }
        rows
    }

    fn stage_rows(&self) -> Vec<[String; 5]> {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
        let row = |stage: &StageRates| {
            let times = [stage.mean_us, stage.p50_us, stage.p99_us].map(time);
            let [mean, p50, p99] = times;
            [stage.stage.clone(), stage.timed.to_string(), mean, p50, p99]
        };
        self.stages.iter().map(row).collect()
    }

    pub(super) fn method_rows(&self) -> Vec<[String; 6]> {
        let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.2}"));
        let row = |method: &MethodRates| {
            [
                method.method.clone(),
                format!("{:.1}", method.calls_per_s),
                format!("{:.1}", method.errors_per_s),
                time(method.p50_ms),
                time(method.p90_ms),
                time(method.p99_ms),
            ]
        };
        self.methods.iter().map(row).collect()
    }
}

/// Columns and their widths.
pub(super) const GROUPS: [(&str, u16); 9] = [
    ("group", 24),
    ("process", 10),
    ("connection", 10),
    ("calls/s", 10),
    ("under way", 10),
    ("attached", 10),
    ("load_balancing", 17),
    ("waiting", 7),
    ("doorbell", 17),
];
pub(super) const METHODS: [(&str, u16); 6] =
    [("method", 44), ("calls/s", 10), ("errors/s", 10), ("p50 ms", 9), ("p90 ms", 9), ("p99 ms", 9)];

const STAGES: [(&str, u16); 5] =
    [("stage", 24), ("timed calls", 12), ("mean us", 10), ("p50 us", 10), ("p99 us", 10)];
/// Errors that are told as text.
const ERRORS_SHOWN: usize = 5;

fn lines<const N: usize>(text: &mut String, header: [(&str, u16); N], rows: &[[String; N]]) {
    line(text, header, &header.map(|(name, _)| name.to_owned()));
    rows.iter().for_each(|row| line(text, header, row));
    text.push('\n');
}

/// The first column begins at the left, numbers end at the right.
fn line<const N: usize>(text: &mut String, header: [(&str, u16); N], cells: &[String; N]) {
    for (at, (cell, (_, width))) in cells.iter().zip(header).enumerate() {
        let width = usize::from(width);
        _ = if at == 0 { write!(text, "{cell:<width$}") } else { write!(text, " {cell:>width$}") };
    }
    text.push('\n');
}

fn of_backend_connection(
    earlier: &[BackendConnectionState],
    backend_connection: &BackendConnectionState,
    by_second: impl Fn(u64) -> f64,
) -> BackendConnectionRates {
    let same = |other: &&BackendConnectionState| {
        other.pid == backend_connection.pid
            && other.backend_connection == backend_connection.backend_connection
            && other.calls <= backend_connection.calls
    };
    let calls = earlier.iter().find(same).map_or(0, |other| other.calls);
    BackendConnectionRates {
        pid: backend_connection.pid,
        uid: backend_connection.uid,
        backend_connection: backend_connection.backend_connection,
        services: backend_connection.services.clone(),
        calls_per_s: by_second(backend_connection.calls - calls),
        outstanding: backend_connection.outstanding,
        attached_ms: backend_connection.attached_ms,
    }
}

fn of_stage(before: &State, now: &State, stage: &StageState) -> StageRates {
    let none = StageState::default();
    let earlier = before.stages.iter().find(|other| other.stage == stage.stage).unwrap_or(&none);
    let counts = stage.counts.iter().enumerate();
    let counts: Vec<u64> = counts
        .map(|(at, count)| count.saturating_sub(earlier.counts.get(at).copied().unwrap_or(0)))
        .collect();
    let timed: u64 = counts.iter().sum();
    let quantile_us = |q| quantile_ms(&now.stage_bounds_s, &counts, q).map(|ms| ms * 1e3);
    StageRates {
        stage: stage.stage.clone(),
        timed,
        mean_us: (timed > 0).then(|| (stage.sum_s - earlier.sum_s) * 1e6 / timed as f64),
        p50_us: quantile_us(0.5),
        p99_us: quantile_us(0.99),
    }
}

fn of_device(
    before: Option<&DeviceState>,
    now: Option<&DeviceState>,
    by_second: impl Fn(u64) -> f64,
) -> DeviceRates {
    let none = DeviceState::default();
    let (before, now) = (before.unwrap_or(&none), now.unwrap_or(&none));
    let publications = now.publications.saturating_sub(before.publications);
    let sends = now.sends.saturating_sub(before.sends);
    DeviceRates {
        registers: now.registers,
        publications_per_s: by_second(publications),
        sends_per_publication: (publications > 0).then(|| sends as f64 / publications as f64),
        rings_per_s: by_second(now.rings.saturating_sub(before.rings)),
    }
}

fn of_method(
    before: &State,
    now: &State,
    method: &MethodState,
    by_second: impl Fn(u64) -> f64,
) -> MethodRates {
    let none = MethodState::default();
    let earlier = before.methods.iter().find(|other| other.method == method.method).unwrap_or(&none);
    let errors = |state: &MethodState| -> u64 {
        state.ended.iter().filter(|(status, _)| *status != "OK").map(|(_, count)| count).sum()
    };
    let counts = method.latency_counts.iter().enumerate();
    let counts: Vec<u64> = counts
        .map(|(at, count)| count.saturating_sub(earlier.latency_counts.get(at).copied().unwrap_or(0)))
        .collect();
    let quantile = |q| quantile_ms(&now.latency_bounds_s, &counts, q);
    MethodRates {
        method: method.method.clone(),
        calls_per_s: by_second(method.started.saturating_sub(earlier.started)),
        errors_per_s: by_second(errors(method).saturating_sub(errors(earlier))),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
    }
}

/// Interpolated between the bounds; the last bound for what is beyond it.
fn quantile_ms(bounds_s: &[f64], counts: &[u64], q: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return None;
    }
    let wanted = q * all as f64;
    let mut passed = 0.0;
    let mut low = 0.0;
    for (bound, count) in bounds_s.iter().zip(counts) {
        let count = *count as f64;
        if count > 0.0 && passed + count >= wanted {
            return Some((low + (bound - low) * (wanted - passed) / count) * 1e3);
        }
        passed += count;
        low = *bound;
    }
    Some(low * 1e3)
}

fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(json: &str) -> State {
        serde_json::from_str(json).unwrap()
    }

    fn two() -> (State, State) {
        let before = state(
            r#"{"pid": 7, "uptime_ms": 1000, "connections": 1, "latency_bounds_s": [0.001, 0.002, 0.01],
            "groups": {"a": [{"pid": 1, "uid": 0, "backend_connection": 0, "services": ["x.A"], "outstanding": 0, "calls": 10, "attached_ms": 5}]},
            "load_balancing": {"a": {"policy": "affinity", "waiting": 3, "imbalance": 0.5}},
            "methods": [{"method": "x.A/B", "started": 10, "ended": {"OK": 9, "INTERNAL": 1}, "latency_counts": [10, 0, 0, 0]}],
            "devices": {"a": {"registers": {"doorbell": "coherent:4"}, "publications": 10, "sends": 10, "rings": 1}},
            "connections_max": 9, "stage_bounds_s": [0.001, 0.002],
            "stages": [{"stage": "placed", "counts": [1, 0, 0], "sum_s": 0.001}],
            "errors": [{"ago_ms": 5, "reason": "late", "method": "x.A/B", "words": "too late"}],
            "objects": {}, "refusals": {"idle": 1, "age": 0}}"#,
        );
        let mut now = before.clone();
        now.uptime_ms = 3000;
        now.groups.get_mut("a").unwrap()[0].calls = 30;
        now.methods[0].started = 30;
        now.methods[0].ended.insert("OK".into(), 25);
        now.methods[0].ended.insert("INTERNAL".into(), 5);
        now.methods[0].latency_counts = vec![10, 10, 9, 1];
        now.refusals.insert("idle".into(), 5);
        let device = now.devices.get_mut("a").unwrap();
        (device.publications, device.sends, device.rings) = (20, 50, 5);
        (now.stages[0].counts, now.stages[0].sum_s) = (vec![1, 2, 0], 0.004);
        (before, now)
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let (before, now) = two();
        let rates = Rates::between(&before, &now);
        assert_eq!((rates.interval_ms, rates.calls_per_s), (2000, 10.0));
        assert_eq!(rates.groups[0].backend_connections[0].calls_per_s, 10.0);
        assert_eq!((rates.groups[0].policy, rates.groups[0].waiting), ("affinity", 3));
        let method = &rates.methods[0];
        assert_eq!((method.calls_per_s, method.errors_per_s), (10.0, 2.0));
        // Ten of twenty took 1 to 2 ms, and the last of them longer than all bounds.
        assert_eq!((method.p50_ms, method.p99_ms), (Some(2.0), Some(10.0)));
        assert_eq!(rates.refusals_per_s, BTreeMap::from([("idle".to_owned(), 2.0)]));
        let text = rates.text();
        assert!(text.contains("x.A/B") && text.contains("refused: idle 2.0/s"), "{text}");
        let device = &rates.groups[0].device;
        assert_eq!((device.publications_per_s, device.rings_per_s), (5.0, 2.0));
        assert_eq!(device.sends_per_publication, Some(4.0));
        let stage = &rates.stages[0];
        assert_eq!((stage.timed, stage.p99_us.map(f64::round)), (2, Some(1990.0)));
        assert!((stage.mean_us.unwrap() - 1500.0).abs() < 1.0, "{stage:?}");
        for words in ["coherent:4", "1 of 9 connections", "late x.A/B too late"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_gateway_that_was_started_anew_counts_from_its_start() {
        let (mut before, now) = two();
        before.pid = 6;
        assert_eq!(Rates::between(&before, &now).calls_per_s, 10.0, "30 calls in 3 s");
    }

    #[test]
    fn nothing_that_ended_has_no_time() {
        let (before, _) = two();
        let mut now = before.clone();
        now.uptime_ms += 1;
        assert_eq!(Rates::between(&before, &now).methods[0].p50_ms, None);
    }
}
