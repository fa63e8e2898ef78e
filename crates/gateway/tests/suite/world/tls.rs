//! TLS: certificates of both sides, and new ones while clients are connected.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::identity::callers;
use super::lab::{Lab, PATIENCE};

pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("the {name}"));
        let uri = "spiffe://example/".to_owned() + name;
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn trust(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.0.pem())).domain_name("localhost")
    }
}

fn write(lab: &std::path::Path, (certificate, key): &(String, String)) {
    std::fs::write(lab.join("key.pem"), key).unwrap();
    std::fs::write(lab.join("certificate.pem"), certificate).unwrap();
}

pub(crate) async fn start(authority: &Authority, with_clients: bool) -> Lab {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &authority.sign("localhost"));
    std::fs::write(directory.path().join("ca.pem"), authority.0.pem()).unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut config = format!(
        "listeners.world.tls.certificate = \"{}\"\nlisteners.world.tls.key = \"{}\"\n",
        path("certificate.pem"),
        path("key.pem")
    );
    if with_clients {
        config += &format!("listeners.world.tls.client_ca = \"{}\"\n", path("ca.pem"));
    }
    Lab::start_in(directory, &config).await
}

async fn connect(lab: &Lab, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    Endpoint::try_from(lab.uri.clone())?.tls_config(tls)?.connect().await
}

/// With a certificate of a name.
pub(crate) async fn connect_as(lab: &Lab, authority: &Authority, name: &str) -> Channel {
    let (certificate, key) = authority.sign(name);
    let tls = authority.trust().identity(Identity::from_pem(certificate, key));
    connect(lab, tls).await.unwrap()
}

#[tokio::test]
async fn tls_is_served() {
    let authority = Authority::new();
    let lab = start(&authority, false).await;
    let _attached = lab.attach("default").await;
    let mut client = ProbeClient::new(connect(&lab, authority.trust()).await.unwrap());
    client.unary(Ask { body: vec![1; 100_000], ..Ask::default() }).await.unwrap();
    connect(&lab, Authority::new().trust()).await.expect_err("another authority");
    let expiry = "tollfree_gateway_certificate_expiry_timestamp_seconds{listener=\"world\"}";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    lab.until_figure(expiry, |at| at > now).await;
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"handshake\"}", |count| count >= 1.0).await;
}

#[tokio::test]
async fn handlers_are_told_whose_certificate_it_was() {
    let authority = Authority::new();
    let lab = start(&authority, true).await;
    let _attached = lab.attach("default").await;
    let (certificate, key) = authority.sign("orders");
    let tls = authority.trust().identity(Identity::from_pem(certificate, key));
    let mut client = ProbeClient::new(connect(&lab, tls).await.unwrap());
    let answer = client.unary(Ask::default()).await.unwrap().into_inner();
    let [caller] = &callers(&answer.headers)[..] else { panic!("{:?}", answer.headers) };
    for words in ["the orders", "\"orders\"", "\"spiffe://example/orders\""] {
        assert!(caller.contains(words), "{words} in {caller}");
    }
    // A client without one fails at the latest with its first call.
    if let Ok(channel) = connect(&lab, authority.trust()).await {
        ProbeClient::new(channel).unary(Ask::default()).await.expect_err("no certificate");
    }
}

#[tokio::test]
async fn new_certificates_are_used_and_old_connections_go_on() {
    let old = Authority::new();
    let lab = start(&old, false).await;
    let _attached = lab.attach("default").await;
    let mut client = ProbeClient::new(connect(&lab, old.trust()).await.unwrap());
    client.unary(Ask::default()).await.unwrap();
    // What is no certificate changes nothing, and is said.
    std::fs::write(lab.file("certificate.pem"), "nonsense").unwrap();
    let failures = "tollfree_gateway_certificate_reload_failures_total";
    lab.until_figure(failures, |count| count >= 1.0).await;
    connect(&lab, old.trust()).await.unwrap();
    let new = Authority::new();
    write(lab.directory.path(), &new.sign("localhost"));
    let begun = tokio::time::Instant::now();
    while connect(&lab, new.trust()).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the new certificate is not used");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    connect(&lab, old.trust()).await.expect_err("the old certificate is not used any more");
    client.unary(Ask::default()).await.expect("the old connection goes on");
}
