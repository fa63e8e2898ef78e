//! Certificates for one measurement, PEM files in its directory.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Subject of the backend' certificate.
pub const BACKENDS: &str = "backends";
/// What both certificates name.
pub const HOST: &str = "localhost";

/// Writes an authority's certificate, and one of a server and of a backend.
///
/// # Errors
/// What the system says.
pub fn write(dir: &Path) -> Result<(), String> {
    let failed = |error: rcgen::Error| format!("cannot make certificates: {error}");
    let save = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).map_err(|error| format!("cannot write {name}: {error}"))
    };
    let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(failed)?;
    let authority = CertifiedIssuer::self_signed(authority, key).map_err(failed)?;
    save("ca.pem", authority.pem())?;
    for name in ["server", BACKENDS] {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        save(&format!("{name}.pem"), params.signed_by(&key, &authority).map_err(failed)?.pem())?;
        save(&format!("{name}.key"), key.serialize_pem())?;
    }
    Ok(())
}

/// Authority, certificate and key of one of them, of `server` or [`BACKENDS`].
#[must_use]
pub fn files(dir: &Path, name: &str) -> [PathBuf; 3] {
    [dir.join("ca.pem"), dir.join(format!("{name}.pem")), dir.join(format!("{name}.key"))]
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// TLS of a plain server.
pub(crate) fn of_server(dir: &Path) -> Result<ServerTlsConfig, String> {
    let [_, certificate, key] = files(dir, "server");
    Ok(ServerTlsConfig::new().identity(Identity::from_pem(read(&certificate)?, read(&key)?)))
}

/// TLS of its client.
pub(crate) fn of_client(dir: &Path) -> Result<ClientTlsConfig, String> {
    let [ca, ..] = files(dir, "server");
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&ca)?)).domain_name(HOST))
}
