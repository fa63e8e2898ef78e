//! Lists that replace each other, also while calls are under way.

use std::convert::Infallible;
use std::rc::Rc;

use tollfree_balancer::{
    ConsecutiveFailureEjection, FailurePercentageEjection, List, OutlierDetection, Policy, Target,
};

use super::world::{Failed, Reach, SECOND, Server, World};

fn targets(addresses: &[&str]) -> Vec<Target> {
    addresses.iter().map(|address| Target::new(*address)).collect()
}

fn detection() -> OutlierDetection {
    OutlierDetection {
        max_ejection_percent: 50,
        consecutive_failure_ejection: Some(ConsecutiveFailureEjection::default()),
        ..OutlierDetection::default()
    }
}

#[test]
fn what_is_in_both_lists_stays_the_same() {
    let mut world = World::new(Policy::RoundRobin, None, 1);
    assert_eq!(world.pick().unwrap_err(), Failed::Waits, "there is none yet");
    assert!(world.replace(targets(&["a", "b", "c"])).is_empty());
    let b = world.server("b");
    assert_eq!(world.choose(), "a");
    assert_eq!(world.replace(targets(&["d", "b"])), ["a", "c"]);
    assert!(Rc::ptr_eq(&b, &world.server("b")));
    // The turns go on: a list that changes often does not favor its first.
    assert_eq!([world.choose(), world.choose()], ["b", "d"]);
    assert_eq!(world.replace(Vec::new()), ["d", "b"]);
    assert_eq!(world.pick().unwrap_err(), Failed::Waits);
}

#[test]
fn turns_and_intervals_of_a_priority_go_on() {
    let target = |address: &str, priority| Target { priority, ..Target::new(address) };
    let percentage = FailurePercentageEjection {
        minimum_hosts: 1,
        request_volume: 1,
        ..FailurePercentageEjection::default()
    };
    let detection = OutlierDetection { failure_percentage_ejection: Some(percentage), ..detection() };
    let mut world = World::new(Policy::RoundRobin, Some(detection), 1);
    world.replace(vec![target("a", 0), target("c", 1), target("d", 1)]);
    assert_eq!(world.choose(), "a");
    world.set("a", Reach::Absent);
    assert_eq!(world.choose(), "c");
    world.server("c").end(false);
    world.now_ns += 5 * SECOND;
    world.replace(vec![target("c", 1), target("d", 1)]);
    assert_eq!(world.choose(), "d");
    // The sweep is due where it was, and the next one too, though this one comes late.
    world.now_ns += 8 * SECOND;
    world.sweep();
    assert_eq!(world.ejected(), ["c"]);
    world.now_ns += 7 * SECOND - 1;
    assert!(!world.list.is_due(world.now_ns));
    world.now_ns += 1;
    assert!(world.list.is_due(world.now_ns));
}

#[test]
fn an_address_that_stands_there_twice_is_two_endpoints() {
    let mut world = World::new(Policy::RoundRobin, None, 1);
    world.replace(targets(&["a", "a", "b"]));
    let numbers = |world: &World| -> Vec<usize> {
        world.list.members().iter().map(|member| member.endpoint().number).collect()
    };
    assert_eq!(numbers(&world), [0, 1, 2]);
    assert_eq!(world.replace(targets(&["b", "a"])), ["a"]);
    assert_eq!(numbers(&world), [2, 0]);
    world.replace(targets(&["a", "a"]));
    assert_eq!(numbers(&world), [0, 3]);
}

#[test]
fn a_list_of_which_one_can_not_be_made_changes_nothing() {
    let mut list = List::new(Policy::RoundRobin, None, 1);
    list.replace(targets(&["a"]), 0, |_, _| Ok::<_, Infallible>(1)).unwrap();
    let refused = list.replace(targets(&["b", "bad"]), 0, |target, _| match &*target.address {
        "bad" => Err("no such address"),
        _ => Ok(2),
    });
    assert_eq!(refused.unwrap_err(), "no such address");
    let addresses: Vec<_> = list.members().iter().map(|member| &*member.target().address).collect();
    assert_eq!(addresses, ["a"]);
}

#[test]
fn an_ejection_lasts_across_lists_and_ends_with_the_address() {
    let mut world = World::new(Policy::RoundRobin, Some(detection()), 1);
    world.replace(targets(&["a", "b"]));
    world.set_failing("a", 100);
    world.count(10);
    world.sweep();
    assert_eq!(world.ejected(), ["a"]);
    let late = world.server("a");
    world.replace(targets(&["b", "a", "c"]));
    assert_eq!(world.ejected(), ["a"]);
    assert_eq!(world.count(10).len(), 2);
    world.replace(targets(&["b", "c"]));
    // A call that was under way there ends; nobody minds.
    late.end(false);
    world.replace(targets(&["b", "a", "c"]));
    assert!(world.ejected().is_empty(), "it is a new one");
    world.now_ns += 100 * SECOND;
    world.sweep();
    assert!(world.events.iter().all(|(at_ns, _)| *at_ns == 1000 * SECOND), "nobody has to return");
}

/// Lists of random endpoints replace each other while calls are under way, which end at random. Each call is made at an endpoint of the list
/// of its time, and the list holds just what it was given.
#[test]
fn lists_are_replaced_while_calls_are_under_way() {
    for seed in 0..100 {
        for policy in [Policy::PickFirst, Policy::RoundRobin, Policy::LeastOutstanding] {
            let mut world = World::new(policy, Some(detection()), seed);
            let mut under_way: Vec<Rc<Server>> = Vec::new();
            for _ in 0..500 {
                world.now_ns += world.rng.below(SECOND);
                match world.rng.below(10) {
                    0 => {
                        let count = world.rng.below(6);
                        let target = |rng: &mut super::world::Rng| Target {
                            weight: rng.below(4) as u32,
                            priority: rng.below(2) as u32,
                            ..Target::new(rng.below(8).to_string())
                        };
                        let targets: Vec<_> = (0..count).map(|_| target(&mut world.rng)).collect();
                        world.replace(targets.clone());
                        let mut listed: Vec<_> =
                            world.list.members().iter().map(|member| member.target().clone()).collect();
                        let mut given = targets;
                        for list in [&mut listed, &mut given] {
                            list.sort_by_key(|target| {
                                (target.priority, target.address.clone(), target.weight)
                            });
                        }
                        assert_eq!(listed, given, "seed {seed}");
                    }
                    1..5 if !under_way.is_empty() => {
                        let ending = world.rng.below(under_way.len() as u64) as usize;
                        let server = under_way.swap_remove(ending);
                        server.state.borrow_mut().calls -= 1;
                        server.end(world.rng.below(3) == 0);
                    }
                    _ => match world.pick() {
                        Ok(server) => {
                            let is_listed = world
                                .list
                                .members()
                                .iter()
                                .any(|member| Rc::ptr_eq(member.endpoint(), &server));
                            assert!(is_listed, "seed {seed}");
                            server.state.borrow_mut().calls += 1;
                            under_way.push(server);
                        }
                        Err(Failed::Waits) => assert!(world.list.members().is_empty(), "seed {seed}"),
                        Err(Failed::Because(why)) => assert_eq!(why, None, "seed {seed}"),
                    },
                }
                let ejected = world.ejected().len();
                assert!(ejected == 0 || world.list.members().len() >= ejected, "seed {seed}");
            }
        }
    }
}
