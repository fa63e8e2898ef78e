//! The suite that all transports pass (`crates/tollfree/tests/suite/conformance`), by HTTP/2 through a whole gateway: what is observed
//! must be the same.

mod carrier;
mod gateway;

#[path = "../../../../tollfree/tests/suite/conformance/batches.rs"]
mod batches;
#[path = "../../../../tollfree/tests/suite/conformance/calls.rs"]
mod calls;
#[path = "../../../../tollfree/tests/suite/conformance/concurrency.rs"]
mod concurrency;
#[path = "../../../../tollfree/tests/suite/conformance/cut.rs"]
mod cut;
#[path = "../../../../tollfree/tests/suite/conformance/endings.rs"]
mod endings;
#[path = "../../../../tollfree/tests/suite/conformance/features.rs"]
mod features;
#[allow(dead_code, reason = "other suites run over more than a gateway")]
#[path = "../../../../tollfree/tests/suite/conformance/lab.rs"]
mod lab;
#[path = "../../../../tollfree/tests/suite/conformance/metadata.rs"]
mod metadata;
#[path = "../../../../tollfree/tests/suite/conformance/probe.rs"]
mod probe;
#[path = "../../../../tollfree/tests/suite/conformance/sizes.rs"]
mod sizes;
#[path = "../../../../tollfree/tests/suite/conformance/statuses.rs"]
mod statuses;

/// Runs rows through a gateway.
#[macro_export]
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        $crate::rows!($($name),*; without_gateway:);
    };
    ($($name:ident),*; without_gateway: $($other:ident),* $(,)?) => {
        mod behind_gateway {
            $($crate::row!($name, BehindGateway);)*
            $($crate::row!(@none $other);)*
        }
        /// With a server that has attached from another host.
        mod streamed {
            $($crate::row!($name, Streamed);)*
        }
    };
}

/// Runs a row, but for those about which a gateway is different on purpose; `world` has them its way.
#[macro_export]
macro_rules! row {
    // Health is answered by the gateway.
    (health_works_unmodified, $way:ident) => { $crate::row!(@none health_works_unmodified); };
    // The client is HTTP/2's, which says less where its own encoder refuses a request.
    (messages_over_the_limits_are_refused, $way:ident) => { $crate::row!(@none messages_over_the_limits_are_refused); };
    // Handlers are told who calls, and the user agent is the client's.
    (every_call_brings_what_grpc_asks_for, $way:ident) => { $crate::row!(@none every_call_brings_what_grpc_asks_for); };
    (reserved_metadata_do_not_travel, $way:ident) => { $crate::row!(@none reserved_metadata_do_not_travel); };
    // The limit is the gateway's, and configured.
    (more_metadata_than_fit_are_refused_and_others_go_on, $way:ident) => {
        $crate::row!(@none more_metadata_than_fit_are_refused_and_others_go_on);
    };
    (@none $name:ident) => {
        const _: fn() = || _ = super::$name;
    };
    ($name:ident, $way:ident) => {
        #[tokio::test]
        async fn $name() {
            $crate::conformance::lab::in_time(super::$name($crate::conformance::lab::Way::$way)).await;
        }
    };
}
