//! The result of `tollfree-lab bench paced`.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{Paced, PacedCase, PacedPlan};
use crate::latency::Latencies;
use crate::lines::{self, Drawing, Point};
use crate::plan::{PacedSide, Wait};
use crate::rounds::Tried;
use crate::{BenchError, Machine, write_files};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct PacedReport {
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<PacedRow>,
}

/// What all rounds of a case measured together. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct PacedRow {
    /// Which.
    #[serde(flatten)]
    pub case: PacedCase,
    /// Median latency in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99 of 100 calls took no longer.
    pub p99_ns: Option<u64>,
    /// 999 of 1000 calls took no longer.
    pub p999_ns: Option<u64>,
    /// Calls that were measured.
    pub calls: u64,
    /// Calls that were due and not made, since the one before went on.
    pub missed: u64,
    /// Processor time of the client process in all.
    pub client_cpu_ns: u64,
    /// Processor time of the server process in all.
    pub server_cpu_ns: u64,
    /// How long the server was kept from running by its quota; null without one.
    pub throttled_ns: Option<u64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl PacedRow {
    fn of(tried: Tried<PacedCase, Paced>) -> PacedRow {
        let mut all = Paced::default();
        for round in &tried.rounds {
            all.latencies.merge(&round.latencies);
            all.missed += round.missed;
            all.client_cpu_ns += round.client_cpu_ns;
            all.server_cpu_ns += round.server_cpu_ns;
            all.throttled_ns = round.throttled_ns.map(|ns| ns + all.throttled_ns.unwrap_or(0));
        }
        let quantile =
            |latencies: &Latencies, share| (latencies.count() > 0).then(|| latencies.quantile_ns(share));
        PacedRow {
            case: tried.case,
            p50_ns: quantile(&all.latencies, 0.5),
            p99_ns: quantile(&all.latencies, 0.99),
            p999_ns: quantile(&all.latencies, 0.999),
            calls: all.latencies.count(),
            missed: all.missed,
            client_cpu_ns: all.client_cpu_ns,
            server_cpu_ns: all.server_cpu_ns,
            throttled_ns: all.throttled_ns,
            not_run: tried.not_run,
        }
    }

    /// Processor time of client and server a call, in microseconds.
    fn cpu_us(&self) -> (f64, f64) {
        let each = |ns: u64| ns as f64 / self.calls.max(1) as f64 / 1000.0;
        (each(self.client_cpu_ns), each(self.server_cpu_ns))
    }
}

impl PacedReport {
    pub(super) fn new(
        machine: Machine,
        plan: &PacedPlan,
        tried: Vec<Tried<PacedCase, Paced>>,
    ) -> PacedReport {
        let rows = tried.into_iter().map(PacedRow::of).collect();
        PacedReport { machine, seconds: plan.seconds, rounds: plan.rounds, rows }
    }

    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &PacedRow> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// tonic's row at the same rate and setting.
    fn rival(&self, row: &PacedRow) -> Option<&PacedRow> {
        let PacedCase { rate, placement, quota, runtime, .. } = row.case;
        let is_rival = |other: &&PacedRow| {
            let case = other.case;
            let threads = row.case.side == PacedSide::TollfreeBlocking;
            case.side == PacedSide::TonicUnix
                && (case.rate, case.placement, case.quota) == (rate, placement, quota)
                && (threads || case.runtime == runtime)
                && other.not_run.is_none()
        };
        self.rows.iter().find(is_rival)
    }

    /// The figures as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The figures for people; ratios are to tonic's row of the same rate and setting.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.machine.in_words();
        let _ = writeln!(text, "{} rounds of {} s; processor time in µs a call\n", self.rounds, self.seconds);
        let mut setting = String::new();
        for row in &self.rows {
            let case = &row.case;
            let this = format!("{}, {} runtime, quota {}", case.placement, case.runtime, case.quota);
            if this != setting {
                let _ = writeln!(
                    text,
                    "{this}\n{:>7}  {:<18} {:<12} {:>9} {:>9} {:>9} {:>8} {:>8} {:>10} {:>7}  p50, client, server, both: of tonic's",
                    "rate",
                    "side",
                    "wait",
                    "p50 us",
                    "p99 us",
                    "p99.9 us",
                    "client",
                    "server",
                    "throttled",
                    "missed"
                );
                setting = this;
            }
            let _ = writeln!(text, "{}", self.line(row));
        }
        text
    }

    fn line(&self, row: &PacedRow) -> String {
        let case = &row.case;
        let has_wait = !matches!(case.side, PacedSide::Wake | PacedSide::TonicUnix);
        let wait = if has_wait { case.wait.name() } else { "" };
        let begin = format!("{:>7}  {:<18} {wait:<12}", case.rate, case.side);
        if let Some(why) = &row.not_run {
            return format!("{begin} {why}");
        }
        let us = |ns: Option<u64>| ns.map_or_else(String::new, |ns| format!("{:.1}", ns as f64 / 1000.0));
        let (client, server) = row.cpu_us();
        let throttled = row.throttled_ns.map_or_else(String::new, |ns| format!("{:.0} ms", ns as f64 / 1e6));
        let ratios = match self.rival(row).filter(|_| case.side != PacedSide::TonicUnix) {
            None => String::new(),
            Some(rival) => {
                let (theirs, at_server) = rival.cpu_us();
                let p50 = row.p50_ns.unwrap_or(0) as f64 / rival.p50_ns.unwrap_or(1).max(1) as f64;
                let both = (client + server) / (theirs + at_server);
                format!("  {p50:.2} {:.2} {:.2} {both:.2}", client / theirs, server / at_server)
            }
        };
        let line = format!(
            "{begin} {:>9} {:>9} {:>9} {client:>8.1} {server:>8.1} {throttled:>10} {:>7}{ratios}",
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            row.missed,
        );
        line
    }

    /// Writes raw data, table and plot into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(
            dir,
            &[("paced.json", self.json()), ("paced.txt", self.table()), ("paced.svg", self.draw())],
        )
    }

    fn draw(&self) -> String {
        let point = |row: &PacedRow| {
            let (client, server) = row.cpu_us();
            let panels = [row.p50_ns.unwrap_or(0) as f64 / 1000.0, client + server];
            Point { x: f64::from(row.case.rate), panels }
        };
        let lines = self.lines().into_iter();
        lines::draw(&Drawing {
            title: "Calls at a rate",
            machine: &self.machine,
            axis: "calls a second",
            panels: ["median, µs", "processor time of both ends, µs a call"],
            lines: lines.map(|(name, rows)| (name, rows.into_iter().map(point).collect())).collect(),
        })
    }

    /// The lines of a plot: a side, how it waits, and its rows by rate.
    fn lines(&self) -> Vec<(String, Vec<&PacedRow>)> {
        let mut lines: Vec<(String, Vec<&PacedRow>)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.not_run.is_none()) {
            let case = &row.case;
            let mut name = case.side.name().to_owned();
            if case.wait != Wait::Default {
                let _ = write!(name, ", {}", case.wait);
            }
            if self.rows.iter().any(|other| other.case.runtime != case.runtime) {
                let _ = write!(name, ", {}", case.runtime);
            }
            if self.rows.iter().any(|other| other.case.placement != case.placement) {
                let _ = write!(name, ", {}", case.placement);
            }
            if case.quota.cores().is_some() {
                let _ = write!(name, ", quota {}", case.quota);
            }
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => lines.push((name, vec![row])),
            }
        }
        lines
    }
}
