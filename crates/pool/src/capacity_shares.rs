//! The coordinator's book: who was granted what, who maps what, and what to say to whom. No sockets, no clock.
//!
//! # States
//! Of capacity, in the order in which it goes through them; the sum is the pool's total at any time:
//!
//! ```text
//! free ──NEED──► granted ──EXTENT──► extent ──RETURNED, or owner's end──► lingering ──last UNMAPPED──► free
//!                   └──RETURNED, or end──► free                           (nobody maps it: free at once)
//! ```
//!
//! Of a member. A lost connection ends nobody: only its process's end does, or its own LEAVE.
//!
//! ```text
//! JOIN ──► here ◄──── JOIN again ───── away          away: it keeps all that it has and maps
//!           │  └──── connection lost ───►│
//!           └── LEAVE, process's end ──► left ◄── process's end
//! ```
//!
//! Who comes back states all that it has (EXTENT) and maps (PRESENT). At RESUMED, what it didn't state is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollfree_layout::pool::{ExtentShape, PoolMessage, SECRET_LEN, pool_kind, pool_reason, standing};
use tollfree_layout::{ExtentIdx, MemberIdx};

use crate::config::Capacity;

mod mapping;
#[cfg(test)]
mod tests;

use mapping::Stage;

/// An extent: its owner, and its number there.
type Key = (MemberIdx, ExtentIdx);

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
struct Extent {
    len: u64,
    importers: BTreeSet<MemberIdx>,
}

/// What a member that comes back had and mapped before, and hasn't stated yet.
#[derive(Debug, Default)]
struct Unstated {
    extents: BTreeSet<ExtentIdx>,
    mapped: BTreeSet<Key>,
    /// Bytes and number of the extents that it has told of and that nobody else knows.
    claimed: u64,
    claim_count: usize,
}

#[derive(Debug)]
struct Member<F> {
    /// Tells of its process's end.
    life: F,
    secret: [u8; SECRET_LEN],
    /// Extents included.
    granted: u64,
    extents: BTreeMap<ExtentIdx, Extent>,
    /// Until it has said RESUMED.
    resuming: Option<Unstated>,
    presence: Presence,
    /// Questions of ours that it hasn't answered.
    owes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    /// Its connection was lost a moment ago.
    Away,
    /// Nobody waits for it any more.
    GivenUp,
}

/// Memory of an extent that is no longer anybody's, but still mapped.
#[derive(Debug, Default)]
struct Lingering {
    len: u64,
    importers: BTreeSet<MemberIdx>,
}

/// The book; `F` stands for descriptors.
#[derive(Debug)]
pub(crate) struct CapacityShares<F> {
    capacity: Capacity,
    members: BTreeMap<MemberIdx, Member<F>>,
    lingering: HashMap<Key, Lingering>,
    /// Extents on their way to a reader.
    mappings: BTreeMap<(MemberIdx, ExtentIdx, MemberIdx), Stage>,
    used: u64,
    sayings: Vec<Saying<F>>,
    /// Who wants extents that nobody has told of yet, while their owners may still come back; `None` from then on.
    early: Option<BTreeSet<(Key, MemberIdx)>>,
}

/// Requests that are kept for owners who may come back; more are refused.
const EARLY_COUNT_MAX: usize = 4096;
/// Extents nobody else knows that one member can tell of as it comes back; more don't count.
const CLAIM_COUNT_MAX: usize = 1024;

impl<F: Clone> CapacityShares<F> {
    pub(crate) fn new(capacity: Capacity) -> CapacityShares<F> {
        CapacityShares {
            capacity,
            members: BTreeMap::new(),
            lingering: HashMap::new(),
            mappings: BTreeMap::new(),
            used: 0,
            sayings: Vec::new(),
            early: Some(BTreeSet::new()),
        }
    }

    /// Whether members of the coordinator before may still come back.
    pub(crate) fn is_early(&self) -> bool {
        self.early.is_some()
    }

    /// Owners that haven't come back by now are gone.
    pub(crate) fn give_up_early(&mut self) {
        for (key, reader) in self.early.take().into_iter().flatten() {
            self.refuse(reader, key, pool_reason::GONE);
        }
    }

    /// Of each member: its number, what it was granted, how much of that are extents, and how it stands.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (MemberIdx, u64, u64, u32)> {
        self.members.iter().map(|(idx, member)| {
            let made = member.extents.values().map(|extent| extent.len).sum();
            let standing = match (member.presence, &member.resuming) {
                (Presence::Here, None) => standing::ATTACHED,
                (Presence::Here, Some(_)) => standing::RETURNING,
                (Presence::Away | Presence::GivenUp, _) => standing::CUT_OFF,
            };
            (*idx, member.granted, made, standing)
        })
    }

    /// What is to be said since this was last asked.
    pub(crate) fn take_sayings(&mut self) -> Vec<Saying<F>> {
        std::mem::take(&mut self.sayings)
    }

    /// Bytes of the pool that are granted or linger.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// With which secret this member comes back.
    pub(crate) fn secret_of(&self, member: MemberIdx) -> Option<[u8; SECRET_LEN]> {
        self.members.get(&member).map(|known| known.secret)
    }

    /// All members that haven't left, and what tells of their end.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (MemberIdx, &F)> {
        self.members.iter().map(|(idx, member)| (*idx, &member.life))
    }

    fn say(&mut self, to: MemberIdx, message: PoolMessage, fds: Vec<F>) {
        if self.members.get(&to).is_some_and(|member| member.presence == Presence::Here) {
            self.sayings.push(Saying { to, message, fds });
        }
    }

    /// A member joins, or comes back if it was one before.
    pub(crate) fn join(&mut self, idx: MemberIdx, secret: [u8; SECRET_LEN], life: F, comes_back: bool) {
        let mut unstated = Unstated::default();
        if let Some(known) = self.members.get(&idx) {
            debug_assert!(comes_back && known.presence != Presence::Here, "the caller looks first");
            unstated.extents = known.extents.keys().copied().collect();
            unstated.mapped = self.mapped_by(idx).collect();
        }
        let new = Member {
            life: life.clone(),
            secret,
            granted: 0,
            extents: BTreeMap::new(),
            resuming: None,
            presence: Presence::Here,
            owes: 0,
        };
        let member = self.members.entry(idx).or_insert(new);
        member.life = life;
        member.presence = Presence::Here;
        member.resuming = comes_back.then_some(unstated);
    }

    fn mapped_by(&self, reader: MemberIdx) -> impl Iterator<Item = Key> {
        let owned = self.members.iter().flat_map(|(owner, member)| {
            member.extents.iter().map(|(idx, extent)| ((*owner, *idx), &extent.importers))
        });
        let lingering = self.lingering.iter().map(|(key, lingering)| (*key, &lingering.importers));
        owned.chain(lingering).filter(move |(_, by)| by.contains(&reader)).map(|(key, _)| key)
    }

    /// A member's connection was lost. It lives, and keeps what it has and maps. Whether there is anything to wait for.
    pub(crate) fn lose(&mut self, idx: MemberIdx) -> bool {
        let Some(member) = self.members.get_mut(&idx) else { return false };
        let has_nothing = member.granted == 0;
        if has_nothing && self.mapped_by(idx).next().is_none() {
            self.leave(idx);
            return false;
        }
        let member = self.members.get_mut(&idx).expect("as above");
        member.presence = Presence::Away;
        member.resuming = None;
        if let Some(early) = &mut self.early {
            early.retain(|(_, reader)| *reader != idx);
        }
        self.lose_mappings(idx);
        true
    }

    /// A member has been away for long: who wants its extents needn't wait.
    pub(crate) fn give_up(&mut self, idx: MemberIdx) {
        if let Some(member) = self.members.get_mut(&idx)
            && member.presence == Presence::Away
        {
            member.presence = Presence::GivenUp;
            self.end_mappings(|(owner, _, _)| owner == idx, Some(pool_reason::BUSY));
        }
    }

    /// A member's process has ended, or it has said so itself: it holds nothing.
    pub(crate) fn leave(&mut self, member: MemberIdx) {
        if !self.members.contains_key(&member) {
            return;
        }
        self.end_mappings(|(_, _, reader)| reader == member, None);
        self.end_mappings(|(owner, _, _)| owner == member, Some(pool_reason::GONE));
        let Some(gone) = self.members.remove(&member) else { return };
        if let Some(early) = &mut self.early {
            early.retain(|(_, reader)| *reader != member);
        }
        let extents: u64 = gone.extents.values().map(|extent| extent.len).sum();
        self.used -= gone.granted - extents;
        let mut related = BTreeSet::new();
        for (idx, extent) in gone.extents {
            related.extend(extent.importers.iter().copied());
            self.linger((member, idx), extent);
        }
        for (owner, other) in &mut self.members {
            for extent in other.extents.values_mut() {
                if extent.importers.remove(&member) {
                    related.insert(*owner);
                }
            }
        }
        for other in related {
            self.say(other, PoolMessage::new(pool_kind::LEFT).about(member, ExtentIdx(0)), Vec::new());
        }
        let mapped: Vec<_> = self.lingering.keys().copied().collect();
        for key in mapped {
            self.let_go(member, key);
        }
    }

    /// An extent is nobody's any more. Its capacity is free once nobody maps it.
    fn linger(&mut self, key: Key, extent: Extent) {
        if extent.importers.is_empty() {
            self.used -= extent.len;
            return;
        }
        self.lingering.insert(key, Lingering { len: extent.len, importers: extent.importers });
    }

    /// An owner has given up an extent.
    fn give_up_extent(&mut self, key: Key, extent: Extent) {
        self.end_mappings(|(owner, idx, _)| (owner, idx) == key, Some(pool_reason::GONE));
        for reader in extent.importers.clone() {
            self.say(reader, PoolMessage::new(pool_kind::DROP).about(key.0, key.1), Vec::new());
        }
        self.linger(key, extent);
    }

    fn let_go(&mut self, reader: MemberIdx, key: Key) {
        if let Some(extent) = self.find(key) {
            extent.importers.remove(&reader);
        }
        let Some(lingering) = self.lingering.get_mut(&key) else { return };
        lingering.importers.remove(&reader);
        if lingering.importers.is_empty() {
            self.used -= lingering.len;
            self.lingering.remove(&key);
        }
    }

    /// What a member says, with as many descriptors as such a message has; fewer, if this process could not have more.
    pub(crate) fn hear(
        &mut self,
        from: MemberIdx,
        message: &PoolMessage,
        fds: Vec<F>,
    ) -> Result<(), Violation> {
        if !self.members.contains_key(&from) {
            return Err(Violation("it is no member"));
        }
        if fds.len() > pool_kind::fd_count(message.kind.get()) {
            return Err(Violation("it sends descriptors that such a message doesn't have"));
        }
        let key = (message.member(), message.extent());
        let amount = message.amount.get();
        match message.kind.get() {
            pool_kind::NEED => self.need(from, amount)?,
            pool_kind::EXTENT => self.extent(from, key.1, amount)?,
            pool_kind::MAP => self.map(from, key),
            pool_kind::GIVE => self.give(from, key, fds),
            pool_kind::ROW => self.row(from, key, (message.len.get(), amount), fds),
            pool_kind::ROW_OK => self.row_ok(from, key, message.len.get()),
            pool_kind::NOT_HAD => self.not_had(from, key, message.reason.get()),
            pool_kind::SURPLUS => {
                self.say(from, PoolMessage::new(pool_kind::TAKE_BACK).of(amount), Vec::new());
            }
            pool_kind::RETURNED => self.returned(from, key.1, amount)?,
            pool_kind::UNMAPPED => self.let_go(from, key),
            pool_kind::PRESENT => self.present(from, key, amount)?,
            pool_kind::RESUMED => self.resumed(from)?,
            pool_kind::LEAVE => self.leave(from),
            _ => return Err(Violation("it says something unknown")),
        }
        Ok(())
    }

    fn find(&mut self, (owner, idx): Key) -> Option<&mut Extent> {
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

    fn extent(&mut self, from: MemberIdx, idx: ExtentIdx, len: u64) -> Result<(), Violation> {
        let quota = self.capacity.member_quota;
        let member = self.members.get_mut(&from).expect("the caller looked");
        let stated = member.resuming.as_mut().is_some_and(|unstated| unstated.extents.remove(&idx));
        if let Some(known) = member.extents.get(&idx) {
            if !stated || known.len != len {
                return Err(Violation("it names an extent twice, or with another length"));
            }
            self.say(from, PoolMessage::new(pool_kind::EXTENT_OK).about(from, idx), Vec::new());
            self.ask(from);
            return Ok(());
        }
        let made: u64 = member.extents.values().map(|extent| extent.len).sum();
        if idx.0 == 0 || ExtentShape::of_data(len).is_none() {
            return Err(Violation("it names an extent that can't be"));
        }
        if made + len > member.granted {
            // What the coordinator before granted is there, whatever this one would have said.
            if member.resuming.is_none() || made + len > quota {
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
        member.extents.insert(idx, Extent { len, importers });
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

    fn refuse(&mut self, reader: MemberIdx, (owner, idx): Key, reason: u32) {
        let message = PoolMessage::new(pool_kind::MAP_FAILED).about(owner, idx).because(reason);
        self.say(reader, message, Vec::new());
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
        self.give_up_extent((from, idx), extent);
        Ok(())
    }

    /// A reader that comes back maps an extent. Its owner may come back too, or may be dead.
    fn present(&mut self, from: MemberIdx, key: Key, len: u64) -> Result<(), Violation> {
        let quota = self.capacity.member_quota;
        let member = self.members.get_mut(&from).expect("the caller looked");
        let Some(unstated) = &mut member.resuming else {
            return Err(Violation("it tells what it maps without having come back"));
        };
        if ExtentShape::of_data(len).is_none() || key.0 == from || key.0.0 == 0 || key.1.0 == 0 {
            return Err(Violation("it maps an extent that can't be"));
        }
        unstated.mapped.remove(&key);
        let is_early = self.early.is_some();
        let is_known = self.lingering.contains_key(&key)
            || self.members.get(&key.0).is_some_and(|owner| owner.extents.contains_key(&key.1));
        if !is_known {
            let member = self.members.get_mut(&from).expect("the caller looked");
            let unstated = member.resuming.as_mut().expect("as above");
            // A claim that nobody else makes: believed while others may come back, and as far as the member's own quota.
            if !is_early || unstated.claimed + len > quota || unstated.claim_count >= CLAIM_COUNT_MAX {
                return Ok(());
            }
            unstated.claimed += len;
            unstated.claim_count += 1;
            self.used += len;
            self.lingering.insert(key, Lingering { len, importers: BTreeSet::new() });
        }
        if let Some(extent) = self.find(key) {
            extent.importers.insert(from);
        } else if let Some(lingering) = self.lingering.get_mut(&key) {
            lingering.importers.insert(from);
        }
        Ok(())
    }

    /// A member that came back has stated all: what it had before and didn't state is gone.
    fn resumed(&mut self, from: MemberIdx) -> Result<(), Violation> {
        let member = self.members.get_mut(&from).expect("the caller looked");
        let Some(unstated) = member.resuming.take() else {
            return Err(Violation("it resumes without having come back"));
        };
        let mut gone = Vec::new();
        for idx in unstated.extents {
            if let Some(extent) = member.extents.remove(&idx) {
                member.granted -= extent.len;
                gone.push(((from, idx), extent));
            }
        }
        let made: u64 = member.extents.values().map(|extent| extent.len).sum();
        self.used -= member.granted - made;
        member.granted = made;
        for (key, extent) in gone {
            self.give_up_extent(key, extent);
        }
        for key in unstated.mapped {
            self.let_go(from, key);
        }
        self.ask(from);
        Ok(())
    }
}
