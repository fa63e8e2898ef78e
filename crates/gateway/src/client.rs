//! Who calls from outside, and how application code is told so.
//!
//! Headers that begin with `tollfree-` are the gateway's own: it removes them from what comes from outside, in both directions.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollfree::gateway::{Caller, remove_ours};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::shares::{Claimant, Owner};

/// Names of a certificate that are failed over.
const NAME_COUNT_MAX: usize = 16;

/// An alternative name of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateName {
    /// In small letters.
    Dns(String),
    Uri(String),
}

/// The headers that tell who calls; the same for all calls of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pairs: Vec<(HeaderName, HeaderValue)>,
    address: String,
    ip: Option<IpAddr>,
    port: u16,
    connection: u64,
    /// With whom its connection shares.
    owner: Option<Owner>,
    /// What its connection holds of groups.
    claimant: Arc<Claimant>,
    class: Class,
    /// Where it came in; empty for a backend.
    listener: Arc<str>,
    subject: String,
    names: Vec<CertificateName>,
}

/// What kind of address a client has: a label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Of this host, by IP.
    Loopback,
    /// Of a private network: RFC 1918, link-local addresses, and unique local ones of IPv6.
    Private,
    /// Of any other network.
    Public,
    /// At a Unix socket.
    Unix,
    /// A backend that calls by way of the gateway.
    Backend,
}

impl Class {
    /// Its name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Loopback => "loopback",
            Class::Private => "private",
            Class::Public => "public",
            Class::Unix => "unix",
            Class::Backend => "backend",
        }
    }

    /// Of an address as [`counted_by`] gives it.
    pub(crate) fn of(address: IpAddr) -> Class {
        let is_private = match address {
            IpAddr::V4(address) => address.is_private() || address.is_link_local(),
            IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
        };
        // A /64 stands for all of its addresses.
        match address {
            _ if address.is_loopback() || address.is_unspecified() => Class::Loopback,
            _ if is_private => Class::Private,
            _ => Class::Public,
        }
    }
}

/// The connections that there were.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

impl Client {
    /// Of a new connection, which shares with nobody.
    pub(crate) fn at(address: &str, class: Class) -> Client {
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let mut client = Client {
            pairs: Vec::new(),
            address: address.to_owned(),
            ip: None,
            port: 0,
            connection,
            owner: None,
            claimant: Arc::default(),
            class,
            listener: Arc::default(),
            subject: String::new(),
            names: Vec::new(),
        };
        client.say(Caller::ADDRESS, address);
        client
    }

    /// As one of all connections of an owner.
    pub(crate) fn of_owner(self, owner: Option<Owner>) -> Client {
        Client { owner, ..self }
    }

    /// At an address of the network, which its share is counted by.
    pub(crate) fn of_network(address: SocketAddr) -> Client {
        let counted = counted_by(address);
        let client = Client::at(&address.to_string(), Class::of(counted)).with_ip(address);
        client.of_owner(Some(Owner::Address(counted)))
    }

    /// The same connection, whose proxy says that a call comes from an address.
    pub(crate) fn forwarded(&self, address: SocketAddr) -> Client {
        let counted = counted_by(address);
        let mut client = Client {
            pairs: self.pairs.iter().filter(|(name, _)| *name != Caller::ADDRESS).cloned().collect(),
            address: address.to_string(),
            ip: Some(address.ip().to_canonical()),
            port: address.port(),
            owner: Some(Owner::Address(counted)),
            class: Class::of(counted),
            ..self.clone()
        };
        client.say(Caller::ADDRESS, &address.to_string());
        client
    }

    /// Of a listener.
    pub(crate) fn at_listener(self, listener: &Arc<str>) -> Client {
        Client { listener: listener.clone(), ..self }
    }

    /// With the address that it has in the network.
    fn with_ip(self, address: SocketAddr) -> Client {
        Client { ip: Some(address.ip().to_canonical()), port: address.port(), ..self }
    }

    /// With the name by which a backend of another host is let in.
    pub(crate) fn with_subject(mut self, subject: &str) -> Client {
        self.say(Caller::SUBJECT, subject);
        self.subject = subject.to_owned();
        self
    }

    /// With what the certificate says that was checked in the handshake.
    pub(crate) fn with_certificate(mut self, der: &[u8]) -> Client {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return self };
        self.subject = certificate.subject().to_string();
        self.say(Caller::SUBJECT, &self.subject.clone());
        if let Ok(Some(names)) = certificate.subject_alternative_name() {
            let names = names.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) | GeneralName::URI(name) => Some(*name),
                _ => None,
            });
            for name in names.take(NAME_COUNT_MAX) {
                self.say(Caller::NAME, name);
            }
        }
        if let Ok(Some(names)) = certificate.subject_alternative_name() {
            // All of them: a rule may mean the last.
            let names = names.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(CertificateName::Dns(name.to_ascii_lowercase())),
                GeneralName::URI(name) => Some(CertificateName::Uri((*name).to_owned())),
                _ => None,
            });
            self.names = names.collect();
        }
        self
    }

    /// The name of a certificate by which `groups` lets it attach: its subject, or where that is empty its first DNS name or URI.
    pub(crate) fn subject_of(der: &[u8]) -> Option<String> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject().to_string();
        if !subject.is_empty() {
            return Some(subject);
        }
        let names = certificate.subject_alternative_name().ok()??;
        names.value.general_names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        })
    }

    /// With whom it shares.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The address that it shares by, if it is one.
    pub(crate) fn address_owner(&self) -> Option<IpAddr> {
        match self.owner {
            Some(Owner::Address(address)) => Some(address),
            _ => None,
        }
    }

    /// What its connection holds of groups.
    pub(crate) fn claimant(&self) -> &Claimant {
        &self.claimant
    }

    /// What kind of address it has.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Its connection, by a number that no other has.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The subject of its certificate; empty without one.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// The listener that it has come to.
    pub(crate) fn listener(&self) -> &str {
        &self.listener
    }

    /// Its address in the network; none at a Unix socket.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Its address as it is counted by: of IPv6, the /64.
    pub(crate) fn network(&self) -> String {
        match self.ip {
            Some(ip) => counted_by(SocketAddr::new(ip, 0)).to_string(),
            None => self.owner.as_ref().map_or_else(String::new, |owner| format!("{owner:?}")),
        }
    }

    /// Its port there; 0 where that is not known.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The alternative names of its certificate.
    pub(crate) fn certificate_names(&self) -> &[CertificateName] {
        &self.names
    }

    fn say(&mut self, name: HeaderName, text: &str) {
        if let Ok(value) = HeaderValue::from_str(&percent_encoded(text)) {
            self.pairs.push((name, value));
        }
    }

    /// Puts the headers of a request from outside in order for a backend.
    pub(crate) fn sign(&self, headers: &mut HeaderMap) {
        remove_ours(headers);
        for (name, value) in &self.pairs {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// As `grpc-message` is encoded: visible ASCII as it is, but `%`.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// What connections are counted by: the address, or the /64 of an IPv6 address, which is one host's.
pub(crate) fn counted_by(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gateway_says_who_calls() {
        let mut headers = HeaderMap::new();
        for value in ["forged", "again"] {
            headers.append(Caller::SUBJECT, HeaderValue::from_static(value));
        }
        headers.append("tollfree-offer", HeaderValue::from_static("forged"));
        headers.append("x-tollfree-offer", HeaderValue::from_static("kept"));
        Client::at("192.0.2.1:5", Class::Public).sign(&mut headers);
        assert_eq!(headers.len(), 2, "{headers:?}");
        assert_eq!(headers[Caller::ADDRESS], "192.0.2.1:5");
    }

    #[test]
    fn text_of_any_kind_fits_into_a_header() {
        assert_eq!(percent_encoded("CN=Zoë 100%\n"), "CN=Zo%C3%AB 100%25%0A");
        assert!(Client::at("x", Class::Unix).with_certificate(b"nonsense").pairs.len() == 1);
    }

    #[test]
    fn hosts_are_counted_by_what_they_can_not_choose() {
        let of = |address: &str| counted_by(address.parse().unwrap());
        assert_eq!(of("192.0.2.1:1"), of("192.0.2.1:2"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::2:2]:1"));
        assert_ne!(of("[2001:db8:0:1::1]:1"), of("[2001:db8::1]:1"));
    }

    #[test]
    fn addresses_are_of_few_classes() {
        let of = |address: &str| Class::of(counted_by(address.parse().unwrap())).name();
        let addresses = ["127.0.0.1:1", "[::1]:1", "10.1.2.3:1", "[fd00::1]:1", "[fe80::1]:1", "8.8.8.8:1"];
        let classes = ["loopback", "loopback", "private", "private", "private", "public"];
        assert_eq!(addresses.map(of), classes);
    }
}
