//! One member: what its handles, refs and agent share.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{EXTENT_PAGE_COUNT_MAX, PoolMessage, RefHead, pool_kind};
use tollfree_layout::{ExtentIdx, Generation, MemberIdx, PageIdx};
use tollfree_region::Origin;
use zerocopy::FromBytes;

use crate::config::{Config, WhenShort};
use crate::counts::{Counters, Usage};
use crate::error::{AllocError, FetchFault, RefError, Shortage};
use crate::extent::{Import, PoolId};
use crate::heap::{BlockAt, Heap};
use crate::held::Held;
use crate::holds::take;
use crate::link::Link;
use crate::patience::Patience;
use crate::refs::{Ref, tag};

/// After a "no", the coordinator isn't asked again before this; doubled each time within one wait.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);

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
    /// Whether this process was forked from the one that joined.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.origin.is_elsewhere()
    }

    /// Most bytes that a block can have here.
    pub(crate) fn block_len_max(&self) -> usize {
        let quota = usize::try_from(self.quota).unwrap_or(usize::MAX);
        let whole = 1_usize << quota.max(1).ilog2();
        whole.min(EXTENT_PAGE_COUNT_MAX * PAGE_LEN)
    }

    /// A block for `len` bytes of this member's own; `patience` is how long to wait for one.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize, patience: Duration) -> Result<Held, AllocError> {
        if self.is_elsewhere() {
            return Err(AllocError::Forked);
        }
        if len == 0 {
            return Err(AllocError::Empty);
        }
        let max = self.block_len_max();
        if len > max {
            return Err(AllocError::TooLong { len, max });
        }
        let mut heap = self.heap.lock();
        let found = match heap.allocate(len) {
            Some(found) => found,
            None => {
                let found = self.allocate_slowly(&mut heap, len, patience);
                found.inspect_err(|_| Counters::one(&self.counters.exhausted))?
            }
        };
        if heap.free_bytes() < self.config.low_watermark && heap.asking.need.is_none() {
            self.prefetch(&mut heap);
        }
        drop(heap);
        crate::steps::reached("allocated");
        Ok(Held::own(self.clone(), found))
    }

    /// Asks for another batch before it is needed, unless the answer was "no" a moment ago.
    #[cold]
    pub(crate) fn prefetch(&self, heap: &mut Heap) {
        let recently = |(_, when): &(Shortage, Instant)| when.elapsed() < PAUSE_MAX;
        if !heap.asking.denied.as_ref().is_some_and(recently)
            && heap.total_bytes() + self.batch <= self.quota
            && self.link.send(PoolMessage::new(pool_kind::NEED).of(self.batch), Vec::new())
        {
            heap.asking.need = Some(self.batch);
        }
    }

    #[cold]
    fn allocate_slowly(
        &self,
        heap: &mut MutexGuard<'_, Heap>,
        len: usize,
        patience: Duration,
    ) -> Result<crate::heap::Found, AllocError> {
        let until = Instant::now() + patience;
        let need = self.batch.max(len.div_ceil(PAGE_LEN).next_power_of_two() as u64 * PAGE_LEN as u64);
        let mut pause = PAUSE_MIN;
        loop {
            if let Some(found) = heap.allocate_thoroughly(len) {
                return Ok(found);
            }
            if heap.asking.need.is_none() {
                let message = PoolMessage::new(pool_kind::NEED).of(need);
                if self.link.send(message, Vec::new()) {
                    heap.asking.need = Some(need);
                } else {
                    heap.asking.denied = Some((Shortage::Coordinator, Instant::now()));
                }
            }
            if Instant::now() >= until {
                let by = heap.asking.denied.map_or(Shortage::Time, |(by, _)| by);
                return Err(AllocError::Exhausted { len, by });
            }
            // An answer wakes us. So does a ref dropped here; one dropped elsewhere doesn't, so we look again.
            heap.asking.waiting += 1;
            let look_again = if heap.asking.need.is_some() { PAUSE_MAX } else { pause };
            self.grown.wait_until(heap, until.min(Instant::now() + look_again));
            heap.asking.waiting -= 1;
            // After a "no" the next question has to wait its turn; a woken waiter must not hurry it.
            if heap.asking.need.is_none() && heap.asking.denied.is_some() {
                if let Some(found) = heap.allocate_thoroughly(len) {
                    return Ok(found);
                }
                let pause_now = pause.min(until.saturating_duration_since(Instant::now()));
                MutexGuard::unlocked(heap, || std::thread::sleep(pause_now));
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
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
        let waiting = heap.asking.waiting > 0;
        self.offer_surplus(&mut heap);
        drop(heap);
        if waiting {
            self.grown.notify_all();
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
        let page = PageIdx(head.page.get());
        let generation = Generation(head.generation.get());
        let genuine = |key| tag(key, &head) == head.tag.get();
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
            let Some(len) = import.block_len(page, state) else {
                row.release(page);
                return Err(RefError::Malformed("its block"));
            };
            drop(row);
            crate::steps::reached("held");
            Held::other(self.clone(), import, page, len)
        };
        let (off, len) = (head.offset.get(), head.len.get());
        match (usize::try_from(off), usize::try_from(len)) {
            (Ok(off), Ok(len)) if off.checked_add(len).is_some_and(|end| end <= held.len()) => {
                Ok(Ref::new(Arc::new(held), off, len))
            }
            _ => Err(RefError::Malformed("its range")),
        }
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
            match self.fetch(bytes)?.wait(&mut patience) {
                Some(Ok(())) => {}
                Some(Err(fault)) => return Err(self.count(fault.into())),
                None => return Err(RefError::Timeout(limit)),
            }
        }
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
