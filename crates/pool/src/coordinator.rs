//! The coordinator: one thread that deals out capacity and passes descriptors on. It touches no page.
//!
//! # Trust
//! It reads and writes no member's memory, and a member can make it do no more than its own requests are worth: one answer
//! each, and no more of them read while answers wait. A member that says what no member says is hung up on, and nobody else for
//! it. What others make it say to a member that doesn't read is bounded (`capacity_shares/mapping.rs`).
//!
//! # Crash
//! It keeps nothing that its members don't know: one that is started at the same address, after it died or was stopped,
//! learns its extents and who maps them from members that come back, and goes on. A pool's name follows from where its
//! coordinator listens (`greet.rs`), so that both give it the same.
//!
//! A member whose connection is lost is not dead: it is watched by a pidfd, which the kernel gave for its first connection.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollfree_layout::MemberIdx;
use tollfree_layout::pool::{POOL_ID_LEN, PoolMessage, SECRET_LEN, pool_kind, pool_reason};
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::event::{EventfdFlags, PollFd, PollFlags};
use tollfree_os::unix::net::UnixStream;
use tollfree_region::GivenFd;
use tollfree_rendezvous::{Address, PeerIdentity, PeerPolicy, RateLimitedLog, Rendezvous, socket};

use crate::agent::timespec;
use crate::config::Capacity;
use crate::error::JoinError;
use crate::handshake::name_at;
use crate::invitation::{Inviter, random};
use crate::link::{Came, Inbox, post};
use crate::membership::{DeskIdx, FirstWord, Kernel, Membership, Process};

/// How long a connection may take to join: it says JOIN as soon as it is connected.
const JOIN_LIMIT: Duration = Duration::from_secs(2);
/// Messages of a member that are read before others have their turn.
const MESSAGE_COUNT: usize = 64;
/// Connections at a time that haven't joined yet; for a further one the oldest gives way.
const NEWCOMER_COUNT_MAX: usize = 64;
/// Answers that wait for a member before no more of its requests are read.
const BACKLOG_MAX: usize = 64;

/// What a member does that is logged.
static VIOLATED: RateLimitedLog = RateLimitedLog::new();
static NOT_ACCEPTED: RateLimitedLog = RateLimitedLog::new();

/// A running coordinator. Stops when it is dropped; members keep what they have.
#[derive(Debug)]
pub struct Coordinator {
    stop: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Coordinator {
    /// Binds an address and coordinates a pool there, on a thread of its own.
    ///
    /// # Errors
    /// [`JoinError::Bind`], [`JoinError::Settings`], [`JoinError::System`].
    pub fn start(address: &Address, capacity: Capacity) -> Result<Coordinator, JoinError> {
        Coordinator::start_for(address, capacity, Door::Open)
    }

    pub(crate) fn start_for(
        address: &Address,
        capacity: Capacity,
        door: Door,
    ) -> Result<Coordinator, JoinError> {
        capacity.check().map_err(JoinError::Settings)?;
        let system = |what| move |source: io::Error| JoinError::System { what, source };
        let rendezvous = Rendezvous::bind(address)?;
        let name = name_at(address).map_err(system("the name of its place"))?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| JoinError::System { what: "an eventfd", source: errno.into() })?;
        let stop = Arc::new(stop);
        let office = Office {
            rendezvous,
            stop: stop.clone(),
            membership: Membership::new(name, capacity, Instant::now()),
            door,
            desks: HashMap::new(),
            last_desk: 0,
            rest_until: None,
        };
        let thread = std::thread::Builder::new()
            .name("tollfree-coord".to_owned())
            .spawn(move || office.run())
            .map_err(system("a thread"))?;
        Ok(Coordinator { stop, thread: Some(thread) })
    }

    /// Whether it goes on. It ends by itself only where it can't wait for its members any more, which is logged.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it and waits until its socket is gone, milliseconds.
    pub fn stop(mut self) {
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn ring(&self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

impl Drop for Coordinator {
    /// Without waiting for it.
    fn drop(&mut self) {
        self.ring();
    }
}

/// Who of its user's processes may join a pool.
#[derive(Debug)]
pub(crate) enum Door {
    /// All.
    Open,
    /// Those that were invited. Nobody comes back whom this coordinator doesn't know: it takes no other's place.
    Invited(Inviter),
}

impl Door {
    /// Whether a first message may make its sender a member, as far as it is no nonsense.
    fn admits(&self, message: &PoolMessage, membership: &Membership<Arc<GivenFd>>) -> bool {
        let Door::Invited(inviter) = self else { return true };
        match message.kind.get() {
            pool_kind::JOIN if message.pool == [0; POOL_ID_LEN] => {
                inviter.redeem(&message.secret, Instant::now())
            }
            pool_kind::JOIN => membership.knows(message.member(), &message.secret),
            _ => true,
        }
    }
}

/// A connection.
struct Desk {
    socket: UnixStream,
    inbox: Inbox,
    unsent: VecDeque<(PoolMessage, Vec<Arc<GivenFd>>)>,
    since: Instant,
    /// The kernel takes no more descriptors now, whatever room the socket has.
    stalled: bool,
    /// It wanted to know who is in the pool, and is hung up on when it has been told.
    is_shown: bool,
}

struct Office {
    rendezvous: Rendezvous,
    stop: Arc<OwnedFd>,
    membership: Membership<Arc<GivenFd>>,
    door: Door,
    desks: HashMap<DeskIdx, Desk>,
    last_desk: DeskIdx,
    /// Out of descriptors: no accepting before this.
    rest_until: Option<Instant>,
}

impl Office {
    fn run(mut self) {
        while let Some((ready, ended)) = self.wait() {
            self.accept();
            for desk in ready {
                self.serve(desk);
            }
            for member in ended {
                if let Some(desk) = self.membership.bury(member) {
                    self.desks.remove(&desk);
                }
            }
            for member in self.membership.give_up_waiting(Instant::now()) {
                let member = member.0;
                tracing::warn!(member, "a live member stays away; what it has and holds stays its own");
            }
            self.close_late();
            self.deliver();
        }
    }

    /// Sleeps until something happens: which connections have news, and which members have ended. None: it is over.
    fn wait(&mut self) -> Option<(Vec<DeskIdx>, Vec<MemberIdx>)> {
        let resting = self.rest_until.is_some_and(|until| Instant::now() < until);
        let accepting = if resting { PollFlags::empty() } else { PollFlags::IN };
        let mut fds =
            vec![PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(self.rendezvous.listener(), accepting)];
        let desks: Vec<_> = self.desks.iter().collect();
        fds.extend(desks.iter().map(|(_, desk)| {
            let reading = if desk.unsent.len() < BACKLOG_MAX { PollFlags::IN } else { PollFlags::empty() };
            let is_quiet = desk.unsent.is_empty() || desk.stalled;
            let writing = if is_quiet { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&desk.socket, reading | writing)
        }));
        let lives: Vec<_> = self.membership.lives().collect();
        fds.extend(lives.iter().map(|(_, life)| PollFd::new(&***life, PollFlags::IN)));
        let pending = desks.iter().any(|(idx, desk)| !self.has_joined(**idx) || desk.stalled)
            || resting
            || self.membership.is_waiting();
        // A turn now and then while there is something that time alone decides.
        let timeout = pending.then(|| timespec(Duration::from_millis(20)));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "the pool's coordinator can't wait for its members and ends");
                return None;
            }
        }
        if !fds[0].revents().is_empty() {
            return None;
        }
        let has_news = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready = desks.iter().zip(&fds[2..]).filter(|(_, fd)| has_news(fd));
        let ended = lives.iter().zip(&fds[2 + desks.len()..]).filter(|(_, fd)| has_news(fd));
        Some((ready.map(|((desk, _), _)| **desk).collect(), ended.map(|((member, _), _)| *member).collect()))
    }

    fn accept(&mut self) {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.rest_until = None;
        loop {
            match self.rendezvous.listener().accept() {
                Ok((socket, _)) => self.seat(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Some(unsaid) = NOT_ACCEPTED.turn() {
                        tracing::warn!(%error, unsaid, "a newcomer can't be let in; trying again soon");
                    }
                    self.rest_until = Some(Instant::now() + Duration::from_millis(100));
                    return;
                }
            }
        }
    }

    fn seat(&mut self, socket: UnixStream) {
        let refuse = |reason| {
            let _ = post(&socket, &PoolMessage::new(pool_kind::REFUSAL).because(reason), &[]);
            socket::leave(&socket);
        };
        match PeerIdentity::of(&socket) {
            Ok(newcomer) if PeerPolicy::SameUser.allows(newcomer.uid) => {}
            Ok(_) => return refuse(pool_reason::USER),
            Err(error) => {
                tracing::warn!(%error, "nobody can tell who a newcomer is");
                return refuse(pool_reason::BUSY);
            }
        }
        // Those who join say so at once. Who came first and has said nothing yet gives way; what it has said meanwhile counts.
        let mut silent: Vec<_> = self.desks.keys().copied().filter(|idx| !self.has_joined(*idx)).collect();
        if silent.len() >= NEWCOMER_COUNT_MAX {
            silent.sort_unstable();
            self.serve(silent[0]);
            if !self.has_joined(silent[0]) {
                self.refuse(silent[0], pool_reason::BUSY);
            }
        }
        self.last_desk += 1;
        let desk = Desk {
            socket,
            inbox: Inbox::new(),
            unsent: VecDeque::new(),
            since: Instant::now(),
            stalled: false,
            is_shown: false,
        };
        self.desks.insert(self.last_desk, desk);
    }

    /// Reads what a connection says, and leaves the rest for the next turn.
    fn serve(&mut self, idx: DeskIdx) {
        for _ in 0..MESSAGE_COUNT {
            let Some(desk) = self.desks.get_mut(&idx).filter(|desk| desk.unsent.len() < BACKLOG_MAX) else {
                return;
            };
            match desk.inbox.recv(&desk.socket) {
                Came::Message(message, fds) => {
                    let fds: Vec<_> = fds.into_iter().map(Arc::new).collect();
                    match self.membership.member_at(idx) {
                        Some(member) => {
                            crate::steps::reached(step(message.kind.get()));
                            match self.membership.hear(member, &message, fds) {
                                Ok(has_left) if has_left => drop(self.desks.remove(&idx)),
                                Ok(_) => {}
                                Err(violation) => {
                                    if let Some(unsaid) = VIOLATED.turn() {
                                        let (member, why) = (member.0, violation.0);
                                        tracing::warn!(member, why, unsaid, "hanging up on a member");
                                    }
                                    self.close(idx);
                                }
                            }
                        }
                        None => {
                            crate::steps::reached("told-join");
                            self.newcomer(idx, &message, !fds.is_empty());
                        }
                    }
                    self.sort();
                }
                Came::Nothing => return,
                Came::Over => return self.close(idx),
                Came::Broken(error) => {
                    tracing::warn!(%error, "a member's connection is given up");
                    return self.close(idx);
                }
            }
        }
    }

    fn newcomer(&mut self, idx: DeskIdx, message: &PoolMessage, has_fds: bool) {
        let Some(desk) = self.desks.get_mut(&idx).filter(|desk| !desk.is_shown) else { return };
        let first = match self.door.admits(message, &self.membership) {
            true => self.membership.first_word(idx, message, has_fds, &Newcomer(&desk.socket)),
            false => FirstWord::Refused(pool_reason::INVITATION),
        };
        match first {
            FirstWord::Member { welcome, before } => {
                desk.unsent.push_back((welcome, Vec::new()));
                if let Some(before) = before {
                    self.desks.remove(&before);
                }
            }
            FirstWord::Shown(shown) => {
                desk.unsent = shown.into_iter().map(|message| (message, Vec::new())).collect();
                desk.is_shown = true;
            }
            FirstWord::Refused(reason) => self.refuse(idx, reason),
        }
    }

    /// Sends away one that has not joined.
    fn refuse(&mut self, idx: DeskIdx, reason: u32) {
        if let Some(desk) = self.desks.remove(&idx) {
            let _ = post(&desk.socket, &PoolMessage::new(pool_kind::REFUSAL).because(reason), &[]);
        }
    }

    fn has_joined(&self, idx: DeskIdx) -> bool {
        self.membership.member_at(idx).is_some()
    }

    /// A connection is over. Its member isn't.
    fn close(&mut self, idx: DeskIdx) {
        if self.desks.remove(&idx).is_some() {
            self.membership.close(idx, Instant::now());
        }
    }

    /// Hangs up on connections that don't join.
    fn close_late(&mut self) {
        let late = |idx: DeskIdx, desk: &Desk| !self.has_joined(idx) && desk.since.elapsed() > JOIN_LIMIT;
        let late: Vec<_> =
            self.desks.iter().filter(|(idx, desk)| late(**idx, desk)).map(|(idx, _)| *idx).collect();
        for idx in late {
            self.close(idx);
        }
    }

    /// Puts what the book has to say before those it is for.
    fn sort(&mut self) {
        for (desk, message, fds) in self.membership.take_sayings() {
            if let Some(desk) = self.desks.get_mut(&desk) {
                desk.queue(message, fds);
            }
        }
    }

    fn deliver(&mut self) {
        self.sort();
        let waiting: Vec<_> =
            self.desks.iter().filter(|(_, desk)| !desk.unsent.is_empty()).map(|(idx, _)| *idx).collect();
        for idx in waiting {
            let goes_on = |desk: &mut Desk| desk.deliver() && !(desk.is_shown && desk.unsent.is_empty());
            if !self.desks.get_mut(&idx).is_none_or(goes_on) {
                self.close(idx);
                self.sort();
            }
        }
    }
}

/// The step at which a coordinator is that has been told such a thing, and has said nothing about it yet.
fn step(kind: u32) -> &'static str {
    match kind {
        pool_kind::NEED => "told-need",
        pool_kind::EXTENT => "told-extent",
        pool_kind::MAP => "told-map",
        pool_kind::GIVE => "told-give",
        pool_kind::ROW => "told-row",
        pool_kind::ROW_OK => "told-row-ok",
        pool_kind::RETURNED => "told-returned",
        _ => "told-more",
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        socket::leave(&self.socket);
    }
}

impl Desk {
    /// Of several wishes to give memory back, one is enough.
    fn queue(&mut self, message: PoolMessage, fds: Vec<Arc<GivenFd>>) {
        let is_wish = |message: &PoolMessage| message.kind.get() == pool_kind::TAKE_BACK;
        if is_wish(&message)
            && let Some((known, _)) = self.unsent.iter_mut().find(|(known, _)| is_wish(known))
        {
            known.amount = known.amount.get().max(message.amount.get()).into();
            return;
        }
        self.unsent.push_back((message, fds));
    }

    /// Sends what there is room for. False: the other end is gone.
    fn deliver(&mut self) -> bool {
        self.stalled = false;
        while let Some((message, fds)) = self.unsent.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match post(&self.socket, message, &fds) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return true,
                // Too many descriptors are on their way to somebody: no fault of this member's.
                Err(error) if socket::is_stall(&error) => {
                    self.stalled = true;
                    return true;
                }
                Err(_) => return false,
            }
        }
        true
    }
}

/// The other end of a connection that says its first word.
struct Newcomer<'a>(&'a UnixStream);

impl Kernel<Arc<GivenFd>> for Newcomer<'_> {
    fn process(&self) -> Result<Process<Arc<GivenFd>>, u32> {
        let life = tollfree_rendezvous::process_at(self.0).map_err(|error| {
            tracing::warn!(%error, "a newcomer's process can't be watched");
            let is_short = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
            if is_short { pool_reason::BUSY } else { pool_reason::LIFE }
        })?;
        let number = PeerIdentity::of(self.0).ok().and_then(|peer| u32::try_from(peer.pid).ok());
        Ok(Process { life: Arc::new(GivenFd::from(life)), number: number.unwrap_or(0) })
    }

    fn secret(&self) -> Result<[u8; SECRET_LEN], u32> {
        let mut secret = [0; SECRET_LEN];
        random(&mut secret).map_err(|error| {
            tracing::error!(%error, "no random bytes for a newcomer");
            pool_reason::BUSY
        })?;
        Ok(secret)
    }
}
