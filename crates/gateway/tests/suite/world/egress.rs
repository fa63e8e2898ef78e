//! Calls of backends to elsewhere.

use std::sync::atomic::Ordering;

use tollfree::Channel;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::identity::callers;
use super::lab::{Lab, PATIENCE};
use super::probe::Probe;
use super::tls::Authority;

pub(crate) async fn via(lab: &Lab, target: &str) -> ProbeClient<Channel> {
    ProbeClient::new(Channel::via(lab.backends(), target).await.unwrap())
}

#[tokio::test]
async fn a_group_calls_itself_through_the_gateway() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = via(&lab, "group:default").await;
    let mut request = Request::new(Ask { body: vec![1; 100_000], ..Ask::default() });
    request.metadata_mut().insert("tollfree-client-subject", "CN=forged".parse().unwrap());
    let answer = client.unary(request).await.unwrap().into_inner();
    assert_eq!(answer.body.len(), 100_000);
    let [caller] = &callers(&answer.headers)[..] else { panic!("{:?}", answer.headers) };
    let backend = format!("Backend {{ pid: {}, uid:", std::process::id());
    assert!(caller.contains(&backend) && caller.contains("subject: None"), "{caller}");
    let asks = futures_util::stream::iter((0..20).map(|_| Ask { body: vec![1; 10], ..Ask::default() }));
    assert_eq!(client.up(asks).await.unwrap().into_inner().seen_count, 20);
    attached.stop().await;
    let status = client.unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn nobody_calls_where_the_config_does_not_allow_it() {
    let lab = Lab::start("[groups.default]\n[groups.other]\nusers = [4000000000]\n").await;
    let _attached = lab.attach("default").await;
    for target in ["http://127.0.0.1:1", "group:other", "nonsense"] {
        let status = via(&lab, target).await.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{target}: {status}");
        assert!(status.message().contains(target), "{target}: {status}");
    }
    assert_eq!(lab.refused("target").await, 3.0);
}

#[tokio::test]
async fn allowed_targets_are_called_by_http2() {
    let probe = Probe::default();
    let address = tollfree_testkit::free_address();
    let server = tollfree::Server::builder().add_service(ProbeServer::new(probe.clone()));
    let served = format!("http://{address}");
    tokio::spawn_for_test(async move { server.serve(&*served).await });
    let lab = Lab::start(&format!("[groups.default]\nvia = [\"http://{address}\"]\n")).await;
    let mut client = via(&lab, &format!("http://{address}")).await;
    let begun = tokio::time::Instant::now();
    let answer = loop {
        let mut request = Request::new(Ask { body: vec![5; 70_000], ..Ask::default() });
        request.set_timeout(PATIENCE);
        match client.unary(request).await {
            Ok(answer) => break answer.into_inner(),
            // The server doesn't listen yet.
            Err(status) => {
                assert!(status.code() == Code::Unavailable && begun.elapsed() < PATIENCE, "{status}")
            }
        }
    };
    assert_eq!((answer.body.len(), probe.begun.load(Ordering::SeqCst)), (70_000, 1));
    assert!(!answer.headers.iter().any(|line| line.starts_with("tollfree-")), "{:?}", answer.headers);
}

/// Serves probes at an address of TCP; what they have seen.
pub(crate) async fn serve(server: tollfree::Server) -> (std::net::SocketAddr, Probe) {
    let (probe, address) = (Probe::default(), tollfree_testkit::free_address());
    let server = server.add_service(ProbeServer::new(probe.clone()));
    let scheme = format!("http://{address}");
    tokio::spawn_for_test(async move { server.serve(&*scheme).await });
    listens(address).await;
    (address, probe)
}

async fn listens(address: std::net::SocketAddr) {
    let begun = tokio::time::Instant::now();
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "{address} is not served");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_target_may_be_at_several_addresses() {
    let ((first, one), (second, other)) =
        (serve(tollfree::Server::builder()).await, serve(tollfree::Server::builder()).await);
    let config = format!(
        "[groups.default]\nvia = [\"http://inventory:80\"]\n[egress.targets.\"http://inventory:80\"]\n\
         addresses = [\"{first}\", \"{second}\"]\n"
    );
    let lab = Lab::start(&config).await;
    let client = via(&lab, "http://inventory:80").await;
    // Each holds its call: the next goes to the one that has none.
    let hold = |mut client: ProbeClient<Channel>| {
        tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await })
    };
    let begun = tokio::time::Instant::now();
    let mut calls = Vec::new();
    while one.live.load(Ordering::SeqCst) == 0 || other.live.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "one of them gets no call");
        calls.push(hold(client.clone()));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for call in calls {
        while !call.is_finished() {
            one.gate.notify_waiters();
            other.gate.notify_waiters();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_name_is_looked_up_and_one_that_is_not_there_is_said() {
    let (address, probe) = serve(tollfree::Server::builder()).await;
    let target = format!("http://localhost:{}", address.port());
    let lab =
        Lab::start(&format!("[groups.default]\nvia = [\"{target}\", \"http://inventory.invalid:1\"]\n"))
            .await;
    via(&lab, &target).await.unary(Ask::default()).await.unwrap();
    assert_eq!(probe.begun.load(Ordering::SeqCst), 1);
    let status = via(&lab, "http://inventory.invalid:1").await.unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("inventory.invalid"), "{status}");
}

#[tokio::test]
async fn calls_to_elsewhere_are_made_again_as_the_config_says() {
    let (address, probe) = serve(tollfree::Server::builder()).await;
    let policy = r#"{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}"#;
    let config = format!(
        "[groups.default]\nvia = [\"http://{address}\"]\n[egress.targets.\"http://{address}\"]\n\
         service_config = '{{\"methodConfig\":[{{\"name\":[{{}}],\"retryPolicy\":{policy}}}]}}'\n"
    );
    let lab = Lab::start(&config).await;
    let fault = Fault { code: Code::Unavailable.into(), ..Fault::default() };
    let ask = Ask { fault: Some(fault), ..Ask::default() };
    let status = via(&lab, &format!("http://{address}")).await.unary(ask).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(probe.begun.load(Ordering::SeqCst), 3, "three attempts");
}

#[tokio::test]
async fn targets_are_shown_the_certificate_of_the_config() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ((certificate, key), (own, own_key)) = (authority.sign("localhost"), authority.sign("gateway"));
    let probe = Probe::default();
    let address = tollfree_testkit::free_address();
    let identity = tonic::transport::Identity::from_pem(certificate, key);
    let ca = tonic::transport::Certificate::from_pem(authority.0.pem());
    let tls = tonic::transport::ServerTlsConfig::new().identity(identity).client_ca_root(ca);
    let server = tollfree::Server::builder().tls_config(tls).add_service(ProbeServer::new(probe.clone()));
    tokio::spawn_for_test(async move { server.serve(&*format!("https://{address}")).await });
    listens(address).await;
    let target = format!("https://localhost:{}", address.port());
    let with = |more: &str| {
        format!(
            "egress.ca = \"{}\"\n[groups.default]\nvia = [\"{target}\"]\n[egress.targets.\"{target}\"]\n\
             addresses = [\"{address}\"]\n{more}",
            file("ca.pem", &authority.0.pem())
        )
    };
    let shown = with(&format!(
        "certificate = \"{}\"\nkey = \"{}\"\n",
        file("own.pem", &own),
        file("own.key", &own_key)
    ));
    let lab = Lab::start(&shown).await;
    via(&lab, &target).await.unary(Ask::default()).await.unwrap();
    let lab = Lab::start(&with("")).await;
    let mut request = Request::new(Ask::default());
    request.set_timeout(PATIENCE);
    via(&lab, &target).await.unary(request).await.expect_err("it shows none");
    assert_eq!(probe.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_wrong_with_a_target_is_said_at_the_start() {
    for (line, words) in [("ca = \"/nowhere.pem\"", "/nowhere.pem can't be read")] {
        let text = format!(
            "backends.socket = \"shm:///tmp/never-bound.sock\"\n[egress.targets.\"http://inventory:1\"]\n{line}\n"
        );
        let config = tollfree_gateway::Config::from_toml(&text).unwrap();
        let error = tollfree_gateway::Gateway::bind(config).await.unwrap_err().to_string();
        assert!(error.starts_with("egress.targets.\"http://inventory:1\""), "{error}");
        assert!(error.contains(words), "{error}");
    }
    for (line, key) in [
        ("[egress.targets.\"a:1\"]", "egress.targets.a:1"),
        ("[egress.targets.\"https://inventory:1\"]", "egress.targets"),
        ("[egress.targets.\"http://inventory:1\"]\naddresses = [\"b\"]", "addresses"),
        ("[egress.targets.\"http://inventory:1\"]\nkey = \"k\"", "go together"),
        ("[egress.targets.\"http://inventory:1\"]\nservice_config = \"{\"", "service config"),
        ("[egress.targets.\"http://inventory:1\"]\nresolve_every_ms = 1", "at least 1000"),
    ] {
        let error = tollfree_gateway::Config::from_toml(&format!("{line}\n")).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
