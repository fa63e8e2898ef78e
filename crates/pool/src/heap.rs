//! A member's own extents: which blocks are free, owned, passed on, or waiting until nobody holds them.
//!
//! All under one lock, held for a bounded number of steps. `holds` draws the states of a block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::BlockState;
use tollfree_layout::{ExtentIdx, Generation, MemberIdx, PageIdx};
use tollfree_region::PeerRegion;

use crate::counts::{Holder, Room};
use crate::error::{RefError, Refusal, Shortage};
use crate::extent::OwnExtent;
use crate::holds::{Directory, Survey, held_now};
use crate::roomy::Roomy;
use crate::runs::{Runs, class_above, class_of};

/// Classes of blocks that are kept whole when they are given back, for the next one of about that length: up to 1 MiB.
const WARM_CLASS_COUNT: usize = class_of(256) + 1;
/// So many of each such class.
const WARM_COUNT_MAX: usize = 8;
/// Blocks in limbo that are looked at whenever one joins them. Two, so that limbo shrinks faster than it grows.
const SWEEP_COUNT: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    /// Only refs of this member, none passed on.
    Owned,
    /// Passed on, and refs of this member.
    Exported,
    /// Passed on, and no refs of this member.
    Limbo,
    /// Its generation was raised while a stale ref was being tried.
    Condemned,
}

/// What the owner knows of the block that begins at a page.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    state: State,
    /// Whether limbo's queue has it.
    queued: bool,
    page_count: u32,
    generation: u64,
    /// Refs of this member, clones aside.
    locals: u32,
    key: u64,
}

#[derive(Debug)]
struct Slot {
    extent: Arc<OwnExtent>,
    runs: Runs,
    blocks: Box<[Block]>,
    readers: Vec<MemberIdx>,
    /// Of each reader, in the same order.
    rows: Vec<PeerRegion>,
}

/// Free blocks that are kept whole, and how many pages each has.
type Warm = Vec<(BlockAt, u32)>;

/// Where a block is: the slot of its extent, and its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockAt {
    slot: u32,
    pub(crate) page: PageIdx,
}

/// A block just allocated or found again.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) extent: Arc<OwnExtent>,
    pub(crate) at: BlockAt,
    /// Bytes of the block.
    pub(crate) len: usize,
}

/// What was asked of the coordinator and not answered yet, and its last "no".
#[derive(Debug, Default)]
pub(crate) struct Asking {
    pub(crate) need: Option<u64>,
    pub(crate) denied: Option<(Shortage, Instant)>,
    pub(crate) surplus: bool,
    /// Threads that wait for memory.
    pub(crate) waiting: u32,
    /// Tasks that do, and when each looks again by itself.
    pub(crate) wakers: Vec<(Instant, Waker)>,
}

/// Who has what, as it was last looked at.
#[derive(Debug)]
struct Seen {
    room: Arc<Room>,
    when: Instant,
    exported_bytes: u64,
}

/// A member's own extents.
#[derive(Debug)]
pub(crate) struct Heap {
    slots: Vec<Option<Slot>>,
    /// Which of the slots have free runs of which classes.
    roomy: Roomy,
    warm: [Warm; WARM_CLASS_COUNT],
    limbo: VecDeque<BlockAt>,
    survey: Survey,
    keys: RandomState,
    free_bytes: u64,
    total_bytes: u64,
    /// Of blocks of which a first ref was passed on; counts up.
    exported_bytes: u64,
    last_idx: u32,
    /// Processes of readers, as they say themselves.
    processes: BTreeMap<MemberIdx, u32>,
    seen: Option<Seen>,
    pub(crate) asking: Asking,
}

impl Heap {
    pub(crate) fn new() -> Heap {
        Heap {
            slots: Vec::new(),
            roomy: Roomy::new(),
            warm: std::array::from_fn(|_| Vec::new()),
            limbo: VecDeque::new(),
            survey: Survey::default(),
            keys: RandomState::new(),
            free_bytes: 0,
            total_bytes: 0,
            exported_bytes: 0,
            last_idx: 0,
            processes: BTreeMap::new(),
            seen: None,
            asking: Asking::default(),
        }
    }

    /// The number of the next extent; never used before.
    pub(crate) fn next_idx(&mut self) -> ExtentIdx {
        self.last_idx += 1;
        ExtentIdx(self.last_idx)
    }

    pub(crate) fn add(&mut self, extent: Arc<OwnExtent>) {
        let page_count = extent.shape.page_count();
        let len = extent.shape.data_len() as u64;
        let slot = Slot {
            extent,
            runs: Runs::new(page_count),
            blocks: vec![Block::default(); page_count].into(),
            readers: Vec::new(),
            rows: Vec::new(),
        };
        let place = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.roomy.tell(place, slot.runs.mask());
        self.slots[place] = Some(slot);
        self.free_bytes += len;
        self.total_bytes += len;
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(crate) fn limbo_count(&self) -> usize {
        self.limbo.len()
    }

    pub(crate) fn extents(&self) -> impl Iterator<Item = &Arc<OwnExtent>> {
        self.slots.iter().flatten().map(|slot| &slot.extent)
    }

    pub(crate) fn row_count(&self) -> usize {
        self.slots.iter().flatten().map(|slot| slot.rows.len()).sum()
    }

    #[inline]
    fn slot(&mut self, at: BlockAt) -> &mut Slot {
        self.slots[at.slot as usize].as_mut().expect("an extent with a block in use stays")
    }

    /// A block for `len` bytes (at least 1): as many whole pages as they need, or one that is kept whole and a little longer.
    #[inline]
    pub(crate) fn allocate(&mut self, len: usize) -> Option<Found> {
        let page_count = page_count(len);
        let class = class_of(page_count);
        // The last one of the same class may be long enough; all of the next one are.
        for class in class..class + 2 {
            let Some(warm) = self.warm.get_mut(class) else { break };
            if let Some((at, kept_count)) = warm.pop_if(|(_, kept_count)| *kept_count >= page_count) {
                return Some(self.begin(at, kept_count));
            }
        }
        self.cut(page_count, class)
    }

    /// A block that is cut off a free run.
    fn cut(&mut self, page_count: u32, class: usize) -> Option<Found> {
        let in_class = match self.roomy.first(class) {
            Some((place, found)) if found == class => self.take(place, class, page_count),
            _ => None,
        };
        let at = match in_class {
            Some(at) => at,
            None => {
                let (place, class) = self.roomy.first(class_above(page_count))?;
                self.take(place, class, page_count)?
            }
        };
        Some(self.begin(at, page_count))
    }

    fn take(&mut self, place: usize, class: usize, page_count: u32) -> Option<BlockAt> {
        let runs = &mut self.slots[place].as_mut().expect("a slot with room is there").runs;
        let page = runs.take(class, page_count)?;
        let mask = runs.mask();
        self.roomy.tell(place, mask);
        Some(BlockAt { slot: place as u32, page })
    }

    /// These pages are a block from now on.
    #[inline]
    fn begin(&mut self, at: BlockAt, page_count: u32) -> Found {
        let len = page_count as usize * PAGE_LEN;
        self.free_bytes -= len as u64;
        let slot = self.slot(at);
        let block = &mut slot.blocks[at.page.as_usize()];
        debug_assert_eq!((block.state, block.locals), (State::Free, 0));
        *block = Block { state: State::Owned, page_count, locals: 1, key: 0, ..*block };
        Found { extent: slot.extent.clone(), at, len }
    }

    /// Gives pages back to their extent.
    fn merge(&mut self, at: BlockAt, page_count: u32) {
        let runs = &mut self.slot(at).runs;
        runs.free(at.page, page_count);
        let mask = runs.mask();
        self.roomy.tell(at.slot as usize, mask);
    }

    /// Gives the blocks that are kept whole back to their extents.
    fn join(&mut self) {
        for class in 0..WARM_CLASS_COUNT {
            while let Some((at, page_count)) = self.warm[class].pop() {
                self.merge(at, page_count);
            }
        }
    }

    /// As [`allocate`](Self::allocate), when that has failed: joins what is kept whole, and looks through all of limbo and at
    /// every run that may do.
    pub(crate) fn allocate_thoroughly(&mut self, len: usize) -> Option<Found> {
        self.sweep(self.limbo.len());
        self.join();
        let page_count = page_count(len);
        let (place, page) = self
            .slots
            .iter_mut()
            .enumerate()
            .find_map(|(place, slot)| Some((place, slot.as_mut()?.runs.take_thoroughly(page_count)?)))?;
        let at = BlockAt { slot: place as u32, page };
        let mask = self.slot(at).runs.mask();
        self.roomy.tell(place, mask);
        Some(self.begin(at, page_count))
    }

    /// One ref of this member less.
    #[inline]
    pub(crate) fn release(&mut self, at: BlockAt) {
        let block = &mut self.slot(at).blocks[at.page.as_usize()];
        block.locals -= 1;
        if block.locals > 0 {
            return;
        }
        match block.state {
            State::Owned => self.give_back(at),
            State::Exported => {
                block.state = State::Limbo;
                if !std::mem::replace(&mut block.queued, true) {
                    self.limbo.push_back(at);
                }
                self.sweep(SWEEP_COUNT);
            }
            state => unreachable!("a ref to a block that is {state:?}"),
        }
    }

    /// Nobody has it: it is free.
    #[inline]
    fn give_back(&mut self, at: BlockAt) {
        let block = &mut self.slot(at).blocks[at.page.as_usize()];
        block.state = State::Free;
        let page_count = block.page_count;
        self.free_bytes += u64::from(page_count) * PAGE_LEN as u64;
        match self.warm.get_mut(class_of(page_count)) {
            Some(warm) if warm.len() < WARM_COUNT_MAX => warm.push((at, page_count)),
            _ => self.merge(at, page_count),
        }
        crate::steps::reached("given-up");
    }

    /// Looks at the `count` blocks that have been longest in limbo.
    pub(crate) fn sweep(&mut self, count: usize) {
        for _ in 0..count.min(self.limbo.len()) {
            let Some(at) = self.limbo.pop_front() else { return };
            if !self.try_give_back(at) {
                self.limbo.push_back(at);
            }
        }
    }

    /// Whether the queue is done with the block.
    fn try_give_back(&mut self, at: BlockAt) -> bool {
        let slot = self.slots[at.slot as usize].as_mut().expect("limbo keeps its extent");
        let block = &mut slot.blocks[at.page.as_usize()];
        if block.state == State::Limbo && self.survey.nobody_holds(&slot.rows, at.page) {
            let known = BlockState { page_count: block.page_count, generation: Generation(block.generation) };
            if !Directory::new(&slot.extent.region).condemn(at.page, known) {
                tracing::warn!(page = at.page.0, "a block has had its last generation and is not used again");
                return true;
            }
            block.generation += 1;
            block.state = State::Condemned;
        }
        match block.state {
            State::Limbo => false,
            State::Condemned if !Survey::nobody_is_left(&slot.rows, at.page) => false,
            State::Condemned => {
                block.queued = false;
                self.give_back(at);
                true
            }
            // A ref came home; when it is dropped, the block queues again.
            _ => {
                block.queued = false;
                true
            }
        }
    }

    /// Makes a ref of this block fit to be passed on.
    #[inline]
    pub(crate) fn export(&mut self, at: BlockAt) -> (Generation, u64) {
        let slot = self.slots[at.slot as usize].as_mut().expect("an extent with a block in use stays");
        let block = &mut slot.blocks[at.page.as_usize()];
        let generation = Generation(block.generation);
        if block.state == State::Owned {
            // A keyed hash with a secret of this process: nobody guesses it, nobody learns one from another.
            let place = u64::from(slot.extent.idx.0) << 32 | u64::from(at.page.0);
            block.key = self.keys.hash_one(u128::from(place) << 64 | u128::from(block.generation)) | 1;
            block.state = State::Exported;
            let state = BlockState { page_count: block.page_count, generation };
            Directory::new(&slot.extent.region).publish(at.page, state, block.key);
            self.exported_bytes += block.len() as u64;
        }
        (generation, block.key)
    }

    /// Whether this member's one ref is all there is: nobody else has ever been given one.
    #[inline]
    pub(crate) fn is_sole(&mut self, at: BlockAt) -> bool {
        let block = &self.slot(at).blocks[at.page.as_usize()];
        block.state == State::Owned && block.locals == 1
    }

    /// A ref of an own block that came back over the wire.
    pub(crate) fn come_home(
        &mut self,
        extent: ExtentIdx,
        page: PageIdx,
        generation: Generation,
        is_genuine: impl Fn(u64) -> bool,
    ) -> Result<Found, RefError> {
        let slots = self.slots.iter_mut().enumerate();
        let (idx, slot) = slots
            .filter_map(|(idx, slot)| Some((idx, slot.as_mut()?)))
            .find(|(_, slot)| slot.extent.idx == extent)
            .ok_or(RefError::Gone)?;
        let block = slot.blocks.get_mut(page.as_usize()).ok_or(RefError::Malformed("its page"))?;
        if block.generation != generation.0 {
            return Err(RefError::Stale);
        }
        match block.state {
            State::Exported | State::Limbo if is_genuine(block.key) => {}
            State::Condemned => return Err(RefError::Stale),
            _ => return Err(RefError::Forged),
        }
        block.locals = block.locals.checked_add(1).ok_or(RefError::Full)?;
        block.state = State::Exported;
        let (at, len) = (BlockAt { slot: idx as u32, page }, block.len());
        Ok(Found { extent: slot.extent.clone(), at, len })
    }

    /// One more ref of this member to the block that has this address in it; and the address of its first byte.
    pub(crate) fn at_address(&mut self, address: usize) -> Option<(Found, usize)> {
        let slots = self.slots.iter_mut().enumerate();
        for (idx, slot) in slots.filter_map(|(idx, slot)| Some((idx, slot.as_mut()?))) {
            let base = slot.extent.data(PageIdx(0), slot.extent.shape.data_len()).as_ptr() as usize;
            let Some(off) = address.checked_sub(base).filter(|off| *off < slot.extent.shape.data_len())
            else {
                continue;
            };
            // Blocks don't overlap: it is the last one that begins before, or none.
            let first = slot.blocks[..=off / PAGE_LEN].iter().rposition(|block| block.locals > 0)?;
            let block = &mut slot.blocks[first];
            if off - first * PAGE_LEN >= block.len() {
                return None;
            }
            block.locals = block.locals.checked_add(1)?;
            let at = BlockAt { slot: idx as u32, page: PageIdx(first as u32) };
            let found = Found { extent: slot.extent.clone(), at, len: block.len() };
            return Some((found, base + first * PAGE_LEN));
        }
        None
    }

    /// A reader's row for an extent; false where there is no such extent.
    pub(crate) fn watch(&mut self, reader: MemberIdx, extent: ExtentIdx, row: PeerRegion) -> bool {
        let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.extent.idx == extent) else {
            return false;
        };
        // Beside the rows that it has already: there may be holds in each.
        slot.readers.push(reader);
        slot.rows.push(row);
        true
    }

    /// A reader says which process it is; 0 is none.
    pub(crate) fn name(&mut self, reader: MemberIdx, process: u64) {
        if let Some(process) = u32::try_from(process).ok().filter(|process| *process > 0) {
            self.processes.insert(reader, process);
        }
    }

    /// Bytes of blocks that somebody has.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.total_bytes - self.free_bytes
    }

    /// Who holds how much, as seen no longer ago than `age`, nor before as many bytes more were passed on.
    pub(crate) fn room(&mut self, me: MemberIdx, quota: u64, age: Duration, exported: u64) -> Arc<Room> {
        let is_recent =
            |seen: &&Seen| seen.when.elapsed() < age && self.exported_bytes - seen.exported_bytes <= exported;
        if let Some(seen) = self.seen.as_ref().filter(is_recent) {
            return seen.room.clone();
        }
        let room = Arc::new(Room { quota, used: self.used_bytes(), holders: self.holders(me) });
        let (when, exported_bytes) = (Instant::now(), self.exported_bytes);
        self.seen = Some(Seen { room: room.clone(), when, exported_bytes });
        room
    }

    /// Who holds how much of what is here, by looking at every block; who holds most comes first.
    pub(crate) fn holders(&self, me: MemberIdx) -> Vec<Holder> {
        let mut held = BTreeMap::<MemberIdx, (u64, usize)>::new();
        let mut count = |member: MemberIdx, block: &Block| {
            let (bytes, block_count) = held.entry(member).or_default();
            *bytes += block.len() as u64;
            *block_count += 1;
        };
        for slot in self.slots.iter().flatten() {
            for (page, block) in slot.blocks.iter().enumerate() {
                if block.locals > 0 {
                    count(me, block);
                }
                if matches!(block.state, State::Exported | State::Limbo) {
                    let rows = slot.readers.iter().zip(&slot.rows);
                    let holding = rows.filter(|(_, row)| held_now(row, PageIdx(page as u32)) > 0);
                    // One that came back may hold it in several rows.
                    let holding: BTreeSet<_> = holding.map(|(reader, _)| *reader).collect();
                    holding.into_iter().for_each(|reader| count(reader, block));
                }
            }
        }
        let process = |member| match self.processes.get(&member) {
            _ if member == me => Some(std::process::id()),
            process => process.copied(),
        };
        let mut holders: Vec<_> = held
            .into_iter()
            .map(|(member, (bytes, block_count))| Holder {
                member: member.0,
                process: process(member),
                bytes,
                block_count,
            })
            .collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }

    /// How long a row for an extent is.
    pub(crate) fn row_len(&self, extent: ExtentIdx) -> Option<usize> {
        self.extents().find(|own| own.idx == extent).map(|own| own.shape.row_len())
    }

    /// A reader has left: its rows go that hold nothing. Whether it has any other.
    pub(crate) fn forget_idle(&mut self, reader: MemberIdx) -> bool {
        for slot in self.slots.iter_mut().flatten() {
            slot.forget_if(reader, Survey::is_idle);
        }
        self.sweep(self.limbo.len());
        self.has_rows_of(reader)
    }

    pub(crate) fn has_rows_of(&self, reader: MemberIdx) -> bool {
        self.slots.iter().flatten().any(|slot| slot.readers.contains(&reader))
    }

    /// A reader is dead: so are its holds.
    pub(crate) fn forget(&mut self, reader: MemberIdx) {
        self.processes.remove(&reader);
        for slot in self.slots.iter_mut().flatten() {
            slot.forget_if(reader, |_| true);
        }
        self.sweep(self.limbo.len());
    }

    /// Takes out extents that nothing is in, as long as `keep` bytes stay free and no more than `most` are given up.
    pub(crate) fn take_idle(&mut self, keep: u64, most: u64) -> Vec<Arc<OwnExtent>> {
        self.sweep(self.limbo.len());
        self.join();
        let mut taken = Vec::new();
        let mut taken_bytes = 0;
        for (idx, place) in self.slots.iter_mut().enumerate() {
            let Some(slot) = place else { continue };
            let len = slot.extent.shape.data_len() as u64;
            if slot.runs.is_idle() && self.free_bytes >= keep + len && taken_bytes + len <= most {
                self.free_bytes -= len;
                self.total_bytes -= len;
                taken_bytes += len;
                self.roomy.tell(idx, 0);
                taken.extend(place.take().map(|slot| slot.extent));
            }
        }
        taken
    }

    /// What an answer "no" means to those who wait.
    pub(crate) fn deny(&mut self, reason: Refusal) {
        let shortage = match reason {
            Refusal::Quota => Shortage::Quota,
            _ => Shortage::Capacity,
        };
        self.asking.need = None;
        self.asking.denied = Some((shortage, Instant::now()));
    }
}

impl Slot {
    fn forget_if(&mut self, reader: MemberIdx, may_go: impl Fn(&PeerRegion) -> bool) {
        for idx in (0..self.readers.len()).rev() {
            if self.readers[idx] == reader && may_go(&self.rows[idx]) {
                self.readers.swap_remove(idx);
                self.rows.swap_remove(idx);
            }
        }
    }
}

impl Block {
    /// Bytes.
    fn len(&self) -> usize {
        self.page_count as usize * PAGE_LEN
    }
}

/// Whole pages for so many bytes; more than an extent has, for more than one can hold.
#[inline]
fn page_count(len: usize) -> u32 {
    u32::try_from(len.div_ceil(PAGE_LEN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_layout::pool::ExtentShape;

    fn heap() -> Heap {
        let mut heap = Heap::new();
        let shape = ExtentShape::of_pages(16).unwrap();
        let idx = heap.next_idx();
        heap.add(Arc::new(OwnExtent::create([1; 16], MemberIdx(1), idx, shape).unwrap()));
        heap
    }

    #[test]
    fn what_was_passed_on_is_free_only_with_a_new_generation() {
        let mut heap = heap();
        let found = heap.allocate(5000).unwrap();
        assert_eq!((found.len, heap.free_bytes()), (8192, 14 * 4096));
        let (generation, key) = heap.export(found.at);
        let home = heap.come_home(ExtentIdx(1), found.at.page, generation, |known| known == key).unwrap();
        assert_eq!(home.at, found.at);
        assert!(!heap.is_sole(found.at));
        heap.release(found.at);
        heap.release(home.at);
        assert_eq!((heap.free_bytes(), heap.limbo_count()), (16 * 4096, 0), "no reader: free at once");
        let again = heap.allocate(5000).unwrap();
        assert_eq!(again.at, found.at, "where it had been");
        let stale = heap.come_home(ExtentIdx(1), found.at.page, generation, |_| true);
        assert!(matches!(stale, Err(RefError::Stale)));
        let (next, next_key) = heap.export(again.at);
        assert!(next > generation && next_key != key);
    }

    #[test]
    fn what_never_left_needs_no_generation() {
        let mut heap = heap();
        let found = heap.allocate(1).unwrap();
        heap.release(found.at);
        let again = heap.allocate(1).unwrap();
        assert_eq!(heap.export(again.at).0, Generation(0));
    }

    #[test]
    fn made_up_refs_to_own_blocks_are_refused() {
        let mut heap = heap();
        let found = heap.allocate(4096).unwrap();
        let page = found.at.page;
        let zero = Generation(0);
        let unsent = heap.come_home(ExtentIdx(1), page, zero, |_| true);
        assert!(matches!(unsent, Err(RefError::Forged)), "no ref of it was passed on");
        let (_, key) = heap.export(found.at);
        for (extent, page, wrong) in [(2, page, 0), (1, PageIdx(99), 0), (1, PageIdx(9), 0), (1, page, 2)] {
            let home = heap.come_home(ExtentIdx(extent), page, zero, |known| known == key ^ wrong);
            assert!(home.is_err());
        }
    }

    #[test]
    fn idle_extents_are_given_up_and_others_stay() {
        let mut heap = heap();
        let shape = ExtentShape::of_pages(32).unwrap();
        let idx = heap.next_idx();
        heap.add(Arc::new(OwnExtent::create([1; 16], MemberIdx(1), idx, shape).unwrap()));
        let found = heap.allocate(4096).unwrap();
        assert!(heap.take_idle(u64::MAX / 2, u64::MAX).is_empty(), "none to spare");
        assert_eq!(heap.take_idle(0, u64::MAX).len(), 1);
        assert!(heap.at_address(found.extent.data(found.at.page, 1).as_ptr() as usize + 17).is_some());
        heap.release(found.at);
        heap.release(found.at);
        assert_eq!(heap.take_idle(0, u64::MAX).len(), 1);
        assert_eq!((heap.free_bytes(), heap.total_bytes()), (0, 0));
        assert!(heap.allocate(1).is_none());
    }
}
