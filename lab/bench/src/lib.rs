//! Measures calls between two processes on one machine.
//!
//! The library behind `tollfree-lab bench`: every *side* (tonic over TCP, tonic over a Unix socket, Tollfree, …) is
//! measured the same way, so that their figures may be compared. A measurement is a server process and a client
//! process, both fresh for each row and round, both the same executable with the same allocator (the system's
//! malloc with the same settings), both pinned as the placement says. Rounds of all sides are
//! interleaved, so that a noisy minute hits all of them.
//!
//! What one call costs is everything between the client's code holding the request's bytes and holding the reply's:
//! the reply's buffer is the next request's, so that the loop itself neither allocates nor copies, and the clock is
//! read once at each boundary between calls.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod crowd;
pub mod device;
pub mod echo;
pub mod fault;
pub mod harness;
pub mod hostile;
pub mod idle;
pub mod layers;
mod load;
pub mod lookalike;
pub mod message;
pub mod model;
pub mod notnets;
mod order;
pub mod paced;
pub mod plan;
pub mod pool;
pub mod schemas;
mod side;
pub mod split;
pub mod stream;

pub use tollfree_measure::{BenchError, cores, interrupt, latency, peer, process, workdir};

/// Answers the orders of the process that started this one; what the hidden command `bench-peer` runs.
///
/// Returns when the order is done; the process ends by itself when its starter closes the pipe or dies.
///
/// # Errors
/// Whatever kept the order from being carried out. It was told to the starter already.
pub fn attend() -> Result<(), BenchError> {
    order::attend()
}

/// The large messages of NotNets' figure 1a and Split gRPC's figure 2, of the kept schemas.
#[expect(unreachable_pub, reason = "generated code")]
pub(crate) mod hyperprotobench {
    include!(concat!(env!("OUT_DIR"), "/messages/hyperprotobench.rs"));
}

/// Descriptor sets as messages, in a package of their own.
#[allow(clippy::all, dead_code, unreachable_pub, reason = "generated code")]
pub(crate) mod fds {
    include!(concat!(env!("OUT_DIR"), "/messages/fds.rs"));
}

/// Everyday messages, of a schema that another part keeps.
#[allow(dead_code, unreachable_pub, reason = "generated code")]
pub(crate) mod shop {
    include!(concat!(env!("OUT_DIR"), "/objects/shop.rs"));
}

/// The services' stubs as tonic users generate them: `bytes` fields are `Vec<u8>`.
#[expect(unreachable_pub, reason = "generated code")]
pub(crate) mod proto {
    tonic::include_proto!("tollfree.bench.v1");
}

/// The same services' stubs as `tollfree-build` generates them.
#[expect(unreachable_pub, reason = "generated code")]
pub(crate) mod direct {
    include!(concat!(env!("OUT_DIR"), "/direct/tollfree.bench.v1.rs"));
}

/// Stubs that take objects, of the services that carry messages, and views and builders of these.
#[allow(dead_code, unreachable_pub, reason = "generated code")]
pub(crate) mod objects {
    include!(concat!(env!("OUT_DIR"), "/objects/tollfree.bench.v1.rs"));

    pub(crate) mod views {
        include!(concat!(env!("OUT_DIR"), "/objects/views.rs"));
    }
}
