//! TLS of listeners: versions, names, ALPN, revoked certificates, and what an authority says of a certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, KeyIdMethod, KeyPair, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ALL_VERSIONS, ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion,
    version,
};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::lab::{Lab, PATIENCE};
use super::tls::Authority;

/// What a server has shown.
#[derive(Debug, Default)]
struct Shown(Mutex<(Vec<u8>, Vec<u8>)>);

/// Takes any certificate, and remembers it.
#[derive(Debug)]
struct Look {
    shown: Arc<Shown>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Look {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.shown.0.lock() = (certificate.to_vec(), ocsp.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

type Stream = TlsStream<TcpStream>;

async fn shake(
    lab: &Lab,
    name: &str,
    versions: &[&'static SupportedProtocolVersion],
    protocol: Option<&str>,
) -> std::io::Result<(Stream, Arc<Shown>)> {
    let provider = Arc::new(ring::default_provider());
    let shown = Arc::new(Shown::default());
    let look = Look { shown: shown.clone(), provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(look)).with_no_client_auth();
    config.alpn_protocols = protocol.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(lab.socket_address()).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok((stream, shown))
}

fn write(directory: &Path, name: &str, (certificate, key): &(String, String)) {
    std::fs::write(directory.join(format!("{name}.pem")), certificate).unwrap();
    std::fs::write(directory.join(format!("{name}.key")), key).unwrap();
}

fn der(certificate: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec()
}

async fn start(directory: tempfile::TempDir, more: &str) -> Lab {
    let path = directory.path().display().to_string();
    let config = format!(
        "[listeners.world.tls]\ncertificate = \"{path}/localhost.pem\"\nkey = \"{path}/localhost.key\"\n{}",
        more.replace("DIR", &path)
    );
    Lab::start_in(directory, &config).await
}

#[tokio::test]
async fn versions_and_protocols_are_as_configured() {
    let authority = Authority::new();
    for (oldest, may_be_old) in
        [("", true), ("min_version = \"1.2\"\n", true), ("min_version = \"1.3\"\n", false)]
    {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "localhost", &authority.sign("localhost"));
        let lab = start(directory, oldest).await;
        let old = shake(&lab, "localhost", &[&version::TLS12], Some("h2")).await;
        assert_eq!(old.is_ok(), may_be_old, "{oldest}");
        let (new, _) = shake(&lab, "localhost", &[&version::TLS13], Some("h2")).await.unwrap();
        assert_eq!(new.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        shake(&lab, "localhost", ALL_VERSIONS, Some("http/1.1")).await.expect_err("another protocol");
        lab.until_figure("tollfree_gateway_refusals_total{reason=\"handshake\"}", |count| count >= 1.0).await;
        drop(new);
    }
}

#[tokio::test]
async fn clients_get_the_certificate_of_the_name_that_they_ask_for() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let names = ["localhost", "orders.test", "*.shop.test"];
    let signed: Vec<_> = names.iter().map(|name| authority.sign(name)).collect();
    for (file, pair) in ["localhost", "orders", "shop"].iter().zip(&signed) {
        write(directory.path(), file, pair);
    }
    let answer = b"\x30\x03\x0a\x01\x00";
    std::fs::write(directory.path().join("orders.ocsp"), answer).unwrap();
    let lab = start(
        directory,
        "more = [{ certificate = \"DIR/orders.pem\", key = \"DIR/orders.key\", ocsp = \"DIR/orders.ocsp\" }, { certificate = \"DIR/shop.pem\", key = \"DIR/shop.key\" }]\n",
    )
    .await;
    for (name, nth) in [
        ("localhost", 0),
        ("orders.test", 1),
        ("ORDERS.test", 1),
        ("a.shop.test", 2),
        ("a.b.shop.test", 0),
        ("shop.test", 0),
        ("else.test", 0),
        ("127.0.0.1", 0),
    ] {
        let (_stream, shown) = shake(&lab, name, ALL_VERSIONS, Some("h2")).await.unwrap();
        let shown = shown.0.lock().clone();
        assert_eq!(shown.0, der(&signed[nth].0), "{name}");
        assert_eq!(shown.1, if nth == 1 { &answer[..] } else { &[] }, "{name}");
    }
    // Another certificate of a name is taken up while it runs.
    let other = authority.sign("orders.test");
    write(lab.directory.path(), "orders", &other);
    let began = Instant::now();
    loop {
        let (_stream, shown) = shake(&lab, "orders.test", ALL_VERSIONS, Some("h2")).await.unwrap();
        if shown.0.lock().0 == der(&other.0) {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn revoked(authority: &Authority, serials: &[u64]) -> String {
    let of = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2100, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(of).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&authority.0).unwrap().pem().unwrap()
}

#[tokio::test]
async fn revoked_certificates_are_refused() {
    let authority = Authority::new();
    let identity = |serial: u64| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        Identity::from_pem(params.signed_by(&key, &authority.0).unwrap().pem(), key.serialize_pem())
    };
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "localhost", &authority.sign("localhost"));
    std::fs::write(directory.path().join("ca.pem"), authority.0.pem()).unwrap();
    std::fs::write(directory.path().join("crl.pem"), revoked(&authority, &[7])).unwrap();
    let lab = start(directory, "client_ca = \"DIR/ca.pem\"\ncrls = [\"DIR/crl.pem\"]\n").await;
    let _attached = lab.attach("default").await;
    let call = async |serial| {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.0.pem()))
            .domain_name("localhost")
            .identity(identity(serial));
        let channel = Endpoint::try_from(lab.uri.clone()).unwrap().tls_config(tls).unwrap().connect_lazy();
        tokio::time::timeout(PATIENCE, ProbeClient::new(channel).unary(Ask::default())).await.unwrap().is_ok()
    };
    assert!(call(8).await && !call(7).await);
    std::fs::write(lab.file("crl.pem"), revoked(&authority, &[7, 8])).unwrap();
    let began = Instant::now();
    while call(8).await {
        assert!(began.elapsed() < PATIENCE, "the new list is not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(call(9).await);
}

#[tokio::test]
async fn files_that_are_of_no_use_are_found_before_the_start() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "localhost", &authority.sign("localhost"));
    write(directory.path(), "other", &authority.sign("localhost"));
    std::fs::write(directory.path().join("ca.pem"), authority.0.pem()).unwrap();
    let path = directory.path().display().to_string();
    for (more, word) in [
        ("ocsp = \"DIR/localhost.pem\"\n", "OCSP"),
        ("client_ca = \"DIR/ca.pem\"\ncrls = [\"DIR/ca.pem\"]\n", "X509 CRL"),
        ("more = [{ certificate = \"DIR/other.pem\", key = \"DIR/localhost.key\" }]\n", "other.pem"),
        (
            "more = [{ certificate = \"DIR/localhost.pem\", key = \"DIR/localhost.key\" }, { certificate = \"DIR/other.pem\", key = \"DIR/other.key\" }]\n",
            "so is another",
        ),
    ] {
        let config = format!(
            "[listeners.world]\naddress = \"127.0.0.1:0\"\n[listeners.world.tls]\ncertificate = \"{path}/localhost.pem\"\nkey = \"{path}/localhost.key\"\n{}",
            more.replace("DIR", &path)
        );
        let findings = tollfree_gateway::Config::from_toml(&config).unwrap().check_surroundings();
        let found = findings.iter().find(|finding| finding.is_error && finding.key == "listeners.world.tls");
        let found = found.unwrap_or_else(|| panic!("{word}: {findings:?}"));
        assert!(found.problem.contains(word), "{word} in {found}");
    }
}
