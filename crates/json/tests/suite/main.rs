//! The tests of protobuf's JSON form.

mod against_prost;
mod corpora;
