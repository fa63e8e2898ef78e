//! Backends of other hosts: whose certificate lets them into which group, and what becomes of them.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tollfree::gateway::{Accepted, BackendListener, Limits, STREAM_PROTOCOL, StreamPolicy};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::probe::Probe;
use super::reload::reload;
use super::taker::Taker;
use super::tls::Authority;

pub(crate) const GROUPS: &str = "[groups.open]\nsubjects = [\"CN=the backends\"]\n[groups.closed]\n";

/// A gateway with a backend listener for other hosts, and certificates beside it.
pub(crate) async fn start(groups: &str) -> (Lab, Authority, String) {
    let (authority, directory) = (Authority::new(), tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("ca.pem", &authority.0.pem());
    for name in ["localhost", "backends", "other"] {
        let (certificate, key) = authority.sign(name);
        write(&format!("{name}.pem"), &certificate);
        write(&format!("{name}.key"), &key);
    }
    let file = |name: &str| directory.path().join(name).display().to_string();
    let stream = format!(
        "backends.stream = {{ address = \"{}\", certificate = \"{}\", key = \"{}\", client_ca = \"{}\" }}\n",
        tollfree_testkit::free_address(),
        file("localhost.pem"),
        file("localhost.key"),
        file("ca.pem")
    );
    (Lab::start_in(directory, &format!("{stream}{groups}")).await, authority, stream)
}

/// Where such a gateway is met.
pub(crate) fn device(stream: &str) -> String {
    let (_, port) = stream.split('"').nth(1).unwrap().rsplit_once(':').unwrap();
    format!("device+tls://localhost:{port}")
}

/// Has a process attach from another host, for as long as the task runs.
pub(crate) fn attach(
    lab: &Lab,
    stream: &str,
    group: &str,
) -> tokio::task::JoinHandle<Result<(), tollfree::ServeError>> {
    let server = tollfree::Server::builder().add_service(ProbeServer::new(Probe::default()));
    let attaching = server.attach(device(stream)).group(group);
    let files = ["ca.pem", "backends.pem", "backends.key"].map(|name| lab.file(name));
    let [ca, certificate, key] = files;
    tokio::spawn_for_test(attaching.certificates(ca, certificate, key).into_future())
}

#[tokio::test]
async fn a_certificate_opens_the_groups_that_name_it_and_no_other() {
    let (lab, _authority, stream) = start(GROUPS).await;
    for group in ["closed", "unknown"] {
        let refused = lab.refused("attach").await;
        let task = attach(&lab, &stream, group);
        lab.until_figure("tollfree_gateway_refusals_total{reason=\"attach\"}", |count| count > refused).await;
        assert_eq!(lab.figure(&backend_connections_of(group)).await, 0.0);
        task.abort();
    }
    let _backends = attach(&lab, &stream, "open");
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    let mut client = lab.client().await;
    client.unary(Ask { body: vec![1; 100_000], ..Ask::default() }).await.unwrap();
}

#[tokio::test]
async fn without_groups_nobody_attaches_from_elsewhere() {
    let (lab, _authority, stream) = start("").await;
    let _backends = attach(&lab, &stream, "default");
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"attach\"}", |count| count >= 1.0).await;
    assert_eq!(lab.figure(&backend_connections_of("default")).await, 0.0);
}

#[tokio::test]
async fn a_subject_that_is_taken_out_is_let_go_and_comes_back_with_its_right() {
    let (lab, _authority, stream) = start(GROUPS).await;
    let _backends = attach(&lab, &stream, "open");
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    let attach_wait = "limits.attach_wait_ms = 1\n";
    reload(&lab, &format!("{stream}{attach_wait}[groups.open]\n[groups.closed]\n")).await.unwrap();
    lab.until_figure(&backend_connections_of("open"), |count| count == 0.0).await;
    let error = lab.client().await.unary(Ask::default()).await.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::Unimplemented), "{error}");
    reload(&lab, &format!("{stream}{GROUPS}")).await.unwrap();
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    lab.client().await.unary(Ask::default()).await.unwrap();
}

/// It is of nobody whom the kernel knows, and has no memory in common with the gateway.
#[tokio::test]
async fn a_process_of_another_host_is_lent_nothing_and_gets_copies_of_large_objects() {
    let (lab, _authority, stream) = start(GROUPS).await;
    let (_, port) = stream.split('"').nth(1).unwrap().rsplit_once(':').unwrap();
    let service = tollfree_direct_stubs::objects::probe::probe_server::ProbeServer::new(Taker);
    let server = tollfree::Server::builder().add_service(service);
    let payloads = server.payloads();
    let attaching = server.attach(format!("device+tls://localhost:{port}")).group("open");
    let [ca, certificate, key] = ["ca.pem", "backends.pem", "backends.key"].map(|name| lab.file(name));
    let backends = tokio::spawn(attaching.certificates(ca, certificate, key).into_future());
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    let (mut client, began) = (lab.client().await, tokio::time::Instant::now());
    // More than it takes until a process of this host is asked to join a pool, and joins.
    while payloads.counts().received_objects < 100 {
        let ask = Ask { body: vec![3; 50_000], ..Ask::default() };
        assert!(client.unary(ask).await.unwrap().get_ref().body == vec![3; 50_000]);
        assert!(began.elapsed() < PATIENCE, "{payloads:?}");
    }
    let counts = payloads.counts();
    assert_eq!((counts.received_by_ref, counts.refused_refs), (0, 0));
    assert!(counts.received_inline >= 100, "{counts:?}");
    backends.abort();
}

#[tokio::test]
async fn a_process_of_another_host_comes_back_to_the_next_gateway() {
    let (lab, _authority, stream) = start(GROUPS).await;
    // The files outlive the first gateway.
    let files = tempfile::tempdir().unwrap();
    for name in ["ca.pem", "localhost.pem", "localhost.key", "backends.pem", "backends.key"] {
        std::fs::copy(lab.file(name), files.path().join(name)).unwrap();
    }
    let server = tollfree::Server::builder().add_service(ProbeServer::new(Probe::default()));
    let [ca, certificate, key] =
        ["ca.pem", "backends.pem", "backends.key"].map(|name| files.path().join(name));
    let attaching = server.attach(device(&stream)).group("open");
    let backends = tokio::spawn(attaching.certificates(ca, certificate, key).into_future());
    lab.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    let before = lab.directory.path().display().to_string();
    lab.stopped().await;
    let stream = stream.replace(&before, &files.path().display().to_string());
    let next = Lab::start(&format!("{stream}{GROUPS}")).await;
    next.until_figure(&backend_connections_of("open"), |count| count == 1.0).await;
    next.client().await.unary(Ask::default()).await.unwrap();
    backends.abort();
}

/// The TLS of a gateway that is none of ours.
fn tls(lab: &Lab) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(lab.file("ca.pem")).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_file(lab.file("localhost.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(lab.file("localhost.key")).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![STREAM_PROTOCOL.to_vec()];
    Arc::new(config)
}

/// It has no right on the host of the process that has attached to it: neither to have somebody let in there, nor to share memory.
#[tokio::test]
async fn a_gateway_of_another_host_has_nobody_let_in_and_shares_no_memory() {
    // For its certificates.
    let (lab, _authority, _) = start(GROUPS).await;
    let config = tls(&lab);
    let policy = StreamPolicy {
        tls: Arc::new(move || config.clone()),
        subject: Arc::new(|_| Some("CN=the backends".into())),
    };
    let mut backend_listener =
        BackendListener::bind_stream("127.0.0.1:0", policy, Limits::default()).await.unwrap();
    let uri = backend_listener.address().replace("tcp+tls://127.0.0.1", "device+tls://localhost");
    let server = tollfree::Server::builder().add_service(ProbeServer::new(Probe::default()));
    let [ca, certificate, key] = ["ca.pem", "backends.pem", "backends.key"].map(|name| lab.file(name));
    let attaching = server.attach(uri).group("open").certificates(ca, certificate, key);
    let backends = tokio::spawn(attaching.into_future());
    let arrival = tokio::time::timeout(PATIENCE, backend_listener.accept()).await.expect("it attaches");
    let Some(Accepted::Attached(attached)) = arrival else { panic!("{arrival:?}") };
    let process = format!("pid={},uid={}", std::process::id(), rustix::process::geteuid().as_raw());
    for (path, name, value) in [
        ("/tollfree.DirectConnection/Admit", "tollfree-process", &*process),
        ("/tollfree.Objects/Join", "tollfree-pool", "shm-abstract:tollfree-no-pool"),
    ] {
        let request = http::Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header(name, value)
            .body(Body::empty())
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE, attached.channel().call(request)).await;
        let answer = answer.expect("it answers").unwrap();
        assert!(!answer.headers().contains_key("tollfree-offer"), "{path}: {:?}", answer.headers());
        let status = Status::from_header_map(answer.headers()).expect("nothing but a status");
        assert_eq!(status.code(), Code::FailedPrecondition, "{path}: {status}");
        assert!(status.message().contains("another host"), "{path}: {status}");
    }
    // Nor does a gateway's own code ask for it.
    let caller = tollfree::PeerIdentity { pid: std::process::id() as i32, uid: 0, gid: 0 };
    assert_eq!(attached.admit(caller).await.unwrap_err().code(), Code::FailedPrecondition);
    ProbeClient::new(attached.channel()).unary(Ask::default()).await.expect("calls go on");
    backends.abort();
}
