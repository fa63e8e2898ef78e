//! A client and a server that wait for each other as a planner says: a simulation with a clock of its own, and seeds.
//!
//! What the ends share is what processes share: the doorbell's words, each behind its own memory, and a count of messages. Every step of one
//! end may fall between any two of the other's. Each end has a thread, on a processor of its own or on the other's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tollfree_connection::{Contention, Surroundings, ThreadTime, Wait, WaitPlanner, WaitPolicy};
use tollfree_region::HeapMemory;
use tollfree_ring::{Ringer, Waiter};
use tollfree_session::Role;

/// An end takes so long to look at the ring once, in nanoseconds.
const LOOK_NS: u64 = 120;

/// Numbers that look random and are the same for the same seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// What is simulated. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) policy: WaitPolicy,
    pub(crate) calls: u32,
    /// The server works so long for a call.
    pub(crate) work_ns: u64,
    /// The client pauses so long between an answer and the next call.
    pub(crate) pause_ns: u64,
    /// From ringing until the thread that is woken runs: so long at least, and up to half as much more.
    pub(crate) wake_ns: u64,
    /// One wake-up in so many comes this much later; 0: none.
    pub(crate) late: (u64, u64),
    /// Both threads have one processor.
    pub(crate) is_shared: bool,
    /// The server stops for so long, once, in the middle.
    pub(crate) stop_ns: u64,
    /// Somebody who computes takes a processor that is offered, for so long; 0: nobody.
    pub(crate) computes_ns: u64,
    /// A quota is tight.
    pub(crate) is_tight: bool,
    /// After arming the doorbell an end looks once more. It has to: without, wake-ups are lost.
    pub(crate) looks_again: bool,
}

impl Default for Scene {
    fn default() -> Scene {
        Scene {
            seed: 1,
            policy: WaitPolicy::Adaptive,
            calls: 2_000,
            work_ns: 1_000,
            pause_ns: 500,
            wake_ns: 50_000,
            late: (0, 0),
            is_shared: false,
            stop_ns: 0,
            computes_ns: 0,
            is_tight: false,
            looks_again: true,
        }
    }
}

/// What an end did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deeds {
    pub(crate) waits: u64,
    pub(crate) parks: u64,
    /// The doorbell was armed, to sleep or to probe.
    pub(crate) armed: u64,
    /// It was rung.
    pub(crate) rung: u64,
    pub(crate) looked_ns: u64,
    pub(crate) longest_look_ns: u64,
    /// Looks that went on beyond the budget, which a step may do and no more.
    pub(crate) beyond_ns: u64,
}

impl Deeds {
    /// A look has ended, which was worth `budget_ns`.
    fn looked(&mut self, ns: u64, budget_ns: u64) {
        self.looked_ns += ns;
        self.longest_look_ns = self.longest_look_ns.max(ns);
        self.beyond_ns = self.beyond_ns.max(ns.saturating_sub(budget_ns));
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) client: Deeds,
    pub(crate) server: Deeds,
    pub(crate) answered: u32,
    pub(crate) took_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Works, and has something to say afterwards.
    Works,
    /// Has said it, and looks next whether to ring.
    Said,
    Looks,
    /// Has decided to sleep, or to probe.
    WillArm {
        probes: bool,
        offers: bool,
    },
    /// Has armed the doorbell, and looks once more.
    Arms,
    Asleep,
    /// A client that makes no more calls.
    Done,
}

struct End {
    planner: WaitPlanner,
    waiter: Waiter<HeapMemory>,
    /// Of the other one.
    ringer: Ringer<HeapMemory>,
    messages: u32,
    state: State,
    wait_began_ns: Option<u64>,
    /// Processor time that it has looked for since it last had a message, or slept.
    look_ns: u64,
    contention: Contention,
    /// Processor time that it has taken.
    taken_ns: u64,
    /// A ring is under way to it.
    is_rung: bool,
    deeds: Deeds,
}

struct Around {
    contention: Contention,
    is_tight: bool,
}

impl Surroundings for Around {
    fn want_this_processor(&self, now_ns: u64) -> bool {
        self.contention.is_met(now_ns)
    }

    fn want_any_processor(&self) -> bool {
        false
    }

    fn is_quota_tight(&self, _: u64) -> bool {
        self.is_tight
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An end goes on.
    Step(usize),
    /// An end's doorbell rings.
    Bell(usize),
}

pub(crate) struct Pair {
    scene: Scene,
    dice: Dice,
    ends: [End; 2],
    /// Until when each processor is taken.
    busy_ns: [u64; 2],
    /// By time, then in the order in which they were put there.
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    put_count: u64,
    now_ns: u64,
    answered: u32,
    has_stopped: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Pair {
    pub(crate) fn new(scene: Scene) -> Pair {
        let words = [0, 1].map(|_| Arc::new(HeapMemory::new(4096)));
        let end = |own: usize, role| End {
            planner: WaitPlanner::new(scene.policy, role),
            waiter: Waiter::new(words[own].clone()),
            ringer: Ringer::new(words[1 - own].clone()),
            messages: 0,
            state: State::Looks,
            wait_began_ns: None,
            look_ns: 0,
            contention: Contention::NONE,
            taken_ns: 0,
            is_rung: false,
            deeds: Deeds::default(),
        };
        let ends = [end(CLIENT, Role::Client), end(SERVER, Role::Server)];
        let mut pair = Pair {
            dice: Dice::new(scene.seed),
            scene,
            ends,
            busy_ns: [0; 2],
            due: BinaryHeap::new(),
            put_count: 0,
            now_ns: 1,
            answered: 0,
            has_stopped: false,
        };
        pair.ends[CLIENT].state = State::Works;
        pair.put(Event::Step(CLIENT), 100);
        pair.put(Event::Step(SERVER), 1);
        pair
    }

    /// Until nothing is left to happen.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Reverse((at, _, event))) = self.due.pop() {
            let end = match event {
                Event::Step(end) | Event::Bell(end) => end,
            };
            let processor = if self.scene.is_shared { 0 } else { end };
            if self.busy_ns[processor] > at {
                let wait = self.busy_ns[processor] - at;
                self.now_ns = at;
                self.put(event, wait);
                continue;
            }
            self.now_ns = at;
            let took = match event {
                Event::Step(end) => self.step(end),
                Event::Bell(end) => self.rings(end),
            };
            self.busy_ns[processor] = at + took;
            self.ends[end].taken_ns += took;
            self.check();
        }
        let [client, server] = [CLIENT, SERVER].map(|end| self.ends[end].deeds);
        assert_eq!(self.ends[CLIENT].state, State::Done, "{:?}", self.scene);
        assert_eq!(self.ends[SERVER].state, State::Asleep, "nothing is due, so it sleeps: {:?}", self.scene);
        Outcome { client, server, answered: self.answered, took_ns: self.now_ns }
    }

    fn put(&mut self, event: Event, after_ns: u64) {
        self.put_count += 1;
        self.due.push(Reverse((self.now_ns + after_ns, self.put_count, event)));
    }

    /// What holds after each step, whatever came before.
    fn check(&self) {
        for end in &self.ends {
            let is_lost = end.state == State::Asleep && end.messages > 0 && !end.is_rung;
            // Who has just said something has yet to look whether to ring.
            let may_ring = self.ends.iter().any(|other| other.state == State::Said);
            assert!(!is_lost || may_ring, "a wake-up is lost: {:?}", self.scene);
            assert!(end.deeds.rung <= end.deeds.armed, "rung more than once: {:?}", self.scene);
        }
    }

    /// An end does the next thing; how long its processor is taken.
    fn step(&mut self, end: usize) -> u64 {
        let jitter = self.dice.below(LOOK_NS);
        match self.ends[end].state {
            State::Works => {
                self.ends[1 - end].messages += 1;
                self.ends[end].state = State::Said;
                self.put(Event::Step(end), jitter);
                jitter
            }
            State::Said => {
                let rings = self.ends[end].ringer.should_ring();
                let now = self.now_ns;
                let us = &mut self.ends[end];
                us.planner.spoke(rings);
                us.state = State::Looks;
                let mut took = LOOK_NS;
                if rings {
                    // A system call.
                    took += 1_500;
                    if let Some(began) = us.planner.ring_begins(|| now) {
                        us.planner.ring_ended(began, now + took);
                    }
                    self.ring(1 - end);
                }
                self.put(Event::Step(end), took);
                took
            }
            State::Looks => self.look(end, jitter),
            State::WillArm { probes, offers } => {
                let us = &mut self.ends[end];
                us.waiter.park(false);
                us.deeds.armed += 1;
                if probes {
                    us.state = State::Looks;
                    return self.looks_on(end, offers);
                }
                us.state = State::Arms;
                self.put(Event::Step(end), jitter);
                jitter
            }
            State::Arms => {
                let us = &mut self.ends[end];
                if us.messages > 0 && self.scene.looks_again {
                    us.waiter.unpark();
                    us.state = State::Looks;
                    self.put(Event::Step(end), LOOK_NS);
                } else {
                    us.state = State::Asleep;
                    us.deeds.parks += 1;
                }
                LOOK_NS
            }
            State::Asleep | State::Done => 0,
        }
    }

    fn ring(&mut self, end: usize) {
        let (every, by) = self.scene.late;
        let late = if every > 0 && self.dice.below(every) == 0 { by } else { 0 };
        let after = self.scene.wake_ns + self.dice.below(self.scene.wake_ns / 2) + late;
        self.ends[end].is_rung = true;
        self.ends[end].deeds.rung += 1;
        self.put(Event::Bell(end), after);
    }

    /// A doorbell rings.
    fn rings(&mut self, end: usize) -> u64 {
        let us = &mut self.ends[end];
        us.is_rung = false;
        let time = ThreadTime { thread: end as u64, taken_ns: us.taken_ns + 4_000 };
        us.planner.woken(|| time);
        if us.state == State::Asleep {
            us.waiter.unpark();
            us.state = State::Looks;
            self.put(Event::Step(end), LOOK_NS);
        }
        4_000
    }

    fn look(&mut self, end: usize, jitter: u64) -> u64 {
        let now = self.now_ns;
        let us = &mut self.ends[end];
        if us.messages > 0 {
            us.messages -= 1;
            us.waiter.unpark();
            if let Some(began) = us.wait_began_ns.take() {
                us.deeds.waits += 1;
                us.deeds.looked(std::mem::take(&mut us.look_ns), us.planner.budget_ns());
                us.planner.wait_ended(began, now, || now);
            }
            return self.takes_up(end);
        }
        if us.wait_began_ns.is_none() {
            us.wait_began_ns = Some(now);
            us.planner.wait_begins(now);
        }
        let waited = now - us.wait_began_ns.unwrap_or(now);
        let around = Around { contention: us.contention, is_tight: self.scene.is_tight };
        let budget = us.planner.budget_ns();
        match us.planner.decide(waited, now, &around) {
            Wait::Park => {
                us.deeds.looked(std::mem::take(&mut us.look_ns), budget);
                let time = ThreadTime { thread: end as u64, taken_ns: us.taken_ns };
                us.planner.parks(|| time);
                us.state = State::WillArm { probes: false, offers: false };
                self.put(Event::Step(end), jitter);
                jitter
            }
            Wait::Probe { offers } => {
                us.state = State::WillArm { probes: true, offers };
                self.put(Event::Step(end), jitter);
                jitter
            }
            Wait::Spin { offers } => {
                us.waiter.unpark();
                self.looks_on(end, offers)
            }
        }
    }

    fn looks_on(&mut self, end: usize, offers: bool) -> u64 {
        let (now, away) = (self.now_ns, self.scene.computes_ns);
        let us = &mut self.ends[end];
        us.look_ns += LOOK_NS;
        us.planner.saw_peer(self.scene.is_shared);
        let mut after = LOOK_NS;
        if offers && away > 0 {
            us.contention.offered(now, away, us.planner.taken_ns());
            after += away;
        }
        self.put(Event::Step(end), after);
        LOOK_NS
    }

    /// An end has a message: what it does with that.
    fn takes_up(&mut self, end: usize) -> u64 {
        let us = &mut self.ends[end];
        if end == SERVER {
            us.state = State::Works;
            let mut work = self.scene.work_ns;
            if self.scene.stop_ns > 0 && self.answered == self.scene.calls / 2 && !self.has_stopped {
                self.has_stopped = true;
                work += self.scene.stop_ns;
                // It is stopped, and takes no processor.
                self.put(Event::Step(end), work);
                return LOOK_NS;
            }
            self.put(Event::Step(end), work);
            return work;
        }
        self.answered += 1;
        if self.answered == self.scene.calls {
            us.state = State::Done;
        } else {
            us.state = State::Works;
            self.put(Event::Step(end), self.scene.pause_ns);
        }
        LOOK_NS
    }
}
