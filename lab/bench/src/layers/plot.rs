//! Draws the figure: a bar for each stack, cut into its layers, messages side by side.

use super::report::{LAYERS, LayersReport, Row};
use crate::harness::Svg;
use crate::harness::words::{bytes_in_words, micros};

const BAR_WIDTH: f64 = 74.0;
const BAR_GAP: f64 = 22.0;
const GROUP_GAP: f64 = 54.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 96.0;
const BAR_HEIGHT: f64 = 280.0;
const BOTTOM: f64 = 74.0;
/// Colors that color-blind readers can tell apart too, in the order of the layers.
const COLORS: [&str; LAYERS.len()] = ["#e69f00", "#56b4e9", "#009e73", "#7a7a7a"];
/// A part of a bar that is lower than this has no room for its figure.
const LABEL_HEIGHT: f64 = 14.0;

/// The whole drawing. Stacks that were not run have no bar and say so.
pub(super) fn draw(report: &LayersReport) -> String {
    let groups: Vec<&[Row]> = report.groups().collect();
    let bars: usize = groups.iter().map(|group| group.len()).sum();
    let width = LEFT + bars as f64 * (BAR_WIDTH + BAR_GAP) + groups.len() as f64 * GROUP_GAP;
    let height = TOP + BAR_HEIGHT + BOTTOM;
    let mut svg = Svg::new(width, height);
    let machine = &report.rows.machine;
    svg.title(
        "Where the time of an echo call goes",
        &format!("{}, Linux {} · {} · both ends on one core", machine.cpu, machine.kernel, report.label),
    );
    svg.legend(62.0, LAYERS.into_iter().zip(COLORS));
    for percent in [0, 25, 50, 75, 100] {
        let y = TOP + BAR_HEIGHT * (1.0 - f64::from(percent) / 100.0);
        svg.stroke(&format!("M{LEFT} {y:.1}H{:.1}", width - 16.0), "#e4e4e4", 1.0);
        svg.text((LEFT - 8.0, y + 4.0), "text-anchor=\"end\" font-size=\"11\"", &format!("{percent} %"));
    }
    let mut x = LEFT + GROUP_GAP / 2.0;
    for group in groups {
        let middle = x + (group.len() as f64 * (BAR_WIDTH + BAR_GAP) - BAR_GAP) / 2.0;
        let title = format!("{}, {}", group[0].message, bytes_in_words(group[0].bytes));
        svg.text((middle, TOP - 12.0), "text-anchor=\"middle\" font-weight=\"600\"", &title);
        for row in group {
            bar(&mut svg, x, row);
            x += BAR_WIDTH + BAR_GAP;
        }
        x += GROUP_GAP;
    }
    svg.finish()
}

fn bar(svg: &mut Svg, x: f64, row: &Row) {
    let middle = x + BAR_WIDTH / 2.0;
    let foot = TOP + BAR_HEIGHT;
    // What is less than nothing can't be drawn; the others make up the bar.
    let whole: f64 = row.layers.iter().map(|layer| layer.ns.max(0.0)).sum();
    let mut y = foot;
    for (layer, color) in row.layers.iter().zip(COLORS) {
        let height = BAR_HEIGHT * layer.ns.max(0.0) / whole.max(f64::MIN_POSITIVE);
        y -= height;
        svg.raw(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BAR_WIDTH}\" height=\"{height:.1}\" fill=\"{color}\">\
             <title>{}: {} µs</title></rect>",
            layer.name,
            micros(layer.ns)
        ));
        if height >= LABEL_HEIGHT {
            let label = format!("{:.0} %", layer.share * 100.0);
            svg.text((middle, y + height / 2.0 + 4.0), "text-anchor=\"middle\" fill=\"#fff\"", &label);
        }
    }
    let name = row.stack.to_string();
    // Two lines: what it is, and of what kind.
    let (first, second) = name.split_once(": ").or_else(|| name.split_once(" over ")).unwrap_or((&name, ""));
    svg.text((middle, foot + 18.0), "text-anchor=\"middle\" font-size=\"11\"", first);
    svg.text((middle, foot + 33.0), "text-anchor=\"middle\" font-size=\"11\"", second);
    let time = row.cpu_ns.map_or_else(|| "not run".to_owned(), |ns| format!("{} µs", micros(ns)));
    svg.text((middle, foot + 52.0), "text-anchor=\"middle\" font-size=\"11\" fill=\"#555\"", &time);
}
