//! An extent's way to a reader, and the reader's row's way to the owner. The coordinator keeps neither.
//!
//! # States
//! Of one extent for one reader, by what was said last:
//!
//! ```text
//! MAP ──► wanted ──WANTED──► asked ──GIVE, MAPPED──► given ──ROW──► shown ──ROW_OK, WATCHED──► (done)
//!            ▲                 │        given: it counts as mapped, until UNMAPPED; MAP begins anew
//!            └─ owner is lost ─┘        NOT_HAD, owner's end, owner lost for long: MAP_FAILED
//! ```

use tollfree_layout::pool::{PoolMessage, pool_kind, pool_reason};
use tollfree_layout::{ExtentIdx, MemberIdx};

use super::{CapacityShares, Key, Presence};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The owner is to be asked when it has answered others.
    Wanted,
    /// The owner was asked for the descriptor.
    Asked,
    /// The reader has it, and makes its row.
    Given,
    /// The owner was shown this row.
    Shown(u64),
}

impl Stage {
    pub(super) fn is_owed(self) -> bool {
        matches!(self, Stage::Asked | Stage::Shown(_))
    }
}

/// Extents that an owner is asked for before it has answered.
const ASKED_COUNT_MAX: usize = 32;
/// The same and the rows that it is shown: so many descriptors wait for one that doesn't read.
const OWED_COUNT_MAX: usize = 64;
/// Extents that one reader wants at a time.
const WANTED_COUNT_MAX: usize = 256;

impl<F: Clone> CapacityShares<F> {
    pub(super) fn map(&mut self, reader: MemberIdx, key: Key) {
        let presence = self.members.get(&key.0).map(|owner| owner.presence);
        let is_known = key.0 != reader && self.find(key).is_some();
        if !is_known {
            match &mut self.early {
                Some(early) if key.0 != reader && early.len() < super::EARLY_COUNT_MAX => {
                    early.insert((key, reader));
                }
                _ => self.refuse(reader, key, pool_reason::GONE),
            }
            return;
        }
        let mine = self.mappings.keys().filter(|(_, _, by)| *by == reader).count();
        if presence == Some(Presence::GivenUp) || mine >= WANTED_COUNT_MAX {
            return self.refuse(reader, key, pool_reason::BUSY);
        }
        let step = (key.0, key.1, reader);
        if matches!(self.mappings.get(&step), Some(Stage::Given | Stage::Shown(_))) {
            // It couldn't map what it was given, and asks anew: nobody waits for what was under way.
            self.end_mappings(|other| other == step, None);
        }
        self.mappings.entry(step).or_insert(Stage::Wanted);
        self.ask(key.0);
    }

    /// Asks an owner for what readers want of it, a few at a time.
    pub(super) fn ask(&mut self, owner: MemberIdx) {
        let Some(member) = self.members.get(&owner).filter(|member| member.presence == Presence::Here) else {
            return;
        };
        let unstated = member.resuming.as_ref().map(|unstated| &unstated.extents);
        let stated = |idx: &ExtentIdx| unstated.is_none_or(|unstated| !unstated.contains(idx));
        let room = ASKED_COUNT_MAX.saturating_sub(member.owes);
        let lowest = (owner, ExtentIdx(0), MemberIdx(0));
        let wanted = self.mappings.range(lowest..).take_while(|((of, _, _), _)| *of == owner);
        let wanted = wanted.filter(|((_, idx, _), stage)| **stage == Stage::Wanted && stated(idx));
        let next: Vec<_> = wanted.map(|(key, _)| *key).take(room).collect();
        for (owner, idx, reader) in next {
            self.mappings.insert((owner, idx, reader), Stage::Asked);
            self.owes(owner, true);
            self.say(owner, PoolMessage::new(pool_kind::WANTED).about(reader, idx), Vec::new());
        }
    }

    fn owes(&mut self, owner: MemberIdx, more: bool) {
        if let Some(member) = self.members.get_mut(&owner) {
            member.owes = if more { member.owes + 1 } else { member.owes.saturating_sub(1) };
        }
    }

    /// An owner gives the descriptor of its extent. An answer that nobody waits for any more is nothing.
    pub(super) fn give(&mut self, owner: MemberIdx, (reader, idx): Key, fds: Vec<F>) {
        let step = (owner, idx, reader);
        if self.mappings.get(&step) != Some(&Stage::Asked) {
            return;
        }
        self.owes(owner, false);
        let life = self.members.get(&owner).map(|member| member.life.clone());
        match (fds.into_iter().next(), life, self.find((owner, idx))) {
            (Some(fd), Some(life), Some(extent)) => {
                extent.importers.insert(reader);
                let message = PoolMessage::new(pool_kind::MAPPED).about(owner, idx).of(extent.len);
                self.mappings.insert(step, Stage::Given);
                self.say(reader, message, vec![fd, life]);
            }
            _ => {
                self.mappings.remove(&step);
                self.refuse(reader, (owner, idx), pool_reason::BUSY);
            }
        }
        self.ask(owner);
    }

    /// A reader's row, to be looked at by the owner.
    pub(super) fn row(&mut self, reader: MemberIdx, key: Key, (number, process): (u64, u64), fds: Vec<F>) {
        let step = (key.0, key.1, reader);
        if self.mappings.get(&step) != Some(&Stage::Given) {
            // Its owner was lost, or has given it up, meanwhile.
            return self.refuse(reader, key, pool_reason::BUSY);
        }
        let owner = self.members.get(&key.0).filter(|owner| owner.presence == Presence::Here);
        let may = owner.is_some_and(|owner| owner.owes < OWED_COUNT_MAX);
        let life = self.members.get(&reader).map(|member| member.life.clone());
        let (Some(row), Some(life), true) = (fds.into_iter().next(), life, may) else {
            self.mappings.remove(&step);
            return self.refuse(reader, key, pool_reason::BUSY);
        };
        self.mappings.insert(step, Stage::Shown(number));
        self.owes(key.0, true);
        let message = PoolMessage::new(pool_kind::ROW).about(reader, key.1).row(number).of(process);
        self.say(key.0, message, vec![row, life]);
    }

    /// An owner looks at this row.
    pub(super) fn row_ok(&mut self, owner: MemberIdx, (reader, idx): Key, number: u64) {
        let step = (owner, idx, reader);
        if self.mappings.get(&step) == Some(&Stage::Shown(number)) {
            self.mappings.remove(&step);
            self.owes(owner, false);
            self.say(reader, PoolMessage::new(pool_kind::WATCHED).about(owner, idx).row(number), Vec::new());
            self.ask(owner);
        }
    }

    /// An owner can't give its extent, or look at a row.
    pub(super) fn not_had(&mut self, owner: MemberIdx, (reader, idx): Key, reason: u32) {
        let step = (owner, idx, reader);
        if self.mappings.get(&step).is_some_and(|stage| stage.is_owed()) {
            self.mappings.remove(&step);
            self.owes(owner, false);
            let reason = if reason == pool_reason::BUSY { reason } else { pool_reason::GONE };
            self.refuse(reader, (owner, idx), reason);
            self.ask(owner);
        }
    }

    /// A member's connection was lost, with all that was on its way over it.
    pub(super) fn lose_mappings(&mut self, member: MemberIdx) {
        self.end_mappings(|(_, _, reader)| reader == member, None);
        for ((owner, _, _), stage) in &mut self.mappings {
            if *owner == member && *stage == Stage::Asked {
                *stage = Stage::Wanted;
            }
        }
        let shown: Vec<_> = self.mappings.iter().filter(|(_, stage)| stage.is_owed()).collect();
        let shown: Vec<_> = shown.into_iter().map(|(key, _)| *key).filter(|key| key.0 == member).collect();
        self.end_mappings(|key| shown.contains(&key), Some(pool_reason::BUSY));
        if let Some(member) = self.members.get_mut(&member) {
            member.owes = 0;
        }
    }

    /// Ends what is under way, and tells the readers why, if there is a reason.
    pub(super) fn end_mappings(
        &mut self,
        which: impl Fn((MemberIdx, ExtentIdx, MemberIdx)) -> bool,
        reason: Option<u32>,
    ) {
        let ended: Vec<_> = self.mappings.keys().copied().filter(|key| which(*key)).collect();
        for key in ended {
            let Some(stage) = self.mappings.remove(&key) else { continue };
            if stage.is_owed() {
                self.owes(key.0, false);
            }
            if let Some(reason) = reason {
                self.refuse(key.2, (key.0, key.1), reason);
            }
        }
    }
}
