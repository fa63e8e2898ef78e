//! What is used of Unix sockets as tonic serves them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::tokio_net::{UnixListener, UnixStream, unix};
use crate::elsewhere::Never;

#[derive(Clone, Debug)]
pub struct UdsConnectInfo {
    pub peer_addr: Option<Arc<unix::SocketAddr>>,
    pub peer_cred: Option<unix::UCred>,
}

impl Connected for UnixStream {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct UnixListenerStream(Never);

impl UnixListenerStream {
    pub fn new(listener: UnixListener) -> UnixListenerStream {
        match listener.0 {}
    }
}

impl Stream for UnixListenerStream {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<UnixStream>>> {
        match self.0 {}
    }
}
