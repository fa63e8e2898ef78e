//! The result of a run: for programs as JSON, for people as a table, for later questions as raw counts.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::cells;
use crate::harness::measured::{interval_of_ratios, median_of, ratios, together};
use crate::harness::words::{figure, fraction, micros, micros_of, or_dash};
use crate::harness::{Machine, Report, Rows, Table, Tried};
use crate::latency::{Latencies, Quantiles};
use crate::order::Measured;
use crate::plan::{Case, Side};

use super::plan::EchoPlan;
use super::plot;

/// The side that all others are compared with.
pub const YARDSTICK: Side = Side::TonicUnix;

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
        let rounds = self.rounds.iter().map(|round| &round.latencies);
        (!self.rounds.is_empty()).then(|| together(rounds))
    }

    fn sum_up(&mut self) {
        let Some(all) = self.latencies() else { return };
        let elapsed: Duration = self.rounds.iter().map(|round| round.elapsed).sum();
        let medians = || self.rounds.iter().map(|round| round.p50_ns);
        self.quantiles = Quantiles::of(&all, elapsed);
        self.tail = self.quantiles.tail();
        self.p50_ns_range = medians().min().zip(medians().max());
        let median = |figure: fn(&Round) -> Option<u64>| {
            median_of(self.rounds.iter().map(figure).collect::<Option<Vec<u64>>>()?)
        };
        (self.client_cpu_ns, self.server_cpu_ns) =
            (median(|round| round.client_cpu_ns), median(|round| round.server_cpu_ns));
    }

    fn compare(&self, yardstick: &Self) -> Option<Comparison> {
        let ratios = ratios(&self.rounds, &yardstick.rounds, |round| round.p50_ns as f64);
        Some(Comparison {
            p50: self.quantiles.p50_ns? as f64 / yardstick.quantiles.p50_ns? as f64,
            p50_interval: interval_of_ratios(&ratios),
            rate: self.quantiles.rate_per_s? / yardstick.quantiles.rate_per_s?,
        })
    }
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

/// What the cases of a plan came to.
pub(crate) fn report(machine: Machine, plan: &EchoPlan, tried: Vec<Tried<Case, Round>>) -> Rows<Row> {
    let mut report = Rows::of(machine, plan.lasting, tried, Row::of);
    report.rows.iter_mut().for_each(Row::sum_up);
    let compared: Vec<_> = report.rows.iter().map(|row| Beside::of(row, &report.rows)).collect();
    for (row, beside) in report.rows.iter_mut().zip(compared) {
        row.vs_tonic_unix = beside.yardstick;
        row.tail_vs_floor = beside.tail_vs_floor;
        row.metadata_ns = beside.metadata_ns;
    }
    report
}

impl Rows<Row> {
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

impl Report for Rows<Row> {
    fn table(&self) -> String {
        let mut text = self.heading("");
        for group in self.groups() {
            let mut table = Table::new(
                "side",
                "p50 us|(rounds)|p99|p99.9|mean|tail|: floor|calls/s|p50 : unix|rate|metadata us",
            );
            group.iter().for_each(|row| line(&mut table, row));
            let _ = write!(text, "\n{}\n{table}", group[0].case.setting());
        }
        let _ = writeln!(
            text,
            "\np50 : unix is the median beside {YARDSTICK}'s in the same setting (1/15 is fifteen times faster), \
             rate the same for calls/s.\ntail is p99.9 in medians; : floor is this beside the floor's. metadata is the median's \
             excess over the same case's without."
        );
        if self.rows.iter().any(|row| row.case.side == Side::Iceoryx2) {
            text.push_str(
                "iceoryx2 carries bytes between two polling loops: no method, status, deadline, cancellation or metadata, no \
                 protobuf.\n",
            );
        }
        text
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    /// Not those whose side this build has not, or can't carry the message.
    fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| row.not_run.is_some() && row.case.missing().is_none()).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        vec![("latencies.csv", self.csv()), ("plot.svg", plot::latencies(self))]
    }
}

fn line(table: &mut Table, row: &Row) {
    let (side, figures) = (row.case.side, row.quantiles);
    let Some((least, most)) = row.p50_ns_range else {
        let why = row.not_run.as_deref().unwrap_or("no reason known");
        return table.noted(cells![side], format!("not run: {why}"));
    };
    let (p50_ratio, rate_ratio) =
        row.vs_tonic_unix.map(|ratio| (fraction(ratio.p50), format!("{:.2}x", ratio.rate))).unzip();
    table.row(cells![
        side,
        micros_of(figures.p50_ns),
        format!("({}..{})", micros(least as f64), micros(most as f64)),
        micros_of(figures.p99_ns),
        micros_of(figures.p999_ns),
        or_dash(figures.mean_ns.map(micros)),
        figure(row.tail, 1),
        figure(row.tail_vs_floor, 1),
        figure(figures.rate_per_s, 0),
        or_dash(p50_ratio),
        or_dash(rate_ratio),
        row.metadata_ns.map_or_else(String::new, |ns| format!("{:+.2}", ns as f64 / 1000.0)),
    ]);
}
