//! How long to look for the next thing, by what is waited for.
//!
//! A client that found its server asleep, and rang, waits for a wake-up and not for an answer: that is worth looking for only as long as
//! a wake-up costs. One whose server was awake waits for what that is doing, and looks as those do for whom latency is all that
//! counts: the server would be kept waiting for the next call as well.
//!
//! A server waits for what its client does next, of which it knows only how long that took lately. It looks for as long as a
//! wake-up costs, and as long as it works for a call: a client takes about as long to read an answer and to write the next
//! request, and one that comes later than that is not in a hurry.

use tollfree_session::Role;

use crate::config::WaitPolicy;
use crate::price::Price;
use crate::waiting::SpinBudget;

/// A server looks for at most so many nanoseconds because it works for that long.
const WORK_NS_MAX: u64 = 150_000;
/// Weight of the latest work: 1 / 8.
const WEIGHT_SHIFT: u32 = 3;

/// What one side of a session knows of its waits.
#[derive(Debug)]
pub(crate) struct Patience {
    policy: WaitPolicy,
    role: Role,
    /// Waits for a peer that was awake when they began, or of which that is not known.
    awake: SpinBudget,
    /// A thrifty client's waits for a server that it had to ring.
    asleep: SpinBudget,
    rang: bool,
    /// When the last wait ended, if that is known; else 0.
    ended_ns: u64,
    work_ns: u64,
    /// How long the peer has asked this side to look, in nanoseconds, and whether it is to look and not to sleep.
    asked: Option<(u64, bool)>,
}

impl Patience {
    pub(crate) fn new(policy: WaitPolicy, role: Role, price: &Price) -> Patience {
        let awake = match (policy, role) {
            (WaitPolicy::Adaptive, Role::Client) => WaitPolicy::LowLatency,
            _ => policy,
        };
        Patience {
            policy,
            role,
            awake: SpinBudget::new(awake, price.ns()),
            asleep: SpinBudget::new(policy, price.ns()),
            rang: false,
            ended_ns: 0,
            work_ns: 0,
            asked: None,
        }
    }

    /// Whether it counts what looking costs oneself and others.
    pub(crate) fn is_thrifty(&self) -> bool {
        self.policy == WaitPolicy::Adaptive
    }

    /// How long to look for what is waited for now, in nanoseconds.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        match self.asked {
            None => self.budget().ns(),
            Some((ns, _)) => ns,
        }
    }

    /// Whether that is only a probe.
    pub(crate) fn is_probe(&self) -> bool {
        self.asked.is_none() && self.budget().is_probe()
    }

    /// Whether this side is to look because it was asked to, and not because it is worth it.
    #[inline]
    pub(crate) fn looks_as_asked(&self) -> bool {
        self.asked.is_some_and(|(_, looks)| looks)
    }

    /// The peer asks for another time to look. Policies that are absolute stay.
    pub(crate) fn ask(&mut self, asked: Option<(u64, bool)>) {
        if matches!(self.policy, WaitPolicy::Adaptive | WaitPolicy::LowLatency) {
            self.asked = asked;
        }
    }

    /// As it has learnt.
    #[inline]
    fn budget(&self) -> &SpinBudget {
        if self.waits_for_sleeper() { &self.asleep } else { &self.awake }
    }

    fn waits_for_sleeper(&self) -> bool {
        self.rang && self.role == Role::Client && self.is_thrifty()
    }

    /// Something was said to the peer, which had to be rung or not.
    #[inline]
    pub(crate) fn said(&mut self, rang: bool) {
        self.rang = rang;
    }

    /// A wait begins.
    pub(crate) fn begins(&mut self, now_ns: u64) {
        if self.ended_ns != 0 {
            let work = now_ns.saturating_sub(std::mem::take(&mut self.ended_ns)).min(WORK_NS_MAX);
            self.work_ns = self.work_ns - (self.work_ns >> WEIGHT_SHIFT) + (work >> WEIGHT_SHIFT);
        }
    }

    /// A wait came to its end.
    pub(crate) fn learn(&mut self, waited_ns: u64, until_ns: u64) {
        self.ended_ns = until_ns;
        if self.waits_for_sleeper() { self.asleep.learn(waited_ns) } else { self.awake.learn(waited_ns) }
    }

    /// What a wake-up costs is known better.
    pub(crate) fn priced(&mut self, price: &Price) {
        self.asleep.set_worth(price.ns());
        self.awake.set_worth(price.ns() + self.work_ns.min(WORK_NS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_looks_long_only_for_a_server_that_is_awake() {
        let price = Price::new();
        let mut client = Patience::new(WaitPolicy::Adaptive, Role::Client, &price);
        // As long as a large message takes.
        for _ in 0..100 {
            client.said(false);
            client.learn(60_000, 1);
        }
        assert!(client.budget().ns() > 60_000);
        for _ in 0..100 {
            client.said(true);
            assert!(client.budget().ns() <= price.ns());
            client.learn(60_000, 1);
        }
        assert!(client.budget().is_probe(), "a wake-up takes longer than it costs here");
        client.said(false);
        assert!(client.budget().ns() > 60_000 && !client.budget().is_probe());
    }

    #[test]
    fn a_server_looks_no_longer_than_it_has_worked_and_being_woken_costs() {
        let price = Price::new();
        let mut server = Patience::new(WaitPolicy::Adaptive, Role::Server, &price);
        let mut waits = |work_ns: u64, gap_ns: u64| {
            for nth in 0..200_u64 {
                let began = 1 + nth * (work_ns + gap_ns);
                server.learn(gap_ns, began);
                server.begins(began + work_ns);
                server.priced(&price);
            }
            (server.budget().ns(), server.budget().is_probe())
        };
        let (ns, is_probe) = waits(5_000, 45_000);
        assert!(is_probe && ns <= price.ns() + 5_000, "20,000 small calls a second: {ns}");
        let (ns, is_probe) = waits(30_000, 35_000);
        assert!(!is_probe && ns <= price.ns() + 30_000, "large messages in a closed loop: {ns}");
        let (ns, is_probe) = waits(10_000_000, 200_000);
        assert!(is_probe && ns <= price.ns() + WORK_NS_MAX, "a handler that computes for long: {ns}");
        assert!(!waits(2_000, 2_000).1, "small calls in a closed loop");
    }

    #[test]
    fn a_clock_that_counts_in_ticks_makes_nobody_look_longer_or_stop_looking_for_good() {
        const TICK_NS: u64 = 4_000_000;
        let price = Price::new();
        for role in [Role::Client, Role::Server] {
            let mut side = Patience::new(WaitPolicy::Adaptive, role, &price);
            let most = if role == Role::Client { 250_000 } else { price.ns() + WORK_NS_MAX };
            let mut run = |wait_ns: u64, work_ns: u64, count: u64| {
                let ticks = |ns: u64| ns / TICK_NS * TICK_NS;
                let (mut now, mut looked_count) = (TICK_NS, 0);
                for _ in 0..count {
                    // Most waits seem to take no time, and one in a while a whole tick.
                    side.begins(ticks(now));
                    side.said(false);
                    assert!(side.budget().ns() <= most, "{}", side.budget().ns());
                    looked_count += u64::from(side.budget().ns() > 0);
                    let began = ticks(now);
                    now += wait_ns;
                    side.learn(ticks(now) - began, ticks(now));
                    side.priced(&price);
                    now += work_ns;
                }
                looked_count
            };
            let looked = run(3_000, 4_000, 20_000);
            assert!(looked > 19_000, "a closed loop of small calls is looked for: {looked} of 20000");
            // Seldom calls, then a closed loop again.
            let looked = run(50_000_000, 4_000, 1_000);
            assert!(looked < 300, "{looked} of 1000 waits of 50 ms were looked through");
            run(3_000, 4_000, 200);
            let looked = run(3_000, 4_000, 20_000);
            assert!(looked > 19_000, "{looked} of 20000");
        }
    }

    #[test]
    fn what_is_asked_for_holds_until_it_is_taken_back_and_for_no_policy_that_is_absolute() {
        let price = Price::new();
        let mut server = Patience::new(WaitPolicy::Adaptive, Role::Server, &price);
        let learnt = server.ns();
        server.ask(Some((7, true)));
        for _ in 0..100 {
            server.learn(50_000_000, 1);
        }
        assert_eq!((server.ns(), server.is_probe(), server.looks_as_asked()), (7, false, true));
        server.ask(Some((0, false)));
        assert_eq!((server.ns(), server.looks_as_asked()), (0, false));
        server.ask(None);
        assert!(server.is_probe() && server.ns() <= learnt, "it has learnt meanwhile");
        for (policy, ns) in [(WaitPolicy::Park, 0), (WaitPolicy::Poll, u64::MAX)] {
            let mut server = Patience::new(policy, Role::Server, &price);
            server.ask(Some((7, true)));
            assert_eq!((server.ns(), server.looks_as_asked()), (ns, false), "{policy:?}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_upsets_nobody() {
        let price = Price::new();
        for role in [Role::Client, Role::Server] {
            let mut side = Patience::new(WaitPolicy::Adaptive, role, &price);
            for now in [5, 5, 5, 3, u64::MAX, 1, 0, u64::MAX] {
                side.begins(now);
                side.learn(u64::MAX, now);
                side.learn(0, now);
                side.priced(&price);
                assert!(side.budget().ns() <= 250_000);
            }
        }
    }
}
