//! Tables for people.

use std::fmt::{self, Display};

/// Rows of cells below a head, each column as wide as what is in it: names to the left, figures to the right. Columns in which nothing is
/// are left out.
#[derive(Debug)]
pub struct Table {
    name_count: usize,
    rows: Vec<(Vec<String>, String)>,
}

/// Makes the cells of a row.
#[macro_export]
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}

impl Table {
    /// Columns of names and of figures, with `|` between them.
    #[must_use]
    pub fn new(names: &str, figures: &str) -> Table {
        let of = |columns: &str| -> Vec<String> { columns.split('|').map(str::to_owned).collect() };
        let names = of(names);
        Table { name_count: names.len(), rows: vec![([names, of(figures)].concat(), String::new())] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.noted(cells, "");
    }

    /// Adds one with words behind it; cells may be missing at its end, if there are no figures.
    pub fn noted(&mut self, cells: Vec<String>, note: impl Display) {
        self.rows.push((cells, note.to_string()));
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
            let lengths: Vec<usize> = cells.map(|cell| cell.chars().count()).collect();
            let is_used = lengths[1..].iter().any(|length| *length > 0);
            lengths.into_iter().max().filter(|_| is_used)
        };
        let widths: Vec<Option<usize>> = (0..self.rows[0].0.len()).map(width).collect();
        for (cells, note) in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let Some(width) = *width else { continue };
                line += &match column < self.name_count {
                    true => format!("  {cell:<width$}"),
                    false => format!("  {cell:>width$}"),
                };
            }
            if !note.is_empty() {
                line += &format!("  {note}");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = Table::new("side|", "calls/s|unused|p50 us");
        table.row(cells!["tollfree", "µ", 12_345_678, "", "1.5"]);
        table.noted(cells!["x", ""], "not run: why");
        let lines = [
            "  side          calls/s  p50 us",
            "  tollfree  µ  12345678     1.5",
            "  x            not run: why",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), lines);
    }
}
