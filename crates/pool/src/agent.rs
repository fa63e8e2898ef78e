//! A member's agent: the thread that talks to the coordinator, so that nobody who allocates, maps or drops has to.
//!
//! # States
//! ```text
//! greet ─► attached ─── hang-up ──► alone ─── greet again, with pool, member and secret ──► attached
//!             │                       │
//!             │ member dropped        │ member dropped
//!             ▼                       ▼
//!   LEAVE, until hung up on ──────► ended
//! ```
//!
//! # Crash
//! A hang-up says that the coordinator is gone, and nothing of any member: nothing is taken from anybody for it, on either
//! side. A reader's end is told by its pidfd, which came with its row and which its owner watches itself, coordinator or
//! not: only then rows are dropped that hold something. A member that is stopped or slow hangs up on nobody.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tollfree_layout::MemberIdx;
use tollfree_os::fd::AsFd;
use tollfree_os::rustix;
use tollfree_os::rustix::event::{PollFd, PollFlags, Timespec};
use tollfree_os::unix::net::UnixStream;
use tollfree_region::Origin;
use tollfree_rendezvous::{Address, socket};

use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::error::JoinError;
use crate::handshake::{Entry, Known, greet};
use crate::inner::Inner;
use crate::invitation::Invitation;
use crate::link::{Came, Inbox, Link, post};
use crate::member_protocol::MemberProtocol;
use crate::membership::RETURN_GRACE;

/// Messages taken in one go, before others are looked at.
const MESSAGE_COUNT: usize = 64;
/// Pause before the coordinator is looked for again; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(200);
/// How long fetches wait for another connection: as long as a coordinator waits for members that were there.
const FETCH_GRACE: Duration = RETURN_GRACE;
/// How long a coordinator has to answer a member that comes back.
const GREET_LIMIT: Duration = Duration::from_secs(1);
/// How long a member that leaves waits for the coordinator to have heard it.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Pause while the kernel takes no more descriptors.
const STALL_PAUSE: Duration = Duration::from_millis(20);

/// Joins the pool at an address and starts the agent.
pub(crate) fn join(
    address: &Address,
    config: Config,
    coordinator: Option<Coordinator>,
    invitation: Option<&Invitation>,
) -> Result<Arc<Inner>, JoinError> {
    let system = |what| move |source: std::io::Error| JoinError::System { what, source };
    let origin = Origin::current().map_err(system("to notice forks"))?;
    let link = Arc::new(Link::new().map_err(system("an eventfd"))?);
    let (socket, welcome) = greet(address, config.patience, invitation.map_or(Entry::New, Entry::Invited))?;
    crate::steps::reached("joined");
    let inner = Arc::new(Inner::new(&welcome, config, origin, link.clone()));
    let agent = Agent {
        inner: Arc::downgrade(&inner),
        address: address.clone(),
        link: link.clone(),
        socket: Some(socket),
        inbox: Inbox::new(),
        stalled: false,
        known: Known { pool: welcome.pool, member: welcome.member(), secret: welcome.secret },
        member_protocol: MemberProtocol::new(link),
        _coordinator: coordinator,
        retry: RETRY_MIN,
        retry_at: None,
        lost_at: Instant::now(),
        look_at: None,
    };
    if inner.config.low_watermark > 0 {
        inner.prefetch(&mut inner.heap.lock());
    }
    std::thread::Builder::new()
        .name("tollfree-pool".to_owned())
        .spawn(move || agent.run())
        .map_err(system("a thread"))?;
    Ok(inner)
}

struct Agent {
    inner: Weak<Inner>,
    address: Address,
    link: Arc<Link>,
    socket: Option<UnixStream>,
    inbox: Inbox,
    /// The kernel takes no more descriptors now.
    stalled: bool,
    /// What it comes back with.
    known: Known,
    member_protocol: MemberProtocol,
    retry: Duration,
    /// When to look for a coordinator; never, while there is one.
    retry_at: Option<Instant>,
    /// When the last connection was lost.
    lost_at: Instant,
    /// When a task that waits for memory looks again.
    look_at: Option<Instant>,
    /// In the process that made the pool. It stops when this member has left.
    _coordinator: Option<Coordinator>,
}

impl Agent {
    fn run(mut self) {
        loop {
            let (socket_ready, dead) = self.wait();
            if self.link.is_closed() {
                return self.leave();
            }
            let Some(inner) = self.inner.upgrade() else { return };
            let may_have_grown = socket_ready || !dead.is_empty();
            for member in dead {
                self.member_protocol.bury(&inner, member);
            }
            if socket_ready {
                self.receive(&inner);
            }
            self.send(&inner);
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                self.rejoin(&inner);
            }
            if self.retry_at.is_some() && self.lost_at.elapsed() > FETCH_GRACE {
                self.member_protocol.give_up_fetches(&inner);
            }
            self.look_at = inner.wake_waiters(may_have_grown);
        }
    }

    /// Sleeps until something happens: whether the socket has news, and which readers have died.
    fn wait(&mut self) -> (bool, Vec<MemberIdx>) {
        let bell = self.link.bell();
        let mut fds = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        let lives: Vec<_> = self.member_protocol.lives().collect();
        fds.extend(lives.iter().map(|(_, life)| PollFd::new(*life, PollFlags::IN)));
        if let Some(socket) = &self.socket {
            let is_quiet = self.member_protocol.is_quiet() || self.stalled;
            let room = if is_quiet { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(socket, PollFlags::IN | room));
        }
        let stall = self.stalled.then(|| Instant::now() + STALL_PAUSE);
        let next = self.retry_at.into_iter().chain(self.look_at).chain(stall).min();
        let timeout = next.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return (false, Vec::new());
        }
        let dead = lives.iter().zip(&fds[1..]).filter(|(_, fd)| !fd.revents().is_empty());
        let dead = dead.map(|((member, _), _)| *member).collect();
        let socket_ready = self.socket.is_some() && !fds[fds.len() - 1].revents().is_empty();
        if !fds[0].revents().is_empty() {
            self.link.quieten();
        }
        (socket_ready, dead)
    }

    /// Says that this member leaves, and waits a moment for the coordinator to have heard it. Whatever was held is let go.
    fn leave(mut self) {
        self.member_protocol.leave();
        let until = Instant::now() + LEAVE_LIMIT;
        while self.post_all().is_ok() {
            let left = until.saturating_duration_since(Instant::now());
            let Some(socket) = self.socket.as_ref().filter(|_| !left.is_zero()) else { return };
            match self.inbox.recv(socket) {
                Came::Message(..) => continue,
                Came::Over | Came::Broken(_) => return,
                Came::Nothing => {}
            }
            let room = if self.member_protocol.is_quiet() { PollFlags::empty() } else { PollFlags::OUT };
            let left = if self.stalled { STALL_PAUSE } else { left };
            // However it ends, the next turn sees what is the matter.
            let _ =
                rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN | room)], Some(&timespec(left)));
        }
    }

    fn receive(&mut self, inner: &Arc<Inner>) {
        for _ in 0..MESSAGE_COUNT {
            let Some(socket) = &self.socket else { return };
            match self.inbox.recv(socket) {
                Came::Message(message, fds) => self.member_protocol.hear(inner, &message, fds),
                Came::Nothing => return,
                Came::Over => return self.lose(inner),
                Came::Broken(error) => {
                    tracing::warn!(%error, "the connection to the pool's coordinator is given up, and made anew");
                    return self.lose(inner);
                }
            }
        }
    }

    fn send(&mut self, inner: &Inner) {
        if self.post_all().is_err() {
            self.lose(inner);
        }
    }

    /// Sends what there is room for.
    fn post_all(&mut self) -> std::io::Result<()> {
        self.stalled = false;
        let letters = self.member_protocol.letters();
        while let (Some(socket), Some(letter)) = (&self.socket, letters.front()) {
            let fds: Vec<_> = letter.fds.iter().map(AsFd::as_fd).collect();
            match post(socket, &letter.message, &fds) {
                Ok(true) => drop(letters.pop_front()),
                Ok(false) => return Ok(()),
                Err(error) if socket::is_stall(&error) => {
                    self.stalled = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The coordinator is gone.
    fn lose(&mut self, inner: &Inner) {
        tracing::warn!(address = %self.address, "the pool's coordinator is gone; looking for it");
        self.socket = None;
        self.inbox = Inbox::new();
        self.member_protocol.lose(inner);
        self.retry = RETRY_MIN;
        self.lost_at = Instant::now();
        self.retry_at = Some(self.lost_at + self.retry);
    }

    fn rejoin(&mut self, inner: &Arc<Inner>) {
        match greet(&self.address, GREET_LIMIT, Entry::Back(self.known)) {
            Ok((socket, _)) => {
                self.socket = Some(socket);
                self.retry_at = None;
                self.member_protocol.resume(inner);
                self.send(inner);
                tracing::info!(address = %self.address, "the pool has a coordinator again");
            }
            Err(error) => {
                tracing::debug!(%error, "the pool's coordinator isn't back yet");
                self.retry = (self.retry * 2).min(RETRY_MAX);
                self.retry_at = Some(Instant::now() + self.retry);
            }
        }
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
