//! A whole gateway, for as long as its test.

use std::time::Duration;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tollfree::{Attaching, Channel, Server};
use tollfree_gateway::{Config, Gateway};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Where the gateway serves the world whose socket for backends is `uri`.
pub(crate) fn outside(uri: &str) -> String {
    format!("unix:{}.outside", uri.strip_prefix("shm://").expect("a path"))
}

/// Certificates of a gateway and of a backend, PEM files, as long as the suite runs.
struct Files(tempfile::TempDir);

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem", authority.pem());
    for name in ["gateway", "backends"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        write(&format!("{name}.pem"), params.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    Files(directory)
});

fn file(name: &str) -> PathBuf {
    FILES.0.path().join(name)
}

/// Where the gateway with this socket for backends has its backend listener for other hosts.
fn stream_of(uri: &str) -> SocketAddr {
    static ADDRESSES: Mutex<Option<HashMap<String, SocketAddr>>> = Mutex::new(None);
    let mut addresses = ADDRESSES.lock().unwrap();
    let addresses = addresses.get_or_insert_default();
    *addresses.entry(uri.to_owned()).or_insert_with(tollfree_testkit::free_address)
}

/// Has a server attach, as it would on the gateway's host or on another.
pub(crate) fn attach(server: Server, way: super::lab::Way, uri: &str) -> Attaching {
    if way != super::lab::Way::Streamed {
        return server.attach(uri);
    }
    let attaching = server.attach(format!("device+tls://localhost:{}", stream_of(uri).port()));
    attaching.certificates(file("ca.pem"), file("backends.pem"), file("backends.key"))
}

pub(crate) async fn run(uri: String) {
    let text = format!(
        "[listeners.outside]\naddress = \"{}\"\n[backends]\nsocket = \"{uri}\"\n[limits]\nmessage_bytes = 1000000000\n\
         [backends.stream]\naddress = \"{}\"\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [groups.default]\nsubjects = [\"CN=backends\"]\n",
        outside(&uri),
        stream_of(&uri),
        file("gateway.pem"),
        file("gateway.key"),
        file("ca.pem"),
    );
    let gateway = Gateway::bind(Config::from_toml(&text).unwrap()).await.unwrap();
    gateway.run(std::future::pending()).await;
}

/// Waits until the test's server has attached.
pub(crate) async fn attached(channel: &Channel) {
    for _ in 0..3000 {
        let request = HealthCheckRequest { service: "tollfree.probe.v1.Probe".into() };
        match HealthClient::new(channel.clone()).check(request).await {
            Ok(answer) if answer.get_ref().status == 1 => return,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("no server has attached");
}
