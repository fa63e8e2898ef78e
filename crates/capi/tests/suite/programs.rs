//! Programs in C, watched by the address and undefined-behavior sanitizers, and (where `TOLLFREE_VALGRIND` is set) by valgrind.

use std::path::Path;

use crate::support::{Place, SANITIZERS, run};

fn runs(source: &str) {
    runs_with(source, &Place::new(), &[]);
}

fn runs_with(source: &str, place: &Place, others: &[&str]) {
    let source = format!("crates/capi/tests/c/{source}");
    let address = place.address();
    let said = match std::env::var_os("TOLLFREE_VALGRIND") {
        None => run(place.compile(&source, &SANITIZERS), &[&[address.as_str()], others].concat()),
        Some(_) => {
            let program = place.compile(&source, &[]);
            let watch =
                ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
            let arguments: Vec<&str> = watch
                .into_iter()
                .chain([program.to_str().expect("a path"), address.as_str()])
                .chain(others.iter().copied())
                .collect();
            run(Path::new("valgrind"), &arguments)
        }
    };
    assert_eq!(said, "done\n");
}

#[test]
fn calls_of_all_kinds_are_made_and_each_buffer_is_released_once() {
    runs("calls.c");
}

#[test]
fn channels_connect_and_reconnect_and_calls_wait_or_name_the_socket() {
    runs("channels.c");
}

#[test]
fn each_function_that_is_misused_returns_an_error() {
    runs("misuse.c");
}

#[test]
fn other_threads_wake_loops_and_release_buffers() {
    runs("threads.c");
}

#[test]
fn processes_of_one_pool_read_each_others_messages_in_place() {
    runs("pools.c");
}

/// What the library has functions for: tables and flat messages.
#[test]
fn the_specifications_vectors_are_answered() {
    const TOPICS: [&str; 4] = ["table", "fingerprint", "decode", "verify"];
    let place = Place::new();
    let program = place.compile("crates/capi/tests/c/vectors.c", &SANITIZERS);
    let mut cases = tollfree_vectors::cases().expect("vectors");
    cases.retain(|case| TOPICS.contains(&case.topic.as_str()));
    let settings = tollfree_vectors::Settings {
        command: vec![program.to_str().expect("a path").to_owned()],
        time: std::time::Duration::from_secs(60),
        allowed: Vec::new(),
    };
    let report = tollfree_vectors::run(&cases, &settings).expect("it starts");
    assert!(report.is_right(), "{report}");
    assert!(cases.len() > 100, "{}", cases.len());
}

#[test]
fn messages_are_read_and_written_by_tables() {
    let place = Place::new();
    let descriptors = place.path().join("descriptors.bin");
    std::fs::write(&descriptors, tollfree_stubs::FILE_DESCRIPTOR_SET).expect("a file");
    runs_with("tables.c", &place, &[descriptors.to_str().expect("a path")]);
}
