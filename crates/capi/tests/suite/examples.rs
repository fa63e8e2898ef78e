//! The example programs, built as users build them, against each other and against servers and clients in Rust.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::{Probe, ProbeServer};
use tollfree_stubs::probe::{Answer, Ask};
use tonic::{Request, Response, Status, Streaming};

use crate::support::{Place, Serving, prefix, run};

#[test]
fn the_client_calls_the_server() {
    let place = Place::new();
    let address = place.address();
    let server = Serving::start(&place.compile("examples/c/echo_server.c", &[]), &address);
    let said = run(place.compile("examples/c/echo_client.c", &[]), &[&address, "/test.Echo/Call", "hello"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("user "), "{said}");
    let answer = ["x-from: c", "message: hello"];
    assert_eq!(lines[1..4], [&answer[..], &["status 0 "]].concat(), "unary");
    assert_eq!(lines[4..], ["x-from: c", answer[1], answer[1], answer[1], "status 0 "], "a stream");
    server.end();
}

#[test]
fn a_program_with_a_loop_of_its_own_serves_within_it() {
    let place = Place::new();
    let address = place.address();
    let mut server = Serving::start(&place.compile("examples/c/own_loop.c", &[]), &address);
    let client = place.compile("examples/c/echo_client.c", &[]);
    let asks = || run(&client, &[&address, "/lines.Lines/Count", "how many?"]);
    assert!(asks().contains("message: 0\n"));
    server.input().write_all(b"one\ntwo\n").unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !asks().contains("message: 2\n") {
        assert!(std::time::Instant::now() < until, "its own descriptor is not seen to");
    }
    server.end();
}

#[test]
fn cmake_finds_the_package() {
    let place = Place::new();
    let build = place.path().join("build").to_string_lossy().into_owned();
    let source = crate::support::root().join("examples/c").to_string_lossy().into_owned();
    let package = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
    run("cmake", &["-S", &source, "-B", &build, &package]);
    run("cmake", &["--build", &build]);
    let address = place.address();
    let server = Serving::start(&Path::new(&build).join("echo_server"), &address);
    let said = run(Path::new(&build).join("echo_client"), &[&address, "/test.Echo/Call", "hello"]);
    assert!(said.contains("message: hello\n"), "{said}");
    server.end();
}

#[test]
fn the_archive_alone_makes_a_program() {
    let place = Place::new();
    let client = place.compile_with_archive("examples/c/echo_client.c");
    let libraries = run("ldd", &[&client.to_string_lossy()]);
    assert!(!libraries.contains("libtollfree"), "{libraries}");
    let server = Serving::start(&place.compile("examples/c/echo_server.c", &[]), &place.address());
    assert!(run(client, &[&place.address(), "/test.Echo/Call", "hello"]).contains("status 0"));
    server.end();
}

struct Echo;

#[tonic::async_trait]
impl Probe for Echo {
    type DownStream = tokio_stream::Empty<Result<Answer, Status>>;
    type BothStream = tokio_stream::Empty<Result<Answer, Status>>;

    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let from = request.metadata().get("x-from").cloned();
        let mut answer = Response::new(Answer { body: request.into_inner().body, ..Answer::default() });
        if let Some(from) = from {
            answer.metadata_mut().insert("x-seen", from);
        }
        Ok(answer)
    }

    async fn down(&self, _: Request<Ask>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let (mut asks, mut body) = (request.into_inner(), Vec::new());
        while let Some(ask) = asks.message().await? {
            body.extend_from_slice(&ask.body);
        }
        Ok(Response::new(Answer { body, ..Answer::default() }))
    }

    async fn both(&self, _: Request<Streaming<Ask>>) -> Result<Response<Self::BothStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_calls_a_server_of_tonics_stubs() {
    let place = Place::new();
    let address = place.address();
    let serving =
        tokio::spawn(tollfree::Server::builder().add_service(ProbeServer::new(Echo)).serve(address.clone()));
    let client = place.compile("examples/c/echo_client.c", &[]);
    // A message with the one field `body`, which is "hello".
    // Its second call is a stream, which the method isn't: only what the first brings is looked at.
    let said = tokio::task::spawn_blocking(move || {
        let output = std::process::Command::new(client)
            .args([&address, "/tollfree.probe.v1.Probe/Unary", "\n\u{5}hello"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let said = said.await.unwrap();
    assert!(said.contains("x-seen: c\n") && said.contains("message: \n\u{5}hello\n"), "{said}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_tonics_stubs_calls_the_server() {
    let place = Place::new();
    let address = place.address();
    let server = Serving::start(&place.compile("examples/c/echo_server.c", &[]), &address);
    let channel = tollfree::Channel::connect(address).await.unwrap();
    let mut client = ProbeClient::new(channel);
    for len in [0, 5, 5_000, 1 << 20] {
        let ask = Ask { body: vec![7; len], ..Ask::default() };
        let mut request = Request::new(ask.clone());
        request.metadata_mut().insert("x-name", "value".parse().unwrap());
        let answer = client.unary(request).await.unwrap();
        assert_eq!(answer.metadata().get("x-name").unwrap(), "value", "{len}");
        assert_eq!(answer.into_inner().body, ask.body, "{len}");
    }
    let asks: Vec<Ask> = (0..500).map(|nth| Ask { body: vec![7; nth], ..Ask::default() }).collect();
    let mut answers = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
    for nth in 0..500 {
        assert_eq!(answers.message().await.unwrap().unwrap().body.len(), nth);
    }
    assert!(answers.message().await.unwrap().is_none());
    drop(client);
    tokio::task::spawn_blocking(move || server.end()).await.unwrap();
}
