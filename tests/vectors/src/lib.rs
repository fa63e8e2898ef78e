//! The test vectors of `spec/vectors` as cases, and the runner that asks an implementation's program for each.
//!
//! `spec/runner.md` has the protocol. [`cases`] gives the cases, [`run()`] starts a program and compares what it says.
#![forbid(unsafe_code)]

mod case;
mod compare;
mod hex;
mod played;
mod program;
mod report;
mod run;

pub use case::{Case, Expected, VectorError, cases};
pub use hex::{from_hex, to_hex};
pub use report::{Outcome, Report};
pub use run::{Settings, run};
