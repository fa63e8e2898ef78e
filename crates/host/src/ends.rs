//! The two ends of a TCP connection: what a token is bound to.
//!
//! A process that passes a token on has connections of its own, whose ends differ from those of the client's in an address or a
//! port at least.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tollfree_layout::handshake::Hello;

/// The two ends of a TCP connection, as one of its processes sees them. IPv4 addresses that are mapped into IPv6 count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    client: SocketAddr,
    server: SocketAddr,
}

impl Ends {
    /// Those of a connection from `client` to `server`.
    pub fn new(client: SocketAddr, server: SocketAddr) -> Ends {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Ends { client: plain(client), server: plain(server) }
    }

    pub(crate) fn put(&self, hello: &mut Hello) {
        let bytes = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        (hello.tcp_client, hello.tcp_client_port) = (bytes(self.client), self.client.port().into());
        (hello.tcp_server, hello.tcp_server_port) = (bytes(self.server), self.server.port().into());
    }

    /// Those that a client has put into its message, if any.
    pub(crate) fn of(hello: &Hello) -> Option<Ends> {
        let address = |bytes, port| SocketAddr::new(Ipv6Addr::from(bytes).into(), port);
        let client = address(hello.tcp_client, hello.tcp_client_port.get());
        let server = address(hello.tcp_server, hello.tcp_server_port.get());
        let is_said = |end: SocketAddr| !end.ip().is_unspecified() || end.port() != 0;
        (is_said(client) || is_said(server)).then(|| Ends::new(client, server))
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_layout::handshake::kind;

    fn ends(client: &str, server: &str) -> Ends {
        Ends::new(client.parse().unwrap(), server.parse().unwrap())
    }

    #[test]
    fn ends_are_alike_whatever_the_family_of_the_socket() {
        let mapped = ends("[::ffff:127.0.0.1]:5", "127.0.0.1:6");
        assert_eq!(
            (mapped, mapped.to_string()),
            (ends("127.0.0.1:5", "127.0.0.1:6"), "127.0.0.1:5 127.0.0.1:6".into())
        );
        assert_eq!(ends("[::1]:5", "[::1]:6").to_string(), "[::1]:5 [::1]:6");
    }

    #[test]
    fn ends_go_through_a_message() {
        let mut hello = Hello::new(kind::HELLO);
        assert_eq!(Ends::of(&hello), None);
        for said in [ends("127.0.0.1:5000", "127.0.0.1:443"), ends("[2001:db8::1]:65535", "[::1]:1")] {
            said.put(&mut hello);
            assert_eq!(Ends::of(&hello), Some(said));
        }
    }
}
