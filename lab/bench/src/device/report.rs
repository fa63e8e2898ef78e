//! The result of `tollfree-lab bench device`.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use tollfree::shepherd::{Batch, DoorbellMode};

use super::{DeviceCase, DevicePlan, Driven};
use crate::latency::Latencies;
use crate::lines::{self, Drawing, Point};
use crate::rounds::Tried;
use crate::{BenchError, Machine, write_files};

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
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<DeviceRow>,
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
    pub emissions_per_publication: Option<f64>,
    /// Times that the other process was rung, a call.
    pub rings_per_call: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

impl DeviceRow {
    fn of(tried: Tried<DeviceCase, Driven>) -> DeviceRow {
        let mut all = Driven::default();
        for round in &tried.rounds {
            all.latencies.merge(&round.latencies);
            all.publications += round.publications;
            all.emissions += round.emissions;
            all.rings += round.rings;
        }
        let quantile =
            |latencies: &Latencies, share| (latencies.count() > 0).then(|| latencies.quantile_ns(share));
        let of_rounds = |share| {
            let rounds = tried.rounds.iter().filter_map(|round| quantile(&round.latencies, share));
            median(rounds.map(|ns| ns as f64).collect()).map(|ns| ns as u64)
        };
        let (p50_ns, p99_ns) = (of_rounds(0.5), of_rounds(0.99));
        let each = |count: u64, of: u64| (of > 0).then(|| count as f64 / of as f64);
        DeviceRow {
            case: tried.case,
            calls_per_s: median(tried.rounds.iter().map(Driven::rate).collect()),
            of_floor: None,
            p50_ns,
            p99_ns,
            longest_ns: quantile(&all.latencies, 1.0),
            calls: all.latencies.count(),
            emissions_per_publication: each(all.emissions, all.publications),
            rings_per_call: each(all.rings, all.emissions),
            not_run: tried.not_run,
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
        plan: &DevicePlan,
        tried: Vec<Tried<DeviceCase, Driven>>,
    ) -> DeviceReport {
        let rows: Vec<_> = tried.into_iter().map(DeviceRow::of).collect();
        let (seconds, rounds) = (plan.seconds, plan.rounds);
        let mut report = DeviceReport { machine, seconds, rounds, rows, bounds: Vec::new() };
        report.compare_with_floor();
        report.bounds = report.compared();
        report
    }

    fn compare_with_floor(&mut self) {
        let setting = |case: &DeviceCase| (case.inflight, case.placement);
        let floors: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.case.mode.is_none())
            .filter_map(|row| Some((setting(&row.case), row.calls_per_s?)))
            .collect();
        let is_like_floor =
            |case: &DeviceCase| case.mode.is_some() && case.rate.is_none() && case.threads == 1;
        for row in self.rows.iter_mut().filter(|row| is_like_floor(&row.case)) {
            let floor = floors.iter().find(|(floor, _)| *floor == setting(&row.case));
            row.of_floor = floor.zip(row.calls_per_s).map(|((_, floor), own)| own / floor);
        }
    }

    fn compared(&self) -> Vec<String> {
        let mut words = Vec::new();
        let said = |holds: bool| if holds { "met" } else { "not met" };
        for row in &self.rows {
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
                let single = self.rows.iter().find(is_single);
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
                let others =
                    self.rows.iter().filter(|other| !other.case.changing && other.case.mode.is_some());
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
            let others = self.rows.iter().filter(|other| row.is_beside(other) && other.not_run.is_none());
            others.filter(|other| other.case.batch.0 != Batch::Auto)
        };
        let rate = fixed().filter_map(|other| other.calls_per_s).fold(0.0, f64::max);
        let p99 = fixed().filter_map(|other| other.p99_ns).min()?;
        let (own_rate, own_p99) = (row.calls_per_s?, row.p99_ns?);
        let (rate, p99) = (own_rate / rate, own_p99 as f64 / p99 as f64);
        let verdict = if rate >= 1.0 - NEAR && p99 <= 1.0 + NEAR { "met" } else { "not met" };
        let pace = row.case.rate.map_or_else(
            || format!("{} in flight", row.case.inflight),
            |rate| format!("{rate} calls a second"),
        );
        Some(format!(
            "automatic batch, {}, {pace}, {} threads, {}: {rate:.2} of the best fixed one's rate, {p99:.2} of its p99: {verdict}",
            row.case.name(),
            row.case.threads,
            row.case.placement
        ))
    }

    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &DeviceRow> {
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
            "{} rounds of {} s; 64 bytes there and back; measured\n",
            self.rounds, self.seconds
        );
        let _ = writeln!(
            text,
            "{:<10} {:>7} {:>9} {:>9}  {:<18} {:>5} {:>11} {:>8} {:>9} {:>9} {:>10} {:>10} {:>10}",
            "placement",
            "threads",
            "in flight",
            "rate",
            "mode",
            "batch",
            "calls/s",
            "of floor",
            "p50 us",
            "p99 us",
            "longest us",
            "together",
            "rings/call"
        );
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        text.push('\n');
        for words in &self.bounds {
            let _ = writeln!(text, "{words}");
        }
        text
    }

    /// Writes raw data, table and plot into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(
            dir,
            &[("device.json", self.json()), ("device.txt", self.table()), ("device.svg", self.draw())],
        )
    }

    /// Latency over the rate that was had.
    fn draw(&self) -> String {
        let mut lines: Vec<(String, Vec<Point>)> = Vec::new();
        for row in &self.rows {
            let (Some(rate), Some(p50), Some(p99)) = (row.calls_per_s, row.p50_ns, row.p99_ns) else {
                continue;
            };
            let mut name = row.case.name();
            if row.case.mode.is_some() && !row.case.changing {
                let _ = write!(name, ", batch {}, {} threads", row.case.batch.0, row.case.threads);
            }
            let point = Point { x: rate, panels: [p50 as f64 / 1000.0, p99 as f64 / 1000.0] };
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        lines::draw(&Drawing {
            title: "64 bytes over the interface to business processes",
            machine: &self.machine,
            axis: "calls a second",
            panels: ["median, µs", "99 of 100, µs"],
            lines,
        })
    }
}

fn line(row: &DeviceRow) -> String {
    let case = &row.case;
    let pace = case.rate.map_or_else(|| "max".to_owned(), |rate| rate.to_string());
    let batch = if case.mode.is_some() { case.batch.0.to_string() } else { String::new() };
    let begin = format!(
        "{:<10} {:>7} {:>9} {pace:>9}  {:<18} {batch:>5}",
        case.placement,
        case.threads,
        case.inflight,
        row.case.name()
    );
    if let Some(why) = &row.not_run {
        return format!("{begin} {why}");
    }
    let figure =
        |figure: Option<f64>, digits: usize| figure.map_or_else(String::new, |it| format!("{it:.digits$}"));
    let us = |ns: Option<u64>| figure(ns.map(|ns| ns as f64 / 1000.0), 2);
    format!(
        "{begin} {:>11} {:>8} {:>9} {:>9} {:>10} {:>10} {:>10}",
        figure(row.calls_per_s, 0),
        figure(row.of_floor, 3),
        us(row.p50_ns),
        us(row.p99_ns),
        us(row.longest_ns),
        figure(row.emissions_per_publication, 2),
        figure(row.rings_per_call, 3)
    )
}

#[cfg(test)]
mod tests {
    use tollfree_shepherd::Word;

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
        let mut report = DeviceReport { machine, seconds: 1.0, rounds: 1, rows, bounds: Vec::new() };
        report.compare_with_floor();
        report.bounds = report.compared();
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
        assert!(report.table().contains("0.301") && report.draw().contains("</svg>"));
    }
}
