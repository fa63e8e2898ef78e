//! Draws lines over an axis, in two panels with logarithmic axes.

use std::fmt::Write as _;

use crate::Machine;

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

/// What to draw.
pub(crate) struct Drawing<'d> {
    pub(crate) title: &'static str,
    pub(crate) machine: &'d Machine,
    /// What `x` is.
    pub(crate) axis: &'static str,
    /// What each panel shows.
    pub(crate) panels: [&'static str; 2],
    pub(crate) lines: Vec<(String, Vec<Point>)>,
}

/// A place on the axis, and the figure of each panel there.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) panels: [f64; 2],
}

/// The whole drawing.
pub(crate) fn draw(drawing: &Drawing<'_>) -> String {
    let lines = &drawing.lines;
    let height = HEIGHT + LINE * lines.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {height}\" width=\"{w}\" height=\"{height}\" \
         font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        w = 2.0 * WIDTH
    );
    text(&mut svg, (16.0, 24.0), "font-size=\"16\" font-weight=\"600\"", drawing.title);
    let machine = drawing.machine;
    let place = format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
    text(&mut svg, (16.0, 43.0), "fill=\"#555\"", &place);
    for at in 0..2 {
        panel(&mut svg, drawing, at);
    }
    for (idx, (name, _)) in lines.iter().enumerate() {
        let (y, color) = (HEIGHT + LINE * idx as f64, COLORS[idx % COLORS.len()]);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y}h24\" stroke=\"{color}\" stroke-width=\"2.5\"/>");
        text(&mut svg, (LEFT + 32.0, y + 4.0), "", name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, drawing: &Drawing<'_>, at: usize) {
    let (from, lines) = (WIDTH * at as f64, &drawing.lines);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let span = |figures: &mut dyn Iterator<Item = f64>| {
        let (low, high) = figures.fold((f64::MAX, 1.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        let low = low.max(0.1).min(high).log10().floor();
        (low, high.log10().ceil().max(low + 1.0))
    };
    let axis = span(&mut points().map(|point| point.x));
    let figures = span(&mut points().map(|point| point.panels[at]));
    let share = |value: f64, (low, high): (f64, f64)| (value.max(0.1).log10() - low) / (high - low);
    let x = |value: f64| from + LEFT + share(value, axis) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - share(value, figures) * (HEIGHT - TOP - BOTTOM);
    text(svg, (from + LEFT, TOP - 14.0), "font-weight=\"600\"", drawing.panels[at]);
    for decade in figures.0 as i32..=figures.1 as i32 {
        let value = 10_f64.powi(decade);
        let right = WIDTH - LEFT - RIGHT;
        let _ = writeln!(svg, "<path d=\"M{} {:.1}h{right}\" stroke=\"#e4e4e4\"/>", from + LEFT, y(value));
        text(svg, (from + LEFT - 8.0, y(value) + 4.0), "text-anchor=\"end\"", &value.to_string());
    }
    let mut marks: Vec<f64> = points().map(|point| point.x).collect();
    marks.sort_unstable_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        let place = (x(mark), HEIGHT - BOTTOM + 18.0);
        text(svg, place, "text-anchor=\"middle\"", &mark.to_string());
    }
    text(svg, (from + WIDTH / 2.0, HEIGHT - BOTTOM + 36.0), "text-anchor=\"middle\"", drawing.axis);
    for (idx, (_, points)) in lines.iter().enumerate() {
        let color = COLORS[idx % COLORS.len()];
        let mut path = String::new();
        for point in points {
            let (at, up) = (x(point.x), y(point.panels[at]));
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
