//! The suite that tonic's stubs pass (`crates/tollfree/tests/conformance`), with the stubs that `tollfree-build` generates
//! on both ends: what is observed must be the same.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod carrier;
mod ours;

#[path = "../../../../crates/tollfree/tests/conformance/calls.rs"]
mod calls;
#[path = "../../../../crates/tollfree/tests/conformance/concurrency.rs"]
mod concurrency;
#[path = "../../../../crates/tollfree/tests/conformance/cut.rs"]
mod cut;
#[path = "../../../../crates/tollfree/tests/conformance/ended.rs"]
mod ended;
#[path = "../../../../crates/tollfree/tests/conformance/endings.rs"]
mod endings;
#[path = "../../../../crates/tollfree/tests/conformance/features.rs"]
mod features;
#[allow(dead_code, reason = "no row here runs over HTTP/2")]
#[path = "../../../../crates/tollfree/tests/conformance/lab.rs"]
mod lab;
#[path = "../../../../crates/tollfree/tests/conformance/likeness.rs"]
mod likeness;
#[path = "../../../../crates/tollfree/tests/conformance/metadata.rs"]
mod metadata;
#[path = "../../../../crates/tollfree/tests/conformance/names.rs"]
mod names;
#[path = "../../../../crates/tollfree/tests/conformance/peers.rs"]
mod peers;
#[path = "../../../../crates/tollfree/tests/conformance/probe.rs"]
mod probe;
#[path = "../../../../crates/tollfree/tests/conformance/shepherd.rs"]
mod shepherd;
#[path = "../../../../crates/tollfree/tests/conformance/shutdown.rs"]
mod shutdown;
#[path = "../../../../crates/tollfree/tests/conformance/sizes.rs"]
mod sizes;
#[path = "../../../../crates/tollfree/tests/conformance/statuses.rs"]
mod statuses;

/// The stubs under test: those that `tollfree-build` generates.
use tollfree_direct_stubs as stubs;

/// Runs rows over shared memory, met at an address of its own or by leaving TCP, with a server that blocks its thread, and through a shepherd; over HTTP/2 these stubs are tonic's own client and server inside.
#[macro_export]
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        $crate::rows!($($name),*; without_shepherd:);
    };
    ($($name:ident),*; without_shepherd: $($other:ident),* $(,)?) => {
        $crate::rows!(@shepherded $($name),*);
        $crate::rows!(@direct $($name,)* $($other),*);
    };
    (@shepherded $($name:ident),*) => {
        mod shepherded {
            $(#[tokio::test] async fn $name() { $crate::lab::in_time(super::$name($crate::lab::Way::Shepherded)).await })*
        }
    };
    (@direct $($name:ident),* $(,)?) => {
        mod shm {
            $(#[tokio::test] async fn $name() { $crate::lab::in_time(super::$name($crate::lab::Way::Shm)).await })*
        }
        mod shm_multi {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { $crate::lab::in_time(super::$name($crate::lab::Way::Shm)).await })*
        }
        mod worker {
            $(#[tokio::test] async fn $name() { $crate::lab::in_time(super::$name($crate::lab::Way::Worker)).await })*
        }
        mod moved {
            $(#[tokio::test] async fn $name() { $crate::lab::in_time(super::$name($crate::lab::Way::Moved)).await })*
        }
    };
}
