//! Programs in C, watched by the address and undefined-behavior sanitizers, and (where `TOLLFREE_VALGRIND` is set) by valgrind.

use std::path::Path;

use crate::support::{Place, run};

const SANITIZERS: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

fn runs(source: &str) {
    let place = Place::new();
    let source = format!("crates/capi/tests/c/{source}");
    let address = place.address();
    let said = match std::env::var_os("TOLLFREE_VALGRIND") {
        None => run(place.compile(&source, &SANITIZERS), &[&address]),
        Some(_) => {
            let program = place.compile(&source, &[]);
            let watch =
                ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
            let arguments: Vec<&str> =
                watch.into_iter().chain([program.to_str().expect("a path"), address.as_str()]).collect();
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
fn each_function_that_is_misused_returns_an_error() {
    runs("misuse.c");
}

#[test]
fn other_threads_wake_loops_and_release_buffers() {
    runs("threads.c");
}
