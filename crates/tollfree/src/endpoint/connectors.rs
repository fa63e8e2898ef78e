//! How connections of HTTP/2 are made: as tonic makes them, and with an eye on what passes. tonic itself makes those under TLS.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tollfree_driver_tokio::Ends;
use tollfree_os::tokio_net::UnixStream;
use tonic::transport::Endpoint;
use tower_service::Service;

use crate::endpoint::greeted::{Greeted, ServerLimit};

type Connecting<S, E> = Pin<Box<dyn Future<Output = Result<TokioIo<Greeted<S>>, E>> + Send>>;

/// Connects over TCP, and notes between which ends and what the server takes.
#[derive(Clone, Debug)]
pub(crate) struct TcpConnector {
    http: HttpConnector,
    limit: ServerLimit,
    /// Missing where nobody wants to know.
    ends: Option<watch::Sender<Option<Ends>>>,
}

impl TcpConnector {
    pub(crate) fn new(
        endpoint: &Endpoint,
        limit: &ServerLimit,
        ends: Option<watch::Sender<Option<Ends>>>,
    ) -> TcpConnector {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(endpoint.get_tcp_nodelay());
        http.set_keepalive(endpoint.get_tcp_keepalive());
        http.set_keepalive_interval(endpoint.get_tcp_keepalive_interval());
        http.set_keepalive_retries(endpoint.get_tcp_keepalive_retries());
        http.set_connect_timeout(endpoint.get_connect_timeout());
        TcpConnector { http, limit: limit.clone(), ends }
    }
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<Greeted<TcpStream>>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Connecting<TcpStream, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.http.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, limit, ends) = (self.http.call(uri), self.limit.clone(), self.ends.clone());
        Box::pin(async move {
            let socket = connecting.await?.into_inner();
            if let Some(ends) = ends {
                ends.send_replace(match (socket.local_addr(), socket.peer_addr()) {
                    (Ok(client), Ok(server)) => Some(Ends::new(client, server)),
                    _ => None,
                });
            }
            Ok(TokioIo::new(Greeted::new(socket, limit)))
        })
    }
}

/// Connects to a Unix socket, and notes what the server takes.
#[derive(Clone, Debug)]
pub(crate) struct UnixConnector {
    path: PathBuf,
    limit: ServerLimit,
}

impl UnixConnector {
    /// `None` where the address is not one of `unix:`.
    pub(crate) fn of(address: &str, limit: &ServerLimit) -> Option<UnixConnector> {
        let path = address.strip_prefix("unix:")?;
        let path = path.strip_prefix("//").unwrap_or(path).into();
        Some(UnixConnector { path, limit: limit.clone() })
    }
}

impl Service<Uri> for UnixConnector {
    type Response = TokioIo<Greeted<UnixStream>>;
    type Error = io::Error;
    type Future = Connecting<UnixStream, io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (connecting, limit) = (UnixStream::connect(self.path.clone()), self.limit.clone());
        Box::pin(async move { Ok(TokioIo::new(Greeted::new(connecting.await?, limit))) })
    }
}
