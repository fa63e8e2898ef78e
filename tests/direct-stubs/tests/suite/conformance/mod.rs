//! The suite that tonic's stubs pass (`crates/tollfree/tests/suite/conformance`), with the stubs that `tollfree-build` generates
//! on both ends: what is observed must be the same.

mod carrier;
mod ours;

#[path = "../../../../../crates/tollfree/tests/suite/conformance/batch_deaths.rs"]
mod batch_deaths;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/batches.rs"]
mod batches;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/calls.rs"]
mod calls;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/concurrency.rs"]
mod concurrency;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/cut.rs"]
mod cut;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/ended.rs"]
mod ended;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/endings.rs"]
mod endings;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/fairness.rs"]
mod fairness;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/features.rs"]
mod features;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "no row here runs over HTTP/2")]
#[path = "../../../../../crates/tollfree/tests/suite/conformance/lab.rs"]
pub(crate) mod lab;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/likeness.rs"]
mod likeness;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/metadata.rs"]
mod metadata;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/names.rs"]
mod names;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/peers.rs"]
mod peers;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/probe.rs"]
mod probe;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/shutdown.rs"]
mod shutdown;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/sizes.rs"]
mod sizes;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/statuses.rs"]
mod statuses;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/still.rs"]
pub(crate) mod still;
#[path = "../../../../../crates/tollfree/tests/suite/conformance/unread.rs"]
mod unread;

/// Runs rows over shared memory, met at an address of its own or by leaving TCP, with a server that blocks its thread, and through a gateway; over HTTP/2 these stubs are tonic's own client and server inside.
#[macro_export]
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        $crate::rows!($($name),*; without_gateway:);
    };
    ($($name:ident),*; without_gateway: $($other:ident),* $(,)?) => {
        $crate::rows!(@behind_gateway $($name),*);
        $crate::rows!(@direct $($name,)* $($other),*);
    };
    (@behind_gateway $($name:ident),*) => {
        mod behind_gateway {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::BehindGateway)).await })*
        }
    };
    (@direct $($name:ident),* $(,)?) => {
        mod shm {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Shm)).await })*
        }
        mod shm_multi {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Shm)).await })*
        }
        mod backend_connection {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::BackendConnection)).await })*
        }
        mod moved {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Moved)).await })*
        }
    };
}
