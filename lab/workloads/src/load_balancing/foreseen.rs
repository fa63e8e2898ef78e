//! What somebody does who knows all requests beforehand: a schedule within the bound, so that the optimum is no worse.
//!
//! A beam search: of all ways that the best few schedules can go on, the best few are kept. A schedule is worth its hits, what its workers have that
//! is called soon, and that work is spread.

use super::trace::Arrival;
use super::worker::{Worker, allowed, imbalance};

/// Schedules that are kept.
const WIDTH: usize = 4;
/// A function that is called next after so many requests is worth an e-th of one that is called at once.
const HORIZON: f64 = 40.0;
/// What it is worth that a worker has a function that is called at once, in hits; and that another one has it too.
const FIRST_WORTH: f64 = 0.8;
const OTHER_WORTH: f64 = 0.08;
/// What a worker's backlog of a millisecond costs, in hits.
const BACKLOG_COST: f64 = 0.1;

#[derive(Clone)]
struct Schedule {
    workers: Vec<Worker>,
    hits: usize,
}

/// A way on: its worth, the schedule, and the worker of the next request.
type Way = (f64, usize, usize);

/// Hits of the best schedule found, and by which share its busiest worker has more work than the mean.
pub(super) fn foreseen(trace: &[Arrival], workers: usize, functions: u32, bound: u32) -> (usize, f64) {
    let functions = functions as usize;
    let all = trace.iter().map(|arrival| arrival.function + 1).max().unwrap_or(0);
    let mut calls = vec![Vec::new(); all];
    for (at, arrival) in trace.iter().enumerate().rev() {
        calls[arrival.function].push(at);
    }
    let mut beam = vec![Schedule { workers: vec![Worker::default(); workers], hits: 0 }];
    let mut ways: Vec<Way> = Vec::new();
    for (at, arrival) in trace.iter().enumerate() {
        calls[arrival.function].pop();
        let soon =
            |calls: &Vec<usize>| calls.last().map_or(0.0, |next| (-((next - at) as f64) / HORIZON).exp());
        let soon: Vec<f64> = calls.iter().map(soon).collect();
        ways.clear();
        for (idx, schedule) in beam.iter_mut().enumerate() {
            schedule.workers.iter_mut().for_each(|worker| _ = worker.advance(arrival.at_us));
            look(schedule, idx, arrival, &soon, functions, bound, &mut ways);
        }
        ways.sort_by(|one, other| other.0.total_cmp(&one.0));
        ways.truncate(WIDTH);
        let go_on = |&(_, idx, worker): &Way| {
            let mut schedule = beam[idx].clone();
            let (is_hit, _) = schedule.workers[worker].take(arrival, functions);
            schedule.hits += usize::from(is_hit);
            schedule
        };
        beam = ways.iter().map(go_on).collect();
    }
    let best = beam.iter().max_by_key(|schedule| schedule.hits);
    best.map_or((0, 0.0), |best| (best.hits, imbalance(&best.workers)))
}

/// All ways in which a schedule may go on.
fn look(
    schedule: &Schedule,
    idx: usize,
    arrival: &Arrival,
    soon: &[f64],
    functions: usize,
    bound: u32,
    ways: &mut Vec<Way>,
) {
    let Schedule { workers, hits } = schedule;
    let mut holders = vec![0_u32; soon.len()];
    workers.iter().flat_map(Worker::kept).for_each(|function| holders[*function] += 1);
    let worth_of = |function: usize, holders: u32| {
        let worth = if holders == 0 { FIRST_WORTH } else { OTHER_WORTH };
        worth * soon[function]
    };
    let kept: f64 = (0..soon.len())
        .map(|function| (0..holders[function]).map(|nth| worth_of(function, nth)).sum::<f64>())
        .sum();
    let backlogs = workers.iter().map(|worker| worker.backlog_us(arrival.at_us));
    let squares: f64 = backlogs.map(|backlog| backlog * backlog).sum();
    let mut has_begun_new = false;
    for at in allowed(workers, bound) {
        let worker = &workers[at];
        // Workers that have had nothing are all the same.
        if worker.kept().is_empty() && std::mem::replace(&mut has_begun_new, true) {
            continue;
        }
        let is_hit = worker.has(arrival.function);
        let mut worth = *hits as f64 + kept;
        if is_hit {
            worth += 1.0;
        } else {
            worth += worth_of(arrival.function, holders[arrival.function]);
            worth -= worker.victim(functions).map_or(0.0, |victim| worth_of(victim, holders[victim] - 1));
        }
        let before = worker.backlog_us(arrival.at_us);
        let after = before + arrival.takes_us;
        let spread = (squares - before * before + after * after).sqrt();
        ways.push((worth - BACKLOG_COST * spread / 1000.0, idx, at));
    }
}

#[cfg(test)]
mod tests {
    use super::super::exact::most_hits;
    use super::super::trace::{Mix, trace};
    use super::*;

    #[test]
    fn no_schedule_is_better_than_the_optimum_and_few_are_much_worse() {
        let (mut found, mut most) = (0, 0);
        for seed in 0..20 {
            let trace = trace(&Mix::zipf("small", 5), 3, 0.8, 10, seed);
            let (hits, _) = foreseen(&trace, 3, 2, 1);
            let best = most_hits(&trace, &vec![Worker::default(); 3], 2, 1);
            assert!(hits <= best, "{hits} of {best}, seed {seed}");
            (found, most) = (found + hits, most + best);
        }
        assert!(found * 100 >= most * 95, "{found} of {most}");
    }
}
