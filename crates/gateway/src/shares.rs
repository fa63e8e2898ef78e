//! What one client, and one of its connections, may hold of a group: places at its backend connections, memory, and turns to wait.
//!
//! A client may hold up to three times what is free, and a connection up to three times what is left of its client's share. So a client
//! that is alone gets three quarters, several get less each, and something stays free for a client that holds nothing yet. Nothing is
//! set aside for anybody by name, and nobody has to be told when others come and go. (Such limits are known as *dynamic thresholds*,
//! from buffers that the ports of a switch share.)

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::load_balancing::Order;
use crate::memory::Memory;
use crate::refusal::Refusal;

/// How many times what is free one may hold.
const TIMES: u64 = 3;
/// Calls that may go on for each that has ended: with two, a share that has become larger is used soon.
const WOKEN: usize = 2;
/// Groups of which a connection remembers its part, without a look whether it needs them.
const STAKES: usize = 8;

/// Who shares with others, as far as the gateway can tell. None where all that come by a listener look alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// An IPv4 address, or the /64 of an IPv6 address.
    Address(IpAddr),
    /// A user of this host, at a Unix socket.
    User(u32),
    /// A group whose processes call by way of the gateway.
    Group(Arc<str>),
}

/// What one holds.
#[derive(Debug, Default)]
struct Share {
    places: AtomicU64,
    bytes: AtomicU64,
    waiting: AtomicU64,
    /// Its turns in the group's queue.
    order: Order,
    /// One of its places is free again.
    freed: Notify,
}

impl Share {
    /// One more of `held`, up to `allowed`.
    fn add(held: &AtomicU64, more: u64, allowed: u64) -> bool {
        let within = |held: u64| held.checked_add(more).filter(|held| *held <= allowed);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    fn leave_place(&self) {
        self.places.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            (0..WOKEN).for_each(|_| self.freed.notify_one());
        }
    }
}

/// The shares of one group.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Calls that its backend connections may have at once, and those that they have.
    capacity: AtomicU64,
    taken: AtomicU64,
    waiting: AtomicU64,
    /// Calls that the group may have at once, whoever makes them, and those that it has while that is bounded.
    calls_max: AtomicU64,
    calls: AtomicU64,
    pub(crate) memory: Memory,
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    shares: HashMap<Owner, Weak<Share>>,
    /// Those that are gone are forgotten when there are so many.
    forget_at: usize,
}

impl Shares {
    pub(crate) fn new(memory: Memory) -> Shares {
        Shares {
            capacity: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            calls_max: AtomicU64::new(u64::MAX),
            calls: AtomicU64::new(0),
            memory,
            owners: Mutex::default(),
        }
    }

    /// Calls that its backend connections may have at once, from now on.
    pub(crate) fn set_capacity(&self, places: u64) {
        self.capacity.store(places, Ordering::Relaxed);
    }

    /// Calls that the group may have at once, from now on.
    pub(crate) fn set_calls_max(&self, calls: Option<u32>) {
        self.calls_max.store(calls.map_or(u64::MAX, u64::from), Ordering::Relaxed);
    }

    /// Lets one more call in.
    ///
    /// # Errors
    /// How many there may be.
    pub(crate) fn admit(self: &Arc<Shares>) -> Result<Option<AdmittedCall>, u64> {
        match self.calls_max.load(Ordering::Relaxed) {
            u64::MAX => Ok(None),
            most if Share::add(&self.calls, 1, most) => Ok(Some(AdmittedCall(self.clone()))),
            most => Err(most),
        }
    }

    /// Whether nobody holds anything.
    pub(crate) fn are_unused(&self) -> bool {
        let is_none = |count: &AtomicU64| count.load(Ordering::Relaxed) == 0;
        is_none(&self.taken) && is_none(&self.waiting) && self.memory.is_unused()
    }

    /// Calls that wait, for a backend connection with room or for a place of their client's share.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    fn free_places(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    fn share_of(&self, owner: &Owner) -> Arc<Share> {
        let mut owners = self.owners.lock();
        if let Some(share) = owners.shares.get(owner).and_then(Weak::upgrade) {
            return share;
        }
        if owners.shares.len() >= owners.forget_at {
            owners.shares.retain(|_, share| share.strong_count() > 0);
            owners.forget_at = 2 * owners.shares.len() + 16;
        }
        let share = Arc::<Share>::default();
        owners.shares.insert(owner.clone(), Arc::downgrade(&share));
        share
    }
}

/// What a connection, or a session, holds of all groups.
#[derive(Debug, Default)]
pub(crate) struct Claimant {
    stakes: Mutex<Vec<Arc<Stake>>>,
}

impl Claimant {
    /// Its part in a group, as one of its owner's.
    pub(crate) fn stake(&self, shares: &Arc<Shares>, owner: Option<&Owner>) -> Arc<Stake> {
        let mut stakes = self.stakes.lock();
        let is_it = |stake: &&Arc<Stake>| Arc::ptr_eq(&stake.group, shares) && stake.owner.as_ref() == owner;
        if let Some(stake) = stakes.iter().find(is_it) {
            return stake.clone();
        }
        if stakes.len() >= STAKES {
            stakes.retain(|stake| Arc::strong_count(stake) > 1);
        }
        let stake = Arc::new(Stake {
            group: shares.clone(),
            of_owner: owner.map(|owner| shares.share_of(owner)),
            owner: owner.cloned(),
            own: Share::default(),
        });
        stakes.push(stake.clone());
        stake
    }
}

/// What a connection holds of one group.
#[derive(Debug)]
pub(crate) struct Stake {
    group: Arc<Shares>,
    owner: Option<Owner>,
    /// Of all its owner's connections.
    of_owner: Option<Arc<Share>>,
    own: Share,
}

/// Whose share is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// All that there is for the client.
    Owner,
    /// What there is for the connection.
    Connection,
}

impl Stake {
    /// Whether it is a part of this group.
    pub(crate) fn is_of(&self, shares: &Arc<Shares>) -> bool {
        Arc::ptr_eq(&self.group, shares)
    }

    /// A call's place at the group's backend connections. One that holds none gets one, however few there are.
    ///
    /// # Errors
    /// Whose share is used up.
    pub(crate) fn claim(self: &Arc<Stake>) -> Result<Claim, Crowd> {
        let allowed = self.group.free_places().saturating_mul(TIMES);
        let taken = match &self.of_owner {
            None => Share::add(&self.own.places, 1, allowed.max(1)).then_some(()).ok_or(Crowd::Connection),
            Some(owner) => {
                let left = allowed.saturating_sub(owner.places.load(Ordering::Relaxed));
                if !Share::add(&owner.places, 1, allowed.max(1)) {
                    Err(Crowd::Owner)
                } else if Share::add(&self.own.places, 1, left.saturating_mul(TIMES).max(1)) {
                    Ok(())
                } else {
                    owner.leave_place();
                    Err(Crowd::Connection)
                }
            }
        };
        taken.map(|()| {
            self.group.taken.fetch_add(1, Ordering::Relaxed);
            Claim { stake: self.clone(), admitted: None, is_counted: true }
        })
    }

    /// The place of a call that is held to no share.
    pub(crate) fn pass(self: &Arc<Stake>) -> Claim {
        Claim { stake: self.clone(), admitted: None, is_counted: false }
    }

    /// Its client's turns in the group's queue.
    pub(crate) fn order(&self) -> &Order {
        &self.owner().order
    }

    /// Lets a call wait, where no more than `limit` of the group's may. None where the client's share of them is used up.
    pub(crate) fn wait(self: &Arc<Stake>, limit: u32) -> Option<Turn> {
        let limit = u64::from(limit);
        let allowed = limit.saturating_sub(self.group.waiting.load(Ordering::Relaxed)).saturating_mul(TIMES);
        if !Share::add(&self.owner().waiting, 1, allowed) {
            return None;
        }
        if !Share::add(&self.group.waiting, 1, limit) {
            self.owner().waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        if self.of_owner.is_some() {
            self.own.waiting.fetch_add(1, Ordering::SeqCst);
        }
        Some(Turn { stake: self.clone() })
    }

    /// Changes what the connection holds of memory by `more` bytes; nothing has changed where that fails.
    ///
    /// # Errors
    /// Whose memory is used up: the group's, or the client's share of it.
    pub(crate) fn take_bytes(&self, more: u64, limit: u64) -> Result<(), Refusal> {
        let allowed = limit.saturating_sub(self.group.memory.held()).saturating_mul(TIMES);
        let left = allowed.saturating_sub(self.owner().bytes.load(Ordering::Relaxed));
        if !self.group.memory.take(more, limit) {
            return Err(Refusal::Memory);
        }
        if !Share::add(&self.owner().bytes, more, allowed) {
            self.group.memory.give(more);
            return Err(Refusal::MemoryShare);
        }
        if self.of_owner.is_some() && !Share::add(&self.own.bytes, more, left.saturating_mul(TIMES)) {
            self.group.memory.give(more);
            self.owner().bytes.fetch_sub(more, Ordering::Relaxed);
            return Err(Refusal::MemoryShare);
        }
        Ok(())
    }

    /// Gives bytes back.
    pub(crate) fn give_bytes(&self, less: u64) {
        self.group.memory.give(less);
        self.owner().bytes.fetch_sub(less, Ordering::Relaxed);
        if self.of_owner.is_some() {
            self.own.bytes.fetch_sub(less, Ordering::Relaxed);
        }
    }

    fn owner(&self) -> &Share {
        self.of_owner.as_deref().unwrap_or(&self.own)
    }
}

/// That a call counts among those of its group, until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedCall(Arc<Shares>);

impl Drop for AdmittedCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One place of a share, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    stake: Arc<Stake>,
    admitted: Option<AdmittedCall>,
    /// It is held to its share.
    is_counted: bool,
}

impl Claim {
    /// The same of a call that was admitted just now, if it was.
    pub(crate) fn admitted(mut self, admitted: Option<AdmittedCall>) -> Claim {
        if admitted.is_some() {
            self.admitted = admitted;
        }
        self
    }

    pub(crate) fn stake(&self) -> &Arc<Stake> {
        &self.stake
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_counted {
            self.stake.group.taken.fetch_sub(1, Ordering::Relaxed);
            self.stake.own.leave_place();
            if let Some(owner) = &self.stake.of_owner {
                owner.leave_place();
            }
        }
    }
}

/// That a call waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    stake: Arc<Stake>,
}

impl Turn {
    /// Resolves when there may be a place in a share that was used up.
    pub(crate) async fn freed(&self, crowd: Crowd) {
        match crowd {
            Crowd::Owner => self.stake.owner().freed.notified().await,
            Crowd::Connection => self.stake.own.freed.notified().await,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.stake.group.waiting.fetch_sub(1, Ordering::SeqCst);
        self.stake.owner().waiting.fetch_sub(1, Ordering::SeqCst);
        if self.stake.of_owner.is_some() {
            self.stake.own.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    fn group(places: u64) -> Arc<Shares> {
        let shares = Arc::new(Shares::new(Memory::new(Gauge::default())));
        shares.set_capacity(places);
        shares
    }

    fn owner(number: u8) -> Option<Owner> {
        Some(Owner::Address(IpAddr::from([192, 0, 2, number])))
    }

    /// All that a connection can have.
    fn fill(stake: &Arc<Stake>, claims: &mut Vec<Claim>) -> usize {
        let before = claims.len();
        claims.extend(std::iter::from_fn(|| stake.claim().ok()));
        claims.len() - before
    }

    #[test]
    fn a_client_that_is_alone_gets_most_and_leaves_some_to_each_that_comes() {
        let (shares, mut claims) = (group(1024), Vec::new());
        let connections: Vec<_> = (0..9).map(|_| Claimant::default()).collect();
        let one = connections[0].stake(&shares, owner(0).as_ref());
        assert_eq!(fill(&one, &mut claims), 709);
        assert_eq!(one.claim().unwrap_err(), Crowd::Connection);
        // Its other connections, however many there are.
        let others = &connections[1..8];
        let more: usize =
            others.iter().map(|other| fill(&other.stake(&shares, owner(0).as_ref()), &mut claims)).sum();
        assert_eq!(709 + more, 768, "three quarters");
        let last = connections[8].stake(&shares, owner(0).as_ref());
        assert_eq!(last.claim().unwrap_err(), Crowd::Owner);
        // Each of the next gets its part of what the ones before it have left, and keeps it.
        for (number, places) in [(1, 178), (2, 54), (3, 17), (4, 5)] {
            let claimant = Claimant::default();
            assert_eq!(fill(&claimant.stake(&shares, owner(number).as_ref()), &mut claims), places);
        }
        assert!(claims.len() < 1024);
        claims.clear();
        assert!(shares.are_unused());
        assert_eq!(fill(&one, &mut claims), 709);
    }

    #[test]
    fn one_that_holds_nothing_gets_a_place_and_one_place_is_nobodys_reserve() {
        for places in 0..4 {
            let (shares, mut claims) = (group(places), Vec::new());
            let (one, other) = (Claimant::default(), Claimant::default());
            assert_eq!(fill(&one.stake(&shares, None), &mut claims) as u64, places.max(1));
            assert_eq!(fill(&other.stake(&shares, owner(1).as_ref()), &mut claims), 1);
        }
    }

    #[test]
    fn memory_is_shared_alike_and_bound_by_the_group() {
        let (shares, one, other) = (group(1), Claimant::default(), Claimant::default());
        let (one, other) = (one.stake(&shares, owner(0).as_ref()), other.stake(&shares, owner(0).as_ref()));
        let limit = 1 << 20;
        let fill = |stake: &Stake| (0..).take_while(|_| stake.take_bytes(1024, limit).is_ok()).count() as u64;
        let (first, second) = (fill(&one), fill(&other));
        assert!(first == 709 && (760..=768).contains(&(first + second)), "{first} and {second}");
        assert_eq!(one.take_bytes(1024, limit), Err(Refusal::MemoryShare));
        let third = Claimant::default().stake(&shares, owner(1).as_ref());
        third.take_bytes(100 << 10, limit).unwrap();
        assert_eq!(third.take_bytes(limit, limit), Err(Refusal::Memory));
        one.give_bytes(first * 1024);
        other.give_bytes(second * 1024);
        third.give_bytes(100 << 10);
        assert!(shares.are_unused());
        // Three times what is free is more than all of it.
        assert_eq!(third.take_bytes(limit + 1, limit), Err(Refusal::Memory));
        assert!(shares.are_unused());
    }

    #[test]
    fn turns_to_wait_are_shared_too() {
        let (shares, one, other) = (group(1), Claimant::default(), Claimant::default());
        let (one, other) = (one.stake(&shares, owner(0).as_ref()), other.stake(&shares, owner(1).as_ref()));
        let turns: Vec<_> = std::iter::from_fn(|| one.wait(100)).collect();
        assert_eq!((turns.len(), shares.waiting()), (75, 75));
        assert!(other.wait(100).is_some() && one.wait(100).is_none());
        drop(turns);
        assert!(shares.are_unused() && one.wait(100).is_some());
    }

    #[tokio::test]
    async fn a_place_that_comes_free_wakes_its_clients_calls() {
        let (shares, claimant) = (group(8), Claimant::default());
        let (stake, mut claims) = (claimant.stake(&shares, owner(0).as_ref()), Vec::new());
        fill(&stake, &mut claims);
        let crowd = stake.claim().unwrap_err();
        let turn = stake.wait(8).unwrap();
        let freed = turn.freed(crowd);
        tokio::pin!(freed);
        assert!(futures_util::poll!(&mut freed).is_pending());
        claims.pop();
        freed.await;
        assert!(stake.claim().is_ok());
    }
}
