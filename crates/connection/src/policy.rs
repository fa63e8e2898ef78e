//! The one policy of waiting: for answers, for the next message of a stream, for the next call.
//!
//! A client that found its server asleep, and rang, waits for a wake-up and not for an answer: that is worth looking for only as long as
//! a wake-up costs. A client whose server was awake waits for what that is doing, and looks as where latency is all that counts: the server
//! would be kept waiting for the next call as well.
//!
//! A server waits for what its client does next, of which it knows only how long that took lately. It looks for as long as a
//! wake-up costs, and as long as it works for a call: a client takes about as long to read an answer and to write the next
//! request, and a client that comes later than that is not in a hurry.
//!
//! A probe counts as asleep: the doorbell is armed before, so that nobody need watch who probes. Who spins has put the doorbell away.

use tollfree_session::Role;

use crate::constants::{
    DEDICATED_GLANCE_COUNT, FURTHER_GLANCE_COUNT, GLANCE_COUNT, GLANCE_NS, LATE_TURNS, LONG_GLANCE_COUNT,
    OFFER_AFTER_NS, TAKEN_NS, TURN_NS, UNLEARNT_COUNT_MAX, WEIGHT_SHIFT, WORK_NS_MAX,
};
use crate::contention::Surroundings;
use crate::spin_budget::SpinBudget;
use crate::wake_cost::{ThreadTime, WakeCost};

/// How a task waits for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitPolicy {
    /// A good neighbor: spin where that costs no more than being woken, as learnt, and where nobody else wants the
    /// processor; else sleep. Under a quota of a core or less never spin.
    #[default]
    Adaptive,
    /// For who has cores to spare: spin for as long as recent waits make worth while, up to 250 µs each, whatever that costs.
    LowLatency,
    /// Never park: lowest latency, one core always busy while calls wait.
    Poll,
    /// Never spin: for cores that must not.
    Park,
}

/// How long the peer asks this side to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// In nanoseconds.
    pub look_ns: u64,
    /// It is to look and not to sleep, even where others want the processor.
    pub insists: bool,
}

/// What a side that has found nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look again, after whatever else its driver has to do.
    Spin {
        /// The processor is to be offered to others before.
        offers: bool,
    },
    /// The same, with the doorbell armed.
    Probe {
        /// The processor is to be offered to others before.
        offers: bool,
    },
    /// Arm the doorbell, look once more, and sleep until it rings. No timer is needed.
    Park,
}

/// What one side of a session knows of its waits, and what follows from it. Times are nanoseconds of a monotonic clock of the driver's.
#[derive(Debug)]
pub struct WaitPlanner {
    policy: WaitPolicy,
    role: Role,
    cost: WakeCost,
    /// Waits for a peer that was awake when they began, or of which that is not known.
    awake: SpinBudget,
    /// A thrifty client's waits for a server that it had to ring.
    asleep: SpinBudget,
    has_rung: bool,
    /// When the last wait ended, if that is known; else 0.
    ended_ns: u64,
    work_ns: u64,
    hint: Option<Hint>,
    unlearnt_count: u32,
    /// The peer's waiting thread ran on this side's processor when that was last looked at.
    is_on_peers_processor: bool,
    /// Turns in a row that came late.
    late_turns: u8,
}

impl WaitPlanner {
    /// Of a session that has not waited.
    pub fn new(policy: WaitPolicy, role: Role) -> WaitPlanner {
        let cost = WakeCost::new();
        let awake = match (policy, role) {
            (WaitPolicy::Adaptive, Role::Client) => WaitPolicy::LowLatency,
            _ => policy,
        };
        WaitPlanner {
            policy,
            role,
            awake: SpinBudget::new(awake, cost.ns()),
            asleep: SpinBudget::new(policy, cost.ns()),
            cost,
            has_rung: false,
            ended_ns: 0,
            work_ns: 0,
            hint: None,
            unlearnt_count: 0,
            is_on_peers_processor: false,
            late_turns: 0,
        }
    }

    /// Whether it counts what looking costs oneself and others.
    #[inline]
    pub fn is_thrifty(&self) -> bool {
        self.policy == WaitPolicy::Adaptive
    }

    /// How long to look for what is waited for now, in nanoseconds.
    #[inline]
    pub fn budget_ns(&self) -> u64 {
        match self.hint {
            None => self.learnt().ns(),
            Some(hint) => hint.look_ns,
        }
    }

    /// What a side does that has looked for `looked_ns` and found nothing.
    #[inline]
    pub fn decide(&self, looked_ns: u64, now_ns: u64, surroundings: &impl Surroundings) -> Wait {
        if looked_ns >= self.budget_ns() || !self.may_spin(now_ns, surroundings) {
            return Wait::Park;
        }
        let offers = looked_ns >= OFFER_AFTER_NS;
        match self.hint.is_none() && self.learnt().is_probe() {
            true => Wait::Probe { offers },
            false => Wait::Spin { offers },
        }
    }

    /// Whether nobody else wants this processor, or what a quota leaves of it.
    #[inline]
    pub fn may_spin(&self, now_ns: u64, surroundings: &impl Surroundings) -> bool {
        let insists = self.insists();
        let is_crowded = !insists && surroundings.want_this_processor(now_ns) && self.budget_ns() != u64::MAX;
        let is_unwelcome = self.is_thrifty()
            && ((!insists && surroundings.want_any_processor()) || surroundings.is_quota_tight(now_ns));
        !is_crowded && !is_unwelcome
    }

    /// Whether a few glances are worth it, before a wait begins.
    #[inline]
    pub fn is_worth_a_look(&self, surroundings: &impl Surroundings) -> bool {
        let gives_way = self.is_thrifty() && !self.insists() && surroundings.want_any_processor();
        self.budget_ns() > 0 && !gives_way
    }

    /// How many glances a task takes whose thread may have other tasks too. Where it turns out that there are some, they are not kept
    /// waiting for longer than they would notice.
    #[inline]
    pub fn glances(&self) -> usize {
        if self.is_alone() { LONG_GLANCE_COUNT } else { GLANCE_COUNT }
    }

    /// The same for a thread that has nothing else to do. On the peer's own processor it would only keep the peer from answering.
    #[inline]
    pub fn dedicated_glances(&self, is_on_peers_processor: impl FnOnce() -> bool) -> usize {
        let worth = self.worth_in_glances(DEDICATED_GLANCE_COUNT);
        if worth <= GLANCE_COUNT || is_on_peers_processor() { GLANCE_COUNT } else { worth }
    }

    /// How many more a task takes that has found nothing, where another thread does meanwhile what this one leaves lying.
    pub fn further_glances(&self) -> usize {
        self.worth_in_glances(FURTHER_GLANCE_COUNT)
    }

    fn worth_in_glances(&self, most: usize) -> usize {
        (self.budget_ns() / GLANCE_NS).min(most as u64) as usize
    }

    /// Whether nobody else seems to want this thread.
    #[inline]
    pub fn is_alone(&self) -> bool {
        !self.is_on_peers_processor && self.late_turns < LATE_TURNS
    }

    /// A processor that was offered and comes back after more nanoseconds than this is wanted by others.
    #[inline]
    pub fn taken_ns(&self) -> u64 {
        if self.is_thrifty() { self.cost.ns() } else { TAKEN_NS }
    }

    /// Whether this side is to look because it was asked to, and not because it is worth it.
    #[inline]
    fn insists(&self) -> bool {
        self.hint.is_some_and(|hint| hint.insists)
    }

    #[inline]
    fn learnt(&self) -> &SpinBudget {
        if self.waits_for_sleeper() { &self.asleep } else { &self.awake }
    }

    #[inline]
    fn waits_for_sleeper(&self) -> bool {
        self.has_rung && self.role == Role::Client && self.is_thrifty()
    }

    /// The peer asks for another time to look, or takes that back. Policies that are absolute stay.
    pub fn set_hint(&mut self, hint: Option<Hint>) {
        if matches!(self.policy, WaitPolicy::Adaptive | WaitPolicy::LowLatency) {
            self.hint = hint;
        }
    }

    /// Something was said to the peer, which slept and had to be rung, or did not.
    #[inline]
    pub fn spoke(&mut self, to_sleeper: bool) {
        self.has_rung = to_sleeper;
    }

    /// A task that gave way to others has its turn again.
    #[inline]
    pub fn turn_came(&mut self, after_ns: u64) {
        self.late_turns = if after_ns > TURN_NS { self.late_turns.saturating_add(1) } else { 0 };
    }

    /// It was looked at where the peer's waiting thread runs.
    #[inline]
    pub fn saw_peer(&mut self, is_on_this_processor: bool) {
        self.is_on_peers_processor = is_on_this_processor;
    }

    /// A wait begins.
    pub fn wait_begins(&mut self, now_ns: u64) {
        if self.ended_ns != 0 {
            let work = now_ns.saturating_sub(std::mem::take(&mut self.ended_ns)).min(WORK_NS_MAX);
            self.work_ns = self.work_ns - (self.work_ns >> WEIGHT_SHIFT) + (work >> WEIGHT_SHIFT);
        }
    }

    /// A wait that began at `began_ns` came to its end, by looking or asleep. `looked_at_ns`: when was last looked in vain, if that was within
    /// a microsecond; 0 where that is not known, and the clock is read now and then.
    #[inline]
    pub fn wait_ended(&mut self, began_ns: u64, looked_at_ns: u64, now_ns: impl FnOnce() -> u64) {
        let until_ns = match looked_at_ns {
            0 if self.unlearnt_count < UNLEARNT_COUNT_MAX => {
                self.unlearnt_count += 1;
                return;
            }
            0 => {
                self.unlearnt_count = 0;
                now_ns()
            }
            looked_at_ns => looked_at_ns,
        };
        self.learn(until_ns.saturating_sub(began_ns), until_ns);
    }

    fn learn(&mut self, waited_ns: u64, until_ns: u64) {
        self.ended_ns = until_ns;
        if self.waits_for_sleeper() { self.asleep.learn(waited_ns) } else { self.awake.learn(waited_ns) }
    }

    /// This thread is about to sleep until the doorbell rings; the doorbell is not armed yet.
    pub fn parks(&mut self, time: impl FnOnce() -> ThreadTime) {
        self.cost.parks(time);
    }

    /// The doorbell rang.
    pub fn woken(&mut self, time: impl FnOnce() -> ThreadTime) {
        self.cost.woken(time);
        self.asleep.set_worth(self.cost.ns());
        self.awake.set_worth(self.cost.ns() + self.work_ns.min(WORK_NS_MAX));
    }

    /// The peer is about to be rung: when that began, if it is measured.
    pub fn ring_begins(&mut self, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        self.cost.ring_begins(now_ns)
    }

    /// The peer was rung, which was measured.
    pub fn ring_ended(&mut self, began_ns: u64, now_ns: u64) {
        self.cost.ring_ended(began_ns, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::Alone;

    fn woken(planner: &mut WaitPlanner) {
        planner.woken(|| ThreadTime { thread: 0, taken_ns: 0 });
    }

    fn cost_ns() -> u64 {
        WakeCost::new().ns()
    }

    #[test]
    fn a_client_looks_long_only_for_a_server_that_is_awake() {
        let mut client = WaitPlanner::new(WaitPolicy::Adaptive, Role::Client);
        // As long as a large message takes.
        for _ in 0..100 {
            client.spoke(false);
            client.learn(60_000, 1);
        }
        assert!(client.budget_ns() > 60_000);
        for _ in 0..100 {
            client.spoke(true);
            assert!(client.budget_ns() <= cost_ns());
            client.learn(60_000, 1);
        }
        assert!(client.learnt().is_probe(), "a wake-up takes longer than it costs here");
        client.spoke(false);
        assert!(client.budget_ns() > 60_000 && !client.learnt().is_probe());
    }

    #[test]
    fn a_server_looks_no_longer_than_it_has_worked_and_being_woken_costs() {
        let mut server = WaitPlanner::new(WaitPolicy::Adaptive, Role::Server);
        let mut waits = |work_ns: u64, gap_ns: u64| {
            for nth in 0..200_u64 {
                let began = 1 + nth * (work_ns + gap_ns);
                server.learn(gap_ns, began);
                server.wait_begins(began + work_ns);
                woken(&mut server);
            }
            (server.budget_ns(), server.learnt().is_probe())
        };
        let (ns, is_probe) = waits(5_000, 45_000);
        assert!(is_probe && ns <= cost_ns() + 5_000, "20,000 small calls a second: {ns}");
        let (ns, is_probe) = waits(30_000, 35_000);
        assert!(!is_probe && ns <= cost_ns() + 30_000, "large messages in a closed loop: {ns}");
        let (ns, is_probe) = waits(10_000_000, 200_000);
        assert!(is_probe && ns <= cost_ns() + WORK_NS_MAX, "a handler that computes for long: {ns}");
        assert!(!waits(2_000, 2_000).1, "small calls in a closed loop");
    }

    #[test]
    fn a_clock_that_counts_in_ticks_makes_nobody_look_longer_or_stop_looking_for_good() {
        const TICK_NS: u64 = 4_000_000;
        for role in [Role::Client, Role::Server] {
            let mut planner = WaitPlanner::new(WaitPolicy::Adaptive, role);
            let most = if role == Role::Client { 250_000 } else { cost_ns() + WORK_NS_MAX };
            let mut run = |wait_ns: u64, work_ns: u64, count: u64| {
                let ticks = |ns: u64| ns / TICK_NS * TICK_NS;
                let (mut now, mut looked_count) = (TICK_NS, 0);
                for _ in 0..count {
                    // Most waits seem to take no time, and one in a while a whole tick.
                    planner.wait_begins(ticks(now));
                    planner.spoke(false);
                    assert!(planner.budget_ns() <= most, "{}", planner.budget_ns());
                    looked_count += u64::from(planner.budget_ns() > 0);
                    let began = ticks(now);
                    now += wait_ns;
                    planner.learn(ticks(now) - began, ticks(now));
                    woken(&mut planner);
                    now += work_ns;
                }
                looked_count
            };
            let looked = run(3_000, 4_000, 20_000);
            assert!(looked > 19_000, "a closed loop of small calls is looked for: {looked} of 20000");
            // RateLimitedLog calls, then a closed loop again.
            let looked = run(50_000_000, 4_000, 1_000);
            assert!(looked < 300, "{looked} of 1000 waits of 50 ms were looked through");
            run(3_000, 4_000, 200);
            let looked = run(3_000, 4_000, 20_000);
            assert!(looked > 19_000, "{looked} of 20000");
        }
    }

    #[test]
    fn a_hint_holds_until_it_is_taken_back_and_for_no_policy_that_is_absolute() {
        let hint = |look_ns, insists| Some(Hint { look_ns, insists });
        let mut server = WaitPlanner::new(WaitPolicy::Adaptive, Role::Server);
        let learnt = server.budget_ns();
        server.set_hint(hint(7, true));
        for _ in 0..100 {
            server.learn(50_000_000, 1);
        }
        assert_eq!(server.decide(6, 1, &Alone), Wait::Spin { offers: false });
        assert_eq!(server.decide(7, 1, &Alone), Wait::Park);
        assert!(server.insists());
        server.set_hint(hint(0, false));
        assert_eq!(server.decide(0, 1, &Alone), Wait::Park);
        assert!(!server.insists());
        server.set_hint(None);
        assert!(server.learnt().is_probe() && server.budget_ns() <= learnt, "it has learnt meanwhile");
        for (policy, ns) in [(WaitPolicy::Park, 0), (WaitPolicy::Poll, u64::MAX)] {
            let mut server = WaitPlanner::new(policy, Role::Server);
            server.set_hint(hint(7, true));
            assert_eq!((server.budget_ns(), server.insists()), (ns, false), "{policy:?}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_upsets_nobody() {
        for role in [Role::Client, Role::Server] {
            let mut planner = WaitPlanner::new(WaitPolicy::Adaptive, role);
            for now in [5, 5, 5, 3, u64::MAX, 1, 0, u64::MAX] {
                planner.wait_begins(now);
                planner.learn(u64::MAX, now);
                planner.learn(0, now);
                woken(&mut planner);
                assert!(planner.budget_ns() <= 250_000);
            }
        }
    }

    #[test]
    fn of_waits_that_end_within_one_look_one_in_a_few_is_learnt_from() {
        let mut planner = WaitPlanner::new(WaitPolicy::Adaptive, Role::Client);
        let mut readings = 0;
        for _ in 0..8 * (UNLEARNT_COUNT_MAX + 1) {
            planner.wait_ended(1, 0, || {
                readings += 1;
                2
            });
        }
        assert_eq!(readings, 8);
    }

    /// Others want what the fields say.
    struct Crowd {
        here: bool,
        around: bool,
        tight: bool,
    }

    impl Surroundings for Crowd {
        fn want_this_processor(&self, _: u64) -> bool {
            self.here
        }

        fn want_any_processor(&self) -> bool {
            self.around
        }

        fn is_quota_tight(&self, _: u64) -> bool {
            self.tight
        }
    }

    #[test]
    fn nobody_spins_on_what_others_want_but_by_a_policy_that_says_so() {
        let crowds = [(true, false, false), (false, true, false), (false, false, true)];
        let spins = |policy, hint: Option<Hint>| {
            crowds.map(|(here, around, tight)| {
                let mut planner = WaitPlanner::new(policy, Role::Client);
                planner.set_hint(hint);
                planner.decide(0, 1, &Crowd { here, around, tight }) != Wait::Park
            })
        };
        assert_eq!(spins(WaitPolicy::Adaptive, None), [false, false, false]);
        assert_eq!(spins(WaitPolicy::LowLatency, None), [false, true, true]);
        assert_eq!(spins(WaitPolicy::Poll, None), [true, true, true]);
        assert_eq!(spins(WaitPolicy::Park, None), [false, false, false]);
        let asked = Some(Hint { look_ns: 50_000, insists: true });
        assert_eq!(spins(WaitPolicy::Adaptive, asked), [true, true, false], "a quota is heeded before");
    }
}
