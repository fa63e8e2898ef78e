//! What `tollfree-build` generates, called: over sessions and HTTP/2, with payloads by ref, with objects, and beside what tonic
//! generates. One binary: a test that needs a process of its own says `alone!()`.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod allocations;
mod blocking;
mod channels;
mod conformance;
mod lent;
mod metrics;
mod moved;
mod objects;
mod own_streaming;
mod program;
mod ref_absent;
mod ref_forks;
mod ref_kills;
mod refs;
mod refused;
mod soak;
mod unusual;

/// The stubs under test: those that `tollfree-build` generates.
use tollfree_direct_stubs as stubs;
