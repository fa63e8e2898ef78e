//! The handshake: who is there, what both speak, and each other's region.
//!
//! # States
//! ```text
//! client   connect ─► check server's user ─► !HELLO + fd ─► ?WELCOME + fd ─► check, map ─► attached
//!                                                       └─► ?REFUSAL ─► error in the server's words
//! server   accept ─► check client's user ─► ?HELLO + fd ─► check, map ─► !WELCOME + fd ─► attached
//!                              └────────────────┴─────────────┴─► !REFUSAL with reason and text
//! ```
//! At a shepherd ATTACH or VIA stands for HELLO, with an introduction behind it. The process that says ATTACH is the session's
//! server, and the shepherd its client; all else is as above.
//!
//! # Trust
//! Every number of a message is checked against limits before it is used; descriptors are checked by the region.
//! Whatever else arrives, too late, too early or in excess, ends the handshake and is closed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tollfree_kill_points::{Point, here};
use tollfree_layout::control::RING_OFF;
use tollfree_layout::handshake::{FEATURES, Hello, VERSION_MAX, VERSION_MIN, feature, kind, reason};
use tollfree_layout::limits;
use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::tokio_net::UnixStream;
use tollfree_region::{GivenFd, PeerRegion, Region, RegionError};
use tollfree_rendezvous::socket;
use tollfree_rendezvous::{Doorbell, Liveness, PeerIdentity, descriptors_abound, descriptors_are_short};
use tollfree_ring::Geometry;
use tollfree_session::{Limits, Role};
use zerocopy::IntoBytes;

use crate::admission::{Ledger, Seat};
use crate::clock::now_ns;
use crate::config::Config;
use crate::ends::Ends;
use crate::inbox::Inbox;
use crate::introduction::{Purpose, body_len};
use crate::link::Seed;
use crate::tokens::{Ticket, Token, TokenError};

/// Why two processes did not become a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// No complete message in time.
    #[error("no answer to the handshake within {0:?}: is the server stopped, or not a Tollfree server?")]
    Timeout(Duration),
    /// The peer hung up in the middle.
    #[error("the peer hung up during the handshake")]
    HungUp,
    /// The process that connected, or listened, has ended; a child that it forked keeps its socket open.
    #[error("the peer's process has died, and a process forked from it keeps its socket open")]
    Dead,
    /// Too many clients have connected and said nothing, this one among them, and before others.
    #[error("many clients are connecting at once, and this one has not said anything yet; try again")]
    Crowded,
    /// The client's process or user has all that it may have of this server.
    #[error("{whose} has its {most} {what} (the server's {setting}); try again later")]
    Quota {
        /// Whose.
        whose: &'static str,
        /// What it has.
        what: &'static str,
        /// How many of them it may have.
        most: u64,
        /// What the server's owner can change.
        setting: &'static str,
    },
    /// This process has no descriptors left for another session.
    #[error(
        "the server has no descriptors left for another session; try again later, or raise its limit (ulimit -n)"
    )]
    Descriptors,
    /// The listener was closed before this client had said anything.
    #[error("the server is shutting down")]
    Closing,
    /// The peer speaks HTTP/2.
    #[error(
        "the peer speaks HTTP/2: one side has a shm: address and the other a unix: one for the same socket"
    )]
    Http2,
    /// The peer speaks something else.
    #[error("the peer does not speak Tollfree's handshake (its message begins with {0:02x?})")]
    Magic([u8; 8]),
    /// A message that makes no sense at this point.
    #[error("the peer's handshake is malformed: {0}")]
    Malformed(&'static str),
    /// No version in common.
    #[error(
        "no protocol version in common: the peer speaks {theirs_min} to {theirs_max}, this side {VERSION_MIN} to {VERSION_MAX}"
    )]
    Version {
        /// Oldest the peer speaks.
        theirs_min: u16,
        /// Newest the peer speaks.
        theirs_max: u16,
    },
    /// The peer insists on features that are not known here.
    #[error("the peer requires features {0:#x} that this side does not know")]
    Feature(u64),
    /// The peer's user is not allowed.
    #[error("{}", user_words(*uid, policy, *here))]
    User {
        /// Who it is.
        uid: u32,
        /// The policy in words.
        policy: &'static str,
        /// Who doesn't allow it: this side.
        here: Role,
    },
    /// The peer's region or this side's was no good.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A size in the message is outside the protocol's limits.
    #[error("the peer announces {what} of {value}, which the protocol does not allow")]
    Size {
        /// Which.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// The client presents a token that is not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// TLS says that the peer is not what its certificate, or its records, have to show.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// A file of this process's certificates can't be used.
    #[error("{0}")]
    Certificates(String),
    /// The peer's certificate names nobody, or there is none.
    #[error("the peer's certificate names nobody who may attach")]
    NoCertificate,
    /// The server has not answered the token.
    #[error("the server has not answered the token that it was shown")]
    NoAnswer,
    /// The client wants a shepherd.
    #[error(
        "no shepherd listens at this socket, but a server; give Server::attach and Channel::via that of a shepherd"
    )]
    NoShepherd,
    /// The client wants a server.
    #[error("a shepherd listens at this socket; reach it by Server::attach, or by Channel::via")]
    Shepherd,
    /// The peer declined.
    #[error("the server refused: {text}")]
    Refused {
        /// One of [`reason`].
        reason: u32,
        /// The peer's words.
        text: String,
    },
}

impl HandshakeError {
    /// What to tell the peer: one of [`reason`].
    fn reason(&self) -> u32 {
        match self {
            HandshakeError::Version { .. } => reason::VERSION,
            HandshakeError::Feature(_) => reason::FEATURE,
            HandshakeError::User { .. } | HandshakeError::NoCertificate => reason::USER,
            HandshakeError::Region(error) if error.is_peer_fault() => reason::REGION,
            HandshakeError::Size { .. } => reason::REGION,
            HandshakeError::Token(TokenError::Random(_)) => reason::BUSY,
            HandshakeError::Token(TokenError::Ends(_)) => reason::ENDS,
            HandshakeError::Token(_) => reason::TOKEN,
            HandshakeError::Region(_)
            | HandshakeError::Io(_)
            | HandshakeError::Crowded
            | HandshakeError::Quota { .. }
            | HandshakeError::Descriptors
            | HandshakeError::Closing => reason::BUSY,
            _ => reason::MALFORMED,
        }
    }

    /// Whether the same attempt may work later, without anybody changing anything but load.
    pub fn is_transient(&self) -> bool {
        match self {
            HandshakeError::Io(_)
            | HandshakeError::Timeout(_)
            | HandshakeError::HungUp
            | HandshakeError::Crowded
            | HandshakeError::Quota { .. }
            | HandshakeError::Descriptors
            | HandshakeError::Closing
            | HandshakeError::Dead => true,
            HandshakeError::Region(error) => error.is_exhausted(),
            HandshakeError::Refused { reason, .. } => *reason == reason::BUSY,
            _ => false,
        }
    }
}

/// A client at a server, before its session.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) heard: AtomicBool,
    closing: AtomicBool,
    ended: Notify,
}

/// Why a client that has said nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Others want its place.
    Crowded,
    /// The listener closes.
    Closing,
}

impl Turn {
    /// Whether the client has not said HELLO yet, all of it.
    pub(crate) fn is_silent(&self) -> bool {
        !self.heard.load(Ordering::Relaxed)
    }

    /// Refuses the client, unless it has said HELLO meanwhile.
    pub(crate) fn end(&self, why: Ended) {
        self.closing.fetch_or(why == Ended::Closing, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Resolves when it is to be refused.
    pub(crate) async fn refused(&self) -> HandshakeError {
        self.ended.notified().await;
        if self.closing.load(Ordering::Relaxed) { HandshakeError::Closing } else { HandshakeError::Crowded }
    }
}

/// What a peer says about pools, compared with this side's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPool {
    /// One side or both are members of none.
    None,
    /// The two are members of different pools.
    Other,
    /// They are members of the same: messages may be ropes.
    Same,
}

/// What a handshake came to.
pub(crate) struct Attached {
    pub(crate) role: Role,
    /// What the one that connected wants.
    pub(crate) purpose: Purpose,
    pub(crate) own: Own,
    pub(crate) peer: PeerRegion,
    pub(crate) peer_ring: Geometry,
    pub(crate) peer_limits: Limits,
    pub(crate) peer_area_len_max: usize,
    /// What to add to the peer's clock to get this side's, in nanoseconds.
    pub(crate) clock_shift_ns: i64,
    /// Both sides have the feature LOAD.
    pub(crate) shares_load: bool,
    /// Each side gives the other a doorbell: this one has, and the other's is on its way.
    pub(crate) gives_doorbells: bool,
    /// The server's answer to the token, where one was presented.
    pub(crate) answer: Option<Token>,
    pub(crate) peer_pool: PeerPool,
    /// Both sides have the feature LENDING.
    pub(crate) lends: bool,
    pub(crate) agent: String,
    pub(crate) identity: PeerIdentity,
    /// Where the two are on different hosts: how they are connected.
    pub(crate) link: Option<Box<Seed>>,
    /// A server's: the client's place, which ends with the session.
    pub(crate) seat: Option<Seat>,
    /// Becomes readable when the peer's process has ended.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// What this side brings into a session.
pub(crate) struct Own {
    pub(crate) region: Region,
    pub(crate) ring: Geometry,
    /// Missing where the system has none to give; the session does without then.
    pub(crate) doorbell: Option<Doorbell>,
}

/// This side's name, for the peer's logs and headers: the application's, if it has one, and the library's.
fn agent(config: &Config) -> String {
    let library = format!("tollfree-rust/{}", env!("CARGO_PKG_VERSION"));
    config.agent.iter().map(|agent| format!("{agent} ")).chain([library]).collect()
}

/// The part of the side that connects, on a connected socket. A ticket that is presented has to be answered.
pub(crate) async fn connect(
    stream: &UnixStream,
    config: &Config,
    purpose: &Purpose,
    ticket: Option<&Ticket>,
) -> Result<Attached, HandshakeError> {
    let (role, body) = (purpose.role(), purpose.body());
    within(config.handshake_timeout, async {
        let identity = check_user(stream, config, role)?;
        let peer = Peer { identity, pidfd: watch(stream, identity)?, shares_clock: true };
        let own =
            Own::make(if role == Role::Client { "tollfree-client" } else { "tollfree-server" }, config)?;
        let mut hello = offer(purpose.kind(), purpose, role, config, &own);
        hello.body_len = (body.len() as u32).into();
        if let Some(ticket) = ticket {
            put_token(&mut hello, &ticket.token);
            if let Some(ends) = ticket.ends {
                ends.put(&mut hello);
            }
            // A server that knows no tokens is not the one that gave this.
            hello.required = feature::UPGRADE.into();
        }
        // A server that refuses at first sight may have hung up by now, and its words lie in the socket.
        let sent = match send(stream, &[hello.as_bytes(), &body].concat(), own.region.fd()).await {
            Err(HandshakeError::Io(error)) if socket::is_stall(&error) => return Err(error.into()),
            sent => sent,
        };
        here(Point::HandshakeSent);
        let mut inbox = Inbox::new();
        match (inbox.recv(stream).await, sent) {
            (Ok(()), _) => {}
            (Err(HandshakeError::HungUp), Err(error)) => return Err(error),
            (Err(error), _) => return Err(error),
        }
        let (answer, fd) = inbox.take();
        check_answer(&answer)?;
        let answered = ticket.and_then(|_| token_of(&answer));
        if ticket.is_some() && answered.is_none() {
            return Err(HandshakeError::NoAnswer);
        }
        let attached = attach(purpose.clone(), role, &answer, region_of(fd)?, own, peer, config)?;
        match give_doorbell(stream, &attached).await {
            // A session that the server has ended by now is one nevertheless. What the server said before is in its ring: that it takes no
            // more calls, for example, which is how a session ends whose greatest age is short.
            Err(HandshakeError::Io(error)) if has_hung_up(&error) => {}
            given => given?,
        }
        Ok(Attached { answer: answered, ..attached })
    })
    .await
}

/// Whether a peer has closed its end.
fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The part of the side that listens, on an accepted socket. The client is told of every error that it can do something about.
pub(crate) async fn accept(
    stream: &UnixStream,
    config: &Config,
    turn: &Turn,
    ledger: &Arc<Ledger>,
) -> Result<Attached, HandshakeError> {
    let result = within(config.handshake_timeout, async {
        let identity = check_user(stream, config, Role::Server)?;
        if descriptors_are_short(stream) {
            return Err(HandshakeError::Descriptors);
        }
        let mut inbox = Inbox::new();
        hear(&mut inbox, stream, turn).await?;
        let hello = inbox.hello();
        check_request(&hello, config)?;
        let body_len = body_len(hello.kind.get(), hello.body_len.get()).map_err(HandshakeError::Malformed)?;
        inbox.expect(body_len);
        hear(&mut inbox, stream, turn).await?;
        turn.heard.store(true, Ordering::Relaxed);
        let purpose = Purpose::read(hello.kind.get(), inbox.body()).map_err(HandshakeError::Malformed)?;
        let (_, fd) = inbox.take();
        let peer = Peer { identity, pidfd: watch(stream, identity)?, shares_clock: true };
        let mut seat = ledger.admit(identity, peer.pidfd.as_ref())?;
        let answer = redeem(&hello, config)?;
        let (name, role) = match purpose.role() {
            Role::Client => ("tollfree-server", Role::Server),
            Role::Server => ("tollfree-client", Role::Client),
        };
        let own = Own::make(name, config)?;
        seat.made(tollfree_region::ReadMemory::len(&own.region));
        let attached = attach(purpose, role, &hello, region_of(fd)?, own, peer, config)?;
        let mut welcome = offer(kind::WELCOME, &attached.purpose, role, config, &attached.own);
        welcome.version_min = VERSION_MAX.min(hello.version_max.get()).into();
        welcome.version_max = welcome.version_min;
        if let Some(answer) = &answer {
            put_token(&mut welcome, answer);
        }
        send(stream, welcome.as_bytes(), attached.own.region.fd()).await?;
        here(Point::HandshakeSent);
        give_doorbell(stream, &attached).await?;
        Ok(Attached { answer, seat: Some(seat), ..attached })
    })
    .await;
    if let Err(error) = &result {
        // Before the client is told: who was refused finds it counted.
        config.refusals.add();
        // The client may be gone, or not listening; the error itself is what counts.
        let _ = socket::send(stream, refusal(error).as_bytes(), None);
    }
    result
}

/// What a client is told of an error.
pub(crate) fn refusal(error: &HandshakeError) -> Hello {
    let mut refusal = Hello::new(kind::REFUSAL);
    refusal.reason = error.reason().into();
    refusal.set_text(&told_to_client(error));
    refusal
}

/// Waits for what is expected. What has come may lie there when the client's turn is over, and nobody has had the time to look.
async fn hear(inbox: &mut Inbox, stream: &UnixStream, turn: &Turn) -> Result<(), HandshakeError> {
    let refused = tokio::select! {
        biased;
        received = inbox.recv(stream) => return received,
        refused = turn.refused() => refused,
    };
    if inbox.look(stream)? { Ok(()) } else { Err(refused) }
}

/// A server's error in words for its client, who is not the peer of itself.
fn told_to_client(error: &HandshakeError) -> String {
    error.to_string().replace("the peer", "the client").replace("this side", "the server")
}

fn user_words(uid: u32, policy: &str, here: Role) -> String {
    match here {
        Role::Client => format!(
            "the server runs as user {uid}, and this client trusts {policy}: ChannelBuilder::peers says whom else"
        ),
        Role::Server => {
            format!(
                "the peer runs as user {uid}, and this server lets in {policy}: Server::peers says whom else"
            )
        }
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    steps: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    tokio::time::timeout(limit, steps).await.unwrap_or(Err(HandshakeError::Timeout(limit)))
}

/// What is known of the peer's process without its saying so.
pub(crate) struct Peer {
    pub(crate) identity: PeerIdentity,
    /// Where there is one.
    pub(crate) pidfd: Option<OwnedFd>,
    /// It is on this host.
    pub(crate) shares_clock: bool,
}

fn check_user(stream: &UnixStream, config: &Config, here: Role) -> Result<PeerIdentity, HandshakeError> {
    let identity = PeerIdentity::of(stream)?;
    if !config.peers.allows(identity.uid) {
        return Err(HandshakeError::User { uid: identity.uid, policy: config.peers.words(), here });
    }
    Ok(identity)
}

fn watch(stream: &UnixStream, identity: PeerIdentity) -> Result<Option<OwnedFd>, HandshakeError> {
    match Liveness::of(stream, identity.pid) {
        Liveness::Dead => Err(HandshakeError::Dead),
        Liveness::Watched(pidfd) => Ok(Some(pidfd)),
        Liveness::Unknown => Ok(None),
    }
}

/// Whether a session could have its region now.
pub(crate) fn check_memory(config: &Config) -> Result<(), RegionError> {
    Own::make("tollfree-trial", config).map(drop)
}

impl Own {
    fn make(name: &str, config: &Config) -> Result<Own, RegionError> {
        let ring_len = config.ring_len.clamp(limits::RING_LEN_MIN, limits::RING_LEN_MAX).next_power_of_two();
        let ring = Geometry::new(RING_OFF, ring_len).expect("clamped to a power of two within limits");
        let region = Region::create(name, RING_OFF + ring_len)?;
        here(Point::RegionMade);
        // It saves a little time, and costs each side two descriptors: not while they run out.
        let doorbell = descriptors_abound(region.fd()).then(Doorbell::new);
        if let Some(Err(error)) = &doorbell {
            tracing::debug!(%error, "no doorbell of its own: the session's is the socket");
        }
        Ok(Own { region, ring, doorbell: doorbell.and_then(Result::ok) })
    }

    /// What a session over a stream needs.
    #[cfg(feature = "tls")]
    pub(crate) fn without_doorbell(name: &str, config: &Config) -> Result<Own, RegionError> {
        Ok(Own { doorbell: None, ..Own::make(name, config)? })
    }

    /// The features that this side wants to be in force.
    fn features(&self, config: &Config, purpose: &Purpose) -> u64 {
        let load = if config.load { feature::LOAD } else { 0 };
        let pool = if config.pool.is_some() { feature::POOL } else { 0 };
        let doorbell = if self.doorbell.is_some() { feature::DOORBELL } else { 0 };
        // Nobody but a shepherd lends, to those that attach.
        let lends = config.lending && matches!(purpose, Purpose::Attach(_));
        let lending = if lends { feature::LENDING } else { 0 };
        load | pool | doorbell | lending
    }
}

pub(crate) fn offer(kind: u32, purpose: &Purpose, role: Role, config: &Config, own: &Own) -> Hello {
    let mut hello = Hello::new(kind);
    hello.region_len = (tollfree_region::ReadMemory::len(&own.region) as u32).into();
    hello.ring_len = (own.ring.ring_len as u32).into();
    hello.stream_window = config.limits.stream_window.into();
    hello.session_window = config.limits.session_window.into();
    hello.stream_count = if role == Role::Server { config.limits.stream_count } else { 0 }.into();
    hello.area_len_max = (limits::AREA_LEN_MAX as u32).into();
    hello.metadata_len_max = (config.limits.metadata_len_max as u32).into();
    hello.features = own.features(config, purpose).into();
    hello.pool = config.pool.unwrap_or_default();
    hello.set_text(&agent(config));
    hello.clock_ns = now_ns().into();
    hello
}

const ANOTHER_KIND: HandshakeError = HandshakeError::Malformed("a message of another kind was expected");

fn check_versions(hello: &Hello) -> Result<(), HandshakeError> {
    let (min, max) = (hello.version_min.get(), hello.version_max.get());
    if min > max || min > VERSION_MAX || max < VERSION_MIN {
        return Err(HandshakeError::Version { theirs_min: min, theirs_max: max });
    }
    Ok(())
}

/// Whether a client may ask this here.
fn check_kind(asked: u32, config: &Config) -> Result<(), HandshakeError> {
    match (asked, config.is_shepherd) {
        (kind::HELLO, false) | (kind::ATTACH | kind::VIA, true) => Ok(()),
        (kind::HELLO, true) => Err(HandshakeError::Shepherd),
        (kind::ATTACH | kind::VIA, false) => Err(HandshakeError::NoShepherd),
        _ => Err(ANOTHER_KIND),
    }
}

/// Whether a client's request can be answered.
pub(crate) fn check_request(hello: &Hello, config: &Config) -> Result<(), HandshakeError> {
    check_versions(hello)?;
    check_kind(hello.kind.get(), config)?;
    check_required(hello)
}

/// Whether a server's answer is a WELCOME that can be meant.
pub(crate) fn check_answer(answer: &Hello) -> Result<(), HandshakeError> {
    if answer.kind.get() == kind::REFUSAL {
        return Err(HandshakeError::Refused { reason: answer.reason.get(), text: answer.text() });
    }
    check_versions(answer)?;
    if answer.kind.get() != kind::WELCOME {
        return Err(ANOTHER_KIND);
    }
    check_required(answer)
}

fn check_required(hello: &Hello) -> Result<(), HandshakeError> {
    match hello.required.get() & !FEATURES {
        0 => Ok(()),
        unknown => Err(HandshakeError::Feature(unknown)),
    }
}

/// Puts a token, or the answer to one, into a message.
fn put_token(hello: &mut Hello, token: &Token) {
    hello.features = (hello.features.get() | feature::UPGRADE).into();
    hello.token = *token.bytes();
}

/// The token, or the answer, that a message brings.
fn token_of(hello: &Hello) -> Option<Token> {
    (hello.features.get() & feature::UPGRADE != 0).then(|| Token::from(hello.token))
}

/// The answer to the token that a client presents, if it does.
fn redeem(hello: &Hello, config: &Config) -> Result<Option<Token>, TokenError> {
    let Some(token) = token_of(hello) else { return Ok(None) };
    match &config.tokens {
        Some(tokens) => tokens.redeem(&Ticket { token, ends: Ends::of(hello) }).map(Some),
        None => Err(TokenError::NoneGiven),
    }
}

/// The region that came as a descriptor, to be mapped once all that was said of it has been checked.
fn region_of(
    fd: Option<GivenFd>,
) -> Result<impl FnOnce(usize) -> Result<PeerRegion, HandshakeError>, HandshakeError> {
    let fd = fd.ok_or(HandshakeError::Malformed("it came without the descriptor of a region"))?;
    Ok(|region_len| Ok(PeerRegion::map(fd, region_len)?))
}

/// Checks what the peer has said, and has its region mapped, of the length that it has.
pub(crate) fn attach(
    purpose: Purpose,
    role: Role,
    theirs: &Hello,
    map: impl FnOnce(usize) -> Result<PeerRegion, HandshakeError>,
    own: Own,
    Peer { identity, pidfd, shares_clock }: Peer,
    config: &Config,
) -> Result<Attached, HandshakeError> {
    let received_ns = now_ns();
    let size = |what, value: u32, min: usize, max: usize| match value as usize {
        len if (min..=max).contains(&len) => Ok(len),
        _ => Err(HandshakeError::Size { what, value: value.into() }),
    };
    let ring_len = size("a ring", theirs.ring_len.get(), limits::RING_LEN_MIN, limits::RING_LEN_MAX)?;
    let region_len = size("a region", theirs.region_len.get(), RING_OFF + ring_len, limits::REGION_LEN_MAX)?;
    let area_len_max = size("a longest payload area", theirs.area_len_max.get(), 0, u32::MAX as usize)?;
    let metadata_len_max =
        size("a longest metadata block", theirs.metadata_len_max.get(), 256, u32::MAX as usize)?;
    for (what, window) in
        [("a stream window", theirs.stream_window), ("a session window", theirs.session_window)]
    {
        if window.get() < tollfree_session::STREAM_WINDOW_MIN {
            return Err(HandshakeError::Size { what, value: window.get() });
        }
    }
    if role == Role::Client && theirs.stream_count.get() == 0 {
        return Err(HandshakeError::Size { what: "a limit (0 calls at once)", value: 0 });
    }
    let peer_ring = Geometry::new(RING_OFF, ring_len)
        .map_err(|_| HandshakeError::Size { what: "a ring", value: ring_len as u64 })?;
    let peer = map(region_len)?;
    here(Point::PeerMapped);
    let peer_limits = Limits {
        stream_window: theirs.stream_window.get(),
        session_window: theirs.session_window.get(),
        stream_count: theirs.stream_count.get(),
        metadata_len_max: metadata_len_max.min(limits::METADATA_LEN_MAX),
    };
    let in_force = theirs.features.get() & own.features(config, &purpose);
    Ok(Attached {
        role,
        purpose,
        own,
        peer,
        peer_ring,
        peer_limits,
        peer_area_len_max: area_len_max.min(limits::AREA_LEN_MAX),
        clock_shift_ns: match shares_clock {
            true => clock_shift(theirs.clock_ns.get(), received_ns),
            false => received_ns.wrapping_sub(theirs.clock_ns.get()) as i64,
        },
        shares_load: in_force & feature::LOAD != 0,
        gives_doorbells: in_force & feature::DOORBELL != 0,
        answer: None,
        lends: in_force & feature::LENDING != 0,
        peer_pool: match config.pool {
            Some(own) if theirs.features.get() & feature::POOL != 0 => {
                if theirs.pool == own {
                    PeerPool::Same
                } else {
                    PeerPool::Other
                }
            }
            _ => PeerPool::None,
        },
        agent: theirs.text(),
        identity,
        link: None,
        seat: None,
        pidfd,
    })
}

/// Two processes of one host usually share one monotonic clock; in different time namespaces they don't. A message
/// that is not older than a handshake may be says which, and then by how much the clocks differ.
fn clock_shift(theirs_ns: u64, received_ns: u64) -> i64 {
    const SAME_CLOCK_NS: u64 = 10_000_000_000;
    match received_ns.checked_sub(theirs_ns) {
        Some(age) if age < SAME_CLOCK_NS => 0,
        _ => received_ns.wrapping_sub(theirs_ns) as i64,
    }
}

/// Times, about a millisecond apart, that a message is sent again for which the kernel has no memory, or too many descriptors on
/// their way.
const STALL_COUNT_MAX: u32 = 500;

async fn send(stream: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) -> Result<(), HandshakeError> {
    let mut stall_count = 0;
    loop {
        match socket::send(stream, bytes, Some(fd)) {
            Ok(true) => return Ok(()),
            // A fresh socket has room for one message; waiting here is for a peer that has filled it on purpose.
            Ok(false) => stream.writable().await?,
            Err(error) if socket::is_stall(&error) && stall_count < STALL_COUNT_MAX => stall_count += 1,
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The first word after the handshake, where both sides give doorbells.
async fn give_doorbell(stream: &UnixStream, attached: &Attached) -> Result<(), HandshakeError> {
    if let Some(doorbell) = &attached.own.doorbell
        && attached.gives_doorbells
    {
        send(stream, b"d", doorbell.as_fd()).await?;
        here(Point::DoorbellGiven);
    }
    Ok(())
}
