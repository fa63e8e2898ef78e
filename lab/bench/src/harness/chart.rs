//! Lines over axes, in panels side by side.

use std::fmt::Write as _;

use super::{Machine, Svg, svg};

const WIDTH: f64 = 430.0;
const HEIGHT: f64 = 310.0;
const COLUMNS: usize = 2;
const MARGIN: f64 = 16.0;
/// Above the panels: title and legend.
const HEAD: f64 = 54.0;
/// A line of the legend.
const LINE: f64 = 18.0;
/// Inside a panel: room for the labels of both axes and its title.
const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 46.0;
/// Marks that have room on the horizontal axis.
const MARKS_MAX: usize = 8;

/// What to draw.
#[derive(Debug)]
pub struct Chart<'c> {
    /// What it shows.
    pub title: &'c str,
    /// Where that was taken.
    pub machine: &'c Machine,
    /// The panels, two in a row.
    pub panels: Vec<Panel>,
}

/// Lines over the same axes.
#[derive(Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// From left to right, and what that is.
    pub x: Axis,
    /// What `x` is, in words.
    pub x_words: &'static str,
    /// From bottom to top.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// What is not drawn, if anything.
    pub note: String,
}

/// A line through points.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is: lines of one name have one color in all panels.
    pub name: String,
    /// Its color.
    pub color: &'static str,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Whether each point is marked.
    pub has_dots: bool,
}

/// A scale with its marks.
#[derive(Debug, Clone)]
pub struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// Names at equal distances; the place of a name is its value.
    #[must_use]
    pub fn named(names: &[String]) -> Axis {
        let marks = names.iter().enumerate().map(|(idx, name)| (idx as f64, name.clone()));
        Axis { from: -0.5, to: names.len() as f64 - 0.5, is_log: false, marks: marks.collect() }
    }

    /// From a value to another one, at equal distances.
    #[must_use]
    pub fn linear(from: f64, to: f64, marks: Vec<(f64, String)>) -> Axis {
        Axis { from, to, is_log: false, marks }
    }

    /// 0 to 100 %.
    #[must_use]
    pub fn percent() -> Axis {
        let marks = (0..=5).map(|step| 20.0 * f64::from(step));
        Axis::linear(0.0, 100.0, marks.map(|value| (value, format!("{value} %"))).collect())
    }

    /// Powers of ten around values; 1, 2 and 5 of each are marked where there is room.
    #[must_use]
    pub fn decades(values: impl Iterator<Item = f64>, words: impl Fn(f64) -> String) -> Axis {
        let around = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
        let (least, most) =
            values.filter(|value| *value > 0.0).map(f64::log10).fold((f64::MAX, f64::MIN), around);
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        // Half decades, with room for the line's own width, so that lines neither crawl nor touch the frame.
        let from = ((least - 0.03) * 2.0).floor() / 2.0;
        let to = (((most + 0.03) * 2.0).ceil() / 2.0).max(from + 0.5);
        let steps: &[f64] = if to - from <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = (from.floor() as i32..=to.ceil() as i32)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|value| (from - 1e-9..=to + 1e-9).contains(&value.log10()));
        Axis { from, to, is_log: true, marks: all.map(|value| (value, words(value))).collect() }
    }

    /// The same with marks at the values alone.
    #[must_use]
    pub fn values(values: impl Iterator<Item = f64>) -> Axis {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let marks = values.iter().map(|value| (*value, value.to_string())).collect();
        Axis { marks, ..Axis::decades(values.into_iter(), |value| value.to_string()) }
    }

    /// The place of a value: 0 at the beginning, 1 at the end.
    fn share(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

impl Chart<'_> {
    /// The whole drawing.
    #[must_use]
    pub fn draw(&self) -> String {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.iter().any(|(known, _)| *known == line.name) {
                names.push((&line.name, line.color));
            }
        }
        let width = 2.0 * MARGIN + COLUMNS as f64 * WIDTH;
        let legend = rows_of(&names, width);
        let head = HEAD + LINE * legend.len() as f64;
        let height = head + HEIGHT * self.panels.len().div_ceil(COLUMNS).max(1) as f64 + MARGIN;
        let mut svg = Svg::new(width, height);
        svg.title(self.title, &svg::place(self.machine));
        for (idx, row) in legend.into_iter().enumerate() {
            svg.legend(HEAD + 8.0 + LINE * idx as f64, row.iter().copied());
        }
        for (idx, panel) in self.panels.iter().enumerate() {
            let (column, row) = ((idx % COLUMNS) as f64, (idx / COLUMNS) as f64);
            svg.raw(format_args!(
                "<g transform=\"translate({} {})\">",
                MARGIN + WIDTH * column,
                head + HEIGHT * row
            ));
            panel.draw(&mut svg);
            svg.raw("</g>");
        }
        svg.finish()
    }
}

/// The names that have room beside each other.
fn rows_of<'n>(names: &'n [(&'n str, &'n str)], width: f64) -> Vec<&'n [(&'n str, &'n str)]> {
    let longest = names.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let in_a_row = (width / (50.0 + 7.2 * longest as f64)).floor().max(1.0) as usize;
    names.chunks(in_a_row).collect()
}

impl Panel {
    fn draw(&self, svg: &mut Svg) {
        let x = |value: f64| LEFT + self.x.share(value) * (RIGHT - LEFT);
        let y = |value: f64| BOTTOM - self.y.share(value) * (BOTTOM - TOP);
        svg.text((LEFT, TOP - 11.0), "font-weight=\"600\"", &self.title);
        for (value, words) in &self.y.marks {
            let y = y(*value);
            svg.stroke(&format!("M{LEFT} {y:.1}H{RIGHT}"), "#e4e4e4", 1.0);
            svg.text((LEFT - 6.0, y + 4.0), "text-anchor=\"end\" font-size=\"11\"", words);
        }
        let step = self.x.marks.len().div_ceil(MARKS_MAX).max(1);
        for (value, words) in self.x.marks.iter().step_by(step) {
            let x = x(*value);
            svg.stroke(&format!("M{x:.1} {TOP}V{BOTTOM}"), "#e4e4e4", 1.0);
            svg.text((x, BOTTOM + 15.0), "text-anchor=\"middle\" font-size=\"11\"", words);
        }
        let middle = (LEFT + RIGHT) / 2.0;
        let words = "text-anchor=\"middle\" font-size=\"11\" fill=\"#555\"";
        svg.text((middle, BOTTOM + 31.0), words, self.x_words);
        for line in &self.lines {
            let mut path = String::new();
            for (nth, (at, value)) in line.points.iter().enumerate() {
                let place = (x(*at), y(*value));
                let _ = write!(path, "{}{:.1} {:.1}", if nth == 0 { 'M' } else { 'L' }, place.0, place.1);
                if line.has_dots {
                    svg.dot(place, 3.0, line.color, &line.name);
                }
            }
            if !path.is_empty() {
                svg.stroke(&path, line.color, 2.0);
            }
        }
        svg.stroke(&format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"), "#888", 1.0);
        svg.text((LEFT + 6.0, TOP + 14.0), "font-size=\"10\" fill=\"#777\"", &self.note);
    }
}

/// A line's name and its points: a place, and the figure of each panel there.
pub type Named<const N: usize> = (String, Vec<(f64, [f64; N])>);

/// Panels of figures over the same axis, each with its title; a point has its place and the figure of each panel.
#[must_use]
pub fn side_by_side<const N: usize>(
    x_words: &'static str,
    titles: [&str; N],
    lines: &[Named<N>],
) -> Vec<Panel> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let panel = |(idx, title): (usize, &str)| Panel {
        title: title.to_owned(),
        x: Axis::values(points().map(|(x, _)| *x)),
        x_words,
        y: Axis::decades(points().map(|(_, figures)| figures[idx]), |value| value.to_string()),
        lines: lines
            .iter()
            .enumerate()
            .map(|(nth, (name, points))| Line {
                name: name.clone(),
                color: super::COLORS[nth % super::COLORS.len()],
                points: points.iter().map(|(x, figures)| (*x, figures[idx])).collect(),
                has_dots: true,
            })
            .collect(),
        note: String::new(),
    };
    titles.into_iter().enumerate().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;

    #[test]
    fn scales_have_marks_where_there_is_room_and_lines_their_places() {
        let labels = |axis: &Axis| axis.marks.iter().map(|(_, words)| words.clone()).collect::<Vec<_>>();
        let near = Axis::decades([12.0, 80.0].into_iter(), |value| value.to_string());
        assert_eq!(labels(&near), ["10", "20", "50", "100"]);
        let far = Axis::decades([2.0, 80_000.0].into_iter(), |value| value.to_string());
        assert_eq!(labels(&far), ["1", "10", "100", "1000", "10000", "100000"]);
        assert_eq!((far.share(1.0), far.share(1e5), far.share(0.0)), (0.0, 1.0, 0.0));
        assert_eq!(labels(&Axis::values([4.0, 1.0, 4.0].into_iter())), ["1", "4"]);
        let names = Axis::named(&["a".to_owned(), "b".to_owned()]);
        assert_eq!((names.share(0.0), names.share(1.0)), (0.25, 0.75));
        let machine = Machine::look(&Cores::choose().unwrap(), &[]);
        let lines = [("a<b".to_owned(), vec![(1.0, [10.0, 20.0]), (2.0, [30.0, 0.0])])];
        let panels = side_by_side("calls", ["one", "other"], &lines);
        let svg = Chart { title: "it", machine: &machine, panels }.draw();
        assert!(svg.ends_with("</svg>\n") && svg.contains("a&lt;b") && svg.matches("<circle").count() == 4);
    }
}
