//! The conformance suite of `spec/device.md`: every engine is driven from the host's side and from the network's side, and must do the
//! same. Faults that need one's own bytes on the stream are in `stream.rs`.

mod lab;
mod stream;
mod suite;

/// Runs the suite over each engine.
macro_rules! engines {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::suite::$name(&mut super::lab::Lab::memory()).await; })*
        }
        mod byte_stream {
            $(#[tokio::test] async fn $name() { super::suite::$name(&mut super::lab::Lab::stream().await).await; })*
        }
    };
}

engines!(
    calls_of_all_four_kinds_are_answered,
    messages_of_one_call_come_in_their_order_and_whole,
    large_messages_go_both_ways,
    calls_beyond_the_limit_wait_and_none_is_lost,
    a_reader_that_does_not_read_holds_its_writer_up_and_nobody_else,
    a_side_that_sleeps_is_woken_each_time,
    a_call_that_is_cancelled_ends_at_the_other_side,
    deadlines_are_the_same_moment_at_both_sides,
    load_is_told_with_what_is_said_anyway,
    a_server_that_drains_answers_what_is_under_way,
    a_reset_at_each_step_ends_calls_and_the_next_session_is_whole,
    what_is_published_before_an_end_is_there,
    a_fixed_batch_is_published_as_a_whole_or_when_its_time_is_over,
    a_process_looks_or_sleeps_as_it_is_asked,
    registers_change_under_load_and_no_call_is_lost,
);
