//! The suite that all transports pass (`crates/tollfree/tests/conformance`), by HTTP/2 through a whole shepherd: what is observed
//! must be the same.

// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod carrier;
mod shepherd;

#[path = "../../../tollfree/tests/conformance/calls.rs"]
mod calls;
#[path = "../../../tollfree/tests/conformance/concurrency.rs"]
mod concurrency;
#[path = "../../../tollfree/tests/conformance/cut.rs"]
mod cut;
#[path = "../../../tollfree/tests/conformance/endings.rs"]
mod endings;
#[path = "../../../tollfree/tests/conformance/features.rs"]
mod features;
#[allow(dead_code, reason = "other suites run over more than a shepherd")]
#[path = "../../../tollfree/tests/conformance/lab.rs"]
mod lab;
#[path = "../../../tollfree/tests/conformance/metadata.rs"]
mod metadata;
#[path = "../../../tollfree/tests/conformance/probe.rs"]
mod probe;
#[path = "../../../tollfree/tests/conformance/sizes.rs"]
mod sizes;
#[path = "../../../tollfree/tests/conformance/statuses.rs"]
mod statuses;

use tollfree_stubs as stubs;

/// Runs rows through a shepherd.
#[macro_export]
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        $crate::rows!($($name),*; without_shepherd:);
    };
    ($($name:ident),*; without_shepherd: $($other:ident),* $(,)?) => {
        mod shepherded {
            $($crate::row!($name, Shepherded);)*
            $($crate::row!(@none $other);)*
        }
        /// With a server that has attached from another host.
        mod streamed {
            $($crate::row!($name, Streamed);)*
        }
    };
}

/// Runs a row, but for those about which a shepherd is different on purpose; `tests/world` has them its way.
#[macro_export]
macro_rules! row {
    // Health is answered by the shepherd.
    (health_works_unmodified, $way:ident) => { $crate::row!(@none health_works_unmodified); };
    // The client is HTTP/2's, which says less where its own encoder refuses a request.
    (messages_over_the_limits_are_refused, $way:ident) => { $crate::row!(@none messages_over_the_limits_are_refused); };
    // Handlers are told who calls, and the user agent is the client's.
    (every_call_brings_what_grpc_asks_for, $way:ident) => { $crate::row!(@none every_call_brings_what_grpc_asks_for); };
    (reserved_metadata_do_not_travel, $way:ident) => { $crate::row!(@none reserved_metadata_do_not_travel); };
    // The limit is the shepherd's, and configured.
    (more_metadata_than_fit_are_refused_and_others_go_on, $way:ident) => {
        $crate::row!(@none more_metadata_than_fit_are_refused_and_others_go_on);
    };
    (@none $name:ident) => {
        const _: fn() = || _ = super::$name;
    };
    ($name:ident, $way:ident) => {
        #[tokio::test]
        async fn $name() {
            $crate::lab::in_time(super::$name($crate::lab::Way::$way)).await;
        }
    };
}
