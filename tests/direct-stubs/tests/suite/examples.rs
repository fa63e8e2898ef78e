//! The examples for generated stubs run, and print what they are about. Cargo builds them beside the tests.

use std::process::{Command, Stdio};

fn output_of(name: &str) -> String {
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let program = build.join("examples").join(name);
    assert!(
        program.exists(),
        "{program:?} is not there: run `cargo build -p tollfree-direct-stubs --examples` first"
    );
    let output = Command::new(program).stderr(Stdio::inherit()).output().expect("it can be run");
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_blocking_client_needs_no_runtime() {
    assert_eq!(output_of("blocking"), "Hello, world!\n");
}

#[test]
fn a_service_takes_objects() {
    assert_eq!(output_of("objects"), "Hello, world!\n");
}

#[test]
fn payloads_go_by_reference() {
    let output = output_of("pools");
    assert!(output.starts_with("1048576 bytes came back, equal: true\n"), "{output}");
    assert!(output.contains("large payloads by ref"), "{output}");
}

#[test]
fn calls_are_counted() {
    let output = output_of("metrics");
    let attempts = "grpc_client_attempt_started_total{grpc_method=\"tollfree.greeter.v1.Greeter/Hello\"";
    let found = output.lines().find(|line| line.starts_with(attempts));
    assert!(found.is_some_and(|line| line.ends_with(" 2")), "{output}");
    assert!(output.contains("tollfree_sessions"), "{output}");
}

/// Lines of an example's server: all before `main` but comments and blank ones.
fn lines_of_server(example: &str) -> usize {
    let path = format!("{}/examples/{example}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example is there");
    let (server, _) = text.split_once("#[tokio::main]").expect("it has a main");
    server.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count()
}

/// Reading and building in place costs few lines: the same server of all four kinds of calls, written with each.
#[test]
fn a_server_of_objects_has_at_most_1_4_times_the_lines_of_one_of_structs() {
    assert_eq!(output_of("sensors"), "5 5 1.5 1.5\n");
    assert_eq!(output_of("sensors_objects"), output_of("sensors"));
    let (structs, objects) = (lines_of_server("sensors"), lines_of_server("sensors_objects"));
    assert!(objects * 10 <= structs * 14, "{objects} lines with objects, {structs} with structs");
}
