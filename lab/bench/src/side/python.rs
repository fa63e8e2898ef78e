//! The sides in Python: each end is a process of a program in Python (`lab/bench/python`), which this process starts. It runs where this one is pinned.

use std::path::PathBuf;

use super::program;
use crate::order::{Load, Measured, Serve, Serving};

/// Where the program is: `make bench-python` says so to the bench.
const PROGRAM: &str = "TOLLFREE_BENCH_PYTHON";

fn found() -> Option<PathBuf> {
    std::env::var_os(PROGRAM).map(PathBuf::from).filter(|path| path.is_file())
}

/// Why the sides can't run, if they can't.
pub(crate) fn absent() -> Option<&'static str> {
    found().is_none().then_some(
        "the program in Python isn't there; `make bench-python` builds what it needs and runs these sides",
    )
}

pub(super) fn known_program() -> Result<PathBuf, String> {
    found().ok_or_else(|| format!("{PROGRAM} names no program"))
}

/// Serves until the process ends.
pub(super) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    program::serve(&known_program()?, order, ready)
}

/// Calls and measures.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    program::measure_load(&known_program()?, load)
}
