//! Large payloads that go by ref inside calls: with the stubs of `tollfree-build` and with those of tonic, on both ends.

mod absent;
mod chains;
mod freight;
mod lab;
mod leaks;
mod levels;
mod lies;
mod objects;
mod objects_by_ref;
mod policies;
mod streams;
