//! One policy on one trace: the shepherd's own code chooses, and workers are queues with one server each.

use std::collections::VecDeque;

use tollfree_shepherd::steering::{Asking, Function, Load, Rules};
use tollfree_shepherd::{Policy, Steering};

use super::trace::Arrival;

/// What a policy did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// Requests to a worker that had their function in its cache.
    pub(super) hits: usize,
    /// By which share the busiest worker had more work than the mean.
    pub(super) imbalance: f64,
    /// The largest count of outstanding requests, less the mean; the mean of all arrivals.
    pub(super) imbalance_calls: f64,
    /// From arrival to start.
    pub(super) queueing_mean_us: f64,
    pub(super) queueing_p99_us: f64,
}

struct Worker {
    load: Load,
    /// The functions that it really has, however many the policy thinks it has.
    cache: Load,
    ends_us: VecDeque<f64>,
    work_us: f64,
}

/// Steers a trace to `workers`, each of which keeps its last `cache` functions.
pub(super) fn simulate(trace: &[Arrival], workers: usize, steering: &Steering, cache: u32) -> Outcome {
    let rules = Rules::new(steering);
    let paths: Vec<String> = (0..=trace.iter().map(|arrival| arrival.function).max().unwrap_or(0))
        .map(|function| format!("model.Steering/F{function}"))
        .collect();
    let new =
        |id| Worker { load: Load::new(id), cache: Load::new(id), ends_us: VecDeque::new(), work_us: 0.0 };
    let mut workers: Vec<Worker> = (0..workers as u64).map(new).collect();
    let (mut hits, mut above) = (0, 0.0);
    let mut queueing = Vec::with_capacity(trace.len());
    for (arrival, now) in trace.iter().zip(0..) {
        for worker in &mut workers {
            while worker.ends_us.front().is_some_and(|end| *end <= arrival.at_us) {
                worker.ends_us.pop_front();
                worker.load.end();
            }
        }
        let counts = workers.iter().map(|worker| worker.ends_us.len());
        let mean = counts.clone().sum::<usize>() as f64 / workers.len() as f64;
        above += counts.max().unwrap_or(0) as f64 - mean;
        let path = &paths[arrival.function];
        let asking = Asking { path, connection: arrival.connection };
        let chosen = rules.choose(&asking, workers.iter().map(|worker| &worker.load).zip(0..));
        let Some(chosen) = chosen else { continue };
        chosen.begin();
        let at: usize = chosen.worker;
        let worker = &mut workers[at];
        let function = Function::of(path);
        hits += usize::from(worker.cache.has(function, cache));
        worker.cache.remember(function, cache, now);
        let start = worker.ends_us.back().copied().unwrap_or(0.0).max(arrival.at_us);
        queueing.push(start - arrival.at_us);
        worker.ends_us.push_back(start + arrival.takes_us);
        worker.work_us += arrival.takes_us;
    }
    queueing.sort_by(f64::total_cmp);
    let count = queueing.len().max(1);
    let works = workers.iter().map(|worker| worker.work_us);
    let mean_work = works.clone().sum::<f64>() / workers.len() as f64;
    Outcome {
        hits,
        imbalance: works.fold(0.0, f64::max) / mean_work - 1.0,
        imbalance_calls: above / count as f64,
        queueing_mean_us: queueing.iter().sum::<f64>() / count as f64,
        queueing_p99_us: queueing.get(count * 99 / 100).copied().unwrap_or(0.0),
    }
}

/// A policy with its bounds.
pub(super) fn steering(policy: Policy, functions: u32, imbalance: u32) -> Steering {
    let mut steering = Steering::default();
    (steering.policy, steering.functions, steering.imbalance) = (policy, functions, imbalance);
    steering
}
