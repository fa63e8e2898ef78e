//! A client and a server in one thread, each a whole connection: a simulation with a clock of its own, and seeds.
//!
//! What the ends share is what processes share: rings, payload areas and the doorbell's words. Every step of one end may fall between any two
//! of the other's: publishing is one, taking a record is one, and so is arming the doorbell. Each end has a thread, on a processor of its own
//! or on the other's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use tollfree_connection::{
    AreaFd, Connection, Contention, PeerIo, Report, Setup, Surroundings, ThreadTime, Wait, WaitHints,
    WaitPolicy,
};
use tollfree_layout::RingPos;
use tollfree_layout::limits::{AREA_LEN_MAX, AREA_LEN_MIN, PAGE_LEN};
use tollfree_region::{PeerRegion, Region};
use tollfree_ring::Geometry;
use tollfree_session::{Closed, Limits, Role};

use crate::calls::{Calls, Done};
use crate::tape::Tape;

/// An end takes so long to look at the ring once, in nanoseconds.
const LOOK_NS: u64 = 120;
/// More events than any scene has.
const EVENT_COUNT_MAX: u64 = 3_000_000;
/// A system call that wakes a thread takes so long, in nanoseconds.
const RING_NS: u64 = 1_500;

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
    /// Messages that a call has from the client, and their length.
    pub(crate) up: (u32, usize),
    /// The same from the server.
    pub(crate) down: (u32, usize),
    /// The server works so long for a record.
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
    /// The server closes the session after so many answers.
    pub(crate) closes_after: Option<u32>,
    /// Somebody who computes takes a processor that is offered, for so long; 0: nobody.
    pub(crate) computes_ns: u64,
    /// A quota is tight.
    pub(crate) is_tight: bool,
    /// A driver sleeps only if the connection has found nothing after arming the doorbell. It has to: else wake-ups are lost.
    pub(crate) minds_arming: bool,
}

impl Default for Scene {
    fn default() -> Scene {
        Scene {
            seed: 1,
            policy: WaitPolicy::Adaptive,
            calls: 2_000,
            up: (1, 64),
            down: (1, 64),
            work_ns: 1_000,
            pause_ns: 500,
            wake_ns: 50_000,
            late: (0, 0),
            is_shared: false,
            stop_ns: 0,
            closes_after: None,
            computes_ns: 0,
            is_tight: false,
            minds_arming: true,
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
    /// A timer was asked for.
    pub(crate) timers: u64,
    /// Descriptors of payload areas that it sent.
    pub(crate) areas: u64,
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
    /// Has something to do.
    Works,
    Looks,
    /// Has decided to sleep, or to probe.
    WillArm {
        probes: bool,
        offers: bool,
    },
    Asleep,
    /// A client that makes no more calls, or an end whose session is over.
    Over,
}

struct End {
    connection: Connection<()>,
    calls: Calls,
    state: State,
    /// What it has to say finds no room in the ring.
    lacks_room: bool,
    wait_began_ns: Option<u64>,
    /// Processor time that it has looked for since it last had something, or slept.
    look_ns: u64,
    contention: Contention,
    /// Processor time that it has taken.
    taken_ns: u64,
    /// A ring is under way to it. Further ones before it comes are the same.
    is_rung: bool,
    timer_ns: Option<u64>,
    /// Descriptors that lie on its socket.
    fds: VecDeque<OwnedFd>,
    deeds: Deeds,
    /// Bells that it has heard, and timers that were due.
    bells: u64,
    due: u64,
}

/// A step's part of the socket: what came, and what is to happen at the other end.
struct Io<'a> {
    now_ns: u64,
    came: &'a mut VecDeque<OwnedFd>,
    rings: bool,
    ring_count: u64,
    sent: Vec<OwnedFd>,
    hangs_up: bool,
}

impl PeerIo for Io<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn ring(&mut self, _: RingPos) {
        self.rings = true;
        self.ring_count += 1;
    }

    fn send_area(&mut self, area: BorrowedFd<'_>) -> Result<(), String> {
        self.sent.push(area.try_clone_to_owned().map_err(|error| error.to_string())?);
        Ok(())
    }

    fn take_area(&mut self) -> AreaFd {
        self.came.pop_front().map_or(AreaFd::Missing, |fd| AreaFd::Came(fd.into()))
    }

    fn hang_up(&mut self, _: RingPos, is_new: bool) {
        self.rings |= is_new;
        self.hangs_up = true;
    }

    fn report(&mut self, report: Report<'_>) {
        assert!(matches!(report, Report::Closing(Closed::Here(_))), "{report:?}");
    }
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
    /// What an end wanted a timer for is due.
    Timer(usize),
    /// An end's socket hangs up.
    HangUp(usize),
}

pub(crate) struct Pair {
    scene: Scene,
    dice: Dice,
    ends: [End; 2],
    tapes: [Tape; 2],
    /// Until when each processor is taken.
    busy_ns: [u64; 2],
    /// By time, then in the order in which they were put there.
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    put_count: u64,
    now_ns: u64,
    has_stopped: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;
const RING_LEN: usize = 2 * PAGE_LEN;

/// Both ends of a session in which nothing was said.
fn connections(policy: WaitPolicy, tapes: &[Tape; 2]) -> [Connection<()>; 2] {
    let ring = Geometry::new(PAGE_LEN, RING_LEN).unwrap();
    let regions = [0, 1].map(|_| Region::create("simulated", ring.end()).unwrap());
    let [of_client, of_server] = [0, 1].map(|idx| {
        let region: &Region = &regions[idx];
        Arc::new(PeerRegion::map(region.fd().try_clone_to_owned().unwrap(), ring.end()).unwrap())
    });
    let [client, server] = regions.map(Arc::new);
    let end = |role, own, peer, tape: &Tape| {
        Connection::new(Setup {
            role,
            policy,
            gathers: false,
            limits: Limits::default(),
            peer_limits: Limits::default(),
            segmented_messages: false,
            own,
            own_ring: ring,
            peer,
            peer_ring: ring,
            area_len: AREA_LEN_MIN,
            peer_area_len_max: AREA_LEN_MAX,
            area_idle_ns: 500_000_000,
            allowance: None,
            hints: WaitHints::None,
            recording: tape.recording(),
        })
    };
    let [of_clients, of_servers] = tapes;
    [end(Role::Client, client, of_server, of_clients), end(Role::Server, server, of_client, of_servers)]
}

impl Pair {
    pub(crate) fn new(scene: Scene) -> Pair {
        let tapes = [Tape::default(), Tape::default()];
        let mut calls =
            [Calls::client(scene.calls, scene.up, scene.down), Calls::server(scene.up, scene.down)]
                .into_iter();
        let ends = connections(scene.policy, &tapes).map(|connection| End {
            connection,
            calls: calls.next().expect("one for each"),
            state: State::Works,
            lacks_room: false,
            wait_began_ns: None,
            look_ns: 0,
            contention: Contention::NONE,
            taken_ns: 0,
            is_rung: false,
            timer_ns: None,
            fds: VecDeque::new(),
            deeds: Deeds::default(),
            bells: 0,
            due: 0,
        });
        let mut pair = Pair {
            dice: Dice::new(scene.seed),
            scene,
            ends,
            tapes,
            busy_ns: [0; 2],
            due: BinaryHeap::new(),
            put_count: 0,
            now_ns: 1,
            has_stopped: false,
        };
        pair.put(Event::Step(CLIENT), 100);
        pair.put(Event::Step(SERVER), 1);
        pair
    }

    /// Until nothing is left to happen.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Reverse((at, _, event))) = self.due.pop() {
            let end = match event {
                Event::Step(end) | Event::Bell(end) | Event::Timer(end) | Event::HangUp(end) => end,
            };
            let processor = if self.scene.is_shared { 0 } else { end };
            self.now_ns = at;
            if self.busy_ns[processor] > at {
                let wait = self.busy_ns[processor] - at;
                self.put(event, wait);
                continue;
            }
            let took = match event {
                Event::Step(end) => self.step(end),
                Event::Bell(end) => self.bell_rings(end),
                Event::Timer(end) => self.timer_ends(end),
                Event::HangUp(end) => self.hears_hang_up(end),
            };
            self.busy_ns[processor] = at + took;
            self.ends[end].taken_ns += took;
            self.set_timer(end);
            self.check();
        }
        let now = self.now_ns;
        for end in &mut self.ends {
            assert!(matches!(end.state, State::Asleep | State::Over), "{:?}: {:?}", end.state, self.scene);
            assert_eq!(end.connection.timeout(now), None, "who is idle asks for no timer: {:?}", self.scene);
        }
        assert_eq!(self.ends[CLIENT].state, State::Over, "{:?}", self.scene);
        self.check_events();
        let [client, server] = [CLIENT, SERVER].map(|end| self.ends[end].deeds);
        Outcome { client, server, answered: self.ends[CLIENT].calls.ended(), took_ns: self.now_ns }
    }

    /// What its events say of an end is what it did.
    fn check_events(&self) {
        for (end, tape) in self.ends.iter().zip(&self.tapes) {
            let told = tape.counts();
            let did = (end.bells, end.due, end.connection.published().0);
            assert_eq!((told.woken, told.timed_out, told.published), did, "{told:?} of {:?}", self.scene);
            // Three decisions and two outcomes of arming, between any two other events.
            assert!(told.waits <= 5 * (told.others + 1), "{told:?} of {:?}", self.scene);
        }
        let [client, server] = [CLIENT, SERVER].map(|end| self.tapes[end].counts());
        let is_given_back = client.released <= server.published && server.released <= client.published;
        assert!(is_given_back, "{client:?} and {server:?} of {:?}", self.scene);
    }

    fn put(&mut self, event: Event, after_ns: u64) {
        self.put_count += 1;
        assert!(self.put_count < EVENT_COUNT_MAX, "it does not end: {:?}", self.scene);
        self.due.push(Reverse((self.now_ns + after_ns, self.put_count, event)));
    }

    /// What holds after each step, whatever came before.
    fn check(&mut self) {
        let timers = [CLIENT, SERVER].map(|end| self.ends[1 - end].deeds.timers);
        for (end, others_timers) in self.ends.iter_mut().zip(timers) {
            if end.state == State::Asleep && !end.is_rung && end.connection.session().closed().is_none() {
                assert!(!end.connection.has_record(), "a wake-up is lost: {:?}", self.scene);
                let has_room = end.lacks_room && end.connection.has_room();
                assert!(!has_room, "a wake-up for room is lost: {:?}", self.scene);
            }
            // A payload area that the other end gives up is worth a ring though nobody sleeps, and so is its end of the session.
            assert!(
                end.deeds.rung <= end.deeds.armed + others_timers + 1,
                "rung more than once: {:?}",
                self.scene
            );
        }
    }

    /// Lets an end's connection do something; whether it has rung, which takes time.
    fn with<R>(
        &mut self,
        end: usize,
        act: impl FnOnce(&mut Connection<()>, &mut Calls, &mut Io<'_>) -> R,
    ) -> (R, u64) {
        let us = &mut self.ends[end];
        let mut io = Io {
            now_ns: self.now_ns,
            came: &mut us.fds,
            rings: false,
            ring_count: 0,
            sent: Vec::new(),
            hangs_up: false,
        };
        let told = self.tapes[end].counts().rung;
        let result = act(&mut us.connection, &mut us.calls, &mut io);
        let Io { rings, ring_count, sent, hangs_up, .. } = io;
        assert_eq!(
            self.tapes[end].counts().rung - told,
            ring_count,
            "each ring is told of: {:?}",
            self.scene
        );
        us.deeds.areas += sent.len() as u64;
        self.ends[1 - end].fds.extend(sent);
        if rings {
            self.ring(1 - end);
        }
        if hangs_up {
            self.put(Event::HangUp(1 - end), self.scene.wake_ns);
        }
        (result, if rings { RING_NS } else { 0 })
    }

    /// An end does the next thing; how long its processor is taken.
    fn step(&mut self, end: usize) -> u64 {
        let jitter = self.dice.below(LOOK_NS);
        match self.ends[end].state {
            State::Works => self.works(end, jitter),
            State::Looks => self.looks(end, jitter),
            State::WillArm { probes, offers } => self.arms(end, probes, offers),
            State::Asleep | State::Over => 0,
        }
    }

    /// Does what there is to do for calls, and publishes it.
    fn works(&mut self, end: usize, jitter: u64) -> u64 {
        let (done, rang) = self.with(end, |connection, calls, io| {
            let done = calls.act(connection, io);
            connection.flush(io, false);
            done
        });
        let us = &mut self.ends[end];
        us.connection.unpark();
        us.lacks_room = done == Done::LacksRoom;
        let took = jitter + rang;
        us.state = State::Looks;
        match done {
            Done::Over => us.state = State::Over,
            Done::CallEnded => {
                us.state = State::Works;
                self.put(Event::Step(end), took + self.scene.pause_ns);
            }
            _ => self.put(Event::Step(end), took),
        }
        let answered = self.ends[SERVER].calls.ended();
        if end == SERVER && self.scene.closes_after.is_some_and(|count| answered >= count) {
            self.with(end, |connection, _, io| connection.close(Closed::Here("it is enough"), io));
            self.ends[end].state = State::Over;
        }
        took
    }

    fn ring(&mut self, end: usize) {
        self.ends[end].deeds.rung += 1;
        if std::mem::replace(&mut self.ends[end].is_rung, true) {
            return;
        }
        let (every, by) = self.scene.late;
        let late = if every > 0 && self.dice.below(every) == 0 { by } else { 0 };
        let after = self.scene.wake_ns + self.dice.below(self.scene.wake_ns / 2) + late;
        self.put(Event::Bell(end), after);
    }

    fn bell_rings(&mut self, end: usize) -> u64 {
        let us = &mut self.ends[end];
        us.is_rung = false;
        let time = ThreadTime { thread: end as u64, taken_ns: us.taken_ns + 4_000 };
        us.bells += 1;
        us.connection.woken(|| time);
        if us.state == State::Asleep {
            us.connection.unpark();
            us.state = State::Looks;
            self.put(Event::Step(end), LOOK_NS);
        }
        4_000
    }

    /// The other end is gone: what it has published still counts.
    fn hears_hang_up(&mut self, end: usize) -> u64 {
        self.with(end, |connection, calls, io| {
            while connection.receive_all(io) > 0 {
                calls.act(connection, io);
            }
            connection.hung_up();
            calls.act(connection, io)
        });
        self.ends[end].state = State::Over;
        LOOK_NS
    }

    fn set_timer(&mut self, end: usize) {
        let us = &mut self.ends[end];
        if us.state == State::Over && us.connection.session().closed().is_some() {
            return;
        }
        let at = us.connection.timeout(self.now_ns);
        if at != us.timer_ns {
            us.timer_ns = at;
            if let Some(at) = at {
                us.deeds.timers += 1;
                let after = at.saturating_sub(self.now_ns);
                self.put(Event::Timer(end), after);
            }
        }
    }

    fn timer_ends(&mut self, end: usize) -> u64 {
        let now = self.now_ns;
        if self.ends[end].timer_ns.take_if(|at| *at <= now).is_some() {
            self.ends[end].due += 1;
            self.with(end, |connection, _, io| connection.handle_timeout(now, io));
        }
        0
    }

    fn looks(&mut self, end: usize, jitter: u64) -> u64 {
        let now = self.now_ns;
        let (has_come, rang) = self.with(end, |connection, _, io| connection.receive(io));
        let us = &mut self.ends[end];
        if has_come || (us.lacks_room && us.connection.has_room()) {
            us.connection.unpark();
            if let Some(began) = us.wait_began_ns.take() {
                us.deeds.waits += 1;
                us.deeds.looked(std::mem::take(&mut us.look_ns), us.connection.wait().budget_ns());
                us.connection.wait_mut().wait_ended(began, now, || now);
            }
            return rang + self.takes_up(end);
        }
        if us.wait_began_ns.is_none() {
            us.wait_began_ns = Some(now);
            us.connection.wait_mut().wait_begins(now);
        }
        let waited = now - us.wait_began_ns.unwrap_or(now);
        let around = Around { contention: us.contention, is_tight: self.scene.is_tight };
        let budget = us.connection.wait().budget_ns();
        match us.connection.decide(waited, now, &around) {
            Wait::Park => {
                let time = ThreadTime { thread: end as u64, taken_ns: us.taken_ns };
                us.connection.wait_mut().parks(|| time);
                us.deeds.looked(std::mem::take(&mut us.look_ns), budget);
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
                us.connection.unpark();
                self.looks_on(end, offers)
            }
        }
    }

    /// Arms the doorbell, and sleeps or looks on.
    fn arms(&mut self, end: usize, probes: bool, offers: bool) -> u64 {
        let us = &mut self.ends[end];
        us.deeds.armed += 1;
        let lacks_room = us.lacks_room;
        let mut is_armed = us.connection.arm(lacks_room);
        if lacks_room && is_armed && us.connection.has_room() {
            us.connection.unpark();
            is_armed = false;
        }
        if probes {
            us.state = State::Looks;
            return self.looks_on(end, offers);
        }
        if is_armed || !self.scene.minds_arming {
            us.state = State::Asleep;
            us.deeds.parks += 1;
        } else {
            us.state = State::Looks;
            self.put(Event::Step(end), LOOK_NS);
        }
        LOOK_NS
    }

    fn looks_on(&mut self, end: usize, offers: bool) -> u64 {
        let (now, away) = (self.now_ns, self.scene.computes_ns);
        let us = &mut self.ends[end];
        us.state = State::Looks;
        us.look_ns += LOOK_NS;
        us.connection.wait_mut().saw_peer(self.scene.is_shared);
        let mut after = LOOK_NS;
        if offers && away > 0 {
            us.contention.offered(now, away, us.connection.wait().taken_ns());
            after += away;
        }
        self.put(Event::Step(end), after);
        LOOK_NS
    }

    /// An end has something: how long it works for it.
    fn takes_up(&mut self, end: usize) -> u64 {
        self.ends[end].state = State::Works;
        if end == CLIENT {
            self.put(Event::Step(end), LOOK_NS);
            return LOOK_NS;
        }
        let mut work = self.scene.work_ns;
        let answered = self.ends[SERVER].calls.ended();
        if self.scene.stop_ns > 0 && answered == self.scene.calls / 2 && !self.has_stopped {
            self.has_stopped = true;
            work += self.scene.stop_ns;
            // It is stopped, and takes no processor.
            self.put(Event::Step(end), work);
            return LOOK_NS;
        }
        self.put(Event::Step(end), work);
        work
    }
}
