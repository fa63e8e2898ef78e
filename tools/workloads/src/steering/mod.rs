//! What each steering policy would do on traces, beside the best that anybody could do who knew them beforehand.
//!
//! Nothing of it is measured: arrivals are drawn, workers are queues, and a hit is a request to a worker that has its function among the last
//! that it ran. What chooses is the shepherd's own code.

mod optimum;
mod simulate;
mod trace;

use std::fmt::Write;

use serde::Serialize;
use tollfree_shepherd::Policy;

use optimum::{Exact, belady};
use simulate::{simulate, steering};
use trace::{Mix, trace};

/// A policy on traces of one setting. Everything is simulated.
#[derive(Debug, Clone, Serialize)]
pub struct Steered {
    /// `simulated`: no row is of a measurement.
    pub kind: &'static str,
    /// `cerebros`, `ours`, or `small` where the optimum is exact.
    pub setting: &'static str,
    /// The functions, and how often each is called.
    pub mix: &'static str,
    /// The share of time for which workers are busy.
    pub load: f64,
    /// How many workers.
    pub workers: usize,
    /// Functions that a worker keeps, and that are remembered of each.
    pub functions: u32,
    /// The bound of [`Policy::Affinity`].
    pub imbalance_bound: u32,
    /// By what workers are chosen.
    pub policy: &'static str,
    /// Requests of all traces.
    pub requests: usize,
    /// The share of requests that went to a worker with their function.
    pub hits: f64,
    /// The largest share that anybody could have had.
    pub optimum: f64,
    /// `exact`: of all choices within the bound. `belady`: an upper bound, with one cache as large as all together and no bound of imbalance.
    pub optimum_by: &'static str,
    /// Hits as a share of the optimum.
    pub of_optimum: f64,
    /// By which share the busiest worker had more work than the mean of all.
    pub imbalance: f64,
    /// The largest count of outstanding requests less the mean, as arrivals found it.
    pub imbalance_calls: f64,
    /// From arrival to start.
    pub queueing_mean_us: f64,
    /// Of a hundred requests, ninety-nine waited shorter.
    pub queueing_p99_us: f64,
}

/// How many functions are remembered of a worker, and how many it really keeps.
#[derive(Debug, Clone, Serialize)]
pub struct Remembered {
    /// `simulated`.
    pub kind: &'static str,
    /// Functions that a worker keeps.
    pub kept: u32,
    /// The share of hits with 1, 2, 4, 8 and 16 functions remembered.
    pub hits: [f64; 5],
}

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct SteeringModel {
    /// Each policy in each setting.
    pub rows: Vec<Steered>,
    /// What the default of `functions` was chosen by, with four workers.
    pub remembered: Vec<Remembered>,
}

struct Setting {
    name: &'static str,
    mix: Mix,
    load: f64,
    workers: usize,
    functions: u32,
    imbalance: u32,
    requests: usize,
    traces: u64,
}

const KIND: &str = "simulated";
const REMEMBERED: [u32; 5] = [1, 2, 4, 8, 16];
/// Requests of a long trace.
const REQUESTS: usize = 40_000;

fn settings() -> Vec<Setting> {
    let defaults = steering_defaults();
    let (functions, imbalance) = (defaults.functions, defaults.imbalance);
    let mut settings = Vec::new();
    for load in [0.5, 0.8] {
        settings.push(Setting {
            name: "cerebros",
            mix: Mix::user(),
            load,
            workers: 15,
            functions: 1,
            imbalance,
            requests: REQUESTS,
            traces: 1,
        });
    }
    let mixes = [Mix::user(), Mix::zipf("zipf 8", 8), Mix::zipf("zipf 16", 16), Mix::zipf("zipf 32", 32)];
    for mix in mixes {
        for load in [0.5, 0.8] {
            let (name, mix) = ("ours", mix.clone());
            settings.push(Setting {
                name,
                mix,
                load,
                workers: 4,
                functions,
                imbalance,
                requests: REQUESTS,
                traces: 1,
            });
        }
    }
    for (workers, functions) in [(4, 1), (2, 2)] {
        let mix = Mix::zipf("zipf 5", 5);
        settings.push(Setting {
            name: "small",
            mix,
            load: 0.8,
            workers,
            functions,
            imbalance,
            requests: 12,
            traces: 40,
        });
    }
    settings
}

fn steering_defaults() -> tollfree_shepherd::Steering {
    tollfree_shepherd::Steering::default()
}

impl Setting {
    fn rows(&self) -> Vec<Steered> {
        let traces: Vec<_> = (0..self.traces)
            .map(|seed| trace(&self.mix, self.workers, self.load, self.requests, seed + 1))
            .collect();
        let requests = self.requests * traces.len();
        let is_small = self.name == "small";
        let optimum: usize = traces
            .iter()
            .map(|trace| match is_small {
                true => Exact::hits(trace, self.workers, self.functions as usize, self.imbalance),
                false => belady(trace, self.workers * self.functions as usize),
            })
            .sum();
        let row = |policy: Policy| {
            let rules = steering(policy, self.functions, self.imbalance);
            let outcomes: Vec<_> =
                traces.iter().map(|trace| simulate(trace, self.workers, &rules, self.functions)).collect();
            let hits: usize = outcomes.iter().map(|outcome| outcome.hits).sum();
            let mean = |of: fn(&simulate::Outcome) -> f64| {
                outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
            };
            Steered {
                kind: KIND,
                setting: self.name,
                mix: self.mix.name,
                load: self.load,
                workers: self.workers,
                functions: self.functions,
                imbalance_bound: self.imbalance,
                policy: policy.name(),
                requests,
                hits: hits as f64 / requests as f64,
                optimum: optimum as f64 / requests as f64,
                optimum_by: if is_small { "exact" } else { "belady" },
                of_optimum: hits as f64 / optimum.max(1) as f64,
                imbalance: mean(|outcome| outcome.imbalance),
                imbalance_calls: mean(|outcome| outcome.imbalance_calls),
                queueing_mean_us: mean(|outcome| outcome.queueing_mean_us),
                queueing_p99_us: mean(|outcome| outcome.queueing_p99_us),
            }
        };
        Policy::ALL.map(row).to_vec()
    }
}

impl SteeringModel {
    /// Runs it, in seconds. Each run gives the same.
    pub fn run() -> SteeringModel {
        let rows = settings().iter().flat_map(Setting::rows).collect();
        let trace = trace(&Mix::zipf("zipf 16", 16), 4, 0.8, REQUESTS, 1);
        let imbalance = steering_defaults().imbalance;
        let remembered = [1, 2, 4, 8].map(|kept| {
            let hits = REMEMBERED.map(|functions| {
                let rules = steering(Policy::Affinity, functions, imbalance);
                simulate(&trace, 4, &rules, kept).hits as f64 / trace.len() as f64
            });
            Remembered { kind: KIND, kept, hits }
        });
        SteeringModel { rows, remembered: remembered.to_vec() }
    }

    /// As tables.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let title = format!(
                "{} {}: {} workers of {} functions, bound {}, mix {}, load {:.1}, {} requests; optimum {:.1} % ({})",
                row.kind,
                row.setting,
                row.workers,
                row.functions,
                row.imbalance_bound,
                row.mix,
                row.load,
                row.requests,
                row.optimum * 100.0,
                row.optimum_by
            );
            if row.policy == Policy::ALL[0].name() {
                _ = writeln!(text, "{title}");
                _ = writeln!(
                    text,
                    "  {:<18} {:>7} {:>11} {:>12} {:>11} {:>10} {:>10}",
                    "policy", "hits %", "of optimum", "imbalance %", "above mean", "queue us", "p99 us"
                );
            }
            _ = writeln!(
                text,
                "  {:<18} {:>7.1} {:>11.3} {:>12.1} {:>11.2} {:>10.1} {:>10.1}",
                row.policy,
                row.hits * 100.0,
                row.of_optimum,
                row.imbalance * 100.0,
                row.imbalance_calls,
                row.queueing_mean_us,
                row.queueing_p99_us
            );
        }
        _ = writeln!(
            text,
            "{KIND} ours, zipf 16, load 0.8: hits in % by functions remembered {REMEMBERED:?}"
        );
        for row in &self.remembered {
            let hits = row.hits.map(|hits| format!("{:>6.1}", hits * 100.0)).join(" ");
            _ = writeln!(text, "  {} kept {hits}", row.kept);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the defaults were chosen for. The long traces have an optimum that heeds no bound of imbalance, so less is asked of them.
    #[test]
    fn affinity_comes_near_the_optimum() {
        let model = SteeringModel::run();
        let affinity = |row: &&Steered| row.policy == Policy::Affinity.name();
        for row in model.rows.iter().filter(affinity) {
            assert!(row.of_optimum <= 1.0, "{row:?}");
            match (row.setting, row.mix) {
                ("small", _) | ("ours", "user") => assert!(row.of_optimum >= 0.95, "{row:?}"),
                ("ours", "zipf 8") => assert!(row.of_optimum >= 0.95 && row.imbalance <= 0.1, "{row:?}"),
                ("ours", _) => assert!(row.imbalance <= 0.1, "{row:?}"),
                _ => {}
            }
            let case = |row: &Steered| (row.setting, row.mix, row.load, row.workers, row.functions);
            let mut others = model.rows.iter().filter(|other| case(other) == case(row));
            assert!(others.all(|other| other.hits <= row.hits), "{row:?}");
        }
        assert!(model.rows.iter().all(|row| row.kind == "simulated"));
    }
}
