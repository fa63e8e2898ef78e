//! The tests of rings over memory that processes share. The models of `tests/loom.rs` are built otherwise.

mod basic;
mod hostile;
mod oracle;
mod two_threads;
