//! Hostile input for Tollfree's tests: what the fuzz targets do with the bytes that they are given.
//!
//! The targets in `fuzz/` are one line each; their kept corpora in `fuzz/corpus/` are replayed by this crate's
//! tests, so that what was once found stays found. Every function here panics if a promise is broken.
#![forbid(unsafe_code)]

pub mod fuzz;
