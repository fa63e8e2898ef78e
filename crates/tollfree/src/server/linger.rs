//! Leaving an HTTP/2 connection in such a way that the client hears the last word.
//!
//! A server that shuts down says GOAWAY, answers what it has taken, and closes. A socket that is closed with bytes in it that
//! nobody has read is reset, and so is one that is written to then: a client that has just sent a call fails to write before
//! it has read that its call was turned away, and takes it for lost. So the sending side is closed first, and what still
//! comes is read until the client has closed too (RFC 9112, section 9.6, says so of HTTP/1.1).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// A client that has been told does not take longer than this to close.
const LINGER: Duration = Duration::from_secs(1);

/// Whether a connection was cut off: its client is not waited for then.
pub trait Cut {
    /// Whether it was.
    fn is_cut(&self) -> bool;
}

impl<T: Cut> Cut for Arc<T> {
    fn is_cut(&self) -> bool {
        T::is_cut(self)
    }
}

/// Of connections that are dropped where they are cut off.
impl Cut for () {
    fn is_cut(&self) -> bool {
        false
    }
}

/// A connection whose shutdown is over when the client has closed its side too, or has had a second to. So a client that writes while the server
/// closes still reads the last answers. One that was cut does not wait.
#[derive(Debug)]
pub struct Lingering<S, C = ()> {
    socket: S,
    connection: C,
    /// Set once the sending side is closed.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S, C> Lingering<S, C> {
    /// Of a socket.
    pub fn new(socket: S, connection: C) -> Lingering<S, C> {
        Lingering { socket, connection, until: None }
    }
}

impl<S: Connected, C> Connected for Lingering<S, C> {
    type ConnectInfo = S::ConnectInfo;
    fn connect_info(&self) -> S::ConnectInfo {
        self.socket.connect_info()
    }
}

impl<S: AsyncRead + Unpin, C: Unpin> AsyncRead for Lingering<S, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: Cut + Unpin> AsyncWrite for Lingering<S, C> {
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

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.connection.is_cut() {
            return Pin::new(&mut this.socket).poll_shutdown(cx);
        }
        let until = match &mut this.until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
                this.until.insert(Box::pin(sleep(LINGER)))
            }
        };
        let mut place = [0; 1024];
        while until.as_mut().poll(cx).is_pending() {
            let mut unheard = ReadBuf::new(&mut place);
            match ready!(Pin::new(&mut this.socket).poll_read(cx, &mut unheard)) {
                Ok(()) if !unheard.filled().is_empty() => {}
                // Nothing is left to be said to anybody.
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    /// What a client meets that goes on writing when the server has said its last word: whether its writes fail before it
    /// has read that.
    async fn write_then_read(mut client: TcpStream) -> io::Result<Vec<u8>> {
        let mut heard = Vec::new();
        client.write_all(b"late").await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.write_all(b"later").await?;
        client.read_to_end(&mut heard).await?;
        Ok(heard)
    }

    #[tokio::test]
    async fn the_last_word_is_heard_by_a_client_that_goes_on_writing() {
        for lingers in [false, true] {
            let (mut client, mut server) = pair().await;
            client.write_all(b"unread").await.unwrap();
            let client = tokio::spawn(write_then_read(client));
            server.write_all(b"bye").await.unwrap();
            if lingers {
                Lingering::new(server, ()).shutdown().await.unwrap();
            } else {
                server.shutdown().await.unwrap();
                drop(server);
            }
            let heard = client.await.unwrap();
            assert_eq!(heard.is_ok_and(|heard| heard == b"bye"), lingers, "that is what it is for");
        }
    }

    #[tokio::test]
    async fn a_client_that_never_closes_is_not_waited_for_long() {
        let (_client, server) = pair().await;
        let began = tokio::time::Instant::now();
        let mut server = Lingering::new(server, ());
        let left = tokio::time::timeout(20 * LINGER, server.shutdown());
        left.await.expect("it ends").unwrap();
        assert!(began.elapsed() >= LINGER, "{:?}", began.elapsed());
    }
}
