//! The result of a pool's figure: nanoseconds and copied bytes an operation, and ratios within a round.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Carrier, Case, Figure, PoolPlan, Side, Took};
use crate::cells;
use crate::harness::measured::{median, ratios};
use crate::harness::words::{figure, time_in_words};
use crate::harness::{Axis, COLORS, Chart, Line, Machine, Panel, Report, Table};

/// The side that is not ours, of figure 8.
pub(super) const RAY: &str = "Ray";
/// What figure 8 does.
pub(super) const WRITE: &str = "share, write, return";

/// A whole run.
#[derive(Debug, Serialize)]
pub struct PoolReport {
    /// What was measured.
    pub figure: Figure,
    /// Where.
    pub machine: Machine,
    /// Rounds; figures are their medians.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows that were not run, and why.
    pub not_run: Vec<(&'static str, String)>,
}

/// One operation of one side at one setting.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub operation: String,
    /// How values got to the other process.
    pub side: &'static str,
    /// Bytes of the value (figure 7), or share of it that was written, in percent (figure 8).
    pub setting: usize,
    /// Median of the rounds, in nanoseconds an operation.
    pub ns: f64,
    /// Operations a second at that time.
    pub per_second: f64,
    /// Bytes copied an operation, as the library and our store count them, with the pages that the kernel copies; not a
    /// number for others' stores.
    pub copied_bytes: f64,
    /// Median of the rounds' ratios of unconditional copying's time to this one's: 20 is twenty times the rate.
    pub times_copy: Option<f64>,
    /// Median of the rounds' ratios of this one's time to iceoryx2's, where the figure has it: 1.2 is a fifth longer.
    pub of_iceoryx2: Option<f64>,
    /// Each round, in nanoseconds an operation.
    pub rounds_ns: Vec<f64>,
}

impl Figure {
    /// What a setting is, in words.
    pub(super) fn setting(self, setting: usize) -> String {
        match self {
            Figure::Fig7 | Figure::Hop => format!("{} KiB", setting >> 10),
            Figure::Fig8 => format!("{setting} %"),
            Figure::Micro => String::new(),
        }
    }
}

impl PoolReport {
    /// A run of which nothing is known yet.
    pub(super) fn begin(plan: &PoolPlan, machine: Machine) -> PoolReport {
        let (figure, rounds) = (plan.figure, plan.rounds);
        PoolReport { figure, machine, rounds, rows: Vec::new(), not_run: Vec::new() }
    }

    /// Adds what a round of a case took.
    pub(super) fn record(&mut self, case: Case, took: &Took) {
        let (side, setting) = match case.figure {
            Figure::Micro => ("", 0),
            _ => (case.side.name(), case.setting),
        };
        for (operation, ns, copied) in took {
            self.add(operation, side, setting, *ns, *copied);
        }
    }

    /// Adds what a round with Ray's object store took. Nobody counts its copies.
    pub(super) fn record_ray(&mut self, setting: usize, ns: f64) {
        self.add(WRITE, RAY, setting, ns, f64::NAN);
    }

    /// Adds the median of a round of hops.
    pub(super) fn record_hop(&mut self, side: &'static str, setting: usize, ns: f64) {
        self.add("hop, one way", side, setting, ns, f64::NAN);
    }

    /// Says why a side was not run, if it was not.
    pub(super) fn excuse(&mut self, side: &'static str, why: Option<String>) {
        self.not_run.extend(why.map(|why| (side, why)));
    }

    fn add(&mut self, operation: &str, side: &'static str, setting: usize, ns: f64, copied_bytes: f64) {
        let same = |row: &Row| (row.operation.as_str(), row.side, row.setting) == (operation, side, setting);
        let idx = self.rows.iter().position(same).unwrap_or_else(|| {
            self.rows.push(Row {
                operation: operation.to_owned(),
                side,
                setting,
                ns: 0.0,
                per_second: 0.0,
                copied_bytes,
                times_copy: None,
                of_iceoryx2: None,
                rounds_ns: Vec::new(),
            });
            self.rows.len() - 1
        });
        self.rows[idx].rounds_ns.push(ns);
        self.rows[idx].copied_bytes = copied_bytes;
    }

    /// Works out medians and ratios of all that was recorded.
    pub(super) fn sum_up(mut self) -> PoolReport {
        let of_side = |side: &str| -> Vec<_> {
            let rows = self.rows.iter().filter(|row| row.side == side);
            rows.map(|row| (row.operation.clone(), row.setting, row.rounds_ns.clone())).collect()
        };
        let (copies, peers) = (of_side(Side::Copy.name()), of_side(Carrier::Iceoryx2.name()));
        for row in &mut self.rows {
            row.ns = median(row.rounds_ns.iter().copied()).unwrap_or(f64::NAN);
            row.per_second = 1e9 / row.ns;
            let find = |others: &[(String, usize, Vec<f64>)]| {
                let same = others.iter().find(|other| (&other.0, other.1) == (&row.operation, row.setting));
                same.map(|other| other.2.clone())
            };
            let own = &row.rounds_ns;
            let (copy, peer) = (find(&copies), find(&peers));
            row.times_copy = copy.and_then(|copy| median(ratios(&copy, own, |ns| *ns)));
            row.of_iceoryx2 = peer.and_then(|peer| median(ratios(own, &peer, |ns| *ns)));
        }
        self
    }

    /// What the figure shows.
    pub(super) fn title(&self) -> &'static str {
        match self.figure {
            Figure::Fig7 => "Figure 7: create_ref, copy-on-write against copy",
            Figure::Fig8 => "Figure 8: a block of 32 KiB, of which the receiver writes a part",
            Figure::Hop => {
                "One hop, one way: filled in place, every byte read, from first store to last load"
            }
            Figure::Micro => "Single operations of a pool",
        }
    }

    fn csv(&self) -> String {
        let mut text = String::from("operation,side,setting,round,ns\n");
        for row in &self.rows {
            for (round_idx, ns) in row.rounds_ns.iter().enumerate() {
                let Row { operation, side, setting, .. } = row;
                let _ = writeln!(text, "\"{operation}\",\"{side}\",{setting},{},{ns:.2}", round_idx + 1);
            }
        }
        text
    }

    /// Time of the first operation over the setting, a line for each side.
    fn chart(&self) -> String {
        let operation = self.rows.first().map_or("", |row| &row.operation);
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.operation == operation).collect();
        let mut sides: Vec<&'static str> = rows.iter().map(|row| row.side).collect();
        sides.sort_unstable();
        sides.dedup();
        let mut settings: Vec<usize> = rows.iter().map(|row| row.setting).collect();
        settings.sort_unstable();
        settings.dedup();
        let place = |row: &Row| settings.iter().position(|known| *known == row.setting).unwrap_or(0) as f64;
        let line = |(idx, side): (usize, &&'static str)| Line {
            name: (*side).to_owned(),
            color: COLORS[idx % COLORS.len()],
            points: rows.iter().filter(|row| row.side == *side).map(|row| (place(row), row.ns)).collect(),
            has_dots: true,
        };
        let names: Vec<String> = settings.iter().map(|setting| self.figure.setting(*setting)).collect();
        let panel = Panel {
            title: format!("{operation}, measured"),
            x: Axis::named(&names),
            x_words: "",
            y: Axis::decades(rows.iter().map(|row| row.ns), time_in_words),
            lines: sides.iter().enumerate().map(line).collect(),
            note: String::new(),
        };
        Chart { title: self.title(), machine: &self.machine, panels: vec![panel] }.draw()
    }
}

impl Report for PoolReport {
    fn table(&self) -> String {
        let Machine { cpu, kernel, build, version, .. } = &self.machine;
        let mut table = Table::new("operation|side", "|ns|a second|copied bytes|x copy|iceoryx2");
        for row in &self.rows {
            let copied = Some(row.copied_bytes).filter(|bytes| !bytes.is_nan());
            let blank =
                |ratio: Option<f64>, digits| ratio.map_or_else(String::new, |it| format!("{it:.digits$}"));
            table.row(cells![
                row.operation,
                row.side,
                self.figure.setting(row.setting),
                figure(Some(row.ns), 1),
                figure(Some(row.per_second), 0),
                figure(copied, 0),
                blank(row.times_copy, 1),
                blank(row.of_iceoryx2, 2),
            ]);
        }
        for (side, why) in &self.not_run {
            table.noted(cells!["", side], format!("not run: {why}"));
        }
        format!(
            "{} (measured)\n{cpu}, Linux {kernel}, {build} build of Tollfree {version}, two pinned processes, medians of {} rounds\n\n{table}",
            self.title(),
            self.rounds
        )
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let plot = (self.figure != Figure::Micro).then(|| ("plot.svg", self.chart()));
        [("rounds.csv", self.csv())].into_iter().chain(plot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let plan = PoolPlan { figure: Figure::Fig7, rounds: 3, count: 1, python: String::new() };
        let mut report = PoolReport::begin(&plan, Machine::look(&Cores::choose().unwrap(), &[]));
        for (cow, copy) in [(1.0, 10.0), (2.0, 60.0), (10.0, 200.0)] {
            let case = |side| Case { figure: Figure::Fig7, side, setting: 4096 };
            report.record(case(Side::CopyOnWrite), &vec![("create_ref".to_owned(), cow, 0.0)]);
            report.record(case(Side::Copy), &vec![("create_ref".to_owned(), copy, 4096.0)]);
        }
        let report = report.sum_up();
        assert_eq!((report.rows[0].ns, report.rows[0].times_copy), (2.0, Some(20.0)));
        assert_eq!(report.rows[1].times_copy, Some(1.0));
        assert!(report.table().contains("copy-on-write") && report.chart().contains("<path"));
        assert_eq!(report.csv().lines().count(), 1 + 6);
    }
}
