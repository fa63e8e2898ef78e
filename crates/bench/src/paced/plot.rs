//! Draws a run: the median, and the processor time of both ends a call, over the rate.

use std::fmt::Write as _;

use super::report::{PacedReport, PacedRow};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 46.0;
/// A line of the legend.
const LINE: f64 = 16.0;
/// Colors that color-blind readers can tell apart too.
const COLORS: [&str; 7] = ["#7a7a7a", "#0072b2", "#d55e00", "#e69f00", "#cc79a7", "#009e73", "#56b4e9"];

/// The whole drawing.
pub(super) fn draw(report: &PacedReport) -> String {
    let lines = report.lines();
    let height = HEIGHT + LINE * lines.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {height}\" width=\"{w}\" height=\"{height}\" \
         font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        w = 2.0 * WIDTH
    );
    text(&mut svg, (16.0, 24.0), "font-size=\"16\" font-weight=\"600\"", "Calls at a rate");
    let machine = &report.machine;
    let place = format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
    text(&mut svg, (16.0, 43.0), "fill=\"#555\"", &place);
    panel(&mut svg, 0.0, "median, µs", &lines, |row| row.p50_ns.unwrap_or(0) as f64 / 1000.0);
    panel(&mut svg, WIDTH, "processor time of both ends, µs a call", &lines, |row| {
        let (client, server) = row.cpu_us();
        client + server
    });
    for (idx, (name, _)) in lines.iter().enumerate() {
        let (y, color) = (HEIGHT + LINE * idx as f64, COLORS[idx % COLORS.len()]);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y}h24\" stroke=\"{color}\" stroke-width=\"2.5\"/>");
        text(&mut svg, (LEFT + 32.0, y + 4.0), "", name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(
    svg: &mut String,
    from: f64,
    title: &str,
    lines: &[(String, Vec<&PacedRow>)],
    figure: impl Fn(&PacedRow) -> f64,
) {
    let rows = || lines.iter().flat_map(|(_, rows)| rows.iter());
    let span = |figures: &mut dyn Iterator<Item = f64>| {
        let (low, high) = figures.fold((f64::MAX, 1.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        let low = low.max(0.1).min(high).log10().floor();
        (low, high.log10().ceil().max(low + 1.0))
    };
    let rates = span(&mut rows().map(|row| f64::from(row.case.rate)));
    let figures = span(&mut rows().map(|row| figure(row)));
    let share = |value: f64, (low, high): (f64, f64)| (value.max(0.1).log10() - low) / (high - low);
    let x = |rate: f64| from + LEFT + share(rate, rates) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - share(value, figures) * (HEIGHT - TOP - BOTTOM);
    text(svg, (from + LEFT, TOP - 14.0), "font-weight=\"600\"", title);
    for decade in figures.0 as i32..=figures.1 as i32 {
        let value = 10_f64.powi(decade);
        let right = WIDTH - LEFT - RIGHT;
        let _ = writeln!(svg, "<path d=\"M{} {:.1}h{right}\" stroke=\"#e4e4e4\"/>", from + LEFT, y(value));
        text(svg, (from + LEFT - 8.0, y(value) + 4.0), "text-anchor=\"end\"", &value.to_string());
    }
    let mut marks: Vec<u32> = rows().map(|row| row.case.rate).collect();
    marks.sort_unstable();
    marks.dedup();
    for rate in marks {
        let place = (x(f64::from(rate)), HEIGHT - BOTTOM + 18.0);
        text(svg, place, "text-anchor=\"middle\"", &rate.to_string());
    }
    text(svg, (from + WIDTH / 2.0, HEIGHT - BOTTOM + 36.0), "text-anchor=\"middle\"", "calls a second");
    for (idx, (_, rows)) in lines.iter().enumerate() {
        let color = COLORS[idx % COLORS.len()];
        let mut path = String::new();
        for row in rows {
            let (at, up) = (x(f64::from(row.case.rate)), y(figure(row)));
            let _ = write!(path, "{}{at:.1} {up:.1}", if path.is_empty() { 'M' } else { 'L' });
            let _ = writeln!(svg, "<circle cx=\"{at:.1}\" cy=\"{up:.1}\" r=\"3\" fill=\"{color}\"/>");
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>");
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>");
}
