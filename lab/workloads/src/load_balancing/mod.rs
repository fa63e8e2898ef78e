//! What each load balancing policy would do on traces, beside the best that anybody could do who knew them beforehand.
//!
//! Nothing of it is measured: arrivals are drawn, workers are queues, and a hit is a request to a worker that has its function among the last
//! that it ran. What chooses is the gateway's own code.

mod belady;
mod exact;
mod foreseen;
mod simulate;
mod trace;
mod worker;

use std::fmt::Write;

use serde::Serialize;
use tollfree_gateway::Policy;

use belady::belady;
use exact::most_hits;
use foreseen::foreseen;
use simulate::{Outcome, load_balancing, simulate};
use trace::{Arrival, Mix, trace};

/// A policy on traces of one setting. Everything is simulated.
#[derive(Debug, Clone, Serialize)]
pub struct Balanced {
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
    /// The bound of [`Policy::Affinity`], which the optimum heeds too.
    pub imbalance_bound: u32,
    /// By what workers are chosen.
    pub policy: &'static str,
    /// Requests of all traces that count.
    pub requests: usize,
    /// The share of requests that went to a worker with their function.
    pub hits: f64,
    /// The optimum: the largest share that anybody could have had within the bound. It is at least this.
    pub optimum_least: f64,
    /// And at most this.
    pub optimum_most: f64,
    /// How both are known. `exact`: all choices were tried, from the state on in which the policy itself had brought the workers. `between`: at least
    /// what a schedule has that was made with all requests known, and at most what one cache has that is as large as all together, without a bound.
    pub optimum_by: &'static str,
    /// Hits as a share of `optimum_most`: not more than of the optimum.
    pub of_most: f64,
    /// Hits as a share of `optimum_least`: not less than of the optimum.
    pub of_least: f64,
    /// The largest share that anybody can expect who knows how often each function is called, but not when.
    pub expected_most: f64,
    /// By which share the busiest worker of a trace had more work than the mean of all; the mean of all traces.
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
pub struct LoadBalancingModel {
    /// Each policy in each setting.
    pub rows: Vec<Balanced>,
    /// What the default of `functions` was chosen by, with four workers.
    pub remembered: Vec<Remembered>,
}

#[derive(Clone)]
struct Setting {
    name: &'static str,
    mix: Mix,
    load: f64,
    workers: usize,
    functions: u32,
    imbalance: u32,
    /// Requests of a trace, and those of them that only bring workers into a state.
    requests: usize,
    before: usize,
    traces: u64,
}

const KIND: &str = "simulated";
const REMEMBERED: [u32; 5] = [1, 2, 4, 8, 16];
/// Requests of a long trace.
const REQUESTS: usize = 20_000;
/// Long traces of a setting.
const TRACES: u64 = 4;

fn settings() -> Vec<Setting> {
    let defaults = tollfree_gateway::LoadBalancing::default();
    let (functions, imbalance) = (defaults.functions, defaults.imbalance);
    let long = |name, mix: &Mix, load, workers, functions| {
        let (requests, before, traces) = (REQUESTS, 0, TRACES);
        Setting { name, mix: mix.clone(), load, workers, functions, imbalance, requests, before, traces }
    };
    let mut settings = Vec::new();
    let user = Mix::user();
    settings.extend([0.5, 0.8].map(|load| long("cerebros", &user, load, 15, 1)));
    let mixes = [user, Mix::zipf("zipf 8", 8), Mix::zipf("zipf 16", 16), Mix::zipf("zipf 32", 32)];
    for mix in &mixes {
        settings.extend([0.5, 0.8].map(|load| long("ours", mix, load, 4, functions)));
    }
    for (workers, functions) in [(4, 1), (2, 2)] {
        let (requests, before, traces) = (212, 200, 40);
        let long = long("small", &Mix::zipf("zipf 5", 5), 0.8, workers, functions);
        settings.push(Setting { requests, before, traces, ..long });
    }
    settings
}

impl Setting {
    fn traces(&self, first_seed: u64) -> Vec<Vec<Arrival>> {
        let seeds = first_seed..first_seed + self.traces;
        seeds.map(|seed| trace(&self.mix, self.workers, self.load, self.requests, seed)).collect()
    }

    fn outcome(&self, policy: Policy, trace: &[Arrival]) -> Outcome {
        let rules = load_balancing(policy, self.functions, self.imbalance);
        simulate(trace, self.before, self.workers, &rules, self.functions)
    }

    fn rows(&self) -> Vec<Balanced> {
        let traces = self.traces(1);
        let capacity = self.workers * self.functions as usize;
        let outcomes =
            |policy| -> Vec<Outcome> { traces.iter().map(|trace| self.outcome(policy, trace)).collect() };
        let hits_of = |outcomes: &[Outcome]| outcomes.iter().map(|outcome| outcome.hits).sum::<usize>();
        let is_exact = self.before > 0;
        let of_all_policies = if is_exact {
            (0, 0)
        } else {
            let scheduled = |trace: &Vec<_>| foreseen(trace, self.workers, self.functions, self.imbalance).0;
            let least = traces.iter().map(scheduled).sum::<usize>();
            // What the policy itself has was possible too.
            let least = least.max(hits_of(&outcomes(Policy::Affinity)));
            (least, traces.iter().map(|trace| belady(trace, capacity)).sum())
        };
        let requests = (self.requests - self.before) * traces.len();
        let row = |policy: Policy| {
            let outcomes = outcomes(policy);
            let hits = hits_of(&outcomes);
            let (least, most) = if is_exact {
                let best = |(trace, outcome): (&Vec<Arrival>, &Outcome)| {
                    most_hits(&trace[self.before..], &outcome.at_first, self.functions, self.imbalance)
                };
                let exact = traces.iter().zip(&outcomes).map(best).sum::<usize>();
                (exact, exact)
            } else {
                of_all_policies
            };
            let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
            Balanced {
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
                optimum_least: least as f64 / requests as f64,
                optimum_most: most as f64 / requests as f64,
                optimum_by: if is_exact { "exact" } else { "between" },
                of_most: hits as f64 / most.max(1) as f64,
                of_least: hits as f64 / least.max(1) as f64,
                expected_most: self.mix.most_called(capacity),
                imbalance: mean(|outcome| outcome.imbalance),
                imbalance_calls: mean(|outcome| outcome.imbalance_calls),
                queueing_mean_us: mean(|outcome| outcome.queueing_mean_us),
                queueing_p99_us: mean(|outcome| outcome.queueing_p99_us),
            }
        };
        Policy::ALL.map(row).to_vec()
    }
}

impl LoadBalancingModel {
    /// Runs it, in seconds. Each run gives the same.
    pub fn run() -> LoadBalancingModel {
        let rows = settings().iter().flat_map(Setting::rows).collect();
        let trace = trace(&Mix::zipf("zipf 16", 16), 4, 0.8, REQUESTS, 1);
        let imbalance = tollfree_gateway::LoadBalancing::default().imbalance;
        let remembered = [1, 2, 4, 8].map(|kept| {
            let hits = REMEMBERED.map(|functions| {
                let rules = load_balancing(Policy::Affinity, functions, imbalance);
                simulate(&trace, 0, 4, &rules, kept).hits as f64 / trace.len() as f64
            });
            Remembered { kind: KIND, kept, hits }
        });
        LoadBalancingModel { rows, remembered: remembered.to_vec() }
    }

    /// As tables.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            if row.policy == Policy::ALL[0].name() {
                let optimum = match row.optimum_by {
                    "exact" => "exact, of each policy's own states".to_owned(),
                    _ => format!("{:.1} to {:.1} %", row.optimum_least * 100.0, row.optimum_most * 100.0),
                };
                _ = writeln!(
                    text,
                    "{} {}: {} workers of {} functions, bound {}, mix {}, load {:.1}, {} requests; optimum {optimum}; expected at most {:.1} %",
                    row.kind,
                    row.setting,
                    row.workers,
                    row.functions,
                    row.imbalance_bound,
                    row.mix,
                    row.load,
                    row.requests,
                    row.expected_most * 100.0
                );
                _ = writeln!(
                    text,
                    "  {:<18} {:>7} {:>15} {:>12} {:>11} {:>10} {:>10}",
                    "policy", "hits %", "of optimum", "imbalance %", "above mean", "queue us", "p99 us"
                );
            }
            let of_optimum = match row.optimum_by {
                "exact" => format!("{:.3}", row.of_most),
                _ => format!("{:.3} to {:.3}", row.of_most, row.of_least),
            };
            _ = writeln!(
                text,
                "  {:<18} {:>7.1} {:>15} {:>12.1} {:>11.2} {:>10.1} {:>10.1}",
                row.policy,
                row.hits * 100.0,
                of_optimum,
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

    /// What is asked of the policy `affinity`: 95 % of the optimum, with at most a tenth more work at the busiest worker. With more functions
    /// than all workers keep, those who don't know the future can't have that.
    #[test]
    fn affinity_comes_near_the_optimum() {
        let model = LoadBalancingModel::run();
        let affinity = |row: &&Balanced| row.policy == Policy::Affinity.name();
        for row in model.rows.iter().filter(affinity) {
            assert!(row.of_most <= 1.0 && row.optimum_least <= row.optimum_most, "{row:?}");
            match (row.setting, row.mix) {
                ("small", _) => assert!(row.of_most >= 0.92, "{row:?}"),
                ("ours", "zipf 32") => {
                    assert!(row.hits >= 0.9 * row.expected_most && row.imbalance <= 0.1, "{row:?}")
                }
                ("ours", _) => assert!(row.of_most >= 0.95 && row.imbalance <= 0.1, "{row:?}"),
                _ => assert!(row.of_most >= 0.95, "{row:?}"),
            }
            let case = |row: &Balanced| (row.setting, row.mix, row.load, row.workers, row.functions);
            let mut others = model.rows.iter().filter(|other| case(other) == case(row));
            assert!(others.all(|other| other.hits <= row.hits), "{row:?}");
        }
        assert!(model.rows.iter().all(|row| row.kind == "simulated"));
    }

    /// The same on other requests, without the optimum's lower end.
    #[test]
    fn affinity_comes_as_near_on_other_traces() {
        let is_asked = |setting: &&Setting| setting.name == "ours" && setting.mix.name != "zipf 32";
        for setting in settings().iter().filter(is_asked) {
            let traces = (Setting { traces: 8, ..setting.clone() }).traces(1 + TRACES);
            let outcomes: Vec<_> =
                traces.iter().map(|trace| setting.outcome(Policy::Affinity, trace)).collect();
            let hits: usize = outcomes.iter().map(|outcome| outcome.hits).sum();
            let capacity = setting.workers * setting.functions as usize;
            let most: usize = traces.iter().map(|trace| belady(trace, capacity)).sum();
            let imbalance =
                outcomes.iter().map(|outcome| outcome.imbalance).sum::<f64>() / traces.len() as f64;
            let of_most = hits as f64 / most as f64;
            assert!(
                of_most >= 0.95 && imbalance <= 0.1,
                "{:?}",
                (setting.mix.name, setting.load, of_most, imbalance)
            );
        }
    }
}
