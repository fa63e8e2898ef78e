//! Who gets how many calls, and that no endpoint starves.

use std::collections::BTreeMap;
use std::rc::Rc;

use tollfree_balancer::{Locality, Policy, Target};

use super::world::{Reach, Server, World};

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(address, count)| ((*address).to_owned(), *count)).collect()
}

#[test]
fn round_robin_takes_each_in_turn_and_spreads_what_others_can_not_take() {
    let mut world = World::with(4, Policy::RoundRobin, None);
    assert_eq!(["0", "1", "2", "3", "0"].map(|_| world.choose()), ["0", "1", "2", "3", "0"]);
    world.set("1", Reach::Absent);
    world.set("2", Reach::Connecting);
    assert_eq!(
        world.count(100),
        counts(&[("0", 50), ("3", 50)]),
        "the neighbor of two that are out has no more"
    );
}

#[test]
fn weights_divide_the_calls_of_round_robin() {
    let mut world = World::new(Policy::RoundRobin, None, 1);
    let target = |address: &str, weight| Target { weight, ..Target::new(address) };
    world.replace(vec![target("a", 5), target("b", 3), target("c", 2), target("d", 0)]);
    assert_eq!(world.count(1000), counts(&[("a", 500), ("b", 300), ("c", 200)]));
    world.set("a", Reach::Absent);
    world.count(1);
    assert_eq!(world.count(1000), counts(&[("b", 600), ("c", 400)]), "shares hold among those that are left");
}

#[test]
fn localities_divide_the_calls_before_their_endpoints_do() {
    let mut world = World::new(Policy::RoundRobin, None, 1);
    let target = |address: &str, name: &str, weight| {
        let locality = Some(Locality { name: name.into(), weight });
        Target { locality, ..Target::new(address) }
    };
    world.replace(vec![target("a", "near", 3), target("b", "near", 3), target("c", "far", 1)]);
    assert_eq!(world.count(800), counts(&[("a", 300), ("b", 300), ("c", 200)]));
}

/// Calls that take their time: each endpoint has about as many under way as its weight says, and none is idle while another has two more.
#[test]
fn least_outstanding_keeps_loads_beside_weights() {
    for (seed, weights) in [(1, [1, 1, 1]), (2, [4, 2, 1]), (3, [1, 10, 10])] {
        let mut world = World::new(Policy::LeastOutstanding, None, seed);
        let targets = weights.iter().enumerate();
        world.replace(
            targets.map(|(at, weight)| Target { weight: *weight, ..Target::new(at.to_string()) }).collect(),
        );
        let mut under_way: Vec<Rc<Server>> = Vec::new();
        for _ in 0..20_000 {
            if under_way.len() < 30 {
                let server = world.pick().unwrap();
                server.state.borrow_mut().calls += 1;
                under_way.push(server);
            } else {
                let ending = world.rng.below(under_way.len() as u64) as usize;
                under_way.swap_remove(ending).state.borrow_mut().calls -= 1;
            }
        }
        let chosen = [0, 1, 2].map(|at| world.server(&at.to_string()).state.borrow().chosen);
        let sum: u64 = chosen.iter().sum();
        for (at, weight) in weights.iter().enumerate() {
            let expected = sum * u64::from(*weight) / u64::from(weights.iter().sum::<u32>());
            assert!(chosen[at].abs_diff(expected) < sum / 20, "{weights:?}: {chosen:?}");
        }
    }
}

#[test]
fn idle_endpoints_have_their_turns_whatever_their_weights() {
    let mut world = World::new(Policy::LeastOutstanding, None, 1);
    let target = |address: &str, weight| Target { weight, ..Target::new(address) };
    world.replace(vec![target("a", 100), target("b", 1), target("c", 1)]);
    assert_eq!(world.count(300), counts(&[("a", 100), ("b", 100), ("c", 100)]));
}

/// Endpoints come and go at random: one that can be used is chosen within two rounds, by either policy.
#[test]
fn nobody_that_can_be_used_starves_while_others_flap() {
    for policy in [Policy::RoundRobin, Policy::LeastOutstanding] {
        for seed in 0..50 {
            let mut world = World::new(policy, None, seed);
            world.replace((0..6).map(|at| Target::new(at.to_string())).collect());
            let mut unchosen = 0;
            for _ in 0..2000 {
                // The first is always there; the others flap.
                let address = (1 + world.rng.below(5)).to_string();
                let reach = [Reach::Ready, Reach::Absent, Reach::Connecting][world.rng.below(3) as usize];
                world.set(&address, reach);
                let chosen = world.choose();
                unchosen = if chosen == "0" { 0 } else { unchosen + 1 };
                assert!(unchosen <= 12, "seed {seed}");
                assert!(world.server(&chosen).state.borrow().reach == Reach::Ready, "seed {seed}");
            }
        }
    }
}

#[test]
fn one_to_avoid_is_chosen_if_there_is_no_other() {
    for policy in [Policy::RoundRobin, Policy::LeastOutstanding] {
        let mut world = World::with(3, policy, None);
        for _ in 0..30 {
            assert_ne!(world.pick_but("1").unwrap().address, "1");
        }
        world.set("0", Reach::Absent);
        world.set("2", Reach::Connecting);
        assert_eq!(world.pick_but("1").unwrap().address, "1");
    }
}
