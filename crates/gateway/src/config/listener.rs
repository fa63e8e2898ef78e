//! Sockets on which the world is served.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::WebConfig;

/// A socket on which the world is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// `host:port`, `unix:/path`, or `systemd:name` for a socket that the service manager passes.
    pub address: String,
    /// TLS. Without it, plain HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Whether many clients come by one address, as from a balancer: each connection then has a share of a group's places and memory of its own,
    /// and `limits.connections_per_address` does not hold.
    #[serde(default)]
    pub shared_addresses: bool,
    /// Balancers, by address or range, whose connections begin with a PROXY header, version 2. With any, connections from elsewhere, and such without a header, are refused.
    #[serde(default)]
    pub proxy_protocol: Vec<String>,
    /// Proxies, by address or range, whose `x-forwarded-for` says where a call comes from.
    #[serde(default)]
    pub forwarded_for: Vec<String>,
    /// Browsers: gRPC-Web, and which pages may call. Without it, gRPC alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<WebConfig>,
    /// What its clients may do, a name under `[policies]`. Without it, everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Certificates of a listener. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tls {
    /// The certificate and those above it, a PEM file.
    pub certificate: PathBuf,
    /// Its key, a PEM file.
    pub key: PathBuf,
    /// Who signs the clients' certificates, a PEM file. With it, each client has to show one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Lists of clients' certificates that were revoked, PEM files. With any, there must be one of each authority under `client_ca`.
    #[serde(default)]
    pub crls: Vec<PathBuf>,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_version: TlsVersion,
    /// What the certificate's authority says of it, as OCSP's answer in DER, a file. It is sent along with the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<PathBuf>,
    /// Certificates for other names, which clients ask for (SNI). A client that asks for none of theirs gets `certificate`.
    #[serde(default)]
    pub more: Vec<NamedCertificate>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum TlsVersion {
    /// 1.2, of RFC 5246.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// 1.3, of RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// A certificate for the DNS names that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NamedCertificate {
    /// The certificate and those above it, a PEM file.
    pub certificate: PathBuf,
    /// Its key, a PEM file.
    pub key: PathBuf,
    /// As for `ocsp` of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<PathBuf>,
}
