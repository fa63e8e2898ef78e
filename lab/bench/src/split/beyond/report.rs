//! The result of `tollfree-lab bench split --beyond`.

use serde::Serialize;

use super::{BeyondCase, BeyondPlan, BeyondState, Flooded, Question, Round, Split};
use crate::cells;
use crate::harness::measured::{each, together};
use crate::harness::words::{figure, micros};
use crate::harness::{Machine, Report, Rows, Table, Tried, is_failure};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct BeyondReport {
    /// The rate of calls, by that of the knee.
    pub share: f64,
    /// A row for each case and question; its measured time is that of each state.
    #[serde(flatten)]
    pub rows: Rows<BeyondRow>,
    /// What came of the load, for each case and state that has some.
    pub loads: Vec<LoadRow>,
}

/// What the gateway's answers to one question took.
#[derive(Debug, Serialize)]
pub struct BeyondRow {
    /// Which case.
    #[serde(flatten)]
    pub case: BeyondCase,
    /// What was asked.
    pub question: Question,
    /// In the states, in the order of [`BeyondState`]. Empty where nothing was measured.
    pub states: Vec<StateRow>,
    /// P99 beyond the knee, by that without a load.
    pub p99_of_quiet: Option<f64>,
    /// P99 beyond the knee, by that under the same rate of calls.
    pub p99_of_same_rate: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

/// Latencies in one state.
#[derive(Debug, Serialize)]
pub struct StateRow {
    /// Which.
    pub state: BeyondState,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 answers took no longer.
    pub p99_ns: u64,
    /// Answers that were measured.
    pub calls: u64,
}

/// What came of the load in one state, all rounds together.
#[derive(Debug, Serialize)]
pub struct LoadRow {
    /// Which case.
    #[serde(flatten)]
    pub case: BeyondCase,
    /// Which state.
    pub state: BeyondState,
    /// Calls a second that the backend answers when there are always some.
    pub knee_per_s: f64,
    /// Calls a second that were due.
    pub due_per_s: f64,
    /// Calls a second that were answered.
    pub answered_per_s: f64,
    /// The share of those due that were not made, since too many were under way.
    pub left_out_share: f64,
    /// 99 of 100 answers took no longer, from when the call was due.
    pub p99_ns: u64,
    /// The share of its core that the backend used.
    pub host_share: f64,
    /// The share of the other core that the gateway used.
    pub infra_share: f64,
    /// The share of that core that the load generator used.
    pub client_share: f64,
}

impl BeyondReport {
    pub(super) fn new(
        machine: Machine,
        plan: &BeyondPlan,
        tried: Vec<Tried<BeyondCase, Round>>,
    ) -> BeyondReport {
        let (mut rows, mut loads) = (Vec::new(), Vec::new());
        for tried in tried {
            rows.extend(Question::ALL.iter().map(|&question| row(&tried, question)));
            loads.extend(BeyondState::ALL.iter().filter_map(|&state| load(&tried, state)));
        }
        let rows = Rows::of(machine, plan.split.lasting, rows, |row| row);
        BeyondReport { share: plan.share, rows, loads }
    }
}

impl Report for BeyondReport {
    fn table(&self) -> String {
        let us = |ns: u64| micros(ns as f64);
        let busy = |case: &BeyondCase| case.busy_ns as f64 / 1000.0;
        let states: Vec<String> =
            BeyondState::ALL.iter().map(|state| format!("{state} p50 us|p99 us")).collect();
        let columns = format!("busy us|{}|p99 beyond: of quiet|of same-rate", states.join("|"));
        let mut answers = Table::new("message|asked for", &columns);
        for row in &self.rows.rows {
            let mut cells = cells![row.case.message, row.question, busy(&row.case)];
            if let Some(why) = &row.not_run {
                answers.noted(cells, why);
                continue;
            }
            cells.extend(row.states.iter().flat_map(|state| [us(state.p50_ns), us(state.p99_ns)]));
            cells.extend([figure(row.p99_of_quiet, 2), figure(row.p99_of_same_rate, 2)]);
            answers.row(cells);
        }
        let mut loads = Table::new(
            "message|load",
            "busy us|knee/s|due/s|answered/s|left out|p99 us|backends|gateway|client",
        );
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        for load in &self.loads {
            let mut cells = cells![load.case.message, load.state, busy(&load.case)];
            cells.extend(
                [load.knee_per_s, load.due_per_s, load.answered_per_s].map(|rate| format!("{rate:.0}")),
            );
            cells.extend([percent(load.left_out_share), us(load.p99_ns)]);
            cells.extend([load.host_share, load.infra_share, load.client_share].map(percent));
            loads.row(cells);
        }
        let heading = self.rows.heading(&format!(
            " a state; the backend has a core, all else the other; calls come at {} of the knee\n",
            self.share
        ));
        format!("{heading}{answers}\n{loads}")
    }

    fn began(&self) -> &str {
        &self.rows.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
    }
}

fn row(tried: &Tried<BeyondCase, Round>, question: Question) -> BeyondRow {
    let of = |state: BeyondState| {
        let told = tried.rounds.iter().map(|round| &round.states[state as usize].told);
        let all = together(told.map(|told| &told.latencies[question as usize]));
        let (p50_ns, p99_ns) = (all.quantile_ns(0.5), all.quantile_ns(0.99));
        StateRow { state, p50_ns, p99_ns, calls: all.count() }
    };
    let states: Vec<StateRow> = match tried.rounds.is_empty() {
        true => Vec::new(),
        false => BeyondState::ALL.iter().copied().map(of).collect(),
    };
    let p99 = |state: BeyondState| states.get(state as usize).map(|row| row.p99_ns.max(1) as f64);
    let ratio = |to: BeyondState| Some(p99(BeyondState::Beyond)? / p99(to)?);
    BeyondRow {
        case: tried.case,
        question,
        p99_of_quiet: ratio(BeyondState::Quiet),
        p99_of_same_rate: ratio(BeyondState::SameRate),
        states,
        not_run: tried.not_run.clone(),
    }
}

/// None where a state has no load, or nothing was measured.
fn load(tried: &Tried<BeyondCase, Round>, state: BeyondState) -> Option<LoadRow> {
    let floods = tried.rounds.iter().map(|round| round.states[state as usize].flooded.as_ref());
    let floods: Vec<&Flooded> = floods.collect::<Option<_>>()?;
    if floods.is_empty() {
        return None;
    }
    let all = Split::sum(floods.iter().map(|flooded| &flooded.split));
    let [due, left_out] = [|flooded: &&Flooded| flooded.due, |flooded: &&Flooded| flooded.left_out]
        .map(|of| floods.iter().map(of).sum::<u64>());
    let knees: f64 = tried.rounds.iter().map(|round| round.knee_per_s).sum();
    let share = |ns: u64| each(ns, all.elapsed_ns);
    Some(LoadRow {
        case: tried.case,
        state,
        knee_per_s: knees / tried.rounds.len() as f64,
        due_per_s: share(due) * 1e9,
        answered_per_s: all.rate(),
        left_out_share: each(left_out, due),
        p99_ns: all.latencies.quantile_ns(0.99),
        host_share: share(all.host_cpu_ns),
        infra_share: share(all.infra_cpu_ns),
        client_share: share(all.client_cpu_ns),
    })
}
