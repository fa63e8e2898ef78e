//! What attackers do to a gateway's sockets, one thing at a time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The good client's method.
pub(super) const ECHO: &str = "/tollfree.bench.v1.Echo/Call";
/// A service that goes to a group in which nobody is.
pub(super) const ABSENT: &str = "tollfree.bench.v1.Hop";

/// A request of an attacker.
#[derive(Clone)]
pub(super) struct Hold {
    pub(super) path: String,
    /// Headers beside those of each call.
    pub(super) timeout: Option<&'static str>,
    /// What is sent of the request's body.
    pub(super) body: Bytes,
}

/// A connection from another address of this host than good clients have.
pub(super) async fn connect(host: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = host.parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    socket.connect(address).await
}

/// A connection of HTTP/2, on which so many requests may be made at once.
pub(super) async fn client(host: &str, count: usize) -> Result<SendRequest<Bytes>, String> {
    let socket = connect(host).await.map_err(|error| format!("cannot connect to {host}: {error}"))?;
    let mut builder = h2::client::Builder::new();
    builder.initial_max_send_streams(count);
    let handshake = builder.handshake(socket).await;
    let (client, connection) = handshake.map_err(|error| format!("cannot begin HTTP/2: {error}"))?;
    tokio::spawn(connection);
    Ok(client)
}

/// Makes a request that never ends, and returns when the gateway has ended it. It counts in `held` once all is sent.
pub(super) async fn hold(
    client: SendRequest<Bytes>,
    request: &Hold,
    held: &AtomicUsize,
) -> Result<(), h2::Error> {
    let mut client = client.ready().await?;
    let mut head = http::Request::post(format!("http://localhost{}", request.path))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(timeout) = request.timeout {
        head = head.header("grpc-timeout", timeout);
    }
    let head = head.body(()).expect("these are fine headers");
    let (answer, mut stream) = client.send_request(head, false)?;
    let sent = async {
        let mut rest = request.body.clone();
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else { break };
            let room = room?.min(rest.len());
            stream.send_data(rest.split_to(room), false)?;
        }
        let _counted = Counted::new(held);
        std::future::pending::<Result<(), h2::Error>>().await
    };
    tokio::select! {
        failed = sent => failed,
        answered = answer => answered.map(drop),
    }
}

/// One of what is held.
struct Counted<'h>(&'h AtomicUsize);

impl<'h> Counted<'h> {
    fn new(held: &'h AtomicUsize) -> Counted<'h> {
        held.fetch_add(1, Ordering::SeqCst);
        Counted(held)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Connects, says nothing, and returns when the connection is closed.
pub(super) async fn say_nothing(socket: io::Result<impl AsyncRead + Unpin>, held: &AtomicUsize) {
    let Ok(mut socket) = socket else { return };
    let _counted = Counted::new(held);
    // The gateway's own words at the beginning are no end.
    let mut bytes = [0; 256];
    while socket.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// Reads the page of figures.
pub(super) async fn read_page(host: &str) -> io::Result<()> {
    let mut socket = TcpStream::connect(host).await?;
    socket
        .write_all(format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut page = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut page)).await;
    read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match page.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&page[..page.len().min(200)]).into_owned())),
    }
}
