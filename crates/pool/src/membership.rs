//! Who is in a pool, and which connection is whose: what the coordinator decides about comers and goers. No socket, no clock.
//!
//! # States
//! Of a connection:
//!
//! ```text
//! accepted ──JOIN──► a member's ──── lost, or another of the same member's ───► (closed); the member is away
//!    │                   └──── LEAVE, process's end ───► (closed); so is the membership
//!    ├──SHOW──► told who is here ──► (closed)
//!    └──anything else──► refused ──► (closed)
//! ```
//!
//! What members have and map is in the book (`capacity_shares.rs`).

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tollfree_layout::pool::{
    POOL_ID_LEN, POOL_VERSION, PoolMessage, SECRET_LEN, member_of, pool_kind, pool_reason,
};
use tollfree_layout::{ExtentIdx, MemberIdx};

use crate::capacity_shares::{CapacityShares, Saying, Violation};
use crate::config::Capacity;
use crate::extent::PoolId;

/// How long requests wait for owners that may come back: to a new coordinator, or after their connection was lost.
pub(crate) const RETURN_GRACE: Duration = Duration::from_secs(1);

/// Number of a connection; never used again.
pub(crate) type DeskIdx = u64;

/// A newcomer's process.
pub(crate) struct Process<F> {
    /// Tells of its end.
    pub(crate) life: F,
    /// Its number, for people; 0 where the kernel names none.
    pub(crate) number: u32,
}

/// What only the kernel says of a newcomer. An error is the reason to refuse it for.
pub(crate) trait Kernel<F> {
    /// Its process.
    fn process(&self) -> Result<Process<F>, u32>;

    /// Bytes that nobody can guess.
    fn secret(&self) -> Result<[u8; SECRET_LEN], u32>;
}

/// What follows from the first message of a connection.
#[derive(Debug)]
pub(crate) enum FirstWord {
    /// It is a member's from now on, and is told this. Another connection of the same member is to be closed.
    Member { welcome: PoolMessage, before: Option<DeskIdx> },
    /// It is told this, and closed then.
    Shown(Vec<PoolMessage>),
    /// It is refused for this reason, and closed.
    Refused(u32),
}

/// The members of a pool.
#[derive(Debug)]
pub(crate) struct Membership<F> {
    /// None before the first member.
    pool: Option<PoolId>,
    /// The pool's name, unless the first member comes back with another.
    name: PoolId,
    grace_until: Instant,
    capacity_shares: CapacityShares<F>,
    capacity: Capacity,
    desks: BTreeMap<MemberIdx, DeskIdx>,
    members: HashMap<DeskIdx, MemberIdx>,
    /// Members whose connection was lost, and when.
    away: BTreeMap<MemberIdx, Instant>,
    /// Process ids of members.
    processes: HashMap<MemberIdx, u32>,
}

impl<F: Clone> Membership<F> {
    pub(crate) fn new(name: PoolId, capacity: Capacity, now: Instant) -> Membership<F> {
        Membership {
            pool: None,
            name,
            grace_until: now + RETURN_GRACE,
            capacity_shares: CapacityShares::new(capacity),
            capacity,
            desks: BTreeMap::new(),
            members: HashMap::new(),
            away: BTreeMap::new(),
            processes: HashMap::new(),
        }
    }

    /// Whose connection it is.
    pub(crate) fn member_at(&self, desk: DeskIdx) -> Option<MemberIdx> {
        self.members.get(&desk).copied()
    }

    /// All members that haven't left, and what tells of their end.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (MemberIdx, &F)> {
        self.capacity_shares.lives()
    }

    /// Whether there is anything that time alone decides.
    pub(crate) fn is_waiting(&self) -> bool {
        self.capacity_shares.is_early() || !self.away.is_empty()
    }

    /// The first message of a connection.
    pub(crate) fn first_word(
        &mut self,
        desk: DeskIdx,
        message: &PoolMessage,
        has_fds: bool,
        kernel: &impl Kernel<F>,
    ) -> FirstWord {
        let answered = match message.kind.get() {
            _ if message.version.get() != POOL_VERSION => Err(pool_reason::VERSION),
            pool_kind::SHOW if !has_fds => return FirstWord::Shown(self.show()),
            pool_kind::JOIN if !has_fds && message.pool == [0; POOL_ID_LEN] => {
                self.new_secret(kernel).and_then(|secret| self.welcome(desk, secret, None, kernel))
            }
            pool_kind::JOIN if !has_fds => {
                self.known(message).and_then(|pool| self.welcome(desk, message.secret, Some(pool), kernel))
            }
            _ => Err(pool_reason::MALFORMED),
        };
        answered.unwrap_or_else(FirstWord::Refused)
    }

    /// Somebody comes back: to which pool. A coordinator that has no pool yet takes this one over.
    fn known(&self, message: &PoolMessage) -> Result<PoolId, u32> {
        let (member, secret) = (message.member(), message.secret);
        if self.pool.is_some_and(|pool| pool != message.pool) {
            return Err(pool_reason::POOL);
        }
        let known = self.capacity_shares.secret_of(member).is_none_or(|known| known == secret);
        if member.0 == 0 || !known || member_of(&secret, &message.pool) != member {
            return Err(pool_reason::MALFORMED);
        }
        Ok(message.pool)
    }

    /// Whether it is a member's secret.
    pub(crate) fn knows(&self, member: MemberIdx, secret: &[u8; SECRET_LEN]) -> bool {
        self.capacity_shares.secret_of(member) == Some(*secret)
    }

    /// A secret whose number nobody has.
    fn new_secret(&self, kernel: &impl Kernel<F>) -> Result<[u8; SECRET_LEN], u32> {
        loop {
            let secret = kernel.secret()?;
            let member = member_of(&secret, &self.pool.unwrap_or(self.name));
            if member.0 != 0 && self.capacity_shares.secret_of(member).is_none() {
                return Ok(secret);
            }
        }
    }

    fn welcome(
        &mut self,
        desk: DeskIdx,
        secret: [u8; SECRET_LEN],
        back_to: Option<PoolId>,
        kernel: &impl Kernel<F>,
    ) -> Result<FirstWord, u32> {
        let process = kernel.process()?;
        let pool = *self.pool.get_or_insert(back_to.unwrap_or(self.name));
        let member = member_of(&secret, &pool);
        let before = self.desks.get(&member).copied();
        if before.is_some() {
            // It has lost that connection, though this side hasn't noticed yet.
            self.unseat(member);
            self.capacity_shares.lose(member);
        }
        self.processes.insert(member, process.number);
        self.desks.insert(member, desk);
        self.members.insert(desk, member);
        self.away.remove(&member);
        self.capacity_shares.join(member, secret, process.life, back_to.is_some());
        let mut welcome = PoolMessage::new(pool_kind::WELCOME).of(self.capacity.member_quota);
        welcome.member = member.0.into();
        welcome.len = self.capacity.batch.into();
        welcome.pool = pool;
        welcome.secret = secret;
        Ok(FirstWord::Member { welcome, before })
    }

    /// Who is in the pool.
    fn show(&self) -> Vec<PoolMessage> {
        let mut shown: Vec<_> = self
            .capacity_shares
            .standings()
            .map(|(member, granted, made, standing)| {
                let process = self.processes.get(&member).copied().unwrap_or(0);
                let message = PoolMessage::new(pool_kind::SHOWN_MEMBER).about(member, ExtentIdx(process));
                message.of(granted).row(made).because(standing)
            })
            .collect();
        let count = ExtentIdx(shown.len() as u32);
        let pool = PoolMessage::new(pool_kind::SHOWN).about(MemberIdx(0), count);
        shown.insert(0, pool.of(self.capacity.total).row(self.capacity_shares.used()));
        shown
    }

    /// What a member says. `Ok(true)`: it has left, and its connection is to be closed.
    pub(crate) fn hear(
        &mut self,
        member: MemberIdx,
        message: &PoolMessage,
        fds: Vec<F>,
    ) -> Result<bool, Violation> {
        self.capacity_shares.hear(member, message, fds)?;
        let has_left = message.kind.get() == pool_kind::LEAVE;
        if has_left {
            self.bury(member);
        }
        Ok(has_left)
    }

    fn unseat(&mut self, member: MemberIdx) -> Option<DeskIdx> {
        let desk = self.desks.remove(&member)?;
        self.members.remove(&desk);
        Some(desk)
    }

    /// A connection is over. Its member isn't.
    pub(crate) fn close(&mut self, desk: DeskIdx, now: Instant) {
        let Some(member) = self.member_at(desk) else { return };
        self.unseat(member);
        if self.capacity_shares.lose(member) {
            self.away.insert(member, now);
        } else {
            self.processes.remove(&member);
        }
    }

    /// A member has left, or its process has ended. Its connection is to be closed.
    pub(crate) fn bury(&mut self, member: MemberIdx) -> Option<DeskIdx> {
        self.away.remove(&member);
        self.processes.remove(&member);
        self.capacity_shares.leave(member);
        self.unseat(member)
    }

    /// Members that may come back are waited for only so long. Which of them not any more.
    pub(crate) fn give_up_waiting(&mut self, now: Instant) -> Vec<MemberIdx> {
        if self.capacity_shares.is_early() && self.grace_until <= now {
            self.capacity_shares.give_up_early();
        }
        let is_late = |since: &Instant| now.duration_since(*since) > RETURN_GRACE;
        let late: Vec<_> =
            self.away.iter().filter(|(_, since)| is_late(since)).map(|(member, _)| *member).collect();
        for member in &late {
            self.away.remove(member);
            self.capacity_shares.give_up(*member);
        }
        late
    }

    /// What is to be said since this was last asked, and over which connections.
    pub(crate) fn take_sayings(&mut self) -> impl Iterator<Item = (DeskIdx, PoolMessage, Vec<F>)> {
        let sayings = self.capacity_shares.take_sayings().into_iter();
        sayings.filter_map(|Saying { to, message, fds }| Some((*self.desks.get(&to)?, message, fds)))
    }
}

#[cfg(test)]
impl<F: Clone> Membership<F> {
    /// The book.
    pub(crate) fn capacity_shares(&self) -> &CapacityShares<F> {
        &self.capacity_shares
    }
}
