//! The rows, and the drivers that they are run for: each as client with each as server.

use std::collections::BTreeSet;

use crate::bare_driver::Bare;
use crate::blocking_driver::Threads;
use crate::driver::{Which, which};
use crate::loop_driver::Loop;
use crate::tokio_driver::Tokio;

/// What a driver doesn't do: the driver, the row or the list of rows, and the reason.
const NOT_DONE: [(&str, &str, &str); 3] = [
    (
        "tokio",
        "ends::a_deadline_ends_a_call_at_both_ends",
        "the transport carries deadlines, and tollfree keeps them by timers of its own; here the suite's driver does, so the row is run",
    ),
    (
        "bare",
        "of a host",
        "it has no socket, no process, no thread and no time: these rows are not run for it",
    ),
    ("bare", "by itself", "likewise; and it holds no descriptor but those of its regions"),
];

/// Makes a test of each row for each pair of drivers, and the lists of rows: those for any driver, those that need a host, and those that
/// count what the process has, each of which has a process by itself.
macro_rules! rows {
    (
        of any driver: $($module:ident::$row:ident),*;
        of a host: $($host:ident::$host_row:ident),*;
        by itself: $($lone:ident::$lone_row:ident),*;
    ) => {
        const ROWS: &[&str] = &[
            $(concat!(stringify!($module), "::", stringify!($row)),)*
            $(concat!(stringify!($host), "::", stringify!($host_row)),)*
            $(concat!(stringify!($lone), "::", stringify!($lone_row)),)*
        ];

        rows!(pair tokio_with_tokio, tokio, tokio; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair tokio_with_loop, tokio, looped; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair loop_with_tokio, looped, tokio; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair loop_with_loop, looped, looped; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair blocking_with_blocking, blocking, blocking; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair blocking_with_tokio, blocking, tokio; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair tokio_with_blocking, tokio, blocking; $($module::$row,)* $($host::$host_row,)*; $($lone::$lone_row,)*);
        rows!(pair bare_with_bare, bare, bare; $($module::$row,)*;);
    };
    (pair $pair:ident, $client:ident, $server:ident; $($module:ident::$row:ident,)*; $($lone:ident::$lone_row:ident,)*) => {
        mod $pair {
            use super::{$client as client, $server as server};
            use crate::driver::Place;

            $(
                #[test]
                fn $row() {
                    crate::$module::$row(&Place::new(client(), server()));
                }
            )*
            $(
                #[test]
                fn $lone_row() {
                    tollfree_testkit::alone!();
                    crate::$lone::$lone_row(&Place::new(client(), server()));
                }
            )*
        }
    };
}

fn tokio() -> Which {
    which::<Tokio>()
}

fn looped() -> Which {
    which::<Loop>()
}

fn blocking() -> Which {
    which::<Threads>()
}

fn bare() -> Which {
    which::<Bare>()
}

/// A driver by its name.
pub(crate) fn named(name: &str) -> Which {
    [tokio(), looped(), blocking(), bare()]
        .into_iter()
        .find(|which| which.name == name)
        .expect("a driver's name")
}

rows! {
    of any driver:
    calls::unary_calls_of_all_lengths,
    calls::metadata_go_there_and_back,
    calls::a_client_streams,
    calls::a_server_streams,
    calls::both_stream_in_turn,
    calls::both_stream_at_once,
    calls::empty_streams,
    calls::many_calls_at_once,
    ends::a_status_alone,
    ends::a_status_behind_messages,
    ends::a_client_cancels,
    ends::a_server_cancels,
    ends::a_call_that_waits_for_a_place_is_cancelled,
    ends::a_server_drains,
    ends::a_server_closes,
    ends::calls_that_wait_when_a_server_drains_or_closes_are_unprocessed,
    ends::a_client_goes,
    flow::calls_beyond_the_limit_wait_in_order,
    flow::a_full_ring_is_waited_for,
    flow::a_long_message_passes_a_small_window,
    flow::calls_by_chance_all_end;
    of a host:
    ends::a_deadline_ends_a_call_at_both_ends,
    ends::a_server_is_killed,
    ends::a_client_is_killed,
    ends::nobody_listens,
    flow::a_slow_reader_stops_its_sender_and_nobody_else,
    hostile::forgeries_end_their_session_alone,
    hostile::random_bytes_end_their_session_alone,
    hostile::a_peer_that_says_nothing_holds_nobody_up,
    hostile::handshakes_of_nonsense_are_refused,
    recording::two_files_tell_the_same_session_from_both_ends,
    recording::a_process_that_is_killed_leaves_what_it_has_recorded,
    recording::a_hostile_peer_is_recorded_in_bounds_and_in_plain_text,
    waiting::calls_after_pauses_are_answered_under_each_policy;
    by itself:
    ends::nothing_is_left,
    waiting::a_stopped_server_goes_on_where_it_was,
    waiting::ends_that_sleep_take_no_processor_time;
}

#[test]
fn what_is_not_done_is_a_row_and_a_driver() {
    let names: BTreeSet<&str> = ROWS.iter().copied().collect();
    assert_eq!(names.len(), ROWS.len());
    for (driver, rows, why) in NOT_DONE {
        named(driver);
        assert!(names.contains(rows) || ["of a host", "by itself"].contains(&rows), "{rows}");
        assert!(!why.is_empty());
    }
}
