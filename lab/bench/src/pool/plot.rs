//! Draws a figure: time an operation over the setting, one line for each side, on a scale of powers of ten.

use std::fmt::Write as _;

use super::report::PoolReport;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;
/// Colours that colour-blind readers can tell apart too.
const COLOURS: [&str; 5] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00"];

/// The drawing of the first operation.
pub(super) fn draw(report: &PoolReport) -> String {
    let operation = report.rows.first().map_or("", |row| &row.operation);
    let rows: Vec<_> = report.rows.iter().filter(|row| row.operation == operation).collect();
    let mut sides: Vec<&str> = rows.iter().map(|row| row.side).collect();
    sides.sort_unstable();
    sides.dedup();
    let mut settings: Vec<usize> = rows.iter().map(|row| row.setting).collect();
    settings.sort_unstable();
    settings.dedup();
    let most = rows.iter().map(|row| row.ns).fold(1.0, f64::max).log10().ceil();
    let least = rows.iter().map(|row| row.ns).fold(f64::INFINITY, f64::min).max(1.0).log10().floor();
    let x = |setting: usize| {
        let idx = settings.iter().position(|known| *known == setting).unwrap_or(0);
        LEFT + (WIDTH - LEFT - RIGHT) * idx as f64 / (settings.len().max(2) - 1) as f64
    };
    let y = |ns: f64| {
        let share = (ns.max(1.0).log10() - least) / (most - least).max(1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" \
         fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, (16.0, 24.0), "font-size=\"16\" font-weight=\"600\"", report.title());
    let machine = format!("{operation} · {}, Linux {} · measured", report.machine.cpu, report.machine.kernel);
    text(&mut svg, (16.0, 43.0), "fill=\"#555\"", &machine);
    for decade in least as i32..=most as i32 {
        let at = y(10_f64.powi(decade));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#e4e4e4\"/>", WIDTH - RIGHT);
        let label = match decade {
            ..3 => format!("{} ns", 10_i64.pow(decade as u32)),
            3..6 => format!("{} µs", 10_i64.pow(decade as u32 - 3)),
            _ => format!("{} ms", 10_i64.pow(decade as u32 - 6)),
        };
        text(&mut svg, (LEFT - 8.0, at + 4.0), "text-anchor=\"end\"", &label);
    }
    for setting in &settings {
        let label = report.setting(*setting);
        text(&mut svg, (x(*setting), HEIGHT - BOTTOM + 20.0), "text-anchor=\"middle\"", &label);
    }
    for (side, colour) in sides.iter().zip(COLOURS.iter().cycle()) {
        let mut path = String::new();
        let mut last = (0.0, 0.0);
        for row in rows.iter().filter(|row| row.side == *side) {
            last = (x(row.setting), y(row.ns));
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", last.0, last.1);
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>");
        text(
            &mut svg,
            (last.0 + 10.0, last.1 + 4.0),
            &format!("fill=\"{colour}\" font-weight=\"600\""),
            side,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>");
}
