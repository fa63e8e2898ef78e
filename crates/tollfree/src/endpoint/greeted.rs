//! Connections of HTTP/2 whose server says how long a header list it takes, and requests that are held to that.
//!
//! A server that gets a much longer list ends the connection with all calls on it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, Uri};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::metadata::greeting::Greeting;
use crate::metadata::header_list;
use crate::status;

/// What any server takes: a request that has no more does not wait for what the server says.
const ALWAYS_TAKEN: usize = 4 << 10;
/// A server's settings are the first that it sends. It has so long to say them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest header list that a server takes, in bytes by HTTP/2's count, as it says on the connection that was made last.
#[derive(Clone, Debug)]
pub(crate) struct ServerLimit {
    /// `None` until it says so; `u32::MAX` where it does not.
    max: watch::Sender<Option<u32>>,
}

impl Default for ServerLimit {
    fn default() -> ServerLimit {
        ServerLimit { max: watch::Sender::new(Some(u32::MAX)) }
    }
}

impl ServerLimit {
    /// Whether the server takes a request with these headers.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(crate) async fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Status> {
        let len = header_list::len_of_request(uri, headers);
        let max = *self.max.borrow();
        let max = match max {
            Some(max) => max,
            None if len <= ALWAYS_TAKEN => return Ok(()),
            None => self.said().await,
        };
        if len <= max as usize {
            return Ok(());
        }
        let words = format!(
            "request metadata: the server takes {max} bytes of headers by HTTP/2's count, and these have {len}"
        );
        Err(status::of_content(Code::ResourceExhausted, words))
    }

    async fn said(&self) -> u32 {
        let mut max = self.max.subscribe();
        let said = tokio::time::timeout(PATIENCE, max.wait_for(Option::is_some)).await;
        said.ok().and_then(Result::ok).and_then(|max| *max).unwrap_or(u32::MAX)
    }
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct Greeted<S> {
    socket: S,
    greeting: Greeting,
    limit: ServerLimit,
}

impl<S> Greeted<S> {
    /// A connection on which nothing was said yet.
    pub(crate) fn new(socket: S, limit: ServerLimit) -> Greeted<S> {
        limit.max.send_replace(None);
        Greeted { socket, greeting: Greeting::of_server(), limit }
    }
}

impl<S> Drop for Greeted<S> {
    fn drop(&mut self) {
        // Nobody waits for a connection that has gone.
        self.limit.max.send_if_modified(|max| max.is_none() && max.replace(u32::MAX).is_none());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        if !self.greeting.is_over() {
            let said = self.greeting.read(&buffer.filled()[before..]);
            if self.greeting.is_over() {
                self.limit.max.send_replace(Some(said.unwrap_or(u32::MAX)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
