//! The result of a pool's figure: nanoseconds and copied bytes an operation, and ratios within a round.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{Figure, PoolPlan, Side, Took, plot};
use crate::{BenchError, Machine, write_files};

/// The side that is not ours.
const RAY: &str = "Ray";

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

fn row(operation: &str, side: &'static str, setting: usize) -> Row {
    Row {
        operation: operation.to_owned(),
        side,
        setting,
        ns: 0.0,
        per_second: 0.0,
        copied_bytes: 0.0,
        times_copy: None,
        of_iceoryx2: None,
        rounds_ns: Vec::new(),
    }
}

/// The rows of a case, before it has run.
pub(super) fn empty(figure: Figure, side: Side, setting: usize) -> Vec<Row> {
    let operations: &[&str] = match figure {
        Figure::Fig7 => &["create_ref", "map and drop"],
        _ => &["share, write, return"],
    };
    operations.iter().map(|operation| row(operation, side.name(), setting)).collect()
}

/// Adds what a round of a case took.
pub(super) fn record(rows: &mut [Row], side: Side, setting: usize, took: &Took) {
    for (operation, ns, copied) in took {
        let same =
            |row: &&mut Row| row.operation == *operation && row.side == side.name() && row.setting == setting;
        if let Some(row) = rows.iter_mut().find(same) {
            row.rounds_ns.push(*ns);
            row.copied_bytes = *copied;
        }
    }
}

/// Adds what a round with Ray's object store took.
pub(super) fn record_ray(rows: &mut Vec<Row>, setting: usize, ns: f64) {
    match rows.iter_mut().find(|row| row.side == RAY && row.setting == setting) {
        Some(row) => row.rounds_ns.push(ns),
        None => {
            let copied_bytes = f64::NAN; // Nobody counts them.
            rows.push(Row { copied_bytes, rounds_ns: vec![ns], ..row("share, write, return", RAY, setting) });
        }
    }
}

/// Adds the median of a round of hops.
pub(super) fn record_hop(rows: &mut Vec<Row>, side: &'static str, setting: usize, ns: f64) {
    match rows.iter_mut().find(|row| row.side == side && row.setting == setting) {
        Some(row) => row.rounds_ns.push(ns),
        None => {
            rows.push(Row {
                copied_bytes: f64::NAN,
                rounds_ns: vec![ns],
                ..row("hop, one way", side, setting)
            });
        }
    }
}

/// Adds what a round of a single operation took.
pub(super) fn record_operation(rows: &mut Vec<Row>, operation: &str, ns: f64) {
    match rows.iter_mut().find(|row| row.operation == operation) {
        Some(row) => row.rounds_ns.push(ns),
        None => {
            let mut new = row(operation, "", 0);
            new.rounds_ns.push(ns);
            rows.push(new);
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        count => f64::midpoint(figures[(count - 1) / 2], figures[count / 2]),
    }
}

impl PoolReport {
    pub(super) fn new(
        plan: &PoolPlan,
        machine: Machine,
        mut rows: Vec<Row>,
        not_run: Vec<(&'static str, String)>,
    ) -> PoolReport {
        let of_side = |side: &str| -> Vec<_> {
            let rows = rows.iter().filter(|row| row.side == side);
            rows.map(|row| (row.operation.clone(), row.setting, row.rounds_ns.clone())).collect()
        };
        let (copies, peers) = (of_side(Side::Copy.name()), of_side(super::ICEORYX2));
        for row in &mut rows {
            row.ns = median(row.rounds_ns.clone());
            row.per_second = 1e9 / row.ns;
            let ratio = |others: &[(String, usize, Vec<f64>)], ratio: fn(f64, f64) -> f64| {
                let same = others.iter().find(|other| (&other.0, other.1) == (&row.operation, row.setting));
                let pairs = same.map(|other| other.2.iter().zip(&row.rounds_ns));
                pairs.map(|pairs| median(pairs.map(|(other, own)| ratio(*other, *own)).collect()))
            };
            (row.times_copy, row.of_iceoryx2) =
                (ratio(&copies, |copy, own| copy / own), ratio(&peers, |peer, own| own / peer));
        }
        PoolReport { figure: plan.figure, machine, rounds: plan.rounds, rows, not_run }
    }

    /// The result as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// What a setting is, in words.
    pub(super) fn setting(&self, setting: usize) -> String {
        match self.figure {
            Figure::Fig7 | Figure::Hop => format!("{} KiB", setting >> 10),
            Figure::Fig8 => format!("{setting} %"),
            Figure::Micro => String::new(),
        }
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

    /// The result as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{} (measured)\n{}, Linux {}, {} build of Tollfree {}, two pinned processes, medians of {} rounds\n\n",
            self.title(),
            machine.cpu,
            machine.kernel,
            machine.build,
            machine.version,
            self.rounds
        );
        let _ = writeln!(
            text,
            "  {:<54}{:<15}{:>9} {:>11} {:>12} {:>13} {:>8}",
            "",
            "",
            "",
            "ns",
            "a second",
            "copied bytes",
            if self.figure == Figure::Hop { "iceoryx2" } else { "x copy" }
        );
        for row in &self.rows {
            let times = row.times_copy.map(|times| format!("{times:.1}"));
            let times = times.or(row.of_iceoryx2.map(|ratio| format!("{ratio:.2}")));
            let times = times.unwrap_or_else(|| "-".to_owned());
            let Row { operation, side, ns, per_second, copied_bytes, .. } = row;
            let setting = self.setting(row.setting);
            let copied = if copied_bytes.is_nan() { "-".to_owned() } else { format!("{copied_bytes:.0}") };
            let _ = writeln!(
                text,
                "  {operation:<54}{side:<15}{setting:>9} {ns:>11.1} {per_second:>12.0} {copied:>13} {times:>8}"
            );
        }
        for (side, why) in &self.not_run {
            let _ = writeln!(text, "  {side}: not run: {why}");
        }
        text
    }

    /// Writes `rows.json`, `table.txt`, `rounds.csv` and, for figures, `plot.svg` into a directory, which is made if need be.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        let mut files =
            vec![("rows.json", self.json() + "\n"), ("table.txt", self.table()), ("rounds.csv", self.csv())];
        if self.figure != Figure::Micro {
            files.push(("plot.svg", plot::draw(self)));
        }
        write_files(dir, &files)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let plan = PoolPlan { figure: Figure::Fig7, rounds: 3, count: 1, python: String::new() };
        let mut rows = empty(Figure::Fig7, Side::CopyOnWrite, 4096);
        rows.extend(empty(Figure::Fig7, Side::Copy, 4096));
        for (cow, copy) in [(1.0, 10.0), (2.0, 60.0), (10.0, 200.0)] {
            record(&mut rows, Side::CopyOnWrite, 4096, &vec![("create_ref", cow, 0.0)]);
            record(&mut rows, Side::Copy, 4096, &vec![("create_ref", copy, 4096.0)]);
        }
        let report = PoolReport::new(&plan, Machine::look(&Cores::choose().unwrap(), &[]), rows, Vec::new());
        assert_eq!((report.rows[0].ns, report.rows[0].times_copy), (2.0, Some(20.0)));
        assert_eq!(report.rows[2].times_copy, Some(1.0));
        assert!(report.table().contains("copy-on-write") && plot::draw(&report).contains("<path"));
        assert_eq!(report.csv().lines().count(), 1 + 6);
    }
}
