//! What a server says to clients on TCP that ask whether it has a local socket.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use tollfree_driver_tokio::{Address, Ends, FileId, Listener, Token, Tokens};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;

use crate::endpoint::upgrade::{ANSWER, ASK, CONFIRM, FILE, OFFER, TOKEN};

/// A socket that a server offers.
#[derive(Debug)]
pub(crate) struct SocketOffer {
    address: HeaderValue,
    file: FileId,
    tokens: Arc<Tokens>,
}

impl SocketOffer {
    /// Of a listener's socket, if it is a file whose path fits a header.
    pub(crate) fn of(listener: &Listener, tokens: &Arc<Tokens>) -> Option<SocketOffer> {
        let (Address::Path(path), Some(file)) = (listener.address(), listener.file_id()) else {
            return None;
        };
        let address = path.to_str().and_then(|_| listener.address().to_string().parse().ok());
        if address.is_none() {
            tracing::warn!(address = %listener.address(), "not offered to clients on TCP: its path is not plain ASCII");
        }
        Some(SocketOffer { address: address?, file, tokens: tokens.clone() })
    }

    fn answer(
        &self,
        path: &str,
        headers: &HeaderMap,
        seen: Option<&TcpConnectInfo>,
    ) -> Result<HeaderMap, Status> {
        let mut reply = HeaderMap::new();
        let value = |text: String| HeaderValue::try_from(text).map_err(|_| Status::internal("not a header"));
        match path {
            ASK => {
                let ends = seen.and_then(|seen| Some((seen.remote_addr?, seen.local_addr?)));
                let Some((client, server)) = ends else {
                    return Err(Status::unavailable("this connection is not known by its addresses"));
                };
                if !is_of_this_host(client.ip(), server.ip()) {
                    // It could not come to the socket, and learns nothing of it.
                    return Err(Status::unavailable(
                        "only clients on the server's host are told of its socket",
                    ));
                }
                let token = self.tokens.issue(Ends::new(client, server));
                let token = token.map_err(|error| Status::unavailable(format!("no token now: {error}")))?;
                reply.insert(OFFER, self.address.clone());
                reply.insert(FILE, value(self.file.to_string())?);
                reply.insert(TOKEN, value(token.to_string())?);
            }
            CONFIRM => {
                let answer =
                    headers.get(ANSWER).and_then(|answer| answer.to_str().ok()?.parse::<Token>().ok());
                let answered = answer.and_then(|answer| self.tokens.confirm(&answer));
                let token = answered.ok_or_else(|| Status::not_found("no token was answered so"))?;
                reply.insert(TOKEN, value(token.to_string())?);
            }
            _ => return Err(Status::unimplemented("Ask or Confirm")),
        }
        Ok(reply)
    }
}

/// Whether a client's address is one of this host's: a loopback address, the one that it has reached, or any other that a socket
/// can be bound to here.
fn is_of_this_host(client: IpAddr, server: IpAddr) -> bool {
    let (client, server) = (client.to_canonical(), server.to_canonical());
    client.is_loopback() || client == server || UdpSocket::bind((client, 0)).is_ok()
}

/// Answers clients that ask, as one more service of a server on TCP.
#[derive(Clone, Debug)]
pub(crate) struct OfferService(pub(crate) Arc<SocketOffer>);

impl NamedService for OfferService {
    const NAME: &'static str = "tollfree.Upgrade";
}

impl Service<Request<Body>> for OfferService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let seen = request.extensions().get::<TcpConnectInfo>();
        ready(Ok(match self.0.answer(request.uri().path(), request.headers(), seen) {
            Ok(headers) => {
                let mut response = Status::new(tonic::Code::Ok, "").into_http();
                response.headers_mut().extend(headers);
                response
            }
            Err(status) => status.into_http(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_host_are_told_of_the_socket() {
        let ours =
            |client: &str, server: &str| is_of_this_host(client.parse().unwrap(), server.parse().unwrap());
        assert!(
            ours("127.0.0.1", "127.0.0.1") && ours("::ffff:127.0.0.5", "127.0.0.1") && ours("::1", "::1")
        );
        assert!(ours("198.51.100.7", "198.51.100.7"), "to itself");
        // Addresses for documentation: nobody has them.
        for elsewhere in ["198.51.100.7", "::ffff:198.51.100.7", "2001:db8::7"] {
            assert!(!ours(elsewhere, "192.0.2.1"), "{elsewhere}");
        }
    }

    #[test]
    fn a_client_elsewhere_is_told_nothing_and_gets_no_token() {
        let tokens = Arc::<Tokens>::default();
        let address = HeaderValue::from_static("shm:///run/app/greeter.sock");
        let offer = SocketOffer { address, file: FileId { device: 1, inode: 2 }, tokens };
        let ask = |client: &str, server: &str| {
            let seen = TcpConnectInfo {
                remote_addr: Some(client.parse().unwrap()),
                local_addr: Some(server.parse().unwrap()),
            };
            offer.answer(ASK, &HeaderMap::new(), Some(&seen))
        };
        assert!(ask("127.0.0.1:5000", "127.0.0.1:443").unwrap().contains_key(OFFER));
        let refused = ask("198.51.100.7:5000", "192.0.2.1:443").unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        assert!(refused.message().contains("host") && !refused.message().contains("greeter"), "{refused}");
    }
}
