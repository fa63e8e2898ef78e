//! The coordinator: one thread that deals out capacity and passes descriptors on. It touches no page.
//!
//! # Trust
//! It reads and writes no member's memory, and a member can make it do no more than its own requests are worth: one answer
//! each, and no more of them read while answers wait. Whoever says what no member says is hung up on.
//!
//! # Crash
//! It keeps nothing that its members don't know: one that is started at the same address after it died learns the pool's
//! name, its extents and who maps them from members that come back, and goes on. It waits a moment for them before it
//! makes up a new pool, if it found a dead predecessor's socket.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::rand::GetRandomFlags;
use tollfree_layout::MemberIdx;
use tollfree_layout::pool::{POOL_ID_LEN, POOL_VERSION, PoolMessage, pool_kind, pool_reason};
use tollfree_region::GivenFd;
use tollfree_rendezvous::{Address, PeerIdentity, Rendezvous, Seldom, socket};

use crate::agent::timespec;
use crate::config::Capacity;
use crate::error::JoinError;
use crate::extent::PoolId;
use crate::ledger::{Ledger, Saying};
use crate::link::{Came, Inbox, post};

/// How long a successor waits for members of the pool before it, at most.
const RESUME_GRACE: Duration = Duration::from_secs(1);
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
        let is_successor = matches!(address, Address::Path(path) if path.exists());
        let rendezvous = Rendezvous::bind(address)?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| JoinError::System { what: "an eventfd", source: errno.into() })?;
        let stop = Arc::new(stop);
        let grace = if is_successor { RESUME_GRACE } else { Duration::ZERO };
        let office = Office {
            rendezvous,
            stop: stop.clone(),
            pool: None,
            // A pool without members has a name only for a moment.
            grace_until: Instant::now() + grace,
            ledger: Ledger::new(capacity),
            capacity,
            desks: HashMap::new(),
            last_desk: 0,
            seats: HashMap::new(),
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
    /// Asked to join, and waits for the pool to have a name.
    waiting: bool,
}

struct Office {
    rendezvous: Rendezvous,
    stop: Arc<OwnedFd>,
    pool: Option<PoolId>,
    grace_until: Instant,
    ledger: Ledger<Arc<GivenFd>>,
    capacity: Capacity,
    desks: HashMap<u64, Desk>,
    last_desk: u64,
    seats: HashMap<MemberIdx, u64>,
    /// Out of descriptors: no accepting before this.
    rest_until: Option<Instant>,
}

impl Office {
    fn run(mut self) {
        while let Some(ready) = self.wait() {
            self.accept();
            for desk in ready {
                self.serve(desk);
            }
            self.welcome_waiting();
            if self.grace_until <= Instant::now() {
                self.ledger.give_up_early();
            }
            self.close_late();
            self.deliver();
        }
    }

    /// Sleeps until something happens. None: it is over.
    fn wait(&mut self) -> Option<Vec<u64>> {
        let resting = self.rest_until.is_some_and(|until| Instant::now() < until);
        let accepting = if resting { PollFlags::empty() } else { PollFlags::IN };
        let mut fds =
            vec![PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(self.rendezvous.listener(), accepting)];
        let desks: Vec<_> = self.desks.iter().collect();
        fds.extend(desks.iter().map(|(_, desk)| {
            let reading = if desk.unsent.len() < BACKLOG_MAX { PollFlags::IN } else { PollFlags::empty() };
            let writing = if desk.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&desk.socket, reading | writing)
        }));
        let pending =
            desks.iter().any(|(_, desk)| desk.member.is_none()) || resting || self.ledger.has_early();
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
        let ready = desks.iter().zip(&fds[2..]).filter(|(_, fd)| !fd.revents().is_empty());
        Some(ready.map(|((desk, _), _)| **desk).collect())
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
            waiting: false,
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
                    let fds = fds.into_iter().map(Arc::new).collect();
                    match desk.member {
                        Some(member) => {
                            crate::steps::reached(step(message.kind.get()));
                            if let Err(violation) = self.ledger.hear(member, &message, fds) {
                                if let Some(unsaid) = VIOLATED.turn() {
                                    let (member, why) = (member.0, violation.0);
                                    tracing::warn!(member, why, unsaid, "hanging up on a member");
                                }
                                self.close(idx);
                            }
                        }
                        None => {
                            crate::steps::reached("told-join");
                            self.newcomer(idx, &message);
                        }
                    }
                    self.sort();
                }
                Came::Nothing => return,
                Came::Over => return self.close(idx),
            }
        }
    }

    fn newcomer(&mut self, idx: u64, message: &PoolMessage) {
        if message.version.get() != POOL_VERSION {
            return self.refuse(idx, pool_reason::VERSION);
        }
        if message.kind.get() != pool_kind::JOIN {
            return self.refuse(idx, pool_reason::MALFORMED);
        }
        if message.pool == [0; POOL_ID_LEN] {
            if let Some(desk) = self.desks.get_mut(&idx) {
                desk.waiting = true;
            }
            return;
        }
        // Somebody comes back. A coordinator that has no pool yet takes this one over.
        let member = message.member();
        if *self.pool.get_or_insert(message.pool) != message.pool {
            return self.refuse(idx, pool_reason::POOL);
        }
        if member.0 == 0 || self.ledger.has(member) {
            return self.refuse(idx, pool_reason::MALFORMED);
        }
        self.welcome(idx, member, true);
    }

    /// Lets in who waits for the pool to have a name.
    fn welcome_waiting(&mut self) {
        let waiting: Vec<_> =
            self.desks.iter().filter(|(_, desk)| desk.waiting).map(|(idx, _)| *idx).collect();
        for idx in waiting {
            if self.pool.is_none() && Instant::now() < self.grace_until {
                return;
            }
            let mut id = [0; POOL_ID_LEN];
            let mut member = [0; 4];
            if let Err(error) = random(&mut id).and_then(|()| random(&mut member)) {
                tracing::error!(%error, "no random bytes for a newcomer");
                return self.refuse(idx, pool_reason::BUSY);
            }
            let member = MemberIdx(u32::from_le_bytes(member));
            if member.0 == 0 || self.ledger.has(member) {
                continue; // In the next turn.
            }
            self.pool.get_or_insert(id);
            self.welcome(idx, member, false);
        }
    }

    fn welcome(&mut self, idx: u64, member: MemberIdx, resumed: bool) {
        let Some(desk) = self.desks.get_mut(&idx) else { return };
        desk.member = Some(member);
        desk.waiting = false;
        self.seats.insert(member, idx);
        self.ledger.join(member, resumed);
        let mut message = PoolMessage::new(pool_kind::WELCOME).of(self.capacity.member_quota);
        message.member = member.0.into();
        message.len = self.capacity.batch.into();
        message.pool = self.pool.expect("the pool has its name before it has members");
        desk.unsent.push_back((message, Vec::new()));
    }

    fn refuse(&mut self, idx: u64, reason: u32) {
        if let Some(desk) = self.desks.get(&idx) {
            let _ = post(&desk.socket, &PoolMessage::new(pool_kind::REFUSAL).because(reason), &[]);
        }
        self.close(idx);
    }

    fn close(&mut self, idx: u64) {
        let Some(desk) = self.desks.remove(&idx) else { return };
        if let Some(member) = desk.member {
            self.seats.remove(&member);
            self.ledger.leave(member);
            if !self.ledger.has_members() && self.grace_until <= Instant::now() {
                tracing::debug!("the last member has left the pool");
            }
        }
    }

    /// Hangs up on connections that don't join.
    fn close_late(&mut self) {
        let late = |desk: &Desk| desk.member.is_none() && !desk.waiting && desk.since.elapsed() > JOIN_LIMIT;
        let late: Vec<_> = self.desks.iter().filter(|(_, desk)| late(desk)).map(|(idx, _)| *idx).collect();
        for idx in late {
            self.close(idx);
        }
    }

    /// Puts what the book has to say before those it is for.
    fn sort(&mut self) {
        for Saying { to, message, fds } in self.ledger.take_sayings() {
            if let Some(desk) = self.seats.get(&to).and_then(|idx| self.desks.get_mut(idx)) {
                desk.unsent.push_back((message, fds));
            }
        }
    }

    fn deliver(&mut self) {
        self.sort();
        let waiting: Vec<_> =
            self.desks.iter().filter(|(_, desk)| !desk.unsent.is_empty()).map(|(idx, _)| *idx).collect();
        for idx in waiting {
            if !self.desks.get_mut(&idx).is_none_or(Desk::deliver) {
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
    /// Sends what there is room for. False: the other end is gone.
    fn deliver(&mut self) -> bool {
        while let Some((message, fds)) = self.unsent.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match post(&self.socket, message, &fds) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return true,
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
