//! The result of `tollfree-lab bench paced`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Paced, PacedCase};
use crate::cells;
use crate::harness::chart::side_by_side;
use crate::harness::measured::{each, quantile, together};
use crate::harness::words::{figure, micros_of};
use crate::harness::{Chart, Report, Rows, Table, Tried, is_failure};
use crate::plan::{PacedSide, Wait};

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
    pub(super) fn of(tried: Tried<PacedCase, Paced>) -> PacedRow {
        let Tried { case, rounds, not_run } = tried;
        let all = together(rounds.iter().map(|round| &round.latencies));
        let sum = |of: fn(&Paced) -> u64| rounds.iter().map(of).sum();
        PacedRow {
            case,
            p50_ns: quantile(&all, 0.5),
            p99_ns: quantile(&all, 0.99),
            p999_ns: quantile(&all, 0.999),
            calls: all.count(),
            missed: sum(|round| round.missed),
            client_cpu_ns: sum(|round| round.client_cpu_ns),
            server_cpu_ns: sum(|round| round.server_cpu_ns),
            throttled_ns: rounds.iter().filter_map(|round| round.throttled_ns).reduce(|all, ns| all + ns),
            not_run,
        }
    }

    /// Processor time of client and server a call, in microseconds.
    fn cpu_us(&self) -> (f64, f64) {
        let us = |ns: u64| each(ns, self.calls) / 1000.0;
        (us(self.client_cpu_ns), us(self.server_cpu_ns))
    }
}

impl Rows<PacedRow> {
    /// tonic's row at the same rate and setting.
    fn rival(&self, row: &PacedRow) -> Option<&PacedRow> {
        let PacedCase { rate, placement, quota, runtime, .. } = row.case;
        let is_rival = |other: &&PacedRow| {
            let case = other.case;
            let threads = row.case.side == PacedSide::TollfreeBlocking || row.case.side.program().is_some();
            case.side == PacedSide::TonicUnix
                && (case.rate, case.placement, case.quota) == (rate, placement, quota)
                && (threads || case.runtime == runtime)
                && other.not_run.is_none()
        };
        self.rows.iter().find(is_rival)
    }

    /// A row's figures; the last four are beside those of tonic's row of the same rate and setting.
    fn figures(&self, row: &PacedRow) -> Vec<String> {
        let (client, server) = row.cpu_us();
        let mut cells = [row.p50_ns, row.p99_ns, row.p999_ns].map(micros_of).to_vec();
        cells.extend([client, server].map(|us| format!("{us:.1}")));
        cells.push(row.throttled_ns.map_or_else(String::new, |ns| format!("{:.0} ms", ns as f64 / 1e6)));
        cells.push(row.missed.to_string());
        if let Some(rival) = self.rival(row).filter(|_| row.case.side != PacedSide::TonicUnix) {
            let (theirs, at_server) = rival.cpu_us();
            let p50 = row.p50_ns.zip(rival.p50_ns).map(|(ours, theirs)| ours as f64 / theirs.max(1) as f64);
            cells.push(figure(p50, 2));
            let ratios = [client / theirs, server / at_server, (client + server) / (theirs + at_server)];
            cells.extend(ratios.map(|ratio| format!("{ratio:.2}")));
        }
        cells
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

impl Report for Rows<PacedRow> {
    fn table(&self) -> String {
        let mut text = self.heading("; processor time in µs a call; the last columns: of tonic's\n");
        let setting = |row: &PacedRow| {
            let PacedCase { placement, runtime, quota, .. } = row.case;
            format!("{placement}, {runtime} runtime, quota {quota}")
        };
        for group in self.rows.chunk_by(|one, next| setting(one) == setting(next)) {
            let mut table = Table::new(
                "rate|side|wait",
                "p50 us|p99 us|p99.9 us|client|server|throttled|missed|p50|client|server|both",
            );
            for row in group {
                let wait = if row.case.side.waits() { row.case.wait.name() } else { "" };
                let mut cells = cells![row.case.rate, row.case.side, wait];
                match &row.not_run {
                    Some(why) => table.noted(cells, why),
                    None => {
                        cells.extend(self.figures(row));
                        table.row(cells);
                    }
                }
            }
            let _ = write!(text, "{}\n{table}", setting(&group[0]));
        }
        text
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let point = |row: &PacedRow| {
            let (client, server) = row.cpu_us();
            (f64::from(row.case.rate), [row.p50_ns.unwrap_or(0) as f64 / 1000.0, client + server])
        };
        let lines = self.lines().into_iter();
        let lines: Vec<_> = lines.map(|(name, rows)| (name, rows.into_iter().map(point).collect())).collect();
        let titles = ["median, µs", "processor time of both ends, µs a call"];
        let panels = side_by_side("calls a second", titles, &lines);
        vec![("plot.svg", Chart { title: "Calls at a rate", machine: &self.machine, panels }.draw())]
    }
}
