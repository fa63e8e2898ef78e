//! A member's agent: the thread that talks to the coordinator, so that nobody who allocates, maps or drops has to.
//!
//! # States
//! ```text
//! greet ─► attached ─── hang-up ──► alone ─── greet again, with pool and member ──► attached
//!             │                       │ coordinator keeps another pool
//!             │ member dropped        ▼
//!             └──────► ended ◄──── orphaned: goes on with what it has
//! ```
//!
//! # Crash
//! The coordinator's death is the socket's hang-up: nothing is taken from anybody for it. A reader's death is the hang-up of
//! a pipe that it gave with its row, which its owner watches itself, coordinator or not: then its rows are dropped. A
//! member that is stopped or slow hangs up on nobody.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use tollfree_layout::pool::{ExtentShape, PoolMessage, pool_kind};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_region::{GivenFd, GivenKind, Origin, PeerRegion};
use tollfree_rendezvous::Address;

use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::counts::Counters;
use crate::error::{FetchFault, JoinError, Refusal, Shortage};
use crate::extent::{Import, OwnExtent, PoolId, dup};
use crate::greet::greet;
use crate::heap::Heap;
use crate::inner::Inner;
use crate::link::{Came, Inbox, Letter, Link, post};

/// Messages taken in one go, before others are looked at.
const MESSAGE_COUNT: usize = 64;
/// Pause before the coordinator is looked for again; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Joins the pool at an address and starts the agent.
pub(crate) fn join(
    address: &Address,
    config: Config,
    coordinator: Option<Coordinator>,
) -> Result<Arc<Inner>, JoinError> {
    let system = |what| move |source: std::io::Error| JoinError::System { what, source };
    let origin = Origin::current().map_err(system("to notice forks"))?;
    let link = Arc::new(Link::new().map_err(system("an eventfd"))?);
    let (watched, life) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| JoinError::System { what: "a pipe", source: errno.into() })?;
    let (socket, welcome) = greet(address, config.patience, None)?;
    crate::steps::reached("joined");
    let inner = Arc::new(Inner {
        id: welcome.pool,
        member: welcome.member(),
        quota: welcome.amount.get(),
        batch: welcome.len.get(),
        config,
        origin,
        heap: Mutex::new(Heap::new()),
        grown: Condvar::new(),
        imports: RwLock::default(),
        fetches: Mutex::default(),
        link: link.clone(),
        counters: Counters::default(),
        _life: life,
        _coordinator: coordinator,
    });
    let agent = Agent {
        inner: Arc::downgrade(&inner),
        address: address.clone(),
        link,
        socket: Some(socket),
        inbox: Inbox::new(),
        unsent: VecDeque::new(),
        watched,
        lives: HashMap::new(),
        making: HashMap::new(),
        arriving: HashMap::new(),
        retry: RETRY_MIN,
        retry_at: None,
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
    unsent: VecDeque<Letter>,
    /// What owners of what this member reads watch: its other end is closed when this process dies.
    watched: OwnedFd,
    /// The same of each member that reads this one's extents, or whose extents this one reads.
    lives: HashMap<MemberIdx, OwnedFd>,
    /// Extents that the coordinator hasn't confirmed yet.
    making: HashMap<ExtentIdx, Arc<OwnExtent>>,
    /// Others' extents whose owner doesn't look at this member's row yet.
    arriving: HashMap<(MemberIdx, ExtentIdx), Arc<Import>>,
    retry: Duration,
    /// When to look for a coordinator; never, while there is one or once another pool is there.
    retry_at: Option<Instant>,
    /// When a task that waits for memory looks again.
    look_at: Option<Instant>,
}

impl Agent {
    fn run(mut self) {
        loop {
            let (socket_ready, dead) = self.wait();
            if self.link.is_closed() {
                return;
            }
            let Some(inner) = self.inner.upgrade() else { return };
            let may_have_grown = socket_ready || !dead.is_empty();
            for member in dead {
                self.bury(&inner, member);
            }
            if socket_ready {
                self.receive(&inner);
            }
            self.send(&inner);
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                self.rejoin(&inner);
            }
            self.look_at = inner.wake_waiters(may_have_grown);
        }
    }

    /// Sleeps until something happens: whether the socket has news, and which readers have died.
    fn wait(&mut self) -> (bool, Vec<MemberIdx>) {
        let bell = self.link.bell();
        let mut fds = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        let lives: Vec<_> = self.lives.iter().collect();
        fds.extend(lives.iter().map(|(_, life)| PollFd::new(*life, PollFlags::empty())));
        if let Some(socket) = &self.socket {
            let room = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(socket, PollFlags::IN | room));
        }
        let timeout = self
            .retry_at
            .into_iter()
            .chain(self.look_at)
            .min()
            .map(|at| timespec(at.saturating_duration_since(Instant::now())));
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return (false, Vec::new());
        }
        let over = PollFlags::HUP | PollFlags::ERR;
        let dead = lives.iter().zip(&fds[1..]).filter(|(_, fd)| fd.revents().intersects(over));
        let dead = dead.map(|((reader, _), _)| **reader).collect();
        let socket_ready = self.socket.is_some() && !fds[fds.len() - 1].revents().is_empty();
        if !fds[0].revents().is_empty() {
            self.link.quieten();
        }
        (socket_ready, dead)
    }

    /// A member is dead: its holds are none, and its extents are mapped only for as long as refs to them live.
    fn bury(&mut self, inner: &Inner, member: MemberIdx) {
        tracing::debug!(member = member.0, "a member is gone, and its holds with it");
        self.lives.remove(&member);
        inner.heap.lock().forget(member);
        inner.grown.notify_all();
        let gone: Vec<_> =
            inner.imports.read().keys().copied().filter(|(owner, _)| *owner == member).collect();
        for key in gone {
            let mapped = inner.imports.write().remove(&key);
            drop(mapped);
        }
    }

    fn receive(&mut self, inner: &Arc<Inner>) {
        for _ in 0..MESSAGE_COUNT {
            let Some(socket) = &self.socket else { return };
            match self.inbox.recv(socket) {
                Came::Message(message, fds) => self.hear(inner, &message, fds),
                Came::Nothing => return,
                Came::Over => return self.lose(inner),
            }
        }
    }

    fn send(&mut self, inner: &Inner) {
        self.unsent.append(&mut self.link.outbox());
        while let (Some(socket), Some(letter)) = (&self.socket, self.unsent.front()) {
            let fds: Vec<_> = letter.fds.iter().map(AsFd::as_fd).collect();
            match post(socket, &letter.message, &fds) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return,
                Err(_) => return self.lose(inner),
            }
        }
    }

    fn say(&mut self, message: PoolMessage, fds: Vec<OwnedFd>) {
        self.unsent.push_back(Letter { message, fds });
    }

    /// The coordinator is gone. Nothing that this member has or reads is touched.
    fn lose(&mut self, inner: &Inner) {
        tracing::warn!(address = %self.address, "the pool's coordinator is gone; looking for it");
        self.socket = None;
        self.unsent.clear();
        self.inbox = Inbox::new();
        let fetches = {
            // Both locks: whoever asks does so under one of them, and either sees that nobody is there or is told.
            let mut heap = inner.heap.lock();
            let mut fetches = inner.fetches.lock();
            self.link.set_attached(false);
            heap.asking.need = None;
            heap.asking.surplus = false;
            heap.asking.denied = Some((Shortage::Coordinator, Instant::now()));
            std::mem::take(&mut *fetches)
        };
        inner.grown.notify_all();
        for fetch in fetches.into_values() {
            fetch.finish(Err(FetchFault::Coordinator));
        }
        self.arriving.clear();
        self.retry = RETRY_MIN;
        self.retry_at = Some(Instant::now() + self.retry);
    }

    fn rejoin(&mut self, inner: &Arc<Inner>) {
        match greet(&self.address, RETRY_MAX, Some((inner.id, inner.member))) {
            Ok((socket, _)) => {
                self.socket = Some(socket);
                self.retry_at = None;
                let extents: Vec<_> = {
                    let mut heap = inner.heap.lock();
                    self.link.set_attached(true);
                    heap.asking.denied = None;
                    heap.extents().chain(self.making.values()).cloned().collect()
                };
                for extent in extents {
                    self.announce(&extent);
                }
                let imports: Vec<_> = inner.imports.read().values().cloned().collect();
                for import in imports {
                    let message = PoolMessage::new(pool_kind::PRESENT).about(import.owner, import.idx);
                    self.say(message.of(import.shape.data_len() as u64), Vec::new());
                }
                self.send(inner);
                tracing::info!(address = %self.address, "the pool has a coordinator again");
            }
            Err(JoinError::Refused { reason: Refusal::OtherPool, .. }) => {
                tracing::warn!(address = %self.address, "another pool is coordinated there now; staying alone");
                self.retry_at = None;
            }
            Err(_) => {
                self.retry = (self.retry * 2).min(RETRY_MAX);
                self.retry_at = Some(Instant::now() + self.retry);
            }
        }
    }

    /// Tells the coordinator of an extent, new or known to the one before.
    fn announce(&mut self, extent: &OwnExtent) {
        match dup(&*extent.fd).and_then(|fd| Ok(vec![fd, dup(&self.watched)?])) {
            Ok(fds) => {
                let message = PoolMessage::new(pool_kind::EXTENT).about(MemberIdx(0), extent.idx);
                self.say(message.of(extent.shape.data_len() as u64), fds);
            }
            Err(error) => tracing::error!(%error, "an extent can't be told of: no descriptor"),
        }
    }

    fn hear(&mut self, inner: &Arc<Inner>, message: &PoolMessage, fds: Vec<GivenFd>) {
        let (member, extent) = (message.member(), message.extent());
        let reason = Refusal::from_wire(message.reason.get());
        match message.kind.get() {
            pool_kind::GRANT => self.make(inner, message.amount.get()),
            pool_kind::DENY => {
                inner.heap.lock().deny(reason);
                inner.grown.notify_all();
            }
            pool_kind::EXTENT_OK => {
                crate::steps::reached("extent-known");
                if let Some(extent) = self.making.remove(&extent) {
                    let mut heap = inner.heap.lock();
                    heap.add(extent);
                    heap.asking.need = None;
                    heap.asking.denied = None;
                    if heap.free_bytes() < inner.config.low_watermark {
                        inner.prefetch(&mut heap);
                    }
                    drop(heap);
                    inner.grown.notify_all();
                }
            }
            pool_kind::MAPPED => {
                crate::steps::reached("mapped");
                self.map(inner, (member, extent), message.amount.get(), fds);
            }
            pool_kind::WATCHED => {
                if let Some(import) = self.arriving.remove(&(member, extent)) {
                    inner.imports.write().insert((member, extent), import);
                    crate::steps::reached("watched");
                    finish(inner, (member, extent), Ok(()));
                }
            }
            pool_kind::MAP_FAILED => {
                self.arriving.remove(&(member, extent));
                finish(inner, (member, extent), Err(FetchFault::Refused(reason)));
            }
            pool_kind::ROW => {
                inner.heap.lock().name(member, message.amount.get());
                self.watch(inner, member, extent, fds);
            }
            pool_kind::TAKE_BACK => self.give_back(inner, message.amount.get()),
            pool_kind::DROP => {
                let mapped = inner.imports.write().remove(&(member, extent));
                drop((mapped, self.arriving.remove(&(member, extent))));
                finish(inner, (member, extent), Err(FetchFault::Refused(Refusal::Gone)));
            }
            kind => tracing::debug!(kind, "a coordinator of another version says something unknown"),
        }
    }

    /// Makes an extent of what was granted.
    fn make(&mut self, inner: &Inner, amount: u64) {
        crate::steps::reached("granted");
        let idx = inner.heap.lock().next_idx();
        let made = ExtentShape::of_data(amount)
            .ok_or_else(|| "it was granted a length that is none".to_owned())
            .and_then(|shape| {
                OwnExtent::create(inner.id, inner.member, idx, shape).map_err(|error| error.to_string())
            });
        match made {
            Ok(extent) => {
                crate::steps::reached("extent-made");
                self.announce(&extent);
                self.making.insert(idx, Arc::new(extent));
            }
            Err(error) => {
                tracing::warn!(%error, "no extent can be made");
                self.say(PoolMessage::new(pool_kind::RETURNED).of(amount), Vec::new());
                let mut heap = inner.heap.lock();
                heap.asking.need = None;
                heap.asking.denied = Some((Shortage::Machine, Instant::now()));
                drop(heap);
                inner.grown.notify_all();
            }
        }
    }

    /// Maps an extent, makes a row for it, and has the owner look at it.
    fn map(&mut self, inner: &Inner, key: (MemberIdx, ExtentIdx), data_len: u64, fds: Vec<GivenFd>) {
        let no_fd = || FetchFault::Region("its descriptor didn't arrive: too many open files?".to_owned());
        let no_life = |instead: GivenKind| FetchFault::Region(format!("its life is {}", instead.words()));
        let [fd, owners_life] = match <[GivenFd; 2]>::try_from(fds) {
            Ok(fds) => fds.map(Some),
            Err(_) => [None, None],
        };
        let arrived = fd.zip(owners_life).ok_or_else(no_fd).and_then(|(fd, owners_life)| {
            let life = dup(&self.watched).map_err(|error| FetchFault::Region(error.to_string()))?;
            let owners_life = owners_life.accept(GivenKind::Pipe).map_err(no_life)?;
            self.lives.entry(key.0).or_insert(owners_life);
            Ok((Import::map(inner.id, key, fd, data_len, &self.link)?, life))
        });
        match arrived {
            Ok((import, life)) => {
                crate::steps::reached("row-made");
                let row = import.take_row_fd().expect("a new row has its fd");
                let message = PoolMessage::new(pool_kind::ROW).about(key.0, key.1);
                self.say(message.of(std::process::id().into()), vec![row, life]);
                self.arriving.insert(key, Arc::new(import));
            }
            Err(fault) => {
                self.say(PoolMessage::new(pool_kind::UNMAPPED).about(key.0, key.1), Vec::new());
                finish(inner, key, Err(fault));
            }
        }
    }

    /// Looks at a reader's row from now on, and at its life.
    fn watch(&mut self, inner: &Inner, reader: MemberIdx, extent: ExtentIdx, fds: Vec<GivenFd>) {
        let row_len = inner.heap.lock().row_len(extent);
        let mut fds = fds.into_iter();
        // Whatever else it is, to look at it might wait for whoever stands behind it.
        let life = |given: GivenFd| given.accept(GivenKind::Pipe).ok();
        let watched = match (row_len, fds.next(), fds.next().and_then(life)) {
            (Some(row_len), Some(row), Some(life)) => match PeerRegion::map(row, row_len) {
                Ok(row) => {
                    self.lives.entry(reader).or_insert(life);
                    inner.heap.lock().watch(reader, extent, row)
                }
                Err(error) => {
                    tracing::warn!(%error, reader = reader.0, "a reader's row is refused");
                    false
                }
            },
            _ => false,
        };
        let kind = if watched { pool_kind::ROW_OK } else { pool_kind::ROW_NO };
        self.say(PoolMessage::new(kind).about(reader, extent), Vec::new());
    }

    /// Gives up what is idle, as long as the low watermark is kept.
    fn give_back(&mut self, inner: &Inner, most: u64) {
        let idle = {
            let mut heap = inner.heap.lock();
            heap.asking.surplus = false;
            let idle = heap.take_idle(inner.config.low_watermark, most);
            if !idle.is_empty() {
                // More may have become free since that was asked for.
                inner.offer_surplus(&mut heap);
            }
            idle
        };
        for extent in idle {
            let message = PoolMessage::new(pool_kind::RETURNED).about(MemberIdx(0), extent.idx);
            self.say(message.of(extent.shape.data_len() as u64), Vec::new());
        }
    }
}

fn finish(inner: &Inner, key: (MemberIdx, ExtentIdx), outcome: Result<(), FetchFault>) {
    let fetch = inner.fetches.lock().remove(&key);
    if let Some(fetch) = fetch {
        fetch.finish(outcome);
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// What a member says of itself when it comes back.
pub(crate) type Known = (PoolId, MemberIdx);
