//! Draws latencies by percentile: one panel for each setting, one line for each side.
//!
//! The percentile axis is spaced by nines, the latency axis by powers of ten, so that a median and a tail can be read
//! from one line. Plain SVG, no scripts, no fonts beyond what every viewer has.

use std::fmt::Write as _;

use crate::latency::Latencies;
use crate::plan::Side;
use crate::report::{Report, Row};

const PANEL_WIDTH: f64 = 430.0;
const PANEL_HEIGHT: f64 = 300.0;
const PANELS_PER_LINE: usize = 2;
const MARGIN: f64 = 16.0;
/// Above the panels: title and legend.
const HEAD: f64 = 74.0;
/// Inside a panel: room for the labels of both axes and its title.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// Marks on the percentile axis: nines, label.
const PERCENTILES: [(f64, &str); 6] =
    [(0.0, "0"), (std::f64::consts::LOG10_2, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99")];

/// Where the percentile axis ends, in nines.
const NINES_MAX: f64 = 4.0;

/// Colours that colour-blind readers can tell apart too.
fn colour(side: Side) -> &'static str {
    match side {
        Side::Floor => "#7a7a7a",
        Side::Iceoryx2 => "#8c6d31",
        Side::Session => "#009e73",
        Side::TollfreeDirect => "#e69f00",
        Side::TollfreeView => "#7b3294",
        Side::TollfreeViewPool => "#b89bc9",
        Side::TollfreeRef => "#56b4e9",
        Side::TollfreeBlocking => "#cc79a7",
        Side::Tollfree => "#d55e00",
        Side::TollfreePark => "#f0c419",
        Side::TollfreeUpgrade => "#56b4e9",
        Side::TollfreeShortcut => "#8c564b",
        Side::TonicUnix => "#0072b2",
        Side::TonicTcp => "#b05fa0",
    }
}

/// The whole drawing. Cases that were not run are named, not drawn.
pub fn latencies(report: &Report) -> String {
    let groups = report.groups();
    let line_count = groups.len().div_ceil(PANELS_PER_LINE).max(1) as f64;
    let column_count = groups.len().clamp(1, PANELS_PER_LINE) as f64;
    let width = MARGIN * 2.0 + (PANEL_WIDTH * column_count).max(PANEL_WIDTH * 1.6);
    let height = HEAD + PANEL_HEIGHT * line_count + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" \
         fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let machine = &report.machine;
    text(&mut svg, (MARGIN, 24.0), "font-size=\"16\" font-weight=\"600\"", "Echo: latency by percentile");
    let place = format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
    text(&mut svg, (MARGIN, 43.0), "fill=\"#555\"", &place);
    legend(&mut svg, report);
    for (at, group) in groups.iter().enumerate() {
        let x = MARGIN + PANEL_WIDTH * (at % PANELS_PER_LINE) as f64;
        let y = HEAD + PANEL_HEIGHT * (at / PANELS_PER_LINE) as f64;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel(&mut svg, group);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, report: &Report) {
    let mut x = MARGIN;
    for &side in Side::ALL {
        if !report.rows.iter().any(|row| row.case.side == side && row.not_run.is_none()) {
            continue;
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{x} 60h22\" stroke=\"{}\" stroke-width=\"2.5\" fill=\"none\"/>",
            colour(side)
        );
        text(svg, (x + 28.0, 64.0), "", side.name());
        x += 28.0 + 7.2 * side.name().len() as f64 + 22.0;
    }
}

/// The latency axis of a panel, in powers of ten of nanoseconds.
struct Decades {
    from: f64,
    to: f64,
}

impl Decades {
    fn around(drawn: &[(Side, Latencies)]) -> Self {
        let ends =
            |share: f64| drawn.iter().map(move |(_, all)| (all.quantile_ns(share).max(1) as f64).log10());
        let least = ends(0.0).fold(f64::INFINITY, f64::min);
        let most = ends(1.0 - 10_f64.powf(-NINES_MAX)).fold(f64::NEG_INFINITY, f64::max);
        // Half decades, with room for the line's own width, so that lines neither crawl nor touch the frame.
        Self { from: ((least - 0.03) * 2.0).floor() / 2.0, to: ((most + 0.03) * 2.0).ceil() / 2.0 }
    }

    fn y(&self, nanos: f64) -> f64 {
        let share = (nanos.max(1.0).log10() - self.from) / (self.to - self.from);
        PANEL_HEIGHT - BOTTOM - share * (PANEL_HEIGHT - TOP - BOTTOM)
    }

    /// Values to label: 1, 2 and 5 of each decade when there is room, else the decade alone.
    fn marks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.to - self.from <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = self.from.floor() as i32..=self.to.ceil() as i32;
        decades
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|nanos| (self.from - 1e-9..=self.to + 1e-9).contains(&nanos.log10()))
            .collect()
    }
}

fn x_of(nines: f64) -> f64 {
    LEFT + nines.min(NINES_MAX) / NINES_MAX * (PANEL_WIDTH - LEFT - RIGHT)
}

fn panel(svg: &mut String, group: &[&Row]) {
    text(svg, (LEFT, TOP - 11.0), "font-weight=\"600\"", &group[0].case.setting());
    let drawn: Vec<(Side, Latencies)> =
        group.iter().filter_map(|row| Some((row.case.side, row.latencies()?))).collect();
    if drawn.is_empty() {
        text(svg, (LEFT, PANEL_HEIGHT / 2.0), "fill=\"#777\"", "nothing was run");
        return;
    }
    let decades = Decades::around(&drawn);
    grid(svg, &decades);
    for (side, all) in &drawn {
        let mut path = String::new();
        for (at, (nines, nanos)) in curve(all).into_iter().enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", x_of(nines), decades.y(nanos));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\">\
             <title>{side}</title></path>",
            colour(*side)
        );
    }
    let absent: Vec<_> =
        group.iter().filter(|row| row.not_run.is_some()).map(|row| row.case.side.name()).collect();
    if !absent.is_empty() {
        let words = format!("not run: {}", absent.join(", "));
        text(svg, (LEFT + 6.0, TOP + 14.0), "font-size=\"10\" fill=\"#777\"", &words);
    }
}

fn grid(svg: &mut String, decades: &Decades) {
    let (right, bottom) = (PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM);
    for nanos in decades.marks() {
        let y = decades.y(nanos);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e4e4e4\"/>");
        text(svg, (LEFT - 6.0, y + 4.0), "text-anchor=\"end\" font-size=\"11\"", &time_in_words(nanos));
    }
    for (nines, label) in PERCENTILES {
        let x = x_of(nines);
        let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/>");
        text(svg, (x, bottom + 15.0), "text-anchor=\"middle\" font-size=\"11\"", label);
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\" stroke-linecap=\"square\"/>"
    );
    let middle = (LEFT + right) / 2.0;
    text(
        svg,
        (middle, bottom + 31.0),
        "text-anchor=\"middle\" font-size=\"11\" fill=\"#555\"",
        "percentile of calls",
    );
}

/// Points of a percentile line: nines, nanoseconds. Ends where fewer than ten calls are slower, for beyond that a
/// line would show single calls.
fn curve(all: &Latencies) -> Vec<(f64, f64)> {
    let last = (all.count() as f64 / 10.0).log10().clamp(std::f64::consts::LOG10_2, NINES_MAX);
    let steps = 200;
    (0..=steps)
        .map(|step| {
            let nines = last * f64::from(step) / f64::from(steps);
            (nines, all.quantile_ns(1.0 - 10_f64.powf(-nines)) as f64)
        })
        .collect()
}

fn time_in_words(nanos: f64) -> String {
    match nanos {
        ..1e3 => format!("{nanos:.0} ns"),
        ..1e6 => format!("{:.0} µs", nanos / 1e3),
        ..1e9 => format!("{:.0} ms", nanos / 1e6),
        _ => format!("{:.0} s", nanos / 1e9),
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>");
}
