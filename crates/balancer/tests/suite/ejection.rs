//! Outlier detection: who is ejected, when, for how long, and how many at most.

use tollfree_balancer::{
    Cause, ConsecutiveFailureEjection, Event, FailurePercentageEjection, OutlierDetection, Policy,
    SuccessRateEjection,
};

use super::world::{Failed, SECOND, World};

fn by_percentage() -> OutlierDetection {
    OutlierDetection {
        max_ejection_percent: 100,
        failure_percentage_ejection: Some(FailurePercentageEjection {
            minimum_hosts: 1,
            request_volume: 1,
            ..FailurePercentageEjection::default()
        }),
        ..OutlierDetection::default()
    }
}

fn by_rate() -> OutlierDetection {
    OutlierDetection {
        max_ejection_percent: 100,
        success_rate_ejection: Some(SuccessRateEjection::default()),
        ..OutlierDetection::default()
    }
}

fn by_consecutive() -> OutlierDetection {
    OutlierDetection {
        max_ejection_percent: 100,
        consecutive_failure_ejection: Some(ConsecutiveFailureEjection::default()),
        ..OutlierDetection::default()
    }
}

fn world(count: usize, detection: OutlierDetection) -> World {
    World::with(count, Policy::RoundRobin, Some(detection))
}

/// Ends so many calls at a server, without a choice.
fn end(world: &World, address: &str, successes: usize, failures: usize) {
    let server = world.server(address);
    (0..successes).for_each(|_| server.end(true));
    (0..failures).for_each(|_| server.end(false));
}

/// Lets the interval pass in which these calls have ended.
fn interval(world: &mut World) {
    world.now_ns += 10 * SECOND;
    world.sweep();
}

/// In which seconds since the beginning a server was ejected and returned.
fn history(world: &World) -> Vec<(u64, &str)> {
    let second = |at_ns: u64| at_ns / SECOND - 1000;
    let events = world.events.iter();
    events
        .map(|(at_ns, event)| match event {
            Event::Ejected { .. } => (second(*at_ns), "ejected"),
            Event::Returned { .. } => (second(*at_ns), "returned"),
        })
        .collect()
}

#[test]
fn the_defaults_are_those_of_a50() {
    let config = OutlierDetection::default();
    assert_eq!(
        (
            config.interval_ns,
            config.base_ejection_time_ns,
            config.max_ejection_time_ns,
            config.max_ejection_percent
        ),
        (10 * SECOND, 30 * SECOND, 300 * SECOND, 10)
    );
    let rate = SuccessRateEjection::default();
    assert_eq!(
        (rate.stdev_factor, rate.enforcement_percentage, rate.minimum_hosts, rate.request_volume),
        (1900, 100, 5, 100)
    );
    let percentage = FailurePercentageEjection::default();
    assert_eq!((percentage.threshold, percentage.enforcement_percentage), (85, 100));
    assert_eq!((percentage.minimum_hosts, percentage.request_volume), (5, 50));
    assert!(!config.is_on() && by_rate().is_on() && by_percentage().is_on() && by_consecutive().is_on());
}

#[test]
fn who_is_not_watched_has_no_record() {
    let world = world(1, OutlierDetection::default());
    assert!(world.server("0").record.is_none() && !world.list.is_detecting());
    assert!(!world.list.is_due(u64::MAX));
}

/// The time is the base time multiplied with the number of ejections, and the longest time at most; the number falls in each sweep that
/// finds the endpoint in use.
#[test]
fn ejections_last_as_a50_says() {
    let config = OutlierDetection { max_ejection_time_ns: 70 * SECOND, ..by_percentage() };
    let mut world = world(2, config);
    let mut fails = [10, 50, 120, 210, 220].into_iter().peekable();
    for second in (10..=400).step_by(10) {
        if fails.next_if_eq(&second).is_some() {
            end(&world, "0", 0, 9);
        }
        interval(&mut world);
    }
    let expected = [
        // For 30 s; in use again at 40.
        (10, "ejected"),
        (40, "returned"),
        // For the second time: 60 s.
        (50, "ejected"),
        (110, "returned"),
        // For the third time: 90 s, but no more than 70.
        (120, "ejected"),
        (190, "returned"),
        // The sweep at 200 has made three of it two; the next is the third again.
        (210, "ejected"),
        (280, "returned"),
    ];
    assert_eq!(history(&world), expected);
    assert!(
        matches!(&world.events[2].1, Event::Ejected { for_ns, cause: Cause::FailurePercentage, address } if *for_ns == 60 * SECOND && **address == *"0")
    );
    // After 120 s in use nothing is left of three ejections.
    end(&world, "0", 0, 9);
    interval(&mut world);
    assert!(
        matches!(world.events.last(), Some((_, Event::Ejected { for_ns, .. })) if *for_ns == 30 * SECOND)
    );
}

#[test]
fn a_base_time_above_the_longest_counts() {
    let config = OutlierDetection {
        base_ejection_time_ns: 40 * SECOND,
        max_ejection_time_ns: 20 * SECOND,
        ..by_percentage()
    };
    let mut world = world(1, config);
    end(&world, "0", 0, 1);
    (0..10).for_each(|_| interval(&mut world));
    assert_eq!(history(&world), [(10, "ejected"), (50, "returned")]);
}

/// One who asks late finds what sweeps in time would have made of it.
#[test]
fn sweeps_that_come_late_decide_as_those_in_time() {
    for late in 1..40 {
        let mut worlds = [world(3, by_percentage()), world(3, by_percentage())];
        for world in &mut worlds {
            for _ in 0..3 {
                end(world, "0", 0, 9);
                interval(world);
                world.now_ns += 40 * SECOND;
                world.sweep();
            }
            end(world, "1", 0, 9);
        }
        (0..late).for_each(|_| interval(&mut worlds[0]));
        worlds[1].now_ns += late * 10 * SECOND + 3 * SECOND;
        worlds[1].sweep();
        assert_eq!(worlds[0].ejected(), worlds[1].ejected(), "{late}");
        // What is next shows the numbers of ejections.
        for world in &mut worlds {
            for address in ["0", "1"] {
                end(world, address, 0, 9);
            }
            interval(world);
        }
        let next = worlds.each_ref().map(|world| world.events.last().map(|(_, event)| event.clone()));
        assert_eq!(next[0], next[1], "{late}");
    }
}

#[test]
fn more_than_the_threshold_has_to_fail() {
    for (failures, is_ejected) in [(85, false), (86, true)] {
        let mut world = world(2, by_percentage());
        end(&world, "0", 100 - failures, failures);
        interval(&mut world);
        assert_eq!(!world.ejected().is_empty(), is_ejected, "{failures}");
    }
}

#[test]
fn endpoints_with_few_calls_and_few_endpoints_are_left_alone() {
    let rule = FailurePercentageEjection {
        minimum_hosts: 3,
        request_volume: 50,
        ..FailurePercentageEjection::default()
    };
    let config = OutlierDetection { failure_percentage_ejection: Some(rule), ..by_percentage() };
    // Calls of the three endpoints, all of which fail at the first.
    for (volumes, is_ejected) in [([50, 50, 50], true), ([50, 50, 49], false), ([49, 50, 50], false)] {
        let mut world = world(3, config.clone());
        end(&world, "0", 0, volumes[0]);
        end(&world, "1", volumes[1], 0);
        end(&world, "2", volumes[2], 0);
        interval(&mut world);
        assert_eq!(!world.ejected().is_empty(), is_ejected, "{volumes:?}");
        // Calls of one interval don't count in the next.
        end(&world, "0", 0, 49);
        end(&world, "1", 49, 0);
        end(&world, "2", 49, 0);
        let before = world.ejected();
        interval(&mut world);
        assert_eq!(world.ejected(), before);
    }
}

#[test]
fn a_success_rate_far_below_the_others_is_an_outlier() {
    // Rates of 100 % at four, and r at the fifth: mean and deviation are 80 + r/5 and 0.4 (100 - r), so the limit by a factor of 1.9 is
    // 4 + 0.96 r, and r is below it as long as it is below 100.
    let mut world = world(5, by_rate());
    (0..4).for_each(|at| end(&world, &at.to_string(), 100, 0));
    end(&world, "4", 99, 1);
    interval(&mut world);
    assert_eq!(world.ejected(), ["4"]);
    assert!(matches!(&world.events[0].1, Event::Ejected { cause: Cause::SuccessRate, .. }));
}

#[test]
fn rates_that_differ_little_for_their_spread_are_none() {
    // Two of each: the deviation is as far as the distance to the mean.
    let mut spread = world(6, by_rate());
    for (at, failures) in [(0, 0), (1, 0), (2, 0), (3, 50), (4, 50), (5, 50)] {
        end(&spread, &at.to_string(), 100 - failures, failures);
    }
    interval(&mut spread);
    assert!(spread.ejected().is_empty());
    // Equal rates, whose mean can't be computed exactly.
    for failures in 1..100 {
        let mut equal = world(7, by_rate());
        (0..7).for_each(|at| end(&equal, &at.to_string(), 100, failures));
        interval(&mut equal);
        assert!(equal.ejected().is_empty(), "{failures}");
    }
    // Four with enough calls are too few.
    let mut few = world(5, by_rate());
    (0..3).for_each(|at| end(&few, &at.to_string(), 100, 0));
    end(&few, "3", 0, 100);
    end(&few, "4", 99, 0);
    interval(&mut few);
    assert!(few.ejected().is_empty());
}

#[test]
fn consecutive_failures_eject_before_the_next_call() {
    let mut world = world(2, by_consecutive());
    end(&world, "0", 0, 4);
    end(&world, "0", 1, 4);
    assert!(!world.list.is_due(world.now_ns));
    end(&world, "0", 0, 1);
    assert!(world.list.is_due(world.now_ns), "five since the last success");
    assert_eq!(world.count(20).get("1"), Some(&20));
    assert_eq!(world.ejected(), ["0"]);
    // Calls that were under way fail as well: they prolong nothing, and do not count when it is back.
    end(&world, "0", 0, 4);
    for _ in 0..4 {
        interval(&mut world);
    }
    assert_eq!(history(&world), [(0, "ejected"), (30, "returned")]);
    end(&world, "0", 0, 4);
    assert!(!world.list.is_due(world.now_ns));
}

#[test]
fn failures_that_could_eject_nobody_are_forgotten() {
    let mut world = world(2, OutlierDetection { max_ejection_percent: 50, ..by_consecutive() });
    end(&world, "1", 0, 5);
    world.sweep();
    // No other may be ejected now.
    end(&world, "0", 0, 5);
    world.sweep();
    assert_eq!(world.ejected(), ["1"]);
    (0..3).for_each(|_| interval(&mut world));
    assert!(world.ejected().is_empty());
    end(&world, "1", 0, 5);
    world.sweep();
    assert_eq!(world.ejected(), ["1"], "the failures of the other are long past");
}

#[test]
fn an_interval_of_nothing_is_a_short_one() {
    let mut world = world(1, OutlierDetection { interval_ns: 0, ..by_percentage() });
    end(&world, "0", 0, 1);
    world.now_ns += SECOND;
    world.sweep();
    assert_eq!(world.ejected(), ["0"]);
}

#[test]
fn all_may_be_ejected_where_the_config_says_so_and_return() {
    for detection in [by_consecutive(), by_percentage()] {
        let mut world = world(3, detection);
        ["0", "1", "2"].iter().for_each(|address| world.set_failing(address, 100));
        world.count(30);
        interval(&mut world);
        assert_eq!(world.ejected().len(), 3);
        assert_eq!(world.pick().unwrap_err(), Failed::Because(None));
        let returns_ns = world.list.returns_ns().unwrap();
        assert!(returns_ns > world.now_ns && returns_ns <= world.now_ns + 10 * SECOND);
        world.now_ns += 30 * SECOND;
        assert_eq!(world.count(3).len(), 3);
        assert_eq!(world.list.returns_ns(), None);
    }
}

/// Servers fail in any order: of each priority's endpoints no more than the share are ejected at a time, or one.
#[test]
fn never_more_than_the_share_are_ejected() {
    for seed in 0..60 {
        let percent = [0, 1, 10, 34, 50, 99][seed as usize % 6];
        let detection = OutlierDetection {
            max_ejection_percent: percent,
            success_rate_ejection: Some(SuccessRateEjection {
                request_volume: 5,
                ..SuccessRateEjection::default()
            }),
            consecutive_failure_ejection: Some(ConsecutiveFailureEjection::default()),
            ..by_percentage()
        };
        let mut world = World::new(Policy::RoundRobin, Some(detection), seed);
        let count = 2 + world.rng.below(9);
        world.replace((0..count).map(|at| tollfree_balancer::Target::new(at.to_string())).collect());
        for _ in 0..3000 {
            if world.rng.below(50) == 0 {
                let address = world.rng.below(count).to_string();
                let fails = [0, 50, 90, 100][world.rng.below(4) as usize];
                world.set_failing(&address, fails);
            }
            world.now_ns += world.rng.below(SECOND / 4);
            // Another is ejected while less than the share are.
            let most = (u64::from(percent) * count).div_ceil(100);
            assert!(world.call().is_some() || most == count, "seed {seed}");
            let ejected = world.ejected().len() as u64;
            assert!(ejected <= most, "seed {seed}: {ejected} of {count} at {percent} %");
        }
        let was_ejected = !world.events.is_empty();
        assert_eq!(was_ejected, percent > 0, "seed {seed}");
    }
}

/// A server that fails and recovers by turns is ejected each time, and the times between grow up to the longest.
#[test]
fn one_that_flaps_is_ejected_for_longer_and_longer() {
    let mut world = world(3, by_consecutive());
    let mut times = Vec::new();
    for _ in 0..14 {
        world.set_failing("0", 100);
        while world.ejected().is_empty() {
            world.call();
        }
        let since_ns = world.now_ns;
        world.set_failing("0", 0);
        while !world.ejected().is_empty() {
            world.now_ns += SECOND;
            assert!(world.call().is_some_and(|(_, succeeds)| succeeds));
        }
        times.push((world.now_ns - since_ns) / SECOND);
    }
    assert_eq!(times, [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300, 300, 300]);
}

#[test]
fn enforcement_ejects_in_so_many_of_a_hundred_cases() {
    let enforced = |percentage| {
        (0..1000)
            .filter(|seed| {
                let rule = FailurePercentageEjection {
                    enforcement_percentage: percentage,
                    ..by_percentage().failure_percentage_ejection.unwrap()
                };
                let detection =
                    OutlierDetection { failure_percentage_ejection: Some(rule), ..by_percentage() };
                let mut world = World::new(Policy::RoundRobin, Some(detection), *seed);
                world.replace(vec![tollfree_balancer::Target::new("0")]);
                end(&world, "0", 0, 1);
                interval(&mut world);
                !world.ejected().is_empty()
            })
            .count()
    };
    assert_eq!((enforced(0), enforced(100)), (0, 1000));
    let third = enforced(33);
    assert!((280..380).contains(&third), "{third}");
}
