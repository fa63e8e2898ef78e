//! Ray's object store, for figure 8: driven by a program of its own, if there is a Python that has Ray.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::{BATCH_BYTES_MAX, BLOCK_LEN, PoolPlan};

const PROGRAM: &str = include_str!("../../tools/ray_store.py");
/// Ray starts some ten processes first.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the program says of a round.
#[derive(Debug, Deserialize)]
pub(super) struct Said {
    pub(super) percent: usize,
    pub(super) ns: f64,
}

/// Measures the same settings as the pool's own sides.
///
/// # Errors
/// Why it was not run, in words.
pub(super) async fn run(plan: &PoolPlan, percentages: &[usize]) -> Result<Vec<Said>, String> {
    let python = &plan.python;
    let numbers = [BLOCK_LEN, plan.count.min(BATCH_BYTES_MAX / BLOCK_LEN), plan.rounds];
    let mut program = Command::new(python);
    program.args(["-c", PROGRAM]).args(numbers.iter().chain(percentages).map(ToString::to_string));
    // Nothing of a run is to be told to anybody, or to be left in anybody's home.
    program.env("RAY_USAGE_STATS_ENABLED", "0").env("RAY_AUTH_MODE", "disabled");
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = match tokio::time::timeout(PATIENCE, program.output()).await {
        Ok(ended) => ended.map_err(|error| format!("{python} can't be started: {error}"))?,
        Err(_) => return Err(format!("not over within {} s", PATIENCE.as_secs())),
    };
    if !ended.status.success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Err(format!("{python}: {last} (--python names one that has Ray: pip install ray numpy)"));
    }
    let lines = String::from_utf8_lossy(&ended.stdout);
    lines
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
        .collect()
}
