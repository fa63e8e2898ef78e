//! The result of a run: for programs as JSON, for people as a table, for later questions as raw counts.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::latency::{Latencies, Quantiles};
use crate::order::Measured;
use crate::plan::{Case, Plan, Side};
use crate::rounds::Tried;
use crate::{BenchError, Machine, interval, plot, write_files};

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
    /// Latencies and rate of all rounds together.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Smallest and largest median of a round, in nanoseconds.
    pub p50_ns_range: Option<(u64, u64)>,
    /// The latency that 999 of 1000 calls did not exceed, in medians.
    pub tail: Option<f64>,
    /// The same, in terms of what it is on the floor in the same setting: what the machine itself does to a tail is in both.
    pub tail_vs_floor: Option<f64>,
    /// Of a case with metadata: nanoseconds by which its median exceeds the same case's without.
    pub metadata_ns: Option<i64>,
    /// Beside [`YARDSTICK`] in the same setting.
    pub vs_tonic_unix: Option<Comparison>,
    /// Each round.
    pub rounds: Vec<Round>,
    /// Processor time of a call at the client, in nanoseconds: the median of the rounds. None of sides that don't count it.
    pub client_cpu_ns: Option<u64>,
    /// The same at the server.
    pub server_cpu_ns: Option<u64>,
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
    /// Processor time of a call at the client, in nanoseconds, on average.
    pub client_cpu_ns: Option<u64>,
    /// The same at the server.
    pub server_cpu_ns: Option<u64>,
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
        let Measured { latencies, elapsed_ns, used } = measured;
        let elapsed = Duration::from_nanos(elapsed_ns);
        Self {
            p50_ns: latencies.quantile_ns(0.5),
            p99_ns: latencies.quantile_ns(0.99),
            mean_ns: latencies.mean_ns(),
            rate_per_s: latencies.count() as f64 / elapsed.as_secs_f64(),
            client_cpu_ns: used.map(|used| used.client_ns),
            server_cpu_ns: used.and_then(|used| used.server_ns),
            latencies,
            elapsed,
        }
    }
}

impl Row {
    pub(crate) fn of(Tried { case, rounds, not_run }: Tried<Case, Round>) -> Self {
        Self {
            case,
            quantiles: Quantiles::default(),
            p50_ns_range: None,
            tail: None,
            tail_vs_floor: None,
            metadata_ns: None,
            vs_tonic_unix: None,
            rounds,
            client_cpu_ns: None,
            server_cpu_ns: None,
            not_run,
        }
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
        self.quantiles = Quantiles::of(&all, elapsed);
        self.tail = self.quantiles.tail();
        self.p50_ns_range = medians().min().zip(medians().max());
        self.client_cpu_ns = median(self.rounds.iter().map(|round| round.client_cpu_ns));
        self.server_cpu_ns = median(self.rounds.iter().map(|round| round.server_cpu_ns));
    }

    fn compare(&self, yardstick: &Self) -> Option<Comparison> {
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .zip(&yardstick.rounds)
            .map(|(ours, theirs)| ours.p50_ns as f64 / theirs.p50_ns as f64)
            .collect();
        Some(Comparison {
            p50: self.quantiles.p50_ns? as f64 / yardstick.quantiles.p50_ns? as f64,
            p50_interval: interval::of_ratios(&ratios),
            rate: self.quantiles.rate_per_s? / yardstick.quantiles.rate_per_s?,
        })
    }
}

/// The median of rounds that all have the figure; of an even number, the smaller in the middle.
fn median(figures: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut figures = figures.collect::<Option<Vec<u64>>>()?;
    figures.sort_unstable();
    figures.get(figures.len().saturating_sub(1) / 2).copied()
}

/// A row beside others of the same run.
struct Beside {
    yardstick: Option<Comparison>,
    tail_vs_floor: Option<f64>,
    metadata_ns: Option<i64>,
}

impl Beside {
    fn of(row: &Row, rows: &[Row]) -> Self {
        let find = |case: Case| rows.iter().find(|other| other.case == case);
        let bare = find(row.case.bare()).filter(|_| row.case.metadata > 0);
        let median = |row: &Row| row.quantiles.p50_ns.and_then(|ns| i64::try_from(ns).ok());
        Self {
            yardstick: find(row.case.on(YARDSTICK)).and_then(|yardstick| row.compare(yardstick)),
            tail_vs_floor: find(row.case.bare().on(Side::Floor))
                .and_then(|floor| Some(row.tail? / floor.tail?)),
            metadata_ns: bare.and_then(|bare| Some(median(row)? - median(bare)?)),
        }
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, plan: &Plan, mut rows: Vec<Row>) -> Self {
        rows.iter_mut().for_each(Row::sum_up);
        let compared: Vec<_> = rows.iter().map(|row| Beside::of(row, &rows)).collect();
        for (row, beside) in rows.iter_mut().zip(compared) {
            row.vs_tonic_unix = beside.yardstick;
            row.tail_vs_floor = beside.tail_vs_floor;
            row.metadata_ns = beside.metadata_ns;
        }
        Self { machine, seconds: plan.seconds, rounds: plan.rounds, rows }
    }

    /// Rows that were not run though this build has their side, and the side can carry the message.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.not_run.is_some() && row.case.missing().is_none())
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
                "  {:<17} {:>11} {:>18} {:>9} {:>9} {:>9} {:>7} {:>8} {:>10} {:>12} {:>9}",
                "side",
                "p50",
                "(rounds)",
                "p99",
                "p99.9",
                "mean",
                "tail",
                ": floor",
                "calls/s",
                "p50 : unix",
                "rate"
            );
            for row in group {
                let _ = writeln!(text, "{}", line(row));
            }
        }
        let _ = writeln!(
            text,
            "\np50 : unix is the median beside {YARDSTICK}'s in the same setting (1/15 is fifteen times faster), \
             rate the same for calls/s.\ntail is p99.9 in medians; : floor is this beside the floor's."
        );
        if self.rows.iter().any(|row| row.metadata_ns.is_some()) {
            text.push_str("The last column is what the metadata cost: the median's excess over the same case's without.\n");
        }
        if self.rows.iter().any(|row| row.case.side == Side::Iceoryx2) {
            text.push_str(
                "iceoryx2 carries bytes between two polling loops: no method, status, deadline, cancellation or metadata, no \
                 protobuf.\n",
            );
        }
        text
    }

    pub(crate) fn heading(&self) -> String {
        format!("{}{} rounds of {} s\n", self.machine.in_words(), self.rounds, self.seconds)
    }

    /// Writes `rows.json`, `table.txt`, `latencies.csv` and `latencies.svg` into a directory, which is made if need be.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        let files = [
            ("rows.json", self.json() + "\n"),
            ("table.txt", self.table()),
            ("latencies.csv", self.csv()),
            ("latencies.svg", plot::latencies(self)),
        ];
        write_files(dir, &files)
    }

    /// Every bucket of every round's histogram.
    fn csv(&self) -> String {
        let mut text =
            String::from("side,size,metadata,inflight,placement,runtime,message,round,latency_ns,calls\n");
        for row in &self.rows {
            let Case { side, message, size, metadata, inflight, placement, runtime } = row.case;
            for (round_idx, round) in row.rounds.iter().enumerate() {
                for (value, count) in round.latencies.pairs() {
                    let round = round_idx + 1;
                    let _ = writeln!(
                        text,
                        "{side},{size},{metadata},{inflight},{placement},{runtime},{message},{round},{value},{count}"
                    );
                }
            }
        }
        text
    }
}

fn line(row: &Row) -> String {
    let (side, figures) = (row.case.side, row.quantiles);
    let (Some(p50), Some(p99), Some(p999), Some(mean), Some(rate), Some((least, most))) = (
        figures.p50_ns,
        figures.p99_ns,
        figures.p999_ns,
        figures.mean_ns,
        figures.rate_per_s,
        row.p50_ns_range,
    ) else {
        return format!("  {side:<17} not run: {}", row.not_run.as_deref().unwrap_or("no reason known"));
    };
    let range = format!("({}..{})", micros(least as f64), micros(most as f64));
    let (p50_ratio, rate_ratio) = match row.vs_tonic_unix {
        Some(ratio) => (fraction(ratio.p50), format!("{:.2}x", ratio.rate)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let beside = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
    let more = row.metadata_ns.map_or_else(String::new, |ns| format!("  {:+.2} us", ns as f64 / 1000.0));
    format!(
        "  {side:<17} {:>11} {range:>18} {:>9} {:>9} {:>9} {:>7} {:>8} {rate:>10.0} {p50_ratio:>12} {rate_ratio:>9}{more}",
        micros(p50 as f64) + " us",
        micros(p99 as f64),
        micros(p999 as f64),
        micros(mean),
        beside(row.tail),
        beside(row.tail_vs_floor),
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
