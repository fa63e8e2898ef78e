//! Results: for programs as JSON, for people as a table, for later questions as files.

use std::path::Path;

use serde::Serialize;
use tollfree_measure::BenchError;
use tollfree_measure::workdir::write_files;

use super::{Lasting, Machine};

/// What a bench comes to.
pub trait Report: Serialize {
    /// The result as a table for people.
    fn table(&self) -> String;

    /// When the run began, UTC.
    fn began(&self) -> &str;

    /// Rows that were not run though this machine and this build can.
    fn failed_count(&self) -> usize {
        0
    }

    /// What is written beside `rows.json` and `table.txt`: names and contents.
    fn files(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The result as one JSON object.
    fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }

    /// Writes all files into a directory, which is made if need be.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    fn save(&self, dir: &Path) -> Result<(), BenchError> {
        let mut files = vec![("rows.json", self.json()), ("table.txt", self.table())];
        files.extend(self.files());
        write_files(dir, &files)
    }
}

/// A whole run of rows.
#[derive(Debug, Serialize)]
pub struct Rows<R> {
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round, in seconds.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// A row for each case, in the plan's order.
    pub rows: Vec<R>,
}

impl<R> Rows<R> {
    /// What cases came to.
    pub fn of<C>(machine: Machine, lasting: Lasting, cases: Vec<C>, row: impl FnMut(C) -> R) -> Rows<R> {
        let rows = cases.into_iter().map(row).collect();
        Rows { machine, seconds: lasting.seconds, rounds: lasting.rounds, rows }
    }

    /// The machine, how long was measured, and what else there is to say above a table.
    #[must_use]
    pub fn heading(&self, words: &str) -> String {
        format!("{}{} rounds of {} s{words}\n", self.machine.in_words(), self.rounds, self.seconds)
    }
}

/// Whether a row that was not run is a failure: what a machine or a build has not is none.
#[must_use]
pub fn is_failure(not_run: Option<&String>) -> bool {
    not_run.is_some_and(|why| !why.starts_with("not run"))
}
