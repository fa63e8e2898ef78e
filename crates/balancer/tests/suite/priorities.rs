//! The highest priority that can be used is; failing over and back.

use tollfree_balancer::{ConsecutiveFailureEjection, Health, OutlierDetection, Policy, Target};

use super::world::{Failed, Reach, SECOND, World};

fn target(address: &str, priority: u32) -> Target {
    Target { priority, ..Target::new(address) }
}

/// Two of priority 0, two of 1, one of 7; given in another order.
fn world(policy: Policy, detection: Option<OutlierDetection>) -> World {
    let mut world = World::new(policy, detection, 1);
    world.replace(vec![target("c", 1), target("e", 7), target("a", 0), target("d", 1), target("b", 0)]);
    world
}

#[test]
fn the_highest_priority_that_can_be_used_is() {
    for policy in [Policy::RoundRobin, Policy::LeastOutstanding] {
        let mut world = world(policy, None);
        assert_eq!(["", "", ""].map(|_| world.choose()), ["a", "b", "a"]);
        world.set("a", Reach::Absent);
        assert_eq!(["", ""].map(|_| world.choose()), ["b", "b"], "one is enough");
        world.set("b", Reach::Connecting);
        assert_eq!(world.choose(), "wait", "it may come");
        world.set("b", Reach::Absent);
        assert_eq!(["", "", ""].map(|_| world.choose()), ["c", "d", "c"]);
        world.set("c", Reach::Absent);
        world.set("d", Reach::Absent);
        assert_eq!(world.choose(), "e");
        world.set("b", Reach::Ready);
        assert_eq!(["", ""].map(|_| world.choose()), ["b", "b"], "back at once");
        world.set("b", Reach::Absent);
        world.set("e", Reach::Absent);
        assert_eq!(
            world.pick().unwrap_err(),
            Failed::Because(Some("a".to_owned())),
            "the first one's reason"
        );
        // A call that was at `b` stays with its priority, if there is nobody else.
        world.set("b", Reach::Ready);
        assert_eq!(world.pick_but("b").unwrap().address, "b");
    }
}

#[test]
fn pick_first_goes_through_the_list() {
    let mut world = world(Policy::PickFirst, None);
    assert_eq!(["", ""].map(|_| world.choose()), ["a", "a"]);
    world.set("a", Reach::Absent);
    assert_eq!(world.choose(), "b");
    world.set("b", Reach::Connecting);
    assert_eq!(world.choose(), "wait");
    assert_eq!(world.pick_but("b").unwrap().address, "c", "a call that was there does not wait for it");
    for gone in ["c", "d", "e"] {
        world.set(gone, Reach::Absent);
    }
    world.set("a", Reach::Connecting);
    assert_eq!(world.pick_but("a").unwrap_err(), Failed::Waits);
    world.set("a", Reach::Ready);
    assert_eq!(world.pick_but("a").unwrap().address, "a");
}

#[test]
fn what_its_source_calls_unhealthy_is_not_chosen() {
    for policy in [Policy::PickFirst, Policy::RoundRobin, Policy::LeastOutstanding] {
        let mut world = World::new(policy, None, 1);
        let unhealthy = |address, priority| Target { health: Health::Unhealthy, ..target(address, priority) };
        world.replace(vec![unhealthy("a", 0), target("b", 0), target("c", 1)]);
        let first: Vec<_> = world.list.first_priority().map(|server| server.address.clone()).collect();
        assert_eq!(first, ["b"]);
        assert_eq!(["", ""].map(|_| world.choose()), ["b", "b"]);
        world.replace(vec![unhealthy("a", 0), unhealthy("b", 0), target("c", 1)]);
        assert_eq!(world.choose(), "c");
        world.replace(vec![unhealthy("a", 0)]);
        assert_eq!(world.pick().unwrap_err(), Failed::Because(None));
    }
}

#[test]
fn a_priority_all_of_which_is_ejected_fails_over_until_it_returns() {
    let detection = OutlierDetection {
        max_ejection_percent: 100,
        consecutive_failure_ejection: Some(ConsecutiveFailureEjection {
            threshold: 3,
            ..ConsecutiveFailureEjection::default()
        }),
        ..OutlierDetection::default()
    };
    let mut world = world(Policy::RoundRobin, Some(detection));
    world.set_failing("a", 100);
    world.set_failing("b", 100);
    assert_eq!(world.count(6).len(), 2);
    assert_eq!(["", ""].map(|_| world.choose()), ["c", "d"]);
    assert_eq!(world.ejected(), ["a", "b"]);
    world.now_ns += 30 * SECOND;
    assert_eq!(["", ""].map(|_| world.choose()), ["a", "b"]);
}
