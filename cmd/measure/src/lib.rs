//! What every measurement of two processes on one machine needs, whatever is measured.
//!
//! A program starts itself again as its peers ([`peer`]), on cores that it has chosen ([`cores`]), in a directory that goes
//! with it ([`workdir`]); it ends in order on a signal ([`interrupt`]); it records latencies ([`latency`]) and what the
//! kernel counts for a process ([`process`]).
#![forbid(unsafe_code)]

pub mod axis;
pub mod cores;
mod error;
pub mod interrupt;
pub mod latency;
pub mod peer;
pub mod process;
pub mod workdir;

pub use error::BenchError;
