//! Certificates that are made when they are needed, and worth nothing afterwards.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// An authority, and what it has signed for a server and for a client; all as PEM.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Certificates {
    /// The authority's certificate.
    pub ca: String,
    /// The server's certificate, for `localhost`.
    pub server: String,
    /// Its key.
    pub server_key: String,
    /// A client's certificate.
    pub client: String,
    /// Its key.
    pub client_key: String,
}

impl Certificates {
    /// Makes new ones.
    ///
    /// # Errors
    /// What the library says; it has no reason to.
    pub fn generate() -> Result<Certificates, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "tollfree interop authority");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let signed = |name: &str| {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &ca)?;
            Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
        };
        let (server, server_key) = signed("localhost")?;
        let (client, client_key) = signed("client")?;
        Ok(Certificates { ca: ca.pem(), server, server_key, client, client_key })
    }
}
