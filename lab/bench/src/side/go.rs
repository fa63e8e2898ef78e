//! The sides in Go: each end is a process of its own program (`lab/bench/go`), which this process starts. It runs where this one is pinned.

use std::path::PathBuf;

use super::program;
use crate::order::{Load, Measured, Serve, Serving};

/// Where the program is: `make bench-go` builds it, and says so to the bench.
const PROGRAM: &str = "TOLLFREE_BENCH_GO";

/// The program, if it is there.
pub(crate) fn program() -> Option<PathBuf> {
    std::env::var_os(PROGRAM).map(PathBuf::from).filter(|path| path.is_file())
}

/// Why the sides in Go can't run, if they can't.
pub(crate) fn absent() -> Option<&'static str> {
    let why = "the program in Go isn't there; `make bench-go` builds it and runs these sides";
    program().is_none().then_some(why)
}

pub(super) fn known_program() -> Result<PathBuf, String> {
    program().ok_or_else(|| format!("{PROGRAM} names no program"))
}

/// Where a server is, of what it says: its process stands behind that.
pub(super) fn socket_of(said: &str) -> &str {
    said.split_once('#').map_or(said, |(socket, _)| socket)
}

/// Serves until the process ends.
pub(super) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    program::serve(&known_program()?, order, ready)
}

/// Calls and measures.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    program::measure_load(&known_program()?, load)
}
