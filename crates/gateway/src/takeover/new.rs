//! The new gateway's side.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::{AddressFamily, sockopt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tollfree::gateway::{is_master_of, own_user};

use super::wire::{Heard, TakeoverMessage, Wire};
use super::{PROTOCOL, TAKEOVER, VERSION};

/// The old gateway answers within this time; it waits for backends for up to half of that.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest refusal.
const WORDS_LEN_MAX: usize = 4096;

/// Why a gateway does not take the place of the running one, which goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The socket can't be reached.
    #[error("the running gateway can't be reached at {path}: {source}")]
    Unreachable {
        /// The control socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The running one refuses, or does not answer as it should.
    #[error("the running gateway at {path} does not hand over: {words}")]
    Refused {
        /// The control socket.
        path: PathBuf,
        /// Why.
        words: String,
    },
}

struct TakenSocket {
    key: String,
    address: String,
    socket: OwnedFd,
}

/// The place of a running gateway, which is about to be taken.
pub(crate) struct Takeover {
    wire: Wire,
    path: PathBuf,
    sockets: Vec<TakenSocket>,
}

impl Takeover {
    /// Asks the gateway that runs at a control socket for its sockets. `None`: none runs there.
    pub(crate) async fn begin(path: &Path) -> Result<Option<Takeover>, OpenError> {
        let unreachable = |source| OpenError::Unreachable { path: path.to_owned(), source };
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(unreachable(error)),
        };
        let user = stream.peer_cred().map_err(unreachable)?.uid();
        let refused = |words: String| OpenError::Refused { path: path.to_owned(), words };
        if !is_master_of(own_user(), user) {
            return Err(refused(format!(
                "it runs as user {user}, and only that user and root may take its place"
            )));
        }
        let upgraded = tokio::time::timeout(PATIENCE, upgrade(stream)).await;
        let stream =
            upgraded.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}"))).map_err(refused)?;
        let mut claim =
            Takeover { wire: Wire::new(stream, Vec::new()), path: path.to_owned(), sockets: Vec::new() };
        claim.say(&TakeoverMessage::Begin { version: VERSION.into() }).await;
        loop {
            match claim.wire.hear(PATIENCE).await {
                Ok(Heard::Message(TakeoverMessage::Socket { key, address })) => {
                    let socket = claim.wire.socket();
                    let socket = socket.ok_or_else(|| refused(format!("{key} came without its socket")))?;
                    claim.sockets.push(TakenSocket { key, address, socket });
                }
                Ok(Heard::Message(TakeoverMessage::Offered { version })) => {
                    tracing::info!(path = %path.display(), version, "a gateway runs there: its place is taken");
                    return Ok(Some(claim));
                }
                // It has ended just now.
                Ok(Heard::Gone) => return Ok(None),
                Ok(Heard::Message(TakeoverMessage::Refused { words })) | Err(words) => {
                    return Err(refused(words));
                }
                Ok(Heard::Message(other)) => {
                    return Err(refused(format!("{other:?} comes at the wrong time")));
                }
            }
        }
    }

    fn take(&mut self, key: &str, address: &str) -> Option<OwnedFd> {
        let is_it = |passed: &TakenSocket| passed.key == key && passed.address == address;
        let idx = self.sockets.iter().position(is_it)?;
        Some(self.sockets.swap_remove(idx).socket)
    }

    /// The listening TCP socket that the old gateway has for a key with this address, if it has one.
    pub(crate) fn tcp(&mut self, key: &str, address: &str) -> io::Result<Option<std::net::TcpListener>> {
        let Some(socket) = self.take(key, address) else { return Ok(None) };
        let domain = sockopt::socket_domain(&socket)?;
        check(&socket, domain == AddressFamily::INET || domain == AddressFamily::INET6)?;
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Some(listener))
    }

    /// The same, in the runtime's poller.
    pub(crate) fn tokio_tcp(&mut self, key: &str, address: &str) -> io::Result<Option<TcpListener>> {
        self.tcp(key, address)?.map(TcpListener::from_std).transpose()
    }

    /// The listening Unix socket that it has for a key with this address, if it has one.
    pub(crate) fn unix(&mut self, key: &str, address: &str) -> io::Result<Option<UnixListener>> {
        let Some(socket) = self.take(key, address) else { return Ok(None) };
        check(&socket, sockopt::socket_domain(&socket)? == AddressFamily::UNIX)?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Some)
    }

    /// Which kind of socket it has for a key with this address.
    pub(crate) fn is_unix(&self, key: &str, address: &str) -> bool {
        let of_key = self.sockets.iter().find(|passed| passed.key == key && passed.address == address);
        of_key.is_some_and(|passed| {
            sockopt::socket_domain(&passed.socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
        })
    }

    /// Everything is bound: resolves when backends may be let in.
    pub(crate) async fn ready(&mut self) -> Result<(), OpenError> {
        self.say(&TakeoverMessage::Ready).await;
        self.expect(&TakeoverMessage::Enter).await
    }

    /// Backends find this gateway: resolves when those of the old one have come.
    pub(crate) async fn entered(&mut self) -> Result<(), OpenError> {
        self.say(&TakeoverMessage::Entered).await;
        self.expect(&TakeoverMessage::Moved).await
    }

    /// Clients are accepted: resolves when the old gateway accepts none.
    pub(crate) async fn serving(mut self) -> Result<(), OpenError> {
        self.say(&TakeoverMessage::Serving).await;
        self.expect(&TakeoverMessage::Left).await
    }

    async fn say(&self, message: &TakeoverMessage) {
        // Where this fails the other one is gone, which is found when it is listened to.
        _ = self.wire.say(message, None).await;
    }

    async fn expect(&mut self, expected: &TakeoverMessage) -> Result<(), OpenError> {
        let refused = |words| OpenError::Refused { path: self.path.clone(), words };
        match self.wire.hear(PATIENCE).await {
            Ok(Heard::Message(message)) if message == *expected => Ok(()),
            Ok(Heard::Gone) => {
                tracing::warn!("the gateway whose place is taken has ended in the middle");
                Ok(())
            }
            Ok(Heard::Message(TakeoverMessage::Refused { words })) | Err(words) => Err(refused(words)),
            Ok(Heard::Message(other)) => Err(refused(format!("{other:?} comes at the wrong time"))),
        }
    }
}

fn check(socket: &OwnedFd, is_kind: bool) -> io::Result<()> {
    if is_kind && sockopt::socket_acceptconn(socket)? {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "what the running gateway has passed is no such listening socket",
    ))
}

/// Asks for the takeover, and gives the connection back once it is HTTP no more.
async fn upgrade(stream: UnixStream) -> Result<UnixStream, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| words(&error))?;
    let connection = tokio::spawn(connection.with_upgrades());
    let request = Request::builder().uri(TAKEOVER).header(header::HOST, "gateway");
    let request = request
        .header(header::CONNECTION, HeaderValue::from_static("upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static(PROTOCOL))
        .body(Empty::<Bytes>::new())
        .map_err(|error| words(&error))?;
    let response = sender.send_request(request).await.map_err(|error| words(&error))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = Limited::new(response.into_body(), WORDS_LEN_MAX).collect().await;
        let said = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned());
        connection.abort();
        return Err(format!("{status}: {}", said.unwrap_or_default()));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| words(&error))?;
    let parts =
        upgraded.downcast::<TokioIo<UnixStream>>().map_err(|_| "the connection is lost".to_owned())?;
    match parts.read_buf.is_empty() {
        true => Ok(parts.io.into_inner()),
        false => Err("it speaks before its turn".into()),
    }
}
