//! The coordinator: one thread that deals out capacity and passes descriptors on. It touches no page.
//!
//! # Trust
//! It reads and writes no member's memory, and a member can make it do no more than its own requests are worth: one answer
//! each, and no more of them read while answers wait. A member that says what no member says is hung up on, and nobody else for
//! it. What others make it say to a member that doesn't read is bounded (`ledger/mapping.rs`).
//!
//! # Crash
//! It keeps nothing that its members don't know: one that is started at the same address, after it died or was stopped,
//! learns its extents and who maps them from members that come back, and goes on. A pool's name follows from where its
//! coordinator listens (`greet.rs`), so that both give it the same.
//!
//! A member whose connection is lost is not dead: it is watched by a pidfd, which the kernel gave for its first connection.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::rand::GetRandomFlags;
use tollfree_layout::pool::{POOL_ID_LEN, POOL_VERSION, PoolMessage, SECRET_LEN, pool_kind, pool_reason};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_region::GivenFd;
use tollfree_rendezvous::{Address, PeerIdentity, Rendezvous, Seldom, socket};

use crate::agent::timespec;
use crate::config::Capacity;
use crate::error::JoinError;
use crate::extent::PoolId;
use crate::greet::{name_at, number_of};
use crate::ledger::{Ledger, Saying};
use crate::link::{Came, Inbox, is_stall, post};

/// How long requests wait for owners that may come back: to a new coordinator, or after their connection was lost.
const RETURN_GRACE: Duration = Duration::from_secs(1);
/// How long a connection may take to join.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// Messages of a member that are read before others have their turn.
const MESSAGE_COUNT: usize = 64;
/// Connections at a time that haven't joined yet.
const NEWCOMER_COUNT_MAX: usize = 64;
/// Answers that wait for a member before no more of its requests are read.
const BACKLOG_MAX: usize = 64;

/// What a member does that is logged.
static VIOLATED: Seldom = Seldom::new();
static NOT_ACCEPTED: Seldom = Seldom::new();

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
            pool: None,
            name,
            grace_until: Instant::now() + RETURN_GRACE,
            ledger: Ledger::new(capacity),
            capacity,
            desks: HashMap::new(),
            last_desk: 0,
            seats: HashMap::new(),
            away: HashMap::new(),
            processes: HashMap::new(),
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

/// A connection.
struct Desk {
    socket: UnixStream,
    inbox: Inbox,
    unsent: VecDeque<(PoolMessage, Vec<Arc<GivenFd>>)>,
    /// None before it has joined.
    member: Option<MemberIdx>,
    since: Instant,
    /// The kernel takes no more descriptors now, whatever room the socket has.
    stalled: bool,
    /// It wanted to know who is in the pool, and is hung up on when it has been told.
    is_shown: bool,
}

struct Office {
    rendezvous: Rendezvous,
    stop: Arc<OwnedFd>,
    /// None before the first member.
    pool: Option<PoolId>,
    /// The pool's name, unless the first member comes back with another.
    name: PoolId,
    grace_until: Instant,
    ledger: Ledger<Arc<GivenFd>>,
    capacity: Capacity,
    desks: HashMap<u64, Desk>,
    last_desk: u64,
    seats: HashMap<MemberIdx, u64>,
    /// Members whose connection was lost, and when.
    away: HashMap<MemberIdx, Instant>,
    /// Process ids of members, for people; 0 where the kernel names none.
    processes: HashMap<MemberIdx, u32>,
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
                self.bury(member);
            }
            self.give_up_waiting();
            self.close_late();
            self.deliver();
        }
    }

    /// Sleeps until something happens: which connections have news, and which members have ended. None: it is over.
    fn wait(&mut self) -> Option<(Vec<u64>, Vec<MemberIdx>)> {
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
        let lives: Vec<_> = self.ledger.lives().collect();
        fds.extend(lives.iter().map(|(_, life)| PollFd::new(&***life, PollFlags::IN)));
        let pending = desks.iter().any(|(_, desk)| desk.member.is_none() || desk.stalled)
            || resting
            || self.ledger.is_early()
            || !self.away.is_empty();
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
        let uid = PeerIdentity::of(&socket).ok().map(|newcomer| newcomer.uid);
        if uid != Some(rustix::process::geteuid().as_raw()) {
            return refuse(pool_reason::USER);
        }
        if self.desks.values().filter(|desk| desk.member.is_none()).count() >= NEWCOMER_COUNT_MAX {
            return refuse(pool_reason::BUSY);
        }
        self.last_desk += 1;
        let desk = Desk {
            socket,
            inbox: Inbox::new(),
            unsent: VecDeque::new(),
            member: None,
            since: Instant::now(),
            stalled: false,
            is_shown: false,
        };
        self.desks.insert(self.last_desk, desk);
    }

    /// Reads what a connection says, and leaves the rest for the next turn.
    fn serve(&mut self, idx: u64) {
        for _ in 0..MESSAGE_COUNT {
            let Some(desk) = self.desks.get_mut(&idx).filter(|desk| desk.unsent.len() < BACKLOG_MAX) else {
                return;
            };
            match desk.inbox.recv(&desk.socket) {
                Came::Message(message, fds) => {
                    let fds: Vec<_> = fds.into_iter().map(Arc::new).collect();
                    match desk.member {
                        Some(member) => {
                            crate::steps::reached(step(message.kind.get()));
                            if message.kind.get() == pool_kind::LEAVE {
                                self.bury(member);
                            } else if let Err(violation) = self.ledger.hear(member, &message, fds) {
                                if let Some(unsaid) = VIOLATED.turn() {
                                    let (member, why) = (member.0, violation.0);
                                    tracing::warn!(member, why, unsaid, "hanging up on a member");
                                }
                                self.close(idx);
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
            }
        }
    }

    fn newcomer(&mut self, idx: u64, message: &PoolMessage, has_fds: bool) {
        if message.version.get() != POOL_VERSION {
            return self.refuse(idx, pool_reason::VERSION);
        }
        if message.kind.get() == pool_kind::SHOW && !has_fds {
            return self.show(idx);
        }
        if message.kind.get() != pool_kind::JOIN || has_fds {
            return self.refuse(idx, pool_reason::MALFORMED);
        }
        if message.pool == [0; POOL_ID_LEN] {
            return match self.new_secret() {
                Ok(secret) => self.welcome(idx, secret, false),
                Err(error) => {
                    tracing::error!(%error, "no random bytes for a newcomer");
                    self.refuse(idx, pool_reason::BUSY)
                }
            };
        }
        // Somebody comes back. A coordinator that has no pool yet takes this one over.
        let (member, secret) = (message.member(), message.secret);
        if self.pool.is_some_and(|pool| pool != message.pool) {
            return self.refuse(idx, pool_reason::POOL);
        }
        let known = self.ledger.secret_of(member).is_none_or(|known| known == secret);
        if member.0 == 0 || !known || number_of(&secret, &message.pool) != member {
            return self.refuse(idx, pool_reason::MALFORMED);
        }
        self.pool = Some(message.pool);
        if let Some(before) = self.seats.get(&member).copied() {
            // It has lost that connection, though this side hasn't noticed yet.
            self.close(before);
        }
        self.welcome(idx, secret, true);
    }

    /// Tells who is in the pool.
    fn show(&mut self, idx: u64) {
        let mut shown: Vec<_> = self
            .ledger
            .standings()
            .map(|(member, granted, made, standing)| {
                let process = self.processes.get(&member).copied().unwrap_or(0);
                let message = PoolMessage::new(pool_kind::SHOWN_MEMBER).about(member, ExtentIdx(process));
                message.of(granted).row(made).because(standing)
            })
            .collect();
        let count = ExtentIdx(shown.len() as u32);
        let pool = PoolMessage::new(pool_kind::SHOWN).about(MemberIdx(0), count);
        shown.insert(0, pool.of(self.capacity.total).row(self.ledger.used()));
        if let Some(desk) = self.desks.get_mut(&idx) {
            desk.unsent = shown.into_iter().map(|message| (message, Vec::new())).collect();
            desk.is_shown = true;
        }
    }

    /// A secret whose number nobody has.
    fn new_secret(&self) -> Result<[u8; SECRET_LEN], rustix::io::Errno> {
        loop {
            let mut secret = [0; SECRET_LEN];
            random(&mut secret)?;
            let member = number_of(&secret, &self.pool.unwrap_or(self.name));
            if member.0 != 0 && self.ledger.secret_of(member).is_none() {
                return Ok(secret);
            }
        }
    }

    fn welcome(&mut self, idx: u64, secret: [u8; SECRET_LEN], comes_back: bool) {
        let Some(desk) = self.desks.get_mut(&idx) else { return };
        let life = match tollfree_rendezvous::process_at(&desk.socket) {
            Ok(life) => Arc::new(GivenFd::from(life)),
            Err(error) => {
                tracing::warn!(%error, "a newcomer's process can't be watched");
                let is_short = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
                return self.refuse(idx, if is_short { pool_reason::BUSY } else { pool_reason::LIFE });
            }
        };
        let pool = *self.pool.get_or_insert(self.name);
        let member = number_of(&secret, &pool);
        let process = PeerIdentity::of(&desk.socket).ok().and_then(|peer| u32::try_from(peer.pid).ok());
        self.processes.insert(member, process.unwrap_or(0));
        desk.member = Some(member);
        self.seats.insert(member, idx);
        self.away.remove(&member);
        self.ledger.join(member, secret, life, comes_back);
        let mut message = PoolMessage::new(pool_kind::WELCOME).of(self.capacity.member_quota);
        message.member = member.0.into();
        message.len = self.capacity.batch.into();
        message.pool = pool;
        message.secret = secret;
        desk.unsent.push_back((message, Vec::new()));
    }

    fn refuse(&mut self, idx: u64, reason: u32) {
        if let Some(desk) = self.desks.get(&idx) {
            let _ = post(&desk.socket, &PoolMessage::new(pool_kind::REFUSAL).because(reason), &[]);
        }
        self.close(idx);
    }

    /// A connection is over. Its member isn't.
    fn close(&mut self, idx: u64) {
        let Some(desk) = self.desks.remove(&idx) else { return };
        if let Some(member) = desk.member {
            self.seats.remove(&member);
            if self.ledger.lose(member) {
                self.away.insert(member, Instant::now());
            }
        }
    }

    /// A member has left, or its process has ended.
    fn bury(&mut self, member: MemberIdx) {
        if let Some(idx) = self.seats.remove(&member) {
            self.desks.remove(&idx);
        }
        self.away.remove(&member);
        self.processes.remove(&member);
        self.ledger.leave(member);
    }

    /// Members that may come back are waited for only so long.
    fn give_up_waiting(&mut self) {
        let now = Instant::now();
        if self.ledger.is_early() && self.grace_until <= now {
            self.ledger.give_up_early();
        }
        let ledger = &mut self.ledger;
        self.away.retain(|member, since| {
            let is_late = now.duration_since(*since) > RETURN_GRACE;
            if is_late {
                tracing::warn!(
                    member = member.0,
                    "a live member stays away; what it has and holds stays its own"
                );
                ledger.give_up(*member);
            }
            !is_late
        });
    }

    /// Hangs up on connections that don't join.
    fn close_late(&mut self) {
        let late = |desk: &Desk| desk.member.is_none() && desk.since.elapsed() > JOIN_LIMIT;
        let late: Vec<_> = self.desks.iter().filter(|(_, desk)| late(desk)).map(|(idx, _)| *idx).collect();
        for idx in late {
            self.close(idx);
        }
    }

    /// Puts what the book has to say before those it is for.
    fn sort(&mut self) {
        for Saying { to, message, fds } in self.ledger.take_sayings() {
            if let Some(desk) = self.seats.get(&to).and_then(|idx| self.desks.get_mut(idx)) {
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
                Err(error) if is_stall(&error) => {
                    self.stalled = true;
                    return true;
                }
                Err(_) => return false,
            }
        }
        true
    }
}

fn random(bytes: &mut [u8]) -> Result<(), rustix::io::Errno> {
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()))?;
    if count < bytes.len() { Err(rustix::io::Errno::AGAIN) } else { Ok(()) }
}
