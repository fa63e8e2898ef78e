//! A member's member protocol with the coordinator: what it says to what it hears. No socket, no thread, no time.
//!
//! # States
//! Of an extent that this member makes, and of one of another's that it maps; `capacity_shares/mapping.rs` draws the other side:
//!
//! ```text
//! GRANT ──► making ──EXTENT_OK──► in the heap ──RETURNED──► (gone)
//! MAPPED ──► arriving ──WATCHED──► imported ──DROP, LEFT──► parted: until the last ref to it is dropped
//! ```
//!
//! A connection that is lost takes what is arriving, for nobody says any more whether its row is looked at, and nothing else; it is
//! asked for again over the next one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use tollfree_layout::pool::{ExtentShape, PoolMessage, pool_kind, pool_reason};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_os::fd::OwnedFd;
use tollfree_region::{GivenFd, GivenKind, PeerRegion};

use crate::error::{FetchFault, Refusal, Shortage};
use crate::extent::{Import, OwnExtent, dup};
use crate::inner::Inner;
use crate::link::{Letter, Link};

/// What this member has under way, and what it has to say.
#[derive(Debug)]
pub(crate) struct MemberProtocol {
    link: Arc<Link>,
    unsent: VecDeque<Letter>,
    /// What tells of the end of each member that reads this one's extents, or whose extents this one reads.
    lives: HashMap<MemberIdx, OwnedFd>,
    /// Extents that the coordinator hasn't confirmed yet.
    making: BTreeMap<ExtentIdx, Arc<OwnExtent>>,
    /// Others' extents whose owner doesn't look at this member's row yet.
    arriving: BTreeMap<(MemberIdx, ExtentIdx), (Arc<Import>, u64)>,
    /// The number of the last row: an answer to an earlier one is none to a later one.
    last_row: u64,
    /// Extents of owners that are gone: mapped for as long as refs to them live.
    parted: Vec<Weak<Import>>,
}

impl MemberProtocol {
    pub(crate) fn new(link: Arc<Link>) -> MemberProtocol {
        MemberProtocol {
            link,
            unsent: VecDeque::new(),
            lives: HashMap::new(),
            making: BTreeMap::new(),
            arriving: BTreeMap::new(),
            last_row: 0,
            parted: Vec::new(),
        }
    }

    /// Members whose end matters to this one, and what tells of it.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (MemberIdx, &OwnedFd)> {
        self.lives.iter().map(|(member, life)| (*member, life))
    }

    /// What is to be sent; the front goes first.
    pub(crate) fn letters(&mut self) -> &mut VecDeque<Letter> {
        self.unsent.append(&mut self.link.outbox());
        &mut self.unsent
    }

    /// Whether there is anything to be sent that was looked at before.
    pub(crate) fn is_quiet(&self) -> bool {
        self.unsent.is_empty()
    }

    /// This member leaves, and holds nothing.
    pub(crate) fn leave(&mut self) {
        self.arriving.clear();
        self.letters();
        self.say(PoolMessage::new(pool_kind::LEAVE), Vec::new());
    }

    fn say(&mut self, message: PoolMessage, fds: Vec<OwnedFd>) {
        self.unsent.push_back(Letter { message, fds });
    }

    /// A member's process has ended: its holds are none, and its extents are mapped only for as long as refs to them live.
    pub(crate) fn bury(&mut self, inner: &Inner, member: MemberIdx) {
        tracing::debug!(member = member.0, "a member is gone, and its holds with it");
        inner.heap.lock().forget(member);
        self.part(inner, member);
        self.lives.remove(&member);
    }

    /// The coordinator says that a member has left. Rows that hold something stay until the kernel says that
    /// its process has ended: nothing else takes a hold from anybody.
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

    /// The connection is lost. Nothing that this member has or reads is touched.
    pub(crate) fn lose(&mut self, inner: &Inner) {
        self.unsent.clear();
        {
            // Both locks: a process asks under one of them, and either sees that nobody is there or is told.
            let mut heap = inner.heap.lock();
            let _fetches = inner.fetches.lock();
            self.link.set_attached(false);
            heap.asking.need = None;
            heap.asking.surplus = false;
            heap.asking.denied = Some((Shortage::Coordinator, Instant::now()));
        }
        inner.grown.notify_all();
        self.arriving.clear();
    }

    /// Nobody knows when there will be a coordinator: who waits for an extent is told.
    pub(crate) fn give_up_fetches(&mut self, inner: &Inner) {
        let fetches = std::mem::take(&mut *inner.fetches.lock());
        for fetch in fetches.into_values() {
            fetch.finish(Err(FetchFault::Coordinator));
        }
    }

    /// A coordinator knows this member again: it is told of all that this member has and maps, and asked again for what was on
    /// its way.
    pub(crate) fn resume(&mut self, inner: &Inner) {
        let (extents, wanted): (Vec<_>, Vec<_>) = {
            let mut heap = inner.heap.lock();
            let fetches = inner.fetches.lock();
            self.link.set_attached(true);
            heap.asking.denied = None;
            let extents = heap.extents().chain(self.making.values()).cloned().collect();
            (extents, fetches.keys().copied().collect::<BTreeSet<_>>().into_iter().collect())
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
        for (owner, extent) in wanted {
            self.say(PoolMessage::new(pool_kind::MAP).about(owner, extent), Vec::new());
        }
    }

    /// Tells the coordinator of an extent, new or known to the one before.
    fn announce(&mut self, extent: &OwnExtent) {
        let message = PoolMessage::new(pool_kind::EXTENT).about(MemberIdx(0), extent.idx);
        self.say(message.of(extent.shape.data_len() as u64), Vec::new());
    }

    /// What the coordinator says.
    pub(crate) fn hear(&mut self, inner: &Inner, message: &PoolMessage, fds: Vec<GivenFd>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tollfree_layout::pool::RefHead;
    use tollfree_os::rustix::process::PidfdFlags;
    use tollfree_region::{Origin, ReadMemory as _};
    use tollfree_testkit::hollow;
    use zerocopy::{FromZeros, IntoBytes};

    use crate::config::Config;
    use crate::error::RefError;
    use crate::pool::Pool;

    const OWNER: MemberIdx = MemberIdx(9);
    const ONE: ExtentIdx = ExtentIdx(1);

    fn member() -> (Arc<Inner>, MemberProtocol) {
        let link = Arc::new(Link::new().unwrap());
        let mut welcome = PoolMessage::new(pool_kind::WELCOME).about(MemberIdx(1), ExtentIdx(0));
        welcome.amount = (1 << 20).into();
        let config = Config { low_watermark: 0, patience: Duration::from_secs(60), ..Config::default() };
        let inner = Inner::new(&welcome, config, Origin::current().unwrap(), link.clone());
        (Arc::new(inner), MemberProtocol::new(link))
    }

    /// A ref that another member is said to have made.
    fn wire() -> Vec<u8> {
        let mut head = RefHead::new_zeroed();
        (head.member, head.extent, head.len) = (OWNER.0.into(), ONE.0.into(), 1.into());
        head.as_bytes().to_vec()
    }

    fn kinds(member_protocol: &mut MemberProtocol) -> Vec<u32> {
        member_protocol.letters().drain(..).map(|letter| letter.message.kind.get()).collect()
    }

    #[test]
    fn what_was_on_its_way_is_asked_for_again_over_the_next_connection() {
        let (inner, mut member_protocol) = member();
        let fetch = inner.fetch(&wire()).unwrap();
        let look = || fetch.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(kinds(&mut member_protocol), [pool_kind::MAP]);
        member_protocol.lose(&inner);
        assert!(look().is_pending());
        member_protocol.resume(&inner);
        assert_eq!(kinds(&mut member_protocol), [pool_kind::RESUMED, pool_kind::MAP]);
        member_protocol.lose(&inner);
        member_protocol.give_up_fetches(&inner);
        assert!(matches!(look(), Poll::Ready(Err(FetchFault::Coordinator))));
        assert!(matches!(inner.fetch(&wire()), Err(RefError::Coordinator)), "nobody is there to ask");
    }

    /// The life of this process, as a member's.
    fn life() -> GivenFd {
        let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        GivenFd::from(pidfd)
    }

    #[test]
    fn an_extent_whose_readers_would_pay_for_its_pages_is_not_mapped() {
        let (inner, mut member_protocol) = member();
        let shape = ExtentShape::of_data(1 << 16).unwrap();
        let good = OwnExtent::create(inner.id, OWNER, ONE, shape).unwrap();
        let mut head = [0; 64];
        good.region.copy_out(0, &mut head);
        let message = PoolMessage::new(pool_kind::MAPPED).about(OWNER, ONE).of(1 << 16);
        member_protocol.hear(&inner, &message, vec![hollow(&head, shape.file_len()).into(), life()]);
        assert_eq!(kinds(&mut member_protocol), [pool_kind::UNMAPPED]);
        let fd = good.fd.try_clone().unwrap();
        member_protocol.hear(&inner, &message, vec![fd.into(), life()]);
        assert_eq!(kinds(&mut member_protocol), [pool_kind::ROW], "one that has its pages is");
    }

    #[test]
    fn a_row_whose_owner_would_pay_for_its_pages_is_not_looked_at() {
        let (inner, mut member_protocol) = member();
        member_protocol.hear(&inner, &PoolMessage::new(pool_kind::GRANT).of(1 << 16), Vec::new());
        let idx = member_protocol.letters()[0].message.extent();
        member_protocol.hear(
            &inner,
            &PoolMessage::new(pool_kind::EXTENT_OK).about(MemberIdx(1), idx),
            Vec::new(),
        );
        let row_len = inner.heap.lock().row_len(idx).unwrap();
        _ = kinds(&mut member_protocol);
        let message = PoolMessage::new(pool_kind::ROW).about(OWNER, idx).row(1);
        member_protocol.hear(&inner, &message, vec![hollow(&[], row_len).into(), life()]);
        assert_eq!(kinds(&mut member_protocol), [pool_kind::NOT_HAD]);
        let row = tollfree_region::Region::create("row", row_len).unwrap();
        member_protocol.hear(&inner, &message, vec![row.fd().try_clone_to_owned().unwrap().into(), life()]);
        assert_eq!(kinds(&mut member_protocol), [pool_kind::ROW_OK], "one that has its pages is");
    }

    #[test]
    fn an_owner_that_was_waited_for_in_vain_is_not_waited_for_until_it_answers() {
        let (inner, mut member_protocol) = member();
        let pool = Pool::of(inner.clone());
        let wire = wire();
        {
            let mut fetch = pin!(pool.fetch(&wire));
            assert!(fetch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!pool.is_waited_for(&wire), "it may still come");
        }
        assert!(pool.is_waited_for(&wire));
        let failed = PoolMessage::new(pool_kind::MAP_FAILED).about(OWNER, ONE).because(pool_reason::BUSY);
        member_protocol.hear(&inner, &failed, Vec::new());
        assert!(!pool.is_waited_for(&wire));
    }
}
