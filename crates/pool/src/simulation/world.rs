//! Everything that a simulation consists of, and what can happen to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{PoolMessage, SECRET_LEN, pool_kind};
use tollfree_layout::{ExtentIdx, MemberIdx};
use tollfree_os::rustix;
use tollfree_region::GivenFd;

use super::member::{Kept, Life, Line, Member, RefLetter, Taken};
use super::rng::Rng;
use super::run::{Rule, Step, Wrong};
use super::wire::{Connection, Parcel};
use crate::config::Capacity;
use crate::error::RefError;
use crate::extent::PoolId;
use crate::handshake::{is_sound, join_word};
use crate::membership::{DeskIdx, FirstWord, Kernel, Membership, Process};
use crate::refs::Ref;

const BATCH: u64 = 64 << 10;
const CAPACITY: Capacity = Capacity { total: 8 * BATCH, member_quota: 3 * BATCH, batch: BATCH };
const NAME: PoolId = [7; 16];
/// Members at a time.
const MEMBER_COUNT_MAX: usize = 5;

/// A descriptor that a coordinator passes on.
type Passed = Arc<GivenFd>;

pub(super) struct World {
    pub(super) rng: Rng,
    rule: Rule,
    now: Instant,
    pub(super) coordinator: Option<Membership<Passed>>,
    /// There was another coordinator: what it granted may exceed the total.
    pub(super) was_followed: bool,
    connections: BTreeMap<DeskIdx, Connection>,
    last_desk: DeskIdx,
    pub(super) members: Vec<Member>,
    pub(super) letters: Vec<RefLetter>,
    /// What dead processes held: their rows stay as they were.
    graves: Vec<Kept>,
    /// This process's: what the kernel says of members is said by the simulation.
    life: Passed,
    last_stamp: u64,
    pub(super) trace: Vec<String>,
    pub(super) seen: BTreeSet<&'static str>,
    /// Counts whatever moved.
    pub(super) moves: u64,
    /// Processes run out of descriptors now and then: a message that comes then has none.
    pub(super) is_short: bool,
}

/// What the kernel says of somebody who joins.
struct Host<'a> {
    life: &'a Passed,
    rng: RefCell<&'a mut Rng>,
}

impl Kernel<Passed> for Host<'_> {
    fn process(&self) -> Result<Process<Passed>, u32> {
        Ok(Process { life: self.life.clone(), number: 1 })
    }

    fn secret(&self) -> Result<[u8; SECRET_LEN], u32> {
        let mut rng = self.rng.borrow_mut();
        let mut secret = [0; SECRET_LEN];
        secret[..8].copy_from_slice(&rng.next().to_le_bytes());
        secret[8..].copy_from_slice(&rng.next().to_le_bytes());
        Ok(secret)
    }
}

impl World {
    pub(super) fn new(seed: u64, rule: Rule) -> World {
        let this = rustix::process::getpid();
        let life = rustix::process::pidfd_open(this, rustix::process::PidfdFlags::empty());
        let now = Instant::now();
        World {
            rng: Rng::new(seed),
            rule,
            now,
            coordinator: Some(Membership::new(NAME, CAPACITY, now)),
            was_followed: false,
            connections: BTreeMap::new(),
            last_desk: 0,
            members: Vec::new(),
            letters: Vec::new(),
            graves: Vec::new(),
            life: Arc::new(GivenFd::from(life.expect("a pidfd of this process"))),
            last_stamp: 0,
            trace: Vec::new(),
            seen: BTreeSet::new(),
            moves: 0,
            is_short: false,
        }
    }

    pub(super) fn say(&mut self, words: impl Into<String>) {
        self.trace.push(words.into());
    }

    pub(super) fn see(&mut self, what: &'static str) {
        self.seen.insert(what);
    }

    /// Somebody new joins, all at once.
    pub(super) fn join(&mut self) {
        let is_full = self.members.iter().filter(|member| member.is_in()).count() >= MEMBER_COUNT_MAX;
        let Some(membership) = self.coordinator.as_mut().filter(|_| !is_full) else { return };
        self.last_desk += 1;
        let host = Host { life: &self.life, rng: RefCell::new(&mut self.rng) };
        let first = membership.first_word(self.last_desk, &join_word(None), false, &host);
        let FirstWord::Member { welcome, before: None } = first else { panic!("it is let in: {first:?}") };
        assert!(is_sound(&welcome, None));
        self.connections.insert(self.last_desk, Connection::new());
        self.say(format!("{} joins as {}", self.members.len(), welcome.member().0));
        self.members.push(Member::new(&welcome, self.last_desk));
        self.moves += 1;
    }

    /// A member connects again, and says who it is.
    pub(super) fn greet(&mut self, idx: usize) {
        let member = &mut self.members[idx];
        if self.coordinator.is_none() || member.line != Line::Down || member.life != Life::Here {
            return;
        }
        self.last_desk += 1;
        let mut connection = Connection::new();
        connection.to_coordinator.push_back(Parcel::new(&join_word(Some(member.known)), Vec::new()));
        self.connections.insert(self.last_desk, connection);
        member.line = Line::Greeting(self.last_desk);
        self.moves += 1;
        self.say(format!("{idx} says JOIN over {}", self.last_desk));
    }

    /// A member gets tired of waiting for its welcome. What it has said can still be heard.
    pub(super) fn tire(&mut self, idx: usize) {
        let Line::Greeting(desk) = self.members[idx].line else { return };
        self.members[idx].line = Line::Down;
        if let Some(connection) = self.connections.get_mut(&desk) {
            connection.is_open_at_member = false;
        }
        self.see("a greeting given up");
        self.say(format!("{idx} gives up {desk}"));
    }

    /// A member's agent reads some messages, and sends what there is.
    pub(super) fn agent(&mut self, idx: usize, count: usize) {
        for _ in 0..count {
            let desk = match self.members[idx].line {
                Line::Down => return,
                Line::Greeting(desk) | Line::Up(desk) => desk,
            };
            let connection = self.connections.get_mut(&desk).expect("its own is kept");
            match connection.to_member.pop_front() {
                Some(parcel) => self.hear(idx, parcel),
                None if connection.is_open_at_coordinator => break,
                None => return self.lose(idx),
            }
        }
        self.send(idx);
    }

    /// What is in a parcel, as far as there are descriptors left for it.
    fn open(&mut self, parcel: Parcel) -> (PoolMessage, Vec<GivenFd>) {
        self.moves += 1;
        let (message, mut fds) = parcel.open();
        if self.is_short && !fds.is_empty() && self.rng.one_in(20) {
            fds.clear();
            self.see("no descriptors left");
            self.say("without descriptors:");
        }
        (message, fds)
    }

    fn hear(&mut self, idx: usize, parcel: Parcel) {
        let (message, fds) = self.open(parcel);
        self.say(format!(
            "{idx} hears {} of {} {}",
            message.kind.get(),
            message.member.get(),
            message.extent.get()
        ));
        let member = &mut self.members[idx];
        match (member.line, member.inner.clone()) {
            (Line::Greeting(desk), Some(inner)) => {
                if message.kind.get() == pool_kind::WELCOME && is_sound(&message, Some(member.known)) {
                    member.line = Line::Up(desk);
                    member.member_protocol.resume(&inner);
                    self.see("come back");
                } else {
                    self.see("refused");
                    self.lose(idx);
                }
            }
            (_, Some(inner)) => {
                if message.kind.get() == pool_kind::LEFT {
                    self.seen.insert("a farewell");
                }
                member.member_protocol.hear(&inner, &message, fds);
            }
            // It has left, and reads on until it is hung up on.
            (_, None) => {}
        }
    }

    fn send(&mut self, idx: usize) {
        let Line::Up(desk) = self.members[idx].line else { return };
        let connection = self.connections.get_mut(&desk).expect("its own is kept");
        let letters = self.members[idx].member_protocol.letters();
        if !letters.is_empty() && !connection.is_open_at_coordinator {
            return self.lose(idx);
        }
        for letter in letters.drain(..) {
            connection.to_coordinator.push_back(Parcel::new(&letter.message, letter.fds));
            self.moves += 1;
        }
    }

    /// A member finds that its connection is lost.
    pub(super) fn lose(&mut self, idx: usize) {
        let member = &mut self.members[idx];
        let (Line::Up(desk) | Line::Greeting(desk)) = member.line else { return };
        if let (Line::Up(_), Some(inner)) = (member.line, member.inner.clone()) {
            member.member_protocol.lose(&inner);
        }
        member.line = Line::Down;
        if let Some(connection) = self.connections.get_mut(&desk) {
            connection.is_open_at_member = false;
            connection.to_member.clear();
        }
        self.see("lost");
        self.moves += 1;
        self.say(format!("{idx} has lost {desk}"));
    }

    /// A member has been without a coordinator for long.
    pub(super) fn give_up_fetches(&mut self, idx: usize) {
        let member = &mut self.members[idx];
        if let (Line::Down, Some(inner)) = (member.line, &member.inner) {
            member.member_protocol.give_up_fetches(inner);
        }
    }

    /// The coordinator reads some messages of a connection, and sends what follows.
    pub(super) fn serve(&mut self, desk: DeskIdx, count: usize) {
        for _ in 0..count {
            let Some(connection) = self.connections.get_mut(&desk) else { return };
            if self.coordinator.is_none() || !connection.is_open_at_coordinator {
                return;
            }
            let Some(parcel) = connection.to_coordinator.pop_front() else {
                if !connection.is_open_at_member {
                    self.hang_up(desk);
                    self.deliver();
                }
                return;
            };
            let (message, fds) = self.open(parcel);
            let membership = self.coordinator.as_mut().expect("it reads");
            let said = format!("the coordinator hears {} over {desk}", message.kind.get());
            match membership.member_at(desk) {
                Some(member) => {
                    let fds = fds.into_iter().map(Arc::new).collect();
                    match membership.hear(member, &message, fds) {
                        Ok(true) => {
                            self.seen.insert("an orderly leave");
                            self.shut(desk);
                        }
                        Ok(false) => {}
                        Err(violation) => {
                            assert!(self.rule != Rule::AsIs, "members keep to the protocol: {violation:?}");
                            self.hang_up(desk);
                        }
                    }
                }
                None => self.first_word(desk, &message),
            }
            self.say(said);
            self.deliver();
        }
    }

    fn first_word(&mut self, desk: DeskIdx, message: &PoolMessage) {
        let membership = self.coordinator.as_mut().expect("it reads");
        let host = Host { life: &self.life, rng: RefCell::new(&mut self.rng) };
        match membership.first_word(desk, message, false, &host) {
            FirstWord::Member { welcome, before } => {
                self.tell(desk, &welcome, &[]);
                if let Some(before) = before {
                    self.shut(before);
                    self.see("two connections of one member");
                }
            }
            FirstWord::Shown(_) => unreachable!("nobody asks"),
            FirstWord::Refused(reason) => {
                self.tell(desk, &PoolMessage::new(pool_kind::REFUSAL).because(reason), &[]);
                self.shut(desk);
            }
        }
    }

    /// The coordinator closes a connection.
    fn hang_up(&mut self, desk: DeskIdx) {
        let membership = self.coordinator.as_mut().expect("it is there to close it");
        match (self.rule, membership.member_at(desk)) {
            (Rule::LossIsDeath, Some(member)) => drop(membership.bury(member)),
            _ => membership.close(desk, self.now),
        }
        self.say(format!("the coordinator closes {desk}"));
        self.shut(desk);
    }

    fn shut(&mut self, desk: DeskIdx) {
        self.moves += 1;
        if let Some(connection) = self.connections.get_mut(&desk) {
            connection.is_open_at_coordinator = false;
            connection.to_coordinator.clear();
            if !connection.is_open_at_member {
                self.connections.remove(&desk);
            }
        }
    }

    fn tell(&mut self, desk: DeskIdx, message: &PoolMessage, fds: &[Passed]) -> bool {
        let connection = self.connections.get_mut(&desk).filter(|connection| connection.is_open_at_member);
        if let Some(connection) = connection {
            let fds: Vec<_> = fds.iter().map(|fd| &**fd).collect();
            connection.to_member.push_back(Parcel::of_copies(message, &fds));
            return true;
        }
        false
    }

    /// Sends what the coordinator has to say. Where nobody is at the other end, it notices.
    fn deliver(&mut self) {
        while let Some(membership) = &mut self.coordinator {
            let sayings: Vec<_> = membership.take_sayings().collect();
            if sayings.is_empty() {
                return;
            }
            for (desk, message, fds) in sayings {
                if !self.tell(desk, &message, &fds) && self.connections.contains_key(&desk) {
                    self.hang_up(desk);
                }
            }
        }
    }

    pub(super) fn desks(&self) -> Vec<DeskIdx> {
        self.connections.keys().copied().collect()
    }

    /// The coordinator runs out of something, and hangs up; or somebody cuts the connection, and both ends find out.
    pub(super) fn cut(&mut self, desk: DeskIdx) {
        let Some(connection) = self.connections.get_mut(&desk) else { return };
        connection.lose_some(&mut self.rng);
        self.say(format!("{desk} is cut"));
        let owner = self
            .members
            .iter()
            .position(|member| member.line == Line::Up(desk) || member.line == Line::Greeting(desk));
        match self.rng.below(3) {
            0 if self.coordinator.is_some() => {
                self.hang_up(desk);
                self.deliver();
            }
            1 => owner.into_iter().for_each(|idx| self.lose(idx)),
            _ => {
                if let Some(idx) = owner {
                    self.lose(idx);
                }
                if self.coordinator.is_some() && self.connections.contains_key(&desk) {
                    self.hang_up(desk);
                    self.deliver();
                }
            }
        }
    }

    /// The coordinator dies or stops: which of the two is the same to its members.
    pub(super) fn end_coordinator(&mut self) {
        if self.coordinator.take().is_none() {
            return;
        }
        self.say("the coordinator ends");
        self.see("a coordinator's end");
        for desk in self.desks() {
            if let Some(connection) = self.connections.get_mut(&desk) {
                connection.lose_some(&mut self.rng);
            }
            self.shut(desk);
        }
    }

    pub(super) fn start_coordinator(&mut self) {
        if self.coordinator.is_none() {
            self.coordinator = Some(Membership::new(NAME, CAPACITY, self.now));
            self.was_followed = true;
            self.moves += 1;
            self.say("a coordinator starts");
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        if let Some(membership) = &mut self.coordinator {
            let late = membership.give_up_waiting(self.now);
            if !late.is_empty() {
                self.seen.insert("somebody stays away");
            }
        }
        self.deliver();
    }

    /// A member makes a block and fills it, and everybody looks whether that has changed what is held.
    pub(super) fn produce(&mut self, idx: usize, page_count: usize) -> Step {
        if !self.members[idx].is_in() {
            return Ok(());
        }
        let len = page_count * PAGE_LEN;
        let inner = self.members[idx].inner();
        let Ok(mut block) = inner.allocate(len, Duration::ZERO) else { return Ok(()) };
        self.last_stamp += 1;
        let expected: Arc<[u8]> = self.last_stamp.to_le_bytes().repeat(len / 8).into();
        block.bytes_mut(0, len).copy_from_slice(&expected);
        self.say(format!("{idx} fills {:?} with {}", block.place_words(), self.last_stamp));
        let bytes = Ref::new(Arc::new(block), 0, len);
        self.members[idx].held.push(Kept { bytes, expected });
        self.look()
    }

    /// The invariant, by content.
    pub(super) fn look(&self) -> Step {
        for (idx, member) in self.members.iter().enumerate() {
            if let Some(kept) = member.held.iter().find(|kept| !kept.is_unchanged()) {
                let place = kept.bytes.held.place_words();
                return Err(Wrong::Changed(format!("{idx} holds {place}, which has changed")));
            }
        }
        match self.letters.iter().find(|letter| !letter.kept.is_unchanged()) {
            Some(letter) => Err(Wrong::Changed(format!("{} sends what has changed", letter.from))),
            None => Ok(()),
        }
    }

    /// A member passes something on that it holds.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        let (sender, receiver) = (&self.members[from], &self.members[to]);
        if from == to || sender.held.is_empty() || !sender.is_in() || !receiver.is_in() {
            return;
        }
        let kept = sender.held[self.rng.below(sender.held.len())].clone();
        let wire = kept.bytes.to_bytes().expect("no fork");
        self.say(format!("{from} sends {to} a ref to {}", kept.bytes.held.place_words()));
        self.letters.push(RefLetter { from, to, kept, wire, fetch: None, failed_count: 0 });
    }

    /// The receiver of a ref looks whether it can take hold of it. False: it failed.
    pub(super) fn take(&mut self, at: usize) -> Result<bool, Wrong> {
        let inner = self.members[self.letters[at].to].inner();
        match self.letters[at].take(&inner) {
            Taken::Held(bytes) => {
                let letter = self.letters.swap_remove(at);
                self.moves += 1;
                self.say(format!("{} holds {}", letter.to, bytes.held.place_words()));
                self.seen.insert(if bytes.is_own() { "a ref come home" } else { "a ref taken" });
                let kept = Kept { bytes, expected: letter.kept.expected };
                if !kept.is_unchanged() {
                    return Err(Wrong::Changed(format!("{} takes hold of what has changed", letter.to)));
                }
                self.members[letter.to].held.push(kept);
                Ok(true)
            }
            Taken::NotYet => Ok(true),
            Taken::Failed(error) => {
                if matches!(error, RefError::Stale) {
                    return Err(Wrong::Changed(format!(
                        "{} holds a block that was given up",
                        self.letters[at].from
                    )));
                }
                if error.is_forbidden() {
                    return Err(Wrong::Refused(format!("{}: {error}", self.letters[at].to)));
                }
                self.seen.insert("a fetch failed");
                self.letters[at].failed_count += 1;
                self.moves += 1;
                Ok(false)
            }
        }
    }

    /// What a process held that has ended, or let go.
    pub(super) fn drop_one(&mut self, idx: usize) {
        let held = &mut self.members[idx].held;
        if !held.is_empty() {
            let kept = held.swap_remove(self.rng.below(held.len()));
            self.trace.push(format!("{idx} drops {}", kept.bytes.held.place_words()));
        }
    }

    /// A process ends, with all that it holds. Nobody has noticed yet.
    pub(super) fn kill(&mut self, idx: usize) {
        if self.members[idx].life == Life::Dead {
            return;
        }
        self.say(format!("{idx} dies"));
        self.see("a death");
        self.lose(idx);
        let member = &mut self.members[idx];
        member.life = Life::Dead;
        self.graves.append(&mut member.held);
        for letter in self.letters.extract_if(.., |letter| letter.from == idx || letter.to == idx) {
            if letter.from == idx {
                self.graves.push(letter.kept);
            }
        }
    }

    /// A process drops its pool, and lives on.
    pub(super) fn leave(&mut self, idx: usize) {
        if self.members[idx].life != Life::Here {
            return;
        }
        self.say(format!("{idx} leaves"));
        self.letters.retain(|letter| letter.from != idx && letter.to != idx);
        let member = &mut self.members[idx];
        member.life = Life::Left;
        member.held.clear();
        let inner = member.inner.take().expect("it was in");
        assert_eq!(Arc::strong_count(&inner), 1, "nothing else keeps a member");
        drop(inner);
        member.member_protocol.leave();
        match member.line {
            Line::Up(_) => self.send(idx),
            _ => self.lose(idx),
        }
    }

    /// The kernel says which processes have ended, to one who watches them: a member, or the coordinator.
    pub(super) fn notice(&mut self, observer: Option<usize>) {
        match observer {
            Some(idx) if self.members[idx].is_in() => {
                let lives = self.members[idx].member_protocol.lives().map(|(number, _)| number).collect();
                for number in self.dead_of(lives) {
                    let inner = self.members[idx].inner();
                    self.members[idx].member_protocol.bury(&inner, number);
                    self.moves += 1;
                }
            }
            Some(_) => {}
            None => {
                let Some(membership) = &self.coordinator else { return };
                let lives = membership.lives().map(|(number, _)| number).collect();
                for number in self.dead_of(lives) {
                    let desk = self.coordinator.as_mut().and_then(|membership| membership.bury(number));
                    if let Some(desk) = desk {
                        self.shut(desk);
                    }
                    self.moves += 1;
                }
                self.deliver();
            }
        }
    }

    fn dead_of(&self, numbers: Vec<MemberIdx>) -> Vec<MemberIdx> {
        let is_dead = |number: &MemberIdx| {
            self.members.iter().any(|member| member.number() == *number && member.life == Life::Dead)
        };
        numbers.into_iter().filter(is_dead).collect()
    }

    /// A coordinator with a fault tells a member that an owner has left which it reads from, and which hasn't. (Of a reader
    /// it would be believed: a row that holds nothing goes at LEFT.)
    pub(super) fn tell_a_lie(&mut self, idx: usize) {
        let Some(inner) = self.members[idx].inner.clone().filter(|_| self.members[idx].life == Life::Here)
        else {
            return;
        };
        let read: Vec<_> = inner.imports.read().keys().map(|(owner, _)| *owner).collect();
        let owners: Vec<_> =
            read.into_iter().filter(|owner| !inner.heap.lock().has_rows_of(*owner)).collect();
        if let Some(owner) = owners.get(self.rng.below(owners.len())).copied() {
            let left = PoolMessage::new(pool_kind::LEFT).about(owner, ExtentIdx(0));
            self.members[idx].member_protocol.hear(&inner, &left, Vec::new());
            self.see("a false farewell");
            self.say(format!("{idx} is told that {} has left", owner.0));
        }
    }
}
