//! The tests of channels and servers from outside, in one binary: a test that needs a process of its own says `alone!()`.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod allocations;
mod api;
mod blocking;
mod by_bytes;
mod channels;
mod conformance;
mod cut;
mod gateways;
mod health;
mod idle;
mod leaving;
mod rash;
mod stepping_in;
mod streams;
mod turns;
mod upgrade_log;
mod words;

/// The stubs under test: those that tonic generates.
use tollfree_stubs as stubs;
