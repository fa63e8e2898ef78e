//! The result of `tollfree-lab bench split --beyond`.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{BeyondCase, BeyondPlan, BeyondState, Flooded, Question, Round};
use crate::latency::Latencies;
use crate::rounds::Tried;
use crate::{BenchError, Machine, write_files};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct BeyondReport {
    /// Where.
    pub machine: Machine,
    /// Measured time for each state and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The rate of calls, by that of the knee.
    pub share: f64,
    /// A row for each case and question.
    pub rows: Vec<BeyondRow>,
    /// What came of the load, for each case and state that has some.
    pub loads: Vec<LoadRow>,
}

/// What the shepherd's answers to one question took.
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
    /// Calls a second that the business process answers when there are always some.
    pub knee_per_s: f64,
    /// Calls a second that were due.
    pub due_per_s: f64,
    /// Calls a second that were answered.
    pub answered_per_s: f64,
    /// The share of those due that were not made, since too many were under way.
    pub left_out_share: f64,
    /// 99 of 100 answers took no longer, from when the call was due.
    pub p99_ns: u64,
    /// The share of its core that the business process used.
    pub host_share: f64,
    /// The share of the other core that the shepherd used.
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
        let (seconds, rounds) = (plan.split.seconds, plan.split.rounds);
        BeyondReport { machine, seconds, rounds, share: plan.share, rows, loads }
    }

    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &BeyondRow> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// The figures as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The figures for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.machine.in_words();
        let _ = writeln!(
            text,
            "{} rounds of {} s a state; business has a core, all else the other; calls come at {} of the knee\n",
            self.rounds, self.seconds, self.share
        );
        let us = |ns: u64| ns as f64 / 1000.0;
        let _ = write!(text, "{:<8} {:>9} {:<12}", "message", "busy us", "asked for");
        for state in BeyondState::ALL {
            let _ = write!(text, " {:>17}", format!("{state} p50"));
            let _ = write!(text, " {:>9}", "p99 us");
        }
        let _ = writeln!(text, "  p99 beyond: of quiet, of same-rate");
        for row in &self.rows {
            let BeyondCase { message, busy_ns } = row.case;
            let _ = write!(text, "{message:<8} {:>9} {:<12}", us(busy_ns), row.question);
            if let Some(why) = &row.not_run {
                let _ = writeln!(text, " {why}");
                continue;
            }
            for state in &row.states {
                let _ = write!(text, " {:>17.1} {:>9.1}", us(state.p50_ns), us(state.p99_ns));
            }
            let ratio = |ratio: Option<f64>| ratio.unwrap_or(0.0);
            let _ = writeln!(text, "  {:.2} {:.2}", ratio(row.p99_of_quiet), ratio(row.p99_of_same_rate));
        }
        let _ = writeln!(
            text,
            "\n{:<8} {:>9} {:<10} {:>9} {:>9} {:>11} {:>9} {:>12} {:>9} {:>9} {:>9}",
            "message",
            "busy us",
            "load",
            "knee/s",
            "due/s",
            "answered/s",
            "left out",
            "p99 us",
            "business",
            "shepherd",
            "client"
        );
        for load in &self.loads {
            let _ = writeln!(
                text,
                "{:<8} {:>9} {:<10} {:>9.0} {:>9.0} {:>11.0} {:>8.0}% {:>12.1} {:>8.0}% {:>8.0}% {:>8.0}%",
                load.case.message,
                us(load.case.busy_ns),
                load.state,
                load.knee_per_s,
                load.due_per_s,
                load.answered_per_s,
                load.left_out_share * 100.0,
                us(load.p99_ns),
                load.host_share * 100.0,
                load.infra_share * 100.0,
                load.client_share * 100.0
            );
        }
        text
    }

    /// Writes raw data and table into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(dir, &[("beyond.json", self.json()), ("beyond.txt", self.table())])
    }
}

fn row(tried: &Tried<BeyondCase, Round>, question: Question) -> BeyondRow {
    let of = |state: BeyondState| {
        let mut all = Latencies::default();
        for round in &tried.rounds {
            all.merge(&round.states[state as usize].told.latencies[question as usize]);
        }
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
    let mut all = Flooded::default();
    let mut knees = 0.0;
    for round in &tried.rounds {
        let Flooded { split, due, left_out } = round.states[state as usize].flooded.as_ref()?;
        all.split.latencies.merge(&split.latencies);
        all.split.elapsed_ns += split.elapsed_ns;
        all.split.host_cpu_ns += split.host_cpu_ns;
        all.split.infra_cpu_ns += split.infra_cpu_ns;
        all.split.client_cpu_ns += split.client_cpu_ns;
        all.due += due;
        all.left_out += left_out;
        knees += round.knee_per_s;
    }
    if tried.rounds.is_empty() {
        return None;
    }
    let seconds = all.split.elapsed_ns.max(1) as f64 / 1e9;
    let share = |ns: u64| ns as f64 / all.split.elapsed_ns.max(1) as f64;
    Some(LoadRow {
        case: tried.case,
        state,
        knee_per_s: knees / tried.rounds.len() as f64,
        due_per_s: all.due as f64 / seconds,
        answered_per_s: all.split.rate(),
        left_out_share: all.left_out as f64 / all.due.max(1) as f64,
        p99_ns: all.split.latencies.quantile_ns(0.99),
        host_share: share(all.split.host_cpu_ns),
        infra_share: share(all.split.infra_cpu_ns),
        client_share: share(all.split.client_cpu_ns),
    })
}
