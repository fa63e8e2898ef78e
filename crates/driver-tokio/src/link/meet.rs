//! The handshake over a stream: TLS, then the two messages of `spec/wire.md` without descriptors.
//!
//! # States
//! ```text
//! dialer    connect ─► TLS, both certificates ─► !ATTACH or VIA ─► ?WELCOME ─► mirror ─► attached
//!                                                             └──► ?REFUSAL ─► error in the listener's words
//! listener  accept ─► TLS, both certificates ─► whose is it? ─► ?ATTACH or VIA ─► a place, mirror ─► !WELCOME ─► attached
//! ```
//!
//! # Trust
//! Neither side says or believes anything before both certificates are checked. The whole handshake has a deadline. A mirror is
//! as long as the peer's ring, which is bounded.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::Connection;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tollfree_layout::control::RING_OFF;
use tollfree_layout::device::PROTOCOL;
use tollfree_layout::handshake::{Hello, MAGIC, feature};
use tollfree_layout::limits::HELLO_LEN;
use tollfree_region::{PeerRegion, Region};
use tollfree_rendezvous::{PeerIdentity, descriptors_are_short};
use tollfree_session::Role;
use zerocopy::{FromBytes, IntoBytes};

use crate::files::aside;
use crate::link::Seed;
use crate::link::address::StreamAddress;
use crate::link::certificates::Certificates;
use crate::link::listener::StreamPolicy;
use crate::link::places::Places;
use crate::remote::RemoteIdentity;
use crate::shaking;
use crate::turn::Turn;
use tollfree_host::{Attached, HandshakeError, Own, Peer, check_answer, check_request, refusal};
use tollfree_host::{Attacher, Config};
use tollfree_host::{Purpose, body_len};

/// A process of another host has no number here, nor a user.
const NOBODY: PeerIdentity = PeerIdentity { pid: 0, uid: u32::MAX, gid: u32::MAX };

/// What is offered over a stream: all that needs no common memory or kernel.
const FEATURES: u64 = feature::LOAD;

fn failed(error: io::Error) -> HandshakeError {
    match error.kind() {
        // What rustls says of the peer, or the peer's alert.
        ErrorKind::InvalidData => HandshakeError::Tls(error),
        ErrorKind::UnexpectedEof => HandshakeError::HungUp,
        _ => HandshakeError::Io(error),
    }
}

async fn read_hello(stream: &mut (impl AsyncRead + Unpin)) -> Result<Hello, HandshakeError> {
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes).await.map_err(failed)?;
    if bytes[..MAGIC.len()] != MAGIC {
        let mut start = [0; 8];
        start.copy_from_slice(&bytes[..8]);
        return Err(HandshakeError::Magic(start));
    }
    Hello::read_from_bytes(&bytes).map_err(|_| HandshakeError::Malformed("it is of another length"))
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), HandshakeError> {
    stream.write_all(bytes).await.map_err(failed)?;
    stream.flush().await.map_err(failed)
}

fn offer(of_kind: u32, purpose: &Purpose, role: Role, config: &Config, own: &Own) -> Hello {
    let mut hello = tollfree_host::offer(of_kind, purpose, role, config, own);
    reduce(&mut hello);
    hello
}

/// Leaves what needs no common memory or kernel.
fn reduce(hello: &mut Hello) {
    hello.area_len_max = 0.into();
    hello.features = (hello.features.get() & FEATURES).into();
}

/// What the peer has said, with a mirror of its region. TLS is still to be taken along.
fn attach(
    purpose: Purpose,
    role: Role,
    theirs: &Hello,
    own: Own,
    config: &Config,
) -> Result<(Attached, Region), HandshakeError> {
    let mut theirs = *theirs;
    reduce(&mut theirs);
    let mut mirror = None;
    let map = |_: usize| {
        let len = RING_OFF + theirs.ring_len.get() as usize;
        let mut region = Region::create("tollfree-mirror", len)?;
        let fd = region.take_fd().ok_or(HandshakeError::Malformed("the mirror has no descriptor"))?;
        mirror = Some(region);
        Ok(PeerRegion::map(fd, len)?)
    };
    let peer = Peer { identity: NOBODY, pidfd: None, shares_clock: false };
    let attached = tollfree_host::attach(purpose, role, &theirs, map, own, peer, config)?;
    mirror.map(|mirror| (attached, mirror)).ok_or(HandshakeError::Malformed("it has no ring"))
}

fn check_protocol(connection: &tokio_rustls::rustls::CommonState) -> Result<(), HandshakeError> {
    match connection.alpn_protocol() {
        Some(PROTOCOL) => Ok(()),
        _ => Err(HandshakeError::Malformed("it doesn't say in TLS that it speaks tollfree-device/1")),
    }
}

/// What a region of this side is called.
fn region_name(role: Role) -> &'static str {
    match role {
        Role::Client => "tollfree-client",
        Role::Server => "tollfree-server",
    }
}

/// The part of the backend. The socket is what the session lives on.
pub(crate) async fn dial(
    address: &StreamAddress,
    certificates: &Certificates,
    config: &Config,
    purpose: Purpose,
) -> Result<(Attached, Box<Seed>, TcpStream), HandshakeError> {
    shaking::within(config.handshake_timeout, async {
        let certificates = certificates.clone();
        let tls = aside(move || certificates.config()).await?;
        let tls = tls.map_err(|error| HandshakeError::Certificates(error.to_string()))?;
        let socket = TcpStream::connect(address.to_connect()).await?;
        socket.set_nodelay(true)?;
        let mut stream = TlsConnector::from(tls).connect(address.name(), socket).await.map_err(failed)?;
        check_protocol(stream.get_ref().1)?;
        let (role, body) = (purpose.role(), purpose.body());
        let own = Own::without_doorbell(region_name(role), config)?;
        let mut hello = offer(purpose.kind(), &purpose, role, config, &own);
        hello.body_len = (body.len() as u32).into();
        send(&mut stream, &[hello.as_bytes(), &body].concat()).await?;
        let answer = read_hello(&mut stream).await?;
        check_answer(&answer)?;
        let (attached, mirror) = attach(purpose, role, &answer, own, config)?;
        let ring = attached.peer_ring;
        let (socket, tls) = stream.into_inner();
        let seed = Seed { tls: Connection::Client(tls), mirror, ring, remote: None, place: None };
        Ok((attached, Box::new(seed), socket))
    })
    .await
}

/// The part of the gateway.
pub(crate) async fn accept(
    socket: TcpStream,
    address: SocketAddr,
    policy: &StreamPolicy,
    config: &Config,
    turn: &Turn,
    places: &Arc<Places>,
) -> Result<(Attached, Box<Seed>, TcpStream), HandshakeError> {
    shaking::within(config.handshake_timeout, async {
        if descriptors_are_short(&socket) {
            return Err(HandshakeError::Descriptors);
        }
        socket.set_nodelay(true)?;
        let shaking = async { TlsAcceptor::from((policy.tls)()).accept(socket).await.map_err(failed) };
        let mut stream = tokio::select! {
            biased;
            shaken = shaking => shaken?,
            refused = turn.refused() => return Err(refused),
        };
        let spoken = async {
            check_protocol(stream.get_ref().1)?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = certificate.ok_or(HandshakeError::NoCertificate)?;
            let subject = (policy.subject)(certificate).ok_or(HandshakeError::NoCertificate)?;
            let purpose = tokio::select! {
                biased;
                asked = ask(&mut stream, config) => asked?,
                refused = turn.refused() => return Err(refused),
            };
            turn.heard();
            let (purpose, hello) = purpose;
            config.check_admitted(Attacher::Remote(&subject, address), &purpose)?;
            let place = places.take(&subject)?;
            let role = match purpose.role() {
                Role::Client => Role::Server,
                Role::Server => Role::Client,
            };
            let own = Own::without_doorbell(region_name(role), config)?;
            let (attached, mirror) = attach(purpose, role, &hello, own, config)?;
            let mut welcome = tollfree_host::welcome(&hello, &attached, config);
            reduce(&mut welcome);
            send(&mut stream, welcome.as_bytes()).await?;
            Ok((attached, mirror, place, RemoteIdentity { subject, address }))
        };
        match spoken.await {
            Ok((attached, mirror, place, remote)) => {
                let ring = attached.peer_ring;
                let (socket, tls) = stream.into_inner();
                let (tls, remote, place) = (Connection::Server(tls), Some(remote), Some(place));
                Ok((attached, Box::new(Seed { tls, mirror, ring, remote, place }), socket))
            }
            Err(error) => {
                // The peer may be gone, or not listening; the error itself is what counts.
                let _ = stream.write_all(refusal(&error).as_bytes()).await;
                let _ = stream.shutdown().await;
                Err(error)
            }
        }
    })
    .await
    // Before the caller is told: who was refused finds it counted.
    .inspect_err(|_| config.refusals.add())
}

/// What the peer wants, all of it.
async fn ask(
    stream: &mut (impl AsyncRead + Unpin),
    config: &Config,
) -> Result<(Purpose, Hello), HandshakeError> {
    let hello = read_hello(stream).await?;
    check_request(&hello, config)?;
    let len = body_len(hello.kind.get(), hello.body_len.get()).map_err(HandshakeError::Malformed)?;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.map_err(failed)?;
    let purpose = Purpose::read(hello.kind.get(), &body).map_err(HandshakeError::Malformed)?;
    Ok((purpose, hello))
}
