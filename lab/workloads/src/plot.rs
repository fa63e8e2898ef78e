//! Draws a run: panels for rate, latency and bytes copied over the setting, one line for each side.

use tollfree_bench::harness::words::time_in_words;
use tollfree_bench::harness::{Axis, COLORS, Chart, Line, Panel};

use crate::dagger::{self, DaggerFigure};
use crate::plan::{Pressure, Shape};
use crate::report::{Report, Row};
use crate::side::Side;
use crate::sizes::{Lengths, Sizes};

/// Colors that color-blind readers can tell apart too.
fn color(side: Side) -> &'static str {
    match side {
        Side::Tonic => "#0072b2",
        Side::Inline => "#009e73",
        Side::Ref => "#d55e00",
        Side::RefCopy => "#cc79a7",
        Side::Gateway => "#e69f00",
        Side::GatewayObjects => "#56b4e9",
        Side::GatewayStream => "#000000",
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Rate,
    Nanoseconds,
    Bytes,
    Percent,
}

/// The whole drawing. Cases that were not run are not in it.
pub(crate) fn draw(report: &Report) -> String {
    let panels = match report.figure {
        None => panels(report),
        Some(DaggerFigure::Fig1) => shares(report),
        Some(DaggerFigure::Fig2) => lengths(report),
    };
    Chart { title: &report.title, machine: &report.rows.machine, panels }.draw()
}

/// For each pressure of a closed load, rate, latency and bytes; for an open load, latencies over the rate.
fn panels(report: &Report) -> Vec<Panel> {
    let (open, closed): (Vec<&Row>, Vec<&Row>) =
        report.rows.rows.iter().partition(|row| matches!(row.case.pressure, Pressure::Rate(_)));
    let mut panels = Vec::new();
    let mut pressures: Vec<Pressure> = Vec::new();
    for row in &closed {
        if !pressures.contains(&row.case.pressure) {
            pressures.push(row.case.pressure);
        }
    }
    for pressure in pressures {
        let rows: Vec<&Row> = closed.iter().copied().filter(|row| row.case.pressure == pressure).collect();
        let panel = |title: &str, unit, value| panel(format!("{title}, {pressure}"), unit, &rows, value);
        panels.push(panel("calls a second", Unit::Rate, |row| row.quantiles.rate_per_s));
        panels.push(panel("mean latency", Unit::Nanoseconds, |row| row.quantiles.mean_ns));
        panels.push(panel("p99 latency", Unit::Nanoseconds, |row| row.quantiles.p99_ns.map(|ns| ns as f64)));
        panels.push(match rows[0].case.shape {
            // What is asked is how much it moves itself.
            Shape::Balancer { .. } => {
                panel("bytes copied in the balancer", Unit::Bytes, |row| row.movers?.copied_bytes)
            }
            Shape::Hotel { .. } => panel("share of useful work", Unit::Percent, |row| {
                row.useful_share.map(|share| 100.0 * share)
            }),
            _ => panel("bytes copied a call", Unit::Bytes, |row| row.all?.copied_bytes),
        });
    }
    if !open.is_empty() {
        let panel = |title: &str, value| panel(title.to_owned(), Unit::Nanoseconds, &open, value);
        panels.push(panel("mean latency", |row| row.quantiles.mean_ns));
        panels.push(panel("p99 latency", |row| row.quantiles.p99_ns.map(|ns| ns as f64)));
        panels.push(panel("p99.9 latency", |row| row.quantiles.p999_ns.map(|ns| ns as f64)));
    }
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points.is_empty()));
    panels
}

/// For each workload, networking's share of latency and of processor time over the rate.
fn shares(report: &Report) -> Vec<Panel> {
    let mut panels = Vec::new();
    for rows in report.rows.rows.chunk_by(|one, next| one.case.shape == next.case.shape) {
        let workload = dagger::workload(rows[0].case.shape);
        if panels.iter().any(|(known, _)| *known == workload) {
            continue;
        }
        let rows: Vec<&Row> =
            report.rows.rows.iter().filter(|row| dagger::workload(row.case.shape) == workload).collect();
        let panel = |what: &str, value| {
            panel(format!("{workload}: networking of {what}"), Unit::Percent, &rows, value)
        };
        panels.push((workload, panel("mean latency", |row| Some(100.0 * row.networking_share?))));
        panels.push((workload, panel("processor time", |row| Some(100.0 * (1.0 - row.useful_share?)))));
    }
    panels.into_iter().map(|(_, panel)| panel).collect()
}

/// For each workload, the share of messages that are no longer than a mark.
fn lengths(report: &Report) -> Vec<Panel> {
    let panel = |(workload, sizes): (&'static str, Sizes)| {
        let line = |name: &str, color, lengths: &Lengths| {
            let share = |(idx, mark): (usize, &u64)| Some((idx as f64, 100.0 * lengths.share_up_to(*mark)?));
            let points = dagger::MARKS.iter().enumerate().filter_map(share).collect();
            Line { name: name.to_owned(), color, points, has_dots: true }
        };
        let title = format!("{workload}: messages of at most so many bytes");
        let marks = dagger::MARKS.map(|mark| short(mark as usize));
        let [requests, replies, ..] = COLORS;
        let lines =
            vec![line("requests", requests, &sizes.requests), line("replies", replies, &sizes.replies)];
        over(title, Unit::Percent, &marks, lines)
    };
    dagger::lengths_of(report).into_iter().map(panel).collect()
}

/// The label of a row on the horizontal axis.
fn label(row: &Row) -> String {
    match (row.case.shape, row.case.pressure) {
        (_, Pressure::Rate(rate)) => format!("{rate}/s"),
        (Shape::Chain { length, size, .. }, _) => format!("{length} × {}", short(size)),
        (shape, _) => short(shape.size()),
    }
}

fn short(size: usize) -> String {
    match size {
        ..1024 => format!("{size}B"),
        1024..1_048_576 => format!("{}K", size >> 10),
        _ => format!("{}M", size >> 20),
    }
}

/// A line for each side, whose points are its rows.
fn panel(title: String, unit: Unit, rows: &[&Row], value: fn(&Row) -> Option<f64>) -> Panel {
    let mut marks: Vec<String> = Vec::new();
    for row in rows {
        let label = label(row);
        if !marks.contains(&label) {
            marks.push(label);
        }
    }
    let mut lines = Vec::new();
    for side in Side::ALL.iter().filter(|side| rows.iter().any(|row| row.case.side == **side)) {
        let of_side = rows.iter().filter(|row| row.case.side == *side);
        let point = |row: &&Row| {
            let idx = marks.iter().position(|known| *known == label(row))?;
            Some((idx as f64, value(row).filter(|value| *value > 0.0)?))
        };
        let (name, points) = (side.name().to_owned(), of_side.filter_map(point).collect());
        lines.push(Line { name, color: color(*side), points, has_dots: true });
    }
    over(title, unit, &marks, lines)
}

/// Lines over the same marks.
fn over(title: String, unit: Unit, marks: &[String], lines: Vec<Line>) -> Panel {
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let y = match unit {
        Unit::Percent => Axis::percent(),
        Unit::Nanoseconds => Axis::decades(values, time_in_words),
        Unit::Rate => Axis::decades(values, |value| in_thousands(value, "")),
        Unit::Bytes => Axis::decades(values, |value| in_thousands(value, "B")),
    };
    Panel { title, x: Axis::named(marks), x_words: "", y, lines, note: String::new() }
}

fn in_thousands(value: f64, unit: &str) -> String {
    match value {
        ..1e3 => format!("{value}{unit}"),
        ..1e6 => format!("{}k{unit}", value / 1e3),
        ..1e9 => format!("{}M{unit}", value / 1e6),
        _ => format!("{}G{unit}", value / 1e9),
    }
}
