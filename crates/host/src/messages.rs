//! What the two messages say: this side's, and whether the peer's can be meant.

use std::io;
use std::sync::Arc;

use tollfree_connection::{AreaAllowance, Setup, WaitHints, WaitPolicy};
use tollfree_kill_points::{Point, here};
use tollfree_layout::control::RING_OFF;
use tollfree_layout::handshake::{FEATURES, Hello, VERSION_MAX, VERSION_MIN, feature, kind};
use tollfree_layout::limits;
use tollfree_os::clock::now_ns;
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_region::{GivenFd, PeerRegion, Region, RegionError};
use tollfree_rendezvous::{Doorbell, Liveness, PeerIdentity, descriptors_abound};
use tollfree_ring::Geometry;
use tollfree_session::{Limits, Recording, Role};

use crate::admission::Seat;
use crate::config::{Accepts, Config};
use crate::ends::Ends;
use crate::error::HandshakeError;
use crate::mail::{Mail, Step};
use crate::registration::Purpose;
use crate::tokens::{Ticket, Token, TokenError};

/// What a peer says about pools, compared with this side's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPool {
    /// One side or both are members of none.
    None,
    /// The two are members of different pools.
    Other,
    /// They are members of the same: messages may be segmented messages.
    Same,
}

/// What a handshake came to.
#[derive(Debug)]
pub struct Attached {
    /// Which end of the session this is.
    pub role: Role,
    /// What the process that connected wants.
    pub purpose: Purpose,
    /// This side's part.
    pub own: Own,
    /// The peer's region.
    pub peer: PeerRegion,
    /// The ring in it.
    pub peer_ring: Geometry,
    /// What the peer takes.
    pub peer_limits: Limits,
    /// The longest payload area that the peer takes, in bytes; 0: none.
    pub peer_area_len_max: usize,
    /// What to add to the peer's clock to get this side's, in nanoseconds.
    pub clock_shift_ns: i64,
    /// Both sides have the feature LOAD.
    pub shares_load: bool,
    /// Each side gives the other a doorbell: this one has, and the other's is on its way.
    pub gives_doorbells: bool,
    /// The server's answer to the token, where one was presented.
    pub answer: Option<Token>,
    /// Whether both are members of one pool.
    pub peer_pool: PeerPool,
    /// Both sides have the feature LENDING.
    pub lends: bool,
    /// What the peer calls itself.
    pub agent: String,
    /// Who the peer is, as the kernel says.
    pub identity: PeerIdentity,
    /// A server's: the client's place, which ends with the session.
    seat: Option<Seat>,
    /// Becomes readable when the peer's process has ended.
    pidfd: Option<OwnedFd>,
}

impl Attached {
    /// The first word after the handshake, where both sides give doorbells.
    pub(crate) fn doorbell_mail(&self) -> Option<Mail> {
        (self.gives_doorbells && self.own.doorbell.is_some()).then(|| Mail::new(b"d".to_vec()))
    }

    /// Sends it.
    pub(crate) fn give_doorbell(&self, mail: &mut Mail, socket: impl AsFd) -> io::Result<Step<()>> {
        let Some(doorbell) = &self.own.doorbell else { return Ok(Step::Done(())) };
        let step = mail.step(socket, doorbell.as_fd())?;
        if matches!(step, Step::Done(())) {
            here(Point::DoorbellGiven);
        }
        Ok(step)
    }

    /// The server has answered a token so.
    pub(crate) fn answered(self, answer: Option<Token>) -> Attached {
        Attached { answer, ..self }
    }

    /// This side is the server: it answers a token so, and the client has this place.
    pub(crate) fn answering(self, answer: Option<Token>, seat: Seat) -> Attached {
        Attached { answer, seat: Some(seat), ..self }
    }

    /// This side's doorbell, where both sides give one: for the driver to watch.
    pub fn take_doorbell(&mut self) -> Option<Doorbell> {
        self.own.doorbell.take().filter(|_| self.gives_doorbells)
    }

    /// Becomes readable when the peer's process has ended: for the driver to watch.
    pub fn take_pidfd(&mut self) -> Option<OwnedFd> {
        self.pidfd.take()
    }

    /// What a connection is made of; `over_stream`: the peer is on another host, and nobody looks.
    pub fn setup(self, config: &Config, over_stream: bool) -> Setup {
        let mut own = self.own.region;
        // The peer has mapped it by now; the mapping stays without a descriptor.
        own.take_fd();
        // The gateway asks, for it is the client; the process that has attached goes by it.
        let hints = match (&self.purpose, self.role) {
            (Purpose::Attach(_), Role::Client) => WaitHints::Given,
            (Purpose::Attach(_), Role::Server) if !over_stream => WaitHints::Taken,
            _ => WaitHints::None,
        };
        let setup = Setup {
            role: self.role,
            policy: config.wait,
            gathers: config.accepts == Accepts::Backends && config.wait != WaitPolicy::LowLatency,
            limits: config.limits,
            peer_limits: self.peer_limits,
            segmented_messages: self.lends || self.peer_pool == PeerPool::Same,
            own: Arc::new(own),
            own_ring: self.own.ring,
            peer: Arc::new(self.peer),
            peer_ring: self.peer_ring,
            area_len: config.area_len,
            peer_area_len_max: self.peer_area_len_max,
            area_idle_ns: config.area_idle.as_nanos().try_into().unwrap_or(u64::MAX),
            allowance: self.seat.map(|seat| Box::new(seat) as Box<dyn AreaAllowance>),
            hints,
            recording: Recording::off(),
        };
        #[cfg(all(feature = "events", target_os = "linux"))]
        let setup = Setup { recording: crate::recording::begin(&setup, self.identity, &self.agent), ..setup };
        setup
    }
}

/// What this side brings into a session.
#[derive(Debug)]
pub struct Own {
    /// What the peer maps.
    pub region: Region,
    /// The ring in it.
    pub ring: Geometry,
    /// Missing where the system has none to give; the session does without then.
    doorbell: Option<Doorbell>,
}

/// This side's name, for the peer's logs and headers: the application's, if it has one, and the library's.
fn agent(config: &Config) -> String {
    let library = format!("tollfree-rust/{}", env!("CARGO_PKG_VERSION"));
    config.agent.iter().map(|agent| format!("{agent} ")).chain([library]).collect()
}

/// What a client is told of an error.
pub fn refusal(error: &HandshakeError) -> Hello {
    let mut refusal = Hello::new(kind::REFUSAL);
    refusal.reason = error.reason().into();
    refusal.set_text(&told_to_client(error));
    refusal
}

/// A server's error in words for its client, who is not the peer of itself.
fn told_to_client(error: &HandshakeError) -> String {
    error.to_string().replace("the peer", "the client").replace("this side", "the server")
}

/// What is known of the peer's process without its saying so.
#[derive(Debug)]
pub struct Peer {
    /// Who it is, as the kernel says.
    pub identity: PeerIdentity,
    /// Where there is one.
    pub pidfd: Option<OwnedFd>,
    /// It is on this host.
    pub shares_clock: bool,
}

pub(crate) fn check_user(
    stream: impl AsFd,
    config: &Config,
    here: Role,
) -> Result<PeerIdentity, HandshakeError> {
    let identity = PeerIdentity::of(&stream)?;
    if !config.peers.allows(identity.uid) {
        // A gateway's users are named by its config, and not by a program.
        if (here, config.accepts) == (Role::Server, Accepts::Backends) {
            let words = format!("user {} is in no group's users in the gateway's config", identity.uid);
            return Err(HandshakeError::NotAdmitted(words));
        }
        return Err(HandshakeError::User { uid: identity.uid, policy: config.peers.words(), here });
    }
    Ok(identity)
}

pub(crate) fn watch(stream: impl AsFd, identity: PeerIdentity) -> Result<Option<OwnedFd>, HandshakeError> {
    match Liveness::of(&stream, identity.pid) {
        Liveness::Dead => Err(HandshakeError::Dead),
        Liveness::Watched(pidfd) => Ok(Some(pidfd)),
        Liveness::Unknown => Ok(None),
    }
}

/// Whether a session could have its region now.
pub fn check_memory(config: &Config) -> Result<(), RegionError> {
    Own::make("tollfree-trial", config).map(drop)
}

impl Own {
    pub(crate) fn make(name: &str, config: &Config) -> Result<Own, RegionError> {
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
    pub fn without_doorbell(name: &str, config: &Config) -> Result<Own, RegionError> {
        Ok(Own { doorbell: None, ..Own::make(name, config)? })
    }

    /// The features that this side wants to be in force.
    fn features(&self, config: &Config, purpose: &Purpose) -> u64 {
        let load = if config.load { feature::LOAD } else { 0 };
        let pool = if config.pool.is_some() { feature::POOL } else { 0 };
        let doorbell = if self.doorbell.is_some() { feature::DOORBELL } else { 0 };
        // Only a gateway lends, to processes that attach.
        let lends = config.lending && matches!(purpose, Purpose::Attach(_));
        let lending = if lends { feature::LENDING } else { 0 };
        load | pool | doorbell | lending
    }
}

/// What this side says of itself, in a message of this kind.
pub fn offer(kind: u32, purpose: &Purpose, role: Role, config: &Config, own: &Own) -> Hello {
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
    match (asked, config.accepts) {
        (kind::HELLO, Accepts::Callers) | (kind::ATTACH | kind::VIA, Accepts::Backends) => Ok(()),
        (kind::HELLO, Accepts::Backends) => Err(HandshakeError::Gateway),
        (kind::ATTACH | kind::VIA, Accepts::Callers) => Err(HandshakeError::NoGateway),
        _ => Err(ANOTHER_KIND),
    }
}

/// Whether a client's request can be answered.
pub fn check_request(hello: &Hello, config: &Config) -> Result<(), HandshakeError> {
    check_versions(hello)?;
    check_kind(hello.kind.get(), config)?;
    check_required(hello)
}

/// Whether a server's answer is a WELCOME that can be meant.
pub fn check_answer(answer: &Hello) -> Result<(), HandshakeError> {
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
pub(crate) fn put_token(hello: &mut Hello, token: &Token) {
    hello.features = (hello.features.get() | feature::UPGRADE).into();
    hello.token = *token.bytes();
}

/// The token, or the answer, that a message brings.
pub(crate) fn token_of(hello: &Hello) -> Option<Token> {
    (hello.features.get() & feature::UPGRADE != 0).then(|| Token::from(hello.token))
}

/// The answer to the token that a client presents, if it does.
pub(crate) fn redeem(hello: &Hello, config: &Config) -> Result<Option<Token>, TokenError> {
    let Some(token) = token_of(hello) else { return Ok(None) };
    match &config.tokens {
        Some(tokens) => tokens.redeem(&Ticket { token, ends: Ends::of(hello) }).map(Some),
        None => Err(TokenError::NoneGiven),
    }
}

/// The region that came as a descriptor, to be mapped once all that was said of it has been checked.
pub(crate) fn region_of(
    fd: Option<GivenFd>,
) -> Result<impl FnOnce(usize) -> Result<PeerRegion, HandshakeError>, HandshakeError> {
    let fd = fd.ok_or(HandshakeError::Malformed("it came without the descriptor of a region"))?;
    Ok(|region_len| Ok(PeerRegion::map(fd, region_len)?))
}

/// Checks what the peer has said, and has its region mapped, of the length that it has.
pub fn attach(
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

/// The server's answer to a request that can be answered.
pub fn welcome(request: &Hello, attached: &Attached, config: &Config) -> Hello {
    let mut welcome = offer(kind::WELCOME, &attached.purpose, attached.role, config, &attached.own);
    welcome.version_min = VERSION_MAX.min(request.version_max.get()).into();
    welcome.version_max = welcome.version_min;
    welcome
}
