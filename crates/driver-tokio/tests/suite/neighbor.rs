//! The default way to wait is a good neighbor's: what it costs where calls come seldom, and where there is one core for all.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::Builder;
use tollfree_driver_tokio::*;
use tollfree_testkit::{TimeLimit, alone, cpu_time};

use crate::echo::{Apart, check_calls, config, connect, runtimes};

/// Processor time that both ends take for calls with a pause of 100 µs before each, all in this process.
fn taken(policy: WaitPolicy, calls: usize) -> Duration {
    let server = Apart::start(config(policy));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(server.echo(), policy).await;
        let paced = async |count: usize| {
            for _ in 0..count {
                // The client's thread sleeps, as one does that has nothing to ask.
                std::thread::sleep(Duration::from_micros(100));
                check_calls(&client, 1).await;
            }
        };
        paced(200).await;
        let before = cpu_time();
        paced(calls).await;
        cpu_time() - before
    })
}

#[test]
fn calls_that_come_seldom_cost_about_what_they_cost_who_never_spins() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    // Processor time, in turns: a loaded machine makes both slower. Who spins for the next call takes three to ten times as much.
    let mut ratios: Vec<f64> = (0..5)
        .map(|_| {
            let park = taken(WaitPolicy::Park, 300);
            taken(WaitPolicy::Adaptive, 300).as_secs_f64() / park.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] < 2.0, "processor time of the default beside that of parking: {ratios:?}");
}

#[test]
fn one_core_for_all_is_enough() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let here = std::thread::spawn(|| {
        // Threads that this one starts inherit it.
        let all = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).unwrap();
        for policy in [WaitPolicy::Adaptive, WaitPolicy::LowLatency] {
            let server = Apart::start(config(policy));
            for runtime in runtimes() {
                runtime.block_on(async {
                    let mut tasks = tokio::task::JoinSet::new();
                    for _ in 0..4 {
                        let client = connect(server.echo(), policy).await;
                        tasks.spawn(async move { check_calls(&client, 100).await });
                    }
                    while let Some(ended) = tasks.join_next().await {
                        ended.unwrap();
                    }
                });
            }
        }
    });
    here.join().unwrap();
}

#[test]
fn what_waiting_costs_is_counted() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let server = Apart::start(config(WaitPolicy::Park));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(server.echo(), WaitPolicy::Park).await;
        let before = waits();
        // Nobody looks, so that sooner or later each has to wake the other.
        while waits().parked < before.parked + 20 || waits().woken < before.woken + 20 {
            check_calls(&client, 10).await;
        }
        let after = waits();
        assert!(after.rung > before.rung, "{before:?} {after:?}");
    });
    let looking = Apart::start(config(WaitPolicy::LowLatency));
    runtime.block_on(async {
        let client = connect(looking.echo(), WaitPolicy::LowLatency).await;
        let before = waits();
        while waits().looked == before.looked {
            check_calls(&client, 10).await;
        }
    });
}
