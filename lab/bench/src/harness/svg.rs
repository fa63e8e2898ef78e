//! Drawings: plain SVG, no scripts, no fonts beyond what every viewer has.

use std::fmt::{Display, Write as _};

use super::Machine;

/// Colors that color-blind readers can tell apart too.
pub const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a7a"];

/// A drawing that is being made.
#[derive(Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty one of so many pixels.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Svg {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, sans-serif\" font-size=\"12\" \
             fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        Svg { text }
    }

    /// What it shows, and below where that was taken.
    pub fn title(&mut self, title: &str, below: &str) {
        self.text((16.0, 24.0), "font-size=\"16\" font-weight=\"600\"", title);
        self.text((16.0, 43.0), "fill=\"#555\"", below);
    }

    /// Names with their colors, from left to right.
    pub fn legend<'n>(&mut self, y: f64, names: impl IntoIterator<Item = (&'n str, &'n str)>) {
        let mut x = 16.0;
        for (name, color) in names {
            self.stroke(&format!("M{x} {y}h22"), color, 2.5);
            self.text((x + 28.0, y + 4.0), "", name);
            x += 50.0 + 7.2 * name.chars().count() as f64;
        }
    }

    /// Words at a place.
    pub fn text(&mut self, (x, y): (f64, f64), attributes: &str, words: &str) {
        let words = escaped(words);
        let _ = writeln!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>");
    }

    /// A line along a path.
    pub fn stroke(&mut self, path: &str, color: &str, width: f64) {
        self.raw(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        ));
    }

    /// A dot that says what it is.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, color: &str, words: &str) {
        let words = escaped(words);
        self.raw(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"><title>{words}</title></circle>"
        ));
    }

    /// Anything else.
    pub fn raw(&mut self, element: impl Display) {
        let _ = writeln!(self.text, "{element}");
    }

    /// The whole drawing.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Where a drawing's figures were taken.
pub(crate) fn place(machine: &Machine) -> String {
    format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel)
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}
