//! The vectors of types, objects and pools, and the runner.

mod generated;
mod runner;
