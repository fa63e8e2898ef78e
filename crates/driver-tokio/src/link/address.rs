//! Where a gateway of another host is met.

use std::fmt;
use std::str::FromStr;

use tokio_rustls::rustls::pki_types::ServerName;

/// The scheme of such addresses.
const SCHEME: &str = "device+tls://";

/// `device+tls://host:port`: TCP with TLS. The host is a DNS name or an IP address, and the server's certificate is to name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAddress {
    host: String,
    port: u16,
    name: ServerName<'static>,
}

/// A text that is no address of a gateway of another host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no address of a gateway's device: write device+tls://host:port")]
pub struct StreamAddressError {
    /// As given.
    pub text: String,
}

impl StreamAddress {
    /// Whether a text is meant as one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// What to connect to.
    pub(crate) fn to_connect(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// What the server's certificate is to name.
    pub(crate) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }
}

impl FromStr for StreamAddress {
    type Err = StreamAddressError;
    fn from_str(text: &str) -> Result<StreamAddress, StreamAddressError> {
        let error = || StreamAddressError { text: text.to_owned() };
        let rest = text.strip_prefix(SCHEME).ok_or_else(error)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(error)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| error())?;
        Ok(StreamAddress { host: host.to_owned(), port, name })
    }
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "{SCHEME}[{}]:{}", self.host, self.port),
            false => write!(f, "{SCHEME}{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_host_and_port_and_is_written_as_it_was_read() {
        for text in
            ["device+tls://gateway.example:9443", "device+tls://192.0.2.1:1", "device+tls://[2001:db8::1]:9"]
        {
            assert_eq!(text.parse::<StreamAddress>().unwrap().to_string(), text);
        }
        for text in [
            "device+tls://",
            "device+tls://host",
            "device+tls://:9443",
            "device+tls://host:0",
            "device+tls://host:65536",
            "device+tls://ho st:1",
            "device+tls://host:1/path",
            "https://host:1",
            "shm:///run/x.sock",
        ] {
            text.parse::<StreamAddress>().expect_err(text);
        }
    }
}
