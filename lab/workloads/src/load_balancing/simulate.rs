//! One policy on one trace: the gateway's own code chooses.

use tollfree_gateway::load_balancing::{Asking, Load, Rules};
use tollfree_gateway::{LoadBalancing, Policy};

use super::trace::Arrival;
use super::worker::{Worker, imbalance, mean_outstanding};

/// What a policy did.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Requests to a worker that had their function.
    pub(super) hits: usize,
    /// By which share the busiest worker had more work than the mean.
    pub(super) imbalance: f64,
    /// The largest count of outstanding requests, less the mean; the mean of all arrivals.
    pub(super) imbalance_calls: f64,
    /// From arrival to start.
    pub(super) queueing_mean_us: f64,
    pub(super) queueing_p99_us: f64,
    /// The workers as the first request that counts found them.
    pub(super) at_first: Vec<Worker>,
}

/// Steers a trace to `workers`, each of which keeps its last `kept` functions, however many the policy remembers. Hits and waits count
/// from the request `from` on.
pub(super) fn simulate(
    trace: &[Arrival],
    from: usize,
    workers: usize,
    load_balancing: &LoadBalancing,
    kept: u32,
) -> Outcome {
    let rules = Rules::new(load_balancing);
    let paths: Vec<String> = (0..=trace.iter().map(|arrival| arrival.function).max().unwrap_or(0))
        .map(|function| format!("model.LoadBalancing/F{function}"))
        .collect();
    let loads: Vec<Load> = (0..workers as u64).map(Load::new).collect();
    let mut workers = vec![Worker::default(); workers];
    let mut at_first = workers.clone();
    let (mut hits, mut above) = (0, 0.0);
    let mut queueing = Vec::with_capacity(trace.len());
    for (at, arrival) in trace.iter().enumerate() {
        for (worker, load) in workers.iter_mut().zip(&loads) {
            (0..worker.advance(arrival.at_us)).for_each(|_| load.end());
        }
        if at == from {
            at_first = workers.clone();
        }
        let most = workers.iter().map(Worker::outstanding).max().unwrap_or(0);
        above += most as f64 - mean_outstanding(&workers);
        let asking = Asking { path: &paths[arrival.function], connection: arrival.connection };
        let Some(chosen) = rules.choose(&asking, loads.iter().zip(0..)) else { continue };
        chosen.begin();
        let (is_hit, waits_us) = workers[chosen.backend_connection].take(arrival, kept as usize);
        if at >= from {
            hits += usize::from(is_hit);
            queueing.push(waits_us);
        }
    }
    queueing.sort_by(f64::total_cmp);
    Outcome {
        hits,
        imbalance: imbalance(&workers),
        imbalance_calls: above / trace.len() as f64,
        queueing_mean_us: queueing.iter().sum::<f64>() / queueing.len().max(1) as f64,
        queueing_p99_us: queueing.get(queueing.len() * 99 / 100).copied().unwrap_or(0.0),
        at_first,
    }
}

/// A policy with its bounds.
pub(super) fn load_balancing(policy: Policy, functions: u32, imbalance: u32) -> LoadBalancing {
    let mut load_balancing = LoadBalancing::default();
    (load_balancing.policy, load_balancing.functions, load_balancing.imbalance) =
        (policy, functions, imbalance);
    load_balancing
}
