//! The examples run, and print what they are about. Cargo builds them beside the tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program that cargo has made of an example. A test binary by itself (`--test suite`) builds none.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let program = build.join("examples").join(name);
    assert!(
        program.exists(),
        "{program:?} is not there: run `cargo build -p tollfree-examples --examples` first"
    );
    program
}

/// What an example prints.
fn output_of(name: &str) -> String {
    let output = Command::new(program(name)).stderr(Stdio::inherit()).output().expect("it can be run");
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn streaming_shows_all_four_kinds() {
    let expected = "read: 11.5\n\
        read: Some requested entity was not found: no sensor is called attic\n\
        watch: 11.5\nwatch: 12.5\nwatch: 13.5\n\
        report: 3 samples, mean 3\n\
        correct: 0.5\ncorrect: 1.5\ncorrect: 5.5\n";
    assert_eq!(output_of("streaming"), expected);
}

#[test]
fn deadlines_end_calls_at_both_ends() {
    let expected = "the deadline passed: Deadline expired before operation could complete\n\
        the server gave up, too\nanswered: false\n\
        dropping the call canceled it at the server\n";
    assert_eq!(output_of("deadlines"), expected);
}

#[test]
fn an_interceptor_at_each_end() {
    let expected = "without a token: The request does not have valid authentication credentials\n\
        Hello, world! You are this very process: true\n";
    assert_eq!(output_of("interceptor"), expected);
}

#[test]
fn a_client_leaves_tcp_by_itself() {
    let output = output_of("greeter-upgrade");
    assert!(output.contains("Hello, ") && output.contains("shared memory"), "{output}");
}

#[test]
fn a_file_is_shared_and_changed_without_a_copy() {
    let output = output_of("share");
    assert!(output.ends_with("begin [7f, 45] here, [2f, 2f] there\n"), "{output}");
}

#[test]
fn balancing_uses_both_servers() {
    let output = output_of("balancing");
    assert!(output.starts_with("both servers have answered\nround_robin of 2 endpoints"), "{output}");
}

/// With its trace: `make demo-languages`. Here no collector takes spans, which harms no call.
#[test]
fn a_call_passes_two_relays() {
    let directory = tempfile::tempdir().expect("a directory");
    let [front, back] =
        ["front", "back"].map(|name| format!("shm://{}/{name}.sock", directory.path().display()));
    let relay = |name: &str, addresses: &[&String]| {
        let mut relay = Command::new(program("relay"));
        relay
            .args(addresses)
            .env("OTEL_SERVICE_NAME", name)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
        relay.stdin(Stdio::piped()).spawn().expect("it can be run")
    };
    let mut relays = [relay("back", &[&back]), relay("front", &[&front, &back])];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let passed = runtime.block_on(async {
        let channel =
            tollfree::Channel::builder(front).wait_for_ready(true).connect_lazy().expect("an address");
        let mut request = tonic::Request::new(tollfree_stubs::relay::PassRequest {});
        request.set_timeout(std::time::Duration::from_secs(60));
        tollfree_stubs::relay::relay_client::RelayClient::new(channel).pass(request).await
    });
    for relay in &mut relays {
        relay.kill().expect("it runs");
        relay.wait().expect("it is ours");
    }
    let passed = passed.expect("an answer").into_inner().passed;
    assert!(
        passed.len() == 2 && passed[0].starts_with("front, ") && passed[1].starts_with("back, "),
        "{passed:?}"
    );
}

#[test]
fn the_greeters_meet() {
    let mut server = Command::new(program("greeter-server")).spawn().expect("it can be run");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The server may not be there yet. Its address is the same for all on a machine: another one may have it, and go.
    let greeted = loop {
        let output = Command::new(program("greeter-client")).output().expect("it can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("Hello, world!") || std::time::Instant::now() > deadline {
            break text;
        }
        if server.try_wait().expect("it is ours").is_some() {
            server = Command::new(program("greeter-server")).spawn().expect("it can be run");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    drop(server.kill());
    server.wait().expect("it is ours");
    assert!(greeted.contains("shared memory with process") && greeted.contains("Hello, world!"), "{greeted}");
}

/// Ends a program with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_proxy_passes_on_what_it_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("shm://{}", directory.path().join(name).display());
    let (_, health) = tonic_health::server::health_reporter();
    let server = tokio::spawn(tollfree::Server::builder().add_service(health).serve(at("back")));
    let proxy =
        Ended(Command::new(program("proxy")).args([at("front"), at("back")]).spawn().expect("it can be run"));
    let channel = tollfree::Channel::builder(at("front")).connect_lazy().unwrap();
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    // Neither may listen yet.
    let serving = async {
        loop {
            match client.check(tonic_health::pb::HealthCheckRequest::default()).await {
                Ok(answer) => break answer.into_inner().status(),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
            }
        }
    };
    let serving =
        tokio::time::timeout(std::time::Duration::from_secs(60), serving).await.expect("it is passed on");
    assert_eq!(serving, tonic_health::pb::health_check_response::ServingStatus::Serving);
    drop(proxy);
    server.abort();
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
    let path = format!("{}/{example}.rs", env!("CARGO_MANIFEST_DIR"));
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
