//! The workloads that DmRPC was measured with, and a hotel reservation, as services in processes of their own.
//!
//! The library behind `tollfree-lab workload` and figures 5, 6, 10 and 11 of `tollfree-lab bench pool`. A *workload* is a set of
//! services that call each other, and a load generator that calls the first: a chain, a balancer, an image pipeline of seven
//! tiers, a social network, and a plain echo. Each process is this executable started anew, pinned to a core in turn; they
//! end with their starter. Every large value is a `bytes` field of type `Bytes`, and services are written once; what differs
//! between *sides* ([`Side`]) is the stack that carries calls, and whether its channels and servers were given a pool.
//!
//! Every call's result is checked by the load generator, up to what the last service read; the checks are part of the time
//! that is measured, on all sides alike.
#![forbid(unsafe_code)]

mod carry;
mod dagger;
mod dice;
mod figures;
mod load;
mod load_balancing;
mod pattern;
mod plan;
mod plot;
mod process;
mod report;
mod run;
mod scene;
mod seat;
mod services;
mod share;
mod side;
mod sizes;
mod slope;
mod stubs;
mod table;
mod tally;

pub use dagger::DaggerFigure;
pub use figures::Figure;
pub use load_balancing::{Balanced, LoadBalancingModel, Remembered};
pub use plan::{Case, Plan, Pressure, Shape};
pub use report::{Comparison, PerCall, Process, Report, Round, Row};
pub use run::run;
pub use services::Work;
pub use side::Side;
pub use sizes::{Lengths, Sizes};
pub use slope::Slope;
pub use tally::Tally;

/// Plays a part for the process that started this one; what the hidden command `workload-peer` runs.
///
/// The process ends by itself when its starter closes the pipe or dies.
///
/// # Errors
/// Whatever kept it from playing its part. The starter, or standard error, was told already.
pub fn attend() -> Result<(), tollfree_bench::BenchError> {
    process::attend()
}

/// What `tollfree-build` generates: messages, clients and servers.
#[expect(unreachable_pub, reason = "generated code")]
pub(crate) mod direct {
    tonic::include_proto!("tollfree.workloads.v1");
}

/// Stubs that take objects, and views and builders of their messages.
#[allow(dead_code, unreachable_pub, reason = "generated code")]
pub(crate) mod objects {
    include!(concat!(env!("OUT_DIR"), "/objects/tollfree.workloads.v1.rs"));

    pub(crate) mod views {
        include!(concat!(env!("OUT_DIR"), "/objects/views.rs"));
    }
}

/// What tonic generates for the same messages: clients and servers.
#[expect(unreachable_pub, reason = "generated code")]
pub(crate) mod stock {
    include!(concat!(env!("OUT_DIR"), "/stock/tollfree.workloads.v1.rs"));
}
