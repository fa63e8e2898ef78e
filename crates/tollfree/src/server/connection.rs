//! One connection of HTTP/2: which answers its client takes, and how it ends.
//!
//! When the server ends, it waits for the calls of a connection, and not for its client. tonic's server says GOAWAY and PING then, and waits
//! until the client has answered: without end where the client has never begun HTTP/2, or is stopped.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::transport::server::{Connected, Router};
use tower_layer::{Identity, Stack};

use crate::metadata::greeting::Greeting;
use crate::metadata::header_list;
use crate::server::linger::{Cut, Lingering};
use crate::server::load::TallyLayer;

/// What HTTP/2 begins with: the preface, and the head of a SETTINGS frame.
const BEGINNING_LEN: u64 = 24 + 9;
/// A client has so long to answer the PING that follows GOAWAY. Any HTTP/2 stack does so by itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// A client that has answered, and has no call, may still read what was said. So long nothing may move then: 30 s.
const STALLED_COUNT: u32 = 30;

/// What tonic's server serves one connection with.
pub(crate) type Http2Router = Router<Stack<TallyLayer, Identity>>;

/// A connection that is served.
#[derive(Debug)]
pub(crate) struct ServedConnection {
    /// Its bytes are those of HTTP/2, and not of TLS.
    is_plain: bool,
    /// The longest header list that the client says it takes; `u32::MAX` where it doesn't say, or says it under TLS.
    header_list_max: AtomicU32,
    calls: AtomicU32,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    is_cut: AtomicBool,
    /// Who waits for bytes, and for room.
    waiting: Mutex<[Option<Waker>; 2]>,
    /// tonic's server has begun to read.
    taken: Notify,
    closed: Notify,
}

/// A call of a connection, until its answer is complete.
#[derive(Debug)]
pub(crate) struct CallOn(Arc<ServedConnection>);

impl Drop for CallOn {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl CallOn {
    /// Whether the client takes these headers or trailers of an answer.
    ///
    /// # Errors
    /// What it gets instead.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        header_list::check(headers, self.0.header_list_max.load(Ordering::Relaxed))
    }
}

impl Cut for ServedConnection {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

impl ServedConnection {
    pub(crate) fn new(is_plain: bool) -> Arc<ServedConnection> {
        Arc::new(ServedConnection {
            is_plain,
            header_list_max: AtomicU32::new(u32::MAX),
            calls: AtomicU32::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            waiting: Mutex::default(),
            taken: Notify::new(),
            closed: Notify::new(),
        })
    }

    /// A call begins.
    pub(crate) fn call(self: &Arc<ServedConnection>) -> CallOn {
        self.calls.fetch_add(1, Ordering::AcqRel);
        CallOn(self.clone())
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    fn has_calls(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    /// Resolves when nothing is left to wait for. To be called when the client is told of the server's end.
    async fn idle(&self) {
        let told = self.read_bytes();
        if self.is_plain && told < BEGINNING_LEN && !self.has_calls() {
            return;
        }
        let (mut moved, mut had_calls, mut still_count) = ((told, 0), self.has_calls(), 0);
        loop {
            sleep(PATIENCE).await;
            let now = (self.read_bytes(), self.written_bytes.load(Ordering::Relaxed));
            let moves = std::mem::replace(&mut moved, now) != now;
            // An answer that was complete a moment ago may still be on its way.
            let has_calls = self.has_calls();
            if std::mem::replace(&mut had_calls, has_calls) || has_calls {
                continue;
            }
            still_count = if moves { 0 } else { still_count + 1 };
            if now.0 == told || still_count >= STALLED_COUNT {
                return;
            }
        }
    }

    /// Nothing is read or written any more.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// `polled`, unless the connection was cut: then what a socket says whose peer is gone.
    fn unless_cut<T>(
        &self,
        cx: &mut Context<'_>,
        side: usize,
        polled: Poll<io::Result<T>>,
        gone: impl FnOnce() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            self.waiting.lock()[side] = Some(cx.waker().clone());
            if self.is_cut() {
                return Poll::Ready(gone());
            }
        }
        polled
    }
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct WatchedSocket<S> {
    socket: S,
    connection: Arc<ServedConnection>,
    greeting: Greeting,
    is_taken: bool,
}

impl<S> Drop for WatchedSocket<S> {
    fn drop(&mut self) {
        self.connection.closed.notify_one();
    }
}

impl<S: Connected> Connected for WatchedSocket<S> {
    type ConnectInfo = S::ConnectInfo;
    fn connect_info(&self) -> S::ConnectInfo {
        self.socket.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_taken, true) {
            this.connection.taken.notify_one();
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.socket).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        this.connection.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        if !this.greeting.is_over()
            && let Some(max) = this.greeting.read(&buffer.filled()[before..])
        {
            this.connection.header_list_max.store(max, Ordering::Relaxed);
        }
        this.connection.unless_cut(cx, 0, polled, || Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> WatchedSocket<S> {
    fn written(&self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            self.connection.written_bytes.fetch_add(*written as u64, Ordering::Relaxed);
        }
        self.connection.unless_cut(cx, 1, polled, || Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.written(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.written(cx, polled)
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

/// Serves one connection until it has ended. When the server ends, the connection has its calls answered and ends too.
pub(crate) async fn serve<IO>(
    router: Http2Router,
    socket: IO,
    connection: Arc<ServedConnection>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let greeting = Greeting::of_client();
    let watched = WatchedSocket { socket, connection: connection.clone(), greeting, is_taken: false };
    let incoming = tokio_stream::once(Ok::<_, Infallible>(Lingering::new(watched, connection.clone())));
    // tonic's server ends connections when no other comes.
    let incoming = incoming.chain(tokio_stream::pending());
    let ended = {
        let (mut stopped, connection) = (stopped.clone(), connection.clone());
        async move {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => {}
                () = connection.closed.notified() => return,
            }
            // tonic's server drops a socket that it has not taken, and one that was accepted before the end may have a call in it.
            tokio::select! {
                () = connection.taken.notified() => {}
                () = connection.closed.notified() => {}
            }
        }
    };
    let serving = router.serve_with_incoming_shutdown(incoming, ended);
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served,
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    tokio::select! {
        served = &mut serving => return served,
        () = connection.idle() => connection.cut(),
    }
    serving.await
}
