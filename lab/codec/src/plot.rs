//! Draws the ratios to the baseline: a line for each payload, a dot for each side, a panel for each operation.
//!
//! The axis is spaced by powers of two.

use tollfree_bench::harness::Svg;

use super::report::{CodecReport, Group};

const LINE: f64 = 15.0;
const LABELS: f64 = 210.0;
const PANEL: f64 = 330.0;
const GAP: f64 = 24.0;
const HEAD: f64 = 86.0;
/// Ends of the axis, as powers of two; what lies beyond is drawn at the end.
const FROM: f64 = -5.0;
const TO: f64 = 2.0;

/// Sides that are drawn, and colors that color-blind readers can tell apart.
const SIDES: [(&str, &str); 7] = [
    ("tollfree", "#d55e00"),
    ("tollfree, aliasing", "#e69f00"),
    ("buffa", "#0072b2"),
    ("buffa, view", "#56b4e9"),
    ("C++ protobuf", "#7a7a7a"),
    ("C++ protobuf, arena", "#b05fa0"),
    ("C++ protobuf, reused", "#7a7a7a"),
];

/// The whole drawing.
pub(super) fn ratios(report: &CodecReport) -> String {
    let width = LABELS + 2.0 * (PANEL + GAP);
    let height = HEAD + LINE * report.groups.len() as f64 + 30.0;
    let mut svg = Svg::new(width, height);
    let title = "Time of a message, as a ratio to prost's (Thrift: to the thrift crate's); left is faster";
    svg.text((16.0, 24.0), "font-size=\"15\" font-weight=\"600\"", title);
    let is_drawn = |side: &str| {
        report.groups.iter().any(|group| group.rows.iter().any(|row| row.side == side && row.ns.is_some()))
    };
    svg.legend(44.0, SIDES.into_iter().filter(|(side, _)| is_drawn(side)));
    for (idx, operation) in ["decode", "encode"].into_iter().enumerate() {
        panel(&mut svg, report, operation, LABELS + idx as f64 * (PANEL + GAP));
    }
    for (idx, group) in report.groups.iter().enumerate() {
        svg.text((LABELS - 10.0, y_of(idx) + 4.0), "text-anchor=\"end\"", &group.payload);
    }
    svg.finish()
}

fn y_of(idx: usize) -> f64 {
    HEAD + LINE * (idx as f64 + 0.5)
}

fn x_of(ratio: f64) -> f64 {
    (ratio.log2().clamp(FROM, TO) - FROM) / (TO - FROM) * PANEL
}

fn panel(svg: &mut Svg, report: &CodecReport, operation: &str, left: f64) {
    let bottom = HEAD + LINE * report.groups.len() as f64;
    svg.text((left, HEAD - 20.0), "font-weight=\"600\"", operation);
    for power in FROM as i32..=TO as i32 {
        let ratio = f64::from(power).exp2();
        let x = left + x_of(ratio);
        let stroke = if power == 0 { "#555" } else { "#ddd" };
        svg.stroke(&format!("M{x:.1} {HEAD}V{bottom}"), stroke, 1.0);
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{ratio}") };
        svg.text((x, HEAD - 5.0), "text-anchor=\"middle\" fill=\"#777\"", &label);
    }
    for (idx, group) in report.groups.iter().enumerate() {
        dots(svg, group, operation, left, y_of(idx));
    }
}

fn dots(svg: &mut Svg, group: &Group, operation: &str, left: f64, y: f64) {
    for (side, color) in SIDES.into_iter().rev() {
        let mut rows = group.rows.iter().filter(|row| row.operation == operation && row.side == side);
        let Some(ratio) = rows.next().and_then(|row| row.vs_baseline) else { continue };
        let x = left + x_of(ratio);
        svg.dot((x, y), 4.0, color, &format!("{side}: {ratio:.2} of {}", group.baseline));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;

    #[test]
    fn a_dot_for_each_ratio_and_none_for_what_was_not_run() {
        let mut group = Group {
            payload: "a<b".to_owned(),
            bytes: 1,
            fields: 1,
            object_len: 8,
            baseline: "prost",
            rows: vec![
                Row::measured("decode", "tollfree", vec![1.0]),
                Row::measured("decode", "prost", vec![2.0]),
                Row::not_run("decode", "buffa", "not built".to_owned()),
            ],
        };
        crate::report::compare(&mut group);
        let report = CodecReport { machine: None, rounds: 1, seconds: 1.0, seed: None, groups: vec![group] };
        let svg = ratios(&report);
        assert!(svg.contains("tollfree: 0.50 of prost") && svg.contains("a&lt;b"), "{svg}");
        assert!(!svg.contains("buffa"), "{svg}");
    }
}
