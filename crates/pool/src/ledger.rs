//! The coordinator's book: who was granted what, who maps what, and what to say to whom. No sockets, no clock.
//!
//! # States
//! Of capacity, in the order in which it goes through them; the sum is the pool's total at any time:
//!
//! ```text
//! free ──NEED──► granted ──EXTENT──► extent ──RETURNED, or owner's death──► lingering ──last UNMAPPED──► free
//!                   └──RETURNED, or death──► free                              (nobody maps it: free at once)
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollfree_layout::pool::{ExtentShape, PoolMessage, pool_kind, pool_reason};
use tollfree_layout::{ExtentIdx, MemberIdx};

use crate::config::Capacity;

/// Something to say to a member.
#[derive(Debug)]
pub(crate) struct Saying<F> {
    pub(crate) to: MemberIdx,
    pub(crate) message: PoolMessage,
    pub(crate) fds: Vec<F>,
}

/// A member did what members don't do: it is hung up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

#[derive(Debug)]
struct Extent<F> {
    len: u64,
    /// The extent, and its owner's life.
    fds: Vec<F>,
    importers: BTreeSet<MemberIdx>,
}

#[derive(Debug)]
struct Member<F> {
    /// Extents included.
    granted: u64,
    extents: BTreeMap<ExtentIdx, Extent<F>>,
    /// It comes from a coordinator that died: its extents were granted by that one.
    resumed: bool,
}

/// Memory of an extent that is no longer anybody's, but still mapped.
#[derive(Debug, Default)]
struct Lingering {
    len: u64,
    importers: BTreeSet<MemberIdx>,
}

/// The book; `F` stands for descriptors.
#[derive(Debug)]
pub(crate) struct Ledger<F> {
    capacity: Capacity,
    members: BTreeMap<MemberIdx, Member<F>>,
    lingering: HashMap<(MemberIdx, ExtentIdx), Lingering>,
    used: u64,
    sayings: Vec<Saying<F>>,
    /// Who wants extents that nobody has told of yet, while their owners may still come back; `None` from then on.
    early: Option<BTreeSet<((MemberIdx, ExtentIdx), MemberIdx)>>,
}

/// Requests that are kept for owners who may come back; more are refused.
const EARLY_COUNT_MAX: usize = 4096;

impl<F: Clone> Ledger<F> {
    pub(crate) fn new(capacity: Capacity) -> Ledger<F> {
        Ledger {
            capacity,
            members: BTreeMap::new(),
            lingering: HashMap::new(),
            used: 0,
            sayings: Vec::new(),
            early: Some(BTreeSet::new()),
        }
    }

    /// Whether somebody waits for an owner to come back.
    pub(crate) fn has_early(&self) -> bool {
        self.early.as_ref().is_some_and(|early| !early.is_empty())
    }

    /// Owners that haven't come back by now are gone.
    pub(crate) fn give_up_early(&mut self) {
        for (key, reader) in self.early.take().into_iter().flatten() {
            self.refuse(reader, key);
        }
    }

    /// What is to be said since this was last asked.
    pub(crate) fn take_sayings(&mut self) -> Vec<Saying<F>> {
        std::mem::take(&mut self.sayings)
    }

    /// Bytes of the pool that are granted or linger.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn has(&self, member: MemberIdx) -> bool {
        self.members.contains_key(&member)
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    fn say(&mut self, to: MemberIdx, message: PoolMessage, fds: Vec<F>) {
        self.sayings.push(Saying { to, message, fds });
    }

    /// A member joins; `resumed` if it was one before.
    pub(crate) fn join(&mut self, member: MemberIdx, resumed: bool) {
        let known = self.members.insert(member, Member { granted: 0, extents: BTreeMap::new(), resumed });
        debug_assert!(known.is_none(), "the caller looks first");
    }

    /// A member is dead or has left.
    pub(crate) fn leave(&mut self, member: MemberIdx) {
        let Some(gone) = self.members.remove(&member) else { return };
        if let Some(early) = &mut self.early {
            early.retain(|(_, reader)| *reader != member);
        }
        let extents: u64 = gone.extents.values().map(|extent| extent.len).sum();
        self.used -= gone.granted - extents;
        for (idx, extent) in gone.extents {
            self.linger((member, idx), extent);
        }
        for extent in self.members.values_mut().flat_map(|other| other.extents.values_mut()) {
            extent.importers.remove(&member);
        }
        let mapped: Vec<_> = self.lingering.keys().copied().collect();
        for key in mapped {
            self.let_go(member, key);
        }
    }

    /// An extent is nobody's any more. Its capacity is free once nobody maps it.
    fn linger(&mut self, (owner, idx): (MemberIdx, ExtentIdx), extent: Extent<F>) {
        if extent.importers.is_empty() {
            self.used -= extent.len;
            return;
        }
        for reader in &extent.importers {
            let message = PoolMessage::new(pool_kind::DROP).about(owner, idx);
            self.sayings.push(Saying { to: *reader, message, fds: Vec::new() });
        }
        self.lingering.insert((owner, idx), Lingering { len: extent.len, importers: extent.importers });
    }

    fn let_go(&mut self, reader: MemberIdx, key: (MemberIdx, ExtentIdx)) {
        let Some(lingering) = self.lingering.get_mut(&key) else { return };
        lingering.importers.remove(&reader);
        if lingering.importers.is_empty() {
            self.used -= lingering.len;
            self.lingering.remove(&key);
        }
    }

    /// What a member says.
    pub(crate) fn hear(
        &mut self,
        from: MemberIdx,
        message: &PoolMessage,
        fds: Vec<F>,
    ) -> Result<(), Violation> {
        if !self.has(from) {
            return Err(Violation("it is no member"));
        }
        let key = (message.member(), message.extent());
        let amount = message.amount.get();
        match message.kind.get() {
            pool_kind::NEED => self.need(from, amount),
            pool_kind::EXTENT => self.extent(from, key.1, amount, fds),
            pool_kind::MAP => {
                self.map(from, key);
                Ok(())
            }
            pool_kind::ROW => {
                self.row(from, key, amount, fds);
                Ok(())
            }
            pool_kind::ROW_OK | pool_kind::ROW_NO => {
                let (reader, idx) = key;
                let watched = message.kind.get() == pool_kind::ROW_OK;
                self.row_answered(from, reader, idx, watched);
                Ok(())
            }
            pool_kind::SURPLUS => {
                self.say(from, PoolMessage::new(pool_kind::TAKE_BACK).of(amount), Vec::new());
                Ok(())
            }
            pool_kind::RETURNED => self.returned(from, key.1, amount),
            pool_kind::UNMAPPED => {
                if let Some(extent) = self.find(key) {
                    extent.importers.remove(&from);
                }
                self.let_go(from, key);
                Ok(())
            }
            pool_kind::PRESENT => self.present(from, key, amount),
            _ => Err(Violation("it says something unknown")),
        }
    }

    fn find(&mut self, (owner, idx): (MemberIdx, ExtentIdx)) -> Option<&mut Extent<F>> {
        self.members.get_mut(&owner)?.extents.get_mut(&idx)
    }

    fn need(&mut self, from: MemberIdx, amount: u64) -> Result<(), Violation> {
        if ExtentShape::of_data(amount).is_none() {
            return Err(Violation("it needs a length that no extent has"));
        }
        let Capacity { total, member_quota, .. } = self.capacity;
        let member = self.members.get_mut(&from).expect("the caller looked");
        let refusal = if member.granted + amount > member_quota {
            pool_reason::QUOTA
        } else if self.used + amount > total {
            pool_reason::CAPACITY
        } else {
            member.granted += amount;
            self.used += amount;
            self.say(from, PoolMessage::new(pool_kind::GRANT).of(amount), Vec::new());
            return Ok(());
        };
        self.say(from, PoolMessage::new(pool_kind::DENY).because(refusal), Vec::new());
        if refusal == pool_reason::CAPACITY {
            let others: Vec<_> = self.members.keys().copied().filter(|other| *other != from).collect();
            for other in others {
                self.say(other, PoolMessage::new(pool_kind::TAKE_BACK).of(amount), Vec::new());
            }
        }
        Ok(())
    }

    fn extent(&mut self, from: MemberIdx, idx: ExtentIdx, len: u64, fds: Vec<F>) -> Result<(), Violation> {
        if fds.len() != 2 {
            return Err(Violation("it names an extent without its descriptors"));
        }
        let quota = self.capacity.member_quota;
        let member = self.members.get_mut(&from).expect("the caller looked");
        let made: u64 = member.extents.values().map(|extent| extent.len).sum();
        if idx.0 == 0 || member.extents.contains_key(&idx) || ExtentShape::of_data(len).is_none() {
            return Err(Violation("it names an extent that can't be"));
        }
        if made + len > member.granted {
            // What the coordinator before granted is there, whatever this one would have said.
            if !member.resumed || made + len > quota {
                return Err(Violation("it makes more than it was granted"));
            }
            self.used += made + len - member.granted;
            member.granted = made + len;
        }
        let mut importers = BTreeSet::new();
        if let Some(known) = self.lingering.remove(&(from, idx)) {
            // Readers came back before their owner did.
            self.used -= known.len;
            importers = known.importers;
        }
        member.extents.insert(idx, Extent { len, fds, importers });
        self.say(from, PoolMessage::new(pool_kind::EXTENT_OK).about(from, idx), Vec::new());
        let early = self.early.iter().flatten().filter(|(key, _)| *key == (from, idx));
        for entry in early.copied().collect::<Vec<_>>() {
            if let Some(early) = &mut self.early {
                early.remove(&entry);
            }
            self.map(entry.1, entry.0);
        }
        Ok(())
    }

    fn map(&mut self, from: MemberIdx, key: (MemberIdx, ExtentIdx)) {
        let (to, known) = (from, if key.0 == from { None } else { self.find(key) });
        let Some(extent) = known else {
            match &mut self.early {
                Some(early) if key.0 != from && early.len() < EARLY_COUNT_MAX => {
                    early.insert((key, from));
                }
                _ => self.refuse(to, key),
            }
            return;
        };
        extent.importers.insert(from);
        let message = PoolMessage::new(pool_kind::MAPPED).about(key.0, key.1).of(extent.len);
        let fds = extent.fds.clone();
        self.say(to, message, fds);
    }

    fn refuse(&mut self, reader: MemberIdx, (owner, idx): (MemberIdx, ExtentIdx)) {
        let message = PoolMessage::new(pool_kind::MAP_FAILED).about(owner, idx).because(pool_reason::GONE);
        self.say(reader, message, Vec::new());
    }

    /// A reader's row, to be looked at by the owner, and its process.
    fn row(&mut self, from: MemberIdx, key: (MemberIdx, ExtentIdx), process: u64, fds: Vec<F>) {
        if self.find(key).is_some_and(|extent| extent.importers.contains(&from)) {
            self.say(key.0, PoolMessage::new(pool_kind::ROW).about(from, key.1).of(process), fds);
        } else {
            self.refuse(from, key);
        }
    }

    fn row_answered(&mut self, owner: MemberIdx, reader: MemberIdx, idx: ExtentIdx, watched: bool) {
        if !self.has(reader) {
            return;
        }
        if watched {
            self.say(reader, PoolMessage::new(pool_kind::WATCHED).about(owner, idx), Vec::new());
        } else {
            self.refuse(reader, (owner, idx));
        }
    }

    fn returned(&mut self, from: MemberIdx, idx: ExtentIdx, amount: u64) -> Result<(), Violation> {
        let member = self.members.get_mut(&from).expect("the caller looked");
        if idx.0 == 0 {
            let made: u64 = member.extents.values().map(|extent| extent.len).sum();
            if amount > member.granted - made {
                return Err(Violation("it gives back more than it was granted"));
            }
            member.granted -= amount;
            self.used -= amount;
            return Ok(());
        }
        let Some(extent) = member.extents.remove(&idx) else {
            return Err(Violation("it gives back an extent that it doesn't have"));
        };
        member.granted -= extent.len;
        self.linger((from, idx), extent);
        Ok(())
    }

    /// A reader that has come back maps an extent. Its owner may come back too, or may be dead.
    fn present(&mut self, from: MemberIdx, key: (MemberIdx, ExtentIdx), len: u64) -> Result<(), Violation> {
        if ExtentShape::of_data(len).is_none() {
            return Err(Violation("it maps a length that no extent has"));
        }
        if let Some(extent) = self.find(key) {
            extent.importers.insert(from);
            return Ok(());
        }
        let lingering = self.lingering.entry(key).or_insert_with(|| {
            self.used += len;
            Lingering { len, importers: BTreeSet::new() }
        });
        lingering.importers.insert(from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: u64 = 64 << 10;
    const A: MemberIdx = MemberIdx(1);
    const B: MemberIdx = MemberIdx(2);
    const ONE: ExtentIdx = ExtentIdx(1);

    fn ledger() -> Ledger<()> {
        let mut ledger = Ledger::new(Capacity { total: 4 * BATCH, member_quota: 3 * BATCH, batch: BATCH });
        ledger.give_up_early();
        ledger.join(A, false);
        ledger.join(B, false);
        ledger
    }

    fn say(ledger: &mut Ledger<()>, from: MemberIdx, message: PoolMessage) -> Vec<(u32, u32)> {
        let fds = if message.kind.get() == pool_kind::EXTENT { vec![(), ()] } else { Vec::new() };
        ledger.hear(from, &message, fds).unwrap();
        ledger.take_sayings().iter().map(|said| (said.to.0, said.message.kind.get())).collect()
    }

    fn new(kind: u32) -> PoolMessage {
        PoolMessage::new(kind)
    }

    fn with_extent() -> Ledger<()> {
        let mut ledger = ledger();
        assert_eq!(say(&mut ledger, A, new(pool_kind::NEED).of(BATCH)), [(1, pool_kind::GRANT)]);
        let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
        assert_eq!(say(&mut ledger, A, extent), [(1, pool_kind::EXTENT_OK)]);
        ledger
    }

    #[test]
    fn quota_and_capacity_are_kept_and_others_asked_for_what_they_can_spare() {
        let mut ledger = ledger();
        let need = |amount| new(pool_kind::NEED).of(amount);
        for _ in 0..3 {
            assert_eq!(say(&mut ledger, A, need(BATCH)), [(1, pool_kind::GRANT)]);
        }
        ledger.hear(A, &need(BATCH), Vec::new()).unwrap();
        assert_eq!(ledger.take_sayings()[0].message.reason.get(), pool_reason::QUOTA);
        assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::GRANT)]);
        assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::DENY), (1, pool_kind::TAKE_BACK)]);
        assert_eq!(say(&mut ledger, A, new(pool_kind::RETURNED).of(BATCH)), []);
        assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::GRANT)]);
        ledger.leave(A);
        ledger.leave(B);
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn what_a_dead_owner_left_is_free_when_nobody_maps_it() {
        let mut ledger = with_extent();
        assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAPPED)]);
        assert_eq!(say(&mut ledger, B, new(pool_kind::ROW).about(A, ONE)), [(1, pool_kind::ROW)]);
        assert_eq!(say(&mut ledger, A, new(pool_kind::ROW_OK).about(B, ONE)), [(2, pool_kind::WATCHED)]);
        ledger.leave(A);
        assert_eq!(ledger.take_sayings()[0].message.kind.get(), pool_kind::DROP);
        assert_eq!(ledger.used(), BATCH, "it is still mapped");
        assert_eq!(say(&mut ledger, B, new(pool_kind::UNMAPPED).about(A, ONE)), []);
        assert_eq!(ledger.used(), 0);
        assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAP_FAILED)]);
    }

    #[test]
    fn readers_that_die_let_go() {
        for owner_first in [true, false] {
            let mut ledger = with_extent();
            say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE));
            if owner_first {
                ledger.leave(A);
            }
            ledger.leave(B);
            if !owner_first {
                say(&mut ledger, A, new(pool_kind::RETURNED).about(MemberIdx(0), ONE).of(BATCH));
            }
            assert_eq!(ledger.used(), 0);
        }
    }

    #[test]
    fn a_successor_learns_what_there_is_in_any_order() {
        let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
        let present = new(pool_kind::PRESENT).about(A, ONE).of(BATCH);
        for owner_first in [true, false] {
            let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
            let mut ledger = Ledger::new(capacity);
            ledger.join(A, true);
            ledger.join(B, true);
            let messages =
                if owner_first { [(A, extent), (B, present)] } else { [(B, present), (A, extent)] };
            for (from, message) in messages {
                say(&mut ledger, from, message);
            }
            assert_eq!(ledger.used(), BATCH);
            ledger.leave(A);
            assert_eq!((ledger.used(), ledger.take_sayings().len()), (BATCH, 1));
            ledger.leave(B);
            assert_eq!(ledger.used(), 0);
        }
    }

    #[test]
    fn a_successor_answers_who_asks_before_the_owner_is_back() {
        let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
        let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
        let map = |idx| new(pool_kind::MAP).about(A, ExtentIdx(idx));
        let mut ledger = Ledger::new(capacity);
        ledger.join(B, true);
        assert_eq!(say(&mut ledger, B, map(1)), []);
        assert_eq!(say(&mut ledger, B, map(2)), []);
        assert!(ledger.has_early());
        ledger.join(A, true);
        assert_eq!(say(&mut ledger, A, extent), [(1, pool_kind::EXTENT_OK), (2, pool_kind::MAPPED)]);
        ledger.give_up_early();
        let refused = ledger.take_sayings();
        assert_eq!(refused.len(), 1);
        assert_eq!(
            (refused[0].message.kind.get(), refused[0].message.extent()),
            (pool_kind::MAP_FAILED, ExtentIdx(2))
        );
        assert_eq!(say(&mut ledger, B, map(2)), [(2, pool_kind::MAP_FAILED)], "from now on at once");
        // Whoever has left isn't told.
        let mut ledger = Ledger::new(capacity);
        ledger.join(B, true);
        assert_eq!(say(&mut ledger, B, map(1)), []);
        ledger.leave(B);
        assert!(!ledger.has_early());
    }

    #[test]
    fn what_no_member_says_is_a_violation() {
        let mut ledger = with_extent();
        let wrong = [
            new(pool_kind::WELCOME),
            new(99),
            new(pool_kind::NEED).of(1),
            new(pool_kind::NEED).of(u64::MAX),
            new(pool_kind::EXTENT).about(A, ExtentIdx(2)).of(BATCH),
            new(pool_kind::EXTENT).about(A, ONE).of(BATCH),
            new(pool_kind::RETURNED).of(BATCH),
            new(pool_kind::RETURNED).about(A, ExtentIdx(7)),
            new(pool_kind::PRESENT).about(B, ONE).of(5),
        ];
        for message in wrong {
            assert!(ledger.hear(A, &message, vec![(), ()]).is_err(), "{message:?}");
        }
        assert!(ledger.hear(A, &new(pool_kind::EXTENT).about(A, ExtentIdx(2)), Vec::new()).is_err());
        assert!(ledger.hear(MemberIdx(9), &new(pool_kind::NEED).of(BATCH), Vec::new()).is_err());
        assert_eq!(ledger.used(), BATCH, "nothing of it counts");
    }
}
