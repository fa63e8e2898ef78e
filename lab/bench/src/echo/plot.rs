//! Draws latencies by percentile: one panel for each setting, one line for each side.
//!
//! The percentile axis is spaced by nines, the latency axis by powers of ten, so that a median and a tail can be read
//! from one line.

use std::f64::consts::LOG10_2;

use crate::harness::words::time_in_words;
use crate::harness::{Axis, Chart, Line, Panel, Rows};
use crate::latency::Latencies;
use crate::plan::Side;

use super::report::Row;

/// Marks on the percentile axis: nines, label.
const PERCENTILES: [(f64, &str); 6] =
    [(0.0, "0"), (LOG10_2, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99")];
/// Where the percentile axis ends, in nines.
const NINES_MAX: f64 = 4.0;
/// Points of a line.
const STEPS: u32 = 200;

/// Colors that color-blind readers can tell apart too.
fn color(side: Side) -> &'static str {
    match side {
        Side::Floor => "#7a7a7a",
        Side::Iceoryx2 => "#8c6d31",
        Side::Session => "#009e73",
        Side::Loop => "#1b4f72",
        Side::Threads => "#a6761d",
        Side::TollfreeDirect => "#e69f00",
        Side::TollfreeView => "#7b3294",
        Side::TollfreeViewPool => "#b89bc9",
        Side::TollfreeRef | Side::TollfreeUpgrade => "#56b4e9",
        Side::TollfreeBlocking => "#cc79a7",
        Side::TollfreeThreads => "#882255",
        Side::Tollfree => "#d55e00",
        Side::TollfreePark => "#f0c419",
        Side::TollfreeDirectConnection => "#8c564b",
        Side::TonicUnix => "#0072b2",
        Side::TonicBlocking => "#117733",
        Side::TonicTcp => "#b05fa0",
        Side::C => "#525252",
        Side::Cpp => "#6a3d9a",
        Side::CppStock => "#cab2d6",
        Side::GrpcCpp => "#1f78b4",
        Side::Go => "#2e8b57",
        Side::GoInline => "#66c2a4",
        Side::GoDirect => "#a6dba0",
        Side::GoToRust => "#bf812d",
        Side::RustToGo => "#35978f",
        Side::GrpcGo => "#3182bd",
        Side::Python => "#6a51a3",
        Side::PythonInline => "#9e9ac8",
        Side::PythonToRust => "#54278f",
        Side::PythonAioToRust => "#c51b7d",
        Side::PythonAio => "#de77ae",
        Side::PythonRef => "#1c9099",
        Side::PythonRefToRust => "#67a9cf",
        Side::Grpcio => "#636363",
        Side::GrpcioAio => "#969696",
    }
}

/// The whole drawing. Cases that were not run are named, not drawn.
pub(super) fn latencies(report: &Rows<Row>) -> String {
    let panels = report.groups().iter().map(|group| panel(group)).collect();
    Chart { title: "Echo: latency by percentile", machine: &report.machine, panels }.draw()
}

fn panel(group: &[&Row]) -> Panel {
    let line = |row: &&Row| {
        let (side, points) = (row.case.side, curve(&row.latencies()?));
        Some(Line { name: side.name().to_owned(), color: color(side), points, has_dots: false })
    };
    let lines: Vec<Line> = group.iter().filter_map(line).collect();
    let absent = group.iter().filter(|row| row.not_run.is_some()).map(|row| row.case.side.name());
    let absent: Vec<_> = absent.collect();
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, nanos)| *nanos);
    let marks = PERCENTILES.map(|(nines, label)| (nines, label.to_owned()));
    Panel {
        title: group[0].case.setting(),
        x: Axis::linear(0.0, NINES_MAX, marks.to_vec()),
        x_words: "percentile of calls",
        y: Axis::decades(values, time_in_words),
        lines,
        note: if absent.is_empty() { String::new() } else { format!("not run: {}", absent.join(", ")) },
    }
}

/// Points of a percentile line: nines, nanoseconds. Ends where fewer than ten calls are slower, for beyond that a
/// line would show single calls.
fn curve(all: &Latencies) -> Vec<(f64, f64)> {
    let last = (all.count() as f64 / 10.0).log10().clamp(LOG10_2, NINES_MAX);
    let point = |step| {
        let nines = last * f64::from(step) / f64::from(STEPS);
        (nines, all.quantile_ns(1.0 - 10_f64.powf(-nines)).max(1) as f64)
    };
    (0..=STEPS).map(point).collect()
}
