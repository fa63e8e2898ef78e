//! One member: what its handles, refs and agent share.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{EXTENT_PAGE_COUNT_MAX, EXTENT_PAGE_COUNT_MIN, PoolMessage, RefHead, pool_kind};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_region::Origin;
use zerocopy::FromBytes;

use crate::config::{Config, WhenShort};
use crate::counts::{Counters, Room, Usage};
use crate::error::{AllocError, FetchFault, RefError, Shortage};
use crate::extent::{Import, PoolId};
use crate::heap::{BlockAt, Found, Heap};
use crate::held::Held;
use crate::holds::take;
use crate::link::Link;
use crate::patience::Patience;
use crate::refs::Ref;

/// After a "no", the coordinator isn't asked again before this; doubled each time within one wait.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Data bytes of the smallest extent.
const EXTENT_LEN_MIN: u64 = (EXTENT_PAGE_COUNT_MIN * PAGE_LEN) as u64;
/// Who holds what isn't looked at more often than this, unless much was passed on meanwhile.
const ROOM_AGE: Duration = Duration::from_millis(100);
/// Much is this part of what one reader may hold.
const LOOKS_PER_LIMIT: u64 = 16;

/// Somebody looks for memory.
#[derive(Debug)]
struct Search {
    len: usize,
    until: Instant,
    /// After a "no": when to ask next.
    ask_at: Instant,
    pause: Duration,
}

impl Search {
    fn new(len: usize, patience: Duration) -> Search {
        let now = Instant::now();
        Search { len, until: now + patience, ask_at: now, pause: PAUSE_MIN }
    }
}

enum Searched {
    Found(Found),
    LookAgain(Instant),
}

/// A member of a pool.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: PoolId,
    pub(crate) member: MemberIdx,
    /// Bytes that this member may have in all.
    pub(crate) quota: u64,
    /// Data bytes of an ordinary extent.
    pub(crate) batch: u64,
    pub(crate) config: Config,
    pub(crate) origin: Origin,
    pub(crate) heap: Mutex<Heap>,
    /// There may be more free memory, or a reason why not.
    pub(crate) grown: Condvar,
    pub(crate) imports: RwLock<BTreeMap<(MemberIdx, ExtentIdx), Arc<Import>>>,
    pub(crate) fetches: Mutex<HashMap<(MemberIdx, ExtentIdx), Arc<Fetch>>>,
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Counters,
}

/// An extent on its way here.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    state: Mutex<FetchState>,
    done: Condvar,
    /// Somebody has stopped waiting for it.
    given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct FetchState {
    outcome: Option<Result<(), FetchFault>>,
    wakers: Vec<Waker>,
}

impl Fetch {
    pub(crate) fn finish(&self, outcome: Result<(), FetchFault>) {
        let wakers = {
            let mut state = self.state.lock();
            state.outcome.get_or_insert(outcome);
            std::mem::take(&mut state.wakers)
        };
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Its waiter waits no more, for now or for good.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn wait(&self, patience: &mut Patience) -> Option<Result<(), FetchFault>> {
        let mut state = self.state.lock();
        while state.outcome.is_none() {
            let turn = patience.turn()?;
            let began = Instant::now();
            if self.done.wait_until(&mut state, began + turn).timed_out() {
                patience.waited(began.elapsed());
            }
        }
        state.outcome.clone()
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), FetchFault>> {
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Inner {
    /// The member that a coordinator has welcomed.
    pub(crate) fn new(welcome: &PoolMessage, config: Config, origin: Origin, link: Arc<Link>) -> Inner {
        Inner {
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
            link,
            counters: Counters::default(),
        }
    }

    /// Whether this process was forked from the one that joined.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.origin.is_elsewhere()
    }

    /// Most bytes that a block can have here.
    pub(crate) fn block_len_max(&self) -> usize {
        let quota = usize::try_from(self.quota).unwrap_or(usize::MAX);
        (quota - quota % PAGE_LEN).min(EXTENT_PAGE_COUNT_MAX * PAGE_LEN)
    }

    fn check_len(&self, len: usize) -> Result<(), AllocError> {
        if self.is_elsewhere() {
            return Err(AllocError::Forked);
        }
        if len == 0 {
            return Err(AllocError::Empty);
        }
        let max = self.block_len_max();
        if len > max { Err(AllocError::TooLong { len, max }) } else { Ok(()) }
    }

    /// A block for `len` bytes of this member's own; `patience` is how long to wait for one.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize, patience: Duration) -> Result<Held, AllocError> {
        self.check_len(len)?;
        let mut heap = self.heap.lock();
        let found = match heap.allocate(len) {
            Some(found) => found,
            None => self.allocate_slowly(&mut heap, len, patience)?,
        };
        Ok(self.allocated(heap, found))
    }

    /// As [`allocate`](Self::allocate), but the task waits, and not the thread.
    pub(crate) async fn allocate_async(
        self: &Arc<Self>,
        len: usize,
        patience: Duration,
    ) -> Result<Held, AllocError> {
        self.check_len(len)?;
        let mut search = None;
        poll_fn(|cx| {
            let mut heap = self.heap.lock();
            if let Some(found) = heap.allocate(len) {
                return Poll::Ready(Ok(self.allocated(heap, found)));
            }
            let search = search.get_or_insert_with(|| Search::new(len, patience));
            match self.search(&mut heap, search) {
                Ok(Searched::Found(found)) => Poll::Ready(Ok(self.allocated(heap, found))),
                Ok(Searched::LookAgain(when)) => {
                    heap.asking.wakers.retain(|(_, waker)| !waker.will_wake(cx.waker()));
                    heap.asking.wakers.push((when, cx.waker().clone()));
                    drop(heap);
                    // The agent keeps the time.
                    self.link.ring();
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    #[inline]
    fn allocated(self: &Arc<Self>, mut heap: MutexGuard<'_, Heap>, found: Found) -> Held {
        if heap.free_bytes() < self.config.low_watermark && heap.asking.need.is_none() {
            self.prefetch(&mut heap);
        }
        drop(heap);
        crate::steps::reached("allocated");
        Held::own(self.clone(), found)
    }

    /// Data bytes of the next extent, at least so many: as many as there are already, within the batch and what is left of the
    /// quota. What a dead member leaves is mapped by whole extents, so the first ones are small.
    fn next_len(&self, heap: &Heap, least: u64) -> u64 {
        let left = self.quota.saturating_sub(heap.total_bytes());
        let grown = heap.total_bytes().min(self.batch).max(EXTENT_LEN_MIN);
        least.max(grown.min(left - left % PAGE_LEN as u64))
    }

    /// Asks for another extent before it is needed, unless the answer was "no" a moment ago.
    #[cold]
    pub(crate) fn prefetch(&self, heap: &mut Heap) {
        let recently = |(_, when): &(Shortage, Instant)| when.elapsed() < PAUSE_MAX;
        let len = self.next_len(heap, 0);
        if len >= EXTENT_LEN_MIN
            && !heap.asking.denied.as_ref().is_some_and(recently)
            && self.link.send(PoolMessage::new(pool_kind::NEED).of(len), Vec::new())
        {
            heap.asking.need = Some(len);
        }
    }

    #[cold]
    fn allocate_slowly(
        &self,
        heap: &mut MutexGuard<'_, Heap>,
        len: usize,
        patience: Duration,
    ) -> Result<Found, AllocError> {
        let mut search = Search::new(len, patience);
        loop {
            let when = match self.search(heap, &mut search)? {
                Searched::Found(found) => return Ok(found),
                Searched::LookAgain(when) => when,
            };
            heap.asking.waiting += 1;
            self.grown.wait_until(heap, when);
            heap.asking.waiting -= 1;
        }
    }

    /// Looks for memory once more, and asks the coordinator for some where nobody has yet. Never waits.
    #[cold]
    fn search(&self, heap: &mut Heap, search: &mut Search) -> Result<Searched, AllocError> {
        let len = search.len;
        if let Some(found) = heap.allocate_thoroughly(len) {
            return Ok(Searched::Found(found));
        }
        let now = Instant::now();
        // After a "no" the next question has to wait its turn; what wakes a waiter must not hurry it.
        if heap.asking.need.is_none() && (heap.asking.denied.is_none() || now >= search.ask_at) {
            self.ask(heap, len);
            search.ask_at = now + search.pause;
            search.pause = (search.pause * 2).min(PAUSE_MAX);
        }
        if now >= search.until {
            Counters::one(&self.counters.exhausted);
            let by = heap.asking.denied.map_or(Shortage::Time, |(by, _)| by);
            let room = heap.room(self.member, self.quota, ROOM_AGE, u64::MAX);
            return Err(AllocError::Exhausted { len, by, room });
        }
        // An answer wakes us. So does a ref dropped here; one dropped elsewhere doesn't, so we look again.
        let again =
            if heap.asking.need.is_some() { now + PAUSE_MAX } else { search.ask_at.max(now + PAUSE_MIN) };
        Ok(Searched::LookAgain(again.min(search.until)))
    }

    /// Asks for an extent that a block of `len` bytes fits into.
    fn ask(&self, heap: &mut Heap, len: usize) {
        let least = (len.next_multiple_of(PAGE_LEN) as u64).max(EXTENT_LEN_MIN);
        // A pool that had no room for an ordinary extent may have some for one that just suffices.
        let need = match heap.asking.denied {
            Some((Shortage::Capacity, _)) => least,
            _ => self.next_len(heap, least),
        };
        // Extents that nothing is in stand in the way of one that is long enough.
        if heap.total_bytes() + need > self.quota && heap.used_bytes() + need <= self.quota {
            for extent in heap.take_idle(0, u64::MAX) {
                let message = PoolMessage::new(pool_kind::RETURNED).about(MemberIdx(0), extent.idx);
                self.link.send(message.of(extent.shape.data_len() as u64), Vec::new());
            }
        }
        if self.link.send(PoolMessage::new(pool_kind::NEED).of(need), Vec::new()) {
            heap.asking.need = Some(need);
        } else {
            heap.asking.denied = Some((Shortage::Coordinator, Instant::now()));
        }
    }

    /// Wakes tasks that wait for memory: `all` of them, or those whose time has come. When to look at the others.
    pub(crate) fn wake_waiters(&self, all: bool) -> Option<Instant> {
        let now = Instant::now();
        let mut heap = self.heap.lock();
        let wakers = &mut heap.asking.wakers;
        let due: Vec<_> = wakers.extract_if(.., |(when, _)| all || *when <= now).collect();
        let next = wakers.iter().map(|(when, _)| *when).min();
        drop(heap);
        due.into_iter().for_each(|(_, waker)| waker.wake());
        next
    }

    /// Whether more may be sent by ref to a process.
    pub(crate) fn may_share_with(&self, process: u32) -> Result<(), AllocError> {
        let limit = self.config.reader_limit.unwrap_or(self.quota / 2);
        let mut heap = self.heap.lock();
        if heap.used_bytes() <= limit {
            return Ok(());
        }
        let room = heap.room(self.member, self.quota, ROOM_AGE, limit / LOOKS_PER_LIMIT);
        drop(heap);
        let others = room.holders.iter().filter(|holder| holder.member != self.member.0);
        let of_process = others.filter(|holder| holder.process == Some(process));
        let held = of_process.map(|holder| holder.bytes).sum();
        if held <= limit { Ok(()) } else { Err(AllocError::ReaderLimit { process, held, limit }) }
    }

    pub(crate) fn room(&self) -> Room {
        let room = self.heap.lock().room(self.member, self.quota, Duration::ZERO, 0);
        Arc::unwrap_or_clone(room)
    }

    pub(crate) fn patience_when_short(&self) -> Duration {
        match self.config.when_short {
            WhenShort::Wait(limit) => limit,
            WhenShort::Fail => Duration::ZERO,
        }
    }

    /// One ref of this member to its own block less.
    pub(crate) fn release_own(&self, at: BlockAt) {
        let mut heap = self.heap.lock();
        heap.release(at);
        let (waiting, tasks_wait) = (heap.asking.waiting > 0, !heap.asking.wakers.is_empty());
        self.offer_surplus(&mut heap);
        drop(heap);
        if waiting {
            self.grown.notify_all();
        }
        if tasks_wait {
            self.wake_waiters(true);
        }
    }

    /// Offers what is free beyond the high watermark to the coordinator, if it makes a batch.
    #[inline]
    pub(crate) fn offer_surplus(&self, heap: &mut Heap) {
        let surplus = heap.free_bytes().saturating_sub(self.config.high_watermark);
        if surplus >= self.batch && !heap.asking.surplus {
            heap.asking.surplus =
                self.link.send(PoolMessage::new(pool_kind::SURPLUS).of(surplus), Vec::new());
        }
    }

    /// A ref out of what travelled, if its extent is mapped here.
    pub(crate) fn try_map(self: &Arc<Self>, bytes: &[u8]) -> Result<Ref, RefError> {
        let result = self.try_map_uncounted(bytes);
        match &result {
            Err(error) if error.is_forbidden() => Counters::one(&self.counters.forbidden_refs),
            Err(error) if error.is_stale() => Counters::one(&self.counters.stale_refs),
            Err(RefError::Full) => Counters::one(&self.counters.full_holds),
            _ => {}
        }
        result
    }

    fn try_map_uncounted(self: &Arc<Self>, bytes: &[u8]) -> Result<Ref, RefError> {
        if self.is_elsewhere() {
            return Err(RefError::Forked);
        }
        let head = self.parse(bytes)?;
        let (member, extent) = (MemberIdx(head.member.get()), ExtentIdx(head.extent.get()));
        let (page, generation) = head.block();
        let genuine = |key| head.tag_by(key) == head.tag.get();
        let held = if member == self.member {
            let found = self.heap.lock().come_home(extent, page, generation, genuine)?;
            Held::own(self.clone(), found)
        } else {
            let import = self.imports.read().get(&(member, extent)).cloned().ok_or(RefError::NotHere)?;
            if page.as_usize() >= import.shape.page_count() {
                return Err(RefError::Malformed("its page"));
            }
            let mut row = import.row.lock();
            let state = take(&mut row, &import.region, page, generation, genuine)?;
            let Some(len) = import.shape.block_len(page, state) else {
                row.release(page);
                return Err(RefError::Malformed("its block"));
            };
            drop(row);
            crate::steps::reached("held");
            Held::other(self.clone(), import, page, len)
        };
        let (off, len) = head.range_in(held.len()).ok_or(RefError::Malformed("its range"))?;
        Ok(Ref::new(Arc::new(held), off, len))
    }

    fn parse(&self, bytes: &[u8]) -> Result<RefHead, RefError> {
        let head = RefHead::read_from_bytes(bytes).map_err(|_| RefError::Malformed("their number"))?;
        if head.pool != self.id {
            return Err(RefError::ForeignPool);
        }
        if head.len.get() == 0 {
            return Err(RefError::Empty);
        }
        Ok(head)
    }

    /// The extent of a ref on its way here; one fetch serves all who wait for it.
    pub(crate) fn fetch(&self, bytes: &[u8]) -> Result<Arc<Fetch>, RefError> {
        let head = self.parse(bytes)?;
        let key = (MemberIdx(head.member.get()), ExtentIdx(head.extent.get()));
        let mut fetches = self.fetches.lock();
        if let Some(fetch) = fetches.get(&key) {
            return Ok(fetch.clone());
        }
        let fetch = Arc::new(Fetch::default());
        // It may have arrived since it was looked for.
        if self.imports.read().contains_key(&key) {
            fetch.finish(Ok(()));
        } else if self.link.send(PoolMessage::new(pool_kind::MAP).about(key.0, key.1), Vec::new()) {
            fetches.insert(key, fetch.clone());
            crate::steps::reached("map-asked");
        } else {
            return Err(RefError::Coordinator);
        }
        Ok(fetch)
    }

    pub(crate) fn map(self: &Arc<Self>, bytes: &[u8]) -> Result<Ref, RefError> {
        let limit = self.config.patience;
        let mut patience = Patience::new(limit);
        loop {
            match self.try_map(bytes) {
                Err(RefError::NotHere) => {}
                result => return result,
            }
            let fetch = self.fetch(bytes)?;
            match fetch.wait(&mut patience) {
                Some(Ok(())) => {}
                Some(Err(fault)) => return Err(self.count(fault.into())),
                None => {
                    fetch.give_up();
                    return Err(RefError::Timeout(limit));
                }
            }
        }
    }

    /// Whether a ref's owner still owes an answer that somebody has waited for in vain.
    pub(crate) fn owes_for_long(&self, bytes: &[u8]) -> bool {
        let Ok(head) = self.parse(bytes) else { return false };
        let fetches = self.fetches.lock();
        let mut of_owner = fetches.iter().filter(|((owner, _), _)| owner.0 == head.member.get());
        of_owner.any(|(_, fetch)| fetch.given_up.load(Ordering::Relaxed))
    }

    /// Counts a ref that a fetch has found to be stale.
    pub(crate) fn count(&self, error: RefError) -> RefError {
        if error.is_stale() {
            Counters::one(&self.counters.stale_refs);
        }
        error
    }

    /// A ref to bytes that a ref of this member's keeps.
    pub(crate) fn ref_of(self: &Arc<Self>, bytes: &[u8]) -> Option<Ref> {
        if bytes.is_empty() || self.is_elsewhere() {
            return None;
        }
        let address = bytes.as_ptr() as usize;
        let found = self.heap.lock().at_address(address);
        let (held, base) = match found {
            Some((found, base)) => (Held::own(self.clone(), found), base),
            None => {
                let imports = self.imports.read();
                let (import, (page, base, len)) =
                    imports.values().find_map(|import| Some((import, import.at_address(address)?)))?;
                (Held::other(self.clone(), import.clone(), page, len), base)
            }
        };
        let off = address - base;
        (bytes.len() <= held.len() - off).then(|| Ref::new(Arc::new(held), off, bytes.len()))
    }

    pub(crate) fn usage(&self) -> Usage {
        let import_count = self.imports.read().len();
        let heap = self.heap.lock();
        Usage {
            total_bytes: heap.total_bytes(),
            free_bytes: heap.free_bytes(),
            limbo_count: heap.limbo_count(),
            extent_count: heap.extents().count(),
            row_count: heap.row_count(),
            import_count,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.is_elsewhere() {
            self.link.close();
        }
    }
}
