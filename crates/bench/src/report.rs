//! The result of a run: for programs as JSON, for people as a table, for later questions as raw counts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::latency::Latencies;
use crate::order::Measured;
use crate::plan::{Case, Plan, Side};
use crate::{BenchError, Machine, interval, plot};

/// The side that all others are compared with.
pub const YARDSTICK: Side = Side::TonicUnix;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Measured seconds per row and round.
    pub seconds: f64,
    /// Rounds per row.
    pub rounds: usize,
    /// One row for each case of the plan, in its order.
    pub rows: Vec<Row>,
}

/// One case. The figures are of all rounds together, and null when the case was not run.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// Median latency in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99 of 100 calls took no longer, in nanoseconds.
    pub p99_ns: Option<u64>,
    /// 999 of 1000 calls took no longer, in nanoseconds.
    pub p999_ns: Option<u64>,
    /// Mean latency in nanoseconds.
    pub mean_ns: Option<f64>,
    /// Calls that ended in a second of wall clock.
    pub rate_per_s: Option<f64>,
    /// Calls measured.
    pub calls: u64,
    /// Smallest and largest median of a round, in nanoseconds.
    pub p50_ns_range: Option<(u64, u64)>,
    /// Beside [`YARDSTICK`] in the same setting.
    pub vs_tonic_unix: Option<Comparison>,
    /// Each round.
    pub rounds: Vec<Round>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

/// One round of a case.
#[derive(Debug, Serialize)]
pub struct Round {
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 calls took no longer, in nanoseconds.
    pub p99_ns: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// Calls that ended in a second of wall clock.
    pub rate_per_s: f64,
    /// Every call.
    #[serde(skip)]
    pub latencies: Latencies,
    #[serde(skip)]
    elapsed: Duration,
}

/// A case divided by the same case on the yardstick: below 1 is faster for latencies, above 1 for rates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Comparison {
    /// Ratio of the medians of all rounds together.
    pub p50: f64,
    /// 95 % interval of the ratio, from the ratios of rounds that ran next to each other; needs two rounds.
    pub p50_interval: Option<(f64, f64)>,
    /// Ratio of the rates.
    pub rate: f64,
}

impl Round {
    pub(crate) fn new(measured: Measured) -> Self {
        let Measured { latencies, elapsed_ns } = measured;
        let elapsed = Duration::from_nanos(elapsed_ns);
        Self {
            p50_ns: latencies.quantile_ns(0.5),
            p99_ns: latencies.quantile_ns(0.99),
            mean_ns: latencies.mean_ns(),
            rate_per_s: latencies.count() as f64 / elapsed.as_secs_f64(),
            latencies,
            elapsed,
        }
    }
}

impl Row {
    pub(crate) fn new(case: Case) -> Self {
        Self {
            case,
            p50_ns: None,
            p99_ns: None,
            p999_ns: None,
            mean_ns: None,
            rate_per_s: None,
            calls: 0,
            p50_ns_range: None,
            vs_tonic_unix: None,
            rounds: Vec::new(),
            not_run: None,
        }
    }

    /// Withdraws what was measured: a case that failed once has no figures.
    pub(crate) fn fail(&mut self, why: String) {
        self.rounds.clear();
        self.not_run = Some(why);
    }

    /// All rounds' calls together; none when the case was not run.
    pub fn latencies(&self) -> Option<Latencies> {
        let (first, rest) = self.rounds.split_first()?;
        let mut all = first.latencies.clone();
        for round in rest {
            all.merge(&round.latencies);
        }
        Some(all)
    }

    fn sum_up(&mut self) {
        let Some(all) = self.latencies() else { return };
        let elapsed: Duration = self.rounds.iter().map(|round| round.elapsed).sum();
        let medians = || self.rounds.iter().map(|round| round.p50_ns);
        self.p50_ns = Some(all.quantile_ns(0.5));
        self.p99_ns = Some(all.quantile_ns(0.99));
        self.p999_ns = Some(all.quantile_ns(0.999));
        self.mean_ns = Some(all.mean_ns());
        self.rate_per_s = Some(all.count() as f64 / elapsed.as_secs_f64());
        self.p50_ns_range = medians().min().zip(medians().max());
        self.calls = all.count();
    }

    fn compare(&self, yardstick: &Self) -> Option<Comparison> {
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .zip(&yardstick.rounds)
            .map(|(ours, theirs)| ours.p50_ns as f64 / theirs.p50_ns as f64)
            .collect();
        Some(Comparison {
            p50: self.p50_ns? as f64 / yardstick.p50_ns? as f64,
            p50_interval: interval::of_ratios(&ratios),
            rate: self.rate_per_s? / yardstick.rate_per_s?,
        })
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, plan: &Plan, mut rows: Vec<Row>) -> Self {
        rows.iter_mut().for_each(Row::sum_up);
        let compared: Vec<_> = rows
            .iter()
            .map(|row| row.compare(rows.iter().find(|other| other.case == row.case.on(YARDSTICK))?))
            .collect();
        for (row, comparison) in rows.iter_mut().zip(compared) {
            row.vs_tonic_unix = comparison;
        }
        Self { machine, seconds: plan.seconds, rounds: plan.rounds, rows }
    }

    /// Rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// The result as one JSON object.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// Rows that differ in nothing but the side, in the plan's order.
    pub fn groups(&self) -> Vec<Vec<&Row>> {
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in &self.rows {
            let same = |group: &&mut Vec<&Row>| group[0].case.on(row.case.side) == row.case;
            match groups.iter_mut().find(same) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups
    }

    /// The result as a table for people.
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for group in self.groups() {
            let _ = writeln!(text, "\n{}", group[0].case.setting());
            let _ = writeln!(
                text,
                "  {:<17} {:>11} {:>18} {:>9} {:>9} {:>9} {:>10} {:>12} {:>9}",
                "side", "p50", "(rounds)", "p99", "p99.9", "mean", "calls/s", "p50 : unix", "rate"
            );
            for row in group {
                let _ = writeln!(text, "{}", line(row));
            }
        }
        let _ = writeln!(
            text,
            "\np50 : unix is the median beside {YARDSTICK}'s in the same setting (1/15 is fifteen times faster), \
             rate the same for calls/s."
        );
        text
    }

    pub(crate) fn heading(&self) -> String {
        let machine = &self.machine;
        let kind = if machine.virtual_machine { "virtual" } else { "physical" };
        let mut text = format!(
            "{}, {} {kind} cores, Linux {}, {} build of Tollfree {}, {}, {} rounds of {} s\n",
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.build,
            machine.version,
            machine.allocator,
            self.rounds,
            self.seconds
        );
        for (name, value) in &machine.allocator_settings {
            let _ = writeln!(text, "{name}={value}");
        }
        if machine.build == "debug" {
            text.push_str("A DEBUG BUILD: these figures mean nothing.\n");
        }
        text
    }

    /// Writes `rows.json`, `table.txt`, `latencies.csv` and `latencies.svg` into a directory, which is made if need be.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        fs::create_dir_all(dir).map_err(|source| BenchError::Write { path: dir.to_owned(), source })?;
        let files = [
            ("rows.json", self.json() + "\n"),
            ("table.txt", self.table()),
            ("latencies.csv", self.csv()),
            ("latencies.svg", plot::latencies(self)),
        ];
        for (name, text) in files {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|source| BenchError::Write { path, source })?;
        }
        Ok(())
    }

    /// Every bucket of every round's histogram.
    fn csv(&self) -> String {
        let mut text = String::from("side,size,inflight,placement,runtime,round,latency_ns,calls\n");
        for row in &self.rows {
            let Case { side, size, inflight, placement, runtime } = row.case;
            for (round_idx, round) in row.rounds.iter().enumerate() {
                for (value, count) in round.latencies.pairs() {
                    let round = round_idx + 1;
                    let _ = writeln!(
                        text,
                        "{side},{size},{inflight},{placement},{runtime},{round},{value},{count}"
                    );
                }
            }
        }
        text
    }
}

fn line(row: &Row) -> String {
    let side = row.case.side;
    let (Some(p50), Some(p99), Some(p999), Some(mean), Some(rate), Some((least, most))) =
        (row.p50_ns, row.p99_ns, row.p999_ns, row.mean_ns, row.rate_per_s, row.p50_ns_range)
    else {
        return format!("  {side:<17} not run: {}", row.not_run.as_deref().unwrap_or("no reason known"));
    };
    let range = format!("({}..{})", micros(least as f64), micros(most as f64));
    let (p50_ratio, rate_ratio) = match row.vs_tonic_unix {
        Some(ratio) => (fraction(ratio.p50), format!("{:.2}x", ratio.rate)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    format!(
        "  {side:<17} {:>11} {range:>18} {:>9} {:>9} {:>9} {rate:>10.0} {p50_ratio:>12} {rate_ratio:>9}",
        micros(p50 as f64) + " us",
        micros(p99 as f64),
        micros(p999 as f64),
        micros(mean),
    )
}

/// Nanoseconds as microseconds with three significant digits or more.
#[must_use]
pub fn micros(nanos: f64) -> String {
    let micros = nanos / 1000.0;
    match micros {
        ..10.0 => format!("{micros:.2}"),
        ..100.0 => format!("{micros:.1}"),
        _ => format!("{micros:.0}"),
    }
}

/// A ratio the way people say it: `1/15.2`, `0.83`, `1.70`.
#[must_use]
pub fn fraction(ratio: f64) -> String {
    if ratio < 0.5 { format!("1/{:.1}", 1.0 / ratio) } else { format!("{ratio:.2}") }
}
