//! The result of `tollfree-lab bench device`.

use std::fmt::Write as _;

use serde::Serialize;
use tollfree::gateway::{Batch, DoorbellMode};

use super::{DeviceCase, Driven};
use crate::cells;
use crate::harness::chart::{Named, side_by_side};
use crate::harness::measured::{median, median_of, quantile};
use crate::harness::words::{figure, micros_of};
use crate::harness::{Chart, Lasting, Machine, Report, Rows, Table, Tried, is_failure};

/// What `coherent:4` is to reach of the floor's rate.
const FLOOR_SHARE: f64 = 0.3;
/// How much faster one ring for eleven requests is to be than one for each.
const BATCH_GAIN: f64 = 2.0;
/// How near the automatic batch is to be to the best fixed one.
const NEAR: f64 = 0.1;
/// The longest that a call may take while registers change.
const PAUSE_MS: f64 = 5.0;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    /// The rows.
    #[serde(flatten)]
    pub rows: Rows<DeviceRow>,
    /// What is compared with bounds, in words.
    pub bounds: Vec<String>,
}

/// What the rounds of a case measured. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct DeviceRow {
    /// Which.
    #[serde(flatten)]
    pub case: DeviceCase,
    /// Calls a second: the median of the rounds.
    pub calls_per_s: Option<f64>,
    /// The same as a share of the floor's with as many in flight.
    pub of_floor: Option<f64>,
    /// Median latency in nanoseconds, as this and the next are in the median of the rounds.
    pub p50_ns: Option<u64>,
    /// 99 of 100 calls took no longer.
    pub p99_ns: Option<u64>,
    /// The longest of all rounds in nanoseconds.
    pub longest_ns: Option<u64>,
    /// Calls that were measured.
    pub calls: u64,
    /// Calls, and parts of them, that were published together, on average.
    pub sends_per_publication: Option<f64>,
    /// Times that the other process was rung, a call.
    pub rings_per_call: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl DeviceRow {
    fn of(tried: Tried<DeviceCase, Driven>) -> DeviceRow {
        let Tried { case, rounds, not_run } = tried;
        let sum = |of: fn(&Driven) -> u64| rounds.iter().map(of).sum::<u64>();
        let of_rounds =
            |share| median_of(rounds.iter().filter_map(|round| quantile(&round.latencies, share)));
        let each = |count: u64, of: u64| (of > 0).then(|| count as f64 / of as f64);
        let sends = sum(|round| round.sends);
        DeviceRow {
            case,
            calls_per_s: median(rounds.iter().map(Driven::rate)),
            of_floor: None,
            p50_ns: of_rounds(0.5),
            p99_ns: of_rounds(0.99),
            longest_ns: rounds.iter().filter_map(|round| quantile(&round.latencies, 1.0)).max(),
            calls: sum(|round| round.latencies.count()),
            sends_per_publication: each(sends, sum(|round| round.publications)),
            rings_per_call: each(sum(|round| round.rings), sends),
            not_run,
        }
    }

    fn is(&self, mode: DoorbellMode) -> bool {
        self.case.mode.is_some_and(|own| own.0 == mode) && !self.case.changing
    }

    /// Rows that differ in the batch only are compared with each other.
    fn is_beside(&self, other: &DeviceRow) -> bool {
        DeviceCase { batch: other.case.batch, ..self.case } == other.case
    }
}

impl DeviceReport {
    pub(super) fn new(
        machine: Machine,
        lasting: Lasting,
        tried: Vec<Tried<DeviceCase, Driven>>,
    ) -> DeviceReport {
        DeviceReport::of(Rows::of(machine, lasting, tried, DeviceRow::of))
    }

    fn of(rows: Rows<DeviceRow>) -> DeviceReport {
        let mut report = DeviceReport { rows, bounds: Vec::new() };
        report.compare_with_floor();
        report.bounds = report.compared();
        report
    }

    fn all(&self) -> impl Iterator<Item = &DeviceRow> {
        self.rows.rows.iter()
    }

    fn compare_with_floor(&mut self) {
        let setting = |case: &DeviceCase| (case.inflight, case.placement);
        let floors: Vec<_> = self
            .all()
            .filter(|row| row.case.mode.is_none())
            .filter_map(|row| Some((setting(&row.case), row.calls_per_s?)))
            .collect();
        let is_like_floor =
            |case: &DeviceCase| case.mode.is_some() && case.rate.is_none() && case.threads == 1;
        for row in self.rows.rows.iter_mut().filter(|row| is_like_floor(&row.case)) {
            let floor = floors.iter().find(|(floor, _)| *floor == setting(&row.case));
            row.of_floor = floor.zip(row.calls_per_s).map(|((_, floor), own)| own / floor);
        }
    }

    fn compared(&self) -> Vec<String> {
        let mut words = Vec::new();
        let said = |holds: bool| if holds { "met" } else { "not met" };
        for row in self.all() {
            let DeviceCase { inflight, threads, placement, .. } = row.case;
            if let Some(share) = row.of_floor.filter(|_| row.is(DoorbellMode::Coherent(4))) {
                let verdict = said(share >= FLOOR_SHARE);
                words.push(format!(
                    "coherent:4, {placement}, {inflight} in flight: {share:.3} of the floor's rate, {FLOOR_SHARE} wanted: {verdict}"
                ));
            }
            if row.is(DoorbellMode::DoorbellBatch(11)) {
                let is_single = |other: &&DeviceRow| {
                    other.is(DoorbellMode::Doorbell)
                        && DeviceCase { mode: row.case.mode, ..other.case } == row.case
                };
                let single = self.all().find(is_single);
                if let (Some(own), Some(single)) =
                    (row.calls_per_s, single.and_then(|single| single.calls_per_s))
                    && row.case.rate.is_none()
                {
                    let gain = own / single;
                    let verdict = said(gain >= BATCH_GAIN);
                    words.push(format!(
                        "doorbell-batch:11, {placement}, {inflight} in flight, {threads} threads: {gain:.2} times doorbell's rate, \
                         {BATCH_GAIN} wanted: {verdict}"
                    ));
                }
            }
            if let Some(longest_ns) = row.longest_ns.filter(|_| row.case.changing) {
                let longest_ms = longest_ns as f64 / 1e6;
                let others = self.all().filter(|other| !other.case.changing && other.case.mode.is_some());
                let other_ms =
                    others.filter_map(|other| other.longest_ns).max().unwrap_or_default() as f64 / 1e6;
                let verdict = said(longest_ms <= PAUSE_MS);
                words.push(format!(
                    "registers that change, {placement}, {threads} threads: of {} calls none lost, the longest {longest_ms:.2} ms \
                     (of rows without changes {other_ms:.2}), {PAUSE_MS} wanted: {verdict}",
                    row.calls
                ));
            }
            if row.case.batch.0 == Batch::Auto && row.case.mode.is_some() {
                words.extend(self.beside_fixed(row));
            }
        }
        words
    }

    /// The automatic batch beside the best fixed ones at the same pace.
    fn beside_fixed(&self, row: &DeviceRow) -> Option<String> {
        let fixed = || {
            let others = self.all().filter(|other| row.is_beside(other) && other.not_run.is_none());
            others.filter(|other| other.case.batch.0 != Batch::Auto)
        };
        let rate = fixed().filter_map(|other| other.calls_per_s).fold(0.0, f64::max);
        let p99 = fixed().filter_map(|other| other.p99_ns).min()?;
        let (own_rate, own_p99) = (row.calls_per_s?, row.p99_ns?);
        let (rate, p99) = (own_rate / rate, own_p99 as f64 / p99 as f64);
        let verdict = if rate >= 1.0 - NEAR && p99 <= 1.0 + NEAR { "met" } else { "not met" };
        Some(format!(
            "automatic batch, {}, {}, {} threads, {}: {rate:.2} of the best fixed one's rate, {p99:.2} of its p99: {verdict}",
            row.case.name(),
            row.case.pace(),
            row.case.threads,
            row.case.placement
        ))
    }

    /// Latency over the rate that was had.
    fn lines(&self) -> Vec<Named<2>> {
        let mut lines: Vec<(String, Vec<_>)> = Vec::new();
        for row in self.all() {
            let (Some(rate), Some(p50), Some(p99)) = (row.calls_per_s, row.p50_ns, row.p99_ns) else {
                continue;
            };
            let mut name = row.case.name();
            if row.case.mode.is_some() && !row.case.changing {
                let _ = write!(name, ", batch {}, {} threads", row.case.batch.0, row.case.threads);
            }
            let point = (rate, [p50 as f64 / 1000.0, p99 as f64 / 1000.0]);
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        lines
    }
}

impl Report for DeviceReport {
    fn table(&self) -> String {
        let mut table = Table::new(
            "placement|mode|batch",
            "threads|in flight|rate|calls/s|of floor|p50 us|p99 us|longest us|together|rings/call",
        );
        for row in self.all() {
            let case = &row.case;
            let pace = case.rate.map_or_else(|| "max".to_owned(), |rate| rate.to_string());
            let batch = case.mode.map_or_else(String::new, |_| case.batch.0.to_string());
            let mut cells = cells![case.placement, case.name(), batch, case.threads, case.inflight, pace];
            if let Some(why) = &row.not_run {
                table.noted(cells, why);
                continue;
            }
            cells.extend([figure(row.calls_per_s, 0), figure(row.of_floor, 3)]);
            cells.extend([row.p50_ns, row.p99_ns, row.longest_ns].map(micros_of));
            cells.extend([figure(row.sends_per_publication, 2), figure(row.rings_per_call, 3)]);
            table.row(cells);
        }
        let bounds = self.bounds.join("\n");
        format!("{}{table}\n{bounds}\n", self.rows.heading("; 64 bytes there and back; measured\n"))
    }

    fn began(&self) -> &str {
        &self.rows.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.all().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let panels = side_by_side("calls a second", ["median, µs", "99 of 100, µs"], &self.lines());
        let title = "64 bytes over the interface to backends";
        vec![("plot.svg", Chart { title, machine: &self.rows.machine, panels }.draw())]
    }
}

#[cfg(test)]
mod tests {
    use tollfree_gateway::Word;

    use crate::plan::Placement;

    use super::*;

    fn row(mode: Option<&str>, batch: Batch, rate: f64, p99_ns: u64) -> DeviceRow {
        let case = DeviceCase {
            mode: mode.map(|mode| Word(mode.parse().unwrap())),
            batch: Word(batch),
            changing: false,
            inflight: 16,
            rate: None,
            threads: 1,
            placement: Placement::Split,
        };
        let row = DeviceRow::of(Tried { case, rounds: Vec::new(), not_run: None });
        DeviceRow { calls_per_s: Some(rate), p99_ns: Some(p99_ns), ..row }
    }

    fn changing(longest_ns: u64) -> DeviceRow {
        let row = row(Some("auto"), Batch::Auto, 1.0, 1);
        DeviceRow { case: DeviceCase { changing: true, ..row.case }, longest_ns: Some(longest_ns), ..row }
    }

    #[test]
    fn rows_are_held_to_the_bounds() {
        let fixed = Batch::Fixed;
        let rows = vec![
            row(None, Batch::Auto, 1000.0, 1),
            row(Some("coherent:4"), Batch::Auto, 301.0, 110),
            row(Some("coherent:4"), fixed(4), 330.0, 300),
            row(Some("coherent:4"), fixed(1), 200.0, 101),
            row(Some("doorbell"), fixed(1), 50.0, 1),
            row(Some("doorbell-batch:11"), fixed(1), 99.0, 1),
            changing(4_900_000),
            changing(5_100_000),
        ];
        let machine = Machine::look(&crate::cores::Cores::choose().unwrap(), &[]);
        let report = DeviceReport::of(Rows { machine, seconds: 1.0, rounds: 1, rows });
        let verdicts: Vec<_> = report.bounds.iter().map(|words| words.rsplit(": ").next().unwrap()).collect();
        // coherent:4 and automatic; the fixed ones of coherent:4; doorbell-batch; changes.
        assert_eq!(
            verdicts,
            ["met", "met", "met", "not met", "not met", "met", "not met"],
            "{:#?}",
            report.bounds
        );
        assert!(
            report.bounds[1].contains("0.91 of the best fixed one's rate, 1.09 of its p99"),
            "{:?}",
            report.bounds
        );
        assert!(report.table().contains("0.301") && report.files()[0].1.contains("</svg>"));
    }
}
