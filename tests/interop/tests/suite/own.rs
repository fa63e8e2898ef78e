//! Our client against our server: every case over every kind of address.

use std::time::Duration;

use tokio::sync::oneshot;
use tollfree::Channel;
use tollfree::by_bytes::{AnyMethod, Client};
use tollfree_interop::cases::{CASES, Failure, Load};
use tollfree_interop::testing::test_service_client::TestServiceClient;
use tollfree_interop::testing::{ResponseParameters, SimpleRequest, StreamingOutputCallRequest};
use tollfree_interop::{Certificates, Target, server};
use tonic::codec::CompressionEncoding;
use tonic::transport::{Identity, ServerTlsConfig};

/// Lighter than `make interop`, which does what the description says: tests run all at once, without optimisation.
const LOAD: Load = Load { parallel_count: 50, soak_count: 5 };

/// A server at an address, for as long as this lives.
struct Running {
    target: Target,
    stop: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<Result<(), tollfree::ServeError>>,
    _directory: tempfile::TempDir,
}

impl Running {
    /// `{path}` and `{port}` in the address stand for ones that are free.
    fn start(server: tollfree::Server, address: &str) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock").display().to_string();
        let port = tollfree_testkit::free_address().port();
        let uri = address.replace("{path}", &path).replace("{port}", &port.to_string());
        let certificates = Certificates::generate().unwrap();
        let identity = Identity::from_pem(&certificates.server, &certificates.server_key);
        let server = server.tls_config(ServerTlsConfig::new().identity(identity));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = uri.clone();
        let server =
            tokio::spawn(
                async move { server.serve_with_shutdown(&serving, async { drop(stopped.await) }).await },
            );
        let target = Target {
            uri,
            ca: Some(certificates.ca),
            patience: Duration::from_secs(10),
            pool: None,
            via: None,
        };
        Running { target, stop: Some(stop), server, _directory: directory }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        let ended = tokio::time::timeout(Duration::from_secs(20), &mut self.server).await;
        ended
            .expect("the server ends in time")
            .expect("it does not panic")
            .expect("it ends without an error");
    }
}

/// Runs all cases; the names of those that failed, with why.
async fn failures(target: &Target) -> Vec<(&'static str, String)> {
    let mut failures = Vec::new();
    for case in CASES {
        match tokio::time::timeout(Duration::from_secs(30), case.run(target, LOAD)).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push((case.name, failure.to_string())),
            Err(_) => failures.push((case.name, "it did not end in 30 s".to_owned())),
        }
    }
    failures
}

async fn every_case_passes(address: &str) {
    let running = Running::start(server(), address);
    let failures = failures(&running.target).await;
    assert!(failures.is_empty(), "{}: {failures:?}", running.target.uri);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_over_shared_memory() {
    every_case_passes("shm://{path}").await;
}

#[tokio::test]
async fn every_case_passes_over_shared_memory_on_one_thread() {
    every_case_passes("shm://{path}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_over_shared_memory_met_by_an_abstract_name() {
    every_case_passes("shm-abstract:tollfree-interop-{port}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_over_a_unix_socket() {
    every_case_passes("unix:{path}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_over_tcp() {
    every_case_passes("http://localhost:{port}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_over_tls() {
    every_case_passes("https://localhost:{port}").await;
}

/// Both ends by bytes: a proxy that knows no message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_passes_through_a_proxy_by_bytes() {
    let behind = Running::start(server(), "shm://{path}");
    let back = Channel::builder(behind.target.uri.clone()).connect_lazy().unwrap();
    let back = Client::new(back).accept_compressed(CompressionEncoding::Gzip);
    let proxy = AnyMethod::new(move |method, request| {
        let mut back = back.clone();
        async move { back.pass_on(&method, request).await }
    });
    let proxy = proxy.accept_compressed(CompressionEncoding::Gzip).send_compressed(CompressionEncoding::Gzip);
    let running = Running::start(tollfree::Server::builder().fallback(proxy), "shm://{path}");
    let failures = failures(&running.target).await;
    // Messages are inflated at the proxy, and what goes on is compressed or not by its own settings.
    let failures: Vec<_> = failures.into_iter().filter(|(name, _)| !name.contains("_compressed_")).collect();
    assert!(failures.is_empty(), "{failures:?}");
    running.stop().await;
    behind.stop().await;
}

/// The cases are able to fail: a server without the test services passes none but those about what is not there.
#[tokio::test]
async fn a_server_without_the_services_fails_every_case() {
    for address in ["shm://{path}", "http://localhost:{port}"] {
        let running = Running::start(tollfree::Server::builder(), address);
        let failed: Vec<_> = failures(&running.target).await.into_iter().map(|(name, _)| name).collect();
        let expected: Vec<_> = CASES.iter().map(|case| case.name).collect();
        // The last two may be over before they hear that there is no such service.
        let may_pass = [
            "unimplemented_method",
            "unimplemented_service",
            "cancel_after_begin",
            "timeout_on_sleeping_server",
        ];
        let counted = |names: Vec<&'static str>| -> Vec<_> {
            names.into_iter().filter(|name| !may_pass.contains(name)).collect()
        };
        assert_eq!(counted(failed), counted(expected), "{address}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failure_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("none.sock").display());
    let target =
        Target { uri: uri.clone(), ca: None, patience: Duration::from_millis(50), pool: None, via: None };
    let failure = CASES[0].run(&target, LOAD).await.unwrap_err();
    assert!(matches!(failure, Failure::Connect { .. }), "{failure}");
    assert!(failure.to_string().contains(&uri), "{failure}");
}

/// Methods that no case of the client's is about.
#[tokio::test]
async fn the_other_methods_do_what_the_description_says() {
    for address in ["shm://{path}", "http://localhost:{port}"] {
        let running = Running::start(server(), address);
        let mut client = TestServiceClient::new(running.target.connect().await.unwrap());

        let first = client.cacheable_unary_call(SimpleRequest::default()).await.unwrap();
        assert_eq!(first.metadata().get("cache-control").unwrap(), "max-age=60, public");
        let second = client.cacheable_unary_call(SimpleRequest::default()).await.unwrap();
        let [first, second] = [first, second].map(|response| response.into_inner().payload.unwrap().body);
        assert!(first.iter().all(u8::is_ascii_digit), "{first:?}");
        assert_ne!(first, second, "nobody has kept the first response");

        let asking = |lens: &[i32]| StreamingOutputCallRequest {
            response_parameters: lens
                .iter()
                .map(|&size| ResponseParameters { size, ..ResponseParameters::default() })
                .collect(),
            ..StreamingOutputCallRequest::default()
        };
        let requests = tokio_stream::iter([asking(&[1, 2]), asking(&[]), asking(&[30_000])]);
        let mut responses = client.half_duplex_call(requests).await.unwrap().into_inner();
        let mut lens = Vec::new();
        while let Some(response) = responses.message().await.unwrap() {
            lens.push(response.payload.unwrap().body.len());
        }
        assert_eq!(lens, [1, 2, 30_000]);

        for refused in [
            SimpleRequest { response_type: 7, ..SimpleRequest::default() },
            SimpleRequest { response_size: -1, ..SimpleRequest::default() },
            SimpleRequest { response_size: i32::MAX, ..SimpleRequest::default() },
        ] {
            let status = client.unary_call(refused).await.unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        }
        drop(client);
        running.stop().await;
    }
}
