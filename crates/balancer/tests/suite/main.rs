//! Lists of endpoints, calls and a clock, in one thread: what a seed decides is the same in each run.
#![forbid(unsafe_code)]

mod ejection;
mod fairness;
mod priorities;
mod replacing;
mod world;
