//! What a process shows and trusts that attaches over a stream.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollfree_layout::device::PROTOCOL;

use crate::files::read_file;

/// The longest file that is read, in bytes: several times what all authorities of a system have together.
const LEN_MAX: u64 = 4 << 20;

/// Files, PEM each. They are read anew for each connection, so new ones are used from the next one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// Who signs the gateway's certificate.
    pub ca: PathBuf,
    /// This process's certificate, and those above it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}", file = .file.display())]
pub struct CertificateError {
    /// Which.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

fn wrong(file: &Path, problem: impl ToString) -> CertificateError {
    CertificateError { file: file.to_owned(), problem: problem.to_string() }
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, CertificateError> {
    read_file(file, LEN_MAX).map_err(|error| wrong(file, error))
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes_of(file)?).collect();
    let all = all.map_err(|error| wrong(file, format!("can't be read as PEM: {error}")))?;
    if all.is_empty() {
        return Err(wrong(file, "holds no certificate: it needs a block that begins with BEGIN CERTIFICATE"));
    }
    Ok(all)
}

impl Certificates {
    /// What a TLS handshake needs. Reads the files, which blocks the thread ([`read_file`]).
    ///
    /// # Errors
    /// A file that can't be read, or is no certificate or key.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, CertificateError> {
        let mut roots = RootCertStore::empty();
        for authority in read(&self.ca)? {
            roots.add(authority).map_err(|error| wrong(&self.ca, error))?;
        }
        let chain = read(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes_of(&self.key)?)
            .map_err(|error| wrong(&self.key, format!("can't be read as a PEM key: {error}")))?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong(&self.certificate, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong(&self.certificate, error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }
}
