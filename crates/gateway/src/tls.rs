//! Certificates of a listener, and reading them again when their files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ALL_VERSIONS, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tollfree::gateway::{STREAM_PROTOCOL, aside, read_file};

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{Tls, TlsVersion};
use crate::metrics::Metrics;
use crate::server_names::ServerNames;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest file of certificates or keys that is read, in bytes: several times what all authorities of a system have together.
pub(crate) const CERTIFICATE_LEN_MAX: u64 = 4 << 20;

/// Why a listener has no TLS, or keeps the certificates that it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read, or is no PEM.
    #[error("{file}: {problem}")]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The files are no pair, or can't be used.
    #[error("{certificate} and {key}: {problem}")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

static NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];

/// What is spoken behind TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http2,
    /// HTTP/2, or HTTP/1.1 of browsers.
    Web,
    /// That of backends of other hosts.
    Device,
}

impl Protocol {
    /// Its names in TLS, the best first, and the versions that it is spoken behind.
    fn of_tls(self, oldest: TlsVersion) -> (Vec<Vec<u8>>, &'static [&'static SupportedProtocolVersion]) {
        let named = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect();
        let versions = match oldest {
            TlsVersion::Tls12 => ALL_VERSIONS,
            TlsVersion::Tls13 => NEWEST,
        };
        match self {
            Protocol::Http2 => (named(&[b"h2"]), versions),
            Protocol::Web => (named(&[b"h2", b"http/1.1"]), versions),
            Protocol::Device => (named(&[STREAM_PROTOCOL]), NEWEST),
        }
    }
}

/// What a listener's handshakes use now.
pub(crate) struct Certificates {
    protocol: Protocol,
    files: ArcSwap<Tls>,
    current: ArcSwap<ServerConfig>,
}

/// Certificates that were read and can be used.
pub(crate) struct Prepared {
    files: Arc<Tls>,
    config: Arc<ServerConfig>,
}

/// When the first certificate of a file expires, if that can be read.
pub(crate) fn expiry_of(file: &Path) -> Option<SystemTime> {
    let bytes = read_file(file, CERTIFICATE_LEN_MAX).ok()?;
    let certificate = CertificateDer::pem_slice_iter(&bytes).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// By what a changed file is known.
type Look = Vec<Option<(SystemTime, u64)>>;

/// What a look at the files has found.
struct News {
    look: Look,
    prepared: Option<Result<Prepared, TlsError>>,
    expiry: Option<SystemTime>,
}

impl Certificates {
    /// Reads the files aside.
    pub(crate) async fn read(files: &Tls, protocol: Protocol) -> Result<Certificates, TlsError> {
        let own = files.clone();
        let config = aside(move || server_config(&own, protocol)).await;
        let config =
            config.map_err(|error| file(&files.certificate, format!("can't be read: {error}")))??;
        let current = ArcSwap::new(config);
        Ok(Certificates { protocol, files: ArcSwap::from_pointee(files.clone()), current })
    }

    /// Whether files can be used. Blocks the thread.
    pub(crate) fn check(files: &Tls, protocol: Protocol) -> Result<(), TlsError> {
        server_config(files, protocol).map(drop)
    }

    /// What other files hold, to be used from a later moment on. Blocks the thread.
    pub(crate) fn prepare(&self, files: &Tls) -> Result<Prepared, TlsError> {
        Ok(Prepared { files: Arc::new(files.clone()), config: server_config(files, self.protocol)? })
    }

    pub(crate) fn use_these(&self, prepared: Prepared) {
        self.files.store(prepared.files);
        self.current.store(prepared.config);
    }

    /// For one handshake. Connections keep what they began with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Blocks the thread.
    fn look(&self) -> Look {
        let files = self.files.load();
        let more =
            files.more.iter().flat_map(|more| [Some(&more.certificate), Some(&more.key), more.ocsp.as_ref()]);
        let files =
            [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref(), files.ocsp.as_ref()]
                .into_iter()
                .chain(files.crls.iter().map(Some))
                .chain(more);
        let look = |file: &PathBuf| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        files.flatten().map(look).collect()
    }

    /// What the files hold, if they have changed, and when the certificate expires, if that may have changed. Blocks the thread.
    fn news(&self, seen: Option<&Look>) -> News {
        let look = self.look();
        let is_news = seen.is_some_and(|seen| *seen != look);
        let expiry = match seen.is_none() || is_news {
            true => expiry_of(&self.files.load().certificate),
            false => None,
        };
        News { look, prepared: is_news.then(|| self.prepare(&self.files.load())), expiry }
    }

    /// Reads the files again whenever they have changed, until it is dropped. What can't be read leaves all as it is.
    pub(crate) async fn follow(self: Arc<Self>, listener: String, metrics: Arc<Metrics>) {
        let mut seen = None;
        loop {
            let (own, before) = (self.clone(), seen.clone());
            if let Ok(News { look, prepared, expiry }) = aside(move || own.news(before.as_ref())).await {
                if let Some(expiry) = expiry.and_then(|expiry| expiry.duration_since(UNIX_EPOCH).ok()) {
                    metrics.certificate_expires(&listener, expiry);
                }
                match prepared {
                    None => {}
                    Some(Ok(prepared)) => {
                        self.use_these(prepared);
                        tracing::info!(listener, "certificates were read again");
                    }
                    // A certificate is often there before its key: the next look finds both.
                    Some(Err(error)) => {
                        metrics.reload_failures.inc();
                        tracing::error!(listener, %error, "the new certificates are of no use; the old ones stay");
                    }
                }
                seen = Some(look);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn file(file: &Path, problem: impl Into<String>) -> TlsError {
    TlsError::File { file: file.to_owned(), problem: problem.into() }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, TlsError> {
    read_file(path, CERTIFICATE_LEN_MAX).map_err(|error| file(path, error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes_of(path)?).collect();
    let read = read.map_err(|error| file(path, format!("can't be read as PEM: {error}")))?;
    if read.is_empty() {
        return Err(file(path, "holds no certificate: it needs a block that begins with BEGIN CERTIFICATE"));
    }
    Ok(read)
}

/// What clients use who trust the authorities of a file. Blocks the thread.
///
/// # Errors
/// The file is of no use.
pub(crate) fn client_config(ca: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| file(ca, error.to_string()))?;
    Ok(Arc::new(builder.with_root_certificates(roots(ca)?).with_no_client_auth()))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| file(path, error.to_string()))?;
    }
    Ok(roots)
}

/// A certificate with its key, and what its authority says of it.
fn certified(
    provider: &CryptoProvider,
    (certificate, key, ocsp): (&Path, &Path, Option<&Path>),
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&bytes_of(key)?)
        .map_err(|error| file(key, format!("can't be read as a PEM key: {error}")))?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        problem: error.to_string(),
    })?;
    let ocsp = ocsp.map(|path| {
        let bytes = bytes_of(path)?;
        // An OCSPResponse is a SEQUENCE. Its content is the client's to check.
        match bytes.first() {
            Some(0x30) => Ok(bytes),
            _ => Err(file(path, "is no answer of OCSP in DER")),
        }
    });
    Ok(CertifiedKey { ocsp: ocsp.transpose()?, ..certified })
}

fn server_config(tls: &Tls, protocol: Protocol) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let own = (&*tls.certificate, &*tls.key, tls.ocsp.as_deref());
    let mut names = ServerNames::new(certified(&provider, own)?);
    for more in &tls.more {
        let key = certified(&provider, (&more.certificate, &more.key, more.ocsp.as_deref()))?;
        names.add(key).map_err(|problem| file(&more.certificate, problem))?;
    }
    let (protocols, versions) = protocol.of_tls(tls.min_version);
    let pair = |error: tokio_rustls::rustls::Error| TlsError::Pair {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        problem: error.to_string(),
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(pair)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let mut crls = Vec::new();
            for path in &tls.crls {
                crls.extend(revoked(path)?);
            }
            let verifier = verifier.with_crls(crls).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| file(path, error.to_string()))?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(names));
    config.alpn_protocols = protocols;
    if protocol == Protocol::Device {
        // What was resumed would be let in by a certificate that is not looked at again.
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Lists of revoked certificates.
fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes_of(path)?).collect();
    let read = read.map_err(|error| file(path, format!("can't be read as PEM: {error}")))?;
    if read.is_empty() {
        return Err(file(path, "holds no list: it needs a block that begins with BEGIN X509 CRL"));
    }
    Ok(read)
}
