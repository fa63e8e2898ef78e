//! What all commands that measure do: say how far they are, give the result, and end as it was.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::BenchError;
use tollfree_bench::harness::{Report, Told};
use tollfree_bench::interrupt::until_interrupted;

use crate::failure::Failure;

/// Where a result goes.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Directory for the raw data, the table and, where there is one, the plot [default: bench-out/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Gives a result, and fails if some of its rows did.
    pub(crate) fn give(self, name: &str, report: &impl Report) -> Result<(), Failure> {
        let table = report.table();
        self.give_with(name, report, table)
    }

    /// The same with another table for people.
    pub(crate) fn give_with(self, name: &str, report: &impl Report, table: String) -> Result<(), Failure> {
        let began = report.began().replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/{name}-{began}")));
        report.save(&dir)?;
        eprintln!("raw data and table are in {}", dir.display());
        show(report, self.json, table)
    }
}

/// Prints a result, and fails if some of its rows did.
pub(crate) fn show(report: &impl Report, json: bool, table: String) -> Result<(), Failure> {
    print(&if json { report.json() } else { table })?;
    match report.failed_count() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} rows failed; the result says why"))),
    }
}

/// Measures until that is done, or a signal asks for the end; tells how far it is.
pub(crate) fn measure<R>(
    run: impl AsyncFnOnce(&mut dyn FnMut(&Told)) -> Result<R, BenchError>,
) -> Result<R, Failure> {
    telling(|tell| Ok(until_interrupted(run(tell))???))
}

/// The same of what starts no processes: a signal ends it as any program.
pub(crate) fn telling<R>(
    run: impl FnOnce(&mut dyn FnMut(&Told)) -> Result<R, Failure>,
) -> Result<R, Failure> {
    warn_of_debug_build();
    let terminal = std::io::stderr().is_terminal();
    let report = run(&mut |told| tell(terminal, told))?;
    if terminal {
        eprint!("\r\x1b[K");
    }
    Ok(report)
}

pub(crate) fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
    }
}

/// Tells how far a run is: one line that changes on a terminal, where a failure stays to be read.
fn tell(terminal: bool, Told { line, is_failure }: &Told) {
    match (terminal, is_failure) {
        (true, false) => eprint!("\r\x1b[K{line}"),
        (true, true) => eprintln!("\r\x1b[K{line}"),
        (false, _) => eprintln!("{line}"),
    }
}

/// Writes a result. A reader that has gone is no reason to fail loudly, but one to fail.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::Failed(format!("cannot write the result: {error}")))
}

/// What was given, or these if nothing was.
pub(crate) fn or<T: Clone>(given: Vec<T>, these: &[T]) -> Vec<T> {
    if given.is_empty() { these.to_vec() } else { given }
}
