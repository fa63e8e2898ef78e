//! Channels of a loop that threads share: what a client's and an event loop's have in common.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tollfree_driver_blocking::{ChannelConfig, ChannelId, Policy, Target, Throttling};

use crate::sharing::Sharing;

/// Opens a channel: its number. Targets are `(address, weight, priority)`.
pub(crate) fn open(
    sharing: &Sharing,
    py: Python<'_>,
    targets: Vec<(String, u32, u32)>,
    policy: &str,
    throttling: Option<(u32, u32)>,
    health_service: Option<String>,
) -> PyResult<u64> {
    sharing.check()?;
    let config = config(targets, policy, throttling, health_service)?;
    let opened = sharing.ask(py, move |leader| leader.events().open_channel(config))?;
    opened.map(ChannelId::to_bits).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn config(
    targets: Vec<(String, u32, u32)>,
    policy: &str,
    throttling: Option<(u32, u32)>,
    health_service: Option<String>,
) -> PyResult<ChannelConfig> {
    let policy = match policy {
        "pick_first" => Policy::PickFirst,
        "round_robin" => Policy::RoundRobin,
        "least_request" => Policy::LeastOutstanding,
        other => {
            let words =
                format!("load balancing {other:?}: pick_first, round_robin and least_request are possible");
            return Err(PyValueError::new_err(words));
        }
    };
    let target =
        |(address, weight, priority): (String, u32, u32)| Target { weight, priority, ..Target::new(address) };
    Ok(ChannelConfig {
        targets: targets.into_iter().map(target).collect(),
        policy,
        outlier_detection: None,
        throttling: throttling.map(|(tokens_max, ratio)| Throttling { tokens_max, ratio }),
        health_service: health_service.map(Into::into),
    })
}

/// What became of a loop's long messages, by name.
pub(crate) fn payloads(sharing: &Sharing, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
    sharing.check()?;
    let counts = sharing.ask(py, |leader| leader.events().payloads())?;
    Ok(vec![
        ("sent_by_ref", counts.sent_by_ref),
        ("sent_inline", counts.sent_inline),
        ("pool_full", counts.pool_full),
        ("received_by_ref", counts.received_by_ref),
        ("asked_for", counts.asked_for),
        ("refused_refs", counts.refused_refs),
        ("copied_bytes", counts.copied_bytes),
    ])
}

/// Ends a channel, with its calls.
pub(crate) fn close(sharing: &Sharing, channel: u64) -> PyResult<()> {
    sharing.check()?;
    sharing.run(move |leader| leader.events().close_channel(ChannelId::from_bits(channel)));
    Ok(())
}

/// Connects a channel that is idle, and keeps it connected.
pub(crate) fn connect(sharing: &Sharing, channel: u64) -> PyResult<()> {
    sharing.check()?;
    sharing.run(move |leader| leader.events().connect_channel(ChannelId::from_bits(channel)));
    Ok(())
}

/// 0 idle, 1 connecting, 2 ready, 3 transient failure. `None`: it was closed.
pub(crate) fn state(sharing: &Sharing, py: Python<'_>, channel: u64) -> PyResult<Option<u8>> {
    sharing.check()?;
    sharing.ask(py, move |leader| {
        leader.events().channel_state(ChannelId::from_bits(channel)).map(|state| state as u8)
    })
}
