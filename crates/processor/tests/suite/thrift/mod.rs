//! Thrift messages: by cases kept, against the Rust `thrift` crate, and the engine's own rules.

mod corpus;
mod differential;
mod engine;
#[path = "../../fixture/thrift.rs"]
mod fixture;
#[path = "../../fixture/thrift_peer.rs"]
mod peer;
