//! Waits of two ends that wake each other: nothing is lost, nobody spins beyond what is worth it, and who is idle is left alone.

use proptest::prelude::*;
use tollfree_connection::WaitPolicy;

use crate::pair::{Outcome, Pair, Scene};

/// A look may go on for so long beyond its budget: a few steps.
const STEPS_NS: u64 = 1_000;

fn run(scene: Scene) -> Outcome {
    let outcome = Pair::new(scene.clone()).run();
    // What was said before the session was closed can still be read.
    let least = scene.closes_after.unwrap_or(scene.calls);
    assert!(outcome.answered >= least, "{outcome:?} of {scene:?}");
    for deeds in [outcome.client, outcome.server] {
        assert!(deeds.beyond_ns <= STEPS_NS, "{deeds:?} of {scene:?}");
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_call_is_answered_and_nothing_is_due_afterwards(
        seed in any::<u64>(),
        up in prop::sample::select(vec![(0, 0), (1, 64), (40, 64), (3, 7_000), (1, 200_000)]),
        down in prop::sample::select(vec![(0, 0), (1, 64), (40, 64), (3, 7_000), (1, 200_000)]),
        policy in prop::sample::select(vec![WaitPolicy::Adaptive, WaitPolicy::LowLatency, WaitPolicy::Park]),
        work_ns in prop::sample::select(vec![0, 500, 5_000, 60_000, 400_000]),
        pause_ns in prop::sample::select(vec![0, 500, 5_000, 100_000, 1_000_000]),
        wake_ns in prop::sample::select(vec![100, 2_500, 60_000]),
        late in prop::sample::select(vec![(0, 0), (7, 2_000_000), (100, 500_000_000)]),
        is_shared in any::<bool>(),
        stop_ns in prop::sample::select(vec![0, 3_000_000_000]),
        computes_ns in prop::sample::select(vec![0, 4_000_000]),
        closes_after in prop::sample::select(vec![None, None, None, Some(25)]),
        is_tight in any::<bool>(),
    ) {
        run(Scene {
            seed, up, down, policy, calls: 50, work_ns, pause_ns, wake_ns, late, is_shared, stop_ns, computes_ns,
            closes_after, is_tight, ..Scene::default()
        });
    }
}

#[test]
fn a_driver_that_sleeps_though_something_came_loses_wake_ups_and_that_is_noticed() {
    let noticed = (0..200).any(|seed| {
        let scene =
            Scene { seed, policy: WaitPolicy::Park, calls: 300, minds_arming: false, ..Scene::default() };
        let run = std::panic::catch_unwind(|| Pair::new(scene).run());
        run.is_err()
    });
    assert!(noticed);
}

#[test]
fn small_calls_in_a_closed_loop_are_met_by_looking() {
    for seed in 0..20 {
        let outcome = run(Scene { seed, calls: 10_000, ..Scene::default() });
        for deeds in [outcome.client, outcome.server] {
            assert!(deeds.parks < 100, "{deeds:?} of seed {seed}");
        }
    }
}

#[test]
fn at_a_thousand_calls_a_second_looking_takes_less_than_a_hundredth_of_a_processor() {
    for seed in 0..20 {
        let outcome = run(Scene { seed, pause_ns: 1_000_000, ..Scene::default() });
        let looked = outcome.server.looked_ns as f64 / outcome.took_ns as f64;
        assert!(looked < 0.01, "the server: {looked} of seed {seed}");
        let looked = outcome.client.looked_ns as f64 / outcome.took_ns as f64;
        assert!(looked < 0.02, "the client: {looked} of seed {seed}");
    }
}

#[test]
fn looking_never_costs_a_good_neighbor_more_than_sleeping_would_have() {
    // What a wake-up costs is learnt to be about 6 µs here; the server works for 20 µs.
    for (pause_ns, seed) in [10_000, 50_000, 200_000, 5_000_000]
        .into_iter()
        .flat_map(|pause| (0..5).map(move |seed| (pause, seed)))
    {
        let outcome = run(Scene { seed, pause_ns, work_ns: 20_000, ..Scene::default() });
        let each = outcome.server.looked_ns / outcome.server.waits.max(1);
        assert!(each <= 40_000, "{each} ns a wait of {pause_ns} ns");
    }
}

#[test]
fn a_server_that_stops_is_not_spun_for() {
    for policy in [WaitPolicy::Adaptive, WaitPolicy::LowLatency] {
        let outcome = run(Scene { policy, stop_ns: 10_000_000_000, ..Scene::default() });
        assert!(outcome.client.longest_look_ns < 300_000, "{outcome:?}");
    }
}

#[test]
fn nobody_looks_under_a_tight_quota_and_a_sleeper_is_rung_once() {
    let outcome = run(Scene { is_tight: true, ..Scene::default() });
    for deeds in [outcome.client, outcome.server] {
        assert_eq!(deeds.looked_ns, 0, "{deeds:?}");
        assert!(deeds.rung <= deeds.armed && deeds.rung >= deeds.parks - 1, "{deeds:?}");
    }
}

#[test]
fn where_others_compute_looking_gives_way() {
    let outcome = run(Scene {
        policy: WaitPolicy::LowLatency,
        work_ns: 50_000,
        computes_ns: 4_000_000,
        ..Scene::default()
    });
    // Each time that the processor was taken it is left to others for ten times as long.
    let share = outcome.client.looked_ns as f64 / outcome.took_ns as f64;
    assert!(share < 0.15, "{share}");
}

#[test]
fn small_calls_need_no_timer_and_long_ones_one_until_their_area_is_given_up() {
    let outcome = run(Scene::default());
    assert_eq!((outcome.client.timers, outcome.server.timers), (0, 0));
    let outcome = run(Scene { up: (1, 300_000), calls: 20, pause_ns: 1_000_000, ..Scene::default() });
    assert_eq!((outcome.client.areas, outcome.server.areas), (1, 0), "{outcome:?}");
    assert!((1..5).contains(&outcome.client.timers) && outcome.server.timers == 0, "{outcome:?}");
}
