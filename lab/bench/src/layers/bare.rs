//! HTTP/2 without stubs: `h2` alone, with the headers and trailers of a gRPC call around the same bytes, and windows as
//! large as hyper's, so that it sends what tonic would.

use std::net::Ipv4Addr;
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::load::EchoCall;
use crate::order::Serving;

/// hyper's, for clients and servers.
const CLIENT_WINDOWS: (u32, u32) = (2 << 20, 5 << 20);
const SERVER_WINDOWS: (u32, u32) = (1 << 20, 1 << 20);
/// Where a call goes; the authority is as tonic sends it.
const URI: &str = "http://localhost/tollfree.bench.v1.Layers/Hello";
/// gRPC's prefix of a message: a flag and its length.
const PREFIX_LEN: usize = 5;

pub(super) async fn serve_tcp(ready: impl FnOnce(Serving)) -> Result<(), String> {
    let trouble = |error| format!("cannot listen on the loopback interface: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(trouble)?;
    ready(Serving { address: listener.local_addr().map_err(trouble)?.to_string() });
    loop {
        let (socket, _) = listener.accept().await.map_err(trouble)?;
        socket.set_nodelay(true).map_err(trouble)?;
        tokio::spawn(serve(socket));
    }
}

pub(super) async fn serve_unix(dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = dir.join("bare.sock");
    let trouble = |error| format!("cannot listen on {}: {error}", path.display());
    let listener = UnixListener::bind(&path).map_err(trouble)?;
    ready(Serving { address: path.display().to_string() });
    loop {
        tokio::spawn(serve(listener.accept().await.map_err(trouble)?.0));
    }
}

/// Serves a connection. A client that does not get its answer reports that itself.
async fn serve(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let mut builder = h2::server::Builder::new();
    let (stream, connection) = SERVER_WINDOWS;
    builder.initial_window_size(stream).initial_connection_window_size(connection);
    let Ok(mut connection) = builder.handshake(io).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request.into_body(), respond));
    }
}

async fn answer(body: RecvStream, mut respond: SendResponse<Bytes>) {
    let Ok((message, _)) = receive(body).await else { return };
    let mut response = Response::new(());
    *response.version_mut() = Version::HTTP_2;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    if send(&mut stream, message, false).is_ok() {
        // A connection that is gone is the client's to report.
        let _ = stream.send_trailers(trailers);
    }
}

/// One message with its prefix in a buffer of its own, as codecs make it.
fn send(stream: &mut SendStream<Bytes>, message: Bytes, end: bool) -> Result<(), h2::Error> {
    let mut framed = BytesMut::with_capacity(PREFIX_LEN + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put(message);
    stream.send_data(framed.freeze(), end)
}

/// The one message of a body, in one piece, and the trailers.
async fn receive(mut body: RecvStream) -> Result<(Bytes, Option<HeaderMap>), h2::Error> {
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        if whole.is_empty() && pieces.is_empty() {
            whole = piece;
        } else {
            pieces.extend_from_slice(&std::mem::take(&mut whole));
            pieces.extend_from_slice(&piece);
        }
    }
    let trailers = body.trailers().await?;
    let mut message = if pieces.is_empty() { whole } else { pieces.freeze() };
    let message = message.split_off(PREFIX_LEN.min(message.len()));
    Ok((message, trailers))
}

/// A client's connection.
#[derive(Clone)]
pub(super) struct Caller {
    requests: SendRequest<Bytes>,
}

pub(super) async fn connect_tcp(address: &str) -> Result<Caller, String> {
    let trouble = |error| format!("cannot connect to {address}: {error}");
    let socket = TcpStream::connect(address).await.map_err(trouble)?;
    socket.set_nodelay(true).map_err(trouble)?;
    connect(socket).await
}

pub(super) async fn connect_unix(address: &str) -> Result<Caller, String> {
    let socket = UnixStream::connect(address).await;
    connect(socket.map_err(|error| format!("cannot connect to {address}: {error}"))?).await
}

async fn connect(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Caller, String> {
    let mut builder = h2::client::Builder::new();
    let (stream, connection) = CLIENT_WINDOWS;
    builder.initial_window_size(stream).initial_connection_window_size(connection);
    let handshake = builder.handshake(io).await;
    let (requests, connection) = handshake.map_err(|error| format!("no HTTP/2: {error}"))?;
    // Calls report what ends it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Caller { requests })
}

impl EchoCall for Caller {
    type Body = Bytes;

    async fn call(&mut self, body: Bytes) -> Result<Bytes, String> {
        let failed = |error: h2::Error| format!("a call failed: {error}");
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = URI.parse().expect("a constant URI");
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert("te", HeaderValue::from_static("trailers"));
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.insert("user-agent", HeaderValue::from_static("tonic/0.14"));
        std::future::poll_fn(|cx| self.requests.poll_ready(cx)).await.map_err(failed)?;
        let (response, mut stream) = self.requests.send_request(request, false).map_err(failed)?;
        send(&mut stream, body, true).map_err(failed)?;
        let (message, trailers) =
            receive(response.await.map_err(failed)?.into_body()).await.map_err(failed)?;
        match trailers.as_ref().and_then(|trailers| trailers.get("grpc-status")) {
            Some(status) if status == "0" => Ok(message),
            other => Err(format!("a call ended with {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_and_long_messages_come_back() {
        let (near, far) = tokio::io::duplex(1 << 14);
        tokio::spawn(serve(far));
        let mut caller = connect(near).await.unwrap();
        for len in [0, 7, 16_384, 3 << 20] {
            let sent = Bytes::from(crate::load::body_of(len));
            assert_eq!(caller.call(sent.clone()).await.unwrap(), sent, "{len} bytes");
        }
    }
}
