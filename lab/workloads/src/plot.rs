//! Draws a run: panels for rate, latency and bytes copied over the setting, one line for each side. Plain SVG.

use std::fmt::Write as _;

use crate::dagger::{self, DaggerFigure};
use crate::plan::{Pressure, Shape};
use crate::report::{Report, Row};
use crate::side::Side;
use crate::sizes::{Lengths, Sizes};

const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 300.0;
const PANELS_PER_LINE: usize = 2;
const MARGIN: f64 = 16.0;
const HEAD: f64 = 80.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Colours that colour-blind readers can tell apart too.
fn colour(side: Side) -> &'static str {
    match side {
        Side::Tonic => "#0072b2",
        Side::Inline => "#009e73",
        Side::Ref => "#d55e00",
        Side::RefCopy => "#cc79a7",
        Side::Shepherd => "#e69f00",
        Side::ShepherdObjects => "#56b4e9",
        Side::ShepherdStream => "#000000",
    }
}

/// Lines over the same marks.
struct Panel {
    title: String,
    unit: Unit,
    /// Of the horizontal axis.
    marks: Vec<String>,
    lines: Vec<Line>,
}

struct Line {
    name: &'static str,
    colour: &'static str,
    /// Which mark, and the value.
    points: Vec<(usize, f64)>,
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
    let line_count = panels.len().div_ceil(PANELS_PER_LINE).max(1) as f64;
    let (width, height) = (2.0 * MARGIN + 2.0 * PANEL_WIDTH, HEAD + PANEL_HEIGHT * line_count + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" \
         fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, (MARGIN, 24.0), "font-size=\"16\" font-weight=\"600\"", &report.title);
    let machine = &report.machine;
    let place =
        format!("{}, {} cores, Linux {} · {}", machine.cpu, machine.cores, machine.kernel, report.label);
    text(&mut svg, (MARGIN, 43.0), "fill=\"#555\"", &place);
    let (mut x, mut shown) = (MARGIN, Vec::new());
    for Line { name, colour, .. } in panels.iter().flat_map(|panel| &panel.lines) {
        if shown.contains(name) {
            continue;
        }
        shown.push(name);
        let _ = writeln!(svg, "<path d=\"M{x} 62h22\" stroke=\"{colour}\" stroke-width=\"2.5\"/>");
        text(&mut svg, (x + 28.0, 66.0), "", name);
        x += 56.0 + 7.2 * name.len() as f64;
    }
    for (at, panel) in panels.iter().enumerate() {
        let x = MARGIN + PANEL_WIDTH * (at % PANELS_PER_LINE) as f64;
        let y = HEAD + PANEL_HEIGHT * (at / PANELS_PER_LINE) as f64;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// For each pressure of a closed load, rate, latency and bytes; for an open load, latencies over the rate.
fn panels(report: &Report) -> Vec<Panel> {
    let (open, closed): (Vec<&Row>, Vec<&Row>) =
        report.rows.iter().partition(|row| matches!(row.case.pressure, Pressure::Rate(_)));
    let mut panels = Vec::new();
    let mut pressures: Vec<Pressure> = Vec::new();
    for row in &closed {
        if !pressures.contains(&row.case.pressure) {
            pressures.push(row.case.pressure);
        }
    }
    for pressure in pressures {
        let rows: Vec<&Row> = closed.iter().copied().filter(|row| row.case.pressure == pressure).collect();
        let panel = |title: &str, unit, value| Panel::of(format!("{title}, {pressure}"), unit, &rows, value);
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
        let panel = |title: &str, value| Panel::of(title.to_owned(), Unit::Nanoseconds, &open, value);
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
    for rows in report.rows.chunk_by(|one, next| one.case.shape == next.case.shape) {
        let workload = dagger::workload(rows[0].case.shape);
        if panels.iter().any(|(known, _)| *known == workload) {
            continue;
        }
        let rows: Vec<&Row> =
            report.rows.iter().filter(|row| dagger::workload(row.case.shape) == workload).collect();
        let panel = |what: &str, value| {
            Panel::of(format!("{workload}: networking of {what}"), Unit::Percent, &rows, value)
        };
        panels.push((workload, panel("mean latency", |row| Some(100.0 * row.networking_share?))));
        panels.push((workload, panel("processor time", |row| Some(100.0 * (1.0 - row.useful_share?)))));
    }
    panels.into_iter().map(|(_, panel)| panel).collect()
}

/// For each workload, the share of messages that are no longer than a mark.
fn lengths(report: &Report) -> Vec<Panel> {
    let panel = |(workload, sizes): (&'static str, Sizes)| {
        let line = |name, colour, lengths: &Lengths| {
            let share = |(idx, mark): (usize, &u64)| Some((idx, 100.0 * lengths.share_up_to(*mark)?));
            Line { name, colour, points: dagger::MARKS.iter().enumerate().filter_map(share).collect() }
        };
        let lines =
            vec![line("requests", "#0072b2", &sizes.requests), line("replies", "#d55e00", &sizes.replies)];
        Panel {
            title: format!("{workload}: messages of at most so many bytes"),
            unit: Unit::Percent,
            marks: dagger::MARKS.iter().map(|mark| short(*mark as usize)).collect(),
            lines,
        }
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

impl Panel {
    /// A line for each side, whose points are its rows.
    fn of(title: String, unit: Unit, rows: &[&Row], value: fn(&Row) -> Option<f64>) -> Panel {
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
                Some((idx, value(row).filter(|value| *value > 0.0)?))
            };
            let points = of_side.filter_map(point).collect();
            lines.push(Line { name: side.name(), colour: colour(*side), points });
        }
        Panel { title, unit, marks, lines }
    }

    fn draw(&self, svg: &mut String) {
        text(svg, (LEFT, TOP - 12.0), "font-weight=\"600\"", &self.title);
        let labels = &self.marks;
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
        // Powers of ten, with a little room at both ends.
        let least = (values().fold(f64::INFINITY, f64::min).log10() - 0.05).floor();
        let most = (values().fold(1.0, f64::max).log10() + 0.05).ceil().max(least + 1.0);
        let (right, bottom) = (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM);
        let y = |value: f64| match self.unit {
            Unit::Percent => bottom - value / 100.0 * (bottom - TOP),
            _ => bottom - (value.log10() - least) / (most - least) * (bottom - TOP),
        };
        let x = |idx: usize| LEFT + (right - LEFT) * (idx as f64 + 0.5) / labels.len() as f64;
        let scale: Vec<f64> = match self.unit {
            Unit::Percent => (0..=5).map(|step| 20.0 * f64::from(step)).collect(),
            _ => (least as i32..=most as i32).map(|decade| 10_f64.powi(decade)).collect(),
        };
        for value in scale {
            let at = y(value);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>");
            text(
                svg,
                (LEFT - 6.0, at + 4.0),
                "text-anchor=\"end\" font-size=\"11\"",
                &self.unit.words(value),
            );
        }
        let step = labels.len().div_ceil(8);
        for (idx, label) in labels.iter().enumerate().filter(|(idx, _)| idx % step == 0) {
            text(svg, (x(idx), bottom + 16.0), "text-anchor=\"middle\" font-size=\"11\"", label);
        }
        for Line { name, colour, points } in &self.lines {
            let mut path = String::new();
            for (idx, value) in points {
                let (x, y) = (x(*idx), y(*value));
                let step = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{step}{x:.1} {y:.1}");
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
            if !path.is_empty() {
                let _ = writeln!(
                    svg,
                    "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"><title>{name}</title></path>"
                );
            }
        }
        let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>");
    }
}

impl Unit {
    fn words(self, value: f64) -> String {
        let (value, unit) = match (self, value) {
            (Self::Nanoseconds, ..1e3) => (value, " ns"),
            (Self::Nanoseconds, ..1e6) => (value / 1e3, " µs"),
            (Self::Nanoseconds, ..1e9) => (value / 1e6, " ms"),
            (Self::Nanoseconds, _) => (value / 1e9, " s"),
            (_, ..1e3) => (value, ""),
            (_, ..1e6) => (value / 1e3, "k"),
            (_, ..1e9) => (value / 1e6, "M"),
            (_, _) => (value / 1e9, "G"),
        };
        let end = match self {
            Self::Bytes => "B",
            Self::Percent => " %",
            Self::Rate | Self::Nanoseconds => "",
        };
        format!("{value}{unit}{end}")
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>");
}
