//! Dashboard and alerts in `deploy` name metrics: each is one that the gateway exports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tollfree_control::{BackendConnectionState, DeviceState};
use tonic::Code;

use crate::client::{Class, Client};
use crate::config::Policy;
use crate::metrics::{Metrics, Spread};
use crate::refusal::Refusal;

const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/grafana/gateway.json"));
const ALERTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/alerts.yaml"));
const RUNBOOK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/runbook.md"));
const GROUP: &str = "g";
const PREFIXES: [&str; 4] = ["tollfree_gateway_", "grpc_server_", "grpc_client_", "process_"];

/// Every metric that a gateway has, each once.
fn exported() -> BTreeSet<String> {
    let metrics = Metrics::new();
    for counter in [
        metrics.hangs(GROUP),
        metrics.unhealthy(GROUP),
        metrics.health_check_failures(GROUP),
        metrics.ejections(GROUP),
        metrics.retries(GROUP),
    ] {
        counter.inc();
    }
    for gauge in [metrics.backend_connections(GROUP), metrics.outstanding(GROUP), metrics.memory(GROUP)] {
        gauge.inc();
    }
    metrics.refused(Refusal::Age, &Client::at("192.0.2.1:1", Class::Public), "", "");
    metrics.ended_calls(GROUP).add(Code::Ok, Duration::from_millis(1));
    metrics.certificate_expires("world", Duration::from_secs(1));
    let served = metrics.common.serve("a.B/C");
    drop(served);
    let spread = Spread { group: GROUP.into(), policy: Policy::default(), waiting: 1, imbalance: 1.0 };
    let devices = BTreeMap::from([(GROUP.to_owned(), DeviceState::default())]);
    let backends = BTreeMap::from([(GROUP.to_owned(), vec![BackendConnectionState::default()])]);
    let text = metrics.text(vec![spread], &devices, &backends);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix))).collect()
}

#[test]
fn dashboard_alerts_and_runbook_name_metrics_that_there_are() {
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
    let exported = exported();
    for (name, text, least) in [("gateway.json", DASHBOARD, 20), ("alerts.yaml", ALERTS, 10)] {
        let named = named(text);
        assert!(named.len() >= least, "{name} names {named:?} only");
        let unknown: Vec<_> = named.into_iter().filter(|metric| !exported.contains(*metric)).collect();
        assert!(unknown.is_empty(), "{name} names {unknown:?}, and there are {exported:#?}");
    }
    // Prose leaves out what a histogram's samples end in.
    let known = |metric: &&str| exported.contains(*metric) || exported.contains(&format!("{metric}_bucket"));
    let unknown: Vec<_> = named(RUNBOOK).into_iter().filter(|metric| !known(metric)).collect();
    assert!(unknown.is_empty(), "runbook.md names {unknown:?}");
}

#[test]
fn each_alert_names_a_section_of_the_runbook() {
    let titles = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## "));
    let anchors: BTreeSet<String> = titles.map(|title| title.to_lowercase().replace(' ', "-")).collect();
    assert!(anchors.len() >= 10, "{anchors:?}");
    let (mut alerts, mut runbooks) = (0, 0);
    for line in ALERTS.lines().map(str::trim) {
        alerts += usize::from(line.starts_with("- alert: "));
        if let Some(section) = line.strip_prefix("runbook: ") {
            assert!(anchors.contains(section), "there is no section {section} in {anchors:?}");
            runbooks += 1;
        }
    }
    assert!(alerts >= 10 && alerts == runbooks, "{alerts} alerts, {runbooks} sections");
}
