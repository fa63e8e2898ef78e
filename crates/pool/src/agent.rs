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

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use tollfree_layout::pool::{ExtentShape, PoolMessage, pool_kind, pool_reason};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_region::{GivenFd, GivenKind, Origin, PeerRegion};
use tollfree_rendezvous::Address;

use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::counts::Counters;
use crate::error::{FetchFault, JoinError, Refusal, Shortage};
use crate::extent::{Import, OwnExtent, dup};
use crate::greet::{Known, greet};
use crate::heap::Heap;
use crate::inner::Inner;
use crate::link::{Came, Inbox, Letter, Link, is_stall, post};

/// Messages taken in one go, before others are looked at.
const MESSAGE_COUNT: usize = 64;
/// Pause before the coordinator is looked for again; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(200);
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
) -> Result<Arc<Inner>, JoinError> {
    let system = |what| move |source: std::io::Error| JoinError::System { what, source };
    let origin = Origin::current().map_err(system("to notice forks"))?;
    let link = Arc::new(Link::new().map_err(system("an eventfd"))?);
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
    });
    let agent = Agent {
        inner: Arc::downgrade(&inner),
        address: address.clone(),
        link,
        socket: Some(socket),
        inbox: Inbox::new(),
        unsent: VecDeque::new(),
        stalled: false,
        known: Known { pool: welcome.pool, member: welcome.member(), secret: welcome.secret },
        lives: HashMap::new(),
        making: HashMap::new(),
        arriving: HashMap::new(),
        last_row: 0,
        parted: Vec::new(),
        _coordinator: coordinator,
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
    /// The kernel takes no more descriptors now.
    stalled: bool,
    /// What it comes back with.
    known: Known,
    /// What tells of the end of each member that reads this one's extents, or whose extents this one reads.
    lives: HashMap<MemberIdx, OwnedFd>,
    /// Extents that the coordinator hasn't confirmed yet.
    making: HashMap<ExtentIdx, Arc<OwnExtent>>,
    /// Others' extents whose owner doesn't look at this member's row yet.
    arriving: HashMap<(MemberIdx, ExtentIdx), (Arc<Import>, u64)>,
    /// The number of the last row: an answer to an earlier one is none to a later one.
    last_row: u64,
    /// Extents of owners that are gone: mapped for as long as refs to them live.
    parted: Vec<Weak<Import>>,
    retry: Duration,
    /// When to look for a coordinator; never, while there is one.
    retry_at: Option<Instant>,
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
        fds.extend(lives.iter().map(|(_, life)| PollFd::new(*life, PollFlags::IN)));
        if let Some(socket) = &self.socket {
            let is_quiet = self.unsent.is_empty() || self.stalled;
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
        let dead = dead.map(|((reader, _), _)| **reader).collect();
        let socket_ready = self.socket.is_some() && !fds[fds.len() - 1].revents().is_empty();
        if !fds[0].revents().is_empty() {
            self.link.quieten();
        }
        (socket_ready, dead)
    }

    /// Says that this member leaves, and waits a moment for the coordinator to have heard it. Whatever was held is let go.
    fn leave(mut self) {
        self.arriving.clear();
        self.unsent.append(&mut self.link.outbox());
        self.say(PoolMessage::new(pool_kind::LEAVE), Vec::new());
        let until = Instant::now() + LEAVE_LIMIT;
        while self.post_all().is_ok() {
            let left = until.saturating_duration_since(Instant::now());
            let Some(socket) = self.socket.as_ref().filter(|_| !left.is_zero()) else { return };
            match self.inbox.recv(socket) {
                Came::Message(..) => continue,
                Came::Over => return,
                Came::Nothing => {}
            }
            let room = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let left = if self.stalled { STALL_PAUSE } else { left };
            // However it ends, the next turn sees what is the matter.
            let _ =
                rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN | room)], Some(&timespec(left)));
        }
    }

    /// A member's process has ended: its holds are none, and its extents are mapped only for as long as refs to them live.
    fn bury(&mut self, inner: &Inner, member: MemberIdx) {
        tracing::debug!(member = member.0, "a member is gone, and its holds with it");
        inner.heap.lock().forget(member);
        self.part(inner, member);
        self.lives.remove(&member);
    }

    /// The coordinator says that a member has left. Rows that hold something stay until its process has ended: only the
    /// kernel's word takes a hold from anybody.
    fn farewell(&mut self, inner: &Inner, member: MemberIdx) {
        let has_rows = inner.heap.lock().forget_idle(member);
        self.part(inner, member);
        if !has_rows {
            self.lives.remove(&member);
        }
    }

    /// What a member that is gone has held is free, and its extents are mapped only for as long as refs to them live.
    fn part(&mut self, inner: &Inner, member: MemberIdx) {
        inner.grown.notify_all();
        let mut gone: Vec<_> =
            inner.imports.read().keys().copied().filter(|(owner, _)| *owner == member).collect();
        gone.extend(self.arriving.keys().copied().filter(|(owner, _)| *owner == member));
        for key in gone {
            self.drop_import(inner, key);
        }
    }

    /// An extent is not to be had any more.
    fn drop_import(&mut self, inner: &Inner, key: (MemberIdx, ExtentIdx)) {
        self.parted.retain(|import| import.strong_count() > 0);
        let mapped = inner.imports.write().remove(&key);
        self.parted.extend(mapped.as_ref().map(Arc::downgrade));
        drop((mapped, self.arriving.remove(&key)));
        finish(inner, key, Err(FetchFault::Refused(Refusal::Gone)));
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
        if self.post_all().is_err() {
            self.lose(inner);
        }
    }

    /// Sends what there is room for.
    fn post_all(&mut self) -> std::io::Result<()> {
        self.stalled = false;
        while let (Some(socket), Some(letter)) = (&self.socket, self.unsent.front()) {
            let fds: Vec<_> = letter.fds.iter().map(AsFd::as_fd).collect();
            match post(socket, &letter.message, &fds) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return Ok(()),
                Err(error) if is_stall(&error) => {
                    self.stalled = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        match greet(&self.address, GREET_LIMIT, Some(self.known)) {
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
                let mut imports: Vec<_> = inner.imports.read().values().cloned().collect();
                imports.extend(self.parted.iter().filter_map(Weak::upgrade));
                for import in imports {
                    let message = PoolMessage::new(pool_kind::PRESENT).about(import.owner, import.idx);
                    self.say(message.of(import.shape.data_len() as u64), Vec::new());
                }
                self.say(PoolMessage::new(pool_kind::RESUMED), Vec::new());
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

    /// Tells the coordinator of an extent, new or known to the one before.
    fn announce(&mut self, extent: &OwnExtent) {
        let message = PoolMessage::new(pool_kind::EXTENT).about(MemberIdx(0), extent.idx);
        self.say(message.of(extent.shape.data_len() as u64), Vec::new());
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
                let is_it = |(_, row): &(_, u64)| *row == message.len.get();
                if self.arriving.get(&(member, extent)).is_some_and(is_it)
                    && let Some((import, _)) = self.arriving.remove(&(member, extent))
                {
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
                self.watch(inner, (member, extent), message.len.get(), fds);
            }
            pool_kind::WANTED => self.give(inner, member, extent),
            pool_kind::TAKE_BACK => self.give_back(inner, message.amount.get()),
            pool_kind::DROP => self.drop_import(inner, (member, extent)),
            pool_kind::LEFT => self.farewell(inner, member),
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

    /// Gives a reader the descriptor of an extent.
    fn give(&mut self, inner: &Inner, reader: MemberIdx, extent: ExtentIdx) {
        let found = inner.heap.lock().extents().find(|own| own.idx == extent).cloned();
        let answer = match found.map(|own| dup(&*own.fd)) {
            Some(Ok(fd)) => (PoolMessage::new(pool_kind::GIVE), vec![fd]),
            Some(Err(error)) => {
                tracing::warn!(%error, "an extent can't be given: no descriptor");
                (PoolMessage::new(pool_kind::NOT_HAD).because(pool_reason::BUSY), Vec::new())
            }
            None => (PoolMessage::new(pool_kind::NOT_HAD).because(pool_reason::GONE), Vec::new()),
        };
        self.say(answer.0.about(reader, extent), answer.1);
    }

    /// Maps an extent, makes a row for it, and has the owner look at it.
    fn map(&mut self, inner: &Inner, key: (MemberIdx, ExtentIdx), data_len: u64, fds: Vec<GivenFd>) {
        if self.arriving.contains_key(&key) || inner.imports.read().contains_key(&key) {
            return;
        }
        let no_fd = || FetchFault::Region("its descriptor didn't arrive: too many open files?".to_owned());
        let no_life = |instead: GivenKind| FetchFault::Region(format!("its life is {}", instead.words()));
        let [fd, owners_life] = match <[GivenFd; 2]>::try_from(fds) {
            Ok(fds) => fds.map(Some),
            Err(_) => [None, None],
        };
        let arrived = fd.zip(owners_life).ok_or_else(no_fd).and_then(|(fd, owners_life)| {
            let owners_life = owners_life.accept(GivenKind::Process).map_err(no_life)?;
            let import = Import::map(inner.id, key, fd, data_len, &self.link)?;
            self.lives.entry(key.0).or_insert(owners_life);
            Ok(import)
        });
        match arrived {
            Ok(import) => {
                crate::steps::reached("row-made");
                self.last_row += 1;
                let row = import.take_row_fd().expect("a new row has its fd");
                let message = PoolMessage::new(pool_kind::ROW).about(key.0, key.1);
                self.say(message.row(self.last_row).of(std::process::id().into()), vec![row]);
                self.arriving.insert(key, (Arc::new(import), self.last_row));
            }
            Err(fault) => {
                self.say(PoolMessage::new(pool_kind::UNMAPPED).about(key.0, key.1), Vec::new());
                finish(inner, key, Err(fault));
            }
        }
    }

    /// Looks at a reader's row from now on, and at its life.
    fn watch(
        &mut self,
        inner: &Inner,
        (reader, extent): (MemberIdx, ExtentIdx),
        number: u64,
        fds: Vec<GivenFd>,
    ) {
        let row_len = inner.heap.lock().row_len(extent);
        let mut fds = fds.into_iter();
        // Another kind of descriptor might have us wait for its maker.
        let life = |given: GivenFd| given.accept(GivenKind::Process).ok();
        let watched = match (row_len, fds.next().zip(fds.next().and_then(life))) {
            (Some(row_len), Some((row, life))) => PeerRegion::map(row, row_len)
                .map_err(|error| {
                    tracing::warn!(%error, reader = reader.0, "a reader's row is refused");
                    pool_reason::BUSY
                })
                .and_then(|row| {
                    self.lives.entry(reader).or_insert(life);
                    let is_watched = inner.heap.lock().watch(reader, extent, row);
                    is_watched.then_some(()).ok_or(pool_reason::GONE)
                }),
            (Some(_), None) => Err(pool_reason::BUSY),
            (None, _) => Err(pool_reason::GONE),
        };
        let answer = match watched {
            Ok(()) => PoolMessage::new(pool_kind::ROW_OK).row(number),
            Err(reason) => PoolMessage::new(pool_kind::NOT_HAD).because(reason),
        };
        self.say(answer.about(reader, extent), Vec::new());
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
