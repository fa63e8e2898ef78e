//! One suite over seven ways: what a generated client and server observe must not depend on what is between them.
//!
//! Each row is a function that gets a [`lab::Way`] and is run over shared memory (a path, an abstract name, and with
//! both ends told never to spin; with a server that blocks its thread), over TCP that was left for shared memory, through a
//! gateway, and over HTTP/2 on a Unix socket, which is tonic's own; each on a current-thread and a multi-thread runtime. So every
//! assertion is first of all true of tonic.

mod addresses;
mod batch_deaths;
mod batches;
mod calls;
mod carrier;
mod concurrency;
mod cut;
mod ended;
mod endings;
mod fairness;
mod faults;
mod features;
pub(crate) mod gateway;
mod lab;
mod late;
mod likeness;
mod metadata;
mod names;
mod peers;
pub(crate) mod probe;
mod races;
mod shutdown;
mod sizes;
mod statuses;
mod still;
mod unread;

/// Runs rows over every transport and runtime; those `without_gateway` are about the socket that server and client share.
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
        mod shm_parked {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Parked)).await })*
        }
        mod shm_abstract {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Abstract)).await })*
        }
        mod backend_connection {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::BackendConnection)).await })*
        }
        mod moved {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Moved)).await })*
        }
        mod http2 {
            $(#[tokio::test] async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Http2)).await })*
        }
        mod http2_multi {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::Http2)).await })*
        }
    };
}
