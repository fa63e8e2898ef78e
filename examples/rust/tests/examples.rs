//! The examples run, and print what they are about. Cargo builds them beside the tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program that cargo has made of an example. A test binary by itself (`--test suite`) builds none.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let program = build.join("examples").join(name);
    assert!(program.exists(), "{program:?} is not there: run `cargo build -p tollfree --examples` first");
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
fn balancing_uses_both_servers() {
    let output = output_of("balancing");
    assert!(output.starts_with("both servers have answered\nround_robin of 2 endpoints"), "{output}");
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
